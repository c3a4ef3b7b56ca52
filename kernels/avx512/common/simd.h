/* simd.h - sixteen lanes in one zmm register; shadows avx2/common/simd.h and gives the same bits (that file says
 * what each operation is). */
#ifndef METRALE_SIMD_H
#define METRALE_SIMD_H
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m512 v16;
typedef __m512i n16; /* 16 i32 */
typedef __m512i w64; /* 64 bytes */

static inline v16 v_zero(void)
{
    return _mm512_setzero_ps();
}
static inline v16 v_set1(float f)
{
    return _mm512_set1_ps(f);
}
static inline v16 v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a);
}
static inline v16 v_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}
static inline v16 v_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}
static inline v16 v_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}
static inline v16 v_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}
static inline v16 v_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}
static inline v16 v_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}
static inline v16 v_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline v16 v_abs(v16 a)
{
    return _mm512_abs_ps(a);
}
static inline n16 v_round_i32(v16 a)
{
    return _mm512_cvtps_epi32(a);
}
static inline v16 n_to_f32(n16 a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline v16 v_keep(v16 a, int lo, int hi, float other)
{
    __mmask16 in = (__mmask16)((0xffffu << lo) & (0xffffu >> (15 - hi)));
    return _mm512_mask_blend_ps(in, _mm512_set1_ps(other), a);
}

static inline v16 v_load_bf16(const uint16_t *p)
{
    __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
}
static inline v16 v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void v_store_bf16(uint16_t *p, v16 a)
{
    __m512i u = _mm512_castps_si512(a);
    __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff))), 16);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(u));
}
static inline void v_store_f16(uint16_t *p, v16 a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline v16 v_scale2(v16 a, n16 n)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(n, 23)));
}

static inline float v_sum(v16 a)
{
    __m256 s = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
static inline float v_maximum(v16 a)
{
    __m256 s = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

static inline w64 w_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
static inline w64 w_low4(w64 a)
{
    return _mm512_and_si512(a, _mm512_set1_epi8(15));
}
static inline w64 w_high4(w64 a)
{
    return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15));
}
static inline n16 n_zero(void)
{
    return _mm512_setzero_si512();
}
static inline n16 n_set1(int32_t v)
{
    return _mm512_set1_epi32(v);
}
static inline n16 n_sub(n16 a, n16 b)
{
    return _mm512_sub_epi32(a, b);
}
typedef __m512i x4;
static inline x4 x_load(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}

typedef n16 dot_u4;
static inline dot_u4 dot_u4_step(dot_u4 acc, w64 w, x4 x)
{
    return _mm512_dpbusd_epi32(acc, w, x);
}
static inline n16 dot_u4_sum(dot_u4 acc)
{
    return acc;
}
/* VNNI multiplies unsigned by signed: w is taken as w + 128, and 128 * sum(x) comes off at the end. */
typedef n16 dot_i8;
typedef w64 w_i8;
static inline w_i8 w_signed(w64 a)
{
    return _mm512_xor_si512(a, _mm512_set1_epi8((char)0x80));
}
static inline dot_i8 dot_i8_step(dot_i8 acc, w_i8 w, x4 x)
{
    return _mm512_dpbusd_epi32(acc, w, x);
}
static inline n16 dot_i8_sum(dot_i8 acc, int32_t sum_x)
{
    return _mm512_sub_epi32(acc, _mm512_set1_epi32(128 * sum_x));
}

#define V_REGS 32

static inline void n_store_i8(int8_t *p, n16 a)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a));
}
static inline int32_t n_sum(n16 a)
{
    return _mm512_reduce_add_epi32(a);
}

#include "simd_math.h"
#endif
