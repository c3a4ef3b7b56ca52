/* simd_sums.h - sixteen sums across lanes at once: as many additions as v_sum makes, a third of its shuffles. avx512/common/simd_sums.h
 * shadows it. */
#ifndef METRALE_SIMD_SUMS_H
#define METRALE_SIMD_SUMS_H
#include "simd.h"

/* Lane r is v_sum of row r of the eight at a, to the bit: what follows lane i with i+8 in v_sum's tree. Each stage adds two halves of two
 * registers side by side, which turns the order around; hence the order in which they enter. */
static inline __m256 v_sums_8(const float *a)
{
    static const int enters[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    __m256 s[8], t[4], u[2];

    for (int i = 0; i < 8; i++) {
        v16 row = v_load(a + 16 * enters[i]);
        s[i] = _mm256_add_ps(row.lo, row.hi);
    }
    for (int i = 0; i < 4; i++)
        t[i] = _mm256_add_ps(_mm256_permute2f128_ps(s[2 * i], s[2 * i + 1], 0x20),
                             _mm256_permute2f128_ps(s[2 * i], s[2 * i + 1], 0x31));
    for (int i = 0; i < 2; i++)
        u[i] = _mm256_add_ps(_mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
    return _mm256_add_ps(_mm256_shuffle_ps(u[0], u[1], 0x88), _mm256_shuffle_ps(u[0], u[1], 0xdd));
}

/* Lane r is v_sum of row r of a, which is [16][16], to the bit. */
static inline v16 v_sums(const float *a)
{
    return (v16){v_sums_8(a), v_sums_8(a + 8 * 16)};
}
#endif
