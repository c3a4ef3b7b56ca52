/* test_layout.c - every layout against a second reading of layout.h's text: where element (n, k) lies in the tiles. */
#include "bytes.h"
#include "core/numeric.h"
#include "weights/decode.h"
#include "weights/layout.h"
#include <math.h>

static const int8_t IQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const float E2M1[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6};

static float half(const uint8_t *p, uint64_t r)
{
    uint16_t h;

    memcpy(&h, p + 2 * r, 2);
    return f16_to_f32(h);
}

/* The planes of 32 k's: element e of row r. */
static int plane_b(const uint8_t *b, uint64_t r, uint64_t e)
{
    return (int8_t)b[64 * (e / 4) + 4 * r + e % 4];
}

static int plane_q(const uint8_t *q, uint64_t r, uint64_t e)
{
    uint8_t both = q[64 * (e % 16 / 4) + 4 * r + e % 4];

    return e < 16 ? both & 15 : both >> 4;
}

static int plane_p(const uint8_t *p, uint64_t r, uint64_t e)
{
    return p[64 * (e / 16) + 4 * r + e % 4] >> 2 * (e % 16 / 4) & 3;
}

static int plane_h(const uint8_t *h, uint64_t r, uint64_t e)
{
    return h[4 * r + e % 4] >> e / 4 & 1;
}

/* Element (n, k) of an n16 tensor of k_len columns, from the text of layout.h. */
static float layout_element(DType t, const uint8_t *p, uint64_t k_len, uint64_t n, uint64_t k)
{
    uint64_t tile = n / 16, r = n % 16, b = k / 32, e = k % 32, s = e / 16;
    const uint8_t *block, *top, *cell;
    uint16_t h;
    float f;

#define BLOCK(bytes)  (block = p + (tile * (k_len / 32) + b) * (bytes))
#define CELL(h, c, n) (top = p + (tile * (k_len / 256) + k / 256) * (n), cell = top + (h) + b % 8 * (c))
    switch (t) {
    case DT_F32:
        memcpy(&f, p + (tile * k_len * 16 + k * 16 + r) * 4, 4);
        return f;
    case DT_F16:
    case DT_BF16:
        memcpy(&h, p + (tile * k_len * 16 + k * 16 + r) * 2, 2);
        return t == DT_F16 ? f16_to_f32(h) : bf16_to_f32(h);
    case DT_Q8_0:
        BLOCK(544);
        return half(block, r) * (float)plane_b(block + 32, r, e);
    case DT_Q4_0:
        BLOCK(288);
        return half(block, r) * (float)(plane_q(block + 32, r, e) - 8);
    case DT_Q4_1:
        BLOCK(320);
        return half(block, r) * (float)plane_q(block + 64, r, e) + half(block + 32, r);
    case DT_Q5_0:
        BLOCK(352);
        return half(block, r) * (float)(plane_q(block + 96, r, e) + 16 * plane_h(block + 32, r, e) - 16);
    case DT_Q5_1:
        BLOCK(384);
        return half(block, r) * (float)(plane_q(block + 128, r, e) + 16 * plane_h(block + 64, r, e)) +
               half(block + 32, r);
    case DT_IQ4_NL:
        BLOCK(288);
        return half(block, r) * (float)IQ4[plane_q(block + 32, r, e)];
    case DT_MXFP4:
        BLOCK(272);
        return ldexpf(E2M1[plane_q(block + 16, r, e)], block[r] - 127);
    case DT_Q2_K:
        CELL(64, 160, 1344);
        return half(top, r) * (float)((cell[16 * s + r] & 15) * plane_p(cell + 32, r, e)) -
               half(top + 32, r) * (float)(cell[16 * s + r] >> 4);
    case DT_Q3_K:
        CELL(32, 224, 1824);
        return half(top, r) *
               (float)((int8_t)cell[16 * s + r] * (plane_p(cell + 96, r, e) + 4 * plane_h(cell + 32, r, e) - 4));
    case DT_Q4_K:
        CELL(64, 288, 2368);
        return half(top, r) * (float)(cell[r] * plane_q(cell + 32, r, e)) - half(top + 32, r) * (float)cell[16 + r];
    case DT_Q5_K:
        CELL(64, 352, 2880);
        return half(top, r) * (float)(cell[r] * (plane_q(cell + 96, r, e) + 16 * plane_h(cell + 32, r, e))) -
               half(top + 32, r) * (float)cell[16 + r];
    case DT_Q6_K:
        CELL(32, 416, 3360);
        return half(top, r) *
               (float)((int8_t)cell[16 * s + r] * (plane_q(cell + 160, r, e) + 16 * plane_p(cell + 32, r, e) - 32));
    case DT_IQ4_XS:
        CELL(32, 272, 2208);
        return half(top, r) * (float)((int8_t)cell[r] * IQ4[plane_q(cell + 16, r, e)]);
    default:
        fail_msg("no such layout");
        return 0;
    }
#undef BLOCK
#undef CELL
}

static uint32_t random_next(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

/* Random bytes whose floats and scales are finite: no exponent is all ones. */
static void fill(DType t, uint8_t *p, size_t bytes, uint32_t *seed)
{
    static const struct {
        DType t;
        uint8_t at[2]; /* high bytes of the floats of a block; 0: none */
    } scales[] = {{DT_F32, {3}},    {DT_Q4_1, {1, 3}}, {DT_Q5_1, {1, 3}}, {DT_MXFP4, {0}}, {DT_Q2_K, {81, 83}},
                  {DT_Q3_K, {109}}, {DT_Q4_K, {1, 3}}, {DT_Q5_K, {1, 3}}, {DT_Q6_K, {209}}};
    const uint8_t *at = (const uint8_t[]){1, 0};
    size_t step = dtype_block_bytes(t);

    for (size_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)random_next(seed);
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
        if (scales[i].t == t)
            at = scales[i].at;
    for (size_t i = 0; i < bytes; i += step) {
        p[i + at[0]] &= 0xbf; /* clears the top exponent bit */
        p[i + (at[1] ? at[1] : at[0])] &= 0xbf;
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
    static const DType types[] = {DT_F32,    DT_F16,   DT_BF16, DT_Q8_0, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1,
                                  DT_IQ4_NL, DT_MXFP4, DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_IQ4_XS};
    static const uint64_t n[] = {1, 15, 16, 17, 48};

    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (size_t j = 0; j < sizeof n / sizeof n[0]; j++) {
            round_trip(types[i], n[j], dtype_block(types[i]) == 256 ? 256 : 32);
            round_trip(types[i], n[j], dtype_block(types[i]) == 256 ? 768 : 160);
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
    assert_true(layout_bytes(LAYOUT_N16, DT_Q4_K, 17, 512, &bytes));
    assert_int_equal(bytes, 2 * 2 * 2368);
    assert_false(layout_bytes(LAYOUT_N16, DT_Q4_K, 16, 128, &bytes));
    assert_false(layout_bytes(LAYOUT_N16, DT_Q4_K, 16, 1ull << 61, &bytes)); /* fits as stored, not laid out */
    assert_false(layout_bytes(LAYOUT_N16, DT_I8_32, 16, 32, &bytes));
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
