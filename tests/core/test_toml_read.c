/* toml_read: absent keys leave the default, wrong kinds name file, line and key. */
#include "core/toml.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char text[] = "s = \"x\"\n"
                           "i = 7\n"
                           "f = 2.5\n"
                           "b = true\n"
                           "a = [1]\n"
                           "[t]\n"
                           "k = 1\n";

static int setup(void **state)
{
    Err err;
    return toml_parse(text, strlen(text), "t.toml", (Toml **)state, &err);
}

static int teardown(void **state)
{
    toml_free(*state);
    return 0;
}

static void toml_read__present_values_are_read(void **state)
{
    const Toml *t = *state;
    const char *s = NULL, *needed = NULL;
    int64_t i = 0;
    double f = 0, from_int = 0;
    bool b = false;
    const TomlNode *table = NULL, *array = NULL;
    Err err;
    assert_int_equal(toml_str(t, &t->root, "s", &s, &err), ST_OK);
    assert_int_equal(toml_need_str(t, &t->root, "s", &needed, &err), ST_OK);
    assert_int_equal(toml_int(t, &t->root, "i", &i, &err), ST_OK);
    assert_int_equal(toml_float(t, &t->root, "f", &f, &err), ST_OK);
    assert_int_equal(toml_float(t, &t->root, "i", &from_int, &err), ST_OK);
    assert_int_equal(toml_bool(t, &t->root, "b", &b, &err), ST_OK);
    assert_int_equal(toml_table(t, &t->root, "t", &table, &err), ST_OK);
    assert_int_equal(toml_array(t, &t->root, "a", &array, &err), ST_OK);
    assert_string_equal(s, "x");
    assert_string_equal(needed, "x");
    assert_int_equal(i, 7);
    assert_true(f == 2.5 && from_int == 7.0 && b);
    assert_int_equal(table->kind, TOML_TABLE);
    assert_int_equal(array->list.len, 1);
}

static void toml_read__absent_keys_leave_the_default(void **state)
{
    const Toml *t = *state;
    const char *s = "default";
    int64_t i = 42;
    double f = 0.5;
    bool b = true;
    const TomlNode *table = &t->root, *array = &t->root;
    Err err;
    assert_int_equal(toml_str(t, &t->root, "no", &s, &err), ST_OK);
    assert_int_equal(toml_int(t, &t->root, "no", &i, &err), ST_OK);
    assert_int_equal(toml_float(t, &t->root, "no", &f, &err), ST_OK);
    assert_int_equal(toml_bool(t, &t->root, "no", &b, &err), ST_OK);
    assert_int_equal(toml_table(t, &t->root, "no", &table, &err), ST_OK);
    assert_int_equal(toml_array(t, &t->root, "no", &array, &err), ST_OK);
    assert_string_equal(s, "default");
    assert_int_equal(i, 42);
    assert_true(f == 0.5 && b);
    assert_null(table);
    assert_null(array);
}

static void toml_read__wrong_kinds_name_file_line_key_and_type(void **state)
{
    const Toml *t = *state;
    const char *s = NULL;
    int64_t i = 0;
    double f = 0;
    bool b = false;
    const TomlNode *n = NULL;
    Err err;
    assert_int_equal(toml_str(t, &t->root, "i", &s, &err), ST_FORMAT);
    assert_string_equal(err.msg, "t.toml:2: 'i' is of type integer; write a value of type string");
    assert_int_equal(toml_need_str(t, &t->root, "b", &s, &err), ST_FORMAT);
    assert_true(strncmp(err.msg, "t.toml:4: 'b' ", 14) == 0);
    assert_int_equal(toml_int(t, &t->root, "f", &i, &err), ST_FORMAT);
    assert_true(strncmp(err.msg, "t.toml:3: 'f' ", 14) == 0);
    assert_int_equal(toml_float(t, &t->root, "s", &f, &err), ST_FORMAT);
    assert_true(strncmp(err.msg, "t.toml:1: 's' ", 14) == 0);
    assert_int_equal(toml_bool(t, &t->root, "i", &b, &err), ST_FORMAT);
    assert_int_equal(toml_table(t, &t->root, "a", &n, &err), ST_FORMAT);
    assert_true(strncmp(err.msg, "t.toml:5: 'a' ", 14) == 0);
    assert_int_equal(toml_array(t, &t->root, "t", &n, &err), ST_FORMAT);
    assert_true(strncmp(err.msg, "t.toml:6: 't' ", 14) == 0);
    assert_null(n);
}

static void toml_read__a_needed_key_that_is_missing_is_refused(void **state)
{
    const Toml *t = *state;
    const char *s = NULL;
    Err err;
    assert_int_equal(toml_need_str(t, toml_find(&t->root, "t"), "name", &s, &err), ST_FORMAT);
    assert_string_equal(err.msg, "t.toml:6: 'name' is missing here; add name = \"...\"");
}

static void toml_only__refuses_an_unknown_key_and_lists_the_allowed(void **state)
{
    static const char *const all[] = {"s", "i", "f", "b", "a", "t", "extra", NULL};
    static const char *const some[] = {"s", "i", "f", NULL};
    const Toml *t = *state;
    Err err;
    assert_int_equal(toml_only(t, &t->root, all, &err), ST_OK);
    assert_int_equal(toml_only(t, &t->root, some, &err), ST_FORMAT);
    assert_string_equal(err.msg, "t.toml:4: unknown key 'b'; allowed here: s, i, f");
    assert_int_equal(toml_only(t, toml_find(&t->root, "a"), all, &err), ST_FORMAT);
    assert_true(strncmp(err.msg, "t.toml:5: ", 10) == 0);
}

static void toml_err__names_file_and_line(void **state)
{
    const Toml *t = *state;
    Err err;
    assert_int_equal(toml_err(t, toml_find(&t->root, "f"), &err, ST_UNSUPPORTED, "no %d", 5), ST_UNSUPPORTED);
    assert_string_equal(err.msg, "t.toml:3: no 5");
    assert_int_equal(toml_err(t, &t->root, NULL, ST_INVALID, "dropped"), ST_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(toml_read__present_values_are_read),
        cmocka_unit_test(toml_read__absent_keys_leave_the_default),
        cmocka_unit_test(toml_read__wrong_kinds_name_file_line_key_and_type),
        cmocka_unit_test(toml_read__a_needed_key_that_is_missing_is_refused),
        cmocka_unit_test(toml_only__refuses_an_unknown_key_and_lists_the_allowed),
        cmocka_unit_test(toml_err__names_file_and_line),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
