/* cell.h - matrix products with weights of a block format made of planes and activations i8/32 (act_i8.h); tile.h has
 * the ops.
 *   x [rows][k/32] ActBlock
 *   w n16: blocks of 32 k's, or super-blocks of 256 as a head and 8 cells of 32 (src/weights/layout.h)
 *
 * The format's source defines, then includes this file:
 *   BLOCK_K      32 or 256
 *   HEAD_BYTES   of a super-block before its cells; 0 for blocks of 32
 *   CELL_BYTES
 *   TOP          the largest code: 3, 7, 15, 31 or 63; 127: codes are signed bytes
 *   ZERO         the code of weight 0, or 0; 0 for signed codes
 *   HALVES       1: each 16 k's have a scale s of their own, and a minimum u if there are minima
 *   MINIMA       0 none, 1 added, -1 taken off
 * and after it
 *   cell_codes   bytes of group g (k = 4g..4g + 3) of a cell; g is a constant
 *   cell_scales  the fields of Scales that these ask for
 *
 *   w = d * (q - ZERO) + MINIMA * m                         HALVES 0
 *   w = d * s[half] * (q - ZERO) + MINIMA * m * u[half]     HALVES 1
 *
 * Order: cells of 32 along k in turn. The integer dot of a cell, and the sum of two under their scales, are exact (below
 * 2^24, so floats hold them); with it
 *   p = d * dot, with minima p = fma(d, dot, m * (MINIMA * sum of x)), then acc = fma(p, dx, acc) */
#ifndef METRALE_CELL_H
#define METRALE_CELL_H
#include "act_i8.h"
#include "planes.h"
#include "token.h"

enum { CELLS = BLOCK_K / 32, BLOCK_BYTES = HEAD_BYTES + CELLS * CELL_BYTES };

static inline size_t x_bytes(int k)
{
    return (size_t)(k / 32) * sizeof(ActBlock);
}
static inline size_t tile_bytes(int k)
{
    return (size_t)(k / BLOCK_K) * BLOCK_BYTES;
}
#include "tile.h"

typedef struct Scales {
    v16 d, m, s[2], u[2];
} Scales;

INLINE w64 cell_codes(const uint8_t *cell, const int g);
INLINE Scales cell_scales(const uint8_t *head, const uint8_t *cell);

/* ---- planes -------------------------------------------------------------------------------------------------------
 * The part of group g in a plane; g is a constant. */

/* u4 [4][64] */
INLINE w64 plane_nibbles(const uint8_t *p, const int g)
{
    return g < 4 ? w_low4(w_load(p + 64 * g)) : w_high4(w_load(p + 64 * (g - 4)));
}

/* u2 [2][64], moved to bit `to` */
INLINE w64 plane_pairs(const uint8_t *p, const int g, const int to)
{
    return w_field(w_load(p + 64 * (g / 4)), 2 * (g % 4), to, 3);
}

/* u1 [64], moved to bit `to` */
INLINE w64 plane_bits(const uint8_t *p, const int g, const int to)
{
    return w_field(w_load(p), g, to, 1);
}

/* ---- products --------------------------------------------------------------------------------------------------- */

/* s[r] += codes of groups g..g + 3 times x; g is a constant. Running sums are widened before they can leave i16. */
INLINE void cell_dots(const int R, n16 *s, const uint8_t *cell, const uint8_t *const *x, int at, const int g)
{
    w64 q[4] = {cell_codes(cell, g), cell_codes(cell, g + 1), cell_codes(cell, g + 2), cell_codes(cell, g + 3)};

#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        const int8_t *xq = ((const ActBlock *)x[r])[at].q + 4 * g;
#if TOP == 127
        s[r] = n_dots_i8(s[r], q, xq);
#elif TOP == 63
        s[r] = n_dots_u6(s[r], q, xq);
#else
        s[r] = n_dots_u5(s[r], q, xq);
#endif
    }
}

/* Sum of the first 16 activations of a block: as bytes from 0, summed by eights. */
static inline int32_t act_low_sum(const ActBlock *x)
{
    __m128i q = _mm_xor_si128(_mm_loadu_si128((const __m128i *)x->q), _mm_set1_epi8((char)0x80));
    __m128i s = _mm_sad_epu8(q, _mm_setzero_si128());
    return _mm_cvtsi128_si32(s) + _mm_extract_epi16(s, 4) - 16 * 128;
}

/* d * dot (and the minimum's part) of one row, but for dx. s0, s1: dots of the first and the second 16 k's, or all in s0. */
INLINE v16 cell_product(const Scales *c, n16 s0, n16 s1, const ActBlock *x)
{
#if HALVES
    int32_t low = act_low_sum(x), high = x->s - low;
#if ZERO
    s0 = n_sub(s0, n_set1(ZERO * low));
    s1 = n_sub(s1, n_set1(ZERO * high));
#endif
    v16 dot = v_fma(c->s[1], n_to_f32(s1), v_mul(c->s[0], n_to_f32(s0)));
#if MINIMA
    v16 sum = v_fma(c->u[1], v_set1((float)high), v_mul(c->u[0], v_set1((float)low)));
    return v_fma(c->d, dot, v_mul(c->m, MINIMA > 0 ? sum : v_sub(v_zero(), sum)));
#else
    return v_mul(c->d, dot);
#endif
#else
    (void)s1;
#if TOP == 127
    s0 = n_dots_i8_end(s0, x->s);
#elif ZERO
    s0 = n_sub(s0, n_set1(ZERO * x->s));
#endif
#if MINIMA
    return v_fma(c->d, n_to_f32(s0), v_mul(c->m, v_set1((float)(MINIMA * x->s))));
#else
    return v_mul(c->d, n_to_f32(s0));
#endif
#endif
}

/* Weights are read once, in order; the hardware's prefetcher stops at page ends and starts late. */
enum { AHEAD = 2048 };

INLINE void dot_group(const int R, v16 *acc, const uint8_t *w, const uint8_t *const *x, int k)
{
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        acc[r] = v_zero();
    for (int at = 0; at < k / 32; w += BLOCK_BYTES)
        for (int i = 0; i < CELLS; i++, at++) {
            const uint8_t *cell = w + HEAD_BYTES + i * CELL_BYTES;
            Scales c = cell_scales(w, cell);
            n16 s0[GROUP], s1[GROUP];
            if (R == 1)
#pragma GCC unroll 8
                for (int j = 0; j < CELL_BYTES; j += 64)
                    __builtin_prefetch(cell + AHEAD + j);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
                s0[r] = s1[r] = n_zero();
            cell_dots(R, s0, cell, x, at, 0);
            cell_dots(R, HALVES ? s1 : s0, cell, x, at, 4);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) {
                const ActBlock *xb = (const ActBlock *)x[r] + at;
                acc[r] = v_fma(cell_product(&c, s0[r], s1[r], xb), v_set1(xb->d), acc[r]);
            }
        }
}

/* ---- embed: y[r] = scale * (row tokens[r] of the table) ----------------------------------------------------------
 *   y [rows][hidden] f32, tokens [rows] i32, w n16; grid (rows)
 * All 16 rows of a cell are unpacked for the one that is wanted: it is one row in a step's work, and needs no code of
 * its own. */

INLINE float v_lane(v16 v, int lane)
{
    float t[16];
    v_store(t, v);
    return t[lane];
}

/* Four values of group g (a constant). */
INLINE void embed_group(float *y, const uint8_t *cell, const Scales *c, int lane, float scale, const int g)
{
    uint8_t q[64];
    float d = v_lane(c->d, lane);
#if HALVES
    d *= v_lane(c->s[g / 4], lane);
#endif
#if MINIMA && HALVES
    float m = MINIMA * (v_lane(c->m, lane) * v_lane(c->u[g / 4], lane));
#elif MINIMA
    float m = MINIMA * v_lane(c->m, lane);
#else
    float m = 0;
#endif
    w_store(q, cell_codes(cell, g));
    for (int j = 0; j < 4; j++) {
        int code = TOP == 127 ? (int8_t)q[4 * lane + j] : q[4 * lane + j] - ZERO;
        y[4 * g + j] = (d * (float)code + m) * scale;
    }
}

static inline void embed(const KArg *a, const KBlock *b)
{
    int hidden = I32(4), token = row_token(a, b->x), lane = token % 16;
    float scale = F32(5), *y = PTR(0, float) + (size_t)b->x * (size_t)hidden;
    const uint8_t *w = PTR(2, uint8_t) + (size_t)(token / 16) * tile_bytes(hidden);

    for (int k = 0; k < hidden; w += BLOCK_BYTES)
        for (int i = 0; i < CELLS; i++, k += 32) {
            const uint8_t *cell = w + HEAD_BYTES + i * CELL_BYTES;
            Scales c = cell_scales(w, cell);
            embed_group(y + k, cell, &c, lane, scale, 0);
            embed_group(y + k, cell, &c, lane, scale, 1);
            embed_group(y + k, cell, &c, lane, scale, 2);
            embed_group(y + k, cell, &c, lane, scale, 3);
            embed_group(y + k, cell, &c, lane, scale, 4);
            embed_group(y + k, cell, &c, lane, scale, 5);
            embed_group(y + k, cell, &c, lane, scale, 6);
            embed_group(y + k, cell, &c, lane, scale, 7);
        }
}
#endif
