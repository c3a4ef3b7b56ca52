/* ring.cuh - matrix products of 1 to 8 rows at the speed of memory: y[r][n] = x[r] . w[n], weights in the layout `frag`.
 *
 * One block of 18 warps stays on each multiprocessor and takes every CTAS-th tile of 16 outputs. One warp fills a ring of stages
 * with bulk copies of the tiles' bytes, which it starts before the kernel in front has ended: weights depend on nothing. 16
 * warps wait for x, put it into shared memory in the order in which mma takes it as B, and consume the stages. The last warp
 * adds the sums of the 16 and finishes outputs, so that no consumer is held up by that.
 *
 * Order of a sum, the same for every number of rows: k is cut in phases of 4096. In a phase, group i of stage s belongs to warp
 * i mod TEAM of a team that s and the tile's place say; a warp adds its groups in order; the 16 warps' sums are added in order;
 * then the phases. So a row's bits depend on the row alone. With a norm, x goes in times the norm's weights, and the sums are
 * multiplied by 1 / rms(x) at the end.
 *
 * Shared memory: the ring in what the launch gives beyond the sums (32 KB) and x. x is there for as many phases at once as 64 KB
 * hold (a span); where that is less than k, spans are the outer loop and what is summed so far waits in `partial`. */
#ifndef METRALE_RING_CUH
#define METRALE_RING_CUH
#include "frag.cuh"
#include "ptx.cuh"
#include "warp.cuh"

enum {
    X_BYTES = 65536, /* of x at once */
    CONSUMERS = 16,
    RING_THREADS = 32 * (CONSUMERS + 2),
    PHASE = 4096, /* k's */
    SUMS = 4,     /* buffers of the warps' sums */
    SUM_BYTES = SUMS * CONSUMERS * 512,
    MAX_ROWS = 8,
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
__device__ __forceinline__ void consumers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(32 * CONSUMERS) : "memory");
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

/* rms_norm of x on its way in, with weights w. */
struct Norm {
    const float *w;
    float eps, offset;
};

/* x of formats that become f16 is scaled by a power of two where it comes without its norm: f16 ends at 65504. */
template <typename F> __device__ __forceinline__ constexpr float norm_shift()
{
    return F::Half ? 1.0f / 64 : 1.0f;
}

/* A span of x to shared memory by all consumers. A warp has the same 16-byte pieces of every row; squares[r] is this thread's
 * share of the sum of row r's squares. */
template <typename F, typename Work>
__device__ __forceinline__ void load_span(const Operand<F> &operand, const Work &work, int k, int k0, int k_end,
                                          int rows, const Norm *norm, float (&squares)[MAX_ROWS])
{
    for (int c = k0 + 8 * (int)threadIdx.x; c < k_end; c += 8 * 32 * CONSUMERS) {
        float w[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            w[i] = norm && c + i < k ? (norm->w[c + i] + norm->offset) * norm_shift<F>() : 0.0f;
#pragma unroll
        for (int r = 0; r < MAX_ROWS; r++) {
            if (r >= rows)
                break;
            bf16 v[8];
            load_8(v, work.x(r) + c, k - c);
            if (norm)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float f = __bfloat162float(v[i]);
                    squares[r] = fmaf(f, f, squares[r]);
                    v[i] = __float2bfloat16_rn(f * w[i]);
                }
            operand.put(r, c - k0, v);
        }
    }
}

/* A job is a tile with the x rows it meets. Work has
 *   jobs()                    how many this block has
 *   tile(j)                   where the tile's bytes begin
 *   first(j), tokens(j)       its rows of x
 *   finish(j, lane, sum[4])   called by one warp once job j's sums are complete, for all jobs in order
 *   x(r)                      row r of x in memory
 *   DIRECT                    each job has a row of its own, read from memory as it is used */
template <typename F, typename Work>
__device__ __forceinline__ void ring_run(const Work &work, int k, int x_rows, const Norm *norm, float *partial,
                                         bool late)
{
    extern __shared__ __align__(128) uint8_t shared[];
    enum { PER_PHASE = PHASE / F::GROUP, STAGE = Deal<F>::STAGE, TEAM = Deal<F>::TEAM, TEAMS = CONSUMERS / TEAM };
    enum { STAGE_BYTES = STAGE / F::SUPER * F::BYTES };
    __shared__ uint64_t full[MAX_SLOTS], empty[MAX_SLOTS], sums_full[SUMS], sums_empty[SUMS];
    __shared__ float row_squares[MAX_ROWS][CONSUMERS];

    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int groups = frag_groups<F>(k), phases = (groups + PER_PHASE - 1) / PER_PHASE;
    int fit = Work::DIRECT ? phases : X_BYTES / (2 * PHASE * x_rows);
    fit = fit < phases ? (fit < 1 ? 1 : fit) : phases;
    const int x_bytes = Work::DIRECT ? 0 : fit == phases ? 2 * x_rows * groups * F::GROUP : 2 * x_rows * fit * PHASE;
    float4 *const sums = reinterpret_cast<float4 *>(shared);
    const Operand<F> operand = {reinterpret_cast<uint32_t *>(shared + SUM_BYTES), x_rows};
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

    int buffer = 0;
    uint32_t parity = 0; /* of the buffer's use */
    auto next_buffer = [&] {
        if (++buffer == SUMS) {
            buffer = 0;
            parity ^= 1;
        }
    };

    if (warp == CONSUMERS) { /* the ring is filled */
        if (lane != 0)
            return;
        if (late) /* which tiles there are is a predecessor's result */
            wait_for_predecessors();
        const uint64_t policy = policy_evict_first();
        const int jobs = work.jobs();
        for (int p0 = 0; p0 < phases; p0 += fit)
            for (int j = 0; j < jobs; j++) {
                const uint8_t *at = work.tile(j) + F::HEAD + frag_bytes<F>(p0 * PER_PHASE);
                const int end = min(groups, (p0 + fit) * PER_PHASE);
                for (int g = p0 * PER_PHASE; g < end; g += STAGE) {
                    const uint32_t bytes = (uint32_t)frag_bytes<F>(min(STAGE, end - g));
                    barrier_wait(&empty[ring.slot], ring.parity ^ 1);
                    barrier_expect(&full[ring.slot], bytes);
                    bulk_copy(ring.stages + (size_t)ring.slot * STAGE_BYTES, at, bytes, &full[ring.slot], policy);
                    at += bytes;
                    ring.next();
                }
            }
        return;
    }

    wait_for_predecessors();
    const int jobs = work.jobs();
    if (warp > CONSUMERS) {            /* sums are finished */
        float scale[2] = {1.0f, 1.0f}; /* of this lane's two tokens */
        bool scaled = norm == nullptr;
        for (int p0 = 0; p0 < phases; p0 += fit)
            for (int j = 0; j < jobs; j++) {
                const int end = min(groups, (p0 + fit) * PER_PHASE);
                float4 *const part =
                    reinterpret_cast<float4 *>(partial) + ((size_t)j * gridDim.x + blockIdx.x) * 32 + lane;
                float4 total = p0 > 0 ? *part : make_float4(0, 0, 0, 0);
                for (int ph = p0 * PER_PHASE; ph < end; ph += PER_PHASE) {
                    const float4 *const in = sums + buffer * CONSUMERS * 32 + lane;
                    barrier_wait(&sums_full[buffer], parity);
                    float4 v = in[0];
#pragma unroll
                    for (int w = 1; w < CONSUMERS; w++) {
                        const float4 u = in[32 * w];
                        v = make_float4(v.x + u.x, v.y + u.y, v.z + u.z, v.w + u.w);
                    }
                    total = make_float4(total.x + v.x, total.y + v.y, total.z + v.z, total.w + v.w);
                    asm volatile("" : "+f"(total.x), "+f"(total.y), "+f"(total.z), "+f"(total.w)::"memory");
                    __syncwarp();
                    if (lane == 0)
                        barrier_arrive(&sums_empty[buffer]);
                    next_buffer();
                }
                if (end < groups) { /* partial: [jobs][blocks][32 lanes][4] */
                    *part = total;
                    continue;
                }
                if (!scaled) /* the consumers' squares came with their first sums of this span, the last one */
                    for (int i = 0; i < 2; i++) {
                        const int r = lane % 4 * 2 + i;
                        float sum = 0.0f;
                        for (int w = 0; r < x_rows && w < CONSUMERS; w++)
                            sum += row_squares[r][w];
                        scale[i] = rsqrtf(sum / (float)k + norm->eps) / norm_shift<F>();
                    }
                scaled = true;
                const float sum[4] = {total.x * scale[0], total.y * scale[1], total.z * scale[0], total.w * scale[1]};
                work.finish(j, lane, sum);
            }
        return;
    }

    const int team = warp / TEAM, member = warp % TEAM;
    float squares[MAX_ROWS] = {};
    for (int p0 = 0; p0 < phases; p0 += fit) {
        const int end = min(groups, (p0 + fit) * PER_PHASE);
        if (p0 > 0)
            consumers_sync(); /* the last span's x is read */
        if (!Work::DIRECT)
            load_span(operand, work, k, p0 * PHASE, end * F::GROUP, x_rows, norm, squares);
        if (norm && end == groups)
#pragma unroll
            for (int r = 0; r < MAX_ROWS; r++) {
                if (r >= x_rows)
                    break;
                const float sum = warp_sum(squares[r]);
                if (lane == 0)
                    row_squares[r][warp] = sum;
            }
        consumers_sync();

        for (int j = 0; j < jobs; j++) {
            const int first = work.first(j), tokens = work.tokens(j);
            for (int ph = p0 * PER_PHASE; ph < end; ph += PER_PHASE) {
                const int stop = min(end, ph + PER_PHASE);
                float acc[4] = {0, 0, 0, 0};
                for (int g = ph; g < stop; g += STAGE) {
                    /* All wait for every stage and hand it back: a barrier tells odd from even, so that a warp may be neither
                     * behind nor ahead of a slot by two uses. */
                    barrier_wait(&full[ring.slot], ring.parity);
                    if ((g / STAGE + j * (PER_PHASE / STAGE)) % TEAMS == team) {
                        const uint8_t *stage = ring.stages + (size_t)ring.slot * STAGE_BYTES;
                        const int n = min(STAGE, stop - g);
                        for (int i = member; i < n; i += TEAM) {
                            F a;
                            uint4 x[F::QUADS];
                            frag_load(a, stage, i, lane);
                            if (Work::DIRECT)
                                direct_get<F>(x, work.x(first), (g + i) * F::GROUP, k, lane);
                            else
                                operand.get(x, g + i - p0 * PER_PHASE, first, tokens, lane);
                            a.add(acc, x);
                        }
                        /* what was loaded has been used, hence has come, before the slot is given back */
                        asm volatile("" : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])::"memory");
                    }
                    __syncwarp();
                    if (lane == 0)
                        barrier_arrive(&empty[ring.slot]);
                    ring.next();
                }
                barrier_wait(&sums_empty[buffer], parity ^ 1);
                sums[(buffer * CONSUMERS + warp) * 32 + lane] = make_float4(acc[0], acc[1], acc[2], acc[3]);
                __syncwarp();
                if (lane == 0)
                    barrier_arrive(&sums_full[buffer]);
                next_buffer();
            }
        }
    }
}

/* Element c of a lane's four sums: row of the tile, token. */
__device__ __forceinline__ int sum_row(int lane, int c)
{
    return lane / 4 + c / 2 * 8;
}
__device__ __forceinline__ int sum_token(int lane, int c)
{
    return lane % 4 * 2 + c % 2;
}
#endif
