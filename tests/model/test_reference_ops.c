/* The reference functions against numbers worked out by hand: they define what kernels are held to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/reference_ops.h"
#include <math.h>
#include <string.h>

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-12)

static void rms_norm__divides_by_the_root_mean_square_and_scales(void **state)
{
    (void)state;
    double x[2] = {3, 4}, y[2];
    float w[2] = {1, 2};
    ref_rms_norm(y, x, w, 2, 0, 0); /* rms = sqrt(12.5) */
    NEAR(y[0], 3 / sqrt(12.5));
    NEAR(y[1], 8 / sqrt(12.5));
    ref_rms_norm(y, x, w, 2, 12.5, 1); /* eps inside the root, offset on the weight */
    NEAR(y[0], 2 * 3 / 5.0);
    NEAR(y[1], 3 * 4 / 5.0);
}

static void qk_norm__norms_each_group_alone(void **state)
{
    (void)state;
    double x[4] = {3, 4, 30, 40}, y[4];
    float w[2] = {1, 1};
    ref_qk_norm(y, x, w, 4, 2, 0, 0);
    NEAR(y[0], y[2]);
    NEAR(y[1], y[3]);
    NEAR(y[0], 3 / sqrt(12.5));
}

static void rope__pairs_halves_or_neighbours(void **state)
{
    (void)state;
    const double freq[2] = {1.0, 0.5};
    double neox[4] = {1, 2, 3, 4}, inter[4] = {1, 2, 3, 4};
    ref_rope(neox, 4, 4, 2, freq, 1, 2, false);
    NEAR(neox[0], 1 * cos(2) - 3 * sin(2));
    NEAR(neox[2], 3 * cos(2) + 1 * sin(2));
    NEAR(neox[1], 2 * cos(1) - 4 * sin(1));
    ref_rope(inter, 4, 4, 2, freq, 1, 2, true);
    NEAR(inter[0], 1 * cos(2) - 2 * sin(2));
    NEAR(inter[1], 2 * cos(2) + 1 * sin(2));
    NEAR(inter[3], 4 * cos(1) + 3 * sin(1));
}

static void rope__leaves_what_lies_behind_the_rotated_part(void **state)
{
    (void)state;
    const double freq[1] = {1.0};
    double x[4] = {1, 2, 3, 4};
    ref_rope(x, 4, 4, 1, freq, 1, 1, false);
    NEAR(x[0], cos(1) - 2 * sin(1));
    NEAR(x[2], 3);
    NEAR(x[3], 4);
}

static void attention__is_a_weighted_mean_of_values(void **state)
{
    (void)state;
    const double q[1] = {1}, k[3] = {0, log(2), log(5)}, v[3] = {10, 20, 40};
    double y, score[3];
    ref_attention(&y, q, k, v, 3, 1, 1, 1, 0, -INFINITY, score);
    NEAR(y, (10 + 2 * 20 + 5 * 40) / 8.0);
    ref_attention(&y, q, k, v, 3, 1, 1, 1, 0, log(8), score); /* a sink takes half of the weight */
    NEAR(y, (10 + 2 * 20 + 5 * 40) / 16.0);
}

static void logit__scales_then_caps(void **state)
{
    (void)state;
    NEAR(ref_logit(3, 2, 0), 6);
    NEAR(ref_logit(3, 2, 4), 4 * tanh(1.5));
}

static void act_quant__keeps_127_steps_of_the_largest(void **state)
{
    (void)state;
    double x[64], y[64];
    memset(x, 0, sizeof x);
    for (int i = 0; i < 32; i++)
        x[i] = i - 16; /* largest 16: step 16/127 */
    ref_act_quant_i8(y, x, 64);
    NEAR(y[0], (double)(16.0f / 127.0f) * -127);
    assert_true(fabs(y[20] - 4) <= 16.0 / 254);
    assert_true(y[20] != 4.0);
    for (int i = 32; i < 64; i++)
        assert_true(y[i] == 0.0); /* a block of zeros stays one */
}

static void silu_mul__gates(void **state)
{
    (void)state;
    const double g[2] = {0, 1}, u[2] = {5, 3};
    double y[2];
    ref_silu_mul(y, g, u, 2);
    NEAR(y[0], 0);
    NEAR(y[1], 3 / (1 + exp(-1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rms_norm__divides_by_the_root_mean_square_and_scales),
        cmocka_unit_test(qk_norm__norms_each_group_alone),
        cmocka_unit_test(rope__pairs_halves_or_neighbours),
        cmocka_unit_test(rope__leaves_what_lies_behind_the_rotated_part),
        cmocka_unit_test(attention__is_a_weighted_mean_of_values),
        cmocka_unit_test(logit__scales_then_caps),
        cmocka_unit_test(act_quant__keeps_127_steps_of_the_largest),
        cmocka_unit_test(silu_mul__gates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
