/* codes.h - as avx2/common/codes.h, in one register. */
#ifndef METRALE_CODES_H
#define METRALE_CODES_H
#include "simd.h"

static inline n16 n_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
static inline n16 n_high4(n16 a)
{
    return _mm512_srli_epi32(a, 4);
}
static inline v16 v_table(v16 table, n16 i)
{
    return _mm512_permutexvar_ps(i, table);
}
static inline v16 v_load_i16(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)p)));
}
static inline v16 v_load_e4m3(const uint8_t *p)
{
    __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(h, _mm256_set1_epi16((short)0xbfff)));
}
#endif
