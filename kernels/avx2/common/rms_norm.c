/* rms_norm: y[r][c] = x[r][c] * (w[c] + offset) / sqrt(mean_c(x[r]^2) + eps)
 *   y, x   [rows][width] f32; y may be x
 *   w      [width] f32
 *   grid   (rows): one row each
 * Order: squares into 16 lanes by c mod 16, lanes by simd.h's tree. */
#include "act_i8.h"
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

/* rms_norm, then act_quant: y [rows][width/32] ActBlock, width a multiple of 32 */
KERNEL(rms_norm_quant)
{
    int width = I32(4); /* y x w rows width eps offset */
    ActBlock *y = PTR(0, ActBlock) + (size_t)b->x * (size_t)(width / 32);
    const float *x = PTR(1, float) + (size_t)b->x * (size_t)width, *w = PTR(2, float);
    v16 s = v_set1(norm_scale(x, width, F32(5))), o = v_set1(F32(6));
    for (int c = 0; c < width; c += 32)
        act_quant_block(y + c / 32, norm_lanes(x + c, w + c, s, o), norm_lanes(x + c + 16, w + c + 16, s, o));
}
