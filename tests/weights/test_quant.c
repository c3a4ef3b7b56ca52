/* test_quant.c - matrices whose scales and zero points lie in tensors of their own, made by hand: what the numbers mean,
 * and that a scale which is wrong is refused by name. Whole checkpoints: tests/model/test_formats.c. */
#include "core/str.h"
#include "weights/decode.h"
#include "weights/layout.h"
#include "weights/quant.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A safetensors file in memory, written tensor by tensor. */
typedef struct Made {
    Str header, data, file;
    WeightStore *store;
} Made;

static void made_add(Made *m, const char *name, const char *type, const char *shape, const void *bytes, size_t len)
{
    str_addf(&m->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
             m->header.len ? "," : "{", name, type, shape, m->data.len, m->data.len + len);
    str_add(&m->data, bytes, len);
}

static void made_open(Made *m)
{
    uint64_t len;
    Err err;

    str_addc(&m->header, '}');
    len = m->header.len;
    str_add(&m->file, &len, 8);
    str_add(&m->file, m->header.p, m->header.len);
    str_add(&m->file, m->data.p, m->data.len);
    if (store_safetensors_parse(&m->store, m->file.p, m->file.len, "made", &err) != ST_OK)
        fail_msg("%s", err.msg);
}

static void made_close(Made *m)
{
    store_free(m->store);
    str_release(&m->header);
    str_release(&m->data);
    str_release(&m->file);
}

/* Values of all rows. */
static void read_values(Made *m, const QuantScheme *s, uint64_t n, uint64_t k, DType format, float *out)
{
    QuantReader *r;
    uint64_t row_bytes;
    Err err;

    if (quant_open(&r, m->store, s, "m", n, k, format, &err) != ST_OK)
        fail_msg("%s", err.msg);
    assert_true(dtype_row_bytes(format, k, &row_bytes));
    uint8_t *rows = malloc(n * row_bytes);
    if (quant_read(r, 0, n, rows, &err) != ST_OK)
        fail_msg("%s", err.msg);
    for (uint64_t i = 0; i < n; i++)
        assert_true(dtype_row_to_f32(format, rows + i * row_bytes, k, out + i * k));
    free(rows);
    quant_close(r);
}

static void refused(Made *m, const QuantScheme *s, uint64_t n, uint64_t k, DType format, const char *tensor)
{
    QuantReader *r = NULL;
    uint8_t rows[4096];
    Err err = {""};
    Status st = quant_open(&r, m->store, s, "m", n, k, format, &err);

    if (st == ST_OK)
        st = quant_read(r, 0, n, rows, &err);
    assert_int_not_equal(st, ST_OK);
    if (strstr(err.msg, tensor) == NULL)
        fail_msg("\"%s\" does not name %s", err.msg, tensor);
    quant_close(r);
}

static const QuantScheme FP8_BLOCKS = {.store = QUANT_FP8,
                                       .bits = 8,
                                       .group = 128,
                                       .group_rows = 2,
                                       .main = ".weight",
                                       .sides = {[SIDE_SCALE] = ".weight_scale_inv"}};

/* C071, with columns in blocks of 128: 3 rows of 136 ones, blocks of 2 by 128, partial both ways. */
static void quant__the_stored_scale_of_a_block_multiplies_also_at_the_edges(void **state)
{
    static const float scale[4] = {1, 2, 3, 4};
    uint8_t ones[3 * 136];
    float got[3 * 136];
    Made m = {0};

    (void)state;
    memset(ones, 0x38, sizeof ones);
    made_add(&m, "m.weight", "F8_E4M3", "[3,136]", ones, sizeof ones);
    made_add(&m, "m.weight_scale_inv", "F32", "[2,2]", scale, sizeof scale);
    made_open(&m);
    read_values(&m, &FP8_BLOCKS, 3, 136, DT_FP8_128, got);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 136; c++)
            assert_true(got[r * 136 + c] == (r < 2 ? 1 : 3) + (c >= 128));
    made_close(&m);
}

static const QuantScheme GPTQ_V2 = {.store = QUANT_GPTQ,
                                    .bits = 4,
                                    .group = 32,
                                    .group_rows = 1,
                                    .main = ".qweight",
                                    .sides = {[SIDE_SCALE] = ".scales", [SIDE_ZERO] = ".qzeros"}};

/* C076: k = 128 in groups of 32, all codes 8, scale 1, zero points 1, 5, 9, 13. */
static void make_groups(Made *m, int groups)
{
    static const uint32_t zero[4] = {0x11111111, 0x55555555, 0x99999999, 0xdddddddd};
    uint32_t codes[16 * 8];
    uint16_t scale[4 * 8];
    char shape[16];

    for (int i = 0; i < 16 * 8; i++)
        codes[i] = 0x88888888;
    for (int i = 0; i < 4 * 8; i++)
        scale[i] = 0x3c00;
    made_add(m, "m.qweight", "I32", "[16,8]", codes, sizeof codes);
    snprintf(shape, sizeof shape, "[%d,8]", groups);
    made_add(m, "m.scales", "F16", shape, scale, (size_t)groups * 16);
    snprintf(shape, sizeof shape, "[%d,1]", groups);
    made_add(m, "m.qzeros", "I32", shape, zero, (size_t)groups * 4);
    made_open(m);
}

static void quant__zero_points_of_small_groups_are_taken_off(void **state)
{
    static const float want[4] = {7, 3, -1, -5};
    float got[8 * 128];
    QuantScheme v1 = GPTQ_V2;
    Made m = {0};

    (void)state;
    make_groups(&m, 4);
    read_values(&m, &GPTQ_V2, 8, 128, DT_W4_32, got);
    for (int i = 0; i < 8 * 128; i++)
        assert_true(got[i] == want[i % 128 / 32]);
    v1.zero_less_one = true;
    read_values(&m, &v1, 8, 128, DT_W4_32, got);
    for (int i = 0; i < 8 * 128; i++)
        assert_true(got[i] == want[i % 128 / 32] - 1);
    made_close(&m);
}

static void quant__one_group_for_a_column_is_a_group_of_all_rows(void **state)
{
    float one[8 * 128], all[8 * 128];
    QuantScheme whole = GPTQ_V2, group = GPTQ_V2;
    Made m = {0};

    (void)state;
    make_groups(&m, 1);
    whole.group = 0;
    group.group = 128;
    read_values(&m, &whole, 8, 128, DT_W4_128, one);
    read_values(&m, &group, 8, 128, DT_W4_128, all);
    assert_memory_equal(one, all, sizeof one);
    assert_true(one[5] == 7);
    made_close(&m);
}

/* C072 */
static void quant__a_scale_that_spoils_the_matrix_is_refused_by_name(void **state)
{
    static const uint32_t bad[] = {0x7fc00000, 0x7f800000, 0xff800000, 0};
    static const char *const names[] = {"m.weight_scale", "m.weight_scale_2", "m.input_scale"};
    const QuantScheme s = {
        .store = QUANT_FP8,
        .bits = 8,
        .main = ".weight",
        .sides = {[SIDE_SCALE] = ".weight_scale", [SIDE_GLOBAL] = ".weight_scale_2", [SIDE_INPUT] = ".input_scale"}};
    const uint32_t one = 0x3f800000;
    uint8_t ones[64];

    (void)state;
    memset(ones, 0x38, sizeof ones);
    for (size_t which = 0; which < 3; which++)
        for (size_t b = 0; b <= sizeof bad / sizeof *bad; b++) { /* the last: missing */
            Made m = {0};
            made_add(&m, "m.weight", "F8_E4M3", "[1,64]", ones, sizeof ones);
            for (size_t i = 0; i < 3; i++)
                if (i != which || b < sizeof bad / sizeof *bad)
                    made_add(&m, names[i], "F32", "[]", i == which ? &bad[b] : &one, 4);
            made_open(&m);
            refused(&m, &s, 1, 64, DT_FP8_128, names[which]);
            made_close(&m);
        }
}

static void quant__a_negative_scale_of_inputs_is_refused_by_name(void **state)
{
    const QuantScheme s = {.store = QUANT_FP8,
                           .bits = 8,
                           .main = ".weight",
                           .sides = {[SIDE_SCALE] = ".weight_scale", [SIDE_INPUT] = ".input_scale"}};
    static const float one = 1, less = -0.5f;
    uint8_t ones[64];
    Made m = {0};

    (void)state;
    memset(ones, 0x38, sizeof ones);
    made_add(&m, "m.weight", "F8_E4M3", "[1,64]", ones, sizeof ones);
    made_add(&m, "m.weight_scale", "F32", "[]", &one, 4);
    made_add(&m, "m.input_scale", "F32", "[]", &less, 4);
    made_open(&m);
    refused(&m, &s, 1, 64, DT_FP8_128, "m.input_scale");
    made_close(&m);
}

static void quant__a_nan_among_the_codes_is_refused(void **state)
{
    static const float scale[2] = {1, 1};
    uint8_t codes[3 * 136] = {0};
    Made m = {0};

    (void)state;
    codes[2 * 136 + 7] = 0xff;
    made_add(&m, "m.weight", "F8_E4M3", "[3,136]", codes, sizeof codes);
    made_add(&m, "m.weight_scale_inv", "F32", "[2,1]", scale, sizeof scale);
    made_open(&m);
    QuantScheme s = FP8_BLOCKS;
    s.group = 256;
    refused(&m, &s, 3, 136, DT_FP8_128, "m.weight");
    made_close(&m);
}

/* ---- layout ------------------------------------------------------------------------------------------------------- */
static uint32_t seed = 1;

static uint8_t next_byte(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint8_t)(seed >> 24);
}

/* Row r's bytes out of a tile, by the table in layout.h: the inverse of what the layout does. */
static void untile(DType t, uint64_t k, uint32_t r, const uint8_t *tile, uint8_t *row)
{
    const DTypeRow s = dtype_row(t);
    const bool byte_codes = t == DT_FP8_128 || t == DT_W8_128, words = t == DT_W8_128 || dtype_name(t)[0] == 'w';
    const bool pairs = s.element != 0 || !words;
    uint8_t *scales = row + k * s.element, *codes = scales + dtype_spans(s, k) * s.bytes;
    const uint8_t *p = tile + k * s.element;

    memcpy(row, tile, k * s.element);
    if (t == DT_NVFP4) {
        memcpy(row, tile + 4 * r, 4);
        for (uint64_t b = 0; b < k / 16; b++)
            for (int i = 0; i < 9; i++)
                row[4 + b * 9 + (uint64_t)i] = tile[64 + b * 144 + (uint64_t)i * 16 + r];
        return;
    }
    for (uint64_t i = 0; i < k; i += s.span, scales += s.bytes) {
        uint64_t n = k - i < s.span ? k - i : s.span, bytes = byte_codes ? n : n / 2;
        memcpy(scales, p + 4 * r, 4);
        if (s.bytes == 6)
            memcpy(scales + 4, p + 64 + 2 * r, 2);
        p += 16 * s.bytes;
        for (uint64_t b = 0; b < bytes; b++)
            *codes++ = pairs ? p[b * 16 + r] : p[b / 4 * 64 + 4 * r + b % 4];
        p += 16 * bytes;
    }
}

static void quant__a_tile_holds_the_bytes_of_its_rows(void **state)
{
    static const DType types[] = {DT_FP8_128, DT_NVFP4,  DT_NF4_64,  DT_NF4_32, DT_W4_128, DT_W4_64,
                                  DT_W4_32,   DT_W8_128, DT_W4P_128, DT_W4P_64, DT_W4P_32};
    enum { K = 288 };

    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (uint32_t rows = 1; rows <= 16; rows += 15) {
            const DType t = types[i];
            uint64_t row_bytes = 0, bytes = 0;

            assert_true(dtype_row_bytes(t, K, &row_bytes) && layout_bytes(LAYOUT_N16, t, 16, K, &bytes));
            uint8_t *src = malloc(rows * row_bytes), *tile = malloc(bytes), *back = malloc(row_bytes);
            for (uint64_t b = 0; b < rows * row_bytes; b++)
                src[b] = b % row_bytes < K * dtype_row(t).element ? (uint8_t)(b % row_bytes % 2 ? 0 : b % row_bytes / 2)
                                                                  : next_byte();
            layout_piece(LAYOUT_N16, t, K, rows, src, tile);
            for (uint32_t r = 0; r < rows; r++) {
                untile(t, K, r, tile, back);
                assert_memory_equal(back, src + r * row_bytes, row_bytes);
            }
            free(src);
            free(tile);
            free(back);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quant__the_stored_scale_of_a_block_multiplies_also_at_the_edges),
        cmocka_unit_test(quant__zero_points_of_small_groups_are_taken_off),
        cmocka_unit_test(quant__one_group_for_a_column_is_a_group_of_all_rows),
        cmocka_unit_test(quant__a_scale_that_spoils_the_matrix_is_refused_by_name),
        cmocka_unit_test(quant__a_negative_scale_of_inputs_is_refused_by_name),
        cmocka_unit_test(quant__a_nan_among_the_codes_is_refused),
        cmocka_unit_test(quant__a_tile_holds_the_bytes_of_its_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
