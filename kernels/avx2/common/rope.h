/* rope.h - the rotation of one row's heads. */
#ifndef METRALE_ROPE_H
#define METRALE_ROPE_H
#include <math.h>

enum { ROPE_NEOX, ROPE_INTERLEAVED };

/* One rotation; each product is rounded, then the sum: written with fmaf so that every compiler rounds alike. */
static inline void rope_pair(float *ya, float *yb, float a, float b, float c, float s)
{
    *ya = fmaf(a, c, -(b * s));
    *yb = fmaf(b, c, a * s);
}

static inline void rope_heads(float *y, const float *x, const float *cs, int width, int head_dim, int rotary, int style)
{
    int half = rotary / 2;
    for (int h = 0; h < width; h += head_dim) {
        const float *xh = x + h;
        float *yh = y + h;
        if (style == ROPE_NEOX)
            for (int i = 0; i < half; i++)
                rope_pair(yh + i, yh + i + half, xh[i], xh[i + half], cs[2 * i], cs[2 * i + 1]);
        else
            for (int i = 0; i < half; i++)
                rope_pair(yh + 2 * i, yh + 2 * i + 1, xh[2 * i], xh[2 * i + 1], cs[2 * i], cs[2 * i + 1]);
        if (y != x)
            for (int i = rotary; i < head_dim; i++)
                yh[i] = xh[i];
    }
}
#endif
