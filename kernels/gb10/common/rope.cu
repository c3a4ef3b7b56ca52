/* Rotations, and what writes keys and values into the pools (kv.cuh).
 *   rope      yq, yk = q, k with the first `rotary` elements of each head turned by the row's position; yq may be q, yk k
 *   rope_kv   the same, but the turned key goes straight into the pool, and v beside it
 *   kv_write  k and v into the pools at the row's slot
 *   q, yq  [rows][wq];  k, v, yk [rows][wk]  bf16 row-major, widths multiples of head_dim, head_dim even
 *   table  f32 [position][rotary / 2][2]: cos, sin
 *   style  0: elements (i, i + rotary / 2) of a head are a pair, 1: (2i, 2i + 1)
 *   grid   (rows, ceil(heads, 4))  block (128): a warp a head; rope counts heads of q, then of k; rope_kv of v behind them
 *   bytes  rows*(wq + wk)*4, rope_kv and kv_write with v
 * Numbers: one rounded product and one fma an element in f32, then bf16 to nearest even. */
#include "kv.cuh"
#include "overlap.cuh"
#include "warp.cuh"

enum { WARPS = 4, ROPE_NEOX = 0 };

/* One head; put(i, x) takes what element i becomes. rest: elements behind the rotated ones are wanted too. Lanes take pairs; a lane puts
 * only what it alone has read. */
template <class Put>
__device__ __forceinline__ void turn(const bf16 *x, const float *cs, int head_dim, int rotary, int style, bool rest,
                                     Put put)
{
    const int lane = (int)threadIdx.x % WARP, half = rotary / 2;

    for (int i = lane; i < half; i += WARP) {
        const int a = style == ROPE_NEOX ? i : 2 * i, b = style == ROPE_NEOX ? i + half : 2 * i + 1;
        const float2 turn = reinterpret_cast<const float2 *>(cs)[i];
        const float xa = __bfloat162float(x[a]), xb = __bfloat162float(x[b]);
        put(a, fmaf(xa, turn.x, -(xb * turn.y)));
        put(b, fmaf(xb, turn.x, xa * turn.y));
    }
    for (int i = rotary + lane; rest && i < head_dim; i += WARP)
        put(i, __bfloat162float(x[i]));
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP)
    rope_warp(bf16 *yq, bf16 *yk, const bf16 *q, const bf16 *k, const float *__restrict__ table,
              const int *__restrict__ positions, int rows, int wq, int wk, int head_dim, int rotary, int style)
{
    await_predecessors();
    const int row = (int)blockIdx.x, head = (int)blockIdx.y * WARPS + (int)threadIdx.x / WARP, n_q = wq / head_dim;
    if (row >= rows || head >= n_q + wk / head_dim)
        return;
    const float *cs = table + (size_t)positions[row] * (size_t)rotary;
    const size_t at = head < n_q ? (size_t)row * (size_t)wq + (size_t)(head * head_dim)
                                 : (size_t)row * (size_t)wk + (size_t)((head - n_q) * head_dim);
    const bf16 *x = (head < n_q ? q : k) + at;
    bf16 *y = (head < n_q ? yq : yk) + at;

    turn(x, cs, head_dim, rotary, style, y != x, [=](int i, float v) { y[i] = __float2bfloat16_rn(v); });
}

template <class T>
__device__ __forceinline__ void rope_kv(bf16 *yq, const bf16 *q, const bf16 *k, const bf16 *v, const float *table,
                                        const int *positions, T *kpool, T *vpool, const int *slots, int rows, int wq,
                                        int head_dim, int rotary, int style, int n_kv)
{
    const int row = (int)blockIdx.x, n_q = wq / head_dim;
    int head = (int)blockIdx.y * WARPS + (int)threadIdx.x / WARP;
    if (row >= rows || head >= n_q + 2 * n_kv)
        return;
    const float *cs = table + (size_t)positions[row] * (size_t)rotary;
    if (head < n_q) {
        const size_t at = (size_t)row * (size_t)wq + (size_t)(head * head_dim);
        bf16 *y = yq + at;
        turn(q + at, cs, head_dim, rotary, style, yq != q, [=](int i, float x) { y[i] = __float2bfloat16_rn(x); });
        return;
    }
    head -= n_q;
    const bool value = head >= n_kv;
    head -= value ? n_kv : 0;
    const size_t at = ((size_t)row * (size_t)n_kv + (size_t)head) * (size_t)head_dim;
    T *to = (value ? vpool : kpool) + kv_at(slots[row], head, n_kv, head_dim);
    turn((value ? v : k) + at, cs, head_dim, value ? 0 : rotary, style, true,
         [=](int i, float x) { kv_put(to + i, x); });
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP)
    rope_kv_bf16(bf16 *yq, const bf16 *q, const bf16 *k, const bf16 *v, const float *__restrict__ table,
                 const int *__restrict__ positions, bf16 *kpool, bf16 *vpool, const int *__restrict__ slots, int rows,
                 int wq, int head_dim, int rotary, int style, int n_kv)
{
    await_predecessors();
    rope_kv(yq, q, k, v, table, positions, kpool, vpool, slots, rows, wq, head_dim, rotary, style, n_kv);
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP)
    rope_kv_f32(bf16 *yq, const bf16 *q, const bf16 *k, const bf16 *v, const float *__restrict__ table,
                const int *__restrict__ positions, float *kpool, float *vpool, const int *__restrict__ slots, int rows,
                int wq, int head_dim, int rotary, int style, int n_kv)
{
    await_predecessors();
    rope_kv(yq, q, k, v, table, positions, kpool, vpool, slots, rows, wq, head_dim, rotary, style, n_kv);
}

template <class T>
__device__ __forceinline__ void kv_write(const bf16 *k, const bf16 *v, T *kpool, T *vpool, const int *slots, int rows,
                                         int n_kv, int head_dim)
{
    const int row = (int)blockIdx.x;
    int head = (int)blockIdx.y * WARPS + (int)threadIdx.x / WARP;
    if (row >= rows || head >= 2 * n_kv)
        return;
    const bool value = head >= n_kv;
    head -= value ? n_kv : 0;
    const bf16 *from = (value ? v : k) + ((size_t)row * (size_t)n_kv + (size_t)head) * (size_t)head_dim;
    T *to = (value ? vpool : kpool) + kv_at(slots[row], head, n_kv, head_dim);
#pragma unroll 2
    for (int i = (int)threadIdx.x % WARP; i < head_dim; i += WARP)
        kv_put(to + i, __bfloat162float(from[i]));
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP)
    kv_write_bf16(const bf16 *k, const bf16 *v, bf16 *kpool, bf16 *vpool, const int *__restrict__ slots, int rows,
                  int n_kv, int head_dim)
{
    await_predecessors();
    kv_write(k, v, kpool, vpool, slots, rows, n_kv, head_dim);
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP)
    kv_write_f32(const bf16 *k, const bf16 *v, float *kpool, float *vpool, const int *__restrict__ slots, int rows,
                 int n_kv, int head_dim)
{
    await_predecessors();
    kv_write(k, v, kpool, vpool, slots, rows, n_kv, head_dim);
}
