/* linear_quant.h - matrix products with weights q8_0, q4_0 or q4_1 (WEIGHT) and activations i8/32 (act_i8.h);
 * tile.h has the ops.
 *   x [rows][k/32] ActBlock, w n16 (src/weights/layout.h)
 * Order: blocks of 32 along k in turn. The integer dot of a block is exact; with it
 *   q8_0, q4_0  acc = fma(dw * dot, dx, acc)
 *   q4_1        acc = fma(fma(dw, dot, mw * sum), dx, acc)        sum: of the block's activations */
#ifndef METRALE_LINEAR_QUANT_H
#define METRALE_LINEAR_QUANT_H
#include "act_i8.h"
#include "weight.h"

static inline size_t x_bytes(int k)
{
    return (size_t)(k / 32) * sizeof(ActBlock);
}
static inline size_t tile_bytes(int k)
{
    return (size_t)(k / 32) * BLOCK_BYTES;
}
#include "tile.h"

/* Weights are read once, in order; the hardware's prefetcher stops at page ends and starts late. */
enum { AHEAD = 2048 };

INLINE void dot_group(const int R, v16 *acc, const uint8_t *w, const uint8_t *const *x, int k)
{
    const int blocks = k / 32;

#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        acc[r] = v_zero();
    for (int b = 0; b < blocks; b++, w += BLOCK_BYTES) {
        v16 d = v_load_f16((const uint16_t *)w);
#if WEIGHT == 5
        v16 m = v_load_f16((const uint16_t *)(w + 32));
#endif
        if (R == 1)
#pragma GCC unroll 16
            for (int i = 0; i < BLOCK_BYTES; i += 64)
                __builtin_prefetch(w + AHEAD + i);
#if WEIGHT == 3
        dot_i8 s[GROUP];
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
            s[r] = n_zero();
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            w_i8 q = w_signed(w_load(w + 32 + 64 * g));
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
                s[r] = dot_i8_step(s[r], q, x_load(((const ActBlock *)x[r])[b].q + 4 * g));
        }
#else
        const uint8_t *nibbles = w + BLOCK_BYTES - 256;
        dot_u4 s[GROUP];
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
            s[r] = n_zero();
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            w64 both = w_load(nibbles + 64 * g), low = w_low4(both), high = w_high4(both);
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
#if WEIGHT == 3
            v16 p = v_mul(d, n_to_f32(dot_i8_sum(s[r], xb->s)));
#elif WEIGHT == 4
            v16 p = v_mul(d, n_to_f32(n_sub(dot_u4_sum(s[r]), n_set1(8 * xb->s))));
#else
            v16 p = v_fma(d, n_to_f32(dot_u4_sum(s[r])), v_mul(m, n_to_f32(n_set1(xb->s))));
#endif
            acc[r] = v_fma(p, v_set1(xb->d), acc[r]);
        }
    }
}
#endif
