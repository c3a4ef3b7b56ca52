/* Tests of json_write: what is written reads back, and is valid UTF-8 whatever went in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/utf8.h"
#include "server/json_write.h"
#include <jansson.h>
#include <math.h>

static void expect_json(const char *in, size_t len, const char *out)
{
    Str s = STR_INIT;

    json_write_string(&s, in, len);
    assert_string_equal(str_c(&s), out);
    str_release(&s);
}

static void json_write__escapes_what_json_wants_escaped(void **state)
{
    (void)state;
    expect_json("", 0, "\"\"");
    expect_json("a\"b\\c\n\t\r", 8, "\"a\\\"b\\\\c\\n\\t\\r\"");
    expect_json("\0\x1f\x7f", 3, "\"\\u0000\\u001f\\u007f\"");
    expect_json("\xf0\x9f\xa6\x99", 4, "\"\xf0\x9f\xa6\x99\"");
}

static void json_write__broken_utf8_becomes_replacement_characters(void **state)
{
    (void)state;
    expect_json("a\xff"
                "b",
                3,
                "\"a\xef\xbf\xbd"
                "b\"");
    expect_json("\xe2\x82", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\"");
    expect_json("\xed\xa0\xbd", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void json_write__every_two_bytes_read_back_as_json(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 65536; i++) {
        char in[2] = {(char)(i >> 8), (char)i};
        Str s = STR_INIT;
        json_t *j;

        json_write_string(&s, in, 2);
        j = json_loadb(s.p, s.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(j);
        if (utf8_valid(in, 2)) {
            assert_int_equal(json_string_length(j), 2);
            assert_memory_equal(json_string_value(j), in, 2);
        }
        json_decref(j);
        str_release(&s);
    }
}

static void json_write__floats_read_back_exactly_and_are_finite(void **state)
{
    static const float values[] = {0.0f, -0.1f, -12.345678f, 3.14159274f, -9999.0f, 1e-20f, -0.000123456789f};

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        Str s = STR_INIT;
        json_write_float(&s, values[i]);
        assert_true(strtof(str_c(&s), NULL) == values[i]);
        str_release(&s);
    }
    for (int i = 0; i < 3; i++) {
        Str s = STR_INIT;
        json_write_float(&s, i == 0 ? -INFINITY : i == 1 ? NAN : INFINITY);
        assert_string_equal(str_c(&s), i == 2 ? "9999" : "-9999");
        str_release(&s);
    }
}

static void json_write__bytes_and_null(void **state)
{
    Str s = STR_INIT;

    (void)state;
    json_write_bytes(&s, "\xff\x01", 2);
    json_write_bytes(&s, "", 0);
    json_write_text(&s, NULL);
    assert_string_equal(str_c(&s), "[255,1][]null");
    str_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_write__escapes_what_json_wants_escaped),
        cmocka_unit_test(json_write__broken_utf8_becomes_replacement_characters),
        cmocka_unit_test(json_write__every_two_bytes_read_back_as_json),
        cmocka_unit_test(json_write__floats_read_back_exactly_and_are_finite),
        cmocka_unit_test(json_write__bytes_and_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
