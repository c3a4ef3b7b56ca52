/* linear: y[r][n] = x[r] . w[n] + bias[n]; weights f32, f16 or bf16 (WEIGHT), activations f32. lm_head: the same for the
 * step's output rows, then scale and softcap.
 *   y [rows][n] f32, x [..][k] f32, w n16 [ceil(n/16)][k][16], bias [n] f32 or NULL
 *   grid (ceil(ceil(n,16), TILES), ceil(rows, ROW_BLOCK)), see tile.h
 * Order: one fma chain over k for each output, then bias. */
#ifndef METRALE_LINEAR_FLOAT_H
#define METRALE_LINEAR_FLOAT_H
#include "kernel_abi.h"
#include "tile.h"
#include "weight.h"

static inline __attribute__((always_inline)) void group(const int R, const int T, const TileArgs *t, int row, int tile)
{
    const size_t stride = (size_t)t->k * 16;
    const weight_t *w = (const weight_t *)t->w + (size_t)tile * stride;
    const float *x[ROWS];
    v16 acc[ROWS][TILES];

#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        x[r] = (const float *)t->x + tile_source(t, row + r) * (size_t)t->k;
#pragma GCC unroll 8
        for (int i = 0; i < T; i++)
            acc[r][i] = v_zero();
    }
    for (int k = 0; k < t->k; k++)
#pragma GCC unroll 8
        for (int i = 0; i < T; i++) {
            v16 v = weight_load(w + (size_t)i * stride + (size_t)k * 16);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++)
                acc[r][i] = v_fma(v, v_set1(x[r][k]), acc[r][i]);
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
                  .x = PTR(1, float),
                  .w = PTR(2, weight_t),
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
                  .x = PTR(1, float),
                  .w = PTR(2, weight_t),
                  .source = PTR(3, int32_t),
                  .rows = I32(4),
                  .n = I32(5),
                  .k = I32(6),
                  .scale = F32(7),
                  .softcap = F32(8)};
    tile_block(&t, b->x, b->y);
}
#endif
