/* linear_ring.cuh - the products of ring.cuh as kernels: 1 to 8 rows.
 *   x  [rows][k] bf16    y [rows][n] bf16, logits [outs][n] f32    bias [n] f32 or NULL
 *   grid (min(tiles, multiprocessors))   block 576   shared: what a multiprocessor has
 *   bytes each weight once */
#ifndef METRALE_LINEAR_RING_CUH
#define METRALE_LINEAR_RING_CUH
#include "matrix.cuh"
#include "ring.cuh"

/* This block's jobs when every CTAS-th of `tiles` is its own. */
__device__ __forceinline__ int share_of(int tiles)
{
    return (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
}

/* What all dense products have in common: all rows meet all tiles. */
struct Dense {
    enum { DIRECT = false };
    const bf16 *in;
    int rows, k;
    __device__ __forceinline__ int first(int) const { return 0; }
    __device__ __forceinline__ int tokens(int) const { return rows; }
    __device__ __forceinline__ const bf16 *x(int r) const { return in + (size_t)r * k; }
};

/* Up to three matrices; a residual goes with one. */
template <typename F> struct LinearWork : Dense {
    Matrix a, b, c;
    const bf16 *residual;
    float scale;

    __device__ __forceinline__ int jobs() const { return share_of(a.tiles() + b.tiles() + c.tiles()); }
    __device__ __forceinline__ const Matrix &pick(int j, int *tile) const
    {
        const int t = (int)blockIdx.x + j * (int)gridDim.x, b0 = a.tiles(), c0 = b0 + b.tiles();
        *tile = t < b0 ? t : t < c0 ? t - b0 : t - c0;
        return t < b0 ? a : t < c0 ? b : c;
    }
    __device__ __forceinline__ const uint8_t *tile(int j) const
    {
        int t;
        const Matrix &m = pick(j, &t);
        return m.w + (size_t)t * frag_tile_bytes<F>(k);
    }
    __device__ __forceinline__ void finish(int j, int lane, const float (&sum)[4]) const
    {
        int t;
        const Matrix m = pick(j, &t);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = sum_token(lane, i), n = 16 * t + sum_row(lane, i);
            if (r >= rows || n >= m.n)
                continue;
            const size_t at = (size_t)r * m.n + n;
            float v = frag_finish<F>(tile(j), sum_row(lane, i), sum[i]) + (m.bias ? m.bias[n] : 0.0f);
            if (residual)
                v = fmaf(to_bf16(v), scale, __bfloat162float(residual[at]));
            m.y[at] = __float2bfloat16_rn(v);
        }
    }
};

/* y = silu(g . x) * (u . x): jobs in pairs. */
template <typename F> struct GateWork : Dense {
    Matrix g, u;
    mutable float gate[4];

    __device__ __forceinline__ int jobs() const { return 2 * share_of(g.tiles()); }
    __device__ __forceinline__ const uint8_t *tile(int j) const
    {
        return (j % 2 ? u : g).w + (size_t)((int)blockIdx.x + j / 2 * (int)gridDim.x) * frag_tile_bytes<F>(k);
    }
    __device__ __forceinline__ void finish(int j, int lane, const float (&sum)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = sum_token(lane, i), n = 16 * ((int)blockIdx.x + j / 2 * (int)gridDim.x) + sum_row(lane, i);
            if (r >= rows || n >= g.n)
                continue;
            const float *bias = j % 2 ? u.bias : g.bias;
            const float v = to_bf16(frag_finish<F>(tile(j), sum_row(lane, i), sum[i]) + (bias ? bias[n] : 0.0f));
            if (j % 2 == 0)
                gate[i] = v;
            else
                g.y[(size_t)r * g.n + n] = __float2bfloat16_rn(silu(gate[i]) * v);
        }
    }
};

template <typename F> struct HeadWork {
    enum { DIRECT = false };
    float *y;
    const bf16 *in;
    const uint8_t *w;
    const int *source;
    int outs, n, k;
    float scale, softcap;

    __device__ __forceinline__ int jobs() const { return share_of((n + 15) / 16); }
    __device__ __forceinline__ const uint8_t *tile(int j) const
    {
        return w + (size_t)((int)blockIdx.x + j * (int)gridDim.x) * frag_tile_bytes<F>(k);
    }
    __device__ __forceinline__ int first(int) const { return 0; }
    __device__ __forceinline__ int tokens(int) const { return outs; }
    __device__ __forceinline__ const bf16 *x(int r) const { return in + (size_t)source[r] * k; }
    __device__ __forceinline__ void finish(int j, int lane, const float (&sum)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = sum_token(lane, i), c = 16 * ((int)blockIdx.x + j * (int)gridDim.x) + sum_row(lane, i);
            if (r >= outs || c >= n)
                continue;
            const float v = frag_finish<F>(tile(j), sum_row(lane, i), sum[i]) * scale;
            y[(size_t)r * n + c] = softcap > 0.0f ? softcap * tanhf(v / softcap) : v;
        }
    }
};

/* The chosen experts of a few rows: a job is a pair (row, choice) and a tile. */
template <typename F> struct ExpertWork {
    enum { DIRECT = true };
    bf16 *y;
    const bf16 *in;
    const int *ids;
    const uint8_t *w;
    const float *bias;
    int pairs, chosen, n, k;
    bool own; /* each expert of a row has its own x */

    __device__ __forceinline__ int tiles() const { return (n + 15) / 16; }
    __device__ __forceinline__ int jobs() const { return share_of(pairs * tiles()); }
    __device__ __forceinline__ int pair(int j) const { return ((int)blockIdx.x + j * (int)gridDim.x) / tiles(); }
    __device__ __forceinline__ const uint8_t *tile(int j) const
    {
        const int t = ((int)blockIdx.x + j * (int)gridDim.x) % tiles();
        return w + ((size_t)ids[pair(j)] * tiles() + t) * frag_tile_bytes<F>(k);
    }
    __device__ __forceinline__ int first(int j) const { return own ? pair(j) : pair(j) / chosen; }
    __device__ __forceinline__ int tokens(int) const { return 1; }
    __device__ __forceinline__ const bf16 *x(int r) const { return in + (size_t)r * k; }
    __device__ __forceinline__ void finish(int j, int lane, const float (&sum)[4]) const
    {
        const int t = ((int)blockIdx.x + j * (int)gridDim.x) % tiles(), p = pair(j);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const int c = 16 * t + sum_row(lane, i);
            if (sum_token(lane, i) != 0 || c >= n)
                continue;
            const float v =
                frag_finish<F>(tile(j), sum_row(lane, i), sum[i]) + (bias ? bias[(size_t)ids[p] * n + c] : 0.0f);
            y[(size_t)p * n + c] = __float2bfloat16_rn(v);
        }
    }
};

#define RING_KERNEL extern "C" __global__ void __launch_bounds__(RING_THREADS, 1)

/* The entries of one format: X its name in FAMILIES.toml, F its struct. */
#define RING_ENTRIES(X, F)                                                                                             \
    RING_KERNEL                                                                                                        \
    ring_##X(bf16 *y, const bf16 *x, const uint8_t *w, const float *bias, float *partial, int rows, int n, int k)      \
    {                                                                                                                  \
        const LinearWork<F> work = {{x, rows, k}, {y, w, bias, n}, {}, {}, nullptr, 0.0f};                             \
        ring_run<F>(work, k, rows, nullptr, partial, false);                                                           \
    }                                                                                                                  \
    RING_KERNEL                                                                                                        \
    ring_add_##X(bf16 *y, const bf16 *x, const uint8_t *w, const float *bias, const bf16 *r, float *partial, int rows, \
                 int n, int k, float scale)                                                                            \
    {                                                                                                                  \
        const LinearWork<F> work = {{x, rows, k}, {y, w, bias, n}, {}, {}, r, scale};                                  \
        ring_run<F>(work, k, rows, nullptr, partial, false);                                                           \
    }                                                                                                                  \
    RING_KERNEL                                                                                                        \
    ring_3_##X(bf16 *yq, bf16 *yk, bf16 *yv, const bf16 *x, const uint8_t *wq, const uint8_t *wk, const uint8_t *wv,   \
               const float *bq, const float *bk, const float *bv, float *partial, int rows, int nq, int nk, int nv,    \
               int k)                                                                                                  \
    {                                                                                                                  \
        const LinearWork<F> work = {                                                                                   \
            {x, rows, k}, {yq, wq, bq, nq}, {yk, wk, bk, nk}, {yv, wv, bv, nv}, nullptr, 0.0f};                        \
        ring_run<F>(work, k, rows, nullptr, partial, false);                                                           \
    }                                                                                                                  \
    RING_KERNEL                                                                                                        \
    ring_norm_3_##X(bf16 *yq, bf16 *yk, bf16 *yv, const bf16 *x, const float *norm, const uint8_t *wq,                 \
                    const uint8_t *wk, const uint8_t *wv, const float *bq, const float *bk, const float *bv,           \
                    float *partial, int rows, int nq, int nk, int nv, int k, float eps, float offset)                  \
    {                                                                                                                  \
        const LinearWork<F> work = {                                                                                   \
            {x, rows, k}, {yq, wq, bq, nq}, {yk, wk, bk, nk}, {yv, wv, bv, nv}, nullptr, 0.0f};                        \
        const Norm in = {norm, eps, offset};                                                                           \
        ring_run<F>(work, k, rows, &in, partial, false);                                                               \
    }                                                                                                                  \
    RING_KERNEL                                                                                                        \
    ring_gate_##X(bf16 *y, const bf16 *x, const uint8_t *wg, const uint8_t *wu, const float *bg, const float *bu,      \
                  float *partial, int rows, int n, int k)                                                              \
    {                                                                                                                  \
        const GateWork<F> work = {{x, rows, k}, {y, wg, bg, n}, {y, wu, bu, n}, {}};                                   \
        ring_run<F>(work, k, rows, nullptr, partial, false);                                                           \
    }                                                                                                                  \
    RING_KERNEL                                                                                                        \
    ring_norm_gate_##X(bf16 *y, const bf16 *x, const float *norm, const uint8_t *wg, const uint8_t *wu,                \
                       const float *bg, const float *bu, float *partial, int rows, int n, int k, float eps,            \
                       float offset)                                                                                   \
    {                                                                                                                  \
        const GateWork<F> work = {{x, rows, k}, {y, wg, bg, n}, {y, wu, bu, n}, {}};                                   \
        const Norm in = {norm, eps, offset};                                                                           \
        ring_run<F>(work, k, rows, &in, partial, false);                                                               \
    }                                                                                                                  \
    RING_KERNEL                                                                                                        \
    ring_head_##X(float *y, const bf16 *x, const uint8_t *w, const int *source, float *partial, int outs, int n,       \
                  int k, float scale, float softcap)                                                                   \
    {                                                                                                                  \
        const HeadWork<F> work = {y, x, w, source, outs, n, k, scale, softcap};                                        \
        ring_run<F>(work, k, outs, nullptr, partial, false);                                                           \
    }                                                                                                                  \
    RING_KERNEL                                                                                                        \
    ring_expert_##X(bf16 *y, const bf16 *x, const int *ids, const uint8_t *w, const float *bias, int rows, int chosen, \
                    int xwidth, int n, int k)                                                                          \
    {                                                                                                                  \
        const ExpertWork<F> work = {y, x, ids, w, bias, rows * chosen, chosen, n, k, xwidth != k};                     \
        ring_run<F>(work, k, 1, nullptr, nullptr, true);                                                               \
    }
#endif
