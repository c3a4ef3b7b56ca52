/* gemm.cuh - matrix products of many rows on the tensor cores of sm_90: y[r][n] = x[r] . w[n], weights in the layout `frag`.
 *
 * The weights are the operand that wgmma takes from registers, so that the layout of the few-row kernels is read as it stands
 * and codes of 8 or 4 bits become bf16 on the way; the rows of x are the operand in shared memory. A block stays on its
 * multiprocessor and takes every CTAS-th job: GROUPS * 64 outputs of TOKENS rows.
 *   warp 0           copies the job's weight tiles in stages of 128 k's, ahead of the predecessor's end
 *   warps 1 to 3     copy rows of x in stages of 64 k's, swizzled
 *   the other warps  GROUPS warpgroups, 64 outputs each
 * Jobs go down the outputs within bands of 8 row blocks, so that what runs at a time shares weights and rows in L2.
 *
 * Order of a sum: wgmma of 16 k's along k, one f32 accumulator. fp8 weights are rounded to bf16 once they are scaled. */
#ifndef METRALE_GEMM_CUH
#define METRALE_GEMM_CUH
#include "frag.cuh"
#include "ptx.cuh"
#include "wgmma.cuh"

enum { A_K = 128, B_K = 64, BAND = 8, LOADERS = 96, MAX_STAGES = 16 };

/* ---- weights as bf16 -------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&v);
}

__device__ __forceinline__ uint32_t bf16x2_mul(uint32_t a, uint32_t b)
{
    __nv_bfloat162 c = __hmul2(*reinterpret_cast<__nv_bfloat162 *>(&a), *reinterpret_cast<__nv_bfloat162 *>(&b));
    return *reinterpret_cast<uint32_t *>(&c);
}

/* A format's A_K k's of a tile in shared memory (BYTES of them), and a lane's registers for the four wgmma of B_K k's: half 0
 * or 1 of it. */
template <typename F> struct Weights;

template <> struct Weights<FragBf16> {
    enum { BYTES = 4096 };
    static __device__ __forceinline__ void get(uint32_t (&a)[4][4], const uint8_t *p, int half, int lane)
    {
#pragma unroll
        for (int s = 0; s < 4; s++) {
            const uint4 v = reinterpret_cast<const uint4 *>(p)[(4 * half + s) * 32 + lane];
            a[s][0] = v.x, a[s][1] = v.y, a[s][2] = v.z, a[s][3] = v.w;
        }
    }
};

template <> struct Weights<FragFp8> {
    enum { BYTES = 2112 };
    static __device__ __forceinline__ uint32_t two(uint32_t codes, float d) /* the low two */
    {
        const uint32_t h = FragFp8::convert((uint16_t)codes);
        const float2 f = __half22float2(*reinterpret_cast<const __half2 *>(&h));
        return pack_bf16(f.x * d, f.y * d);
    }
    static __device__ __forceinline__ void get(uint32_t (&a)[4][4], const uint8_t *p, int half, int lane)
    {
        const float d0 = reinterpret_cast<const float *>(p)[lane / 4],
                    d8 = reinterpret_cast<const float *>(p)[lane / 4 + 8];
#pragma unroll
        for (int s = 0; s < 4; s += 2) {
            const uint4 v = reinterpret_cast<const uint4 *>(p + 64)[(2 * half + s / 2) * 32 + lane];
            a[s][0] = two(v.x, d0), a[s][1] = two(v.y, d8), a[s][2] = two(v.x >> 16, d0), a[s][3] = two(v.y >> 16, d8);
            a[s + 1][0] = two(v.z, d0), a[s + 1][1] = two(v.w, d8);
            a[s + 1][2] = two(v.z >> 16, d0), a[s + 1][3] = two(v.w >> 16, d8);
        }
    }
};

/* e2m1 codes i and i + 4 of eight, times 2^-126: sign and the three bits below it at bf16's places. */
__device__ __forceinline__ uint32_t bf16x2_e2m1(uint32_t codes, int i)
{
    const uint32_t c = codes >> 4 * i;
    return (c & 0x00080008u) << 12 | (c & 0x00070007u) << 6;
}

/* code * 2^-126, times 2^20, times scale * 2^106: each factor in bf16's range, the product exact but for the tile's f32. */
template <> struct Weights<FragNvfp4> {
    enum { BYTES = 1152 };
    static __device__ __forceinline__ uint32_t scale(uint32_t s)
    {
        const uint32_t h = (s & 0x80) << 8 | (s & 0x7f) << 4;                 /* s * 2^-120 */
        return bf16x2_mul(bf16x2_mul(h | h << 16, 0x7b007b00u), 0x75007500u); /* 2^119, 2^107: s * 2^106 */
    }
    static __device__ __forceinline__ uint32_t two(uint32_t codes, int i, uint32_t s)
    {
        return bf16x2_mul(bf16x2_mul(bf16x2_e2m1(codes, i), 0x49804980u), s); /* 2^20 */
    }
    static __device__ __forceinline__ void get(uint32_t (&a)[4][4], const uint8_t *p, int half, int lane)
    {
        p += 576 * half;
        const uint32_t s0 = reinterpret_cast<const uint32_t *>(p)[lane / 4],
                       s8 = reinterpret_cast<const uint32_t *>(p)[lane / 4 + 8];
        const uint4 v = reinterpret_cast<const uint4 *>(p + 64)[lane];
#pragma unroll
        for (int s = 0; s < 4; s++) {
            const uint32_t x0 = scale(s0 >> 8 * s), x8 = scale(s8 >> 8 * s), w0 = s < 2 ? v.x : v.z,
                           w8 = s < 2 ? v.y : v.w;
            a[s][0] = two(w0, s % 2 * 2, x0), a[s][1] = two(w8, s % 2 * 2, x8);
            a[s][2] = two(w0, s % 2 * 2 + 1, x0), a[s][3] = two(w8, s % 2 * 2 + 1, x8);
        }
    }
};

template <> struct Weights<FragMxfp4> {
    enum { BYTES = 1088 };
    /* code * 2^-126, times 2^126 (exact: the code), times 2^(e - 127) */
    static __device__ __forceinline__ uint32_t two(uint32_t codes, int i, uint32_t s)
    {
        return bf16x2_mul(bf16x2_mul(bf16x2_e2m1(codes, i), 0x7e807e80u), s);
    }
    static __device__ __forceinline__ uint32_t scale(uint32_t e)
    {
        const uint32_t h = e ? e << 7 : 0x40;
        return h | h << 16;
    }
    static __device__ __forceinline__ void get(uint32_t (&a)[4][4], const uint8_t *p, int half, int lane)
    {
        p += 544 * half;
        const uint32_t e0 = reinterpret_cast<const uint16_t *>(p)[lane / 4],
                       e8 = reinterpret_cast<const uint16_t *>(p)[lane / 4 + 8];
        const uint4 v = reinterpret_cast<const uint4 *>(p + 32)[lane];
#pragma unroll
        for (int s = 0; s < 4; s++) {
            const uint32_t x0 = scale(s < 2 ? e0 & 255 : e0 >> 8), x8 = scale(s < 2 ? e8 & 255 : e8 >> 8),
                           w0 = s < 2 ? v.x : v.z, w8 = s < 2 ? v.y : v.w;
            a[s][0] = two(w0, s % 2 * 2, x0), a[s][1] = two(w8, s % 2 * 2, x8);
            a[s][2] = two(w0, s % 2 * 2 + 1, x0), a[s][3] = two(w8, s % 2 * 2 + 1, x8);
        }
    }
};

/* What is left to do to the sum of row r of a tile. */
template <typename F> __device__ __forceinline__ float gemm_finish(const uint8_t *tile, int r, float sum)
{
    return sum;
}
template <> __device__ __forceinline__ float gemm_finish<FragNvfp4>(const uint8_t *tile, int r, float sum)
{
    return sum * reinterpret_cast<const float *>(tile)[r];
}

/* ---- the loop --------------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void copy_16(uint32_t to, const void *from, uint32_t bytes) /* the rest of 16 becomes zero */
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* Eight elements, of which n are there, where rows are not aligned. */
__device__ __forceinline__ void store_shared(uint32_t to, const bf16 *p, int n)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const unsigned short v = i < n ? __bfloat16_as_ushort(p[i]) : 0;
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(to + 2 * i), "h"(v) : "memory");
    }
}

__device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most N groups of this thread's copies fly. */
template <int N> __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* What this thread has written to shared memory comes before what wgmma reads after the next barrier. */
__device__ __forceinline__ void shared_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

struct Stage {
    int slot, n;
    uint32_t parity;
    __device__ __forceinline__ void next()
    {
        if (++slot == n) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* Work has
 *   rows, k, jobs_n      rows of x; k; blocks of GROUPS * 64 outputs
 *   x(r)                 row r; AFFINE: x(r + 1) is k elements behind x(r)
 *   tile(jn, i)          weight tile i (0 .. 4 * GROUPS - 1) of output block jn, NULL when there is none
 *   OUT_BYTES            shared memory that store wants
 *   store(acc, out, jn, r0, group, warp, lane)
 *                        takes the sums of output block jn and rows r0.., all consumers at a time: acc[t][4j + c] belongs to
 *                        row lane / 4 + c / 2 * 8 of tile 4 * group + warp, token t * ATOM + 8j + lane % 4 * 2 + c % 2 */
template <typename F, int GROUPS, int TOKENS, typename Work> __device__ __forceinline__ void gemm_run(const Work &work)
{
    /* FLYING stages of b are loaded at a time: two fewer than there are, since the consumers hold one back */
    enum { FLYING = TOKENS > 128 ? 2 : 4 };
    enum { ATOM = TOKENS < 128 ? TOKENS : 128, ATOMS = TOKENS / ATOM, TILES = 4 * GROUPS, A_TILE = Weights<F>::BYTES };
    enum { A_BYTES = TILES * A_TILE, B_BYTES = TOKENS * 128, OUT_BYTES = Work::OUT_BYTES };
    extern __shared__ __align__(1024) uint8_t shared_base[];
    __shared__ uint64_t a_full[MAX_STAGES], a_empty[MAX_STAGES], b_full[MAX_STAGES], b_empty[MAX_STAGES];

    uint8_t *shared = shared_base + (1024 - shared_address(shared_base) % 1024) % 1024;
    const int room = (int)dynamic_shared_bytes() - 1024 - OUT_BYTES;
    Stage a = {0, 0, 0}, b = {0, 0, 0}; /* two stages of b for one of a, and what is over to b */
    a.n = max(2, min((int)MAX_STAGES, room / (A_BYTES + 2 * B_BYTES)));
    b.n = min((int)MAX_STAGES, (room - a.n * A_BYTES) / B_BYTES);
    uint8_t *const b_at = shared, *const a_at = shared + b.n * B_BYTES, *const out = a_at + a.n * A_BYTES;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int a_steps = (work.k + A_K - 1) / A_K, b_steps = (work.k + B_K - 1) / B_K;
    const int blocks = (work.rows + TOKENS - 1) / TOKENS, jobs = blocks * work.jobs_n;

    launch_dependents();
    if (threadIdx.x == 0) {
        for (int i = 0; i < a.n; i++) {
            barrier_init(&a_full[i], 1);
            barrier_init(&a_empty[i], TILES);
        }
        for (int i = 0; i < b.n; i++) {
            barrier_init(&b_full[i], LOADERS);
            barrier_init(&b_empty[i], TILES);
        }
        barrier_init_fence();
    }
    __syncthreads();

    /* job -> output block and row block: bands of BAND row blocks, down the outputs within a band */
    auto place = [&](int job, int *jn, int *jr) {
        const int band = job / (BAND * work.jobs_n), first = band * BAND, high = min((int)BAND, blocks - first);
        const int at = job - first * work.jobs_n;
        *jn = at / high;
        *jr = first + at % high;
    };

    if (warp < 4) {
        if (GROUPS > 1)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
        if (warp == 0) {
            if (lane != 0)
                return;
            const uint64_t policy = policy_evict_first();
            const bool once = blocks == 1;
            for (int job = (int)blockIdx.x; job < jobs; job += (int)gridDim.x) {
                int jn, jr, there = 0;
                const uint8_t *from[TILES];
                place(job, &jn, &jr);
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    from[i] = work.tile(jn, i);
                    there += from[i] != nullptr;
                    from[i] += from[i] ? F::HEAD : 0;
                }
                for (int s = 0; s < a_steps; s++) {
                    const int groups = min(A_K / F::GROUP, frag_groups<F>(work.k) - s * (A_K / F::GROUP));
                    const uint32_t bytes = (uint32_t)groups * F::BYTES;
                    uint8_t *const to = a_at + (size_t)a.slot * A_BYTES;
                    barrier_wait(&a_empty[a.slot], a.parity ^ 1);
                    barrier_expect(&a_full[a.slot], there * bytes);
#pragma unroll
                    for (int i = 0; i < TILES; i++)
                        if (from[i]) {
                            if (once)
                                bulk_copy(to + i * A_TILE, from[i], bytes, &a_full[a.slot], policy);
                            else
                                bulk_copy_plain(to + i * A_TILE, from[i], bytes, &a_full[a.slot]);
                            from[i] += (A_K / F::GROUP) * F::BYTES;
                        }
                    a.next();
                }
            }
            return;
        }
        wait_for_predecessors();
        /* Each thread has one 16-byte piece of every twelfth row; its place in the swizzle alternates. */
        const int row = (int)threadIdx.x / 8 - 4, piece = (int)threadIdx.x % 8;
        const uint32_t even = (uint32_t)(piece ^ row % 8) * 16, odd = (uint32_t)(piece ^ (row + 12) % 8) * 16;
        const bool aligned = work.k % 8 == 0;
        int pending = 0, landed = 0; /* stages whose copies fly; the slot of the oldest */
        auto hand_over = [&] {
            shared_fence();
            barrier_arrive(&b_full[landed]);
            landed = landed + 1 == b.n ? 0 : landed + 1;
            pending--;
        };
        for (int job = (int)blockIdx.x; job < jobs; job += (int)gridDim.x) {
            int jn, jr;
            place(job, &jn, &jr);
            const int r0 = jr * TOKENS, n_rows = min((int)TOKENS, work.rows - r0);
            const bf16 *from = work.x(min(r0 + row, work.rows - 1)) + 8 * piece;
            for (int s = 0; s < b_steps; s++) {
                const uint32_t to = shared_address(b_at) + (uint32_t)b.slot * B_BYTES;
                const int n = work.k - (s * B_K + 8 * piece); /* elements that there are of this thread's 8 */
                barrier_wait(&b_empty[b.slot], b.parity ^ 1);
#pragma unroll
                for (int i = 0; i < (TOKENS / 4 + 2) / 3; i++) {
                    const int r = row + 12 * i;
                    const uint32_t at = to + row * 128 + i * 1536 + (i % 2 ? odd : even);
                    if (r >= n_rows)
                        break;
                    const bf16 *p = Work::AFFINE ? from + (size_t)(12 * i) * work.k : work.x(r0 + r) + 8 * piece;
                    if (aligned)
                        copy_16(at, n > 0 ? p + s * B_K : work.x(r0), n > 0 ? 16 : 0);
                    else
                        store_shared(at, p + s * B_K, n);
                }
                copies_commit();
                pending++;
                if (pending == FLYING) {
                    copies_wait<FLYING - 1>();
                    hand_over();
                }
                b.next();
            }
        }
        copies_wait<0>();
        while (pending > 0)
            hand_over();
        return;
    }

    if (GROUPS > 1)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    const int group = warp / 4 - 1, tile = group * 4 + warp % 4;
    bool waited = false;
    for (int job = (int)blockIdx.x; job < jobs; job += (int)gridDim.x) {
        int jn, jr;
        place(job, &jn, &jr);
        float acc[ATOMS][ATOM / 2];
#pragma unroll
        for (int t = 0; t < ATOMS; t++)
#pragma unroll
            for (int i = 0; i < ATOM / 2; i++)
                acc[t][i] = 0.0f;
        uint32_t regs[2][4][4]; /* a bank is filled while the products of the other run */
        int last = -1;          /* the slot of b whose products run */
        for (int s = 0; s < a_steps; s++) {
            const uint8_t *weights = a_at + (size_t)a.slot * A_BYTES + tile * A_TILE;
            barrier_wait(&a_full[a.slot], a.parity);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                if (2 * s + half >= b_steps)
                    break;
                Weights<F>::get(regs[half], weights, half, lane);
                const int left = work.k - (s * A_K + half * B_K);
                if (F::GROUP < B_K && left < B_K) /* the layout's zeros end with the group */
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            regs[half][i][j] = 16 * i < left ? regs[half][i][j] : 0;
                barrier_wait(&b_full[b.slot], b.parity);
                wgmma_begin();
                const uint64_t at = wgmma_tile(shared_address(b_at + (size_t)b.slot * B_BYTES));
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int t = 0; t < ATOMS; t++)
                        wgmma<ATOM>(acc[t], regs[half][i], at + 2 * i + t * (ATOM * 128 >> 4));
                wgmma_commit();
                if (last >= 0) {
                    wgmma_wait<1>();
                    if (lane == 0)
                        barrier_arrive(&b_empty[last]);
                }
                last = b.slot;
                b.next();
            }
            if (lane == 0) /* the products have taken the weights to registers */
                barrier_arrive(&a_empty[a.slot]);
            a.next();
        }
        wgmma_wait<0>();
        if (lane == 0)
            barrier_arrive(&b_empty[last]);
        if (!waited) /* a residual is a predecessor's */
            wait_for_predecessors();
        waited = true;
        work.store(acc, out, jn, jr * TOKENS, group, warp % 4, lane);
    }
}
#endif
