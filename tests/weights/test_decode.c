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

static void decode__q5_0_takes_its_fifth_bits_from_one_word(void **state)
{
    uint8_t row[22] = {0x00, 0x38, 0x01, 0x00, 0x00, 0x80}; /* d = 0.5; bits 0 and 31 of h */
    float out[32];

    (void)state;
    row[6] = 0x23, row[21] = 0xf4;
    assert_true(dtype_row_to_f32(DT_Q5_0, row, 32, out));
    assert_true(out[0] == 1.5f && out[16] == -7.0f);  /* 3 + 16 - 16; 2 - 16 */
    assert_true(out[15] == -6.0f && out[31] == 7.5f); /* 4 - 16; 15 + 16 - 16 */
    assert_true(out[1] == -8.0f);
}

static void decode__q5_1_has_fifth_bits_and_a_minimum(void **state)
{
    uint8_t row[24] = {0x00, 0x38, 0x00, 0xbc, 0x00, 0x00, 0x01, 0x00}; /* d = 0.5, m = -1; bit 16 of h */
    float out[32];

    (void)state;
    row[8] = 0x23;
    assert_true(dtype_row_to_f32(DT_Q5_1, row, 32, out));
    assert_true(out[0] == 0.5f && out[16] == 8.0f && out[1] == -1.0f); /* 3/2 - 1; (2 + 16)/2 - 1 */
}

static void decode__iq4_nl_codes_stand_for_sixteen_values(void **state)
{
    uint8_t row[18] = {0x00, 0x38}; /* d = 0.5 */
    float out[32];

    (void)state;
    row[2] = 0x0f, row[3] = 0x87;
    assert_true(dtype_row_to_f32(DT_IQ4_NL, row, 32, out));
    assert_true(out[0] == 56.5f && out[16] == -63.5f && out[1] == -5.0f && out[17] == 0.5f);
}

static void decode__mxfp4_is_a_power_of_two_times_e2m1(void **state)
{
    uint8_t row[34] = {127, 0x10, 0x72, 0xf9}, subnormal[17] = {0, 0x21};
    float out[64];

    (void)state;
    row[17] = 130, row[33] = 0x5b;
    assert_true(dtype_row_to_f32(DT_MXFP4, row, 64, out));
    assert_true(out[0] == 0.0f && out[16] == 0.5f && out[1] == 1.0f && out[17] == 6.0f);
    assert_true(out[2] == -0.5f && out[18] == -6.0f && out[3] == 0.0f);
    assert_true(out[47] == -12.0f && out[63] == 24.0f); /* 8 times -1.5 and 3 */
    assert_true(dtype_row_to_f32(DT_MXFP4, subnormal, 32, out));
    assert_true(out[0] == 0x1p-128f && out[16] == 0x1p-127f);
}

static void decode__q2_k_takes_scale_and_minimum_for_16(void **state)
{
    uint8_t row[84] = {0};
    float out[256];

    (void)state;
    memcpy(row + 80, "\x00\x38\x00\x3c", 4); /* d = 0.5, dmin = 1 */
    row[0] = 0x13, row[15] = 0x2f;           /* elements 0..15: s = 3, m = 1; 240..255: s = 15, m = 2 */
    row[3] = 0xf1;                           /* elements 48..63: s = 1, m = 15 */
    row[16] = 0x02;                          /* element 0: 2 */
    row[16 + 63] = 0xc0;                     /* element 255: 3 */
    row[16 + 16] = 0x04;                     /* element 48 = 32 + 16: 1 */
    assert_true(dtype_row_to_f32(DT_Q2_K, row, 256, out));
    assert_true(out[0] == 2.0f && out[1] == -1.0f && out[16] == 0.0f);
    assert_true(out[48] == -14.5f && out[255] == 20.5f && out[254] == -2.0f);
}

static void decode__q3_k_scales_are_six_bits_in_three_places(void **state)
{
    uint8_t row[110] = {0};
    float out[256];

    (void)state;
    memcpy(row + 108, "\x00\x38", 2); /* d = 0.5 */
    row[96] = 0x91;                   /* low nibbles of scales 0 and 8: 1 and 9 */
    row[96 + 8] = 0x23;               /* top pairs of scales 0, 4, 8, 12: 3, 0, 2, 0 */
    row[0] = 0x01;                    /* h of element 0 */
    row[32] = 0x02, row[64] = 0x01;   /* elements 0 and 128: 2, 1 */
    assert_true(dtype_row_to_f32(DT_Q3_K, row, 256, out));
    assert_true(out[0] == 17.0f);    /* (1 + 48 - 32) * (2 + 4 - 4) / 2 */
    assert_true(out[1] == -34.0f);   /* 17 * -4 / 2 */
    assert_true(out[128] == -13.5f); /* (9 + 32 - 32) * (1 - 4) / 2 */
    assert_true(out[16] == 64.0f);   /* -32 * -4 / 2 */
}

static void decode__q4_k_scales_of_the_second_half_are_split(void **state)
{
    uint8_t row[144] = {0x00, 0x38, 0x00, 0x3c}; /* d = 0.5, dmin = 1 */
    float out[256];

    (void)state;
    row[4] = 0xc3;       /* s0 = 3, top of s4 = 3 */
    row[8] = 0x41;       /* m0 = 1, top of m4 = 1 */
    row[12] = 0x52;      /* low of s4 = 2, of m4 = 5 */
    row[16] = 0x7b;      /* elements 0 and 32: 11, 7 */
    row[16 + 64] = 0x0d; /* element 128: 13 */
    assert_true(dtype_row_to_f32(DT_Q4_K, row, 256, out));
    assert_true(out[0] == 15.5f && out[1] == -1.0f);       /* 3 * 11 / 2 - 1 */
    assert_true(out[32] == 0.0f);                          /* s1 = 0 */
    assert_true(out[128] == 304.0f && out[129] == -21.0f); /* (2 + 48) * 13 / 2 - (5 + 16) */
}

static void decode__q5_k_is_q4_k_with_a_plane_of_fifth_bits(void **state)
{
    uint8_t row[176] = {0x00, 0x38, 0x00, 0x3c}; /* d = 0.5, dmin = 1 */
    float out[256];

    (void)state;
    row[4] = 0x03, row[5] = 0x01, row[9] = 0x02; /* s0 = 3, s1 = 1, m1 = 2 */
    row[16] = 0x01, row[16 + 31] = 0x02;         /* h of elements 0 and 63 */
    row[48] = 0x7b, row[48 + 31] = 0xf0;
    assert_true(dtype_row_to_f32(DT_Q5_K, row, 256, out));
    assert_true(out[0] == 40.5f && out[32] == 1.5f && out[63] == 13.5f && out[62] == -2.0f && out[31] == 0.0f);
}

static void decode__q6_k_joins_nibbles_and_pairs(void **state)
{
    uint8_t row[210] = {0};
    float out[256];

    (void)state;
    memcpy(row + 208, "\x00\x38", 2);      /* d = 0.5 */
    row[192] = 2, row[192 + 4] = 0xfd;     /* scales of 0..15 and 64..79: 2, -3 */
    row[192 + 15] = 1;                     /* of 240..255 */
    row[0] = 0x5f, row[128] = 0x31;        /* nibbles 15 (element 0), 5 (64); pairs 1 (0), 3 (64) */
    row[127] = 0x90, row[128 + 63] = 0x80; /* element 255 = 128 + 64 + 63: nibble 9, pair 2 */
    assert_true(dtype_row_to_f32(DT_Q6_K, row, 256, out));
    assert_true(out[0] == -1.0f && out[1] == -32.0f && out[16] == 0.0f); /* 2 * (31 - 32) / 2 */
    assert_true(out[64] == -31.5f && out[65] == 48.0f);                  /* -3 * (53 - 32) / 2 */
    assert_true(out[255] == 4.5f);                                       /* 41 - 32 */
}

static void decode__iq4_xs_scales_have_their_top_bits_first(void **state)
{
    uint8_t row[136] = {0x00, 0x38, 0x02, 0xc0}; /* d = 0.5; top pairs of scale 0 and 7: 2, 3 */
    float out[256];

    (void)state;
    row[4] = 0x01, row[7] = 0x40;       /* low nibbles of scale 0 and 7: 1, 4 */
    row[8] = 0xf8, row[8 + 127] = 0x0f; /* elements 0, 16: codes 8, 15; 239, 255: 15, 0 */
    assert_true(dtype_row_to_f32(DT_IQ4_XS, row, 256, out));
    assert_true(out[0] == 0.5f && out[16] == 56.5f);          /* (1 + 32 - 32) */
    assert_true(out[239] == 1130.0f && out[255] == -1270.0f); /* 20 / 2 * 113, * -127 */
    assert_true(out[32] == 2032.0f);                          /* -32 / 2 * -127 */
}

static void decode__refuses_what_has_no_float_values(void **state)
{
    uint8_t row[64] = {0};
    float out[64];

    (void)state;
    assert_false(dtype_row_to_f32(DT_Q8_0, row, 31, out));
    assert_false(dtype_row_to_f32(DT_I64, row, 1, out));
    assert_false(dtype_row_to_f32(DT_NONE, row, 1, out));
    assert_false(dtype_row_to_f32(DT_Q4_K, row, 32, out));
    assert_false(dtype_row_to_f32(DT_I8_32, row, 32, out));
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

/* At every place of a row that is longer than what is looked at together. */
static void decode__finds_it_anywhere_in_a_row(void **state)
{
    static const DType types[] = {DT_F32, DT_F16, DT_BF16, DT_FP8_128};
    enum { LONG = 200 };
    uint8_t row[LONG * 4 + 8];

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (uint64_t i = 0; i < LONG; i++) {
            const uint64_t size = types[t] == DT_FP8_128 ? 1 : dtype_block_bytes(types[t]);
            uint64_t at = 999, head = types[t] == DT_FP8_128 ? 8 : 0;

            memset(row, 0, sizeof row);
            assert_true(dtype_row_finite(types[t], row, LONG, &at));
            memset(row + head + i * size, 0xff, (LONG - i) * size); /* and all behind it */
            assert_false(dtype_row_finite(types[t], row, LONG, &at));
            assert_int_equal(at, i);
        }
}

/* Every field that scales a block, set to the exponent of all ones in the second block; nothing else may matter. */
static void decode__finds_scales_that_are_not_finite_in_every_block_format(void **state)
{
    static const struct {
        DType t;
        uint8_t high[2]; /* high bytes of d and m, or of e */
        uint8_t bad;
    } cases[] = {{DT_Q8_0, {1, 1}, 0x7c},     {DT_Q4_0, {1, 1}, 0xfc},  {DT_Q4_1, {1, 3}, 0x7e},
                 {DT_Q5_0, {1, 1}, 0x7c},     {DT_Q5_1, {1, 3}, 0x7c},  {DT_IQ4_NL, {1, 1}, 0x7c},
                 {DT_MXFP4, {0, 0}, 0xff},    {DT_MXFP4, {0, 0}, 0xfd}, {DT_Q2_K, {81, 83}, 0x7c},
                 {DT_Q3_K, {109, 109}, 0xff}, {DT_Q4_K, {1, 3}, 0x7c},  {DT_Q5_K, {1, 3}, 0x7c},
                 {DT_Q6_K, {209, 209}, 0x7c}, {DT_IQ4_XS, {1, 1}, 0x7c}};
    uint8_t row[3 * 210];
    float out[3 * 256];
    uint64_t at = 0;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t block = dtype_block(cases[i].t), bytes = dtype_block_bytes(cases[i].t);
        for (int f = 0; f < 2; f++) {
            memset(row, 0xff, sizeof row);
            for (uint32_t b = 0; b < 3; b++)
                for (int h = 0; h < 2; h++)
                    row[b * bytes + cases[i].high[h]] = cases[i].t == DT_MXFP4 ? 252 : 0x7b;
            assert_true(dtype_row_finite(cases[i].t, row, 3 * block, &at));
            assert_true(dtype_row_to_f32(cases[i].t, row, 3 * block, out));
            for (uint32_t k = 0; k < 3 * block; k++)
                assert_true(out[k] - out[k] == 0.0f);
            row[bytes + cases[i].high[f]] = cases[i].bad;
            assert_false(dtype_row_finite(cases[i].t, row, 3 * block, &at));
            assert_int_equal(at, block);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode__float_rows_widen_exactly),
        cmocka_unit_test(decode__q8_0_is_scale_times_integer),
        cmocka_unit_test(decode__q4_0_low_nibbles_are_the_first_half),
        cmocka_unit_test(decode__q4_1_adds_the_minimum),
        cmocka_unit_test(decode__q5_0_takes_its_fifth_bits_from_one_word),
        cmocka_unit_test(decode__q5_1_has_fifth_bits_and_a_minimum),
        cmocka_unit_test(decode__iq4_nl_codes_stand_for_sixteen_values),
        cmocka_unit_test(decode__mxfp4_is_a_power_of_two_times_e2m1),
        cmocka_unit_test(decode__q2_k_takes_scale_and_minimum_for_16),
        cmocka_unit_test(decode__q3_k_scales_are_six_bits_in_three_places),
        cmocka_unit_test(decode__q4_k_scales_of_the_second_half_are_split),
        cmocka_unit_test(decode__q5_k_is_q4_k_with_a_plane_of_fifth_bits),
        cmocka_unit_test(decode__q6_k_joins_nibbles_and_pairs),
        cmocka_unit_test(decode__iq4_xs_scales_have_their_top_bits_first),
        cmocka_unit_test(decode__refuses_what_has_no_float_values),
        cmocka_unit_test(decode__finds_the_first_element_that_is_not_finite),
        cmocka_unit_test(decode__finds_it_anywhere_in_a_row),
        cmocka_unit_test(decode__finds_scales_that_are_not_finite_in_every_block_format),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
