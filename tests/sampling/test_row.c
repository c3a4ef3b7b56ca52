/* row: op sample keeps what a sort would keep, draws what a walk over it would draw, and its weights are exponentials. */
#include "sampling/row.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 600 };

typedef struct Ranked {
    float logit;
    uint32_t token;
} Ranked;

static int best_first(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

/* Ranks all, cuts the list, draws from what is left in token order. */
static int32_t pick_by_sorting(const SampleRow *r, const float *logits, uint32_t n)
{
    Ranked ranked[MOST];
    uint64_t kept[MOST] = {0}, total = 0, mass = 0, sum = 0;
    uint32_t count = r->top_k > 0 && (uint32_t)r->top_k < n ? (uint32_t)r->top_k : n;

    for (uint32_t i = 0; i < n; i++)
        ranked[i] = (Ranked){logits[i], i};
    qsort(ranked, n, sizeof *ranked, best_first);
    for (uint32_t i = 0; i < count; i++)
        total += sample_weight(ranked[i].logit, ranked[0].logit, r->temperature);
    for (uint32_t i = 0; i < count && (r->top_p == 0 || mass < sample_share(total, r->top_p)); i++) {
        uint64_t w = sample_weight(ranked[i].logit, ranked[0].logit, r->temperature);
        mass += w;
        kept[ranked[i].token] = w >= sample_least(r->min_p) ? w : 0;
    }
    total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += kept[i];
    const uint64_t goal = (uint64_t)((unsigned __int128)total * ((uint64_t)r->random_high << 32 | r->random_low) >> 64);
    for (uint32_t i = 0;; i++)
        if ((sum += kept[i]) > goal)
            return (int32_t)i;
}

static void row__picks_what_a_sort_and_a_walk_pick(void **state)
{
    float logits[MOST];
    uint64_t scratch[MOST];
    (void)state;

    srand48(11);
    for (int round = 0; round < 3000; round++) {
        const uint32_t n = 1 + (uint32_t)(lrand48() % MOST);
        const double span = (double)(1 << (lrand48() % 6));
        SampleRow r = {.wants = SAMPLE_TOKEN,
                       .temperature = (float)(0.05 + drand48() * 1.9),
                       .top_p = lrand48() % 3 ? (uint32_t)mrand48() | 1 : 0,
                       .min_p = lrand48() % 3 ? 0 : (float)drand48() * 0.2f,
                       .top_k = lrand48() % 3 ? (int32_t)(lrand48() % (2 * n)) : 0,
                       .random_low = (uint32_t)mrand48(),
                       .random_high = (uint32_t)mrand48()};
        SamplePick got;

        for (uint32_t i = 0; i < n; i++) {
            logits[i] = (float)((drand48() - 0.5) * span);
            if (round % 3 == 0)
                logits[i] = rintf(logits[i] * 2) / 2; /* many ties, zeros of both signs */
            if (round % 4 == 0 && i > 0 && lrand48() % 3 == 0)
                logits[i] = -INFINITY;
        }
        const int32_t want = r.top_k == 1 ? -1 : pick_by_sorting(&r, logits, n);
        sampling_row(&r, NULL, 0, logits, n, scratch, &got);
        if (want >= 0)
            assert_int_equal(got.token, want);
    }
}

static void weights__are_exponentials_and_the_best_weighs_one(void **state)
{
    (void)state;
    assert_true(sample_weight(3.5f, 3.5f, 0.7f) == SAMPLE_ONE);
    assert_true(sample_weight(-INFINITY, 3.5f, 0.7f) == 0);
    assert_true(sample_weight(-1e30f, 1e30f, 1e-42f) == 0);
    for (float x = 0; x > -27.9f; x -= 0.0037f) {
        const double want = exp((double)x) * 0x1p40, got = (double)sample_weight(x, 0, 1);
        /* the polynomial, the exponent cut behind 2^-24, the sum rounded down */
        assert_true(fabs(got - want) <= want * (1.1e-8 + 6e-8) + 1);
    }
}

static void goal__is_the_high_half_of_the_product(void **state)
{
    (void)state;
    srand48(5);
    for (int i = 0; i < 10000; i++) {
        uint64_t total = ((uint64_t)(uint32_t)mrand48() << 32 | (uint32_t)mrand48()) >> (lrand48() % 40);
        uint64_t random = (uint64_t)(uint32_t)mrand48() << 32 | (uint32_t)mrand48();
        assert_true(sample_goal(total, random) == (uint64_t)((unsigned __int128)total * random >> 64));
    }
    assert_true(sample_goal(UINT64_MAX, UINT64_MAX) == UINT64_MAX - 1);
}

static void row__of_which_nothing_is_wanted_is_left_alone(void **state)
{
    float logits[3] = {1, NAN, 3};
    uint64_t scratch[3];
    const SampleEdit bias = {0, 0x3f800000u};
    SamplePick pick = {-9, 9, 9, 9};
    (void)state;

    sampling_row(&(SampleRow){.n_bias = 1}, &bias, 0, logits, 3, scratch, &pick);
    assert_true(logits[0] == 1 && pick.token == -9 && pick.total_high == 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row__picks_what_a_sort_and_a_walk_pick),
        cmocka_unit_test(weights__are_exponentials_and_the_best_weighs_one),
        cmocka_unit_test(goal__is_the_high_half_of_the_product),
        cmocka_unit_test(row__of_which_nothing_is_wanted_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
