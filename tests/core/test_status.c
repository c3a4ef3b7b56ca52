/* status: one sentence per failure, never cut inside a character. */
#include "core/status.h"
#include "core/utf8.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void status__every_value_has_its_own_text(void **state)
{
    static const Status all[] = {
#define X(name, value, text) ST_##name,
        STATUS_MAP(X)
#undef X
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(status_text(all[i]), status_text(all[k]));
    assert_string_equal(status_text(ST_OK), "ok");
    assert_string_equal(status_text((Status)-1000), "unknown status");
}

static void err_set__formats_and_returns_its_status(void **state)
{
    Err err;
    (void)state;
    assert_int_equal(err_set(&err, ST_IO, "%s: cannot open %d", "a.bin", 7), ST_IO);
    assert_string_equal(err.msg, "a.bin: cannot open 7");
}

static void err_set__takes_no_err(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, ST_BUSY, "full"), ST_BUSY);
    assert_int_equal(err_wrap(NULL, ST_BUSY, "full"), ST_BUSY);
}

static void err_set__may_quote_the_message_it_replaces(void **state)
{
    Err err;
    (void)state;
    err_set(&err, ST_IO, "inner");
    err_set(&err, ST_IO, "outer (%s)", err.msg);
    assert_string_equal(err.msg, "outer (inner)");
}

static void err_wrap__puts_the_prefix_in_front(void **state)
{
    Err err;
    (void)state;
    err_set(&err, ST_FORMAT, "bad value");
    assert_int_equal(err_wrap(&err, ST_FORMAT, "%s: ", "config.json"), ST_FORMAT);
    assert_string_equal(err.msg, "config.json: bad value");
}

static void err_set__cuts_a_long_message_between_characters(void **state)
{
    char text[2000 + 1];
    Err err;
    (void)state;
    for (size_t shift = 0; shift < 3; shift++) { /* 3-byte characters at every alignment against the end */
        memset(text, 'x', sizeof text);
        for (size_t i = shift; i + 3 < sizeof text; i += 3)
            memcpy(text + i, "\xe2\x82\xac", 3);
        text[shift + (sizeof text - 1 - shift) / 3 * 3] = '\0';
        err_set(&err, ST_FORMAT, "%s", text);
        assert_true(strlen(err.msg) >= sizeof err.msg - 4);
        assert_true(utf8_valid(err.msg, strlen(err.msg)));
        err_wrap(&err, ST_FORMAT, "%s", "prefix: ");
        assert_true(strncmp(err.msg, "prefix: ", 8) == 0);
        assert_true(utf8_valid(err.msg, strlen(err.msg)));
    }
}

static Status fails_second(int *reached)
{
    Status st = ST_OK;
    TRY(ST_OK);
    *reached = 1;
    TRY(ST_CANCELLED);
    *reached = 2;
done:
    return st;
}

static void try__leaves_at_the_first_failure(void **state)
{
    int reached = 0;
    (void)state;
    assert_int_equal(fails_second(&reached), ST_CANCELLED);
    assert_int_equal(reached, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status__every_value_has_its_own_text),
        cmocka_unit_test(err_set__formats_and_returns_its_status),
        cmocka_unit_test(err_set__takes_no_err),
        cmocka_unit_test(err_set__may_quote_the_message_it_replaces),
        cmocka_unit_test(err_wrap__puts_the_prefix_in_front),
        cmocka_unit_test(err_set__cuts_a_long_message_between_characters),
        cmocka_unit_test(try__leaves_at_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
