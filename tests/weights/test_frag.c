/* test_frag.c - the layout `frag` against a second reading of layout.h's text: which byte of which lane holds code (n, k), and
 * where its scale is. */
#include "bytes.h"
#include "core/numeric.h"
#include "weights/block.h"
#include "weights/decode.h"
#include "weights/layout.h"
#include "weights/rowed.h"
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

/* Pair j of 64 k's is k 8j + 2t and its neighbour. */
static uint32_t plane2(const uint8_t *p, uint64_t r, uint64_t k)
{
    return load_u32(p + 8 * (4 * (r % 8) + k % 8 / 2) + 4 * (r / 8)) >> (2 * (k / 8) + 16 * (k % 2)) & 3;
}

static uint32_t plane1(const uint8_t *h, uint64_t r, uint64_t k)
{
    return load_u32(h + 4 * (4 * (r % 8) + k % 8 / 2)) >> (k / 8 + 16 * (k % 2) + 8 * (r / 8)) & 1;
}

/* A code of `bits` in planes, k in its group of n: 1 bit, then 2, then 4 or 8. */
static uint32_t in_planes(const uint8_t *at, uint32_t bits, uint64_t n, uint64_t r, uint64_t k)
{
    const uint8_t *two = at + (bits & 1 ? n / 64 * 128 : 0), *wide = two + (bits & 2 ? n / 64 * 256 : 0);
    uint32_t low = 0, shift = bits & 12;

    if (shift == 8)
        return code(wide + k / 32 * 512, 8, r, k % 32);
    if (shift == 4)
        low = code(wide + k / 64 * 512, 4, r, k % 64);
    if (bits & 2) {
        low |= plane2(two + k / 64 * 256, r, k % 64) << shift;
        shift += 2;
    }
    if (bits & 1)
        low |= plane1(at + k / 64 * 128, r, k % 64) << shift;
    return low;
}

static float f16_at(const uint8_t *p, uint64_t i)
{
    return f16_to_f32(load_u16(p + 2 * i));
}

static float f32_at(const uint8_t *p, uint64_t i)
{
    float f;

    memcpy(&f, p + 4 * i, 4);
    return f;
}

static bool permuted(DType t)
{
    return t == DT_W4P_128 || t == DT_W4P_64 || t == DT_W4P_32;
}

/* Bytes of a group of the formats of whole numbers, as layout.h has them. */
static const struct {
    DType t;
    uint32_t k, bytes;
} GROUPS[] = {{DT_F32, 32, 2048},     {DT_Q8_0, 64, 1088},     {DT_Q4_0, 64, 576},   {DT_IQ4_NL, 64, 576},
              {DT_Q4_1, 64, 640},     {DT_Q5_0, 64, 704},      {DT_Q5_1, 64, 768},   {DT_NF4_64, 64, 576},
              {DT_NF4_32, 64, 640},   {DT_W4_128, 128, 1120},  {DT_W4_64, 64, 608},  {DT_W4_32, 64, 704},
              {DT_W8_128, 128, 2144}, {DT_W4P_128, 128, 1376}, {DT_W4P_64, 64, 736}, {DT_W4P_32, 64, 832},
              {DT_Q2_K, 256, 1344},   {DT_Q3_K, 256, 1824},    {DT_Q4_K, 256, 2368}, {DT_Q5_K, 256, 2880},
              {DT_Q6_K, 256, 3360},   {DT_IQ4_XS, 256, 2208}};

static uint32_t group_of(DType t, bool bytes)
{
    for (size_t i = 0; i < sizeof GROUPS / sizeof *GROUPS; i++)
        if (GROUPS[i].t == t)
            return bytes ? GROUPS[i].bytes : GROUPS[i].k;
    return 0;
}

static float whole_number(DType t, const uint8_t *tile, uint64_t r, uint64_t k)
{
    const uint64_t n = group_of(t, false), c = k % n, b = 2 * r + c / 32;
    const uint8_t *p = tile + k / n * group_of(t, true);

    switch (t) {
    case DT_F32:
        p += c / 8 * 512 + 16 * (4 * (r % 8) + c % 8 / 2) + 8 * (r / 8);
        return f32_at(p, c % 2);
    case DT_Q8_0:
        return f16_at(p, b) * (float)(int8_t)in_planes(p + 64, 8, n, r, c);
    case DT_Q4_0:
        return f16_at(p, b) * (float)((int)in_planes(p + 64, 4, n, r, c) - 8);
    case DT_IQ4_NL:
        return f16_at(p, b) * (float)IQ4_VALUES[in_planes(p + 64, 4, n, r, c)];
    case DT_Q4_1:
        return f16_at(p, b) * (float)in_planes(p + 128, 4, n, r, c) + f16_at(p + 64, b);
    case DT_Q5_0:
        return f16_at(p, b) * (float)((int)in_planes(p + 64, 5, n, r, c) - 16);
    case DT_Q5_1:
        return f16_at(p, b) * (float)in_planes(p + 128, 5, n, r, c) + f16_at(p + 64, b);
    case DT_Q2_K:
        return f16_at(p, 2 * r) * (float)((p[64 + 16 * r + c / 16] & 15) * (int)in_planes(p + 320, 2, n, r, c)) -
               f16_at(p, 2 * r + 1) * (float)(p[64 + 16 * r + c / 16] >> 4);
    case DT_Q3_K:
        return f16_at(p, r) * (float)((int8_t)p[32 + 16 * r + c / 16] * ((int)in_planes(p + 288, 3, n, r, c) - 4));
    case DT_Q4_K:
    case DT_Q5_K:
        return f16_at(p, 2 * r) * (float)(p[64 + 8 * r + c / 32] * in_planes(p + 320, t == DT_Q4_K ? 4 : 5, n, r, c)) -
               f16_at(p, 2 * r + 1) * (float)p[192 + 8 * r + c / 32];
    case DT_Q6_K:
        return f16_at(p, r) * (float)((int8_t)p[32 + 16 * r + c / 16] * ((int)in_planes(p + 288, 6, n, r, c) - 32));
    case DT_IQ4_XS:
        return f16_at(p, r) * (float)((int8_t)p[32 + 8 * r + c / 32] * IQ4_VALUES[in_planes(p + 160, 4, n, r, c)]);
    case DT_NF4_64:
        return f32_at(p, r) * NF4_VALUES[in_planes(p + 64, 4, n, r, c)];
    case DT_NF4_32:
        return f32_at(p, b) * NF4_VALUES[in_planes(p + 128, 4, n, r, c)];
    case DT_W8_128:
        return f32_at(p, r) * (float)((int8_t)in_planes(p + 96, 8, n, r, c) - (int16_t)load_u16(p + 64 + 2 * r));
    default:
        p += permuted(t) ? 2 * n : 0;
        if (t == DT_W4_32 || t == DT_W4P_32)
            return f32_at(p, b) * (float)((int)in_planes(p + 192, 4, n, r, c) - (int16_t)load_u16(p + 128 + 2 * b));
        return f32_at(p, r) * (float)((int)in_planes(p + 96, 4, n, r, c) - (int16_t)load_u16(p + 64 + 2 * r));
    }
}

static float element(DType t, const uint8_t *tile, uint64_t r, uint64_t k)
{
    const uint8_t *p;
    uint16_t h;
    float d;

    if (group_of(t, false))
        return whole_number(t, tile, r, k);
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
    uint64_t g = group_of(t, false)               ? group_of(t, false)
                 : t == DT_FP8_128                ? 128
                 : t == DT_NVFP4 || t == DT_MXFP4 ? 64
                                                  : 32;
    return (k + g - 1) / g * g;
}

/* Scales of blocks that are finite: of an f16 at a and at b an exponent bit is clear. */
static void fill_halves(DType t, uint8_t *src, uint64_t bytes)
{
    const uint32_t a = t == DT_Q2_K ? 80 : t == DT_Q3_K ? 108 : t == DT_Q6_K ? 208 : 0;
    const bool two = t == DT_Q4_1 || t == DT_Q5_1 || t == DT_Q2_K || t == DT_Q4_K || t == DT_Q5_K;

    if (rowed(t) || t == DT_MXFP4 || dtype_block(t) == 1)
        return;
    for (uint64_t i = 0; i < bytes; i += dtype_block_bytes(t)) {
        src[i + a + 1] &= 0xbf;
        if (two)
            src[i + a + 3] &= 0xbf;
    }
}

/* Scales, zero points and the order of inputs of a row of k: any permutation, the same for all rows. */
static void fill_spans(DType t, uint8_t *row, uint64_t k)
{
    const DTypeRow shape = dtype_row(t);
    const RowedParts at = rowed_parts(t, k);

    for (uint64_t i = 0; i < k && shape.element; i++) /* 13 is prime to every k here */
        memcpy(row + 2 * i, &(uint16_t){(uint16_t)(i * 13 % k)}, 2);
    for (uint64_t i = 0; i < dtype_spans(shape, k); i++) {
        uint8_t *p = row + at.scales + i * shape.bytes;
        p[3] &= 0xbf;
        if (shape.bytes > 4)
            memcpy(p + 4, &(int16_t){(int16_t)(p[4] - 100)}, 2);
    }
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
    for (uint64_t i = 0; i < n * row && t == DT_F32; i += 4)
        src[i + 3] &= 0xbf;
    fill_halves(t, src, n * row);
    for (uint64_t r = 0; r < n && rowed(t) && group_of(t, false); r++)
        fill_spans(t, src + r * row, k);
}

static void round_trip(DType t, uint64_t n, uint64_t k)
{
    uint64_t row = 0, bytes = 0, piece = 0;

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
            if (c >= k && dtype_row(t).bytes && group_of(t, false))
                break; /* code 0 is no zero where the span has a scale: kernels have no x there */
            float got = element(t, dst + r / 16 * piece, r % 16, c),
                  exact = r < n && c < k ? want[permuted(t) ? c * 13 % k : c] : 0.0f;
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
    static const DType types[] = {DT_F16,    DT_BF16,  DT_FP8_128, DT_NVFP4,  DT_MXFP4,   DT_F32,    DT_Q8_0,
                                  DT_Q4_0,   DT_Q4_1,  DT_Q5_0,    DT_Q5_1,   DT_IQ4_NL,  DT_NF4_64, DT_NF4_32,
                                  DT_W4_128, DT_W4_64, DT_W4_32,   DT_W8_128, DT_W4P_128, DT_W4P_64, DT_W4P_32};
    static const DType supers[] = {DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_IQ4_XS};
    static const uint64_t n[] = {1, 15, 16, 17, 40}, k[] = {32, 96, 128, 160, 320};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t i = 0; i < 5; i++)
            for (size_t j = 0; j < 5; j++)
                round_trip(types[t], n[i], k[j]);
    for (size_t t = 0; t < sizeof supers / sizeof *supers; t++)
        for (size_t i = 0; i < 5; i++)
            for (uint64_t blocks = 1; blocks < 4; blocks++)
                round_trip(supers[t], n[i], 256 * blocks);
    round_trip(DT_F32, 17, 71);
    round_trip(DT_BF16, 17, 71);
    round_trip(DT_FP8_128, 17, 136);
    round_trip(DT_NVFP4, 17, 48);
}

static void frag__is_refused_for_other_formats_and_on_overflow(void **state)
{
    uint64_t bytes;

    (void)state;
    assert_false(layout_takes(LAYOUT_FRAG, DT_I32));
    assert_false(layout_bytes(LAYOUT_FRAG, DT_Q8_0, 16, 33, &bytes));
    assert_false(layout_bytes(LAYOUT_FRAG, DT_Q4_K, 16, 128, &bytes));
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
