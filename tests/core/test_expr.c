/* expr: values, precedence, bounds, and messages that name the column. */
#include "core/expr.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* n = 10, k = 3, gate.n = 5, neg = -7, big = INT64_MAX, low = INT64_MIN. */
static bool lookup(void *ctx, const char *name, int64_t *out)
{
    static const struct {
        const char *name;
        int64_t value;
    } known[] = {{"n", 10}, {"k", 3}, {"gate.n", 5}, {"neg", -7}, {"big", INT64_MAX}, {"low", INT64_MIN}, {"ceil", 4}};
    unsigned *calls = ctx;
    if (calls != NULL)
        ++*calls;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].value;
            return true;
        }
    }
    return false;
}

static int64_t value(const char *text)
{
    Arena *a = arena_new();
    Err err = {{0}};
    Expr *e = NULL;
    int64_t v = 0;
    if (expr_parse(text, a, &e, &err) != ST_OK || expr_eval(e, lookup, NULL, &v, &err) != ST_OK)
        fail_msg("%s", err.msg);
    arena_free(a);
    return v;
}

static void refused(const char *text, const char *what)
{
    Arena *a = arena_new();
    Err err = {{0}};
    Expr *e = NULL;
    assert_int_equal(expr_parse(text, a, &e, &err), ST_FORMAT);
    assert_null(e);
    if (strstr(err.msg, what) == NULL)
        fail_msg("message '%s' does not say '%s'", err.msg, what);
    arena_free(a);
}

static void fails(const char *text, Status expected, const char *what)
{
    Arena *a = arena_new();
    Err err = {{0}};
    Expr *e = NULL;
    int64_t v = 77;
    assert_int_equal(expr_parse(text, a, &e, &err), ST_OK);
    assert_int_equal(expr_eval(e, lookup, NULL, &v, &err), expected);
    assert_int_equal(v, 77);
    if (strstr(err.msg, text) == NULL || strstr(err.msg, what) == NULL)
        fail_msg("message '%s' does not quote '%s' and say '%s'", err.msg, text, what);
    arena_free(a);
}

static void expr__products_bind_tighter_than_sums_and_both_to_the_left(void **state)
{
    (void)state;
    assert_int_equal(value("2 + 3 * 4"), 14);
    assert_int_equal(value("(2 + 3) * 4"), 20);
    assert_int_equal(value("20 - 3 - 4"), 13);
    assert_int_equal(value("100 / 5 / 2"), 10);
    assert_int_equal(value("7 / 2 * 2"), 6);
    assert_int_equal(value("\t n*k\n+ 1 "), 31);
    assert_int_equal(value("0"), 0);
    assert_int_equal(value("9223372036854775807") == INT64_MAX, 1);
}

static void expr__division_is_floor_and_ceil_is_ceiling_for_all_signs(void **state)
{
    (void)state;
    assert_int_equal(value("7 / 2"), 3);
    assert_int_equal(value("8 / 2"), 4);
    assert_int_equal(value("neg / 2"), -4);
    assert_int_equal(value("7 / (0 - 2)"), -4);
    assert_int_equal(value("neg / (0 - 2)"), 3);
    assert_int_equal(value("ceil(7, 2)"), 4);
    assert_int_equal(value("ceil(8, 2)"), 4);
    assert_int_equal(value("ceil(0, 2)"), 0);
    assert_int_equal(value("ceil(neg, 2)"), -3);
    assert_int_equal(value("ceil(7, 0 - 2)"), -3);
    assert_int_equal(value("ceil(neg, 0 - 2)"), 4);
    assert_true(value("ceil(big, 2)") == INT64_MAX / 2 + 1); /* no overflow on the way */
}

static void expr__min_and_max_take_one_or_more(void **state)
{
    (void)state;
    assert_int_equal(value("min(5)"), 5);
    assert_int_equal(value("min(5, 3, 4)"), 3);
    assert_int_equal(value("max(5, 7, neg)"), 7);
    assert_int_equal(value("max(min(n, 4), ceil(n + 1, k)) * 2"), 8);
    assert_int_equal(value("ceil + 1"), 5); /* a function's name without '(' is a name */
}

static void expr__comparisons_are_zero_or_one_and_bind_last(void **state)
{
    (void)state;
    assert_int_equal(value("1 + 2 == 3"), 1);
    assert_int_equal(value("n != 10"), 0);
    assert_int_equal(value("n < 10"), 0);
    assert_int_equal(value("n <= 10"), 1);
    assert_int_equal(value("n > 9"), 1);
    assert_int_equal(value("n >= 11"), 0);
    assert_int_equal(value("(n == 10) + (k == 3)"), 2);
    assert_int_equal(value("(n > 1) * (k > 100)"), 0);
    refused("1 < 2 < 3", "column 7");
}

static void expr__names_may_hold_inner_dots(void **state)
{
    (void)state;
    assert_int_equal(value("gate.n * 2"), 10);
    refused("gate.", "column 5");
    refused(".n", "column 1");
    refused("gate..n", "column 5");
}

static void expr__syntax_errors_name_the_column(void **state)
{
    (void)state;
    refused("", "column 1: expected a number");
    refused("1 +", "column 4: expected a number");
    refused("1 + * 2", "column 5");
    refused("(1 + 2", "column 7: expected ')'");
    refused("1 2", "column 3: expected an operator");
    refused("1)", "column 2");
    refused("2k", "column 2");
    refused("-1", "column 1");
    refused("1 = 1", "column 3");
    refused("n % 2", "column 3");
    refused("2 * floor(1)", "column 5: unknown function");
    refused("ceil(1)", "column 1: ceil takes two");
    refused("ceil(1, 2, 3)", "column 1: ceil takes two");
    refused("min()", "column 5");
    refused("min(1, 2", "column 9");
    refused("\xc3\xa9", "column 1");
    refused("9223372036854775808", "column 1: the number does not fit");
    refused("1 + 99999999999999999999999", "column 5: the number");
}

static void expr__overflow_and_division_by_zero_quote_the_text(void **state)
{
    (void)state;
    fails("big + 1", ST_INVALID, "64 bits");
    fails("low - 1", ST_INVALID, "64 bits");
    fails("big * 2", ST_INVALID, "64 bits");
    fails("low / (0 - 1)", ST_INVALID, "64 bits");
    fails("ceil(low, 0 - 1)", ST_INVALID, "64 bits");
    fails("n / (k - 3)", ST_INVALID, "division by zero");
    fails("ceil(1, 0)", ST_INVALID, "division by zero");
    fails("n + unknown_name", ST_NOTFOUND, "'unknown_name'");
}

static void expr__depth_is_bounded_at_64(void **state)
{
    char text[512] = {0};
    (void)state;
    for (int depth = 62; depth <= 65; depth++) { /* the whole expression is one level itself */
        memset(text, '(', (size_t)depth);
        text[depth] = '1';
        memset(text + depth + 1, ')', (size_t)depth);
        text[2 * depth + 1] = '\0';
        if (depth < 64)
            assert_int_equal(value(text), 1);
        else
            refused(text, "column 65: nested too deeply");
    }
}

static void expr__length_is_bounded_at_1024_and_fits_the_stack(void **state)
{
    char text[1100] = {0};
    (void)state;
    for (size_t i = 0; i < 1023; i++)
        text[i] = i % 2 == 0 ? '1' : '+';
    text[1023] = ' ';
    assert_int_equal(value(text), 512);
    text[1024] = ' ';
    refused(text, "longer than 1024");

    /* The largest operand stack: as many open products as depth allows, and a list as long as the rest. */
    memset(text, 0, sizeof text);
    size_t n = 0;
    for (; n + 6 <= 63 * 6; n += 6)
        memcpy(text + n, "1+min(", 6);
    while (n + 2 + 64 < 1024) {
        memcpy(text + n, "9,", 2);
        n += 2;
    }
    text[n++] = '9';
    memset(text + n, ')', 63);
    assert_int_equal(value(text), 63 + 9);
}

static void count_name(void *ctx, const char *name)
{
    char *seen = ctx;
    strcat(seen, name);
    strcat(seen, ";");
}

static void expr_names__calls_once_for_each_name(void **state)
{
    Arena *a = arena_new();
    char seen[64] = "";
    unsigned calls = 0;
    int64_t v;
    Expr *e;
    Err err;
    (void)state;
    assert_int_equal(expr_parse("n * k + n / max(gate.n, k)", a, &e, &err), ST_OK);
    expr_names(e, count_name, seen);
    assert_string_equal(seen, "n;k;gate.n;");
    assert_string_equal(expr_text(e), "n * k + n / max(gate.n, k)");
    assert_int_equal(expr_eval(e, lookup, &calls, &v, &err), ST_OK);
    assert_int_equal(v, 32);
    assert_true(calls > 0);
    assert_int_equal(expr_eval(e, NULL, NULL, &v, &err), ST_NOTFOUND);
    arena_free(a);
}

static void expr__keeps_its_own_copy_of_the_text(void **state)
{
    Arena *a = arena_new();
    char text[] = "n + 1";
    int64_t v = 0;
    Expr *e;
    Err err;
    (void)state;
    assert_int_equal(expr_parse(text, a, &e, &err), ST_OK);
    memset(text, '!', sizeof text - 1);
    assert_string_equal(expr_text(e), "n + 1");
    assert_int_equal(expr_eval(e, lookup, NULL, &v, &err), ST_OK);
    assert_int_equal(v, 11);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expr__products_bind_tighter_than_sums_and_both_to_the_left),
        cmocka_unit_test(expr__division_is_floor_and_ceil_is_ceiling_for_all_signs),
        cmocka_unit_test(expr__min_and_max_take_one_or_more),
        cmocka_unit_test(expr__comparisons_are_zero_or_one_and_bind_last),
        cmocka_unit_test(expr__names_may_hold_inner_dots),
        cmocka_unit_test(expr__syntax_errors_name_the_column),
        cmocka_unit_test(expr__overflow_and_division_by_zero_quote_the_text),
        cmocka_unit_test(expr__depth_is_bounded_at_64),
        cmocka_unit_test(expr__length_is_bounded_at_1024_and_fits_the_stack),
        cmocka_unit_test(expr_names__calls_once_for_each_name),
        cmocka_unit_test(expr__keeps_its_own_copy_of_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
