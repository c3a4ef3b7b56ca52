/* test_dummy_quant.c - random matrices of every scheme: read as those of a checkpoint, and worth sigma 0.02 then. */
#include "bytes.h"
#include "weights/decode.h"
#include "weights/quant.h"
#include <math.h>

enum { N = 256, K = 512 };

static const struct {
    QuantScheme s;
    DType format;
    uint32_t experts;
    const char *main;
    uint64_t bytes;
} CASES[] = {
    {{QUANT_FP8, 8, 128, 128, .name = "fp8", .main = ".weight", .sides = {[SIDE_SCALE] = ".weight_scale_inv"}},
     DT_FP8_128,
     0,
     "m.weight",
     N *K},
    {{QUANT_FP8, 8, .name = "fp8", .main = ".weight",
      .sides = {[SIDE_SCALE] = ".weight_scale", [SIDE_INPUT] = ".input_scale"}},
     DT_FP8_128,
     0,
     "m.weight",
     N *K},
    {{QUANT_INT8, 8, 0, 1, .name = "int8", .main = ".weight",
      .sides = {[SIDE_SCALE] = ".weight_scale", [SIDE_ZERO] = ".weight_zero_point"}},
     DT_W8_128,
     0,
     "m.weight",
     N *K},
    {{QUANT_NVFP4, 4, 16, 1, .name = "nvfp4", .main = ".weight",
      .sides = {[SIDE_SCALE] = ".weight_scale", [SIDE_GLOBAL] = ".weight_scale_2", [SIDE_INPUT] = ".input_scale"}},
     DT_NVFP4,
     0,
     "m.weight",
     N *K / 2},
    {{QUANT_NVFP4, 4, 16, 1, .global_divides = true, .name = "nvfp4", .main = ".weight_packed",
      .sides = {[SIDE_SCALE] = ".weight_scale", [SIDE_GLOBAL] = ".weight_global_scale"}},
     DT_NVFP4,
     0,
     "m.weight_packed",
     N *K / 2},
    {{QUANT_MXFP4, 4, 32, 1, .name = "mxfp4", .main = "_blocks", .sides = {[SIDE_SCALE] = "_scales"}},
     DT_MXFP4,
     4,
     "m_blocks",
     4 * N *K / 2},
    {{QUANT_AWQ, 4, 128, 1, .name = "awq", .main = ".qweight",
      .sides = {[SIDE_SCALE] = ".scales", [SIDE_ZERO] = ".qzeros"}},
     DT_W4_128,
     0,
     "m.qweight",
     N *K / 2},
    {{QUANT_GPTQ, 4, 64, 1, .zero_less_one = true, .name = "gptq", .main = ".qweight",
      .sides = {[SIDE_SCALE] = ".scales", [SIDE_ZERO] = ".qzeros", [SIDE_ORDER] = ".g_idx"}},
     DT_W4P_64,
     0,
     "m.qweight",
     N *K / 2},
    {{QUANT_GPTQ, 8, 128, 1, .zero_less_one = true, .name = "gptq", .main = ".qweight",
      .sides = {[SIDE_SCALE] = ".scales", [SIDE_ZERO] = ".qzeros"}},
     DT_W8_128,
     0,
     "m.qweight",
     N *K},
    {{QUANT_PACKED, 4, 128, 1, .name = "packed integers", .main = ".weight_packed",
      .sides = {[SIDE_SCALE] = ".weight_scale", [SIDE_ZERO] = ".weight_zero_point", [SIDE_SHAPE] = ".weight_shape"}},
     DT_W4_128,
     0,
     "m.weight_packed",
     N *K / 2},
    {{QUANT_NF4, 4, 64, 1, .name = "nf4", .main = ".weight",
      .sides = {[SIDE_SCALE] = ".weight.absmax",
                [SIDE_NESTED_SCALE] = ".weight.nested_absmax",
                [SIDE_NESTED_MAP] = ".weight.nested_quant_map",
                [SIDE_MAP] = ".weight.quant_map",
                [SIDE_STATE] = ".weight.quant_state.bitsandbytes__nf4"},
      .side_optional = {[SIDE_NESTED_SCALE] = true, [SIDE_NESTED_MAP] = true}},
     DT_NF4_64,
     0,
     "m.weight",
     N *K / 2},
};

static WeightStore *quantised(size_t i)
{
    json_t *config = json_object();
    WeightStore *s = NULL;
    QuantScheme scheme = CASES[i].s;
    Err err;

    if (CASES[i].s.store == QUANT_NF4) /* what nothing is declared of */
        scheme.sides[SIDE_NESTED_SCALE] = scheme.sides[SIDE_NESTED_MAP] = NULL;
    assert_int_equal(store_dummy_new(&s, config, 1, &err), ST_OK);
    json_decref(config);
    if (store_dummy_declare_quant(s, &scheme, "m", CASES[i].experts, N, K, &err) != ST_OK)
        fail_msg("%s: %s", scheme.name, err.msg);
    return s;
}

/* 131,072 values: their deviation is known within 0.2%; a rounding to 4 bits changes it by 2%. */
static void dummy_quant__matrices_have_sigma_0_02_when_dequantised(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        WeightStore *s = quantised(i);
        const uint64_t rows = N * (CASES[i].experts ? CASES[i].experts : 1);
        QuantReader *r = NULL;
        uint64_t bytes = 0;
        double sum = 0, squares = 0;
        float v[K];
        Err err;

        assert_int_equal(store_find(s, CASES[i].main)->bytes, CASES[i].bytes);
        assert_true(dtype_row_bytes(CASES[i].format, K, &bytes));
        if (quant_open(&r, s, &CASES[i].s, "m", rows, K, CASES[i].format, &err) != ST_OK)
            fail_msg("%s: %s", CASES[i].s.name, err.msg);
        for (uint64_t row = 0; row < rows; row++) {
            uint8_t stored[K * 4];
            assert_int_equal(quant_read(r, row, 1, stored, &err), ST_OK);
            assert_true(dtype_row_to_f32(CASES[i].format, stored, K, v));
            for (int k = 0; k < K; k++) {
                sum += v[k];
                squares += (double)v[k] * v[k];
            }
        }
        double mean = sum / (double)(rows * K), sigma = sqrt(squares / (double)(rows * K));
        if (fabs(mean) > 0.0015 || fabs(sigma - 0.02) > 0.0006) /* nf4's values lean to one side by 0.0013 */
            fail_msg("%s: mean %g, sigma %g", CASES[i].s.name, mean, sigma);
        quant_close(r);
        store_free(s);
    }
}

/* nvfp4 as ModelOpt has it: scales of 16 use e4m3's range, one f32 over all. fp8: 448 is the largest code. */
static void dummy_quant__scales_are_a_quantisers(void **state)
{
    WeightStore *s = quantised(3), *f = quantised(0);
    const TensorInfo *t = store_find(s, "m.weight_scale");
    uint8_t scale[N * K / 16];
    float g, d[8];
    Err err;

    (void)state;
    assert_int_equal(t->dtype, DT_E4M3);
    assert_int_equal(t->dims[1], K / 16);
    assert_int_equal(store_read(s, t, 0, scale, sizeof scale, &err), ST_OK);
    for (size_t i = 0; i < sizeof scale; i++) /* 128 to 448 */
        assert_in_range(scale[i], 0x70, 0x7e);
    assert_int_equal(store_find(s, "m.weight_scale_2")->n_dims, 1);
    assert_int_equal(store_read(s, store_find(s, "m.weight_scale_2"), 0, &g, 4, &err), ST_OK);
    assert_true(g > 2e-5f && g < 3e-5f); /* 3.46 * 0.02 / (6 * 448) */

    t = store_find(f, "m.weight_scale_inv");
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[1], 4);
    assert_int_equal(store_read(f, t, 0, d, sizeof d, &err), ST_OK);
    for (int i = 0; i < 8; i++) /* 3.46 * 0.02 / 448, and 3.47 deviations of 5% */
        assert_true(fabsf(d[i] / 1.5465e-4f - 1) < 0.18f);
    store_free(s);
    store_free(f);
}

static void dummy_quant__a_module_is_declared_once(void **state)
{
    WeightStore *s = quantised(0);
    const size_t n = store_count(s);
    Err err;

    (void)state;
    assert_int_equal(store_dummy_declare_quant(s, &CASES[0].s, "m", 0, N, K, &err), ST_OK);
    assert_int_equal(store_count(s), n);
    store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dummy_quant__matrices_have_sigma_0_02_when_dequantised),
        cmocka_unit_test(dummy_quant__scales_are_a_quantisers),
        cmocka_unit_test(dummy_quant__a_module_is_declared_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
