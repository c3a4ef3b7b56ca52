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

static void gelu_tanh_mul__gates(void **state)
{
    (void)state;
    const double g[3] = {0, 1, -30}, u[3] = {5, 3, 2};
    double y[3];
    ref_gelu_tanh_mul(y, g, u, 3);
    NEAR(y[0], 0);
    NEAR(y[1], 1.5 * (1 + tanh(sqrt(2 / acos(-1)) * 1.044715)));
    NEAR(y[2], 0);
}

static void swiglu_clamp__holds_both_sides(void **state)
{
    (void)state;
    const double g[3] = {1, 9, -9}, u[3] = {0.5, -9, 9};
    double y[3];
    ref_swiglu_clamp(y, g, u, 3, 2, 7);
    NEAR(y[0], 1 / (1 + exp(-2)) * 1.5);
    NEAR(y[1], 7 / (1 + exp(-14)) * -6); /* the gate has an upper limit only, the other side both */
    NEAR(y[2], -9 / (1 + exp(18)) * 8);
}

static void sigmoid_gate_mul__one_gate_serves_its_neighbours(void **state)
{
    (void)state;
    const double a[4] = {1, 2, 3, 4}, g[2] = {0, log(3)};
    double y[4];
    ref_sigmoid_gate_mul(y, a, g, 4, 2);
    NEAR(y[0], 0.5);
    NEAR(y[1], 1);
    NEAR(y[2], 2.25);
    NEAR(y[3], 3);
}

static void split__parts_every_group(void **state)
{
    (void)state;
    const double x[6] = {1, 2, 3, 4, 5, 6};
    double a[4], b[2];
    ref_split(a, b, x, 6, 2, 2);
    assert_true(a[0] == 1 && a[1] == 2 && a[2] == 4 && a[3] == 5);
    assert_true(b[0] == 3 && b[1] == 6);
}

static void top_k__softmax_with_all_logits_negative(void **state)
{
    (void)state;
    double x[4] = {-3, -1, -2, -4}, ids[2], w[2], scratch[8];
    RefRouter r = {.k = 2, .n_group = 1, .topk_group = 1, .scale = 1};
    for (int shift = 0; shift < 2; shift++) { /* the same numbers on all logits change nothing */
        r.renormalize = false;
        ref_top_k(ids, w, x, 4, NULL, &r, scratch);
        assert_true(ids[0] == 1 && ids[1] == 2);
        assert_true(fabs(w[0] - 0.6439) < 5e-5 && fabs(w[1] - 0.2369) < 5e-5);
        r.renormalize = true;
        ref_top_k(ids, w, x, 4, NULL, &r, scratch);
        NEAR(w[0], 1 / (1 + exp(-1)));
        NEAR(w[0] + w[1], 1);
        for (int i = 0; i < 4; i++)
            x[i] += 10;
    }
}

static void top_k__bias_chooses_and_does_not_weigh(void **state)
{
    (void)state;
    const double x[4] = {0, log(3), -log(3), 0}; /* sigmoids 0.5, 0.75, 0.25, 0.5 */
    const float bias[4] = {0, 0, 1, 0};
    double ids[3], w[3], scratch[8];
    RefRouter r = {
        .k = 3, .n_group = 1, .topk_group = 1, .sigmoid = true, .renormalize = true, .scale = 2, .sum_eps = 0.5};
    ref_top_k(ids, w, x, 4, bias, &r, scratch);
    assert_true(ids[0] == 2 && ids[1] == 1 && ids[2] == 0); /* of the equal ones the lower id */
    NEAR(w[0], 2 * 0.25 / 2.0);
    NEAR(w[1], 2 * 0.75 / 2.0);
    NEAR(w[2], 2 * 0.5 / 2.0);
}

static void top_k__keeps_the_groups_with_the_best_pairs(void **state)
{
    (void)state;
    /* Groups of three: the first has the best single expert, the others have better pairs. */
    const double x[9] = {6, -9, -9, 2, 2, -9, 3, 1, 2};
    double ids[3], w[3], scratch[18];
    RefRouter r = {.k = 3, .n_group = 3, .topk_group = 2, .sigmoid = true, .scale = 1};
    ref_top_k(ids, w, x, 9, NULL, &r, scratch);
    assert_true(ids[0] == 6 && ids[1] == 3 && ids[2] == 4);
    NEAR(w[0], 1 / (1 + exp(-3)));
}

static void blend__weighs_the_experts_in_turn(void **state)
{
    (void)state;
    const double x[4] = {1, 2, 10, 20}, w[2] = {0.5, 0.25};
    double y[2];
    ref_blend(y, x, w, 2, 2);
    NEAR(y[0], 3);
    NEAR(y[1], 6);
}

static void act_quant__rounds_by_a_static_scale_and_saturates(void **state)
{
    const double x[8] = {0, 1, 1.0625, -3, 500, -1e6, 0x1p-10, 16.5};
    const double e4m3[8] = {0, 1, 1, -3, 448, -448, 0, 16}, i8[8] = {0, 1, 1, -3, 127, -127, 0, 16};
    double y[8];

    (void)state;
    ref_act_quant(y, x, 8, &(RefActQuant){.to = ACT_E4M3, .span = 8, .row = 8, .scaled = true, .scale = 1});
    for (int i = 0; i < 8; i++)
        assert_true(y[i] == e4m3[i]);
    ref_act_quant(y, x, 8, &(RefActQuant){.to = ACT_I8, .span = 8, .row = 8, .scaled = true, .scale = 1});
    for (int i = 0; i < 8; i++)
        assert_true(y[i] == i8[i]);
}

static void act_quant__spans_begin_anew_with_each_row_and_zeros_stay(void **state)
{
    const double x[10] = {448, 1, 2, 3.5, 0, 0, 0, 0, 0, 7};
    double y[10];

    (void)state; /* rows of 5 in spans of 3: {448 1 2} {3.5 0} | {0 0 0} {0 7} */
    ref_act_quant(y, x, 10, &(RefActQuant){.to = ACT_E4M3, .span = 3, .row = 5});
    for (int i = 0; i < 10; i++)
        assert_true(fabs(y[i] - x[i]) <= 1e-6 * x[i]);
    ref_act_quant(y, x, 10, &(RefActQuant){.to = ACT_I8, .span = 10, .row = 10});
    assert_true(fabs(y[0] - 448) < 1e-4);
    assert_true(y[1] == 0 && y[4] == 0 && y[9] == 2 * (double)(448.0f / 127));
}

static void act_quant__e2m1_has_an_e4m3_scale_below_the_static_one(void **state)
{
    double x[16] = {6, 5, 2.5, -1.7, 0.2}, y[16];

    (void)state; /* s = e4m3(6 / 6 / 0.5) = 2, s * g = 1: values of e2m1, 5 and 2.5 are ties and go to even codes */
    ref_act_quant(y, x, 16, &(RefActQuant){.to = ACT_E2M1, .span = 16, .row = 16, .scaled = true, .scale = 0.5f});
    assert_true(y[0] == 6 && y[1] == 4 && y[2] == 2 && y[3] == -1.5 && y[4] == 0 && y[5] == 0);
    x[0] = 1e6; /* the scale is at most 448, so the value is at most 448 * 0.5 * 6 */
    ref_act_quant(y, x, 16, &(RefActQuant){.to = ACT_E2M1, .span = 16, .row = 16, .scaled = true, .scale = 0.5f});
    assert_true(y[0] == 448 * 0.5 * 6);
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
        cmocka_unit_test(act_quant__rounds_by_a_static_scale_and_saturates),
        cmocka_unit_test(act_quant__spans_begin_anew_with_each_row_and_zeros_stay),
        cmocka_unit_test(act_quant__e2m1_has_an_e4m3_scale_below_the_static_one),
        cmocka_unit_test(silu_mul__gates),
        cmocka_unit_test(gelu_tanh_mul__gates),
        cmocka_unit_test(swiglu_clamp__holds_both_sides),
        cmocka_unit_test(sigmoid_gate_mul__one_gate_serves_its_neighbours),
        cmocka_unit_test(split__parts_every_group),
        cmocka_unit_test(top_k__softmax_with_all_logits_negative),
        cmocka_unit_test(top_k__bias_chooses_and_does_not_weigh),
        cmocka_unit_test(top_k__keeps_the_groups_with_the_best_pairs),
        cmocka_unit_test(blend__weighs_the_experts_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
