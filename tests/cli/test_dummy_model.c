/* test_dummy_model.c - random models from a config.json have the tensors that a quantiser would have left, and open as
 * checkpoints do. tests/data/dummy: configurations of published models with small dims. Running them: tests/e2e/cli.py. */
#include "cli/dummy_model.h"
#include "cli/loader.h"
#include "core/file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define P "model.layers.0."

static CircuitLibrary *library(void)
{
    CircuitLibrary *lib = NULL;
    Err err;

    if (circuit_library_new(&lib, metrale_registry.files, metrale_registry.n_files, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return lib;
}

/* The store of a configuration, which must also make an instance: every tensor is read by something, none is missing. */
static WeightStore *made(const CircuitLibrary *lib, const char *config, const char *format)
{
    char path[512], *text = NULL;
    WeightStore *s = NULL;
    Instance *in = NULL;
    json_t *json = NULL;
    size_t len;
    Err err;

    snprintf(path, sizeof path, "%s/tests/data/dummy/%s.json", METRALE_SOURCE_DIR, config);
    if (file_read(path, 1 << 20, &text, &len, &err) != ST_OK || json_parse(text, len, path, &json, &err) != ST_OK ||
        dummy_model_new(&s, lib, json, path, format, &err) != ST_OK ||
        loader_instance(&in, lib, s, DT_BF16, false, &err) != ST_OK)
        fail_msg("%s as %s: %s", config, format, err.msg);
    instance_free(in);
    json_decref(json);
    free(text);
    return s;
}

/* shape: "256x4" */
static void is(const WeightStore *s, const char *name, DType type, const char *shape)
{
    const TensorInfo *t = store_find(s, name);
    char got[128] = "";

    for (uint32_t i = 0; t != NULL && i < t->n_dims; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%llu", i ? "x" : "", (unsigned long long)t->dims[i]);
    if (t == NULL || t->dtype != type || strcmp(got, shape) != 0)
        fail_msg("%s is %s %s, not %s %s", name, t ? dtype_name(t->dtype) : "missing", got, dtype_name(type), shape);
}

static float first(WeightStore *s, const char *name)
{
    uint16_t h;
    Err err;

    assert_int_equal(store_find(s, name)->dtype, DT_BF16);
    assert_int_equal(store_read(s, store_find(s, name), 0, &h, 2, &err), ST_OK);
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static void dummy_model__fp8_blocks_leave_embedding_head_and_norms(void **state)
{
    CircuitLibrary *lib = library();
    WeightStore *s = made(lib, "dense-fp8", "config");

    (void)state;
    is(s, "model.embed_tokens.weight", DT_BF16, "1024x256");
    is(s, "lm_head.weight", DT_BF16, "1024x256");
    is(s, "model.norm.weight", DT_BF16, "256");
    is(s, P "self_attn.k_proj.weight", DT_E4M3, "128x256");
    is(s, P "self_attn.k_proj.weight_scale_inv", DT_F32, "1x2");
    is(s, P "mlp.down_proj.weight", DT_E4M3, "256x512");
    is(s, P "mlp.down_proj.weight_scale_inv", DT_F32, "2x4");
    assert_true(first(s, "model.norm.weight") > 0.9f);
    store_free(s);
    circuit_library_free(lib);
}

static void dummy_model__a_configuration_without_quantisation_can_be_given_one(void **state)
{
    CircuitLibrary *lib = library();
    WeightStore *s = made(lib, "moe", "fp8-block");

    (void)state;
    is(s, P "mlp.gate.weight", DT_BF16, "8x256"); /* the router */
    is(s, P "mlp.experts.7.up_proj.weight", DT_E4M3, "128x256");
    is(s, P "mlp.experts.7.up_proj.weight_scale_inv", DT_F32, "1x2");
    is(s, P "self_attn.q_proj.weight", DT_E4M3, "256x256");
    is(s, "lm_head.weight", DT_BF16, "1024x256");
    store_free(s);

    s = made(lib, "moe", "fp8/128"); /* the same by the name of its rows */
    is(s, P "self_attn.q_proj.weight", DT_E4M3, "256x256");
    store_free(s);

    s = made(lib, "moe", "nvfp4");
    is(s, P "self_attn.q_proj.weight", DT_U8, "256x128");
    is(s, P "mlp.gate.weight", DT_BF16, "8x256");
    store_free(s);

    s = made(lib, "dense-fp8", "bf16"); /* and one that has can lose it */
    is(s, P "mlp.down_proj.weight", DT_BF16, "256x512");
    assert_null(store_find(s, P "mlp.down_proj.weight_scale_inv"));
    store_free(s);
    circuit_library_free(lib);
}

static void dummy_model__nvfp4_quantises_what_the_list_of_modules_lets_it(void **state)
{
    CircuitLibrary *lib = library();
    WeightStore *s = made(lib, "hybrid-moe-nvfp4", "config");
    const char *e = P "mlp.experts.3.down_proj";
    char name[128];

    (void)state;
    snprintf(name, sizeof name, "%s.weight", e);
    is(s, name, DT_U8, "256x64");
    snprintf(name, sizeof name, "%s.weight_scale", e);
    is(s, name, DT_E4M3, "256x8");
    snprintf(name, sizeof name, "%s.weight_scale_2", e);
    is(s, name, DT_F32, "1");
    snprintf(name, sizeof name, "%s.input_scale", e);
    is(s, name, DT_F32, "1");
    is(s, P "mlp.shared_expert.gate_proj.weight", DT_U8, "128x128");
    is(s, P "linear_attn.out_proj.weight", DT_BF16, "256x4096");
    is(s, "model.layers.3.self_attn.q_proj.weight", DT_BF16, "512x256");
    is(s, P "mlp.gate.weight", DT_BF16, "8x256");
    is(s, "lm_head.weight", DT_BF16, "1024x256");
    store_free(s);
    circuit_library_free(lib);
}

/* Norms that add 1 to their weight are near 0, others near 1; decays are logarithms of 1 to 16. */
static void dummy_model__vectors_are_what_their_op_makes_of_them(void **state)
{
    CircuitLibrary *lib = library();
    WeightStore *s = made(lib, "hybrid-moe", "fp8-block");

    (void)state;
    float norm = first(s, P "input_layernorm.weight"), gated = first(s, P "linear_attn.norm.weight"),
          a = first(s, P "linear_attn.A_log"), dt = first(s, P "linear_attn.dt_bias");
    assert_true(norm > -0.1f && norm < 0.1f);
    assert_true(gated > 0.9f && gated < 1.1f);
    assert_true(a > 0 && a < 2.8f);
    assert_true(dt > -7 && dt < -2.2f);
    is(s, P "linear_attn.in_proj_qkv.weight", DT_E4M3, "8192x256");
    is(s, P "linear_attn.in_proj_a.weight", DT_BF16, "32x256"); /* few rows */
    is(s, P "mlp.shared_expert_gate.weight", DT_BF16, "1x256");
    store_free(s);
    circuit_library_free(lib);
}

static void dummy_model__experts_in_one_tensor_are_mxfp4(void **state)
{
    CircuitLibrary *lib = library();
    WeightStore *s = made(lib, "moe-mxfp4", "config");

    (void)state;
    is(s, P "mlp.experts.gate_up_proj_blocks", DT_U8, "4x256x8x16");
    is(s, P "mlp.experts.gate_up_proj_scales", DT_U8, "4x256x8");
    is(s, P "mlp.router.weight", DT_BF16, "4x256");
    store_free(s);
    circuit_library_free(lib);
}

static void dummy_model__refuses_what_it_does_not_know(void **state)
{
    static const char *const formats[] = {"fp8", "nf4/64", "i32", "", "w4/128", "BF16"};
    CircuitLibrary *lib = library();
    json_t *config = json_object();

    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        WeightStore *s = NULL;
        Err err;
        assert_int_equal(dummy_model_new(&s, lib, config, "config.json", formats[i], &err), ST_INVALID);
        assert_non_null(strstr(err.msg, "fp8-block, nvfp4"));
    }
    json_decref(config);
    circuit_library_free(lib);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dummy_model__fp8_blocks_leave_embedding_head_and_norms),
        cmocka_unit_test(dummy_model__a_configuration_without_quantisation_can_be_given_one),
        cmocka_unit_test(dummy_model__nvfp4_quantises_what_the_list_of_modules_lets_it),
        cmocka_unit_test(dummy_model__vectors_are_what_their_op_makes_of_them),
        cmocka_unit_test(dummy_model__experts_in_one_tensor_are_mxfp4),
        cmocka_unit_test(dummy_model__refuses_what_it_does_not_know),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
