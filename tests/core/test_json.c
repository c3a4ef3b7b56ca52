/* json: what is refused, and where the message says it is. */
#include "core/json.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *parse_ok(const char *text)
{
    json_t *v = NULL;
    Err err = {{0}};
    if (json_parse(text, strlen(text), "t.json", &v, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return v;
}

/* The text is refused as malformed, and the message begins with where. */
static void refused_at(const char *text, size_t len, const char *where)
{
    json_t *v = NULL;
    Err err = {{0}};
    assert_int_equal(json_parse(text, len, "t.json", &v, &err), ST_FORMAT);
    assert_null(v);
    if (strncmp(err.msg, where, strlen(where)) != 0)
        fail_msg("message '%s' does not begin with '%s'", err.msg, where);
    assert_true(strlen(err.msg) > strlen(where)); /* a sentence follows */
}

static void json__reads_any_value_and_white_space(void **state)
{
    (void)state;
    json_t *v = parse_ok(" {\"a\": [1, 2.5, \"\\u20ac\", null, true]} \r\n");
    assert_int_equal(json_array_size(json_object_get(v, "a")), 5);
    assert_string_equal(json_string_value(json_array_get(json_object_get(v, "a"), 2)), "\xe2\x82\xac");
    json_decref(v);
    v = parse_ok("42");
    assert_int_equal(json_integer_value(v), 42);
    json_decref(v);
}

static void json__errors_name_the_line_and_column(void **state)
{
    static const char bad[] = "{\n  \"a\": 1,\n  \"b\": ?\n}";
    (void)state;
    refused_at(bad, strlen(bad), "t.json:3:8: ");
    refused_at("", 0, "t.json:1:1: ");
    refused_at("[1, 2", 5, "t.json:1:5: ");
    refused_at("{} x", 4, "t.json:1:4: ");
}

static void json__duplicate_keys_are_refused(void **state)
{
    static const char bad[] = "{\"a\": 1,\n \"a\": 2}";
    (void)state;
    refused_at(bad, strlen(bad), "t.json:2:");
    json_decref(parse_ok("{\"a\": {\"a\": 1}}")); /* not the same object */
}

static void json__invalid_utf8_is_refused(void **state)
{
    (void)state;
    refused_at("\"\xff\"", 3, "t.json:1:");
    refused_at("\"\xc0\xaf\"", 4, "t.json:1:");
    refused_at("\"\xed\xa0\x80\"", 5, "t.json:1:");
    refused_at("\"\\ud800\"", 8, "t.json:1:");
}

static void json__a_nul_is_refused_and_ends_nothing(void **state)
{
    (void)state;
    refused_at("\"a\\u0000b\"", 10, "t.json:1:");
    refused_at("[\n\"a\0b\"]", 8, "t.json:2:3: ");
    refused_at("{}\0 anything", 12, "t.json:1:3: ");
}

static char *nested(size_t depth)
{
    char *text = malloc(2 * depth + 1);
    assert_non_null(text);
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    text[2 * depth] = '\0';
    return text;
}

static void json__depth_512_is_read_and_513_is_refused(void **state)
{
    (void)state;
    char *text = nested(512);
    json_decref(parse_ok(text));
    free(text);
    text = nested(513);
    refused_at(text, strlen(text), "t.json:1:513: nested deeper than 512");
    free(text);
}

static void json__depth_10000_is_refused_without_recursion(void **state)
{
    (void)state;
    char *text = nested(10000);
    refused_at(text, strlen(text), "t.json:1:513: ");
    free(text);
}

static void json__brackets_in_strings_are_no_depth(void **state)
{
    enum { N = 2000 };
    char text[N + 16] = "[\"\\\\\\\"";
    (void)state;
    size_t n = strlen(text);
    memset(text + n, '[', N);
    memcpy(text + n + N, "\\\\\"]", 5);
    json_t *v = parse_ok(text);
    assert_int_equal(strlen(json_string_value(json_array_get(v, 0))), N + 3);
    json_decref(v);
}

static void json__infinity_outside_of_strings_is_a_number(void **state)
{
    (void)state;
    json_t *v = parse_ok("{\"Infinity\": [0.0, Infinity, -Infinity, \"an \\\" Infinity\"]}");
    const json_t *list = json_object_get(v, "Infinity");
    assert_true(json_real_value(json_array_get(list, 1)) == 1.79e308);
    assert_true(json_real_value(json_array_get(list, 2)) == -1.79e308);
    assert_string_equal(json_string_value(json_array_get(list, 3)), "an \" Infinity");
    json_decref(v);
    refused_at("[NaN]", 5, "t.json:1:");
    refused_at("[Infinit]", 9, "t.json:1:");
}

static void json_at__follows_object_keys(void **state)
{
    (void)state;
    json_t *v = parse_ok("{\"a\": {\"b\": {\"c\": 7}, \"s\": \"x\"}, \"l\": [1]}");
    assert_int_equal(json_integer_value(json_at(v, "a.b.c")), 7);
    assert_string_equal(json_string_value(json_at(v, "a.s")), "x");
    assert_null(json_at(v, "a.b.d"));
    assert_null(json_at(v, "a.s.t"));
    assert_null(json_at(v, "l.0"));
    assert_null(json_at(v, ""));
    assert_null(json_at(NULL, "a"));
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json__reads_any_value_and_white_space),
        cmocka_unit_test(json__errors_name_the_line_and_column),
        cmocka_unit_test(json__duplicate_keys_are_refused),
        cmocka_unit_test(json__invalid_utf8_is_refused),
        cmocka_unit_test(json__a_nul_is_refused_and_ends_nothing),
        cmocka_unit_test(json__depth_512_is_read_and_513_is_refused),
        cmocka_unit_test(json__depth_10000_is_refused_without_recursion),
        cmocka_unit_test(json__brackets_in_strings_are_no_depth),
        cmocka_unit_test(json__infinity_outside_of_strings_is_a_number),
        cmocka_unit_test(json_at__follows_object_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
