/* reference_ops.h - what every op of the signature means, one plain function each: double in, double out, sums in index order.
 * These define the numbers; kernels are tested against them on the same inputs. Matrices come as f32 rows through a reader, since
 * a stored weight is exactly a float (weights/decode.h).
 * Owns: nothing.   Thread: any. */
#ifndef METRALE_MODEL_REFERENCE_OPS_H
#define METRALE_MODEL_REFERENCE_OPS_H
#include "core/quant.h"
#include <stdbool.h>
#include <stdint.h>

/* y[width] = scale * row[width] */
void ref_embed(double *y, const float *row, uint32_t width, double scale);
/* y = x * (w + offset) / sqrt(mean(x^2) + eps); y may be x */
void ref_rms_norm(double *y, const double *x, const float *w, uint32_t width, double eps, double offset);
/* rms_norm of each `group` elements; y may be x */
void ref_qk_norm(double *y, const double *x, const float *w, uint32_t width, uint32_t group, double eps, double offset);
/* y = a + scale * d */
void ref_residual_add(double *y, const double *a, const double *d, uint32_t width, double scale);
/* x . w over k */
double ref_dot(const double *x, const float *w, uint32_t k);
/* What blocks of 32 in format i8/32 keep of x: d * round(x / d), d = max|x| / 127 in f32. width a multiple of 32; y may be x */
void ref_act_quant_i8(double *y, const double *x, uint32_t width);
/* What act_quant does with x as a checkpoint asks: rounded in f32 by the rules of QuantInput, each product exact. Spans
 * begin anew behind each `row` elements. y may be x */
typedef struct RefActQuant {
    ActFormat to; /* but ACT_NARROW */
    uint32_t span, row;
    bool scaled;
    float scale; /* when scaled: the static one, as a factor */
} RefActQuant;
void ref_act_quant(double *y, const double *x, uint32_t width, const RefActQuant *q);
/* y = g / (1 + e^-g) * u */
void ref_silu_mul(double *y, const double *g, const double *u, uint32_t width);
/* y = g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3))) * u */
void ref_gelu_tanh_mul(double *y, const double *g, const double *u, uint32_t width);
/* y = g' / (1 + e^(-alpha g')) * (u' + 1), g' = min(g, limit), u' = u within +-limit */
void ref_swiglu_clamp(double *y, const double *g, const double *u, uint32_t width, double alpha, double limit);
/* y = a / (1 + e^-g); each of the `gates` elements of g for width / gates neighbours of a */
void ref_sigmoid_gate_mul(double *y, const double *a, const double *g, uint32_t width, uint32_t gates);
/* Each of `groups` equal parts of x: its first `first` elements go to a, the rest to b */
void ref_split(double *a, double *b, const double *x, uint32_t width, uint32_t groups, uint32_t first);
/* What top_k does with a row of router logits; see signature.c. */
typedef struct RefRouter {
    uint32_t k, n_group, topk_group;
    bool sigmoid, renormalize;
    double scale, sum_eps;
} RefRouter;
/* ids, weights [k], best first; of equal ones the lower id. bias [experts] or NULL. scratch [2 * experts] */
void ref_top_k(double *ids, double *weights, const double *logits, uint32_t experts, const float *bias,
               const RefRouter *r, double *scratch);
/* y[width] = sum over j of w[j] * x[j][width], j from 0 */
void ref_blend(double *y, const double *x, const double *w, uint32_t width, uint32_t k);
/* Rotates the first 2 * pairs elements of each head by angle position * inv_freq[i], cos and sin times scale.
 * neox pairs (i, i + pairs), interleaved (2i, 2i + 1); in place */
void ref_rope(double *x, uint32_t width, uint32_t head_dim, uint32_t pairs, const double *inv_freq, double scale,
              uint32_t position, bool interleaved);
/* One query head over n tokens: k, v [n][stride] of which head_dim are this head's; positions of the tokens are first .. first + n - 1
 * and all of them are seen. sink: an extra score that takes weight, or -INFINITY. softcap 0: none. score is scratch [n] */
void ref_attention(double *y, const double *q, const double *k, const double *v, uint32_t n, uint32_t stride,
                   uint32_t head_dim, double scale, double softcap, double sink, double *score);
/* scale * y, then cap * tanh(y / cap) when cap > 0 */
double ref_logit(double y, double scale, double softcap);
#endif
