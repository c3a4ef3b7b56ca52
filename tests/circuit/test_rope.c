/* The frequencies of rope, against numbers that were worked out elsewhere from the published formulas. */
#include "circuit/rope.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* The wanted numbers have 15 digits, or the 6 digits of a published table. */
static void near(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("%.17g is not %.17g", got, want);
}

static double frequencies(const RopeSpec *spec, double *f)
{
    double scale = 0;
    Err err = {{0}};

    if (rope_frequencies(spec, f, &scale, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return scale;
}

static void rope__default_is_a_geometric_series(void **state)
{
    RopeSpec spec = {.kind = ROPE_DEFAULT, .dims = 8, .theta = 10000};
    double f[4], want[] = {1, 0.1, 0.01, 0.001};

    (void)state;
    near(frequencies(&spec, f), 1, 0);
    for (int i = 0; i < 4; i++)
        near(f[i], want[i], 1e-15);
}

static void rope__linear_slows_every_pair(void **state)
{
    RopeSpec spec = {.kind = ROPE_LINEAR, .dims = 8, .theta = 10000, .factor = 4};
    double f[4], want[] = {0.25, 0.025, 0.0025, 0.00025};

    (void)state;
    near(frequencies(&spec, f), 1, 0);
    for (int i = 0; i < 4; i++)
        near(f[i], want[i], 1e-15);
}

/* Llama 3.2 (1B): head size 64, factor 32. */
static void rope__llama3_has_three_bands(void **state)
{
    RopeSpec spec = {.kind = ROPE_LLAMA3,
                     .dims = 64,
                     .theta = 500000,
                     .factor = 32,
                     .low_freq_factor = 1,
                     .high_freq_factor = 4,
                     .original_max_position = 8192};
    RopeSpec plain = {.kind = ROPE_DEFAULT, .dims = 64, .theta = 500000};
    double f[32], base[32], blended[] = {0.605573, 0.303743, 0.103448};

    (void)state;
    near(frequencies(&spec, f), 1, 0);
    frequencies(&plain, base);
    for (int i = 0; i <= 14; i++)
        near(f[i], base[i], 0);
    for (int i = 15; i <= 17; i++)
        near(f[i] / base[i], blended[i - 15], 1e-5);
    for (int i = 18; i < 32; i++)
        near(f[i], base[i] / 32, 1e-15);
}

static void rope__yarn_ramps_between_whole_pairs(void **state)
{
    static const double want[] = {1,
                                  0.316272377571437,
                                  0.0889139705019461,
                                  0.0187473552333114,
                                  0.00790569415042095,
                                  0.00333380358040831,
                                  0.00140585331297587,
                                  0.000592843426415414,
                                  0.00025,
                                  0.000105424125857146,
                                  4.44569852509731e-05,
                                  1.87473552333114e-05,
                                  7.90569415042095e-06,
                                  3.33380358040831e-06,
                                  1.40585331297587e-06,
                                  5.92843426415414e-07};
    RopeSpec spec = {.kind = ROPE_YARN,
                     .dims = 32,
                     .theta = 1e6,
                     .factor = 4,
                     .original_max_position = 64,
                     .beta_fast = 32,
                     .beta_slow = 1,
                     .truncate = true};
    double f[16];

    (void)state;
    near(frequencies(&spec, f), 1.13862943611199, 1e-14); /* 0.1 ln 4 + 1 */
    for (int i = 0; i < 16; i++)
        near(f[i], want[i], 1e-14);
}

/* gpt-oss: band edges at 8.09 and 17.4, not rounded. */
static void rope__yarn_without_truncation_keeps_broken_edges(void **state)
{
    static const double want[] = {1,
                                  0.225418000202871,
                                  0.0508132748154615,
                                  0.00679495948973222,
                                  0.000456483919223241,
                                  1.81883366816896e-05,
                                  4.09997848180298e-06,
                                  9.2420895024283e-07};
    RopeSpec spec = {.kind = ROPE_YARN,
                     .dims = 64,
                     .theta = 150000,
                     .factor = 32,
                     .original_max_position = 4096,
                     .beta_fast = 32,
                     .beta_slow = 1};
    double f[32];

    (void)state;
    near(frequencies(&spec, f), 1.34657359027997, 1e-14);
    for (int i = 0; i < 8; i++)
        near(f[4 * i], want[i], 1e-14);
    near(f[31], 3.02351142811921e-07, 1e-14);
    spec.truncate = true;
    frequencies(&spec, f);
    assert_true(fabs(f[12] - want[3]) > 1e-4);
}

static void rope__yarn_takes_a_given_attention_factor(void **state)
{
    RopeSpec spec = {.kind = ROPE_YARN,
                     .dims = 32,
                     .theta = 1e6,
                     .factor = 4,
                     .original_max_position = 64,
                     .beta_fast = 32,
                     .beta_slow = 1,
                     .attention_factor = 1.25};
    double f[16];

    (void)state;
    near(frequencies(&spec, f), 1.25, 0);
    spec.attention_factor = 0;
    spec.factor = 0.5; /* a factor below 1 scales nothing */
    near(frequencies(&spec, f), 1, 0);
}

static void rope__what_the_formulas_cannot_take_is_refused(void **state)
{
    const RopeSpec good = {.kind = ROPE_YARN,
                           .dims = 32,
                           .theta = 1e6,
                           .factor = 4,
                           .original_max_position = 64,
                           .beta_fast = 32,
                           .beta_slow = 1};
    struct {
        RopeSpec spec;
        const char *word;
    } bad[8];
    Err err = {{0}};

    (void)state;
    assert_int_equal(rope_validate(&good, &err), ST_OK);
    for (size_t i = 0; i < 8; i++)
        bad[i].spec = good;
    bad[0].spec.dims = 31, bad[0].word = "even";
    bad[1].spec.dims = 0, bad[1].word = "even";
    bad[2].spec.theta = 1, bad[2].word = "rope_theta";
    bad[3].spec.theta = NAN, bad[3].word = "rope_theta";
    bad[4].spec.factor = 0, bad[4].word = "factor";
    bad[5].spec.original_max_position = INFINITY, bad[5].word = "original_max_position";
    bad[6].spec.beta_slow = 64, bad[6].word = "beta_fast";
    bad[7].spec.kind = ROPE_LLAMA3, bad[7].word = "low_freq_factor";
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(rope_validate(&bad[i].spec, &err), ST_INVALID);
        assert_non_null(strstr(err.msg, bad[i].word));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rope__default_is_a_geometric_series),
        cmocka_unit_test(rope__linear_slows_every_pair),
        cmocka_unit_test(rope__llama3_has_three_bands),
        cmocka_unit_test(rope__yarn_ramps_between_whole_pairs),
        cmocka_unit_test(rope__yarn_without_truncation_keeps_broken_edges),
        cmocka_unit_test(rope__yarn_takes_a_given_attention_factor),
        cmocka_unit_test(rope__what_the_formulas_cannot_take_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
