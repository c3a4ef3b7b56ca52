/* linear_int.h - matrix products with weights w4/SPAN or w8/SPAN (BITS) and activations i8/32 (act_i8.h); tile.h has the ops.
 *   x [rows][k/32] ActBlock
 *   w n16: for each SPAN k's, the last perhaps fewer, f32 d[16], i16 z[16] | for each 32 of them q[4][64] or b[8][64]
 * Order: blocks of 32 along k in turn. The integer dot of a block less its zero point is exact in f32 (below 2^24); with it
 *   acc = fma(d * (dot - z * sum), dx, acc)        sum: of the block's activations */
#ifndef METRALE_LINEAR_INT_H
#define METRALE_LINEAR_INT_H
#include "act_i8.h"
#include "codes.h"

enum { SPAN_HEAD = 96, CELL_BYTES = BITS * 64 };

static inline size_t x_bytes(int k)
{
    return (size_t)(k / 32) * sizeof(ActBlock);
}
static inline size_t tile_bytes(int k)
{
    return (size_t)(k / 32) * CELL_BYTES + ((size_t)k + SPAN - 1) / SPAN * SPAN_HEAD;
}
#include "tile.h"

INLINE void dot_group(const int R, v16 *acc, const uint8_t *w, const uint8_t *const *x, int k)
{
    const int blocks = k / 32;
    v16 d = v_zero(), z = v_zero();

#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        acc[r] = v_zero();
    for (int b = 0; b < blocks; b++, w += CELL_BYTES) {
        if (b % (SPAN / 32) == 0) {
            d = v_load((const float *)w);
            z = v_load_i16(w + 64);
            w += SPAN_HEAD;
        }
        if (R == 1)
#pragma GCC unroll 16
            for (int i = 0; i < CELL_BYTES; i += 64)
                __builtin_prefetch(w + 2048 + i);
#if BITS == 8
        dot_i8 s[GROUP];
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
            s[r] = n_zero();
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            w_i8 q = w_signed(w_load(w + 64 * g));
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
                s[r] = dot_i8_step(s[r], q, x_load(((const ActBlock *)x[r])[b].q + 4 * g));
        }
#else
        dot_u4 s[GROUP];
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
            s[r] = n_zero();
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            w64 both = w_load(w + 64 * g), low = w_low4(both), high = w_high4(both);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
                s[r] = dot_u4_step(s[r], low, x_load(((const ActBlock *)x[r])[b].q + 4 * g));
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
                s[r] = dot_u4_step(s[r], high, x_load(((const ActBlock *)x[r])[b].q + 16 + 4 * g));
        }
#endif
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const ActBlock *xb = (const ActBlock *)x[r] + b;
#if BITS == 8
            n16 dot = dot_i8_sum(s[r], xb->s);
#else
            n16 dot = dot_u4_sum(s[r]);
#endif
            v16 p = v_mul(d, v_fma(z, v_set1((float)-xb->s), n_to_f32(dot)));
            acc[r] = v_fma(p, v_set1(xb->d), acc[r]);
        }
    }
}
#endif
