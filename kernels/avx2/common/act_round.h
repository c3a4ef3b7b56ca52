/* act_round.h - act_round, expert_act_round: inputs of a linear rounded as a checkpoint asks (src/core/quant.h), in format
 * f32. The source has defined TO, parameter `to` of the op: 1 e4m3, 2 i8, 3 e2m1.
 *   y      [rows][parts][row] f32                  x      [rows][parts or 1][row] f32
 *   scale  f32, one for each expert, or one, or NULL: a span's largest value gives it
 *   ids    [rows][parts] whose scale a part takes
 *   grid   (rows, parts): a block is one part, the input of one matrix. Spans begin at its front. */
#ifndef METRALE_ACT_ROUND_H
#define METRALE_ACT_ROUND_H
#include "kernel_abi.h"
#include "simd.h"
#include <stddef.h>

/* 2^e of an element 1.f * 2^e: its fraction cleared; 0 of 0. */
static inline v16 power_of(v16 x)
{
    uint32_t t[16];
    float f[16];
    v_store(f, x);
    memcpy(t, f, sizeof t);
    for (int i = 0; i < 16; i++)
        t[i] &= 0x7f800000u;
    memcpy(f, t, sizeof f);
    return v_load(f);
}

/* To nearest even on a grid that is 2^-bits of the element's own power of two, at least of `least`: the sum with 1.5 * 2^23
 * steps of the grid has no place for more. |x| is far below 2^100. */
static inline v16 round_float(v16 x, float least, float bits)
{
    v16 shift = v_mul(v_max(power_of(x), v_set1(least)), v_set1(12582912.0f / bits));
    return v_sub(v_add(x, shift), shift);
}

/* The code of z = x / d as a number. */
static inline v16 round_code(v16 z)
{
    const float largest = TO == 1 ? 448.0f : TO == 2 ? 127.0f : 6.0f;
    z = v_max(v_min(z, v_set1(largest)), v_set1(-largest));
    if (TO == 1)
        return round_float(z, 0.015625f, 8.0f);
    if (TO == 2)
        return n_to_f32(v_round_i32(z));
    return round_float(z, 1.0f, 2.0f);
}

static inline float span_top(const float *x, int n)
{
    v16 top = v_zero();
    int c = 0;
    for (; c + 16 <= n; c += 16)
        top = v_max(top, v_abs(v_load(x + c)));
    if (c < n)
        top = v_max(top, v_abs(v_load_n(x + c, n - c)));
    return v_maximum(top);
}

/* What a code of 1 is worth. fixed: the static scale, 0 without one. */
static inline float span_scale(const float *x, int n, float fixed)
{
    if (TO == 3) {
        float g = fixed > 0.0f ? fixed : 1.0f, t[16];
        v16 s = v_min(v_set1(span_top(x, n) / 6.0f / g), v_set1(448.0f));
        v_store(t, round_float(s, 0.015625f, 8.0f));
        return t[0] * g;
    }
    return fixed > 0.0f ? fixed : span_top(x, n) / (TO == 1 ? 448.0f : 127.0f);
}

static inline v16 codes(v16 x, float d)
{
    return d > 0.0f ? round_code(v_div(x, v_set1(d))) : v_zero();
}

static inline void round_part(float *y, const float *x, int row, int span, float fixed)
{
    for (int at = 0; at < row; at += span) {
        int end = row - at < span ? row : at + span, c = at;
        float d = span_scale(x + at, end - at, fixed);
        v16 by = v_set1(d);
        for (; c + 16 <= end; c += 16)
            v_store(y + c, v_mul(codes(v_load(x + c), d), by));
        if (c < end)
            v_store_n(y + c, v_mul(codes(v_load_n(x + c, end - c), d), by), end - c);
    }
}

static inline float static_scale(const float *scale, int at, int inverse)
{
    return scale == NULL ? 0.0f : inverse ? 1.0f / scale[at] : scale[at];
}

static inline void act_round(const KArg *a, const KBlock *b)
{
    int width = I32(4), row = I32(5);
    size_t at = (size_t)b->x * (size_t)width + (size_t)b->y * (size_t)row;
    round_part(PTR(0, float) + at, PTR(1, float) + at, row, I32(6), static_scale(PTR(2, float), 0, I32(7)));
}

static inline void expert_act_round(const KArg *a, const KBlock *b)
{
    int chosen = I32(5), width = I32(6), row = I32(7);
    size_t part = (size_t)b->x * (size_t)chosen + b->y;
    const float *x = PTR(1, float) + (size_t)b->x * (size_t)width + (width == row ? 0 : (size_t)b->y * (size_t)row);
    float fixed = static_scale(PTR(3, float), PTR(2, int32_t)[part], I32(9));
    round_part(PTR(0, float) + part * (size_t)row, x, row, I32(8), fixed);
}
#endif
