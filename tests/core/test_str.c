/* str: growth, embedded NUL bytes, the sticky failure. */
#include "core/str.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void str__starts_empty_and_readable(void **state)
{
    Str s = STR_INIT;
    (void)state;
    assert_string_equal(str_c(&s), "");
    assert_true(str_ok(&s));
    str_release(&s);
}

static void str__appends_stay_terminated(void **state)
{
    Str s = STR_INIT;
    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        str_addc(&s, (char)('a' + i % 26));
        assert_int_equal(s.len, i + 1);
        assert_int_equal(strlen(str_c(&s)), i + 1);
    }
    str_clear(&s);
    str_adds(&s, "x=");
    str_addf(&s, "%d,%s", 5, "y");
    assert_string_equal(str_c(&s), "x=5,y");
    str_addf(&s, "%0500d", 0);
    assert_int_equal(s.len, 505);
    assert_int_equal(strlen(str_c(&s)), 505);
    str_release(&s);
}

static void str__holds_nul_bytes(void **state)
{
    Str s = STR_INIT;
    (void)state;
    str_add(&s, "a\0b", 3);
    str_add(&s, NULL, 0);
    assert_int_equal(s.len, 3);
    assert_memory_equal(str_c(&s), "a\0b\0", 4);
    str_release(&s);
}

static void str__a_failed_growth_is_sticky_until_cleared(void **state)
{
    Str s = STR_INIT;
    (void)state;
    str_adds(&s, "kept");
    str_add(&s, "x", SIZE_MAX - 2); /* refused before a byte is read */
    assert_false(str_ok(&s));
    str_adds(&s, "dropped");
    assert_string_equal(str_c(&s), "kept");
    str_clear(&s);
    assert_true(str_ok(&s));
    str_adds(&s, "again");
    assert_string_equal(str_c(&s), "again");
    str_release(&s);
}

static void str_take__moves_the_text(void **state)
{
    Str s = STR_INIT;
    (void)state;
    str_adds(&s, "moved");
    char *p = str_take(&s);
    assert_string_equal(p, "moved");
    assert_string_equal(str_c(&s), "");
    free(p);
    p = str_take(&s);
    assert_string_equal(p, "");
    free(p);
}

static void str_take__is_null_after_a_failure(void **state)
{
    Str s = STR_INIT;
    (void)state;
    str_adds(&s, "x");
    str_add(&s, "x", SIZE_MAX);
    assert_null(str_take(&s));
    assert_true(str_ok(&s)); /* nothing is left to release */
}

static void str_starts_and_ends__compare_whole_affixes(void **state)
{
    (void)state;
    assert_true(str_starts("model.layers", "model."));
    assert_true(str_starts("x", ""));
    assert_false(str_starts("mo", "model"));
    assert_true(str_ends("a.json", ".json"));
    assert_true(str_ends("a", ""));
    assert_false(str_ends("json", ".json"));
    assert_false(str_ends("a.jsom", ".json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(str__starts_empty_and_readable),
        cmocka_unit_test(str__appends_stay_terminated),
        cmocka_unit_test(str__holds_nul_bytes),
        cmocka_unit_test(str__a_failed_growth_is_sticky_until_cleared),
        cmocka_unit_test(str_take__moves_the_text),
        cmocka_unit_test(str_take__is_null_after_a_failure),
        cmocka_unit_test(str_starts_and_ends__compare_whole_affixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
