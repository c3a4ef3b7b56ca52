/* The tree's circuits meet the tree's kernels: every checkpoint that a circuit takes is planned on the CPU classes. */
#include "circuit_fixture.h"
#include "lower_fixture.h"

/* The class's own tables, with an object for each point of its families. */
static Kernels *tree_class(Embedded *e)
{
    Kernels *k = fix_kernels();
    const EmbeddedFile *families, *rules;
    Err err = {{0}};

    if (embedded_add_dir(e, "kernels/avx2", &err) != ST_OK)
        fail_msg("%s", err.msg);
    k->reg.files = e->files;
    k->reg.n_files = e->n;
    k->target.hw = "avx2";
    k->layers[k->target.n_layers++] = "kernels/avx2/common";
    families = registry_file(&k->reg, "kernels/avx2/common/FAMILIES.toml");
    rules = registry_file(&k->reg, "kernels/avx2/common/RULES.toml");
    assert_non_null(families);
    assert_non_null(rules);
    fix_objects(k, families->text);
    return k;
}

static void tree__every_checkpoint_is_planned_in_every_step_shape(void **state)
{
    static const char *const names[] = {"llama",           "llama3-rope",
                                        "mistral",         "qwen2",
                                        "qwen3",           "qwen3-yarn",
                                        "smollm2-135m",    "llama-3.1-8b",
                                        "qwen3-8b",        "f32-llama.gguf",
                                        "q4_1-llama.gguf", "q8_0-llama3rope.gguf",
                                        "q8_0-qwen3.gguf", "smollm2-q4_1.gguf",
                                        "granite",         "olmoe",
                                        "gemma3",          "qwen3_moe",
                                        "glm4_moe",        "minimax_m2",
                                        "gpt_oss",         "granite-3.3-2b",
                                        "olmoe-1b-7b",     "gemma-3-270m",
                                        "gemma-3-4b",      "qwen3-30b-a3b",
                                        "glm-4.5-air",     "minimax-m2",
                                        "gpt-oss-20b",     "granite.gguf",
                                        "olmoe.gguf",      "qwen3moe.gguf",
                                        "gemma3.gguf",     "glm4moe.gguf",
                                        "minimax-m2.gguf", "gpt-oss.gguf",
                                        "qwen3_next",      "qwen3_5",
                                        "qwen3_5_moe",     "nemotron_h",
                                        "deepseek_v3",     "qwen3-next-80b-a3b",
                                        "qwen3.5-35b-a3b", "qwen3.5-4b",
                                        "nemotron-h",      "deepseek-v3",
                                        "deepseek2.gguf",  "phi3",
                                        "smollm3",         "phi3.gguf",
                                        "smollm3.gguf",    "phi-3-mini-4k",
                                        "smollm3-3b"};
    static Embedded e;
    CircuitLibrary *lib = fixture_library();
    Kernels *k = tree_class(&e);
    FamilySet *fs = fix_load(k);

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Instance *in = fixture_open(lib, names[i]);
        const LowerOptions shapes[] = {fix_decode(1), fix_decode(2), fix_decode(8), fix_extend(512)};
        for (size_t s = 0; s < 4; s++) {
            Plan *p = fix_lower(in, fs, shapes[s]), *again = fix_lower(in, fs, shapes[s]);
            assert_string_equal(p->digest, again->digest);
            assert_true(p->logits_offset + (uint64_t)shapes[s].shape.max_outs * (uint64_t)dim_of(in, "vocab") * 4 <=
                        p->arena_bytes);
            plan_free(p);
            plan_free(again);
        }
        instance_free(in);
    }
    families_free(fs);
    k->reg.files = k->files;
    fix_kernels_free(k);
    embedded_free(&e);
    circuit_library_free(lib);
}

/* 30 equal layers are one distinct layer; its decode step reads each weight of the layer once. */
static void tree__the_default_model_has_one_distinct_layer_and_reads_each_weight_once(void **state)
{
    static Embedded e;
    CircuitLibrary *lib = fixture_library();
    Kernels *k = tree_class(&e);
    FamilySet *fs = fix_load(k);
    Instance *in = fixture_open(lib, "smollm2-q4_1.gguf");
    Plan *p = fix_lower(in, fs, fix_decode(1));
    uint64_t want = 0, got = 0;

    (void)state;
    assert_int_equal(in->n_layers, 30);
    for (uint32_t b = 0; b < in->n_blocks; b++) {
        for (uint32_t w = 0; w < in->blocks[b].n_weights; w++) {
            const InstanceWeight *weight = &in->blocks[b].weights[w];
            uint64_t row = weight->k * 4;
            if (!weight->vector)
                assert_true(dtype_row_bytes(weight->stored, weight->k, &row));
            want += row * weight->n;
        }
        for (uint32_t s = 0; s < p->blocks[b].n_steps; s++)
            got += p->blocks[b].steps[s].weight_bytes;
    }
    assert_int_equal(got, want);
    plan_free(p);
    instance_free(in);
    families_free(fs);
    k->reg.files = k->files;
    fix_kernels_free(k);
    embedded_free(&e);
    circuit_library_free(lib);
}

/* The layer's act_quant nodes by the checkpoint, its steps by the class, and the format that `down` is given. */
typedef struct Rounded {
    uint32_t nodes, narrow, scales;
    DType down;
} Rounded;

static Rounded rounded(const CircuitLibrary *lib, const FamilySet *fs, const char *quantization, bool act_quant)
{
    json_t *j = fixture_load("qwen3-8b");
    const InstanceSource src = {.name = "config.json",
                                .meta = json_object_get(j, "meta"),
                                .kv_format = DT_BF16,
                                .act_quant = act_quant,
                                .fallback = DT_NONE};
    Instance *in = NULL;
    Rounded r = {0};
    Err err;

    json_object_set_new(json_object_get(j, "meta"), "quantization_config", json_literal(quantization));
    if (instance_new(&in, lib, &src, &err) != ST_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(in->n_blocks, 1);
    Plan *p = fix_lower(in, fs, fix_decode(1));
    const InstanceBlock *own = &in->blocks[0], *b = p->blocks[0].source;
    for (uint32_t i = 0; i < own->n_nodes; i++)
        r.nodes += own->nodes[i].op->kind == OP_ACT_QUANT;
    for (uint32_t i = 0; i < own->n_weights; i++)
        r.scales += str_ends(own->weights[i].name, ".input");
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        r.narrow += b->nodes[i].op->kind == OP_ACT_QUANT;
        if (strcmp(b->nodes[i].id, "down") == 0)
            r.down = p->blocks[0].formats[b->nodes[i].in[0]];
    }
    r.narrow -= r.nodes;
    plan_free(p);
    instance_free(in);
    json_decref(j);
    return r;
}

static void tree__inputs_are_rounded_where_the_configuration_asks_and_the_caller_wants_it(void **state)
{
    static const char fp8[] = "{'quant_method': 'fp8', 'weight_block_size': [128, 128]}",
                      fp8_static[] = "{'quant_method': 'modelopt', 'quant_algo': 'FP8'}",
                      int8[] = "{'quant_method': 'compressed-tensors', 'format': 'int-quantized', 'config_groups': "
                               "{'group_0': {'targets': ['Linear'], 'weights': {'num_bits': 8, 'type': 'int', "
                               "'strategy': 'channel'}, 'input_activations': {'num_bits': 8, 'type': 'int', "
                               "'strategy': 'token', 'dynamic': true}}}}";
    static Embedded e;
    CircuitLibrary *lib = fixture_library();
    Kernels *k = tree_class(&e);
    FamilySet *fs = fix_load(k);
    Rounded r = rounded(lib, fs, fp8, false);

    (void)state;
    assert_int_equal(r.nodes + r.narrow + r.scales, 0);
    r = rounded(lib, fs, fp8, true); /* q, k and v share one, gate and up one */
    assert_int_equal(r.nodes, 4);
    assert_int_equal(r.narrow + r.scales, 0);
    assert_int_equal(r.down, DT_F32);
    r = rounded(lib, fs, fp8_static, true); /* each has a scale of its own */
    assert_int_equal(r.nodes, 7);
    assert_int_equal(r.scales, 7);
    r = rounded(lib, fs, int8, false);
    assert_int_equal(r.nodes, 0);
    assert_int_equal(r.narrow, 4);
    r = rounded(lib, fs, int8, true); /* codes reach the int8 kernels as they are, and are not rounded again */
    assert_int_equal(r.nodes, 4);
    assert_int_equal(r.narrow, 0);
    assert_int_equal(r.down, DT_I8_32);
    families_free(fs);
    k->reg.files = k->files;
    fix_kernels_free(k);
    embedded_free(&e);
    circuit_library_free(lib);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree__every_checkpoint_is_planned_in_every_step_shape),
        cmocka_unit_test(tree__the_default_model_has_one_distinct_layer_and_reads_each_weight_once),
        cmocka_unit_test(tree__inputs_are_rounded_where_the_configuration_asks_and_the_caller_wants_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
