/* toml: file order, positions, refusals that name file and line. */
#include "core/toml.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static Toml *parse_ok(const char *text)
{
    Toml *t = NULL;
    Err err = {{0}};
    if (toml_parse(text, strlen(text), "t.toml", &t, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return t;
}

/* The text is refused, and the message begins with where and holds what. */
static void refused(const char *text, const char *where, const char *what)
{
    Toml *t = NULL;
    Err err = {{0}};
    assert_int_equal(toml_parse(text, strlen(text), "t.toml", &t, &err), ST_FORMAT);
    assert_null(t);
    if (strncmp(err.msg, where, strlen(where)) != 0 || strstr(err.msg, what) == NULL)
        fail_msg("message '%s' does not read '%s...%s'", err.msg, where, what);
}

static const TomlNode *need(const TomlNode *table, const char *key)
{
    const TomlNode *v = toml_find(table, key);
    if (v == NULL)
        fail_msg("no key '%s'", key);
    return v;
}

static void at(const TomlNode *v, uint32_t line, uint32_t col)
{
    assert_int_equal(v->line, line);
    assert_int_equal(v->col, col);
}

static void toml__scalars_keep_their_kind_and_value(void **state)
{
    (void)state;
    Toml *t = parse_ok("s = \"h\\u00e9\"\ni = -7\nj = 0x1F\nf = 2.5\nb = true\nm = '''\na\nb'''\n"
                       "big = 9223372036854775807\n");
    assert_string_equal(need(&t->root, "s")->str, "h\xc3\xa9");
    assert_int_equal(need(&t->root, "i")->i, -7);
    assert_int_equal(need(&t->root, "j")->i, 31);
    assert_true(need(&t->root, "f")->kind == TOML_FLOAT && need(&t->root, "f")->f == 2.5);
    assert_true(need(&t->root, "b")->kind == TOML_BOOL && need(&t->root, "b")->b);
    assert_string_equal(need(&t->root, "m")->str, "a\nb");
    assert_true(need(&t->root, "big")->i == INT64_MAX);
    toml_free(t);
}

static void toml__tables_and_keys_stand_in_file_order(void **state)
{
    static const char *const order[] = {"zeta", "alpha", "mid", "Beta"};
    (void)state;
    Toml *t = parse_ok("zeta = 1\nalpha = 2\n[mid.sub]\nx = 1\n[Beta]\nz = 1\ny = 2\n[mid]\nw = 1\n");
    assert_int_equal(t->root.list.len, 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(t->root.list.items[i].key, order[i]);
    const TomlNode *mid = need(&t->root, "mid");
    assert_string_equal(mid->list.items[0].key, "sub");
    assert_string_equal(mid->list.items[1].key, "w");
    toml_free(t);
}

static void toml__inline_tables_stand_in_file_order(void **state)
{
    (void)state;
    Toml *t = parse_ok("a = { z = 1, b = 2, y = { q = 1, c = 2 } }");
    const TomlNode *a = need(&t->root, "a");
    assert_string_equal(a->list.items[0].key, "z");
    assert_string_equal(a->list.items[1].key, "b");
    assert_string_equal(a->list.items[2].key, "y");
    assert_string_equal(a->list.items[2].list.items[0].key, "q");
    toml_free(t);
}

static void toml__positions_are_those_of_the_values(void **state)
{
    (void)state;
    Toml *t = parse_ok("z = 1\n"
                       "a = { y = 2, x = [1, [2, 3]] }\n"
                       "list = [\n"
                       "  \"one\", # comment\n"
                       "  { k = \"\xc3\xa9\", l = 2 },\n"
                       "]\n"
                       "[plain]\n"
                       "v = true\n"
                       "  [[items]]\n"
                       "  n = 1\n"
                       "[[items]]\n"
                       "n = 2\n");
    at(&t->root, 1, 1);
    at(need(&t->root, "z"), 1, 5);
    const TomlNode *a = need(&t->root, "a"), *x = need(a, "x");
    at(a, 2, 5);
    at(need(a, "y"), 2, 11);
    at(x, 2, 18);
    at(&x->list.items[0], 2, 19);
    at(&x->list.items[1], 2, 22);
    at(&x->list.items[1].list.items[1], 2, 26);
    const TomlNode *list = need(&t->root, "list");
    at(list, 3, 8);
    at(&list->list.items[0], 4, 3);
    at(&list->list.items[1], 5, 3);
    at(need(&list->list.items[1], "l"), 5, 18); /* columns count characters */
    at(need(&t->root, "plain"), 7, 1);
    at(need(need(&t->root, "plain"), "v"), 8, 5);
    const TomlNode *items = need(&t->root, "items");
    assert_int_equal(items->kind, TOML_ARRAY);
    assert_int_equal(items->list.len, 2);
    at(&items->list.items[0], 9, 3);
    at(&items->list.items[1], 11, 1);
    at(need(&items->list.items[1], "n"), 12, 5);
    toml_free(t);
}

static void toml__array_items_have_no_key(void **state)
{
    (void)state;
    Toml *t = parse_ok("a = [1, { b = 2 }]\n[[c]]\n");
    assert_null(t->root.key);
    assert_null(need(&t->root, "a")->list.items[0].key);
    assert_null(need(&t->root, "a")->list.items[1].key);
    assert_null(need(&t->root, "c")->list.items[0].key);
    assert_null(toml_find(&t->root, "d"));
    assert_null(toml_find(need(&t->root, "a"), "b")); /* not a table */
    toml_free(t);
}

static void toml__an_empty_file_is_an_empty_table(void **state)
{
    (void)state;
    Toml *t = parse_ok("");
    assert_int_equal(t->root.kind, TOML_TABLE);
    assert_int_equal(t->root.list.len, 0);
    toml_free(t);
    toml_free(NULL);
}

static void toml__the_name_is_copied(void **state)
{
    char name[] = "x.toml";
    Toml *t = NULL;
    Err err;
    (void)state;
    assert_int_equal(toml_parse("a = 1", 5, name, &t, &err), ST_OK);
    name[0] = '!';
    assert_string_equal(t->name, "x.toml");
    toml_free(t);
}

static void toml__syntax_errors_name_file_line_and_column(void **state)
{
    (void)state;
    refused("a = 1\nb = \n", "t.toml:2:", "value");
    refused("a = 1 b = 2\n", "t.toml:1:", "");
    refused("[t\n", "t.toml:1:", "");
    refused("ok = 1\n\n\ns = \"open\n", "t.toml:4:", "");
    refused("a = \"\xff\"\n", "t.toml:1:", "utf-8");
}

static void toml__duplicates_are_refused(void **state)
{
    (void)state;
    refused("a = 1\na = 2\n", "t.toml:2:", "'a'");
    refused("[a]\n[b]\n[a]\n", "t.toml:3:", "'a'");
    refused("a = { b = 1, b = 2 }\n", "t.toml:1:", "'b'");
}

static void toml__dates_and_times_are_refused(void **state)
{
    (void)state;
    refused("a = 1\nd = 2021-01-02\n", "t.toml:2:5: ", "write a string");
    refused("d = [07:32:00]\n", "t.toml:1:6: ", "write a string");
    refused("d = 1979-05-27T07:32:00Z\n", "t.toml:1:5: ", "write a string");
}

static void toml__nul_characters_are_refused(void **state)
{
    Toml *t = NULL;
    Err err;
    (void)state;
    refused("a = \"x\\u0000y\"\n", "t.toml:1:5: ", "NUL");
    refused("\"k\\u0000\" = 1\n", "t.toml:1:1: ", "NUL");
    assert_int_equal(toml_parse("a = 1\0", 6, "t.toml", &t, &err), ST_FORMAT);
}

/* before, n times unit, after; malloc'd. */
static char *repeated(const char *before, const char *unit, size_t n, const char *after)
{
    size_t u = strlen(unit);
    char *text = malloc(strlen(before) + n * u + strlen(after) + 1), *p = text;
    assert_non_null(text);
    p = stpcpy(p, before);
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, unit);
    stpcpy(p, after);
    return text;
}

static void toml__deep_nesting_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *before, *unit, *after, *where;
    } cases[] = {
        {"x = ", "[", "", "t.toml:1:"},         /* arrays, 100,000 deep */
        {"x = ", "{a=", "", "t.toml:1:"},       /* inline tables */
        {"", "a.", "b = 1\n", "t.toml:1:32: "}, /* a dotted key: its 16th dot */
        {"y = 1\n[", "a.", "b]\n", "t.toml:2:33: "} /* a table name */,
        {"q = \"\"\"x\"\"\"\" # end of a string with a quote\n", "a.", "b = 1\n", "t.toml:2:32: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = repeated(cases[i].before, cases[i].unit, 100000, cases[i].after);
        refused(text, cases[i].where, "");
        free(text);
    }
    /* Every part is short, the whole is deep. */
    char *text = repeated("x = ", "{a.b.c.d.e.f.g.h = ", 100, "1");
    char *closed = repeated(text, "}", 100, "\n");
    refused(closed, "t.toml:1:", "too deeply");
    free(closed);
    free(text);
}

static void toml__dots_in_strings_comments_and_numbers_are_free(void **state)
{
    (void)state;
    char *text = repeated("# ", ".", 50, "\na = \"");
    char *more = repeated(text, ".", 50, "\"\nb = '''\n");
    char *most = repeated(more, ".\n", 50,
                          "'''\nc = [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 1.5, 2.5, 3.5, 4.5,"
                          " 5.5, 6.5, 7.5, 8.5]\nd.e.f.g = \"a\\\"....................\"\n");
    toml_free(parse_ok(most));
    free(text);
    free(more);
    free(most);
}

static void toml__two_thousand_points_keep_their_lines(void **state)
{
    (void)state;
    char *text =
        repeated("", "[[family.point]]\nentry = \"x\"\nrows = [1, 8]\nconstants = { TILE_N = 16 }\n", 2000, "");
    Toml *t = parse_ok(text);
    const TomlNode *points = need(need(&t->root, "family"), "point");
    assert_int_equal(points->list.len, 2000);
    at(&points->list.items[1999], 1999 * 4 + 1, 1);
    toml_free(t);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(toml__scalars_keep_their_kind_and_value),
        cmocka_unit_test(toml__tables_and_keys_stand_in_file_order),
        cmocka_unit_test(toml__inline_tables_stand_in_file_order),
        cmocka_unit_test(toml__positions_are_those_of_the_values),
        cmocka_unit_test(toml__array_items_have_no_key),
        cmocka_unit_test(toml__an_empty_file_is_an_empty_table),
        cmocka_unit_test(toml__the_name_is_copied),
        cmocka_unit_test(toml__syntax_errors_name_file_line_and_column),
        cmocka_unit_test(toml__duplicates_are_refused),
        cmocka_unit_test(toml__dates_and_times_are_refused),
        cmocka_unit_test(toml__nul_characters_are_refused),
        cmocka_unit_test(toml__deep_nesting_is_refused),
        cmocka_unit_test(toml__dots_in_strings_comments_and_numbers_are_free),
        cmocka_unit_test(toml__two_thousand_points_keep_their_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
