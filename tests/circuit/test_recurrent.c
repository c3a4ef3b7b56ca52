/* Architectures whose layers keep a state for each sequence, or latents, and what the language has for them: kinds of states, flat
 * vectors, layers counted by a list, patterns of letters, lists of numbers, the word of the outer level, scales of extended contexts. */
#include "circuit_fixture.h"
#include <math.h>

static const InstanceBlock *block_named(const Instance *in, const char *name)
{
    for (uint32_t i = 0; i < in->n_blocks; i++)
        if (strcmp(in->blocks[i].name, name) == 0)
            return &in->blocks[i];
    fail_msg("there is no block %s", name);
    return NULL;
}

static const InstanceNode *node_doing(const InstanceBlock *b, OpKind op)
{
    for (uint32_t i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].op->kind == op)
            return &b->nodes[i];
    fail_msg("block %s has no %s", b->name, op_def(op)->name);
    return NULL;
}

static void states__of_sequences_are_f32_and_of_tokens_as_asked(void **state)
{
    CircuitLibrary *lib = fixture_library();
    Instance *in = fixture_open(lib, "qwen3_next");
    const InstanceBlock *delta = block_named(in, "delta"), *full = block_named(in, "full");

    (void)state;
    assert_int_equal(delta->n_states, 2);
    for (int s = 0; s < 2; s++)
        assert_true(delta->states[s].kind == STATE_RECURRENT && delta->states[s].format == DT_F32);
    assert_int_equal(delta->states[0].parts[0].heads, 3); /* taps - 1 */
    assert_int_equal(delta->states[0].parts[0].width, 2 * 2 * 32 + 4 * 32);
    assert_int_equal(delta->states[1].parts[0].heads, 4);
    assert_int_equal(delta->states[1].parts[0].width, 32 * 32);
    assert_int_equal(full->n_states, 1);
    assert_true(full->states[0].kind == STATE_PAGED && full->states[0].format == DT_BF16);
    assert_int_equal(in->n_states, 3 * 2 + 1);
    instance_free(in);
    circuit_library_free(lib);
}

static void flat__vectors_may_have_several_dims_but_not_other_elements(void **state)
{
    CircuitLibrary *lib = fixture_library();
    json_t *j = fixture_load("qwen3_5");
    json_t *conv = json_object_get(json_object_get(j, "tensors"), "model.layers.0.linear_attn.conv1d.weight");

    (void)state;
    assert_int_equal(json_array_size(json_array_get(conv, 1)), 3);
    json_array_set_new(conv, 1, json_literal("[256, 1, 5]"));
    assert_refused(lib, j, false, ST_FORMAT,
                   TEXTS("model.layers.0.linear_attn.conv1d.weight", "[256, 1, 5]", "[1024]"));
    json_decref(j);
    circuit_library_free(lib);
}

static void layers__are_counted_by_their_list(void **state)
{
    CircuitLibrary *lib = fixture_library();
    json_t *j = fixture_load("nemotron-h"), *meta = json_object_get(j, "meta");
    Instance *in = fixture_instance(lib, j, false);

    (void)state;
    assert_int_equal(in->n_layers, 4);
    assert_string_equal(in->blocks[in->layers[0].block].name, "mamba");
    assert_string_equal(in->blocks[in->layers[1].block].name, "moe");
    instance_free(in);
    json_object_set_new(meta, "num_hidden_layers", json_integer(5));
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("num_hidden_layers", "5", "layers_block_type has 4 items"));
    json_decref(j);
    circuit_library_free(lib);
}

static void layers__a_pattern_of_letters_names_them(void **state)
{
    CircuitLibrary *lib = fixture_library();
    json_t *j = fixture_load("nemotron-h"), *meta = json_object_get(j, "meta");
    Instance *in = fixture_instance(lib, j, false), *again;
    char a[33], b[33];
    Err err;

    (void)state;
    json_object_del(meta, "layers_block_type");
    json_object_set_new(meta, "num_hidden_layers", json_integer(4));
    json_object_set_new(meta, "hybrid_override_pattern", json_string("ME*-"));
    again = fixture_instance(lib, j, false);
    assert_true(instance_digest(in, a, &err) == ST_OK && instance_digest(again, b, &err) == ST_OK);
    assert_string_equal(a, b);
    json_object_set_new(meta, "hybrid_override_pattern", json_string("ME*X"));
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("hybrid_override_pattern"));
    instance_free(in);
    instance_free(again);
    json_decref(j);
    circuit_library_free(lib);
}

/* The integers of a list are words that the map names; without the list an interval says the same. */
static void layers__a_list_of_numbers_names_them(void **state)
{
    CircuitLibrary *lib = fixture_library();
    json_t *j = fixture_load("smollm3-3b"), *meta = json_object_get(j, "meta");
    Instance *in = fixture_instance(lib, j, false), *again;
    char a[33], b[33];
    Err err;

    (void)state;
    for (uint32_t l = 0; l < in->n_layers; l++)
        assert_string_equal(in->blocks[in->layers[l].block].name, l % 4 == 3 ? "no_rope" : "rope");
    assert_null(node_of(block_named(in, "no_rope"), "rope"));
    assert_non_null(node_of(block_named(in, "rope"), "rope"));
    json_array_set_new(json_object_get(meta, "no_rope_layers"), 1, json_integer(2));
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("no_rope_layers", "one of 1, 0"));
    json_array_set_new(json_object_get(meta, "no_rope_layers"), 1, json_true());
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("no_rope_layers", "an array of strings or of integers"));
    json_object_del(meta, "no_rope_layers");
    again = fixture_instance(lib, j, false);
    assert_true(instance_digest(in, a, &err) == ST_OK && instance_digest(again, b, &err) == ST_OK);
    assert_string_equal(a, b);
    instance_free(in);
    instance_free(again);
    json_decref(j);
    circuit_library_free(lib);
}

static void config__limits_of_time_steps_must_be_none(void **state)
{
    static const char *const fine[] = {"[0.0, 1.79e308]", "[0.0, {'__float__': 'Infinity'}]"};
    CircuitLibrary *lib = fixture_library();
    json_t *j = fixture_load("nemotron-h"), *meta = json_object_get(j, "meta");

    (void)state;
    for (int i = 0; i < 2; i++) {
        json_object_set_new(meta, "time_step_limit", json_literal(fine[i]));
        instance_free(fixture_instance(lib, j, false));
    }
    json_object_set_new(meta, "time_step_limit", json_literal("[0.0, 0.1]"));
    assert_refused(lib, j, false, ST_UNSUPPORTED, TEXTS("time_step_limit"));
    json_decref(j);
    circuit_library_free(lib);
}

/* The nested level of this file says that the head is not tied, the outer one that it is. */
static void config__the_outer_level_has_the_last_word_on_tying(void **state)
{
    CircuitLibrary *lib = fixture_library();
    json_t *j = fixture_load("qwen3.5-4b"), *meta = json_object_get(j, "meta");
    Instance *in = fixture_instance(lib, j, false);
    char embed[64];
    bool tied = false;

    (void)state;
    snprintf(embed, sizeof embed, "%s", in->stem_bindings[0].tensor);
    for (uint32_t i = 0; i < in->head.n_weights; i++)
        tied |= strcmp(in->head_bindings[i].tensor, embed) == 0;
    assert_true(tied);
    instance_free(in);
    json_object_set_new(meta, "tie_word_embeddings", json_false());
    in = fixture_instance(lib, j, false);
    for (uint32_t i = 0; i < in->head.n_weights; i++)
        assert_string_not_equal(in->head_bindings[i].tensor, embed);
    instance_free(in);
    json_decref(j);
    circuit_library_free(lib);
}

static double mla_scale(const CircuitLibrary *lib, const json_t *j, bool gguf)
{
    Instance *in = fixture_instance(lib, j, gguf);
    const InstanceNode *n = node_doing(block_named(in, "dense"), OP_MLA_ATTENTION);
    double scale = n->param[op_param(n->op, "scale")];

    instance_free(in);
    return scale;
}

/* 192 elements of a head; yarn with factor 40 and mscale_all_dim 1 (DeepSeek-V3's config.json). */
static void config__attention_is_scaled_by_yarns_mscale_squared(void **state)
{
    CircuitLibrary *lib = fixture_library();
    json_t *j = fixture_load("deepseek-v3"), *meta = json_object_get(j, "meta");
    double mscale = 0.1 * log(40) + 1;

    (void)state;
    assert_true(fabs(mla_scale(lib, j, false) - mscale * mscale / sqrt(192)) < 1e-12);
    json_object_del(meta, "rope_scaling");
    assert_true(fabs(mla_scale(lib, j, false) - 1 / sqrt(192)) < 1e-12);
    json_decref(j);
    j = fixture_load("deepseek2.gguf"); /* a tenth of mscale_all_dim */
    assert_true(fabs(mla_scale(lib, j, true) - mscale * mscale / sqrt(192)) < 1e-12);
    json_decref(j);
    circuit_library_free(lib);
}

/* Converters add 1 to norms, work A_log out, and put q, k, v and z side by side. */
static void gguf__holds_what_safetensors_stand_for(void **state)
{
    CircuitLibrary *lib = fixture_library();
    Instance *in = fixture_open(lib, "qwen3next.gguf");
    const InstanceBlock *b = block_named(in, "delta");
    const InstanceNode *norm = node_doing(b, OP_RMS_NORM), *gates = node_doing(b, OP_GDN_GATES);

    (void)state;
    assert_true(norm->param[op_param(norm->op, "offset")] == 0);
    assert_string_equal(gates->op->params[0].names[(int)gates->param[0]], "value");
    for (uint32_t i = 0; i < b->n_nodes; i++)
        assert_true(b->nodes[i].op->kind != OP_CONCAT);
    instance_free(in);
    circuit_library_free(lib);
}

/* Keys say the widths of heads as they are cached and as they are; both files come to one model. */
static void gguf__latents_have_the_dims_and_the_rope_of_config_json(void **state)
{
    static const char *const dims[] = {"nope_dim",   "rotary_dims", "v_dim",       "latent_dim",
                                       "qk_dim",     "n_layers",    "n_experts",   "n_chosen",
                                       "ffn_expert", "ffn_shared",  "max_position"};
    CircuitLibrary *lib = fixture_library();
    Instance *a = fixture_open(lib, "deepseek-v3"), *b = fixture_open(lib, "deepseek2.gguf");
    json_t *j = fixture_load("deepseek2.gguf");

    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        int64_t x = 0, y = 0;

        assert_true(instance_dim(a, dims[i], &x) && instance_dim(b, dims[i], &y));
        assert_int_equal(x, y);
    }
    assert_int_equal(a->n_ropes, b->n_ropes);
    assert_int_equal(a->ropes[0].kind, b->ropes[0].kind);
    assert_true(a->ropes[0].factor == b->ropes[0].factor);
    assert_true(a->ropes[0].attention_factor == b->ropes[0].attention_factor);
    instance_free(a);
    instance_free(b);
    json_object_set_new(json_object_get(j, "meta"), "deepseek2.expert_gating_func", json_integer(1));
    assert_refused(lib, j, true, ST_FORMAT, (const char *const[]){"gating = 1", "expert_gating_func = 2", NULL});
    json_object_set_new(json_object_get(j, "meta"), "deepseek2.expert_gating_func", json_integer(2));
    json_object_set_new(json_object_get(j, "meta"), "deepseek2.attention.temperature_scale", json_real(0.1));
    assert_refused(lib, j, true, ST_UNSUPPORTED,
                   (const char *const[]){"deepseek2.attention.temperature_scale is 0.1", NULL});
    json_decref(j);
    circuit_library_free(lib);
}

static void latents__are_one_paged_part_for_all_heads(void **state)
{
    CircuitLibrary *lib = fixture_library();
    Instance *in = fixture_open(lib, "deepseek-v3");
    const InstanceBlock *b = block_named(in, "moe");

    (void)state;
    assert_int_equal(b->n_states, 1);
    assert_true(b->states[0].kind == STATE_PAGED && b->states[0].n_parts == 1);
    assert_int_equal(b->states[0].parts[0].heads * b->states[0].parts[0].width, 512 + 64);
    assert_string_equal(in->blocks[in->layers[2].block].name, "dense");
    assert_string_equal(in->blocks[in->layers[3].block].name, "moe");
    instance_free(in);
    circuit_library_free(lib);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states__of_sequences_are_f32_and_of_tokens_as_asked),
        cmocka_unit_test(flat__vectors_may_have_several_dims_but_not_other_elements),
        cmocka_unit_test(layers__are_counted_by_their_list),
        cmocka_unit_test(layers__a_pattern_of_letters_names_them),
        cmocka_unit_test(layers__a_list_of_numbers_names_them),
        cmocka_unit_test(config__limits_of_time_steps_must_be_none),
        cmocka_unit_test(config__the_outer_level_has_the_last_word_on_tying),
        cmocka_unit_test(config__attention_is_scaled_by_yarns_mscale_squared),
        cmocka_unit_test(gguf__holds_what_safetensors_stand_for),
        cmocka_unit_test(gguf__latents_have_the_dims_and_the_rope_of_config_json),
        cmocka_unit_test(latents__are_one_paged_part_for_all_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
