/* linear_frag.cuh - matrix products with weights in the layout `frag`, any number of rows: y[r][n] = x[r] . w[n].
 *   x     [rows][k] bf16     y [rows][n] bf16; logits [outs][n] f32
 *   w     tiles of 16 n's; bias [n] f32 or NULL
 *   grid  (tiles, groups of 8 * NT rows)   block 256: 8 warps, each with every eighth group of the tile's k's
 *   bytes each tile once for each group of rows; x from the caches
 * A warp's sum runs along its groups in order, then warps 0..7 are added in order: the same for every row and every NT, so a
 * row's bits depend on nothing but the row. Fused ends round to bf16 where the ops they fuse would. */
#ifndef METRALE_LINEAR_FRAG_CUH
#define METRALE_LINEAR_FRAG_CUH
#include "matrix.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* A lane's 8 elements of quad q of the group at k0 of x, zeros from k on. `whole`: none is missing. */
template <typename F>
__device__ __forceinline__ uint4 fetch_x(const F &a, const bf16 *x, int k0, int q, int k, int t, bool whole)
{
    const bf16 *p = x + k0 + 32 * q, zero = __float2bfloat16_rn(0.0f);
    const int n = k - k0 - 32 * q;
    uint32_t w[4];

    if (F::BLOCK % 32 == 0 && n <= 0)
        return make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = frag_k(2 * i, t);
        __nv_bfloat162 v;
        if constexpr (ordered<F>)
            v = __halves2bfloat162(x[a.order(q, i) & 0xffff], x[a.order(q, i) >> 16]);
        else if (F::BLOCK % 32 == 0 || whole)
            v = *reinterpret_cast<const __nv_bfloat162 *>(p + at);
        else
            v = __halves2bfloat162(at < n ? p[at] : zero, at + 1 < n ? p[at + 1] : zero);
        w[i] = pack_x<F::Half>(v.x, v.y);
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/* One tile with 8 * NT tokens. row(i): where token i's x begins, NULL when there is none. sum: [NT * 8][16], complete after the
 * caller's next barrier; red: WARPS * NT * 128 floats. */
template <typename F, int NT, typename Row>
__device__ __forceinline__ void tile_dot(float *red, const uint8_t *tile, int k, Row row)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, t = lane % 4, groups = frag_groups<F>(k);
    const bf16 *x[NT];
    float acc[NT][4] = {};

#pragma unroll
    for (int o = 0; o < NT; o++)
        x[o] = row(8 * o + lane / 4);
#pragma unroll(NT > 1 || F::QUADS > 1 ? 1 : 2)
    for (int g = warp; g < groups; g += WARPS) {
        const int k0 = g * F::GROUP;
        const bool whole = k % 2 == 0 && k - k0 >= F::GROUP;
        F a;
        frag_load(a, tile + F::HEAD, g, lane);
#pragma unroll
        for (int o = 0; o < NT; o++) {
            uint4 b[F::QUADS];
#pragma unroll
            for (int q = 0; q < F::QUADS; q++)
                b[q] = x[o] ? fetch_x(a, x[o], k0, q, k, t, whole) : make_uint4(0, 0, 0, 0);
            a.add(acc[o], b);
        }
    }
#pragma unroll
    for (int o = 0; o < NT; o++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            red[warp * NT * 128 + (8 * o + 2 * t + c % 2) * 16 + lane / 4 + c / 2 * 8] = acc[o][c];
}

/* After a barrier: the sum of token i, row r of the tile. */
template <typename F, int NT>
__device__ __forceinline__ float tile_sum(const float *red, const uint8_t *tile, int i, int r)
{
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum += red[w * NT * 128 + i * 16 + r];
    return frag_finish<F>(tile, r, sum);
}

/* Tokens of this block, and how many. */
template <int NT> __device__ __forceinline__ int first_row()
{
    return (int)blockIdx.y * 8 * NT;
}

template <typename F, int NT>
__device__ __forceinline__ void linear_tile(const Matrix &m, int tile, const bf16 *x, int rows, int k,
                                            const bf16 *residual, float scale)
{
    __shared__ float red[WARPS * NT * 128];
    const uint8_t *w = m.w + (size_t)tile * frag_tile_bytes<F>(k);
    const int r0 = first_row<NT>();

    tile_dot<F, NT>(red, w, k, [&](int i) { return r0 + i < rows ? x + (size_t)(r0 + i) * k : nullptr; });
    __syncthreads();
    for (int e = (int)threadIdx.x; e < NT * 128; e += THREADS) {
        const int i = e / 16, r = e % 16, n = tile * 16 + r;
        if (r0 + i >= rows || n >= m.n)
            continue;
        const size_t at = (size_t)(r0 + i) * m.n + n;
        float v = tile_sum<F, NT>(red, w, i, r) + (m.bias ? m.bias[n] : 0.0f);
        if (residual)
            v = fmaf(to_bf16(v), scale, __bfloat162float(residual[at]));
        m.y[at] = __float2bfloat16_rn(v);
    }
}

template <typename F, int NT>
__device__ __forceinline__ void linear_3_tile(const Matrix &q, const Matrix &k, const Matrix &v, const bf16 *x,
                                              int rows, int width)
{
    const int tile = (int)blockIdx.x, k0 = (q.n + 15) / 16, v0 = k0 + (k.n + 15) / 16;
    const Matrix m = tile < k0 ? q : tile < v0 ? k : v;
    linear_tile<F, NT>(m, tile < k0 ? tile : tile < v0 ? tile - k0 : tile - v0, x, rows, width, nullptr, 0.0f);
}

template <typename F, int NT>
__device__ __forceinline__ void linear_gate_tile(const Matrix &g, const Matrix &u, const bf16 *x, int rows, int k)
{
    __shared__ float red[2][WARPS * NT * 128];
    const int tile = (int)blockIdx.x, r0 = first_row<NT>();
    const uint8_t *wg = g.w + (size_t)tile * frag_tile_bytes<F>(k), *wu = u.w + (size_t)tile * frag_tile_bytes<F>(k);
    auto row = [&](int i) { return r0 + i < rows ? x + (size_t)(r0 + i) * k : nullptr; };

    tile_dot<F, NT>(red[0], wg, k, row);
    tile_dot<F, NT>(red[1], wu, k, row);
    __syncthreads();
    for (int e = (int)threadIdx.x; e < NT * 128; e += THREADS) {
        const int i = e / 16, r = e % 16, n = tile * 16 + r;
        if (r0 + i >= rows || n >= g.n)
            continue;
        const float a = to_bf16(tile_sum<F, NT>(red[0], wg, i, r) + (g.bias ? g.bias[n] : 0.0f));
        const float b = to_bf16(tile_sum<F, NT>(red[1], wu, i, r) + (u.bias ? u.bias[n] : 0.0f));
        g.y[(size_t)(r0 + i) * g.n + n] = __float2bfloat16_rn(silu(a) * b);
    }
}

template <typename F, int NT>
__device__ __forceinline__ void lm_head_tile(float *y, const bf16 *x, const uint8_t *w, const int *source, int outs,
                                             int n_all, int k, float scale, float softcap)
{
    __shared__ float red[WARPS * NT * 128];
    const int tile = (int)blockIdx.x, r0 = first_row<NT>();
    const uint8_t *at = w + (size_t)tile * frag_tile_bytes<F>(k);

    tile_dot<F, NT>(red, at, k, [&](int i) { return r0 + i < outs ? x + (size_t)source[r0 + i] * k : nullptr; });
    __syncthreads();
    for (int e = (int)threadIdx.x; e < NT * 128; e += THREADS) {
        const int i = e / 16, r = e % 16, n = tile * 16 + r;
        if (r0 + i >= outs || n >= n_all)
            continue;
        float v = tile_sum<F, NT>(red, at, i, r) * scale;
        y[(size_t)(r0 + i) * n_all + n] = softcap > 0.0f ? softcap * tanhf(v / softcap) : v;
    }
}

/* Experts: y [rows][chosen][n], x [rows][k] for all of a row's experts or [rows][chosen][k], ids [rows][chosen] in 0..experts - 1,
 * w one matrix after another, each of whole tiles; bias [experts][n]. */
struct Experts {
    bf16 *y;
    const bf16 *x;
    const int *ids;
    const uint8_t *w;
    const float *bias;
    int pairs, chosen, n, k;
    bool own; /* each expert of a row has its own x */

    __device__ __forceinline__ const bf16 *row(int pair) const { return x + (size_t)(own ? pair : pair / chosen) * k; }
};

template <typename F, int NT>
__device__ __forceinline__ void expert_pairs(float *red, const Experts &m, int expert, int tile, const int *pair,
                                             int n_pairs)
{
    const uint8_t *w = m.w + ((size_t)expert * ((m.n + 15) / 16) + tile) * frag_tile_bytes<F>(m.k);

    tile_dot<F, NT>(red, w, m.k, [&](int i) { return i < n_pairs ? m.row(pair[i]) : nullptr; });
    __syncthreads();
    for (int e = (int)threadIdx.x; e < NT * 128; e += THREADS) {
        const int i = e / 16, r = e % 16, n = tile * 16 + r;
        if (i >= n_pairs || n >= m.n)
            continue;
        float v = tile_sum<F, NT>(red, w, i, r) + (m.bias ? m.bias[(size_t)expert * m.n + n] : 0.0f);
        m.y[(size_t)pair[i] * m.n + n] = __float2bfloat16_rn(v);
    }
}

/* grid (tiles, rows * chosen): few rows read the chosen experts and nothing else */
template <typename F> __device__ __forceinline__ void expert_by_pair(const Experts &m)
{
    __shared__ float red[WARPS * 128];
    const int pair = (int)blockIdx.y;
    expert_pairs<F, 1>(red, m, m.ids[pair], (int)blockIdx.x, &pair, 1);
}

/* grid (tiles, experts): a block finds its expert's pairs, in order, and takes 64 of them at a time */
template <typename F> __device__ __forceinline__ void expert_by_expert(const Experts &m)
{
    enum { NT = 4, MAX = 8 * NT };
    __shared__ float red[WARPS * NT * 128];
    __shared__ int found[MAX + THREADS], warps[WARPS];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, expert = (int)blockIdx.y;
    int have = 0;

    for (int p0 = 0; p0 < m.pairs; p0 += THREADS) {
        const int p = p0 + (int)threadIdx.x;
        const bool mine = p < m.pairs && m.ids[p] == expert;
        const unsigned ballot = __ballot_sync(0xffffffffu, mine);
        if (lane == 0)
            warps[warp] = __popc(ballot);
        __syncthreads();
        int at = have;
        for (int i = 0; i < WARPS; i++) {
            at += i < warp ? warps[i] : 0;
            have += warps[i];
        }
        if (mine)
            found[at + __popc(ballot & ((1u << lane) - 1))] = p;
        __syncthreads();
        int done = 0;
        for (; have - done >= MAX || (done < have && p0 + THREADS >= m.pairs); done += MAX) {
            const int n = have - done < MAX ? have - done : MAX;
            expert_pairs<F, NT>(red, m, expert, (int)blockIdx.x, found + done, n);
            __syncthreads();
        }
        have = have > done ? have - done : 0;
        const int keep = (int)threadIdx.x < have && done > 0 ? found[done + (int)threadIdx.x] : 0;
        __syncthreads();
        if ((int)threadIdx.x < have && done > 0)
            found[threadIdx.x] = keep;
        __syncthreads();
    }
}

/* The entries of one format: X its name in FAMILIES.toml, F its struct. */
#define LINEAR_ENTRIES(X, F)                                                                                           \
    LINEAR_ROWS(X, F, 8, 1)                                                                                            \
    LINEAR_ROWS(X, F, 32, 4)                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        expert_pair_##X(bf16 *y, const bf16 *x, const int *ids, const uint8_t *w, const float *bias, int rows,         \
                        int chosen, int xwidth, int n, int k)                                                          \
    {                                                                                                                  \
        expert_by_pair<F>({y, x, ids, w, bias, rows * chosen, chosen, n, k, xwidth != k});                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        expert_rows_##X(bf16 *y, const bf16 *x, const int *ids, const uint8_t *w, const float *bias, int rows,         \
                        int chosen, int xwidth, int n, int k)                                                          \
    {                                                                                                                  \
        expert_by_expert<F>({y, x, ids, w, bias, rows * chosen, chosen, n, k, xwidth != k});                           \
    }

#define LINEAR_ROWS(X, F, ROWS, NT)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        linear_##ROWS##_##X(bf16 *y, const bf16 *x, const uint8_t *w, const float *bias, int rows, int n, int k)       \
    {                                                                                                                  \
        linear_tile<F, NT>({y, w, bias, n}, (int)blockIdx.x, x, rows, k, nullptr, 0.0f);                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        linear_add_##ROWS##_##X(bf16 *y, const bf16 *x, const uint8_t *w, const float *bias, const bf16 *r, int rows,  \
                                int n, int k, float scale)                                                             \
    {                                                                                                                  \
        linear_tile<F, NT>({y, w, bias, n}, (int)blockIdx.x, x, rows, k, r, scale);                                    \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) linear_3_##ROWS##_##X(                                    \
        bf16 *yq, bf16 *yk, bf16 *yv, const bf16 *x, const uint8_t *wq, const uint8_t *wk, const uint8_t *wv,          \
        const float *bq, const float *bk, const float *bv, int rows, int nq, int nk, int nv, int k)                    \
    {                                                                                                                  \
        linear_3_tile<F, NT>({yq, wq, bq, nq}, {yk, wk, bk, nk}, {yv, wv, bv, nv}, x, rows, k);                        \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        linear_gate_##ROWS##_##X(bf16 *y, const bf16 *x, const uint8_t *wg, const uint8_t *wu, const float *bg,        \
                                 const float *bu, int rows, int n, int k)                                              \
    {                                                                                                                  \
        linear_gate_tile<F, NT>({y, wg, bg, n}, {y, wu, bu, n}, x, rows, k);                                           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        lm_head_##ROWS##_##X(float *y, const bf16 *x, const uint8_t *w, const int *source, int outs, int n, int k,     \
                             float scale, float softcap)                                                               \
    {                                                                                                                  \
        lm_head_tile<F, NT>(y, x, w, source, outs, n, k, scale, softcap);                                              \
    }
#endif
