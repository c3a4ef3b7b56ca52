/* One written table that stands for many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/toml_each.h"
#include <stdio.h>
#include <string.h>

static Toml *parsed(const char *text)
{
    Toml *t;
    Err e;
    if (toml_parse(text, strlen(text), "f.toml", &t, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return t;
}

static void each__a_table_stands_for_one_of_each_element(void **state)
{
    (void)state;
    Err e;
    Toml *t =
        parsed("[[a]]\nid = \"one\"\n[[a]]\neach = { f = [\"x\", \"y\"], n = [\"1\", \"2\"] }\nid = \"{f}-{n}-{f}\"\n"
               "sub = { \"{f}.w\" = [\"{n}\", \"{z}\", \"{\"] }\nk = 7\n[[a]]\nid = \"last\"\n");
    assert_int_equal(toml_each(t, &e), ST_OK);
    const TomlNode *a = toml_find(&t->root, "a");
    assert_int_equal(a->list.len, 4);
    assert_string_equal(toml_find(&a->list.items[0], "id")->str, "one");
    assert_string_equal(toml_find(&a->list.items[1], "id")->str, "x-1-x");
    assert_string_equal(toml_find(&a->list.items[2], "id")->str, "y-2-y");
    assert_string_equal(toml_find(&a->list.items[3], "id")->str, "last");
    assert_null(toml_find(&a->list.items[1], "each"));
    assert_int_equal(toml_find(&a->list.items[2], "k")->i, 7);
    const TomlNode *list = toml_find(toml_find(&a->list.items[2], "sub"), "y.w");
    assert_non_null(list);
    assert_string_equal(list->list.items[0].str, "2");
    assert_string_equal(list->list.items[1].str, "{z}"); /* names no list */
    assert_string_equal(list->list.items[2].str, "{");
    assert_int_equal(a->list.items[1].line, a->list.items[2].line);
    toml_free(t);
}

static void refused(const char *each, const char *word)
{
    char text[256];
    Err e;
    snprintf(text, sizeof text, "[[a]]\nid = \"q\"\neach = %s\n", each);
    Toml *t = parsed(text);
    assert_int_equal(toml_each(t, &e), ST_FORMAT);
    if (strncmp(e.msg, "f.toml:3: ", 10) != 0 || strstr(e.msg, word) == NULL)
        fail_msg("%s: \"%s\"", each, e.msg);
    toml_free(t);
}

static void each__lists_must_be_strings_and_equally_long(void **state)
{
    (void)state;
    refused("7", "table of lists");
    refused("{}", "table of lists");
    refused("{ f = \"x\" }", "each.f");
    refused("{ f = [] }", "at least one");
    refused("{ f = [1] }", "no string");
    refused("{ f = [\"x\"], g = [\"y\", \"z\"] }", "2 elements");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each__a_table_stands_for_one_of_each_element),
        cmocka_unit_test(each__lists_must_be_strings_and_equally_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
