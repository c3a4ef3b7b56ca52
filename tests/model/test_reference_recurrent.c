/* The reference functions with a state, against numbers worked out by hand, and the chunked form of the delta rule against its steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/reference_recurrent.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-12)

static void concat__is_split_backwards(void **state)
{
    (void)state;
    const double a[2] = {1, 4}, b[4] = {2, 3, 5, 6};
    double y[6];
    ref_concat(y, a, b, 2, 4, 2);
    for (int i = 0; i < 6; i++)
        NEAR(y[i], i + 1);
}

static void relu2__squares_what_is_positive(void **state)
{
    (void)state;
    double x[3] = {-2, 0, 3};
    ref_relu2(x, x, 3);
    assert_true(x[0] == 0 && x[1] == 0 && x[2] == 9);
}

static void l2_norm__makes_each_group_one_long(void **state)
{
    (void)state;
    double x[4] = {3, 4, 0, 2};
    ref_l2_norm(x, x, 4, 2, 0);
    NEAR(x[0], 0.6);
    NEAR(x[1], 0.8);
    NEAR(x[3], 1);
    double y[2] = {3, 4};
    ref_l2_norm(y, y, 2, 2, 11); /* eps inside the root */
    NEAR(y[0], 0.5);
}

static void gated_rms_norm__gates_behind_or_before(void **state)
{
    (void)state;
    const double x[2] = {3, 4}, z[2] = {1, -1};
    const float w[2] = {1, 2};
    double y[2], up = 1 / (1 + exp(-1)), down = -1 / (1 + exp(1)); /* silu(1), silu(-1) */
    ref_gated_rms_norm(y, x, z, w, 2, 2, 2, 0, false);
    NEAR(y[0], 3 / sqrt(12.5) * up);
    NEAR(y[1], 4 / sqrt(12.5) * 2 * down);
    ref_gated_rms_norm(y, x, z, w, 2, 2, 2, 0, true);
    double rms = sqrt((9 * up * up + 16 * down * down) / 2);
    NEAR(y[0], 3 * up / rms);
    NEAR(y[1], 4 * down / rms * 2);
}

static void gated_rms_norm__weight_of_a_group_serves_all_groups(void **state)
{
    (void)state;
    const double x[4] = {1, 1, 2, 2}, z[4] = {1, 1, 1, 1};
    const float w[2] = {1, 3};
    double y[4];
    ref_gated_rms_norm(y, x, z, w, 2, 4, 2, 0, false);
    NEAR(y[1], 3 * y[0]);
    NEAR(y[2], y[0]);
    NEAR(y[3], y[1]);
}

static void gdn_gates__decay_and_learn(void **state)
{
    (void)state;
    const double a[1] = {0}, b[1] = {0};
    const float a_log[1] = {0}, rate[1] = {-2}, bias[1] = {0};
    double y[2];
    ref_gdn_gates(y, a, b, a_log, bias, 1, false); /* e^(-1 * ln 2), sigmoid(0) */
    NEAR(y[0], 0.5);
    NEAR(y[1], 0.5);
    ref_gdn_gates(y, a, b, rate, bias, 1, true);
    NEAR(y[0], 0.25);
}

static void conv1d__sees_the_rows_before_and_keeps_the_last(void **state)
{
    (void)state;
    const float w[3] = {100, 10, 1}, bias[1] = {0.5};
    double past[2] = {0, 0}, y;
    const double x[3] = {1, 2, 3}, want[3] = {1, 12, 123};
    for (int t = 0; t < 3; t++) {
        ref_conv1d(&y, past, &x[t], w, bias, 1, 3);
        double sum = want[t] + 0.5;
        NEAR(y, sum / (1 + exp(-sum)));
    }
    assert_true(past[0] == 2 && past[1] == 3);
}

/* One head, key and value of one element: S = a S (1 - b k k) + b k v. */
static const double c067_v[3] = {1, 2, 3}, c067_k[3] = {1, 1, 1}, c067_half[3] = {0.5, 0.5, 0.5};

static void gdn_step__forgets_then_learns_the_difference(void **state)
{
    (void)state;
    const double want[3] = {0.5, 1.125, 1.78125};
    double s = 0, y;
    for (int t = 0; t < 3; t++) {
        ref_gdn_step(&y, &s, &c067_k[t], &c067_k[t], &c067_v[t], 0.5, 0.5, 1, 1, 2);
        NEAR(s, want[t]);
        NEAR(y, 2 * want[t]);
    }
}

static void run_chunks(double *y, double *s, const double *q, const double *k, const double *v, const double *decay,
                       const double *beta, uint32_t n, uint32_t chunk, uint32_t kd, uint32_t vd)
{
    double *scratch = malloc(sizeof(double) * chunk * (chunk + vd + 1));
    assert_non_null(scratch);
    for (uint32_t t = 0; t < n; t += chunk) {
        uint32_t m = n - t < chunk ? n - t : chunk; /* the tail is a shorter chunk, not a padded one */
        ref_gdn_chunk(y + (size_t)t * vd, s, q + (size_t)t * kd, k + (size_t)t * kd, v + (size_t)t * vd, decay + t,
                      beta + t, m, kd, vd, 0.7, scratch);
    }
    free(scratch);
}

static void gdn_chunk__ends_where_the_steps_end(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {1, 2, 3, 4, 64};
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        double s = 0, y[3];
        run_chunks(y, &s, c067_k, c067_k, c067_v, c067_half, c067_half, 3, chunks[c], 1, 1);
        NEAR(s, 1.78125);
    }
}

enum { LONGEST = 130, K_DIM = 5, V_DIM = 3 };

static double next(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (double)(int32_t)(*s >> 32) / 2147483648.0;
}

static void gdn_chunk__equals_the_steps_at_every_length(void **state)
{
    static double q[LONGEST * K_DIM], k[LONGEST * K_DIM], v[LONGEST * V_DIM], decay[LONGEST], beta[LONGEST];
    static double got[LONGEST * V_DIM], want[LONGEST * V_DIM];
    uint64_t seed = 67;

    (void)state;
    for (uint32_t n = 1; n <= LONGEST; n++) {
        double a[K_DIM * V_DIM], b[K_DIM * V_DIM];
        for (uint32_t i = 0; i < n * K_DIM; i++) {
            q[i] = next(&seed);
            k[i] = next(&seed) / 2;
        }
        for (uint32_t i = 0; i < n * V_DIM; i++)
            v[i] = next(&seed);
        for (uint32_t t = 0; t < n; t++) {
            decay[t] = 0.75 + next(&seed) / 4.1;
            beta[t] = 0.5 + next(&seed) / 2;
        }
        for (uint32_t i = 0; i < K_DIM * V_DIM; i++)
            a[i] = b[i] = next(&seed);
        for (uint32_t t = 0; t < n; t++)
            ref_gdn_step(want + (size_t)t * V_DIM, a, q + (size_t)t * K_DIM, k + (size_t)t * K_DIM,
                         v + (size_t)t * V_DIM, decay[t], beta[t], K_DIM, V_DIM, 0.7);
        run_chunks(got, b, q, k, v, decay, beta, n, 1 + n % 64, K_DIM, V_DIM);
        for (uint32_t i = 0; i < n * V_DIM; i++)
            assert_true(fabs(got[i] - want[i]) < 1e-9);
        for (uint32_t i = 0; i < K_DIM * V_DIM; i++)
            assert_true(fabs(a[i] - b[i]) < 1e-9);
    }
}

static void ssm_step__decays_adds_and_skips(void **state)
{
    (void)state;
    const double x[1] = {3}, b[2] = {1, 2}, c[2] = {10, 1};
    double s[2] = {4, 8}, y;
    ref_ssm_step(&y, s, x, b, c, 0.5, -2 * log(2), 0.25, 1, 2); /* decay 1/2, d x = 1.5 */
    NEAR(s[0], 2 + 1.5);
    NEAR(s[1], 4 + 3);
    NEAR(y, 35 + 7 + 0.75);
}

static void ssm_chunk__equals_the_steps_at_every_length(void **state)
{
    enum { STEPS = 70, DIM = 3, SIZE = 5 };
    static double x[STEPS * DIM], b[STEPS * SIZE], c[STEPS * SIZE], d[STEPS], got[STEPS * DIM], want[STEPS * DIM];
    uint64_t seed = 68;

    (void)state;
    for (uint32_t n = 1; n <= STEPS; n++) {
        double stepped[DIM * SIZE], chunked[DIM * SIZE];
        uint32_t chunk = 1 + n % 16;
        for (uint32_t i = 0; i < n * DIM; i++)
            x[i] = next(&seed);
        for (uint32_t i = 0; i < n * SIZE; i++) {
            b[i] = next(&seed);
            c[i] = next(&seed);
        }
        for (uint32_t t = 0; t < n; t++)
            d[t] = 0.5 + next(&seed) / 2;
        for (uint32_t i = 0; i < DIM * SIZE; i++)
            stepped[i] = chunked[i] = next(&seed);
        for (uint32_t t = 0; t < n; t++)
            ref_ssm_step(want + (size_t)t * DIM, stepped, x + (size_t)t * DIM, b + (size_t)t * SIZE,
                         c + (size_t)t * SIZE, d[t], -0.3, 0.25, DIM, SIZE);
        for (uint32_t t = 0; t < n; t += chunk)
            ref_ssm_chunk(got + (size_t)t * DIM, chunked, x + (size_t)t * DIM, b + (size_t)t * SIZE,
                          c + (size_t)t * SIZE, d + t, -0.3, 0.25, n - t < chunk ? n - t : chunk, DIM, SIZE);
        for (uint32_t i = 0; i < n * DIM; i++)
            NEAR(got[i], want[i]);
        for (uint32_t i = 0; i < DIM * SIZE; i++)
            NEAR(chunked[i], stepped[i]);
    }
}

/* With one token attention gives its value; with equal scores the mean of both. */
static void mla__keys_and_values_are_halves_of_one_matrix(void **state)
{
    (void)state;
    const RefMla m = {.nope = 1, .rope = 1, .v_dim = 1, .latent = 2, .scale = 0.5};
    const float w[4] = {1, 0, 0, 1}; /* key: first element of the latent, value: the second */
    const double c[6] = {2, 7, 1, 2, 9, 1}, q_nope = 3, q_rope = 5;
    double y, score[2];
    ref_mla(&y, &q_nope, &q_rope, c, w, 1, &m, score);
    NEAR(y, 7);
    ref_mla(&y, &q_nope, &q_rope, c, w, 2, &m, score);
    NEAR(y, 8);
    const double d[6] = {2, 7, 1, 2, 9, 3}; /* the second token's rope part adds 5 * 2 to its score, halved by scale */
    ref_mla(&y, &q_nope, &q_rope, d, w, 2, &m, score);
    NEAR(y, (7 + 9 * exp(5)) / (1 + exp(5)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(concat__is_split_backwards),
        cmocka_unit_test(relu2__squares_what_is_positive),
        cmocka_unit_test(l2_norm__makes_each_group_one_long),
        cmocka_unit_test(gated_rms_norm__gates_behind_or_before),
        cmocka_unit_test(gated_rms_norm__weight_of_a_group_serves_all_groups),
        cmocka_unit_test(gdn_gates__decay_and_learn),
        cmocka_unit_test(conv1d__sees_the_rows_before_and_keeps_the_last),
        cmocka_unit_test(gdn_step__forgets_then_learns_the_difference),
        cmocka_unit_test(gdn_chunk__ends_where_the_steps_end),
        cmocka_unit_test(gdn_chunk__equals_the_steps_at_every_length),
        cmocka_unit_test(ssm_step__decays_adds_and_skips),
        cmocka_unit_test(ssm_chunk__equals_the_steps_at_every_length),
        cmocka_unit_test(mla__keys_and_values_are_halves_of_one_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
