/* Element-wise kernels over rows of f32. One block a row.
 *   residual_add  y = a + scale * d        y may be a
 *   silu_mul      y = g / (1 + e^-g) * u   y may be g */
#include "kernel_abi.h"
#include "simd.h"
#include <stddef.h>

KERNEL(residual_add)
{
    int width = I32(4);
    size_t row = (size_t)b->x * (size_t)width;
    float *y = PTR(0, float) + row;
    const float *p = PTR(1, float) + row, *d = PTR(2, float) + row;
    v16 scale = v_set1(F32(5));
    int c = 0;
    for (; c + 16 <= width; c += 16)
        v_store(y + c, v_fma(v_load(d + c), scale, v_load(p + c)));
    if (c < width)
        v_store_n(y + c, v_fma(v_load_n(d + c, width - c), scale, v_load_n(p + c, width - c)), width - c);
}

KERNEL(silu_mul)
{
    int width = I32(4);
    size_t row = (size_t)b->x * (size_t)width;
    float *y = PTR(0, float) + row;
    const float *g = PTR(1, float) + row, *u = PTR(2, float) + row;
    int c = 0;
    for (; c + 16 <= width; c += 16)
        v_store(y + c, v_mul(v_silu(v_load(g + c)), v_load(u + c)));
    if (c < width)
        v_store_n(y + c, v_mul(v_silu(v_load_n(g + c, width - c)), v_load_n(u + c, width - c)), width - c);
}
