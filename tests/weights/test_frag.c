/* test_frag.c - the layout `frag` against a second reading of layout.h's text: which byte of which lane holds code (n, k), and
 * where its scale is. */
#include "bytes.h"
#include "core/numeric.h"
#include "weights/decode.h"
#include "weights/layout.h"
#include <math.h>

/* Word of lane 4g + t of a fragment. */
static uint32_t word(const uint8_t *f, uint64_t g, uint64_t t, uint64_t w)
{
    uint32_t v;

    memcpy(&v, f + 16 * (4 * g + t) + 4 * w, 4);
    return v;
}

/* Code k of row r of a fragment of `bits` wide codes. Of each 16 k's lane t has 2t, 2t + 1, 2t + 8, 2t + 9. */
static uint32_t code(const uint8_t *f, uint32_t bits, uint64_t r, uint64_t k)
{
    uint64_t g = r % 8, t = k % 8 / 2, high = k % 16 / 8, odd = k % 2, lower = r / 8;

    if (bits == 16)
        return word(f, g, t, lower + 2 * high) >> 16 * odd & 0xffff;
    if (bits == 8)
        return word(f, g, t, lower + 2 * (k / 16)) >> 8 * (2 * high + odd) & 0xff;
    return word(f, g, t, lower + 2 * (k / 32)) >> (16 * odd + 4 * (k % 32 / 8)) & 15;
}

static float e2m1_at(const uint8_t *f, uint64_t r, uint64_t k)
{
    return e2m1_to_f32((uint8_t)code(f, 4, r, k % 64));
}

static float element(DType t, const uint8_t *tile, uint64_t r, uint64_t k)
{
    const uint8_t *p;
    uint16_t h;
    float d;

    switch (t) {
    case DT_F16:
    case DT_BF16:
        p = tile + k / 16 * 512;
        h = (uint16_t)code(p, 16, r, k % 16);
        return t == DT_F16 ? f16_to_f32(h) : bf16_to_f32(h);
    case DT_FP8_128:
        p = tile + k / 128 * 2112;
        memcpy(&d, p + 4 * r, 4);
        return d * e4m3_to_f32((uint8_t)code(p + 64 + k % 128 / 32 * 512, 8, r, k % 32));
    case DT_NVFP4:
        memcpy(&d, tile + 4 * r, 4);
        p = tile + 64 + k / 64 * 576;
        return d * (e4m3_to_f32(p[4 * r + k % 64 / 16]) * e2m1_at(p + 64, r, k));
    default:
        p = tile + k / 64 * 544;
        return ldexpf(e2m1_at(p + 32, r, k), p[2 * r + k % 64 / 32] - 127);
    }
}

static uint64_t groups(DType t, uint64_t k)
{
    uint64_t g = t == DT_FP8_128 ? 128 : t == DT_NVFP4 || t == DT_MXFP4 ? 64 : 32;
    return (k + g - 1) / g * g;
}

/* Row-major stored rows whose every code and scale is finite. */
static void fill(DType t, uint8_t *src, uint64_t n, uint64_t k, uint64_t row)
{
    uint32_t x = (uint32_t)(n * 977 + k);

    for (uint64_t i = 0; i < n * row; i++) {
        x = x * 1664525u + 1013904223u;
        src[i] = (uint8_t)(x >> 24);
        if (t == DT_F16 || t == DT_BF16)
            src[i] &= i % 2 ? 0xbb : 0xff; /* an exponent bit of either format is clear */
    }
    for (uint64_t r = 0; r < n && (t == DT_FP8_128 || t == DT_NVFP4); r++) {
        uint8_t *p = src + r * row;
        uint64_t heads = t == DT_FP8_128 ? (k + 127) / 128 : 1;
        for (uint64_t i = 0; i < heads; i++)
            memcpy(p + 4 * i, &(float){0.25f + (float)(r * 7 + i)}, 4);
        for (uint64_t i = 4 * heads; i < row; i++)
            p[i] &= 0xbf; /* no NaN of e4m3 */
    }
    for (uint64_t i = 0; i < n * row && t == DT_MXFP4; i += 17)
        src[i] = (uint8_t)(100 + src[i] % 50);
}

static void round_trip(DType t, uint64_t n, uint64_t k)
{
    uint64_t row, bytes, piece;

    assert_true(dtype_row_bytes(t, k, &row));
    assert_true(layout_bytes(LAYOUT_FRAG, t, n, k, &bytes) && layout_bytes(LAYOUT_FRAG, t, 16, k, &piece));
    assert_int_equal(bytes, (n + 15) / 16 * piece);
    assert_int_equal(piece % 16, 0); /* bulk copies take whole 16 bytes */
    uint8_t *src = malloc(n * row), *dst = malloc(bytes);
    float *want = malloc(k * sizeof *want);
    assert_true(src && dst && want);
    memset(dst, 0xa5, bytes);
    fill(t, src, n, k, row);
    for (uint64_t r = 0; r < n; r += 16)
        layout_piece(LAYOUT_FRAG, t, k, n - r < 16 ? (uint32_t)(n - r) : 16, src + r * row, dst + r / 16 * piece);
    for (uint64_t r = 0; r < (n + 15) / 16 * 16; r++) {
        if (r < n)
            assert_true(dtype_row_to_f32(t, src + r * row, k, want));
        for (uint64_t c = 0; c < groups(t, k); c++) {
            float got = element(t, dst + r / 16 * piece, r % 16, c), exact = r < n && c < k ? want[c] : 0.0f;
            if (got != exact)
                fail_msg("%s %llux%llu: (%llu, %llu) is %g, not %g", dtype_name(t), (unsigned long long)n,
                         (unsigned long long)k, (unsigned long long)r, (unsigned long long)c, got, exact);
        }
    }
    free(src);
    free(dst);
    free(want);
}

static void frag__keeps_every_element_and_pads_rows_and_groups_with_zeros(void **state)
{
    static const DType types[] = {DT_F16, DT_BF16, DT_FP8_128, DT_NVFP4, DT_MXFP4};
    static const uint64_t n[] = {1, 15, 16, 17, 40}, k[] = {32, 96, 128, 160, 320};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t i = 0; i < 5; i++)
            for (size_t j = 0; j < 5; j++)
                round_trip(types[t], n[i], k[j]);
    round_trip(DT_BF16, 17, 71);
    round_trip(DT_FP8_128, 17, 136);
    round_trip(DT_NVFP4, 17, 48);
}

static void frag__is_refused_for_other_formats_and_on_overflow(void **state)
{
    uint64_t bytes;

    (void)state;
    assert_false(layout_takes(LAYOUT_FRAG, DT_F32));
    assert_false(layout_takes(LAYOUT_FRAG, DT_Q4_K));
    assert_false(layout_bytes(LAYOUT_FRAG, DT_Q8_0, 16, 32, &bytes));
    assert_false(layout_bytes(LAYOUT_FRAG, DT_NVFP4, 16, 40, &bytes));
    assert_false(layout_bytes(LAYOUT_FRAG, DT_BF16, 1ull << 40, 1ull << 40, &bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frag__keeps_every_element_and_pads_rows_and_groups_with_zeros),
        cmocka_unit_test(frag__is_refused_for_other_formats_and_on_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
