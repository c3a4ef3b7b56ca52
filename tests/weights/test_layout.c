/* test_layout.c - every layout against a second reading of layout.h's text: where element (n, k) lies in the tiles. */
#include "bytes.h"
#include "core/numeric.h"
#include "weights/decode.h"
#include "weights/layout.h"

/* Element (n, k) of an n16 tensor of k_len columns, from the formulas of layout.h. */
static float layout_element(DType t, const uint8_t *p, uint64_t k_len, uint64_t n, uint64_t k)
{
    uint64_t tile = n / 16, r = n % 16, b = k / 32, e = k % 32, g, j;
    uint16_t d, m;
    float f;

    switch (t) {
    case DT_F32:
        memcpy(&f, p + (tile * k_len * 16 + k * 16 + r) * 4, 4);
        return f;
    case DT_F16:
    case DT_BF16:
        memcpy(&d, p + (tile * k_len * 16 + k * 16 + r) * 2, 2);
        return t == DT_F16 ? f16_to_f32(d) : bf16_to_f32(d);
    case DT_Q8_0:
        p += (tile * (k_len / 32) + b) * 544;
        memcpy(&d, p + r * 2, 2);
        g = e / 4, j = e % 4;
        return f16_to_f32(d) * (float)(int8_t)p[32 + (g * 16 + r) * 4 + j];
    case DT_Q4_0:
        p += (tile * (k_len / 32) + b) * 288;
        memcpy(&d, p + r * 2, 2);
        g = e % 16 / 4, j = e % 4;
        return f16_to_f32(d) * (float)((p[32 + (g * 16 + r) * 4 + j] >> (e < 16 ? 0 : 4) & 15) - 8);
    case DT_Q4_1:
        p += (tile * (k_len / 32) + b) * 320;
        memcpy(&d, p + r * 2, 2);
        memcpy(&m, p + 32 + r * 2, 2);
        g = e % 16 / 4, j = e % 4;
        f = f16_to_f32(d) * (float)(p[64 + (g * 16 + r) * 4 + j] >> (e < 16 ? 0 : 4) & 15);
        return f + f16_to_f32(m);
    default:
        fail_msg("no such layout");
        return 0;
    }
}

static uint32_t random_next(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

/* Random bytes whose floats and scales are finite (exponents below all ones). */
static void fill(DType t, uint8_t *p, size_t bytes, uint32_t *seed)
{
    size_t step = t == DT_F32 ? 4 : t == DT_F16 || t == DT_BF16 ? 2 : dtype_block_bytes(t);

    for (size_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)random_next(seed);
    for (size_t i = 0; i < bytes; i += step) {
        p[i + (t == DT_F32 ? 3 : 1)] &= 0xbf; /* clears the top exponent bit */
        if (t == DT_Q4_1)
            p[i + 3] &= 0xbf;
    }
}

static void round_trip(DType t, uint64_t n, uint64_t k)
{
    uint64_t row, bytes, piece;
    uint32_t rows = layout_rows(LAYOUT_N16), seed = (uint32_t)(n * 1000 + k);
    uint8_t *src, *dst;
    float *want = malloc((k + 1) * sizeof(float));

    assert_true(dtype_row_bytes(t, k, &row));
    assert_true(layout_bytes(LAYOUT_N16, t, n, k, &bytes));
    assert_true(layout_bytes(LAYOUT_N16, t, rows, k, &piece));
    assert_int_equal(bytes, (n + 15) / 16 * piece);
    src = malloc(n * row);
    dst = malloc(bytes);
    assert_true(want != NULL && src != NULL && dst != NULL);
    memset(dst, 0xa5, bytes); /* what is not written shows */
    fill(t, src, n * row, &seed);
    for (uint64_t r = 0; r < n; r += rows)
        layout_piece(LAYOUT_N16, t, k, n - r < rows ? (uint32_t)(n - r) : rows, src + r * row, dst + r / rows * piece);
    for (uint64_t r = 0; r < n; r++) {
        assert_true(dtype_row_to_f32(t, src + r * row, k, want));
        for (uint64_t c = 0; c < k; c++) {
            float got = layout_element(t, dst, k, r, c);
            if (memcmp(&got, &want[c], 4) != 0)
                fail_msg("%s %llux%llu: (%llu, %llu) is %g, not %g", dtype_name(t), (unsigned long long)n,
                         (unsigned long long)k, (unsigned long long)r, (unsigned long long)c, got, want[c]);
        }
    }
    for (uint64_t r = n; r < (n + 15) / 16 * 16; r++)
        for (uint64_t c = 0; c < k; c++)
            assert_true(layout_element(t, dst, k, r, c) == 0.0f);
    free(src);
    free(dst);
    free(want);
}

static void layout__n16_keeps_every_element_and_pads_with_zeros(void **state)
{
    static const DType types[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0, DT_Q4_1};
    static const uint64_t n[] = {1, 15, 16, 17, 48};

    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (size_t j = 0; j < sizeof n / sizeof n[0]; j++) {
            round_trip(types[i], n[j], 32);
            round_trip(types[i], n[j], 160);
            if (dtype_block(types[i]) == 1) {
                round_trip(types[i], n[j], 1);
                round_trip(types[i], n[j], 33);
                round_trip(types[i], n[j], 71);
            }
        }
    }
}

static void layout__row_is_the_stored_bytes(void **state)
{
    uint8_t src[36], dst[36];
    uint64_t bytes;

    (void)state;
    for (int i = 0; i < 36; i++)
        src[i] = (uint8_t)i;
    assert_true(layout_bytes(LAYOUT_ROW, DT_Q4_0, 7, 64, &bytes));
    assert_int_equal(bytes, 7 * 36);
    layout_piece(LAYOUT_ROW, DT_Q4_0, 64, 1, src, dst);
    assert_memory_equal(src, dst, 36);
}

static void layout__f32_widens_vectors(void **state)
{
    static const uint8_t bf16[] = {0x80, 0x3f, 0x00, 0xc0, 0x49, 0x40};
    float out[3];
    uint64_t bytes;

    (void)state;
    assert_true(layout_bytes(LAYOUT_F32, DT_BF16, 1, 3, &bytes));
    assert_int_equal(bytes, 12);
    assert_int_equal(layout_dtype(LAYOUT_F32, DT_BF16), DT_F32);
    assert_int_equal(layout_dtype(LAYOUT_N16, DT_BF16), DT_BF16);
    layout_piece(LAYOUT_F32, DT_BF16, 3, 1, bf16, out);
    assert_true(out[0] == 1.0f && out[1] == -2.0f && out[2] == 3.140625f);
}

static void layout__bytes_refuses_overflow_and_partial_blocks(void **state)
{
    uint64_t bytes;

    (void)state;
    assert_true(layout_bytes(LAYOUT_N16, DT_Q4_1, 17, 64, &bytes));
    assert_int_equal(bytes, 2 * 2 * 320);
    assert_false(layout_bytes(LAYOUT_N16, DT_Q4_1, 17, 48, &bytes));
    assert_false(layout_bytes(LAYOUT_N16, DT_F32, UINT64_MAX, 1, &bytes));
    assert_false(layout_bytes(LAYOUT_N16, DT_F32, UINT64_MAX - 20, 2, &bytes));
    assert_false(layout_bytes(LAYOUT_ROW, DT_F32, 1ull << 32, 1ull << 32, &bytes));
    assert_false(layout_bytes(LAYOUT_F32, DT_F16, 1, UINT64_MAX / 2, &bytes));
    assert_false(layout_bytes(LAYOUT_F32, DT_Q8_0, 1, 32, &bytes));
    assert_false(layout_bytes(LAYOUT_N16, DT_I64, 1, 32, &bytes));
}

static void layout__names_go_there_and_back(void **state)
{
    WeightLayout l;

    (void)state;
    for (int i = 0; i < LAYOUT_COUNT; i++) {
        assert_true(layout_parse(layout_name((WeightLayout)i), &l));
        assert_int_equal(l, i);
    }
    assert_false(layout_parse("n17", &l));
    assert_string_equal(layout_name(LAYOUT_N16), "n16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout__n16_keeps_every_element_and_pads_with_zeros),
        cmocka_unit_test(layout__row_is_the_stored_bytes),
        cmocka_unit_test(layout__f32_widens_vectors),
        cmocka_unit_test(layout__bytes_refuses_overflow_and_partial_blocks),
        cmocka_unit_test(layout__names_go_there_and_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
