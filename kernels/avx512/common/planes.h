/* planes.h - avx2/common/planes.h in zmm registers, with the same bits; that file says what each operation is. */
#ifndef METRALE_PLANES_H
#define METRALE_PLANES_H
#include "simd.h"

static inline void w_store(void *p, w64 a)
{
    _mm512_storeu_si512(p, a);
}
static inline w64 w_or(w64 a, w64 b)
{
    return _mm512_or_si512(a, b);
}
static inline __attribute__((always_inline)) w64 w_field(w64 a, const int from, const int to, const int mask)
{
    if (from > to)
        a = _mm512_srli_epi16(a, (unsigned)(from - to));
    if (from < to)
        a = _mm512_slli_epi16(a, (unsigned)(to - from));
    return _mm512_and_si512(a, _mm512_set1_epi8((char)(mask << to)));
}
static inline w64 w_lookup(const int8_t *table, w64 codes)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), codes);
}

static inline v16 v_load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline v16 v_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline v16 v_load_low4(const uint8_t *p)
{
    __m128i v = _mm_and_si128(_mm_loadu_si128((const __m128i *)p), _mm_set1_epi8(15));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v));
}
static inline v16 v_load_high4(const uint8_t *p)
{
    __m128i v = _mm_and_si128(_mm_srli_epi16(_mm_loadu_si128((const __m128i *)p), 4), _mm_set1_epi8(15));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v));
}
static inline v16 v_load_e8m0(const uint8_t *p)
{
    __m512i u = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)), 23);
    u = _mm512_max_epi32(u, _mm512_set1_epi32(0x00400000));
    return _mm512_mul_ps(_mm512_castsi512_ps(u), _mm512_set1_ps(0.5f));
}

/* The instruction widens by itself, so that all codes to 127 are alike. */
static inline n16 n_dots_u6(n16 acc, const w64 *q, const int8_t *x)
{
    for (int i = 0; i < 4; i++) {
        int32_t four;
        memcpy(&four, x + 4 * i, 4);
        acc = _mm512_dpbusd_epi32(acc, q[i], _mm512_set1_epi32(four));
    }
    return acc;
}
static inline n16 n_dots_u5(n16 acc, const w64 *q, const int8_t *x)
{
    return n_dots_u6(acc, q, x);
}
/* Signed codes are taken as code + 128; 128 * sum_x comes off at the end. */
static inline n16 n_dots_i8(n16 acc, const w64 *q, const int8_t *x)
{
    w64 above[4];
    for (int i = 0; i < 4; i++)
        above[i] = _mm512_xor_si512(q[i], _mm512_set1_epi8((char)0x80));
    return n_dots_u6(acc, above, x);
}
static inline n16 n_dots_i8_end(n16 acc, int32_t sum_x)
{
    return _mm512_sub_epi32(acc, _mm512_set1_epi32(128 * sum_x));
}
#endif
