/* tile.h - the walk that every matrix product shares: a block of the grid takes TILES tiles of 16 outputs and ROW_BLOCK rows, ROWS rows at a time.
 * The including file has defined `group(R, T, args, row, tile)`: R rows from row, T tiles from tile, both compile-time.
 *   ROWS, TILES, ROW_BLOCK  build constants; ROWS is a power of two, ROW_BLOCK a multiple of it
 * The order of a result's additions depends on none of them. */
#ifndef METRALE_TILE_H
#define METRALE_TILE_H
#include "simd.h"
#include <math.h>
#include <stddef.h>

typedef struct TileArgs {
    float *y;
    const void *x, *w;
    const float *bias;     /* [n] or NULL */
    const int32_t *source; /* row r of y comes from row source[r] of x; NULL: from row r */
    int rows, n, k;
    float scale, softcap; /* lm_head's; 1 and 0 elsewhere */
} TileArgs;

static inline size_t tile_source(const TileArgs *t, int row)
{
    return (size_t)(t->source ? t->source[row] : row);
}

static inline void tile_store(const TileArgs *t, int row, int tile, v16 v)
{
    int n0 = tile * 16, n = t->n - n0 < 16 ? t->n - n0 : 16;
    float *y = t->y + (size_t)row * (size_t)t->n + n0;
    if (t->bias)
        v = v_add(v, n == 16 ? v_load(t->bias + n0) : v_load_n(t->bias + n0, n));
    if (t->scale != 1.0f)
        v = v_mul(v, v_set1(t->scale));
    if (t->softcap > 0.0f) {
        float s[16];
        v_store(s, v);
        for (int i = 0; i < 16; i++)
            s[i] = t->softcap * tanhf(s[i] / t->softcap);
        v = v_load(s);
    }
    if (n == 16)
        v_store(y, v);
    else
        v_store_n(y, v, n);
}

static inline __attribute__((always_inline)) void group(const int R, const int T, const TileArgs *t, int row, int tile);

static inline __attribute__((always_inline)) void tile_rows(const int T, const TileArgs *t, int row, int end, int tile)
{
    for (; row + ROWS <= end; row += ROWS)
        group(ROWS, T, t, row, tile);
#if ROWS > 4
    for (; row + 4 <= end; row += 4)
        group(4, T, t, row, tile);
#endif
#if ROWS > 2
    for (; row + 2 <= end; row += 2)
        group(2, T, t, row, tile);
#endif
#if ROWS > 1
    for (; row < end; row++)
        group(1, T, t, row, tile);
#endif
}

static inline void tile_block(const TileArgs *t, uint32_t bx, uint32_t by)
{
    int tiles = (t->n + 15) / 16, tile = (int)bx * TILES;
    int row = (int)by * ROW_BLOCK, end = row + ROW_BLOCK < t->rows ? row + ROW_BLOCK : t->rows;
    if (tile + TILES <= tiles)
        tile_rows(TILES, t, row, end, tile);
    else
        for (; tile < tiles; tile++)
            tile_rows(1, t, row, end, tile);
}
#endif
