/* sampling: checks, bias, penalties, greedy, the draw's distribution, its independence of order, log probabilities. */
#include "sampling/sampling.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SMALL = 8, BIG = 49152, DRAWS = 200000, FEWER_DRAWS = 40000 };

static SamplingParams defaults(void)
{
    SamplingParams p;
    sampling_defaults(&p);
    return p;
}

/* One pick from a copy of logits. */
static int32_t pick(const SamplingParams *p, const float *logits, uint32_t vocab, uint64_t draw)
{
    float *copy = malloc(vocab * sizeof *copy);
    void *scratch = malloc(vocab * 8u);
    int32_t token = -1;
    Err err;

    assert_non_null(copy);
    assert_non_null(scratch);
    memcpy(copy, logits, vocab * sizeof *copy);
    assert_int_equal(sampling_pick(p, copy, vocab, NULL, 0, draw, scratch, &token, 0, NULL, NULL, &err), ST_OK);
    free(copy);
    free(scratch);
    return token;
}

/* Draws 0..n_draws-1 must hit each token within 5 standard deviations of a binomial count; a token of probability 0 never.
 * The seed is fixed, so a pass is a pass for ever; a wrong distribution is off by hundreds at least. */
static void expect_frequencies(const SamplingParams *p, const float *logits, const double *probability,
                               uint32_t n_draws)
{
    uint32_t hits[SMALL] = {0};
    float copy[SMALL];
    uint64_t scratch[SMALL];
    Err err;

    for (uint64_t i = 0; i < n_draws; i++) {
        int32_t token;
        memcpy(copy, logits, sizeof copy);
        assert_int_equal(sampling_pick(p, copy, SMALL, NULL, 0, i, scratch, &token, 0, NULL, NULL, &err), ST_OK);
        assert_in_range(token, 0, SMALL - 1);
        hits[token]++;
    }
    for (int t = 0; t < SMALL; t++) {
        double mean = n_draws * probability[t], bound = 5 * sqrt(mean * (1 - probability[t]));
        if (fabs(hits[t] - mean) > bound)
            fail_msg("token %d: %u draws, expected %.0f +- %.0f", t, hits[t], mean, bound);
    }
}

/* 0.30 0.20 0.20 0.10 0.10 0.05 0.03 0.02, out of order */
static const double shares[SMALL] = {0.05, 0.20, 0.10, 0.30, 0.02, 0.20, 0.03, 0.10};

static void shares_logits(float *logits)
{
    for (int i = 0; i < SMALL; i++)
        logits[i] = (float)(log(shares[i]) + 7); /* a common shift changes nothing */
}

/* ---- checks ----------------------------------------------------------------------------------------------------- */

static void check__accepts_the_defaults_and_the_bounds(void **state)
{
    LogitBias bias[2] = {{0, -100}, {SMALL - 1, 100}};
    SamplingParams p = defaults();
    Err err;
    (void)state;

    assert_int_equal(sampling_check(&p, SMALL, &err), ST_OK);
    p = (SamplingParams){.temperature = 2,
                         .top_p = 1e-6f,
                         .min_p = 0.999f,
                         .top_k = INT32_MAX,
                         .presence_penalty = -2,
                         .frequency_penalty = 2,
                         .repetition_penalty = 10,
                         .n_bias = 2,
                         .bias = bias};
    assert_int_equal(sampling_check(&p, SMALL, &err), ST_OK);
    p.repetition_penalty = 0.1f;
    assert_int_equal(sampling_check(&p, SMALL, &err), ST_OK);
}

static void check__names_the_field_of_a_bad_value(void **state)
{
    const float bad[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f};
    const size_t n_bad = sizeof bad / sizeof *bad;
    const struct {
        const char *name;
        size_t offset;
        float extra; /* one more bad value, just outside */
    } fields[] = {{"temperature", offsetof(SamplingParams, temperature), -0.01f},
                  {"top_p", offsetof(SamplingParams, top_p), 0},
                  {"top_p", offsetof(SamplingParams, top_p), 1.1f},
                  {"min_p", offsetof(SamplingParams, min_p), 1},
                  {"min_p", offsetof(SamplingParams, min_p), -0.1f},
                  {"presence_penalty", offsetof(SamplingParams, presence_penalty), 2.01f},
                  {"frequency_penalty", offsetof(SamplingParams, frequency_penalty), -2.01f},
                  {"repetition_penalty", offsetof(SamplingParams, repetition_penalty), 0}};
    Err err;
    (void)state;

    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        for (size_t b = 0; b <= n_bad; b++) {
            SamplingParams p = defaults();
            float value = b < n_bad ? bad[b] : fields[f].extra;
            memcpy((char *)&p + fields[f].offset, &value, sizeof value);
            assert_int_equal(sampling_check(&p, SMALL, &err), ST_INVALID);
            assert_ptr_equal(strstr(err.msg, fields[f].name), err.msg);
        }
    SamplingParams p = defaults();
    p.top_k = -1;
    assert_int_equal(sampling_check(&p, SMALL, &err), ST_INVALID);
    assert_non_null(strstr(err.msg, "top_k is -1"));
}

static void check__refuses_bias_outside_the_vocabulary(void **state)
{
    const LogitBias bad[] = {{999999999, 5}, {-1, 5}, {SMALL, 0}, {0, NAN}, {0, INFINITY}, {0, 101}};
    Err err;
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        SamplingParams p = defaults();
        p.n_bias = 1;
        p.bias = &bad[i];
        assert_int_equal(sampling_check(&p, SMALL, &err), ST_INVALID);
        assert_ptr_equal(strstr(err.msg, "logit_bias"), err.msg);
    }
}

/* ---- greedy, bias, penalties ------------------------------------------------------------------------------------ */

static void greedy__takes_the_lowest_of_equal_tokens(void **state)
{
    const float logits[SMALL] = {-3, 2, 1, 2, -INFINITY, 2, 0, -0.0f};
    SamplingParams p = defaults();
    (void)state;
    p.temperature = 0;
    assert_int_equal(pick(&p, logits, SMALL, 0), 1);
}

static void top_k__of_one_is_greedy(void **state)
{
    float logits[SMALL];
    SamplingParams greedy = defaults(), one = defaults();
    (void)state;
    greedy.temperature = 0;
    one.top_k = 1;
    srand48(1);
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < SMALL; i++)
            logits[i] = (float)(mrand48() % 4); /* with many ties */
        assert_int_equal(pick(&one, logits, SMALL, (uint64_t)round), pick(&greedy, logits, SMALL, 0));
    }
}

static void bias__is_added_before_greedy_and_before_the_draw(void **state)
{
    const float logits[SMALL] = {1, 2, 3};
    const LogitBias up = {0, 2.5f}, only = {5, 100};
    SamplingParams p = defaults();
    (void)state;
    p.n_bias = 1;
    p.bias = &up;
    p.temperature = 0;
    assert_int_equal(pick(&p, logits, SMALL, 0), 0);
    p.bias = &only;
    p.temperature = 1;
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(pick(&p, logits, SMALL, i), 5);
}

static void penalties__have_the_values_of_their_formulas(void **state)
{
    /* The prompt is 1 1 6; the answer so far 2 3 3 6. */
    const int32_t history[] = {1, 1, 6, 2, 3, 3, 6};
    float logits[SMALL] = {4, 4, 4, 4, -1, 0, -2, 7};
    /* repetition 2: tokens 1, 2, 3 halve, 6 doubles downwards; then 0.25 a time and 0.5 once, for the answer only */
    const float expected[SMALL] = {4, 2, 2 - 0.25f - 0.5f, 2 - 0.5f - 0.5f, -1, 0, -4 - 0.25f - 0.5f, 7};
    SamplingParams p = defaults();
    uint64_t scratch[SMALL];
    int32_t token;
    Err err;
    (void)state;

    p.temperature = 0;
    p.repetition_penalty = 2;
    p.frequency_penalty = 0.25f;
    p.presence_penalty = 0.5f;
    p.n_prompt = 3;
    memset(scratch, 0xff, sizeof scratch);
    assert_int_equal(sampling_pick(&p, logits, SMALL, history, 7, 0, scratch, &token, 0, NULL, NULL, &err), ST_OK);
    for (int i = 0; i < SMALL; i++)
        assert_true(logits[i] == expected[i]); /* halves and quarters: exact */
    assert_int_equal(token, 7);
}

static void pick__refuses_logits_that_are_no_numbers(void **state)
{
    const float bad[] = {NAN, -NAN, INFINITY};
    SamplingParams p = defaults();
    uint64_t scratch[SMALL];
    float logits[SMALL];
    int32_t token = -7;
    Err err;
    (void)state;

    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++)
        for (int temperature = 0; temperature < 2; temperature++) {
            shares_logits(logits);
            logits[6] = bad[b];
            p.temperature = (float)temperature;
            assert_int_equal(sampling_pick(&p, logits, SMALL, NULL, 0, 0, scratch, &token, 0, NULL, NULL, &err),
                             ST_DEVICE);
            assert_non_null(strstr(err.msg, "token 6"));
        }
    for (int i = 0; i < SMALL; i++)
        logits[i] = -INFINITY;
    assert_int_equal(sampling_pick(&p, logits, SMALL, NULL, 0, 0, scratch, &token, 0, NULL, NULL, &err), ST_DEVICE);
    assert_int_equal(token, -7);
}

/* ---- the draw --------------------------------------------------------------------------------------------------- */

static void draw__follows_the_softmax(void **state)
{
    float logits[SMALL];
    SamplingParams p = defaults();
    (void)state;
    shares_logits(logits);
    p.seed = 42;
    expect_frequencies(&p, logits, shares, DRAWS);
}

static void draw__temperature_sharpens_and_flattens(void **state)
{
    const float temperatures[] = {0.5f, 2};
    float logits[SMALL];
    (void)state;
    shares_logits(logits);
    for (int k = 0; k < 2; k++) {
        double expected[SMALL], sum = 0;
        SamplingParams p = defaults();
        p.temperature = temperatures[k];
        for (int i = 0; i < SMALL; i++)
            sum += pow(shares[i], 1 / (double)p.temperature);
        for (int i = 0; i < SMALL; i++)
            expected[i] = pow(shares[i], 1 / (double)p.temperature) / sum;
        expect_frequencies(&p, logits, expected, FEWER_DRAWS);
    }
}

static void draw__top_k_keeps_the_best_and_the_lower_of_equal_ones(void **state)
{
    const double expected[SMALL] = {[3] = 0.6, [1] = 0.4}; /* 5 is as good as 1, but later */
    float logits[SMALL];
    SamplingParams p = defaults();
    (void)state;
    shares_logits(logits);
    p.top_k = 2;
    expect_frequencies(&p, logits, expected, FEWER_DRAWS);
}

static void draw__top_p_keeps_the_shortest_part_that_reaches_it(void **state)
{
    /* 0.3, 0.2, 0.2 reach 0.69; two of them do not reach 0.51, one more does; 0.49 needs two, 0.29 one. */
    const struct {
        float top_p;
        double expected[SMALL];
    } cases[] = {{0.69f, {[3] = 3 / 7.0, [1] = 2 / 7.0, [5] = 2 / 7.0}},
                 {0.51f, {[3] = 3 / 7.0, [1] = 2 / 7.0, [5] = 2 / 7.0}},
                 {0.49f, {[3] = 0.6, [1] = 0.4}},
                 {0.29f, {[3] = 1}},
                 {1e-9f, {[3] = 1}}};
    float logits[SMALL];
    (void)state;
    shares_logits(logits);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        SamplingParams p = defaults();
        p.top_p = cases[k].top_p;
        expect_frequencies(&p, logits, cases[k].expected, FEWER_DRAWS);
    }
}

static void draw__top_p_counts_within_top_k(void **state)
{
    /* Of the best three (0.3, 0.2, 0.2) 0.3 is 43%: enough for 0.42, though it is 30% of all. */
    const double expected[SMALL] = {[3] = 1};
    float logits[SMALL];
    SamplingParams p = defaults();
    (void)state;
    shares_logits(logits);
    p.top_k = 3;
    p.top_p = 0.42f;
    expect_frequencies(&p, logits, expected, FEWER_DRAWS);
}

static void draw__min_p_is_relative_to_the_best(void **state)
{
    /* 0.30 * 0.66 = 0.198 keeps the 0.20s; 0.30 * 0.67 = 0.201 does not. */
    const double kept[SMALL] = {[3] = 3 / 7.0, [1] = 2 / 7.0, [5] = 2 / 7.0}, best[SMALL] = {[3] = 1};
    float logits[SMALL];
    SamplingParams p = defaults();
    (void)state;
    shares_logits(logits);
    p.min_p = 0.66f;
    expect_frequencies(&p, logits, kept, FEWER_DRAWS);
    p.min_p = 0.67f;
    expect_frequencies(&p, logits, best, FEWER_DRAWS);
}

static void draw__never_takes_a_token_that_is_ruled_out(void **state)
{
    float logits[SMALL];
    SamplingParams p = defaults();
    (void)state;
    for (int i = 0; i < SMALL; i++)
        logits[i] = -INFINITY;
    logits[4] = -1000;
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(pick(&p, logits, SMALL, i), 4);
    p.top_p = 0.5f;
    p.top_k = 3;
    assert_int_equal(pick(&p, logits, SMALL, 0), 4);
}

static void draw__survives_extreme_temperatures_and_logits(void **state)
{
    const float logits[SMALL] = {-3e38f, 3e38f, 1, 3e38f};
    SamplingParams p = defaults();
    (void)state;
    p.temperature = 1e-42f; /* its reciprocal is no finite float */
    for (uint64_t i = 0; i < 100; i++) {
        int32_t token = pick(&p, logits, SMALL, i);
        assert_true(token == 1 || token == 3);
    }
    p.top_p = 0.4f;
    assert_int_equal(pick(&p, logits, SMALL, 0), 1);
}

static void draw__depends_on_seed_and_number_only(void **state)
{
    enum { N = 500 };
    float logits[SMALL];
    int32_t forward[N];
    int same = 0, shifted = 0;
    SamplingParams p = defaults(), other = defaults();
    (void)state;
    shares_logits(logits);
    p.seed = 77;
    other.seed = 78;
    for (int i = 0; i < N; i++)
        forward[i] = pick(&p, logits, SMALL, (uint64_t)i);
    for (int i = N - 1; i >= 0; i--) { /* another order, with another request in between */
        int32_t theirs = pick(&other, logits, SMALL, (uint64_t)i);
        same += theirs == forward[i];
        shifted += i > 0 && theirs == forward[i - 1];
        assert_int_equal(pick(&p, logits, SMALL, (uint64_t)i), forward[i]);
    }
    /* Independent sequences agree in sum(share^2) = 19.4% of places, +- 9% at 5 sigma. */
    assert_in_range(same, N * 10 / 100, N * 29 / 100);
    assert_in_range(shifted, N * 10 / 100, N * 29 / 100);
}

static void draw__neighbours_in_a_sequence_are_independent(void **state)
{
    uint32_t pairs[4] = {0};
    const float logits[2] = {0, 0};
    SamplingParams p = defaults();
    int32_t before = 0;
    (void)state;
    for (uint64_t i = 0; i < 40000; i++) {
        int32_t token = pick(&p, logits, 2, i);
        pairs[before * 2 + token]++;
        before = token;
    }
    for (int i = 0; i < 4; i++) /* 10000 +- 5 * sqrt(40000 * 3/16) */
        assert_in_range(pairs[i], 10000 - 434, 10000 + 434);
}

/* ---- log probabilities ------------------------------------------------------------------------------------------ */

static void logprobs__are_the_log_softmax_best_first(void **state)
{
    const int32_t order[SMALL] = {3, 1, 5, 2, 7, 0, 6, 4}; /* equal ones by token */
    float logits[SMALL];
    TokenLogprob top[SMALL + 1], chosen;
    uint64_t scratch[SMALL];
    SamplingParams p = defaults();
    double sum = 0;
    int32_t token;
    Err err;
    (void)state;

    shares_logits(logits);
    p.temperature = 0.3f; /* must not matter */
    p.top_k = 2;
    assert_int_equal(sampling_pick(&p, logits, SMALL, NULL, 0, 3, scratch, &token, SMALL + 1, top, &chosen, &err),
                     ST_OK);
    for (int i = 0; i < SMALL; i++) {
        assert_int_equal(top[i].token, order[i]);
        assert_true(fabs((double)top[i].logprob - log(shares[order[i]])) < 2e-6); /* logits of 7 carry 5e-7 each */
        sum += exp((double)top[i].logprob);
    }
    assert_true(fabs(sum - 1) < 1e-6);
    assert_int_equal(top[SMALL].token, -1); /* beyond the vocabulary */
    assert_int_equal(chosen.token, token);
    assert_true(fabs((double)chosen.logprob - log(shares[token])) < 2e-6);
}

static void logprobs__see_bias_and_sum_to_one_over_a_real_vocabulary(void **state)
{
    const LogitBias ban = {17, -100};
    float *logits = malloc(BIG * sizeof *logits);
    TokenLogprob *top = malloc(BIG * sizeof *top), chosen;
    void *scratch = malloc(BIG * 8);
    SamplingParams p = defaults();
    double sum = 0;
    int32_t token;
    Err err;
    (void)state;

    assert_true(logits && top && scratch);
    srand48(3);
    for (int i = 0; i < BIG; i++)
        logits[i] = (float)(drand48() * 0.5);
    logits[17] = 12;
    p.n_bias = 1;
    p.bias = &ban;
    p.temperature = 0;
    assert_int_equal(sampling_pick(&p, logits, BIG, NULL, 0, 0, scratch, &token, 20, top, &chosen, &err), ST_OK);
    for (int i = 0; i < BIG; i++)
        sum += exp((double)logits[i] - (double)logits[token] + (double)chosen.logprob);
    assert_true(fabs(sum - 1) < 1e-5); /* a float near -11 carries 5e-7 */
    assert_int_equal(top[0].token, token);
    assert_true(top[0].logprob == chosen.logprob);
    for (int i = 0; i < 20; i++) {
        assert_int_not_equal(top[i].token, 17);
        assert_true(i == 0 || top[i].logprob <= top[i - 1].logprob);
    }
    free(logits);
    free(top);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check__accepts_the_defaults_and_the_bounds),
        cmocka_unit_test(check__names_the_field_of_a_bad_value),
        cmocka_unit_test(check__refuses_bias_outside_the_vocabulary),
        cmocka_unit_test(greedy__takes_the_lowest_of_equal_tokens),
        cmocka_unit_test(top_k__of_one_is_greedy),
        cmocka_unit_test(bias__is_added_before_greedy_and_before_the_draw),
        cmocka_unit_test(penalties__have_the_values_of_their_formulas),
        cmocka_unit_test(pick__refuses_logits_that_are_no_numbers),
        cmocka_unit_test(draw__follows_the_softmax),
        cmocka_unit_test(draw__temperature_sharpens_and_flattens),
        cmocka_unit_test(draw__top_k_keeps_the_best_and_the_lower_of_equal_ones),
        cmocka_unit_test(draw__top_p_keeps_the_shortest_part_that_reaches_it),
        cmocka_unit_test(draw__top_p_counts_within_top_k),
        cmocka_unit_test(draw__min_p_is_relative_to_the_best),
        cmocka_unit_test(draw__never_takes_a_token_that_is_ruled_out),
        cmocka_unit_test(draw__survives_extreme_temperatures_and_logits),
        cmocka_unit_test(draw__depends_on_seed_and_number_only),
        cmocka_unit_test(draw__neighbours_in_a_sequence_are_independent),
        cmocka_unit_test(logprobs__are_the_log_softmax_best_first),
        cmocka_unit_test(logprobs__see_bias_and_sum_to_one_over_a_real_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
