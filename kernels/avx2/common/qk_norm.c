/* qk_norm: rms_norm over each group of `group` elements of a row (a head, or the whole row)
 *   y, x   [rows][width] f32, width a multiple of group; y may be x
 *   w      [group] f32
 *   grid   (rows) */
#include "kernel_abi.h"
#include "norm.h"
#include "simd.h"

KERNEL(qk_norm)
{
    int width = I32(4), group = I32(5);
    float *y = PTR(0, float) + (size_t)b->x * (size_t)width;
    const float *x = PTR(1, float) + (size_t)b->x * (size_t)width;
    for (int c = 0; c < width; c += group)
        norm_row(y + c, x + c, PTR(2, float), group, F32(6), F32(7));
}
