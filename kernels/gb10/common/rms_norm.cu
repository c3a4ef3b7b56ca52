/* rms_norm: y[r][c] = x[r][c] * (w[c] + offset) / sqrt(mean_c(x[r]^2) + eps)
 *   y, x   [rows][width]  bf16 row-major; y may be x
 *   w      [width]        f32
 *   grid   (rows)         block (THREADS): one row each, 8 elements a load
 *   bytes  rows*width*4 + width*4: x is read twice, the second time from L1 or L2
 * A row's bits depend on that row alone. In place is safe: a thread rewrites only elements that it alone reads again. */
#include "load.cuh"
#include "overlap.cuh"
#include "warp.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm_block(bf16 *y, const bf16 *x, const float *__restrict__ w, int rows, int width, float eps, float offset)
{
    await_predecessors();
    if ((int)blockIdx.x >= rows)
        return;
    const size_t row = (size_t)blockIdx.x * (size_t)width;
    const bool whole = width % VEC == 0;
    float v[VEC], sum = 0.0f;

    for (int c = (int)threadIdx.x * VEC; c < width; c += THREADS * VEC) {
        load_row(v, x + row + c, width - c, whole);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            sum = fmaf(v[i], v[i], sum);
    }
    const float scale = rsqrtf(block_sum<THREADS>(sum) / (float)width + eps);

    for (int c = (int)threadIdx.x * VEC; c < width; c += THREADS * VEC) {
        load_row(v, x + row + c, width - c, whole);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            v[i] *= scale * (c + i < width ? w[c + i] + offset : 0.0f);
        store_row(y + row + c, v, width - c, whole);
    }
}
