/* silu_mul: y[r][c] = g[r][c] / (1 + exp(-g[r][c])) * u[r][c]
 *   y, g, u  [rows][width]  bf16 row-major; y may be g
 *   grid     (rows, ceil(width, 8 * THREADS))  block (THREADS): 8 elements a thread
 *   bytes    rows*width*6
 * The fast exponential errs by 2 ulp of f32 and a few at large |g|: far below the rounding to bf16. Where exp overflows, the
 * quotient is 0, which is the limit. */
#include "load.cuh"
#include "overlap.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    silu_mul_tile(bf16 *y, const bf16 *g, const bf16 *u, int rows, int width)
{
    await_predecessors();
    const int c = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * VEC;
    if ((int)blockIdx.x >= rows || c >= width)
        return;
    const size_t at = (size_t)blockIdx.x * (size_t)width + (size_t)c;
    const bool whole = width % VEC == 0;
    float p[VEC], q[VEC];

    load_row(p, g + at, width - c, whole);
    load_row(q, u + at, width - c, whole);
#pragma unroll
    for (int i = 0; i < VEC; i++)
        p[i] = p[i] / (1.0f + __expf(-p[i])) * q[i];
    store_row(y + at, p, width - c, whole);
}
