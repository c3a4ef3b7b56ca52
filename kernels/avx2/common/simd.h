/* simd.h - sixteen lanes, whatever the machine's registers are. The kernels of the CPU classes are written over
 * this file alone;
 * avx512/common/simd.h shadows it. The two give the same bits: every operation is lane-wise IEEE (fma where it
 * says fma), integer dots
 * are exact, and sums across lanes follow one tree.
 *
 * v16  16 f32 lanes    n16  16 i32 lanes    w64  64 bytes    x4  four bytes in every lane    dot_*  running
 * integer dots */
#ifndef METRALE_SIMD_H
#define METRALE_SIMD_H
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef struct v16 {
    __m256 lo, hi;
} v16;
typedef struct n16 {
    __m256i lo, hi;
} n16; /* 16 i32 */

static inline v16 v_zero(void)
{
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
static inline v16 v_set1(float f)
{
    return (v16){_mm256_set1_ps(f), _mm256_set1_ps(f)};
}
static inline v16 v_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void v_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
static inline v16 v_add(v16 a, v16 b)
{
    return (v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline v16 v_sub(v16 a, v16 b)
{
    return (v16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline v16 v_mul(v16 a, v16 b)
{
    return (v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline v16 v_div(v16 a, v16 b)
{
    return (v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline v16 v_max(v16 a, v16 b)
{
    return (v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static inline v16 v_min(v16 a, v16 b)
{
    return (v16){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
/* a * b + c, rounded once */
static inline v16 v_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline v16 v_abs(v16 a)
{
    const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return (v16){_mm256_and_ps(a.lo, m), _mm256_and_ps(a.hi, m)};
}
/* nearest even */
static inline n16 v_round_i32(v16 a)
{
    return (n16){_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
static inline v16 n_to_f32(n16 a)
{
    return (v16){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}

/* lanes lo..hi of a, `other` in the rest */
static inline v16 v_keep(v16 a, int lo, int hi, float other)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), l = _mm256_set1_epi32(lo),
                  h = _mm256_set1_epi32(hi);
    const __m256i up = _mm256_add_epi32(lane, _mm256_set1_epi32(8));
    const __m256 o = _mm256_set1_ps(other);
    __m256i out_lo = _mm256_or_si256(_mm256_cmpgt_epi32(l, lane), _mm256_cmpgt_epi32(lane, h));
    __m256i out_hi = _mm256_or_si256(_mm256_cmpgt_epi32(l, up), _mm256_cmpgt_epi32(up, h));
    return (v16){_mm256_blendv_ps(a.lo, o, _mm256_castsi256_ps(out_lo)),
                 _mm256_blendv_ps(a.hi, o, _mm256_castsi256_ps(out_hi))};
}

/* 16 bf16 / f16 values as f32, exact; and back, rounded to nearest even */
static inline __m256 v_half_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline v16 v_load_bf16(const uint16_t *p)
{
    return (v16){v_half_bf16(_mm_loadu_si128((const __m128i *)p)),
                 v_half_bf16(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline v16 v_load_f16(const uint16_t *p)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline __m128i v_half_to_bf16(__m256 f)
{
    __m256i u = _mm256_castps_si256(f);
    __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    u = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff))), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));
}
static inline void v_store_bf16(uint16_t *p, v16 a)
{
    _mm_storeu_si128((__m128i *)p, v_half_to_bf16(a.lo));
    _mm_storeu_si128((__m128i *)(p + 8), v_half_to_bf16(a.hi));
}
static inline void v_store_f16(uint16_t *p, v16 a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

/* a * 2^n for results in the normal range, by adding n to the exponent */
static inline v16 v_scale2(v16 a, n16 n)
{
    return (v16){_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.lo), _mm256_slli_epi32(n.lo, 23))),
                 _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.hi), _mm256_slli_epi32(n.hi, 23)))};
}

/* Sum and maximum over lanes: lane i with i+8, then +4, +2, +1. */
static inline float v_sum(v16 a)
{
    __m256 s = _mm256_add_ps(a.lo, a.hi);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
static inline float v_maximum(v16 a)
{
    __m256 s = _mm256_max_ps(a.lo, a.hi);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

static inline void n_store_i8(int8_t *p, n16 a) /* lanes within -128..127 */
{
    __m128i lo = _mm_packs_epi32(_mm256_castsi256_si128(a.lo), _mm256_extracti128_si256(a.lo, 1));
    __m128i hi = _mm_packs_epi32(_mm256_castsi256_si128(a.hi), _mm256_extracti128_si256(a.hi, 1));
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(lo, hi));
}
static inline int32_t n_sum(n16 a)
{
    __m256i s = _mm256_add_epi32(a.lo, a.hi);
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}

/* 64 bytes of a matrix: lane r has bytes 4r..4r+3. */
typedef struct w64 {
    __m256i lo, hi;
} w64;
static inline w64 w_load(const void *p)
{
    const __m256i *q = (const __m256i *)p;
    return (w64){_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
static inline w64 w_low4(w64 a) /* low nibbles */
{
    const __m256i m = _mm256_set1_epi8(15);
    return (w64){_mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m)};
}
static inline w64 w_high4(w64 a)
{
    const __m256i m = _mm256_set1_epi8(15);
    return (w64){_mm256_and_si256(_mm256_srli_epi16(a.lo, 4), m), _mm256_and_si256(_mm256_srli_epi16(a.hi, 4), m)};
}
static inline n16 n_zero(void)
{
    return (n16){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
static inline n16 n_set1(int32_t v)
{
    return (n16){_mm256_set1_epi32(v), _mm256_set1_epi32(v)};
}
static inline n16 n_sub(n16 a, n16 b)
{
    return (n16){_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}

/* Four signed bytes used by every lane; none may be -128. */
typedef __m256i x4;
static inline x4 x_load(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
}

/* The sum as far as it goes, in registers: gcc would otherwise reassociate the additions of a whole block into a
 * tree and keep
 * its leaves on the stack, at half the speed. */
static inline void n_now(n16 *a)
{
    __asm__("" : "+x"(a->lo), "+x"(a->hi));
}

/* Sixteen dots over a block of 32, in eight steps of four: acc[r] += sum_j w[4r + j] * x[j]. Exact in any order.
 * u4: bytes of w are at most 15, so that all eight steps fit into i16 (15 * 127 * 2 * 8 = 30480) and widen once,
 * at the end. */
typedef n16 dot_u4;
static inline dot_u4 dot_u4_step(dot_u4 acc, w64 w, x4 x)
{
    acc.lo = _mm256_add_epi16(acc.lo, _mm256_maddubs_epi16(w.lo, x));
    acc.hi = _mm256_add_epi16(acc.hi, _mm256_maddubs_epi16(w.hi, x));
    n_now(&acc);
    return acc;
}
static inline n16 dot_u4_sum(dot_u4 acc)
{
    const __m256i one = _mm256_set1_epi16(1);
    return (n16){_mm256_madd_epi16(acc.lo, one), _mm256_madd_epi16(acc.hi, one)};
}
/* i8: w as stored. The instruction wants one unsigned side: |w| times x with the sign of w. sum_x is the sum of
 * all x used. */
typedef n16 dot_i8;
typedef struct w_i8 {
    w64 abs, sign;
} w_i8;
static inline w_i8 w_signed(w64 a)
{
    return (w_i8){{_mm256_abs_epi8(a.lo), _mm256_abs_epi8(a.hi)}, a};
}
static inline dot_i8 dot_i8_step(dot_i8 acc, w_i8 w, x4 x)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i lo = _mm256_maddubs_epi16(w.abs.lo, _mm256_sign_epi8(x, w.sign.lo));
    __m256i hi = _mm256_maddubs_epi16(w.abs.hi, _mm256_sign_epi8(x, w.sign.hi));
    acc.lo = _mm256_add_epi32(acc.lo, _mm256_madd_epi16(lo, one));
    acc.hi = _mm256_add_epi32(acc.hi, _mm256_madd_epi16(hi, one));
    n_now(&acc);
    return acc;
}
static inline n16 dot_i8_sum(dot_i8 acc, int32_t sum_x)
{
    (void)sum_x;
    return acc;
}

/* How many v16 a kernel may keep in registers. */
#define V_REGS 8

#include "simd_math.h"
#endif
