/* codes.h - codes of weights as floats, sixteen rows at a time; avx512/common/codes.h shadows it and gives the same bits. */
#ifndef METRALE_CODES_H
#define METRALE_CODES_H
#include "simd.h"

/* 16 bytes, one a lane */
static inline n16 n_load_u8(const uint8_t *p)
{
    return (n16){_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                 _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}
/* the high nibble of every lane's byte */
static inline n16 n_high4(n16 a)
{
    return (n16){_mm256_srli_epi32(a.lo, 4), _mm256_srli_epi32(a.hi, 4)};
}
static inline __m256 v_half_table(v16 table, __m256i i)
{
    __m256 low = _mm256_permutevar8x32_ps(table.lo, i), high = _mm256_permutevar8x32_ps(table.hi, i);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
}
/* table[the low four bits of every lane] */
static inline v16 v_table(v16 table, n16 i)
{
    return (v16){v_half_table(table, i.lo), v_half_table(table, i.hi)};
}
/* 16 i16 as f32 */
static inline v16 v_load_i16(const uint8_t *p)
{
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p))),
                 _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(p + 16))))};
}
/* 16 e4m3 values times 2^-8, exact: sign, exponent and fraction are moved to where f16 has them, whose bias is 8 more */
static inline v16 v_load_e4m3(const uint8_t *p)
{
    __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)), 7);
    h = _mm256_and_si256(h, _mm256_set1_epi16((short)0xbfff));
    return (v16){_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
}
#endif
