/* norm.h - root-mean-square normalisation of one row, shared by every kernel that does it. */
#ifndef METRALE_NORM_H
#define METRALE_NORM_H
#include "simd.h"
#include <math.h>
#include <stddef.h>

/* 1 / sqrt(mean(x^2) + eps) */
static inline float norm_scale(const float *x, int width, float eps)
{
    v16 acc = v_zero();
    int c = 0;
    for (; c + 16 <= width; c += 16) {
        v16 v = v_load(x + c);
        acc = v_fma(v, v, acc);
    }
    if (c < width) {
        v16 v = v_load_n(x + c, width - c);
        acc = v_fma(v, v, acc);
    }
    return 1.0f / sqrtf(v_sum(acc) / (float)width + eps);
}

static inline v16 norm_lanes(const float *x, const float *w, v16 scale, v16 offset)
{
    return v_mul(v_mul(v_load(x), scale), v_add(v_load(w), offset));
}

static inline void norm_row(float *y, const float *x, const float *w, int width, float eps, float offset)
{
    v16 s = v_set1(norm_scale(x, width, eps)), o = v_set1(offset);
    int c = 0;
    for (; c + 16 <= width; c += 16)
        v_store(y + c, norm_lanes(x + c, w + c, s, o));
    if (c < width)
        v_store_n(y + c, v_mul(v_mul(v_load_n(x + c, width - c), s), v_add(v_load_n(w + c, width - c), o)), width - c);
}
#endif
