/* linear_float.h - matrix products with weights f32, f16 or bf16 (WEIGHT) and activations f32; tile.h has the ops.
 *   x [rows][k] f32, w n16 [ceil(n/16)][k][16]
 * Order: one fma chain over k for each output. */
#ifndef METRALE_LINEAR_FLOAT_H
#define METRALE_LINEAR_FLOAT_H
#include "weight.h"

static inline size_t x_bytes(int k)
{
    return (size_t)k * sizeof(float);
}
static inline size_t tile_bytes(int k)
{
    return (size_t)k * 16 * sizeof(weight_t);
}
#include "tile.h"

INLINE void dot_group(const int R, v16 *acc, const uint8_t *w, const uint8_t *const *x, int k)
{
    const weight_t *wk = (const weight_t *)w;

#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        acc[r] = v_zero();
    for (int i = 0; i < k; i++, wk += 16) {
        v16 v = weight_load(wk);
        if (R == 1)
            __builtin_prefetch(wk + 1024);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
            acc[r] = v_fma(v, v_set1(((const float *)x[r])[i]), acc[r]);
    }
}
#endif
