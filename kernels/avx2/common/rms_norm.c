/* rms_norm: y[r][c] = x[r][c] * (w[c] + offset) / sqrt(mean_c(x[r]^2) + eps)
 *   y, x   [rows][width] f32; y may be x
 *   w      [width] f32
 *   grid   (rows): one row each
 * Order: squares into 16 lanes by c mod 16, lanes by simd.h's tree. */
#include "kernel_abi.h"
#include "norm.h"
#include "simd.h"

KERNEL(rms_norm)
{
    int width = I32(4);
    float *y = PTR(0, float) + (size_t)b->x * (size_t)width;
    const float *x = PTR(1, float) + (size_t)b->x * (size_t)width;
    norm_row(y, x, PTR(2, float), width, F32(5), F32(6));
}
