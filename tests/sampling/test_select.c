/* select: the same answer as a sort, at a cost that grows with the vocabulary and not faster. */
#include "sampling/select.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BIG = 49152 };

static int better_first(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static int by_token(const void *a, const void *b)
{
    return ((const Candidate *)a)->token - ((const Candidate *)b)->token;
}

/* The definition: sort all, take the shortest part, put it back into token order. */
static uint32_t select_by_sorting(Candidate *c, uint32_t n, uint32_t max_count, double max_mass, const Tempered *t)
{
    uint32_t kept = 0;
    double mass = 0;
    qsort(c, n, sizeof *c, better_first);
    while (kept < n && kept < max_count && mass < max_mass)
        mass += (double)tempered_weight(t, c[kept++].logit);
    qsort(c, kept, sizeof *c, by_token);
    return kept;
}

static void expect_as_sorted(const Candidate *c, uint32_t n, uint32_t max_count, double max_mass, const Tempered *t)
{
    Candidate *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    assert_true(a && b);
    memcpy(a, c, n * sizeof *a);
    memcpy(b, c, n * sizeof *b);
    uint32_t n_a = select_best(a, n, max_count, max_mass, t, NULL);
    uint32_t n_b = select_by_sorting(b, n, max_count, max_mass, t);
    assert_int_equal(n_a, n_b);
    for (uint32_t i = 0; i < n_a; i++)
        assert_int_equal(a[i].token, b[i].token);
    free(a);
    free(b);
}

static void select__agrees_with_a_sort(void **state)
{
    Candidate c[300];
    (void)state;
    srand48(11);
    for (int round = 0; round < 3000; round++) {
        uint32_t n = 1 + (uint32_t)(lrand48() % 300);
        int kind = (int)(lrand48() % 3);
        Tempered t = {-INFINITY, 0.5f + (float)drand48()};
        for (uint32_t i = 0; i < n; i++) {
            float logit = kind == 0   ? (float)(drand48() * 20 - 10)
                          : kind == 1 ? (float)(lrand48() % 3 - 1) * (lrand48() % 2 ? 1.0f : -1.0f) /* ties, -0 */
                                      : -(float)drand48() * 1e-3f - 5;                              /* one coarse bin */
            c[i] = (Candidate){logit, (int32_t)i * 3};
            t.max = logit > t.max ? logit : t.max;
        }
        uint32_t k = 1 + (uint32_t)(lrand48() % (n + 10));
        double total = 0;
        for (uint32_t i = 0; i < n; i++)
            total += (double)tempered_weight(&t, c[i].logit);
        expect_as_sorted(c, n, k, (double)INFINITY, &t);
        /* Masses between those of whole parts: sums in another order differ in their last bits. */
        expect_as_sorted(c, n, n, total * (0.001 + 0.998 * drand48()), &t);
        expect_as_sorted(c, n, k, total * (0.001 + 0.998 * drand48()), &t);
    }
}

static void select__keeps_all_when_the_mass_is_never_reached(void **state)
{
    Candidate c[5] = {{1, 0}, {-2, 1}, {0, 2}, {-INFINITY, 3}, {-0.0f, 4}};
    const Tempered t = {1, 1};
    (void)state;
    assert_int_equal(select_best(c, 5, 5, 1e9, &t, NULL), 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(c[i].token, i);
}

static void select__takes_equal_ones_by_token_whatever_their_zero_sign(void **state)
{
    Candidate c[4] = {{-0.0f, 0}, {0, 1}, {-0.0f, 2}, {0, 3}};
    (void)state;
    assert_int_equal(select_best(c, 4, 2, (double)INFINITY, NULL, NULL), 2);
    assert_int_equal(c[0].token, 0);
    assert_int_equal(c[1].token, 1);
}

/* A full sort of 49,152 compares about 16 times an element, in the worst case of a simple quicksort 49,152 times. */
static void select__looks_at_each_of_49k_logits_a_few_times_at_most(void **state)
{
    Candidate *c = malloc(BIG * sizeof *c);
    (void)state;
    assert_non_null(c);
    srand48(5);
    for (int shape = 0; shape < 4; shape++) {
        const uint32_t counts[] = {1, 40, BIG / 2, BIG};
        for (int k = 0; k < 4; k++)
            for (int by_mass = 0; by_mass < 2; by_mass++) {
                Tempered t = {-INFINITY, 1};
                uint64_t visits = 0;
                for (int32_t i = 0; i < BIG; i++) {
                    float logit = shape == 0   ? (float)(drand48() * 30 - 20)
                                  : shape == 1 ? 3                             /* all equal */
                                  : shape == 2 ? (float)i                      /* ascending */
                                               : 1 + (float)(BIG - i) * 1e-7f; /* descending, one coarse bin */
                    c[i] = (Candidate){logit, i};
                    t.max = logit > t.max ? logit : t.max;
                }
                uint32_t n = select_best(c, BIG, counts[k], by_mass ? 0.5 : (double)INFINITY, &t, &visits);
                assert_in_range(n, 1, counts[k]);
                assert_in_range(visits, BIG, 7 * BIG);
                if (shape == 0 && k == 1)
                    assert_in_range(visits, BIG, 3 * BIG); /* the usual case: two passes, then little is left */
            }
    }
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(select__agrees_with_a_sort),
        cmocka_unit_test(select__keeps_all_when_the_mass_is_never_reached),
        cmocka_unit_test(select__takes_equal_ones_by_token_whatever_their_zero_sign),
        cmocka_unit_test(select__looks_at_each_of_49k_logits_a_few_times_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
