/* dtype: names both ways, row sizes, refusals. */
#include "core/dtype.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void dtype__names_parse_back(void **state)
{
    (void)state;
    for (unsigned t = 0; t < DT_COUNT; t++) {
        DType back = DT_NONE;
        assert_true(dtype_parse(dtype_name((DType)t), &back));
        assert_int_equal(back, t);
    }
}

static void dtype__unknown_names_are_refused(void **state)
{
    DType t = DT_I64;
    (void)state;
    assert_false(dtype_parse("none", &t));
    assert_false(dtype_parse("", &t));
    assert_false(dtype_parse("BF16", &t));
    assert_int_equal(t, DT_I64); /* left alone */
    assert_string_equal(dtype_name(DT_NONE), "none");
    assert_int_equal(dtype_block(DT_NONE), 0);
}

static void dtype__rows_are_whole_blocks(void **state)
{
    uint64_t bytes = 0;
    (void)state;
    assert_true(dtype_row_bytes(DT_BF16, 1024, &bytes));
    assert_int_equal(bytes, 2048);
    assert_true(dtype_row_bytes(DT_Q4_0, 1024, &bytes));
    assert_int_equal(bytes, 576);
    assert_true(dtype_row_bytes(DT_Q8_0, 64, &bytes));
    assert_int_equal(bytes, 68);
    assert_true(dtype_row_bytes(DT_Q6_K, 512, &bytes));
    assert_int_equal(bytes, 420);
    assert_false(dtype_row_bytes(DT_Q6_K, 128, &bytes));
    assert_true(dtype_row_bytes(DT_F32, 0, &bytes));
    assert_int_equal(bytes, 0);
    assert_false(dtype_row_bytes(DT_Q8_0, 33, &bytes));
    assert_false(dtype_row_bytes(DT_NONE, 32, &bytes));
}

static void dtype__a_row_that_overflows_is_refused(void **state)
{
    uint64_t bytes = 7;
    (void)state;
    assert_false(dtype_row_bytes(DT_F32, UINT64_MAX / 4 + 1, &bytes));
    assert_int_equal(bytes, 7);
    assert_true(dtype_row_bytes(DT_F32, UINT64_MAX / 4, &bytes));
    assert_true(bytes == UINT64_MAX / 4 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtype__names_parse_back),
        cmocka_unit_test(dtype__unknown_names_are_refused),
        cmocka_unit_test(dtype__rows_are_whole_blocks),
        cmocka_unit_test(dtype__a_row_that_overflows_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
