/* reference_recurrent.h - what the ops with a recurrent state mean, and those around them; attention over latents. As in
 * reference_ops.h: double in, double out, one plain function each, sums in index order. A step function takes one row and
 * moves the state on; a sequence's first row finds a state of zeros.
 * Owns: nothing.   Thread: any. */
#ifndef METRALE_MODEL_REFERENCE_RECURRENT_H
#define METRALE_MODEL_REFERENCE_RECURRENT_H
#include <stdbool.h>
#include <stdint.h>

/* Each of `groups` parts of y: wa / groups elements of a, then wb / groups of b */
void ref_concat(double *y, const double *a, const double *b, uint32_t wa, uint32_t wb, uint32_t groups);
/* y = max(x, 0)^2; y may be x */
void ref_relu2(double *y, const double *x, uint32_t width);
/* y = x / sqrt(sum(x^2) + eps) over each `group` elements; y may be x */
void ref_l2_norm(double *y, const double *x, uint32_t width, uint32_t group, double eps);
/* Norm over each group, w [weights]: of a group or of the row. before: y = norm(x silu(z)) w; else y = norm(x) w silu(z) */
void ref_gated_rms_norm(double *y, const double *x, const double *z, const float *w, uint32_t weights, uint32_t width,
                        uint32_t group, double eps, bool before);
/* ln(1 + e^x) */
double ref_softplus(double x);
/* -e^a, or a itself when the vector holds the value already */
double ref_decay_rate(double a, bool value);
/* y[0 .. heads) = e^(rate softplus(a + dt_bias)), y[heads .. 2 heads) = sigmoid(b) */
void ref_gdn_gates(double *y, const double *a, const double *b, const float *a_log, const float *dt_bias,
                   uint32_t heads, bool value);
/* y = silu(bias + sum over j of w[c][j] row[j][c]); rows 0 .. taps - 2 are the state [taps - 1][width], oldest first, the
 * last is x. bias may be NULL */
void ref_conv1d(double *y, double *state, const double *x, const float *w, const float *bias, uint32_t width,
                uint32_t taps);
/* One head: state [k_dim][v_dim]. S = decay S + k (beta (v - (decay S)^T k))^T; y = scale S^T q */
void ref_gdn_step(double *y, double *state, const double *q, const double *k, const double *v, double decay,
                  double beta, uint32_t k_dim, uint32_t v_dim, double scale);
/* n rows of one head at once: a chunk in closed form (Yang et al. 2024, section 4). With g_t the product of the decays up
 * to row t, the deltas solve (1 + A) d = beta (v - g k S), A_ts = beta_t g_t / g_s k_t . k_s for s < t. q, k [n][k_dim],
 * v, y [n][v_dim]; scratch [n * (n + v_dim + 1)]. Decays above 0 */
void ref_gdn_chunk(double *y, double *state, const double *q, const double *k, const double *v, const double *decay,
                   const double *beta, uint32_t n, uint32_t k_dim, uint32_t v_dim, double scale, double *scratch);
/* One head: state [head_dim][state_dim], b, c [state_dim]. S = e^(rate d) S + d x b^T; y = S c + skip x */
void ref_ssm_step(double *y, double *state, const double *x, const double *b, const double *c, double d, double rate,
                  double skip, uint32_t head_dim, uint32_t state_dim);
/* n rows of one head at once (Dao, Gu 2024, section 6). With g_ts the decay from row s to row t, g_t that from the state:
 * y_t = g_t S c_t + sum over s <= t of g_ts d_s (b_s . c_t) x_s + skip x_t;  S = g_n S + sum over t of g_nt d_t x_t b_t^T.
 * x, y [n][head_dim], b, c [n][state_dim], d [n] */
void ref_ssm_chunk(double *y, double *state, const double *x, const double *b, const double *c, const double *d,
                   double rate, double skip, uint32_t n, uint32_t head_dim, uint32_t state_dim);

typedef struct RefMla {
    uint32_t nope, rope, v_dim, latent;
    double scale;
} RefMla;
/* One head over n tokens: c [n][latent + rope]. w [nope + v_dim][latent] is the head's part of kv_b: the key of token t is
 * w's first rows times its latent, then its rope part; the value w's last rows times its latent. score is scratch [n] */
void ref_mla(double *y, const double *q_nope, const double *q_rope, const double *c, const float *w, uint32_t n,
             const RefMla *m, double *score);
#endif
