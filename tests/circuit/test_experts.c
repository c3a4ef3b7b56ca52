/* Mixtures of experts and what came with them into the languages: a weight with experts from one tensor or from one each,
 * kinds of layers by several lists, configurations inside of configurations, layers that are known and not run. */
#include "circuit_fixture.h"

static CircuitLibrary *lib;

static int load_library(void **state)
{
    (void)state;
    lib = fixture_library();
    return 0;
}

static int free_library(void **state)
{
    (void)state;
    circuit_library_free(lib);
    return 0;
}

/* Adds or replaces a tensor ("['bf16', [64]]"); NULL deletes it. */
static void set_tensor(json_t *j, const char *name, const char *desc)
{
    json_t *tensors = json_object_get(j, "tensors");

    if (desc == NULL)
        json_object_del(tensors, name);
    else
        json_object_set_new(tensors, name, json_literal(desc));
}

/* Keys of a checkpoint's configuration, or of an object of it, replaced. */
static void set_meta(json_t *j, const char *object, const char *change)
{
    json_t *more = json_literal(change), *meta = json_object_get(j, "meta");

    json_object_update(object ? json_object_get(meta, object) : meta, more);
    json_decref(more);
}

static const InstanceBlock *block_of(const Instance *in, uint32_t layer)
{
    return &in->blocks[in->layers[layer].block];
}

static const InstanceWeight *slot_of(const Instance *in, uint32_t layer, const char *slot)
{
    int w = weight_of(block_of(in, layer), slot);

    assert_true(w >= 0);
    return &block_of(in, layer)->weights[w];
}

static const InstanceBinding *binding_of(const Instance *in, uint32_t layer, const char *slot)
{
    return &in->layers[layer].bindings[slot_of(in, layer, slot) - block_of(in, layer)->weights];
}

static uint32_t width_of(const InstanceBlock *b, const char *id, uint32_t out)
{
    assert_non_null(node_of(b, id));
    return b->edges[node_of(b, id)->out[out]].width;
}

/* ---- weights ------------------------------------------------------------------------------------------------------ */

static void experts__have_a_tensor_each(void **state)
{
    Instance *in = fixture_open(lib, "qwen3_moe");
    const InstanceWeight *w = slot_of(in, 1, "experts_gate");
    const InstanceBinding *b = binding_of(in, 1, "experts_gate");

    (void)state;
    assert_int_equal(w->experts, 8);
    assert_int_equal(w->n, 8 * 32); /* over all experts */
    assert_int_equal(w->k, 64);
    assert_non_null(b->tensors);
    assert_string_equal(b->tensors[7], "model.layers.1.mlp.experts.7.gate_proj.weight");
    assert_int_equal(width_of(block_of(in, 1), "top_k", 0), 2);
    assert_int_equal(width_of(block_of(in, 1), "experts_gate", 0), 2 * 32); /* of the two chosen */
    assert_int_equal(width_of(block_of(in, 1), "experts_down", 0), 2 * 64);
    assert_int_equal(width_of(block_of(in, 1), "blend", 0), 64);
    instance_free(in);
}

static void experts__of_one_tensor_have_rows_of_it(void **state)
{
    json_t *j = fixture_load("qwen3_moe");
    Instance *in;

    (void)state;
    for (int l = 0; l < 2; l++) {
        char name[80];
        for (int e = 0; e < 8; e++)
            for (int p = 0; p < 3; p++) {
                snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s_proj.weight", l, e,
                         (const char *const[]){"gate", "up", "down"}[p]);
                set_tensor(j, name, NULL);
            }
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.gate_up_proj", l);
        set_tensor(j, name, "['bf16', [8, 64, 64]]");
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.down_proj", l);
        set_tensor(j, name, "['bf16', [8, 64, 32]]");
    }
    in = fixture_instance(lib, j, false);
    assert_null(binding_of(in, 0, "experts_up")->tensors);
    assert_string_equal(binding_of(in, 0, "experts_up")->tensor, "model.layers.0.mlp.experts.gate_up_proj");
    assert_int_equal(binding_of(in, 0, "experts_gate")->row, 0);
    assert_int_equal(binding_of(in, 0, "experts_up")->row, 32);
    assert_int_equal(binding_of(in, 0, "experts_up")->of, 64);
    instance_free(in);
    set_tensor(j, "model.layers.1.mlp.experts.gate_up_proj", "['bf16', [8, 32, 64]]");
    assert_refused(lib, j, false, ST_FORMAT,
                   TEXTS("model.layers.1.mlp.experts.gate_up_proj", "[8, 32, 64]", "[8, 64, 64]"));
    json_decref(j);
}

static void experts__stored_turned_and_side_by_side_are_columns(void **state)
{
    Instance *in = fixture_open(lib, "gpt_oss");
    const InstanceBinding *up = binding_of(in, 2, "experts_up");

    (void)state;
    assert_true(up->columns);
    assert_int_equal(up->step, 2);
    assert_int_equal(up->row, 1);
    assert_int_equal(up->of, 128);
    assert_int_equal(binding_of(in, 2, "experts_up_bias")->step, 2);
    assert_int_equal(slot_of(in, 2, "experts_up_bias")->k, 8 * 64);
    assert_true(slot_of(in, 2, "experts_up_bias")->vector);
    assert_int_equal(binding_of(in, 2, "experts_down")->step, 1);
    instance_free(in);
}

static void experts__must_all_be_there_in_one_shape_and_format(void **state)
{
    const char *name = "model.layers.1.mlp.experts.5.up_proj.weight";
    json_t *j = fixture_load("qwen3_moe");

    (void)state;
    set_tensor(j, name, NULL);
    assert_refused(lib, j, false, ST_NOTFOUND, TEXTS(name, "each of the 8 experts"));
    set_tensor(j, name, "['bf16', [32, 32]]");
    assert_refused(lib, j, false, ST_FORMAT, TEXTS(name, "[32, 32]", "[32, 64]"));
    set_tensor(j, name, "['f16', [32, 64]]");
    assert_refused(lib, j, false, ST_UNSUPPORTED, TEXTS(name, "f16", "one format"));
    set_tensor(j, name, "['bf16', [32, 64]]");
    set_tensor(j, "model.layers.1.mlp.experts.8.up_proj.weight", "['bf16', [32, 64]]");
    assert_refused(lib, j, false, ST_UNSUPPORTED, TEXTS("experts.8.up_proj.weight", "nothing reads"));
    json_decref(j);
}

static void experts__more_than_there_are_cannot_be_chosen(void **state)
{
    json_t *j = fixture_load("qwen3_moe");

    (void)state;
    set_meta(j, NULL, "{'num_experts_per_tok': 9}");
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("n_chosen = 9", "n_experts = 8"));
    json_decref(j);
}

/* ---- kinds of layers ---------------------------------------------------------------------------------------------- */

static bool has_experts(const Instance *in, uint32_t layer)
{
    return node_of(block_of(in, layer), "top_k") != NULL;
}

static void kinds__dense_layers_are_listed_or_counted(void **state)
{
    json_t *j = fixture_load("qwen3-30b-a3b");
    Instance *in;

    (void)state;
    set_meta(j, NULL, "{'num_hidden_layers': 8, 'mlp_only_layers': [0, 5], 'decoder_sparse_step': 2}");
    in = fixture_instance(lib, j, false);
    for (uint32_t l = 0; l < 8; l++) /* every second one has experts, but for layer 5 */
        assert_int_equal(has_experts(in, l), l % 2 == 1 && l != 5);
    assert_int_equal(in->n_blocks, 2);
    instance_free(in);
    set_meta(j, NULL, "{'use_sliding_window': true, 'sliding_window': 64, 'max_window_layers': 4}");
    in = fixture_instance(lib, j, false);
    assert_true(layer_window(in, 3) == 0 && layer_window(in, 4) == 64 && layer_window(in, 7) == 64);
    assert_true(has_experts(in, 7) && !has_experts(in, 4));
    assert_int_equal(in->n_blocks, 4);
    instance_free(in);
    set_meta(j, NULL, "{'mlp_only_layers': [0, 'five']}");
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("mlp_only_layers", "numbers of layers"));
    json_decref(j);
}

static void kinds__first_layers_are_dense(void **state)
{
    Instance *in = fixture_open(lib, "glm-4.5-air");

    (void)state;
    assert_false(has_experts(in, 0));
    assert_true(has_experts(in, 1));
    assert_non_null(node_of(block_of(in, 1), "shared_add"));
    assert_null(node_of(block_of(in, 1), "shared_switched"));
    assert_null(node_of(block_of(in, 1), "q_norm")); /* this one has none */
    assert_int_equal(dim_of(in, "rotary_dims"), 64); /* half of a head */
    assert_int_equal(in->n_blocks, 2);
    instance_free(in);
}

static void mtp__layers_behind_the_last_are_counted_and_not_run(void **state)
{
    json_t *j = fixture_load("glm4_moe");
    Instance *in;

    (void)state;
    set_tensor(j, "model.layers.3.eh_proj.weight", "['bf16', [64, 128]]");
    set_tensor(j, "model.layers.3.mlp.experts.0.up_proj.weight", "['bf16', [32, 64]]");
    in = fixture_instance(lib, j, false);
    assert_int_equal(in->n_layers, 3);
    assert_int_equal(in->n_unread, 1);
    assert_int_equal(in->unread[0].tensors, 2);
    assert_non_null(strstr(in->unread[0].because, "not run"));
    instance_free(in);
    set_tensor(j, "model.layers.4.eh_proj.weight", "['bf16', [64, 128]]"); /* one more than the configuration says */
    assert_refused(lib, j, false, ST_UNSUPPORTED, TEXTS("model.layers.4.eh_proj.weight"));
    json_decref(j);
    in = fixture_open(lib, "glm4moe.gguf"); /* counts it among its blocks */
    assert_int_equal(in->n_layers, 2);
    assert_int_equal(in->n_unread, 1);
    assert_non_null(node_of(block_of(in, 1), "q_norm")); /* its tensors say so, no key does */
    instance_free(in);
}

/* ---- configurations inside of configurations ---------------------------------------------------------------------- */

static void nested__the_language_model_is_read_beside_the_rest(void **state)
{
    json_t *j = fixture_load("gemma-3-4b");
    Instance *in = fixture_instance(lib, j, false);

    (void)state;
    assert_int_equal(dim_of(in, "hidden"), 2560);
    assert_int_equal(in->n_layers, 34);
    assert_int_equal(in->n_eos, 2); /* from outside */
    assert_true(layer_window(in, 4) == 1024 && layer_window(in, 5) == 0);
    assert_int_equal(in->n_ropes, 2);
    assert_true(in->ropes[node_of(block_of(in, 5), "rope")->table].factor == 8);
    assert_true(in->ropes[node_of(block_of(in, 4), "rope")->table].theta == 10000);
    instance_free(in);
    set_meta(j, "text_config", "{'attention_temperature': 2}");
    assert_refused(lib, j, false, ST_UNSUPPORTED, TEXTS("text_config.attention_temperature", "not classified"));
    json_decref(j);
    j = fixture_load("gemma-3-4b");
    set_meta(j, "text_config", "{'hidden_size': 'wide'}");
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("text_config.hidden_size", "an integer"));
    set_meta(j, "text_config", "{'hidden_size': 2560}");
    set_meta(j, NULL, "{'hidden_size': 64}");
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("text_config.hidden_size and hidden_size disagree"));
    json_decref(j);
}

static void norms__are_stored_less_one_but_for_gguf(void **state)
{
    Instance *in = fixture_open(lib, "gemma3");

    (void)state;
    assert_true(param_of(&in->blocks[0], "ffn_post_norm", "offset") == 1);
    assert_true(param_of(&in->stem, "embed", "scale") == 8);
    instance_free(in);
    in = fixture_open(lib, "gemma3.gguf");
    assert_true(param_of(&in->blocks[0], "ffn_post_norm", "offset") == 0);
    assert_true(layer_window(in, 0) == 8 && layer_window(in, 5) == 0);
    instance_free(in);
}

static void multipliers__come_from_either_kind_of_file(void **state)
{
    static const char *const names[] = {"granite", "granite.gguf"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        Instance *in = fixture_open(lib, names[i]);
        assert_true(param_of(&in->stem, "embed", "scale") == 12);
        assert_true(param_of(&in->blocks[0], "attn", "scale") == 0.0156);
        assert_true(param_of(&in->blocks[0], "ffn_add", "scale") == 0.22);
        assert_true(param_of(&in->head, "lm_head", "scale") == 0.125);
        instance_free(in);
    }
}

static void norms__of_q_and_k_go_over_heads_or_rows(void **state)
{
    Instance *in = fixture_open(lib, "minimax_m2");

    (void)state;
    assert_true(param_of(&in->blocks[0], "q_norm", "group") == 128);
    assert_true(param_of(&in->blocks[0], "k_norm", "group") == 64);
    instance_free(in);
    in = fixture_open(lib, "qwen3_moe");
    assert_true(param_of(&in->blocks[0], "q_norm", "group") == 32);
    instance_free(in);
}

/* Both spellings of fused matrices, and a scaling whose factors nothing reads. */
static void fused__parts_are_rows_of_one_tensor(void **state)
{
    static const char *const names[] = {"phi3", "phi3.gguf"};
    json_t *j = fixture_load("phi-3-mini-4k"), *meta = json_object_get(j, "meta");

    (void)state;
    for (int i = 0; i < 2; i++) {
        Instance *in = fixture_open(lib, names[i]);
        const InstanceBinding *q = binding_of(in, 1, "q"), *v = binding_of(in, 1, "v"), *up = binding_of(in, 1, "up");
        assert_string_equal(q->tensor, v->tensor);
        assert_true(q->row == 0 && q->of == 128);
        assert_true(v->row == 96 && v->of == 128);
        assert_true((int64_t)up->row == dim_of(in, "ffn") && (int64_t)up->of == 2 * dim_of(in, "ffn"));
        assert_true(layer_window(in, 1) == 0);
        instance_free(in);
    }
    Instance *in = fixture_instance(lib, j, false);
    assert_true(layer_window(in, 0) == 2047);
    instance_free(in);
    json_object_set_new(meta, "rope_scaling", json_literal("{'type': 'longrope', 'short_factor': [1.0]}"));
    assert_refused(lib, j, false, ST_UNSUPPORTED, TEXTS("rope_scaling.short_factor", "longrope"));
    json_decref(j);
}

static void gguf__maps_of_every_family_take_what_converters_write(void **state)
{
    static const char *const names[] = {"granite.gguf", "olmoe.gguf",   "qwen3moe.gguf",
                                        "gemma3.gguf",  "glm4moe.gguf", "minimax-m2.gguf",
                                        "gpt-oss.gguf", "phi3.gguf",    "smollm3.gguf"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        instance_free(fixture_open(lib, names[i]));
    Instance *in = fixture_open(lib, "minimax-m2.gguf");
    assert_int_equal(dim_of(in, "rotary_dims"), 16);
    assert_int_equal(slot_of(in, 0, "experts_down")->experts, 8);
    instance_free(in);
    in = fixture_open(lib, "qwen3moe.gguf");
    assert_true(param_of(&in->blocks[0], "top_k", "renormalize") == 1); /* no key says it */
    instance_free(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts__have_a_tensor_each),
        cmocka_unit_test(experts__of_one_tensor_have_rows_of_it),
        cmocka_unit_test(experts__stored_turned_and_side_by_side_are_columns),
        cmocka_unit_test(experts__must_all_be_there_in_one_shape_and_format),
        cmocka_unit_test(experts__more_than_there_are_cannot_be_chosen),
        cmocka_unit_test(kinds__dense_layers_are_listed_or_counted),
        cmocka_unit_test(kinds__first_layers_are_dense),
        cmocka_unit_test(mtp__layers_behind_the_last_are_counted_and_not_run),
        cmocka_unit_test(nested__the_language_model_is_read_beside_the_rest),
        cmocka_unit_test(norms__are_stored_less_one_but_for_gguf),
        cmocka_unit_test(multipliers__come_from_either_kind_of_file),
        cmocka_unit_test(norms__of_q_and_k_go_over_heads_or_rows),
        cmocka_unit_test(fused__parts_are_rows_of_one_tensor),
        cmocka_unit_test(gguf__maps_of_every_family_take_what_converters_write),
    };
    return cmocka_run_group_tests(tests, load_library, free_library);
}
