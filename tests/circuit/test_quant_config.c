/* test_quant_config.c - quantization_config alone: the scheme of a module, what is asked of its inputs, and what is
 * refused. The blocks are as the producers write them, ' for ". */
#include "circuit/quant_bind.h"
#include "circuit/quant_config.h"
#include "circuit_fixture.h"
#include <string.h>

#define CT_INPUTS(bits, type, strategy, more)                                                                          \
    "'input_activations': {'num_bits': " #bits ", 'type': '" type "', 'strategy': '" strategy "', " more "}"
#define CT(format, weights, inputs)                                                                                    \
    "{'quant_method': 'compressed-tensors', 'format': '" format "', 'ignore': ['lm_head'], 'config_groups': "          \
    "{'group_0': {'targets': ['Linear'], 'weights': {" weights "}, " inputs "}}}"
#define CT_FP8_CHANNEL "'num_bits': 8, 'type': 'float', 'strategy': 'channel', 'symmetric': true"
#define CT_INT8        "'num_bits': 8, 'type': 'int', 'strategy': 'channel', 'symmetric': true"
#define CT_INT4        "'num_bits': 4, 'type': 'int', 'strategy': 'group', 'group_size': 128, 'symmetric': true"
#define CT_NVFP4       "'num_bits': 4, 'type': 'float', 'strategy': 'tensor_group', 'group_size': 16, 'symmetric': true"

typedef struct Reading {
    Arena *arena;
    json_t *meta;
    const QuantConfig *config;
    Status st;
    Err err;
} Reading;

static Reading read_block(const char *block, bool act_quant)
{
    Reading r = {.arena = arena_new(), .meta = json_object()};
    const InstanceSource src = {.name = "config.json", .meta = r.meta, .act_quant = act_quant};

    json_object_set_new(r.meta, "quantization_config", json_literal(block));
    r.st = quant_config_read(&r.config, &src, r.arena, &r.err);
    return r;
}

static void reading_release(Reading *r)
{
    arena_free(r->arena);
    json_decref(r->meta);
}

static const char *said(const QuantInput *q)
{
    static char text[64];
    Str s = STR_INIT;

    quant_input_say(q, &s);
    snprintf(text, sizeof text, "%s", str_c(&s));
    str_release(&s);
    return text;
}

/* ---- what is read --------------------------------------------------------------------------------------------------- */
typedef struct Case {
    const char *block, *module;
    int store; /* -1: in its own format */
    uint32_t bits, group, group_rows;
    const char *inputs, *scale; /* scale: suffix of the tensor of the inputs' static scale, or NULL */
} Case;

static const Case cases[] = {
    {"{'quant_method': 'fp8', 'activation_scheme': 'dynamic', 'weight_block_size': [128, 128]}", "a.q_proj", QUANT_FP8,
     8, 128, 128, "e4m3/128", NULL},
    {"{'quant_method': 'fp8', 'weight_block_size': [64, 256], 'modules_to_not_convert': ['v_proj']}", "a.q_proj",
     QUANT_FP8, 8, 256, 64, "e4m3/256", NULL},
    {"{'quant_method': 'fp8', 'weight_block_size': [64, 256], 'modules_to_not_convert': ['v_proj']}", "a.v_proj", -1, 0,
     0, 0, NULL, NULL},
    {"{'quant_method': 'fp8', 'activation_scheme': 'static', 'weight_block_size': null}", "a.q_proj", QUANT_FP8, 8, 0,
     0, "e4m3/tensor", ".input_scale"},
    {"{'quant_method': 'fp8'}", "a.q_proj", QUANT_FP8, 8, 0, 0, "e4m3/token", NULL},
    {"{'quant_method': 'modelopt', 'quant_algo': 'FP8', 'ignore': ['lm_head']}", "a.q_proj", QUANT_FP8, 8, 0, 0,
     "e4m3/tensor", ".input_scale"},
    {"{'quant_method': 'modelopt', 'quant_algo': 'FP8', 'config_groups': {'group_0': {'input_activations': "
     "{'dynamic': true}}}}",
     "a.q_proj", QUANT_FP8, 8, 0, 0, "e4m3/token", NULL},
    {"{'quant_method': 'modelopt', 'quant_algo': 'NVFP4', 'group_size': 16}", "a.q_proj", QUANT_NVFP4, 4, 16, 1,
     "e2m1/16", ".input_scale"},
    {"{'quant_method': 'modelopt', 'quant_algo': 'MIXED_PRECISION', 'quantized_layers': {'a.q_proj': {'quant_algo': "
     "'FP8'}, 'a.up_proj': {'quant_algo': 'NVFP4'}}}",
     "a.up_proj", QUANT_NVFP4, 4, 16, 1, "e2m1/16", ".input_scale"},
    {"{'quant_method': 'modelopt', 'quant_algo': 'MIXED_PRECISION', 'quantized_layers': {'a.q_proj': {'quant_algo': "
     "'FP8'}}}",
     "lm_head", -1, 0, 0, 0, NULL, NULL},
    {CT("float-quantized", CT_FP8_CHANNEL, CT_INPUTS(8, "float", "token", "'dynamic': true, 'symmetric': true")),
     "a.q_proj", QUANT_FP8, 8, 0, 1, "e4m3/token", NULL},
    {CT("float-quantized", CT_FP8_CHANNEL, CT_INPUTS(8, "float", "tensor", "'dynamic': false")), "a.q_proj", QUANT_FP8,
     8, 0, 1, "e4m3/tensor", ".input_scale"},
    {CT("float-quantized", "'num_bits': 8, 'type': 'float', 'strategy': 'block', 'block_structure': [128, 128]",
        CT_INPUTS(8, "float", "group", "'dynamic': true, 'group_size': 128")),
     "a.q_proj", QUANT_FP8, 8, 128, 128, "e4m3/128", NULL},
    {CT("int-quantized", CT_INT8, CT_INPUTS(8, "int", "token", "'dynamic': true")), "a.q_proj", QUANT_INT8, 8, 0, 1,
     "i8/token", NULL},
    {CT("int-quantized", CT_INT8, CT_INPUTS(8, "int", "tensor", "'dynamic': false")), "a.q_proj", QUANT_INT8, 8, 0, 1,
     "i8/tensor", ".input_scale"},
    {CT("pack-quantized", CT_INT4, CT_INPUTS(8, "float", "token", "'dynamic': true")), "a.q_proj", QUANT_PACKED, 4, 128,
     1, "e4m3/token", NULL},
    {CT("pack-quantized", CT_INT4, "'input_activations': null"), "a.q_proj", QUANT_PACKED, 4, 128, 1, "-", NULL},
    {CT("nvfp4-pack-quantized", CT_NVFP4,
        CT_INPUTS(4, "float", "tensor_group", "'dynamic': 'local', 'group_size': 16")),
     "a.q_proj", QUANT_NVFP4, 4, 16, 1, "e2m1/16", ".input_global_scale"},
    {CT("nvfp4-pack-quantized", CT_NVFP4, "'input_activations': null"), "lm_head", -1, 0, 0, 0, NULL, NULL},
    {"{'quant_method': 'awq', 'bits': 4, 'group_size': 64, 'zero_point': true, 'version': 'gemm'}", "a.q_proj",
     QUANT_AWQ, 4, 64, 1, "-", NULL},
    {"{'quant_method': 'gptq', 'bits': 8, 'group_size': -1, 'desc_act': false, 'sym': true}", "a.q_proj", QUANT_GPTQ, 8,
     0, 1, "-", NULL},
    {"{'quant_method': 'mxfp4'}", "a.q_proj", -1, 0, 0, 0, NULL, NULL},
};

static void quant_config__gives_each_module_its_scheme_and_its_inputs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        Reading r = read_block(c->block, true);
        if (r.st != ST_OK)
            fail_msg("%s: %s", c->block, r.err.msg);
        const QuantScheme *s = quant_config_find(r.config, c->module, false);
        if (c->store < 0) {
            assert_null(s);
            reading_release(&r);
            continue;
        }
        assert_non_null(s);
        if ((int)s->store != c->store || s->bits != c->bits || s->group != c->group || s->group_rows != c->group_rows)
            fail_msg("%s: store %d, %u bits, group %u by %u", c->block, (int)s->store, s->bits, s->group_rows,
                     s->group);
        if (strcmp(said(&s->input), c->inputs) != 0)
            fail_msg("%s: inputs %s, not %s", c->block, said(&s->input), c->inputs);
        assert_true(s->input.scaled == (c->scale != NULL));
        assert_true((s->sides[SIDE_INPUT] != NULL) == (c->scale != NULL));
        if (c->scale != NULL)
            assert_string_equal(s->sides[SIDE_INPUT], c->scale);
        reading_release(&r);
    }
}

static void quant_config__takes_experts_alone_where_the_method_does(void **state)
{
    Reading r = read_block("{'quant_method': 'mxfp4', 'modules_to_not_convert': ['router']}", false);

    (void)state;
    assert_int_equal(r.st, ST_OK);
    assert_int_equal(quant_config_find(r.config, "model.layers.0.mlp.experts.down_proj", true)->store, QUANT_MXFP4);
    assert_null(quant_config_find(r.config, "model.layers.0.mlp.router", true));
    reading_release(&r);
}

static void quant_config__is_absent_where_nothing_is_quantised(void **state)
{
    json_t *meta = json_literal("{'model_type': 'llama', 'quantization_config': null}");
    const InstanceSource src = {.name = "config.json", .meta = meta};
    const QuantConfig *q = (const QuantConfig *)&src;
    Arena *arena = arena_new();
    Err err;

    (void)state;
    assert_int_equal(quant_config_read(&q, &src, arena, &err), ST_OK);
    assert_null(q);
    assert_null(quant_config_find(q, "lm_head", false));
    arena_free(arena);
    json_decref(meta);
}

/* ---- what is refused ------------------------------------------------------------------------------------------------ */
static void refused(const char *block, bool act_quant, const char *word)
{
    Reading r = read_block(block, act_quant);

    if (r.st == ST_OK)
        fail_msg("%s is taken", block);
    if (strstr(r.err.msg, word) == NULL || strstr(r.err.msg, "config.json") == NULL)
        fail_msg("%s: \"%s\" does not name %s", block, r.err.msg, word);
    reading_release(&r);
}

static void quant_config__what_it_does_not_know_is_refused_by_name(void **state)
{
    (void)state;
    refused("{'quant_method': 'exl9'}", false, "exl9");
    refused("{'quant_method': 'fp8', 'weight_scales': 3}", false, "weight_scales");
    refused("{'quant_method': 'fp8', 'fmt': 'e5m2'}", false, "fmt");
    refused("{'quant_method': 'fp8', 'weight_block_size': [128, 0]}", false, "weight_block_size");
    refused("{'quant_method': 'awq', 'bits': 3, 'group_size': 64}", false, "bits");
    refused("{'quant_method': 'gptq', 'bits': 4}", false, "group_size");
    refused("{'quant_method': 'modelopt', 'quant_algo': 'NVFP5'}", false, "NVFP5");
    refused("{'quant_method': 'modelopt', 'quant_algo': 'NVFP4', 'group_size': 32}", false, "group_size");
    refused(CT("pack-quantised", CT_INT4, "'input_activations': null"), false, "pack-quantised");
    refused(CT("int-quantized", CT_FP8_CHANNEL, "'input_activations': null"), false, "type");
}

/* Weights are read all the same; only who asks for rounded inputs has to be told. */
static void quant_config__inputs_that_no_op_rounds_are_refused_when_asked_for(void **state)
{
    static const struct {
        const char *block, *word;
    } odd[] = {
        {CT("int-quantized", CT_INT8, CT_INPUTS(8, "int", "token", "'dynamic': true, 'symmetric': false")),
         "input_activations.symmetric"},
        {CT("int-quantized", CT_INT8, CT_INPUTS(4, "int", "token", "'dynamic': true")), "input_activations.num_bits"},
        {CT("float-quantized", CT_FP8_CHANNEL, CT_INPUTS(8, "float", "tensor", "'dynamic': true")),
         "input_activations.strategy"},
        {CT("float-quantized", CT_FP8_CHANNEL, CT_INPUTS(8, "float", "group", "'dynamic': false, 'group_size': 128")),
         "input_activations.dynamic"},
        {CT("float-quantized", CT_FP8_CHANNEL, CT_INPUTS(8, "float", "group", "'dynamic': true, 'group_size': 0")),
         "input_activations.group_size"},
        {CT("nvfp4-pack-quantized", CT_NVFP4,
            CT_INPUTS(4, "float", "tensor_group", "'dynamic': 'local', 'group_size': 32")),
         "input_activations.group_size"},
        {"{'quant_method': 'fp8', 'activation_scheme': 'per_head'}", "activation_scheme"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        Reading r = read_block(odd[i].block, false);
        if (r.st != ST_OK)
            fail_msg("%s", r.err.msg);
        assert_string_equal(said(&quant_config_find(r.config, "a.q_proj", false)->input), "-");
        reading_release(&r);
        refused(odd[i].block, true, odd[i].word);
    }
}

/* ---- the tensor of static scales ------------------------------------------------------------------------------------ */
static void quant_check__wants_one_number_for_the_inputs_of_a_matrix(void **state)
{
    static const struct {
        const char *tensor; /* NULL: missing */
        const char *word;   /* NULL: taken */
    } scales[] = {{"['f32', []]", NULL},   {"['bf16', [1]]", NULL},       {NULL, "missing"},
                  {"['f32', [2]]", "[2]"}, {"['f32', [1, 1]]", "[1, 1]"}, {"['i32', []]", "i32"}};
    Reading r = read_block("{'quant_method': 'modelopt', 'quant_algo': 'FP8'}", true);
    const QuantScheme *s = quant_config_find(r.config, "m", false);

    (void)state;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        json_t *tensors = json_literal("{'m.weight': ['e4m3', [8, 32]], 'm.weight_scale': ['f32', []]}");
        const InstanceSource src = {.name = "config.json", .find = fixture_find, .ctx = tensors};
        DType format;
        Err err;

        if (scales[i].tensor != NULL)
            json_object_set_new(tensors, "m.input_scale", json_literal(scales[i].tensor));
        Status st = quant_check(&src, s, "m", 0, 8, 32, &format, &err);
        if (scales[i].word == NULL && st != ST_OK)
            fail_msg("%s", err.msg);
        if (scales[i].word != NULL &&
            (st == ST_OK || strstr(err.msg, "m.input_scale") == NULL || strstr(err.msg, scales[i].word) == NULL))
            fail_msg("%s: %s", scales[i].tensor ? scales[i].tensor : "none", st == ST_OK ? "taken" : err.msg);
        json_decref(tensors);
    }
    reading_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quant_config__gives_each_module_its_scheme_and_its_inputs),
        cmocka_unit_test(quant_config__takes_experts_alone_where_the_method_does),
        cmocka_unit_test(quant_config__is_absent_where_nothing_is_quantised),
        cmocka_unit_test(quant_config__what_it_does_not_know_is_refused_by_name),
        cmocka_unit_test(quant_config__inputs_that_no_op_rounds_are_refused_when_asked_for),
        cmocka_unit_test(quant_check__wants_one_number_for_the_inputs_of_a_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
