/* reference_recurrent.c - see reference_recurrent.h. Expanded forms throughout: what kernels do in another order is checked
 * against this. */
#include "model/reference_recurrent.h"
#include <math.h>
#include <string.h>

void ref_concat(double *y, const double *a, const double *b, uint32_t wa, uint32_t wb, uint32_t groups)
{
    wa /= groups;
    wb /= groups;
    for (uint32_t i = 0; i < groups; i++, y += wa + wb) {
        memcpy(y, a + (size_t)i * wa, sizeof *y * wa);
        memcpy(y + wa, b + (size_t)i * wb, sizeof *y * wb);
    }
}

void ref_relu2(double *y, const double *x, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++)
        y[i] = x[i] > 0 ? x[i] * x[i] : 0;
}

void ref_l2_norm(double *y, const double *x, uint32_t width, uint32_t group, double eps)
{
    for (uint32_t from = 0; from + group <= width; from += group) {
        double sum = 0;
        for (uint32_t i = from; i < from + group; i++)
            sum += x[i] * x[i];
        for (uint32_t i = from; i < from + group; i++)
            y[i] = x[i] / sqrt(sum + eps);
    }
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

void ref_gated_rms_norm(double *y, const double *x, const double *z, const float *w, uint32_t weights, uint32_t width,
                        uint32_t group, double eps, bool before)
{
    for (uint32_t from = 0; from + group <= width; from += group) {
        double sum = 0;
        for (uint32_t i = from; i < from + group; i++) {
            double v = before ? x[i] * silu(z[i]) : x[i];
            sum += v * v;
        }
        for (uint32_t i = from; i < from + group; i++)
            y[i] = x[i] * silu(z[i]) / sqrt(sum / group + eps) * (double)w[i % weights];
    }
}

double ref_softplus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

double ref_decay_rate(double a, bool value)
{
    return value ? a : -exp(a);
}

void ref_gdn_gates(double *y, const double *a, const double *b, const float *a_log, const float *dt_bias,
                   uint32_t heads, bool value)
{
    for (uint32_t h = 0; h < heads; h++) {
        y[h] = exp(ref_decay_rate((double)a_log[h], value) * ref_softplus(a[h] + (double)dt_bias[h]));
        y[heads + h] = 1 / (1 + exp(-b[h]));
    }
}

void ref_conv1d(double *y, double *state, const double *x, const float *w, const float *bias, uint32_t width,
                uint32_t taps)
{
    for (uint32_t c = 0; c < width; c++) {
        double sum = bias ? (double)bias[c] : 0;
        for (uint32_t j = 0; j + 1 < taps; j++)
            sum += (double)w[(size_t)c * taps + j] * state[(size_t)j * width + c];
        y[c] = silu(sum + (double)w[(size_t)c * taps + taps - 1] * x[c]);
    }
    memmove(state, state + width, sizeof *state * width * (taps - 2));
    memcpy(state + (size_t)(taps - 2) * width, x, sizeof *state * width);
}

void ref_gdn_step(double *y, double *state, const double *q, const double *k, const double *v, double decay,
                  double beta, uint32_t k_dim, uint32_t v_dim, double scale)
{
    for (uint32_t j = 0; j < v_dim; j++) {
        double seen = 0, sum = 0;
        for (uint32_t i = 0; i < k_dim; i++)
            seen += decay * state[(size_t)i * v_dim + j] * k[i];
        for (uint32_t i = 0; i < k_dim; i++) {
            double *s = &state[(size_t)i * v_dim + j];
            *s = decay * *s + k[i] * beta * (v[j] - seen);
            sum += *s * q[i];
        }
        y[j] = scale * sum;
    }
}

/* a . b */
static double dot(const double *a, const double *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

void ref_gdn_chunk(double *y, double *state, const double *q, const double *k, const double *v, const double *decay,
                   const double *beta, uint32_t n, uint32_t k_dim, uint32_t v_dim, double scale, double *scratch)
{
    double *g = scratch, *a = scratch + n, *d = a + (size_t)n * n;

    for (uint32_t t = 0; t < n; t++)
        g[t] = decay[t] * (t ? g[t - 1] : 1);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t s = 0; s < t; s++)
            a[(size_t)t * n + s] = g[t] / g[s] * dot(k + (size_t)t * k_dim, k + (size_t)s * k_dim, k_dim);
    for (uint32_t j = 0; j < v_dim; j++) {
        for (uint32_t t = 0; t < n; t++) {
            double seen = 0, sum = 0;
            for (uint32_t i = 0; i < k_dim; i++)
                seen += g[t] * k[(size_t)t * k_dim + i] * state[(size_t)i * v_dim + j];
            for (uint32_t s = 0; s < t; s++)
                seen += a[(size_t)t * n + s] * d[(size_t)s * v_dim + j];
            d[(size_t)t * v_dim + j] = beta[t] * (v[(size_t)t * v_dim + j] - seen);
            for (uint32_t i = 0; i < k_dim; i++)
                sum += g[t] * q[(size_t)t * k_dim + i] * state[(size_t)i * v_dim + j];
            for (uint32_t s = 0; s <= t; s++)
                sum +=
                    g[t] / g[s] * dot(q + (size_t)t * k_dim, k + (size_t)s * k_dim, k_dim) * d[(size_t)s * v_dim + j];
            y[(size_t)t * v_dim + j] = scale * sum;
        }
        for (uint32_t i = 0; i < k_dim; i++) {
            double s = g[n - 1] * state[(size_t)i * v_dim + j];
            for (uint32_t t = 0; t < n; t++)
                s += g[n - 1] / g[t] * k[(size_t)t * k_dim + i] * d[(size_t)t * v_dim + j];
            state[(size_t)i * v_dim + j] = s;
        }
    }
}

void ref_ssm_step(double *y, double *state, const double *x, const double *b, const double *c, double d, double rate,
                  double skip, uint32_t head_dim, uint32_t state_dim)
{
    for (uint32_t p = 0; p < head_dim; p++) {
        double *s = state + (size_t)p * state_dim;
        for (uint32_t i = 0; i < state_dim; i++)
            s[i] = exp(rate * d) * s[i] + d * x[p] * b[i];
        y[p] = dot(s, c, state_dim) + skip * x[p];
    }
}

void ref_ssm_chunk(double *y, double *state, const double *x, const double *b, const double *c, const double *d,
                   double rate, double skip, uint32_t n, uint32_t head_dim, uint32_t state_dim)
{
    double all = 0;

    for (uint32_t t = 0; t < n; t++) {
        const double *ct = c + (size_t)t * state_dim;
        all += rate * d[t];
        for (uint32_t p = 0; p < head_dim; p++) {
            double sum = exp(all) * dot(state + (size_t)p * state_dim, ct, state_dim), since = 0;
            for (uint32_t s = t + 1; s-- > 0; since += rate * d[s])
                sum += exp(since) * d[s] * dot(b + (size_t)s * state_dim, ct, state_dim) * x[(size_t)s * head_dim + p];
            y[(size_t)t * head_dim + p] = sum + skip * x[(size_t)t * head_dim + p];
        }
    }
    for (uint32_t p = 0; p < head_dim; p++)
        for (uint32_t i = 0; i < state_dim; i++) {
            double *s = &state[(size_t)p * state_dim + i], since = 0;
            *s *= exp(all);
            for (uint32_t t = n; t-- > 0; since += rate * d[t])
                *s += exp(since) * d[t] * x[(size_t)t * head_dim + p] * b[(size_t)t * state_dim + i];
        }
}

void ref_mla(double *y, const double *q_nope, const double *q_rope, const double *c, const float *w, uint32_t n,
             const RefMla *m, double *score)
{
    double top = -INFINITY, sum = 0;

    for (uint32_t t = 0; t < n; t++) {
        const double *token = c + (size_t)t * (m->latent + m->rope);
        score[t] = dot(q_rope, token + m->latent, m->rope);
        for (uint32_t i = 0; i < m->nope; i++) {
            double key = 0;
            for (uint32_t l = 0; l < m->latent; l++)
                key += (double)w[(size_t)i * m->latent + l] * token[l];
            score[t] += q_nope[i] * key;
        }
        score[t] *= m->scale;
        top = fmax(top, score[t]);
    }
    for (uint32_t t = 0; t < n; t++)
        sum += score[t] = exp(score[t] - top);
    memset(y, 0, sizeof *y * m->v_dim);
    for (uint32_t t = 0; t < n; t++) {
        const double *token = c + (size_t)t * (m->latent + m->rope);
        for (uint32_t i = 0; i < m->v_dim; i++) {
            double value = 0;
            for (uint32_t l = 0; l < m->latent; l++)
                value += (double)w[(size_t)(m->nope + i) * m->latent + l] * token[l];
            y[i] += score[t] / sum * value;
        }
    }
}
