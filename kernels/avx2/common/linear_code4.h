/* linear_code4.h - matrix products with weights of 4-bit codes that stand for sixteen floats, and activations f32; tile.h has the
 * ops. The source names CODES:
 *   CODES_NF4    nf4/SPAN     f32 d[16]            | pairs [SPAN / 2][16]
 *   CODES_W4P    w4p/SPAN     f32 d[16], i16 z[16] | pairs, and in front of all u16 p[k]: code i meets input p[i]
 *   CODES_NVFP4  nvfp4        u8 s[16]             | pairs [8][16], and in front of all f32 g[16]; SPAN 16
 *   x [rows][k] f32; w n16. Byte r of a pair: row r, low nibble k, high nibble k + 1
 * Order: spans along k in turn: one fma chain for the span, then acc = fma(scale, partial, acc); nvfp4: at last times g. */
#ifndef METRALE_LINEAR_CODE4_H
#define METRALE_LINEAR_CODE4_H
#include "codes.h"
#include <stddef.h>

#define CODES_NF4   0
#define CODES_W4P   1
#define CODES_NVFP4 2

#if CODES == CODES_NF4 /* QLoRA, appendix E, as in src/weights/rowed.c */
static const float CODE_VALUES[16] = {-1.0f,
                                      -0.6961928009986877f,
                                      -0.5250730514526367f,
                                      -0.39491748809814453f,
                                      -0.28444138169288635f,
                                      -0.18477343022823334f,
                                      -0.09105003625154495f,
                                      0.0f,
                                      0.07958029955625534f,
                                      0.16093020141124725f,
                                      0.24611230194568634f,
                                      0.33791524171829224f,
                                      0.44070982933044434f,
                                      0.5626170039176941f,
                                      0.7229568362236023f,
                                      1.0f};
enum { TILE_HEAD = 0, SPAN_HEAD = 64, ORDER = 0 };
#elif CODES == CODES_W4P
static const float CODE_VALUES[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
enum { TILE_HEAD = 0, SPAN_HEAD = 96, ORDER = 2 };
#else /* e2m1 */
static const float CODE_VALUES[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                      -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
enum { TILE_HEAD = 64, SPAN_HEAD = 16, ORDER = 0 };
#endif

static inline size_t x_bytes(int k)
{
    return (size_t)k * sizeof(float);
}
static inline size_t tile_bytes(int k)
{
    return TILE_HEAD + (size_t)ORDER * (size_t)k + (size_t)k * 8 + ((size_t)k + SPAN - 1) / SPAN * SPAN_HEAD;
}
#include "tile.h"

INLINE void dot_group(const int R, v16 *acc, const uint8_t *w, const uint8_t *const *x, int k)
{
    const v16 table = v_load(CODE_VALUES);
#if CODES == CODES_NVFP4
    const v16 g = v_load((const float *)w);
#endif
#if CODES == CODES_W4P
    const uint16_t *order = (const uint16_t *)w;
#endif

    w += TILE_HEAD + (size_t)ORDER * (size_t)k;
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        acc[r] = v_zero();
    for (int first = 0; first < k; first += SPAN) {
        const int last = k - first < SPAN ? k : first + SPAN;
#if CODES == CODES_NVFP4
        const v16 d = v_mul(v_load_e4m3(w), v_set1(256.0f));
#else
        const v16 d = v_load((const float *)w);
#endif
#if CODES == CODES_W4P
        const v16 z = v_load_i16(w + 64);
#endif
        v16 p[GROUP];

        w += SPAN_HEAD;
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
            p[r] = v_zero();
        for (int i = first; i < last; i += 2, w += 16) {
            n16 both = n_load_u8(w);
            v16 a = v_table(table, both), b = v_table(table, n_high4(both));
#if CODES == CODES_W4P
            const int ia = order[i], ib = order[i + 1];
            a = v_sub(a, z);
            b = v_sub(b, z);
#else
            const int ia = i, ib = i + 1;
#endif
            if (R == 1)
                __builtin_prefetch(w + 2048);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) {
                p[r] = v_fma(a, v_set1(((const float *)x[r])[ia]), p[r]);
                p[r] = v_fma(b, v_set1(((const float *)x[r])[ib]), p[r]);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
            acc[r] = v_fma(d, p[r], acc[r]);
    }
#if CODES == CODES_NVFP4
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        acc[r] = v_mul(acc[r], g);
#endif
}
#endif
