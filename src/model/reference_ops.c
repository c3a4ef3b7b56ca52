/* reference_ops.c - see reference_ops.h. Nothing here is fast, and nothing is clever. */
#include "model/reference_ops.h"
#include "core/numeric.h"
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

/* One span, n elements of one scale. */
static void quant_span(double *y, const double *x, uint32_t n, const RefActQuant *q)
{
    const float largest = q->to == ACT_E4M3 ? 448.0f : q->to == ACT_I8 ? 127.0f : 6.0f;
    float top = 0, d;

    for (uint32_t i = 0; i < n; i++)
        top = fmaxf(top, fabsf((float)x[i]));
    if (q->to == ACT_E2M1) {
        const float g = q->scaled ? q->scale : 1.0f;
        d = e4m3_to_f32(f32_to_e4m3(top / largest / g)) * g;
    } else {
        d = q->scaled ? q->scale : top / largest;
    }
    for (uint32_t i = 0; i < n; i++) {
        const float z = d > 0 ? (float)x[i] / d : 0.0f;
        const float code = q->to == ACT_E4M3 ? e4m3_to_f32(f32_to_e4m3(z))
                           : q->to == ACT_I8 ? nearbyintf(fminf(fmaxf(z, -127.0f), 127.0f))
                                             : e2m1_to_f32(f32_to_e2m1(z));
        y[i] = (double)d * (double)code;
    }
}

void ref_act_quant(double *y, const double *x, uint32_t width, const RefActQuant *q)
{
    for (uint32_t at = 0; at < width; at += q->row)
        for (uint32_t i = 0; i < q->row; i += q->span)
            quant_span(y + at + i, x + at + i, q->row - i < q->span ? q->row - i : q->span, q);
}

void ref_silu_mul(double *y, const double *g, const double *u, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++)
        y[i] = g[i] / (1.0 + exp(-g[i])) * u[i];
}

void ref_gelu_tanh_mul(double *y, const double *g, const double *u, uint32_t width)
{
    const double root = sqrt(2.0 / acos(-1.0));
    for (uint32_t i = 0; i < width; i++)
        y[i] = g[i] / 2 * (1 + tanh(root * (g[i] + 0.044715 * g[i] * g[i] * g[i]))) * u[i];
}

void ref_swiglu_clamp(double *y, const double *g, const double *u, uint32_t width, double alpha, double limit)
{
    for (uint32_t i = 0; i < width; i++) {
        double a = fmin(g[i], limit), b = fmax(fmin(u[i], limit), -limit);
        y[i] = a / (1 + exp(-alpha * a)) * (b + 1);
    }
}

void ref_sigmoid_gate_mul(double *y, const double *a, const double *g, uint32_t width, uint32_t gates)
{
    for (uint32_t i = 0; i < width; i++)
        y[i] = a[i] / (1 + exp(-g[i / (width / gates)]));
}

void ref_split(double *a, double *b, const double *x, uint32_t width, uint32_t groups, uint32_t first)
{
    uint32_t part = width / groups, rest = part - first;
    for (uint32_t i = 0; i < groups; i++) {
        memcpy(a + (size_t)i * first, x + (size_t)i * part, sizeof *x * first);
        memcpy(b + (size_t)i * rest, x + (size_t)i * part + first, sizeof *x * rest);
    }
}

/* The largest of v that is left, and takes it away; of equal ones the first. */
static uint32_t take_largest(double *v, uint32_t n, double *value)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    *value = v[best];
    v[best] = -INFINITY;
    return best;
}

/* Takes away all experts but those of the groups whose two best add up to most. */
static void keep_groups(double *choice, uint32_t experts, uint32_t n_group, uint32_t kept)
{
    uint32_t size = experts / n_group;
    for (uint32_t drop = n_group; drop > kept; drop--) {
        uint32_t worst = 0;
        double least = INFINITY;
        for (uint32_t g = 0; g < n_group; g++) {
            double a = -INFINITY, b = -INFINITY;
            for (uint32_t i = g * size; i < (g + 1) * size; i++) {
                b = fmax(b, fmin(a, choice[i]));
                a = fmax(a, choice[i]);
            }
            double sum = size > 1 ? a + b : a;
            if (a > -INFINITY && sum <= least) { /* of equal ones the later falls */
                least = sum;
                worst = g;
            }
        }
        for (uint32_t i = worst * size; i < (worst + 1) * size; i++)
            choice[i] = -INFINITY;
    }
}

void ref_top_k(double *ids, double *weights, const double *logits, uint32_t experts, const float *bias,
               const RefRouter *r, double *scratch)
{
    double *score = scratch, *choice = scratch + experts, top = -INFINITY, sum = 0, taken;
    for (uint32_t i = 0; i < experts; i++)
        top = fmax(top, logits[i]);
    for (uint32_t i = 0; i < experts; i++) {
        score[i] = r->sigmoid ? 1 / (1 + exp(-logits[i])) : exp(logits[i] - top);
        sum += score[i];
    }
    for (uint32_t i = 0; i < experts; i++) {
        score[i] = r->sigmoid ? score[i] : score[i] / sum;
        choice[i] = score[i] + (bias ? (double)bias[i] : 0);
    }
    keep_groups(choice, experts, r->n_group, r->topk_group);
    sum = 0;
    for (uint32_t j = 0; j < r->k; j++) {
        uint32_t e = take_largest(choice, experts, &taken);
        ids[j] = e;
        weights[j] = score[e];
        sum += score[e];
    }
    for (uint32_t j = 0; j < r->k; j++)
        weights[j] = (r->renormalize ? weights[j] / (sum + r->sum_eps) : weights[j]) * r->scale;
}

void ref_blend(double *y, const double *x, const double *w, uint32_t width, uint32_t k)
{
    memset(y, 0, sizeof *y * width);
    for (uint32_t j = 0; j < k; j++)
        for (uint32_t i = 0; i < width; i++)
            y[i] += w[j] * x[(size_t)j * width + i];
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
