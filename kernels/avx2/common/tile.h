/* tile.h - what every matrix product shares: the walk over tiles of 16 outputs and groups of rows, and what is
 * done with a result.
 * A block of the grid takes one tile (a pair of them, where two products are gated) and ROW_BLOCK rows, ROWS at a
 * time: the tile's
 * weights stay in L1 while the rows pass.
 *
 * The including file (linear_quant.h, linear_float.h) has defined
 *   x_bytes(k), tile_bytes(k)            bytes of an activation row and of a tile
 *   dot_group(R, acc, w, x, k)           acc[r] = 16 dots of row x[r] with the tile at w; R is a compile-time number
 * and the build ROWS (1 or a power of two) and ROW_BLOCK (a multiple of it). The order of a result's additions
 * depends on neither. */
#ifndef METRALE_TILE_H
#define METRALE_TILE_H
#include "act_i8.h"
#include "kernel_abi.h"
#include "simd.h"
#include <math.h>
#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))

/* Rows of one group: ROWS, or as many as leave their running dots in registers. */
#if ROWS < V_REGS / 2
#define GROUP ROWS
#else
#define GROUP (V_REGS / 2)
#endif

/* One matrix n16 and where its products go. */
typedef struct Matrix {
    float *y; /* [rows][n] */
    const void *w;
    const float *bias; /* [n] or NULL */
    int n;
} Matrix;

typedef enum {
    END_STORE, /* y = p + bias */
    END_ADD,   /* y = residual + scale * (p + bias) */
    END_HEAD,  /* y = cap(scale * p) */
    END_GATE,  /* y = silu(p + bias) * (q + bias): f32 */
    END_GATE_I8,
} TileEnd;

typedef struct TileArgs {
    Matrix a, b; /* b: the second factor of a gate */
    const void *x;
    const int32_t *source; /* row r of y comes from row source[r] of x; NULL: from row r */
    const float *residual; /* [rows][n] */
    float scale, softcap;
    int rows, k;
    ActBlock *act; /* END_GATE_I8: [rows][n/32] */
} TileArgs;

INLINE void dot_group(const int R, v16 *acc, const uint8_t *w, const uint8_t *const *x, int k);

/* One copy of the product for each size of group, whatever is done with it: that keeps compilation in seconds, and
 * a call is
 * nothing beside a tile. */
#define DOT(R)                                                                                                         \
    static __attribute__((noinline, unused)) void dot_##R(v16 *acc, const uint8_t *w, const uint8_t *const *x, int k)  \
    {                                                                                                                  \
        v16 own[R]; /* not acc itself, which might overlap w for all the compiler knows */                             \
        dot_group(R <= GROUP ? R : GROUP, own, w, x, k);                                                               \
        for (int r = 0; r < (R <= GROUP ? R : GROUP); r++)                                                             \
            acc[r] = own[r];                                                                                           \
    }
DOT(1)
DOT(2)
DOT(4)
DOT(8)
DOT(16)
#undef DOT

/* acc[r] = 16 dots of row x[r] with the tile at w */
INLINE void dot_tile(const int R, v16 *acc, const uint8_t *w, const uint8_t *const *x, int k)
{
    (R == 1 ? dot_1 : R == 2 ? dot_2 : R == 4 ? dot_4 : R == 8 ? dot_8 : dot_16)(acc, w, x, k);
}

INLINE v16 tile_read(const float *p, int n)
{
    return n == 16 ? v_load(p) : v_load_n(p, n);
}

INLINE void tile_write(float *p, v16 v, int n)
{
    if (n == 16)
        v_store(p, v);
    else
        v_store_n(p, v, n);
}

INLINE v16 tile_cap(v16 v, float cap)
{
    float s[16];
    v_store(s, v);
    for (int i = 0; i < 16; i++)
        s[i] = cap * tanhf(s[i] / cap);
    return v_load(s);
}

/* acc[r] = products of R rows with one tile of m, bias added */
INLINE void tile_product(const int R, v16 *acc, const TileArgs *t, const Matrix *m, const uint8_t *const *x, int tile)
{
    int n = m->n - tile * 16 < 16 ? m->n - tile * 16 : 16;
    dot_tile(R, acc, (const uint8_t *)m->w + (size_t)tile * tile_bytes(t->k), x, t->k);
    if (m->bias) {
        v16 bias = tile_read(m->bias + tile * 16, n);
        for (int r = 0; r < R; r++)
            acc[r] = v_add(acc[r], bias);
    }
}

/* R rows of silu(a) * b for one tile */
INLINE void tile_gate(const int R, v16 *h, const TileArgs *t, const uint8_t *const *x, int tile)
{
    v16 u[GROUP];
    tile_product(R, h, t, &t->a, x, tile);
    tile_product(R, u, t, &t->b, x, tile);
    for (int r = 0; r < R; r++)
        h[r] = v_mul(v_silu(h[r]), u[r]);
}

/* R rows from `row`; unit is a tile, or with END_GATE_I8 a pair of tiles: one block of i8/32. */
INLINE void tile_group(const int R, const TileEnd end, const TileArgs *t, int row, int unit)
{
    const uint8_t *x[GROUP];
    v16 acc[GROUP];

#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        x[r] = (const uint8_t *)t->x + (size_t)(t->source ? t->source[row + r] : row + r) * x_bytes(t->k);
    if (end == END_GATE_I8) {
        v16 high[GROUP];
        tile_gate(R, acc, t, x, 2 * unit);
        tile_gate(R, high, t, x, 2 * unit + 1);
        for (int r = 0; r < R; r++)
            act_quant_block(t->act + (size_t)(row + r) * (size_t)(t->a.n / 32) + unit, acc[r], high[r]);
        return;
    }
    if (end == END_GATE)
        tile_gate(R, acc, t, x, unit);
    else
        tile_product(R, acc, t, &t->a, x, unit);
    int n0 = unit * 16, n = t->a.n - n0 < 16 ? t->a.n - n0 : 16;
    for (int r = 0; r < R; r++) {
        size_t at = (size_t)(row + r) * (size_t)t->a.n + (size_t)n0;
        v16 v = acc[r];
        if (end == END_ADD)
            v = v_fma(v, v_set1(t->scale), tile_read(t->residual + at, n));
        if (end == END_HEAD && t->scale != 1.0f)
            v = v_mul(v, v_set1(t->scale));
        if (end == END_HEAD && t->softcap > 0.0f)
            v = tile_cap(v, t->softcap);
        tile_write(t->a.y + at, v, n);
    }
}

INLINE void tile_rows(const TileEnd end, const TileArgs *t, int row, int last, int unit)
{
    for (; row + GROUP <= last; row += GROUP)
        tile_group(GROUP, end, t, row, unit);
    if (GROUP > 8 && row + 8 <= last) {
        tile_group(8, end, t, row, unit);
        row += 8;
    }
    if (GROUP > 4 && row + 4 <= last) {
        tile_group(4, end, t, row, unit);
        row += 4;
    }
    if (GROUP > 2 && row + 2 <= last) {
        tile_group(2, end, t, row, unit);
        row += 2;
    }
    if (GROUP > 1 && row < last)
        tile_group(1, end, t, row, unit);
}

INLINE void tile_block(const TileEnd end, const TileArgs *t, int unit, uint32_t by)
{
    int row = (int)by * ROW_BLOCK, last = row + ROW_BLOCK < t->rows ? row + ROW_BLOCK : t->rows;
    tile_rows(end, t, row, last, unit);
}

/* ---- the ops ------------------------------------------------------------------------------------------------------
 * Arguments as FAMILIES.toml lists them. grid (units, ceil(rows, ROW_BLOCK)), unit = tile unless said otherwise. */

/* y x w bias rows n k */
INLINE void linear(const KArg *a, const KBlock *b)
{
    TileArgs t = {
        .a = {PTR(0, float), PTR(2, void), PTR(3, float), I32(5)}, .x = PTR(1, void), .rows = I32(4), .k = I32(6)};
    tile_block(END_STORE, &t, (int)b->x, b->y);
}

/* linear, then residual_add: y x w bias residual rows n k scale */
INLINE void linear_add(const KArg *a, const KBlock *b)
{
    TileArgs t = {.a = {PTR(0, float), PTR(2, void), PTR(3, float), I32(6)},
                  .x = PTR(1, void),
                  .residual = PTR(4, float),
                  .rows = I32(5),
                  .k = I32(7),
                  .scale = F32(8)};
    tile_block(END_ADD, &t, (int)b->x, b->y);
}

/* Three linears of one input, their tiles side by side: yq yk yv x wq wk wv bq bk bv rows nq nk nv k */
INLINE void linear_3(const KArg *a, const KBlock *b)
{
    int unit = (int)b->x, m = 0;
    while (m < 2 && unit >= (I32(11 + m) + 15) / 16)
        unit -= (I32(11 + m++) + 15) / 16;
    TileArgs t = {.a = {PTR(m, float), PTR(4 + m, void), PTR(7 + m, float), I32(11 + m)},
                  .x = PTR(3, void),
                  .rows = I32(10),
                  .k = I32(14)};
    tile_block(END_STORE, &t, unit, b->y);
}

/* Two linears of one input, then silu_mul, to f32 or to i8/32 (unit = 32 outputs): y x wg wu bg bu rows n k */
INLINE void linear_gate(const TileEnd end, const KArg *a, const KBlock *b)
{
    TileArgs t = {.a = {PTR(0, float), PTR(2, void), PTR(4, float), I32(7)},
                  .b = {NULL, PTR(3, void), PTR(5, float), I32(7)},
                  .x = PTR(1, void),
                  .rows = I32(6),
                  .k = I32(8),
                  .act = PTR(0, ActBlock)};
    tile_block(end, &t, (int)b->x, b->y);
}

/* y x w source outs n k scale softcap */
INLINE void lm_head(const KArg *a, const KBlock *b)
{
    TileArgs t = {.a = {PTR(0, float), PTR(2, void), NULL, I32(5)},
                  .x = PTR(1, void),
                  .source = PTR(3, int32_t),
                  .rows = I32(4),
                  .k = I32(6),
                  .scale = F32(7),
                  .softcap = F32(8)};
    tile_block(END_HEAD, &t, (int)b->x, b->y);
}
#endif
