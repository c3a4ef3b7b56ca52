/* residual_add: y[r][c] = a[r][c] + scale * d[r][c]
 *   y, a, d  [rows][width]  bf16 row-major; y may be a
 *   grid     (rows, ceil(width, 8 * THREADS))  block (THREADS): 8 elements a thread
 *   bytes    rows*width*6 */
#include "load.cuh"
#include "overlap.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    residual_add_tile(bf16 *y, const bf16 *a, const bf16 *d, int rows, int width, float scale)
{
    await_predecessors();
    const int c = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * VEC;
    if ((int)blockIdx.x >= rows || c >= width)
        return;
    const size_t at = (size_t)blockIdx.x * (size_t)width + (size_t)c;
    const bool whole = width % VEC == 0;
    float p[VEC], q[VEC];

    load_row(p, a + at, width - c, whole);
    load_row(q, d + at, width - c, whole);
#pragma unroll
    for (int i = 0; i < VEC; i++)
        p[i] = fmaf(q[i], scale, p[i]);
    store_row(y + at, p, width - c, whole);
}
