/* test_decode.c - hand-made rows whose values are written down here, not computed. */
#include "bytes.h"
#include "weights/decode.h"

static void decode__float_rows_widen_exactly(void **state)
{
    static const uint8_t f16[] = {0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00, 0xff, 0x7b}; /* 1, -2, 2^-24, 65504 */
    static const uint8_t bf16[] = {0x80, 0x3f, 0x00, 0xc0, 0x49, 0x40};            /* 1, -2, 3.140625 */
    float in[3] = {1.5f, -0.0f, 1e-40f}, out[4];

    (void)state;
    assert_true(dtype_row_to_f32(DT_F32, in, 3, out));
    assert_memory_equal(out, in, sizeof in); /* -0 and subnormals, too */
    assert_true(dtype_row_to_f32(DT_F16, f16, 4, out));
    assert_true(out[0] == 1.0f && out[1] == -2.0f && out[2] == 0x1p-24f && out[3] == 65504.0f);
    assert_true(dtype_row_to_f32(DT_BF16, bf16, 3, out));
    assert_true(out[0] == 1.0f && out[1] == -2.0f && out[2] == 3.140625f);
}

static void decode__q8_0_is_scale_times_integer(void **state)
{
    uint8_t row[68] = {0x00, 0x38, 0x81, 0x7f}; /* d = 0.5; q = -127, 127 */
    float out[64];

    (void)state;
    row[33] = 0x80;                      /* q[31] = -128 */
    memcpy(row + 34, "\x00\x40\x03", 3); /* the second block: d = 2, q[0] = 3 */
    assert_true(dtype_row_to_f32(DT_Q8_0, row, 64, out));
    assert_true(out[0] == -63.5f && out[1] == 63.5f && out[2] == 0.0f && out[31] == -64.0f);
    assert_true(out[32] == 6.0f && out[33] == 0.0f);
}

static void decode__q4_0_low_nibbles_are_the_first_half(void **state)
{
    uint8_t row[18];
    float out[32];

    (void)state;
    memset(row, 0x88, sizeof row); /* nibble 8 is zero */
    row[0] = 0x00, row[1] = 0x38;  /* d = 0.5 */
    row[2] = 0xf0, row[17] = 0x1e;
    assert_true(dtype_row_to_f32(DT_Q4_0, row, 32, out));
    assert_true(out[0] == -4.0f && out[16] == 3.5f);  /* nibbles 0 and 15 */
    assert_true(out[15] == 3.0f && out[31] == -3.5f); /* nibbles 14 and 1 */
    for (int i = 1; i < 15; i++)
        assert_true(out[i] == 0.0f && out[16 + i] == 0.0f);
}

static void decode__q4_1_adds_the_minimum(void **state)
{
    uint8_t row[20] = {0x00, 0x38, 0x00, 0xbc}; /* d = 0.5, m = -1 */
    float out[32];

    (void)state;
    row[4] = 0xf1;
    assert_true(dtype_row_to_f32(DT_Q4_1, row, 32, out));
    assert_true(out[0] == -0.5f && out[16] == 6.5f && out[1] == -1.0f && out[31] == -1.0f);

    /* d*q is exact, the sum is rounded to nearest: floats at 2 are 2^-22 apart. */
    memcpy(row, "\x01\x00\x00\x40\x13", 5); /* d = 2^-24, m = 2 */
    assert_true(dtype_row_to_f32(DT_Q4_1, row, 32, out));
    assert_true(out[0] == 2.0f + 0x1p-22f && out[16] == 2.0f);
}

static void decode__refuses_what_has_no_float_values(void **state)
{
    uint8_t row[64] = {0};
    float out[64];

    (void)state;
    assert_false(dtype_row_to_f32(DT_Q8_0, row, 31, out));
    assert_false(dtype_row_to_f32(DT_I64, row, 1, out));
    assert_false(dtype_row_to_f32(DT_NONE, row, 1, out));
}

static void decode__finds_the_first_element_that_is_not_finite(void **state)
{
    float f[3] = {1, 2, 3};
    uint16_t h[3] = {0x7bff, 0xfc00, 0x7e00}; /* 65504, -inf, nan */
    uint8_t q[40] = {0};
    uint64_t at = 99;

    (void)state;
    assert_true(dtype_row_finite(DT_F32, f, 3, &at));
    memcpy(&f[2], "\x00\x00\x80\x7f", 4);
    assert_false(dtype_row_finite(DT_F32, f, 3, &at));
    assert_int_equal(at, 2);
    assert_false(dtype_row_finite(DT_F16, h, 3, &at));
    assert_int_equal(at, 1);
    h[1] = 0x7f80;
    assert_true(dtype_row_finite(DT_BF16, h, 1, &at)); /* 0x7bff is finite as bf16, too */
    assert_false(dtype_row_finite(DT_BF16, h, 2, &at));
    assert_int_equal(at, 1);
    memset(q + 4, 0xff, 16); /* quants may be anything */
    assert_true(dtype_row_finite(DT_Q4_1, q, 64, &at));
    q[23] = 0x7c; /* m of the second block */
    assert_false(dtype_row_finite(DT_Q4_1, q, 64, &at));
    assert_int_equal(at, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode__float_rows_widen_exactly),
        cmocka_unit_test(decode__q8_0_is_scale_times_integer),
        cmocka_unit_test(decode__q4_0_low_nibbles_are_the_first_half),
        cmocka_unit_test(decode__q4_1_adds_the_minimum),
        cmocka_unit_test(decode__refuses_what_has_no_float_values),
        cmocka_unit_test(decode__finds_the_first_element_that_is_not_finite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
