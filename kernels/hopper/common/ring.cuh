/* ring.cuh - matrix products of few rows (8 * OCTETS at most) at the speed of memory: y[r][n] = x[r] . w[n], weights in the layout `frag`.
 *
 * One block stays on each multiprocessor and takes every CTAS-th tile of 16 outputs. The last warp fills a ring of
 * stages with bulk copies of the tiles' bytes, which it starts before the kernel in front has ended: weights depend on nothing.
 * The others (16 warps, 8 where OCTETS > 1) wait for x, put it into shared memory in the order in which mma takes it as B, and
 * consume the stages.
 *
 * Order of a sum, the same for every number of rows: k is cut in phases of 4096 / OCTETS. Group i of a tile's stage s belongs to
 * warp i mod TEAM of a team that s and the tile's place say; a warp adds its groups in order; the warps' sums are added in order; then the
 * phases. So a row's bits depend on the row alone.
 *
 * Shared memory: the ring in what the launch gives beyond the sums (16 KB) and x. x is there for as many phases at once as 64 KB
 * hold (a span); where that is less than k, spans are the outer loop and what is summed so far waits in `partial`. */
#ifndef METRALE_RING_CUH
#define METRALE_RING_CUH
#include "frag.cuh"
#include "ptx.cuh"

enum {
    X_BYTES = 65536, /* of x at once */
    SUMS = 2,        /* buffers of the warps' sums */
    MAX_SLOTS = 16
};

/* How a phase's groups are dealt out: groups of a stage, about 16 to 27 KB; warps that share a stage. Codes of a byte are told
 * from those of at most 6 bits by what 16 rows take for each k. */
template <typename F> struct Deal {
    static constexpr bool WIDE = F::BYTES / F::SUPER / F::GROUP >= 14;
    enum { STAGE = (WIDE ? 1024 : 2048) / F::GROUP, TEAM = WIDE ? 4 : 8 };
};
template <> struct Deal<FragBf16> {
    enum { STAGE = 16, TEAM = 4 };
};
template <> struct Deal<FragF16> {
    enum { STAGE = 16, TEAM = 4 };
};

/* x of the rows of a span: shared words [unit of 32 k's][rows][4 lanes][4], in the order of frag_k. */
template <typename F> struct Operand {
    uint32_t *words;
    int rows;

    /* elements k0..k0 + 7 of row r, k0 a multiple of 8 within the span: word k0 % 32 / 8 of each of four lanes */
    __device__ __forceinline__ void put(int r, int k0, const bf16 (&v)[8]) const
    {
#pragma unroll
        for (int t = 0; t < 4; t++)
            words[((k0 / 32 * rows + r) * 4 + t) * 4 + k0 % 32 / 8] = pack_x<F::Half>(v[2 * t], v[2 * t + 1]);
    }
    /* a lane's units of group g for token lane / 4, of which there are n from row `first` on */
    __device__ __forceinline__ void get(uint4 (&x)[F::QUADS], int g, int first, int n, int lane) const
    {
#pragma unroll
        for (int q = 0; q < F::QUADS; q++)
            x[q] = lane / 4 < n ? reinterpret_cast<const uint4 *>(
                                      words)[((g * F::QUADS + q) * rows + first + lane / 4) * 4 + lane % 4]
                                : make_uint4(0, 0, 0, 0);
    }
};

/* The same of the only token, from memory. */
template <typename F>
__device__ __forceinline__ void direct_get(uint4 (&x)[F::QUADS], const bf16 *row, int k0, int k, int lane)
{
#pragma unroll
    for (int q = 0; q < F::QUADS; q++) {
        uint32_t w[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = k0 + 32 * q + 8 * i + 2 * (lane % 4);
            if (lane < 4 && k % 2 == 0 && at < k) {
                const __nv_bfloat162 v = *reinterpret_cast<const __nv_bfloat162 *>(row + at);
                w[i] = pack_x<F::Half>(v.x, v.y);
            } else if (lane < 4 && at < k)
                w[i] = pack_x<F::Half>(row[at], at + 1 < k ? row[at + 1] : __float2bfloat16_rn(0.0f));
        }
        x[q] = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

/* Warps that consume: with more octets of rows a thread has more to keep. */
__host__ __device__ constexpr int ring_consumers(int octets)
{
    return octets > 1 ? 8 : 16;
}

__host__ __device__ constexpr int ring_threads(int octets)
{
    return 32 * (ring_consumers(octets) + 1);
}

struct Ring {
    uint8_t *stages;
    uint64_t *full, *empty;
    int n_slots, slot;
    uint32_t parity; /* of the slot's use */

    __device__ __forceinline__ void next()
    {
        if (++slot == n_slots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* Named barrier of the consumers; 0 is __syncthreads. */
template <int CONSUMERS> __device__ __forceinline__ void consumers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(32 * CONSUMERS) : "memory");
}

__device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

/* v = p[0..8), zeros from p[n] on. */
__device__ __forceinline__ void load_8(bf16 (&v)[8], const bf16 *p, int n)
{
    if (n >= 8 && reinterpret_cast<uintptr_t>(p) % 16 == 0) {
        const uint4 u = *reinterpret_cast<const uint4 *>(p);
        memcpy(v, &u, sizeof v);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = i < n ? p[i] : __float2bfloat16_rn(0.0f);
}

/* What is done to x on its way in: nothing, or rms_norm with weights w. As rms_norm_block sums: 256 threads a row, 8 elements
 * each, lanes, then warps. */
struct Norm {
    const float *w;
    float eps, offset;
};

/* A job is a tile with the x rows it meets. Work has
 *   jobs()                    how many this block has
 *   tile(j)                   where the tile's bytes begin
 *   first(j), tokens(j)       its rows of x
 *   finish(j, o, lane, sum[4])   called by one warp once job j's sums of octet o of its rows are complete; for jobs j, j + 1, ... of one pair
 *                             (PARTS) by the same warp in order
 *   x(r)                      row r of x in memory
 *   DIRECT                    each job has a row of its own, read from memory as it is used */
template <typename F, int OCTETS, int PARTS, typename Work>
__device__ __forceinline__ void ring_run(const Work &work, int k, int x_rows, const Norm *norm, float *partial,
                                         bool late)
{
    extern __shared__ __align__(128) uint8_t shared[];
    enum {
        CONSUMERS = ring_consumers(OCTETS),
        PHASE = 4096 / OCTETS,
        PER_PHASE = PHASE / F::GROUP,
        SUM_BYTES = SUMS * CONSUMERS * OCTETS * 512
    };
    enum {
        STAGE = Deal<F>::STAGE < PER_PHASE ? Deal<F>::STAGE : PER_PHASE,
        TEAM = Deal<F>::TEAM,
        TEAMS = CONSUMERS / TEAM
    };
    __shared__ uint64_t full[MAX_SLOTS], empty[MAX_SLOTS], sums_full[SUMS], sums_empty[SUMS];
    __shared__ float row_scale[8 * OCTETS], warp_sums[CONSUMERS];
    enum { STAGE_BYTES = STAGE / F::SUPER * F::BYTES };

    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int groups = frag_groups<F>(k), phases = (groups + PER_PHASE - 1) / PER_PHASE;
    int fit = Work::DIRECT ? phases : X_BYTES / (2 * PHASE * x_rows);
    fit = fit < phases ? (fit < 1 ? 1 : fit) : phases;
    const int x_bytes = Work::DIRECT ? 0 : fit == phases ? 2 * x_rows * groups * F::GROUP : 2 * x_rows * fit * PHASE;
    float *sums = reinterpret_cast<float *>(shared);
    Operand<F> operand = {reinterpret_cast<uint32_t *>(shared + SUM_BYTES), x_rows};
    Ring ring = {shared + SUM_BYTES + x_bytes, full, empty, 0, 0, 0};
    ring.n_slots = ((int)dynamic_shared_bytes() - SUM_BYTES - x_bytes) / STAGE_BYTES;
    ring.n_slots = ring.n_slots < MAX_SLOTS ? ring.n_slots : MAX_SLOTS;

    launch_dependents();
    if (threadIdx.x == 0) {
        for (int i = 0; i < ring.n_slots; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], CONSUMERS);
        }
        for (int i = 0; i < SUMS; i++) {
            barrier_init(&sums_full[i], CONSUMERS);
            barrier_init(&sums_empty[i], 1);
        }
        barrier_init_fence();
    }
    __syncthreads();

    if (warp == CONSUMERS) {
        if (lane != 0)
            return;
        if (late) /* which tiles there are is a predecessor's result */
            wait_for_predecessors();
        const uint64_t policy = policy_evict_first();
        const int jobs = work.jobs();
        bool first_use = true;
        for (int p0 = 0; p0 < phases; p0 += fit)
            for (int j = 0; j < jobs; j++) {
                const uint8_t *at = work.tile(j) + F::HEAD + frag_bytes<F>(p0 * PER_PHASE);
                const int end = min(groups, (p0 + fit) * PER_PHASE);
                for (int g = p0 * PER_PHASE; g < end; g += STAGE) {
                    const uint32_t bytes = (uint32_t)frag_bytes<F>(min(STAGE, end - g));
                    if (!first_use)
                        barrier_wait(&empty[ring.slot], ring.parity ^ 1);
                    barrier_expect(&full[ring.slot], bytes);
                    bulk_copy(ring.stages + (size_t)ring.slot * STAGE_BYTES, at, bytes, &full[ring.slot], policy);
                    at += bytes;
                    ring.next();
                    first_use = first_use && ring.slot != 0;
                }
            }
        return;
    }

    wait_for_predecessors();
    if (norm) {
        const int half = (int)threadIdx.x / 256, at = (int)threadIdx.x % 256;
        for (int r0 = 0; r0 < x_rows; r0 += CONSUMERS / 8) {
            const int r = r0 + half;
            float sum = 0.0f;
            for (int c = 8 * at; r < x_rows && c < k; c += 8 * 256) {
                bf16 v[8];
                load_8(v, work.x(r) + c, k - c);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    sum = fmaf(__bfloat162float(v[i]), __bfloat162float(v[i]), sum);
            }
            sum = warp_sum(sum);
            if (lane == 0)
                warp_sums[warp] = sum;
            consumers_sync<CONSUMERS>();
            sum = warp_sum(lane < 8 ? warp_sums[8 * half + lane] : 0.0f);
            if (at == 0 && r < x_rows)
                row_scale[r] = rsqrtf(sum / (float)k + norm->eps);
            consumers_sync<CONSUMERS>();
        }
    }

    const int jobs = work.jobs(), team = warp / TEAM, member = warp % TEAM;
    int buffer = 0;
    uint32_t buffer_parity = 0;
    bool buffer_first = true;
    for (int p0 = 0; p0 < phases; p0 += fit) {
        const int k0 = p0 * PHASE, k_end = min(groups * F::GROUP, (p0 + fit) * PHASE), chunks = (k_end - k0) / 8;
        if (p0 > 0)
            consumers_sync<CONSUMERS>(); /* the last span's x is read */
        for (int e = (int)threadIdx.x; !Work::DIRECT && e < x_rows * chunks; e += 32 * CONSUMERS) {
            const int r = e / chunks, c = k0 + e % chunks * 8;
            bf16 v[8];
            load_8(v, work.x(r) + c, k - c);
            if (norm) {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float w = c + i < k ? norm->w[c + i] + norm->offset : 0.0f;
                    v[i] = __float2bfloat16_rn(__bfloat162float(v[i]) * (row_scale[r] * w));
                }
            }
            operand.put(r, c - k0, v);
        }
        consumers_sync<CONSUMERS>();

        for (int j = 0; j < jobs; j++) {
            const int end = min(groups, (p0 + fit) * PER_PHASE), first = work.first(j), tokens = work.tokens(j);
            const bool mine = j / PARTS % CONSUMERS == warp;
            float4 *const part =
                reinterpret_cast<float4 *>(partial) + ((size_t)j * gridDim.x + blockIdx.x) * OCTETS * 32 + lane;
            float4 total[OCTETS];
#pragma unroll
            for (int o = 0; o < OCTETS; o++)
                total[o] = p0 > 0 && mine ? part[32 * o] : make_float4(0, 0, 0, 0);
            for (int ph = p0 * PER_PHASE; ph < end; ph += PER_PHASE) {
                const int stop = min(end, ph + PER_PHASE);
                float acc[OCTETS][4] = {};
                for (int g = ph; g < stop; g += STAGE) {
                    /* All wait for every stage and hand it back: a barrier tells odd from even, so that a warp may be neither
                     * behind nor ahead of a slot by two uses. */
                    barrier_wait(&full[ring.slot], ring.parity);
                    if ((g / STAGE + j * (PER_PHASE / STAGE)) % TEAMS == team) {
                        const uint8_t *stage = ring.stages + (size_t)ring.slot * STAGE_BYTES;
                        const int n = min(STAGE, stop - g);
                        for (int i = member; i < n; i += TEAM) {
                            F a;
                            frag_load(a, stage, i, lane);
#pragma unroll
                            for (int o = 0; o < OCTETS; o++) {
                                uint4 x[F::QUADS];
                                if (Work::DIRECT)
                                    direct_get<F>(x, work.x(first), (g + i) * F::GROUP, k, lane);
                                else
                                    operand.get(x, g + i - p0 * PER_PHASE, first + 8 * o, tokens - 8 * o, lane);
                                a.add(acc[o], x);
                            }
                        }
                        /* what was loaded has been used, hence has come, before the slot is given back */
#pragma unroll
                        for (int o = 0; o < OCTETS; o++)
                            asm volatile(""
                                         : "+f"(acc[o][0]), "+f"(acc[o][1]), "+f"(acc[o][2]),
                                           "+f"(acc[o][3])::"memory");
                    }
                    __syncwarp();
                    if (lane == 0)
                        barrier_arrive(&empty[ring.slot]);
                    ring.next();
                }
                if (!buffer_first)
                    barrier_wait(&sums_empty[buffer], buffer_parity ^ 1);
                float4 *const all = reinterpret_cast<float4 *>(sums) + buffer * CONSUMERS * OCTETS * 32 + lane;
#pragma unroll
                for (int o = 0; o < OCTETS; o++)
                    all[(warp * OCTETS + o) * 32] = make_float4(acc[o][0], acc[o][1], acc[o][2], acc[o][3]);
                __syncwarp();
                if (lane == 0)
                    barrier_arrive(&sums_full[buffer]);
                if (mine) {
                    barrier_wait(&sums_full[buffer], buffer_parity);
#pragma unroll
                    for (int o = 0; o < OCTETS; o++) {
                        float4 v = all[o * 32];
#pragma unroll
                        for (int w = 1; w < CONSUMERS; w++) {
                            const float4 u = all[(w * OCTETS + o) * 32];
                            v = make_float4(v.x + u.x, v.y + u.y, v.z + u.z, v.w + u.w);
                        }
                        total[o] = make_float4(total[o].x + v.x, total[o].y + v.y, total[o].z + v.z, total[o].w + v.w);
                        asm volatile(""
                                     : "+f"(total[o].x), "+f"(total[o].y), "+f"(total[o].z),
                                       "+f"(total[o].w)::"memory");
                    }
                    __syncwarp();
                    if (lane == 0)
                        barrier_arrive(&sums_empty[buffer]);
                }
                if (++buffer == SUMS) {
                    buffer = 0;
                    buffer_parity ^= 1;
                    buffer_first = false;
                }
            }
#pragma unroll
            for (int o = 0; o < OCTETS; o++) {
                if (!mine)
                    continue;
                if (end < groups) /* partial: [jobs][blocks][OCTETS][32 lanes][4] */
                    part[32 * o] = total[o];
                else {
                    const float sum[4] = {total[o].x, total[o].y, total[o].z, total[o].w};
                    work.finish(j, o, lane, sum);
                }
            }
        }
    }
}

/* Element c of a lane's four sums of octet o: row of the tile, token. */
__device__ __forceinline__ int sum_row(int lane, int c)
{
    return lane / 4 + c / 2 * 8;
}
__device__ __forceinline__ int sum_token(int o, int lane, int c)
{
    return 8 * o + lane % 4 * 2 + c % 2;
}
#endif
