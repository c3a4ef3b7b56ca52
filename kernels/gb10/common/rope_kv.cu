/* rope_kv.cu - a row's heads on their way into attention, in one pass: q normed, turned and stored, k normed, turned and put into the
 * pool, v put beside it. rope.cu has the parts and any head; here heads are of HEAD elements, a multiple of 8.
 *   rope_kv          turns and writes
 *   qk_norm_rope_kv  in front of that y = x / sqrt(mean(x^2) + eps) * (w + offset) over each head of q and of k
 *   q, yq    [rows][wq]; k, v [rows][n_kv * HEAD]  bf16 row-major, wq a multiple of HEAD; yq may be q
 *   kpool, vpool  kv.cuh, bf16;  slots, positions [rows]
 *   table    f32 [position][rotary / 2][2]: cos, sin;  style as in rope.cu
 *   wa, wb   [HEAD] f32, of q's heads and of k's
 *   grid     (rows, enough blocks to fill the chip)  block (128): a team of lanes a head, which strides over the row's heads
 *   bytes    rows * (wq + 2 n_kv HEAD) * 4; the row's angles are read once a thread, then stay in registers
 * Numbers: those of qk_norm, rope and kv_write one after the other, with what is between them rounded to bf16: a lane has the 8
 * elements that qk_norm_warp gives it, and lanes that this kernel does not have would add zeros. */
#include "kv.cuh"
#include "overlap.cuh"
#include "warp.cuh"

enum { WARPS = 4, ROPE_NEOX = 0 };

struct Heads {
    bf16 *yq;
    const bf16 *q, *k, *v;
    const float *table;
    const int *positions;
    bf16 *kpool, *vpool;
    const int *slots;
    int rows, wq, rotary, style, n_kv;
};

struct Norm {
    const float *weight;
    float eps, offset;
};

/* A lane's 8 elements of a head from element e on, normed over the head. */
template <int HEAD, int TEAM> __device__ __forceinline__ void norm_head(float (&x)[VEC], int e, const Norm &norm)
{
    float w[VEC], sum = 0.0f;

#pragma unroll
    for (int i = 0; i < VEC; i += 4) {
        const float4 part = e < HEAD ? *reinterpret_cast<const float4 *>(norm.weight + e + i) : make_float4(0, 0, 0, 0);
        w[i] = part.x;
        w[i + 1] = part.y;
        w[i + 2] = part.z;
        w[i + 3] = part.w;
    }
#pragma unroll
    for (int i = 0; i < VEC; i++)
        sum = fmaf(x[i], x[i], sum);
#pragma unroll
    for (int d = TEAM / 2; d > 0; d /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
    const float scale = rsqrtf(sum / (float)HEAD + norm.eps);
#pragma unroll
    for (int i = 0; i < VEC; i++)
        x[i] *= scale * (w[i] + norm.offset);
}

template <int HEAD, bool NORMED>
__device__ __forceinline__ void rope_kv(const Heads &h, const Norm &q_norm, const Norm &k_norm)
{
    constexpr int VECTORS = HEAD / VEC, TEAM = VECTORS <= 8 ? 8 : VECTORS <= 16 ? 16 : 32, TEAMS = WARP / TEAM;
    static_assert(HEAD % VEC == 0 && VECTORS <= WARP, "a head is whole vectors, one a lane");
    __shared__ uint4 exchange[WARPS][WARP]; /* what a team has before it turns */

    start_next();
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, e = lane % TEAM * VEC;
    const int row = (int)blockIdx.x, n_q = h.wq / HEAD, n = n_q + 2 * h.n_kv, half = h.rotary / 2;
    const int stride = (int)gridDim.y * WARPS * TEAMS, first = ((int)blockIdx.y * WARPS + warp) * TEAMS;
    const bool neox = h.style == ROPE_NEOX, vectors = half % VEC == 0;
    if (row >= h.rows || first >= n) {
        wait_for_all_before();
        return;
    }

    /* Of each element, what it and its partner are multiplied by. */
    const float2 *const angles = reinterpret_cast<const float2 *>(h.table) + (size_t)h.positions[row] * (size_t)half;
    const size_t slot = kv_at(h.slots[row], 0, h.n_kv, HEAD);
    float cosine[VEC], sine[VEC];
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        const int at = e + i, pair = neox ? (at < half ? at : at - half) : at / 2;
        const float2 angle = at < h.rotary ? angles[pair] : make_float2(1.0f, 0.0f);
        cosine[i] = angle.x;
        sine[i] = (neox ? at < half : i % 2 == 0) ? -angle.y : angle.y;
    }

    const bf16 *const q_row = h.q + (size_t)row * (size_t)h.wq + e;
    const size_t kv_row = (size_t)row * (size_t)(h.n_kv * HEAD) + (size_t)e;
    auto load = [&](int head) {
        const bf16 *from = q_row + head * HEAD;
        if (head >= n_q + h.n_kv)
            from = h.v + kv_row + (head - n_q - h.n_kv) * HEAD;
        else if (head >= n_q)
            from = h.k + kv_row + (head - n_q) * HEAD;
        return head < n && e < HEAD ? *reinterpret_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
    };
    wait_for_all_before();

    /* The warp's heads of this round, one a team; those of the next are on their way. */
    uint4 now = load(first + lane / TEAM), next;
    for (int round = first; round < n; round += stride, now = next) {
        const int head = round + lane / TEAM;
        const bool of_q = head < n_q, value = head >= n_q + h.n_kv;
        float x[VEC], other[VEC];

        next = load(head + stride);
        load_row(x, reinterpret_cast<const bf16 *>(&now), VEC, true);
        if (NORMED) {
            uint4 normed;
            norm_head<HEAD, TEAM>(x, e, of_q ? q_norm : k_norm);
            store_row(reinterpret_cast<bf16 *>(&normed), x, VEC, true);
            if (!value)
                now = normed;
            load_row(x, reinterpret_cast<const bf16 *>(&now), VEC, true);
        }
        exchange[warp][lane] = now;
        __syncwarp();
        const bf16 *const mine = reinterpret_cast<const bf16 *>(&exchange[warp][lane]);
        if (!neox) {
#pragma unroll
            for (int i = 0; i < VEC; i++)
                other[i] = x[i ^ 1];
        } else if (vectors) {
            load_row(other, mine + (e < half ? half : -half), VEC, true);
        } else {
#pragma unroll
            for (int i = 0; i < VEC; i++)
                other[i] = __bfloat162float(i < half - e ? mine[half + i] : mine[i - half]);
        }
        __syncwarp(); /* every lane has read what the next round overwrites */
        if (head >= n || e >= HEAD)
            continue;

        if (value) {
            bf16 *const to = h.vpool + slot + (size_t)(head - n_q - h.n_kv) * (KV_TOKENS * HEAD);
            *reinterpret_cast<uint4 *>(to + e) = now;
            continue;
        }
#pragma unroll
        for (int i = 0; i < VEC; i++)
            x[i] = e + i < h.rotary ? fmaf(x[i], cosine[i], other[i] * sine[i]) : x[i];
        bf16 *const to = of_q ? h.yq + (size_t)row * (size_t)h.wq + head * HEAD
                              : h.kpool + slot + (size_t)(head - n_q) * (KV_TOKENS * HEAD);
        store_row(to + e, x, VEC, true);
    }
}

/* Points of a family share its arguments; head_dim is HEAD. BLOCKS of a multiprocessor, for enough loads on their way: what
 * registers allow. */
#define ROPE_KV(HEAD, BLOCKS)                                                                                          \
    extern "C" __global__ void __launch_bounds__(WARPS *WARP, BLOCKS)                                                  \
        rope_kv_##HEAD(bf16 *yq, const bf16 *q, const bf16 *k, const bf16 *v, const float *__restrict__ table,         \
                       const int *__restrict__ positions, bf16 *kpool, bf16 *vpool, const int *__restrict__ slots,     \
                       int rows, int wq, int head_dim, int rotary, int style, int n_kv)                                \
    {                                                                                                                  \
        (void)head_dim;                                                                                                \
        rope_kv<HEAD, false>({yq, q, k, v, table, positions, kpool, vpool, slots, rows, wq, rotary, style, n_kv}, {},  \
                             {});                                                                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(WARPS *WARP, BLOCKS) qk_norm_rope_kv_##HEAD(                          \
        bf16 *yq, const bf16 *q, const bf16 *k, const bf16 *v, const float *__restrict__ wa,                           \
        const float *__restrict__ wb, float eps_a, float eps_b, float offset_a, float offset_b,                        \
        const float *__restrict__ table, const int *__restrict__ positions, bf16 *kpool, bf16 *vpool,                  \
        const int *__restrict__ slots, int rows, int wq, int head_dim, int rotary, int style, int n_kv)                \
    {                                                                                                                  \
        (void)head_dim;                                                                                                \
        rope_kv<HEAD, true>({yq, q, k, v, table, positions, kpool, vpool, slots, rows, wq, rotary, style, n_kv},       \
                            {wa, eps_a, offset_a}, {wb, eps_b, offset_b});                                             \
    }

ROPE_KV(16, 5)
ROPE_KV(64, 6)
ROPE_KV(80, 5)
ROPE_KV(96, 5)
ROPE_KV(128, 6)
ROPE_KV(256, 6)
