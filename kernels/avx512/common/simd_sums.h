/* simd_sums.h - sixteen sums across lanes at once, in zmm registers; shadows avx2/common/simd_sums.h and gives the same bits. */
#ifndef METRALE_SIMD_SUMS_H
#define METRALE_SIMD_SUMS_H
#include "simd.h"

/* Lane r is v_sum of row r of a, which is [16][16], to the bit. Each stage adds two halves of two registers side by side: lane i with i+8, then +4, +2, +1. That
 * leaves the sums transposed, as 4 by 4; hence the order in which they enter. */
static inline v16 v_sums(const float *a)
{
    static const int enters[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    v16 s[8], t[4], u[2];

    for (int i = 0; i < 8; i++) {
        v16 x = v_load(a + 16 * enters[2 * i]), y = v_load(a + 16 * enters[2 * i + 1]);
        s[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
    }
    for (int i = 0; i < 4; i++)
        t[i] = _mm512_add_ps(_mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(s[2 * i], s[2 * i + 1], 0xdd));
    for (int i = 0; i < 2; i++)
        u[i] = _mm512_add_ps(_mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                             _mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
    return _mm512_add_ps(_mm512_shuffle_ps(u[0], u[1], 0x88), _mm512_shuffle_ps(u[0], u[1], 0xdd));
}
#endif
