/* test_input.c - numbers and standard input as commands take them: nothing that wraps, nothing without an end. */
#include "cli/cli.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void cli__whole_number_is_digits_within_bounds(void **state)
{
    static const char *const refused[] = {"",     " 8",   "8 ",  "+8",
                                          "-8",   "0x10", "8.0", "1e3",
                                          "\xff", "3",    "101", "18446744073709551624"}; /* 8 when it wraps */
    uint64_t n = 7;

    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_false(cli_whole(refused[i], 4, 100, &n));
    assert_int_equal(n, 7);
    assert_true(cli_whole("4", 4, 100, &n) && n == 4);
    assert_true(cli_whole("0100", 4, 100, &n) && n == 100);
    assert_true(cli_whole("18446744073709551615", 0, UINT64_MAX, &n) && n == UINT64_MAX);
}

static void cli__input_without_an_end_is_refused(void **state)
{
    Str s = STR_INIT;
    Err err;

    (void)state;
    assert_non_null(freopen("/dev/zero", "rb", stdin));
    assert_int_equal(cli_stdin(&s, &err), ST_INVALID);
    assert_non_null(strstr(err.msg, "256 MiB"));
    assert_true(s.len <= CLI_MAX_INPUT);
    str_release(&s);
}

static void cli__unreadable_input_is_no_empty_input(void **state)
{
    Str s = STR_INIT;
    Err err;
    bool more = true;

    (void)state;
    assert_non_null(freopen("/", "rb", stdin));
    assert_int_equal(cli_stdin(&s, &err), ST_IO);
    assert_int_equal(cli_stdin_line(&s, &more, &err), ST_IO);
    str_release(&s);
}

static void write_lines(const char *bytes, size_t n, size_t filler)
{
    FILE *f = fopen("lines.txt", "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    for (size_t i = 0; i < filler; i++)
        putc('a', f);
    assert_int_equal(fclose(f), 0);
    assert_non_null(freopen("lines.txt", "rb", stdin));
}

static void cli__lines_end_with_a_newline_or_the_input(void **state)
{
    Str s = STR_INIT;
    Err err;
    bool more;

    (void)state;
    write_lines("one\n\ntwo", 8, 0);
    assert_int_equal(cli_stdin_line(&s, &more, &err), ST_OK);
    assert_true(more && strcmp(str_c(&s), "one") == 0);
    assert_int_equal(cli_stdin_line(&s, &more, &err), ST_OK);
    assert_true(more && s.len == 0);
    assert_int_equal(cli_stdin_line(&s, &more, &err), ST_OK);
    assert_true(more && strcmp(str_c(&s), "two") == 0);
    assert_int_equal(cli_stdin_line(&s, &more, &err), ST_OK);
    assert_false(more);
    str_release(&s);
}

static void cli__line_that_is_no_text_or_has_no_end_is_refused(void **state)
{
    Str s = STR_INIT;
    Err err;
    bool more;

    (void)state;
    write_lines("a\0b\n", 4, 0);
    assert_int_equal(cli_stdin_line(&s, &more, &err), ST_INVALID);
    write_lines("", 0, CLI_MAX_LINE);
    assert_int_equal(cli_stdin_line(&s, &more, &err), ST_OK);
    write_lines("", 0, (size_t)CLI_MAX_LINE + 1);
    assert_int_equal(cli_stdin_line(&s, &more, &err), ST_INVALID);
    str_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cli__whole_number_is_digits_within_bounds),
        cmocka_unit_test(cli__input_without_an_end_is_refused),
        cmocka_unit_test(cli__unreadable_input_is_no_empty_input),
        cmocka_unit_test(cli__lines_end_with_a_newline_or_the_input),
        cmocka_unit_test(cli__line_that_is_no_text_or_has_no_end_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
