/* planes.h - what block formats of the layout n16 (src/weights/layout.h) need beside simd.h: fields of bytes, a table
 * of sixteen bytes, scales of one byte, dots of 16. avx512/common/planes.h shadows it and gives the same bits. */
#ifndef METRALE_PLANES_H
#define METRALE_PLANES_H
#include "simd.h"

static inline void w_store(void *p, w64 a)
{
    _mm256_storeu_si256((__m256i *)p, a.lo);
    _mm256_storeu_si256((__m256i *)p + 1, a.hi);
}
static inline w64 w_or(w64 a, w64 b)
{
    return (w64){_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
/* In every byte: (a >> from & mask) << to. Constants, with all bits inside the byte before and after. */
static inline __attribute__((always_inline)) __m256i w_half_field(__m256i a, const int from, const int to,
                                                                  const int mask)
{
    const __m256i m = _mm256_set1_epi8((char)(mask << to));
    if (from > to)
        a = _mm256_srli_epi16(a, from - to);
    if (from < to)
        a = _mm256_slli_epi16(a, to - from);
    return _mm256_and_si256(a, m);
}
static inline __attribute__((always_inline)) w64 w_field(w64 a, const int from, const int to, const int mask)
{
    return (w64){w_half_field(a.lo, from, to, mask), w_half_field(a.hi, from, to, mask)};
}
/* table[code] in every byte; codes 0..15 */
static inline w64 w_lookup(const int8_t *table, w64 codes)
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (w64){_mm256_shuffle_epi8(t, codes.lo), _mm256_shuffle_epi8(t, codes.hi)};
}

/* 16 bytes as f32 */
static inline v16 v_load_u8(const uint8_t *p)
{
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p))),
                 _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8))))};
}
static inline v16 v_load_i8(const uint8_t *p)
{
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8))))};
}
/* The low or the high nibbles of 16 bytes as f32 */
static inline v16 v_load_low4(const uint8_t *p)
{
    __m128i v = _mm_and_si128(_mm_loadu_si128((const __m128i *)p), _mm_set1_epi8(15));
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)),
                 _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))};
}
static inline v16 v_load_high4(const uint8_t *p)
{
    __m128i v = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128((const __m128i *)p), 4), _mm_set1_epi8(15));
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)),
                 _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))};
}
/* 16 exponents e as 2^(e - 128): the float of 2^(e - 127), which is subnormal for e = 0, halved. */
static inline __m256 v_half_e8m0(__m128i e)
{
    __m256i u = _mm256_slli_epi32(_mm256_cvtepu8_epi32(e), 23);
    u = _mm256_max_epi32(u, _mm256_set1_epi32(0x00400000));
    return _mm256_mul_ps(_mm256_castsi256_ps(u), _mm256_set1_ps(0.5f));
}
static inline v16 v_load_e8m0(const uint8_t *p)
{
    return (v16){v_half_e8m0(_mm_loadl_epi64((const __m128i *)p)),
                 v_half_e8m0(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}

/* acc[lane] += the dots of 16: four groups q of codes, 16 activations x, none -128. Exact.
 * u5: codes to 31; four products of pairs stay in i16 (31 * 127 * 2 * 4 = 31496) and are widened once.
 * u6: codes to 63; two do. */
static inline __m256i dots_pair(__m256i q0, __m256i q1, x4 x0, x4 x1)
{
    return _mm256_add_epi16(_mm256_maddubs_epi16(q0, x0), _mm256_maddubs_epi16(q1, x1));
}
static inline n16 n_dots_u5(n16 acc, const w64 *q, const int8_t *x)
{
    const __m256i one = _mm256_set1_epi16(1);
    x4 a = x_load(x), b = x_load(x + 4), c = x_load(x + 8), d = x_load(x + 12);
    __m256i lo = _mm256_add_epi16(dots_pair(q[0].lo, q[1].lo, a, b), dots_pair(q[2].lo, q[3].lo, c, d));
    __m256i hi = _mm256_add_epi16(dots_pair(q[0].hi, q[1].hi, a, b), dots_pair(q[2].hi, q[3].hi, c, d));
    return (n16){_mm256_add_epi32(acc.lo, _mm256_madd_epi16(lo, one)),
                 _mm256_add_epi32(acc.hi, _mm256_madd_epi16(hi, one))};
}
static inline n16 n_dots_u6(n16 acc, const w64 *q, const int8_t *x)
{
    const __m256i one = _mm256_set1_epi16(1);
    for (int i = 0; i < 4; i += 2) {
        x4 a = x_load(x + 4 * i), b = x_load(x + 4 * i + 4);
        __m256i lo = dots_pair(q[i].lo, q[i + 1].lo, a, b), hi = dots_pair(q[i].hi, q[i + 1].hi, a, b);
        acc.lo = _mm256_add_epi32(acc.lo, _mm256_madd_epi16(lo, one));
        acc.hi = _mm256_add_epi32(acc.hi, _mm256_madd_epi16(hi, one));
    }
    return acc;
}
/* i8: signed codes. When all groups are in, n_dots_i8_end with the sum of all x used. */
static inline n16 n_dots_i8(n16 acc, const w64 *q, const int8_t *x)
{
    for (int i = 0; i < 4; i++)
        acc = dot_i8_step(acc, w_signed(q[i]), x_load(x + 4 * i));
    return acc;
}
static inline n16 n_dots_i8_end(n16 acc, int32_t sum_x)
{
    return dot_i8_sum(acc, sum_x);
}
#endif
