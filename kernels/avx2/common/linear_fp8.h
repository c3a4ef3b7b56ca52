/* linear_fp8.h - matrix products with weights fp8/128 and activations f32; tile.h has the ops.
 *   x [rows][k] f32, w n16: for each 128 k's, the last perhaps fewer, f32 d[16] | e4m3 [k][16]
 * Order: spans of 128 along k in turn: one fma chain for the span, then acc = fma(d, 256 * partial, acc). */
#ifndef METRALE_LINEAR_FP8_H
#define METRALE_LINEAR_FP8_H
#include "codes.h"
#include <stddef.h>

static inline size_t x_bytes(int k)
{
    return (size_t)k * sizeof(float);
}
static inline size_t tile_bytes(int k)
{
    return 16 * ((size_t)k + ((size_t)k + 127) / 128 * 4);
}
#include "tile.h"

INLINE void dot_group(const int R, v16 *acc, const uint8_t *w, const uint8_t *const *x, int k)
{
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        acc[r] = v_zero();
    for (int first = 0; first < k; first += 128) {
        const int last = k - first < 128 ? k : first + 128;
        const v16 d = v_load((const float *)w);
        v16 p[GROUP];

        w += 64;
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
            p[r] = v_zero();
        for (int i = first; i < last; i++, w += 16) {
            v16 v = v_load_e4m3(w);
            if (R == 1)
                __builtin_prefetch(w + 2048);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
                p[r] = v_fma(v, v_set1(((const float *)x[r])[i]), p[r]);
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
            acc[r] = v_fma(d, v_mul(p[r], v_set1(256.0f)), acc[r]);
    }
}
#endif
