/* linear: y[r][n] = x[r] . w[n] + bias[n]; weights q8_0, q4_0 or q4_1 (WEIGHT), activations i8/32 (act_i8.h). lm_head: the same for the
 * step's output rows, then scale and softcap.
 *   y [rows][n] f32, x [..][k/32] ActBlock, w n16 (layout.h), bias [n] f32 or NULL
 *   grid (ceil(ceil(n,16), TILES), ceil(rows, ROW_BLOCK)), see tile.h
 * Order: blocks of 32 along k in turn: the integer dot is exact, then acc = fma(dw * dx, dot, acc); q4_1 adds acc = fma(mw, dx * s, acc). */
#ifndef METRALE_LINEAR_QUANT_H
#define METRALE_LINEAR_QUANT_H
#include "act_i8.h"
#include "kernel_abi.h"
#include "tile.h"
#include "weight.h"

static inline __attribute__((always_inline)) void group(const int R, const int T, const TileArgs *t, int row, int tile)
{
    const int blocks = t->k / 32;
    const size_t stride = (size_t)blocks * BLOCK_BYTES;
    const uint8_t *w = (const uint8_t *)t->w + (size_t)tile * stride;
    const ActBlock *x[ROWS];
    v16 acc[ROWS][TILES];

#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        x[r] = (const ActBlock *)t->x + tile_source(t, row + r) * (size_t)blocks;
#pragma GCC unroll 8
        for (int i = 0; i < T; i++)
            acc[r][i] = v_zero();
    }
    for (int k = 0; k < blocks; k++)
#pragma GCC unroll 8
        for (int i = 0; i < T; i++) {
            const uint8_t *wb = w + (size_t)i * stride + (size_t)k * BLOCK_BYTES;
            v16 d = v_load_f16((const uint16_t *)wb);
            w64 q[8];
#if WEIGHT == 3
#pragma GCC unroll 8
            for (int g = 0; g < 8; g++)
                q[g] = w_signed(w_load(wb + 32 + 64 * g));
#else
            const uint8_t *nibbles = wb + BLOCK_BYTES - 256;
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++) {
                w64 both = w_load(nibbles + 64 * g);
                q[g] = w_low4(both);
                q[g + 4] = w_high4(both);
            }
#endif
#if WEIGHT == 5
            v16 m = v_load_f16((const uint16_t *)(wb + 32));
#endif
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const ActBlock *xb = x[r] + k;
                n16 s = n_zero();
#pragma GCC unroll 8
                for (int g = 0; g < 8; g++)
#if WEIGHT == 3
                    s = n_dot4_i8(s, q[g], xb->q + 4 * g);
                s = n_fix_i8(s, xb->s);
#else
                    s = n_dot4_u4(s, q[g], xb->q + 4 * g);
#endif
#if WEIGHT == 4
                s = n_sub(s, n_set1(8 * xb->s));
#endif
                acc[r][i] = v_fma(v_mul(d, v_set1(xb->d)), n_to_f32(s), acc[r][i]);
#if WEIGHT == 5
                acc[r][i] = v_fma(m, v_set1(xb->d * (float)xb->s), acc[r][i]);
#endif
            }
        }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int i = 0; i < T; i++)
            tile_store(t, row + r, tile + i, acc[r][i]);
}

static inline void linear(const KArg *a, const KBlock *b)
{
    TileArgs t = {.y = PTR(0, float),
                  .x = PTR(1, ActBlock),
                  .w = PTR(2, uint8_t),
                  .bias = PTR(3, float),
                  .rows = I32(4),
                  .n = I32(5),
                  .k = I32(6),
                  .scale = 1.0f};
    tile_block(&t, b->x, b->y);
}

static inline void lm_head(const KArg *a, const KBlock *b)
{
    TileArgs t = {.y = PTR(0, float),
                  .x = PTR(1, ActBlock),
                  .w = PTR(2, uint8_t),
                  .source = PTR(3, int32_t),
                  .rows = I32(4),
                  .n = I32(5),
                  .k = I32(6),
                  .scale = F32(7),
                  .softcap = F32(8)};
    tile_block(&t, b->x, b->y);
}
#endif
