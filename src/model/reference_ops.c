/* reference_ops.c - see reference_ops.h. Nothing here is fast, and nothing is clever. */
#include "model/reference_ops.h"
#include <math.h>
#include <string.h>

void ref_embed(double *y, const float *row, uint32_t width, double scale)
{
    for (uint32_t i = 0; i < width; i++)
        y[i] = scale * (double)row[i];
}

void ref_rms_norm(double *y, const double *x, const float *w, uint32_t width, double eps, double offset)
{
    double sum = 0;
    for (uint32_t i = 0; i < width; i++)
        sum += x[i] * x[i];
    double s = 1.0 / sqrt(sum / width + eps);
    for (uint32_t i = 0; i < width; i++)
        y[i] = x[i] * s * ((double)w[i] + offset);
}

void ref_qk_norm(double *y, const double *x, const float *w, uint32_t width, uint32_t group, double eps, double offset)
{
    for (uint32_t i = 0; i + group <= width; i += group)
        ref_rms_norm(y + i, x + i, w, group, eps, offset);
}

void ref_residual_add(double *y, const double *a, const double *d, uint32_t width, double scale)
{
    for (uint32_t i = 0; i < width; i++)
        y[i] = a[i] + scale * d[i];
}

double ref_dot(const double *x, const float *w, uint32_t k)
{
    double sum = 0;
    for (uint32_t i = 0; i < k; i++)
        sum += x[i] * (double)w[i];
    return sum;
}

void ref_act_quant_i8(double *y, const double *x, uint32_t width)
{
    for (uint32_t b = 0; b + 32 <= width; b += 32) {
        float top = 0;
        for (uint32_t i = 0; i < 32; i++)
            top = fmaxf(top, fabsf((float)x[b + i]));
        float d = top / 127.0f, inv = top > 0 ? 127.0f / top : 0.0f;
        for (uint32_t i = 0; i < 32; i++)
            y[b + i] = (double)d * (double)nearbyintf((float)x[b + i] * inv);
    }
}

void ref_silu_mul(double *y, const double *g, const double *u, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++)
        y[i] = g[i] / (1.0 + exp(-g[i])) * u[i];
}

void ref_rope(double *x, uint32_t width, uint32_t head_dim, uint32_t pairs, const double *inv_freq, double scale,
              uint32_t position, bool interleaved)
{
    for (uint32_t h = 0; h + head_dim <= width; h += head_dim)
        for (uint32_t i = 0; i < pairs; i++) {
            double *a = x + h + (interleaved ? 2 * i : i), *b = interleaved ? a + 1 : a + pairs;
            double c = cos(position * inv_freq[i]) * scale, s = sin(position * inv_freq[i]) * scale;
            double ra = *a * c - *b * s, rb = *b * c + *a * s;
            *a = ra;
            *b = rb;
        }
}

void ref_attention(double *y, const double *q, const double *k, const double *v, uint32_t n, uint32_t stride,
                   uint32_t head_dim, double scale, double softcap, double sink, double *score)
{
    double top = sink, sum = 0;
    for (uint32_t t = 0; t < n; t++) {
        double s = 0;
        for (uint32_t d = 0; d < head_dim; d++)
            s += q[d] * k[(size_t)t * stride + d];
        score[t] = ref_logit(s, scale, softcap);
        top = fmax(top, score[t]);
    }
    memset(y, 0, sizeof *y * head_dim);
    if (sink > -INFINITY)
        sum = exp(sink - top);
    for (uint32_t t = 0; t < n; t++) {
        double p = exp(score[t] - top);
        sum += p;
        for (uint32_t d = 0; d < head_dim; d++)
            y[d] += p * v[(size_t)t * stride + d];
    }
    for (uint32_t d = 0; d < head_dim; d++)
        y[d] /= sum;
}

double ref_logit(double y, double scale, double softcap)
{
    y *= scale;
    return softcap > 0 ? softcap * tanh(y / softcap) : y;
}
