/* Instances of every architecture: dims, nodes, edges, widths, distinct layers, states. */
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

static const char plain_layer[] = "attn_norm q k v rope kv_write attn o attn_add ffn_norm gate up act down ffn_add";
static const char qk_norm_layer[] =
    "attn_norm q k v q_norm k_norm rope kv_write attn o attn_add ffn_norm gate up act down ffn_add";

typedef struct Want {
    const char *name, *arch, *nodes;
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_position;
    const char *slots; /* slots that vary, '|' between: "+q_bias|-o_bias" */
} Want;

static void check_slots(const InstanceBlock *b, const char *slots)
{
    char copy[128], *save = NULL;

    snprintf(copy, sizeof copy, "%s", slots);
    for (char *s = strtok_r(copy, "|", &save); s != NULL; s = strtok_r(NULL, "|", &save))
        if ((weight_of(b, s + 1) >= 0) != (s[0] == '+'))
            fail_msg("slot %s is not as expected", s);
}

static void instance__every_architecture_has_its_dims_and_nodes(void **state)
{
    static const Want wants[] = {
        {"llama", "llama", plain_layer, 2, 64, 2, 2, 32, 192, 256, 512, "-q_bias|-o_bias|-gate_bias"},
        {"llama3-rope", "llama", plain_layer, 2, 64, 4, 4, 64, 128, 256, 1024, "-q_bias"},
        {"mistral", "mistral", plain_layer, 2, 64, 4, 2, 32, 128, 256, 512, "-q_bias"},
        {"qwen2", "qwen2", plain_layer, 2, 64, 4, 2, 16, 128, 256, 512, "+q_bias|+k_bias|+v_bias|-o_bias"},
        {"qwen3", "qwen3", qk_norm_layer, 2, 64, 4, 2, 64, 128, 256, 512, "-q_bias|+q_norm|+k_norm"},
        {"qwen3-yarn", "qwen3", qk_norm_layer, 2, 64, 4, 2, 32, 128, 256, 256, "-q_bias|+q_norm"},
        {"smollm2-135m", "llama", plain_layer, 30, 576, 9, 3, 64, 1536, 49152, 8192, "-q_bias"},
        {"llama-3.1-8b", "llama", plain_layer, 32, 4096, 32, 8, 128, 14336, 128256, 131072, "-q_bias"},
        {"qwen3-8b", "qwen3", qk_norm_layer, 36, 4096, 32, 8, 128, 12288, 151936, 40960, "-q_bias|+k_norm"},
        {"q4_1-llama.gguf", "llama", plain_layer, 2, 96, 4, 2, 32, 160, 272, 512, "-q_bias"},
        {"f32-llama.gguf", "llama", plain_layer, 1, 64, 4, 2, 32, 80, 272, 512, "-q_bias"},
        {"q8_0-qwen3.gguf", "qwen3", qk_norm_layer, 1, 96, 4, 2, 32, 160, 272, 512, "+q_norm"},
        {"q8_0-llama3rope.gguf", "llama", plain_layer, 1, 64, 4, 2, 32, 96, 272, 512, "-q_bias"},
        {"smollm2-q4_1.gguf", "llama", plain_layer, 30, 576, 9, 3, 64, 1536, 49152, 8192, "-q_bias"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof wants / sizeof wants[0]; i++) {
        const Want *w = &wants[i];
        Instance *in = fixture_open(lib, w->name);

        assert_string_equal(in->arch, w->arch);
        assert_int_equal(in->n_layers, w->layers);
        assert_int_equal(dim_of(in, "n_layers"), w->layers);
        assert_int_equal(dim_of(in, "hidden"), w->hidden);
        assert_int_equal(dim_of(in, "n_heads"), w->heads);
        assert_int_equal(dim_of(in, "n_kv_heads"), w->kv_heads);
        assert_int_equal(dim_of(in, "head_dim"), w->head_dim);
        assert_int_equal(dim_of(in, "ffn"), w->ffn);
        assert_int_equal(dim_of(in, "vocab"), w->vocab);
        assert_int_equal(dim_of(in, "max_position"), w->max_position);
        for (uint32_t k = 1; k < in->n_dims; k++)
            assert_true(strcmp(in->dims[k - 1].name, in->dims[k].name) < 0);
        assert_int_equal(in->n_blocks, 1);
        assert_nodes(&in->blocks[0], w->nodes);
        assert_nodes(&in->stem, "embed");
        assert_nodes(&in->head, "final_norm lm_head sample");
        check_slots(&in->blocks[0], w->slots);
        assert_int_equal(in->n_ropes, 1);
        assert_int_equal(in->ropes[0].dims, w->head_dim);
        instance_free(in);
    }
}

static void instance__edges_have_one_producer_and_a_width(void **state)
{
    Instance *in = fixture_open(lib, "qwen3");
    const InstanceBlock *b = &in->blocks[0];
    const InstanceNode *q = node_of(b, "q"), *qn = node_of(b, "q_norm"), *add = node_of(b, "attn_add"),
                       *last = node_of(b, "ffn_add");

    (void)state;
    assert_string_equal(b->edges[b->in_edge].name, "x");
    assert_int_equal(b->edges[b->in_edge].producer, -1);
    assert_string_equal(b->edges[add->out[0]].name, "x.1");
    assert_string_equal(b->edges[last->out[0]].name, "x.2");
    assert_int_equal(b->out_edge, last->out[0]);
    assert_int_equal(add->in[0], b->in_edge);
    assert_int_equal(last->in[0], add->out[0]);
    assert_int_equal(qn->in[0], q->out[0]); /* rebinding q makes a second edge */
    assert_int_not_equal(qn->out[0], q->out[0]);
    assert_int_equal(node_of(b, "rope")->in[0], qn->out[0]);
    assert_int_equal(b->edges[q->out[0]].width, 256);
    assert_int_equal(b->edges[node_of(b, "k")->out[0]].width, 128);
    assert_int_equal(b->edges[node_of(b, "act")->out[0]].width, 128);
    for (uint32_t n = 0; n < b->n_nodes; n++) {
        for (uint32_t i = 0; i < b->nodes[n].op->n_out; i++)
            assert_int_equal(b->edges[b->nodes[n].out[i]].producer, n);
        for (uint32_t i = 0; i < b->nodes[n].op->n_in; i++)
            assert_true(b->edges[b->nodes[n].in[i]].producer < (int32_t)n);
    }
    assert_int_equal(in->stem.edges[in->stem.in_edge].width, 1);
    assert_int_equal(in->stem.edges[in->stem.out_edge].width, 64);
    assert_int_equal(in->head.edges[in->head.out_edge].width, 256);
    instance_free(in);
}

static void instance__parameters_are_numbers(void **state)
{
    Instance *in = fixture_open(lib, "qwen3");
    const InstanceBlock *b = &in->blocks[0];

    (void)state;
    assert_true(param_of(b, "attn_norm", "eps") == 1e-6);
    assert_true(param_of(b, "attn_norm", "offset") == 0);
    assert_true(param_of(b, "q_norm", "group") == 64);
    assert_true(param_of(b, "rope", "head_dim") == 64);
    assert_true(param_of(b, "rope", "style") == 0); /* neox */
    assert_true(param_of(b, "attn", "scale") == 0.125);
    assert_true(param_of(b, "attn", "n_heads") == 4 && param_of(b, "attn", "n_kv_heads") == 2);
    assert_true(param_of(b, "attn_add", "scale") == 1);
    assert_true(param_of(&in->head, "lm_head", "softcap") == 0);
    assert_string_equal(node_of(b, "gate")->role, "gate");
    assert_string_equal(node_of(b, "act")->role, "");
    assert_int_equal(node_of(b, "rope")->table, 0);
    assert_int_equal(node_of(b, "q")->table, -1);
    instance_free(in);
}

static void instance__every_layer_has_its_states(void **state)
{
    Instance *in = fixture_open(lib, "mistral");
    const InstanceBlock *b = &in->blocks[0];

    (void)state;
    assert_int_equal(b->n_states, 1);
    assert_int_equal(b->states[0].format, DT_BF16);
    assert_int_equal(b->states[0].n_parts, 2);
    assert_string_equal(b->states[0].parts[1].name, "v");
    assert_int_equal(b->states[0].parts[1].heads, 2);
    assert_int_equal(b->states[0].parts[1].width, 32);
    assert_int_equal(node_of(b, "kv_write")->state, 0);
    assert_int_equal(node_of(b, "attn")->state, 0);
    assert_int_equal(node_of(b, "q")->state, -1);
    assert_int_equal(in->n_states, 2);
    assert_int_equal(in->layers[0].state_base, 0);
    assert_int_equal(in->layers[1].state_base, 1);
    assert_true(layer_window(in, 0) == 8);
    instance_free(in);
}

static void instance__layers_that_are_equal_share_a_block(void **state)
{
    json_t *j = fixture_load("qwen2"), *meta = json_object_get(j, "meta");
    Instance *in;

    (void)state;
    /* One kind by name is the other by numbers: a window of 0 is full attention. */
    json_object_set_new(meta, "layer_types", json_literal("['full_attention', 'sliding_attention']"));
    in = fixture_instance(lib, j, false);
    assert_int_equal(in->n_blocks, 1);
    instance_free(in);
    json_object_set_new(meta, "use_sliding_window", json_true());
    json_object_set_new(meta, "sliding_window", json_integer(8));
    in = fixture_instance(lib, j, false);
    assert_int_equal(in->n_blocks, 2);
    assert_string_equal(in->blocks[in->layers[0].block].name, "full");
    assert_string_equal(in->blocks[in->layers[1].block].name, "window");
    instance_free(in);
    json_decref(j);
}

static void instance__layers_of_different_formats_are_different_blocks(void **state)
{
    json_t *j = fixture_load("smollm2-q4_1.gguf"), *t = json_object_get(j, "tensors");
    Instance *in;

    (void)state;
    json_object_set_new(t, "blk.3.attn_v.weight", json_literal("['q8_0', [192, 576]]"));
    json_object_set_new(t, "blk.29.attn_v.weight", json_literal("['q8_0', [192, 576]]"));
    in = fixture_instance(lib, j, true);
    assert_int_equal(in->n_blocks, 2);
    assert_int_equal(in->layers[3].block, 1);
    assert_int_equal(in->layers[29].block, 1);
    assert_int_equal(in->layers[4].block, 0);
    assert_int_equal(in->blocks[1].weights[weight_of(&in->blocks[1], "v")].stored, DT_Q8_0);
    assert_int_equal(in->blocks[0].weights[weight_of(&in->blocks[0], "v")].stored, DT_Q4_1);
    instance_free(in);
    json_decref(j);
}

static void instance__a_bare_configuration_has_the_format_asked_for(void **state)
{
    json_t *j = fixture_load("smollm2-135m");
    InstanceSource src = {
        .name = "config.json", .meta = json_object_get(j, "meta"), .kv_format = DT_F32, .fallback = DT_Q4_1};
    Instance *in = NULL;
    Err err = {{0}};

    (void)state;
    assert_int_equal(instance_new(&in, lib, &src, &err), ST_OK);
    assert_int_equal(in->blocks[0].weights[weight_of(&in->blocks[0], "q")].stored, DT_Q4_1);
    assert_int_equal(in->blocks[0].weights[weight_of(&in->blocks[0], "attn_norm")].stored, DT_BF16);
    assert_int_equal(in->blocks[0].states[0].format, DT_F32);
    instance_free(in);
    src.fallback = DT_NONE;
    assert_int_equal(instance_new(&in, lib, &src, &err), ST_OK);
    assert_int_equal(in->blocks[0].weights[weight_of(&in->blocks[0], "q")].stored, DT_BF16);
    instance_free(in);
    json_decref(j);
}

static void instance__outlives_the_library_and_the_checkpoint(void **state)
{
    CircuitLibrary *own = fixture_library();
    Instance *in = fixture_open(own, "qwen3");
    Str text = STR_INIT;

    (void)state;
    circuit_library_free(own); /* the sanitizer sees whatever still points there */
    instance_show(in, &text);
    assert_true(str_ok(&text));
    assert_string_equal(in->layers[1].bindings[0].tensor, "model.layers.1.input_layernorm.weight");
    str_release(&text);
    instance_free(in);
}

static void expect_groups(const char *name, const uint32_t *windows, uint32_t n)
{
    Instance *in = fixture_open(lib, name);

    assert_int_equal(in->n_kv_groups, n);
    for (uint32_t g = 0; g < n; g++)
        assert_int_equal(in->kv_windows[g], windows[g]);
    for (uint32_t i = 0; i < in->n_layers; i++) {
        const InstanceBlock *b = &in->blocks[in->layers[i].block];
        for (uint32_t s = 0; s < b->n_states; s++)
            if (b->states[s].kind == STATE_PAGED) {
                assert_int_equal(in->kv_windows[instance_kv_group(in, &b->states[s])], b->states[s].window);
                assert_true(layer_window(in, i) == b->states[s].window);
            }
    }
    instance_free(in);
}

static void instance__paged_states_are_grouped_by_window(void **state)
{
    (void)state;
    expect_groups("llama", (uint32_t[]){0}, 1);
    expect_groups("mistral", (uint32_t[]){8}, 1);
    expect_groups("gpt-oss-20b", (uint32_t[]){0, 128}, 2);
    expect_groups("gemma-3-270m", (uint32_t[]){0, 512}, 2);
}

static void instance__refuses_a_state_that_keeps_less_than_its_op_sees(void **state)
{
    static Embedded e;
    CircuitLibrary *broken = NULL;
    json_t *j = fixture_load("mistral");
    Err err = {{0}};

    (void)state;
    assert_int_equal(embedded_add_dir(&e, "circuits", &err), ST_OK);
    assert_true(embedded_replace(&e, "circuits/blocks/attention.toml", "window = \"window\"", "window = \"7\""));
    assert_int_equal(circuit_library_new(&broken, e.files, e.n, &err), ST_OK);
    assert_refused(broken, j, false, ST_FORMAT, TEXTS("node attn", "it looks further back than its state's window"));
    circuit_library_free(broken);
    assert_true(embedded_replace(&e, "circuits/blocks/attention.toml", "window = \"7\"", "window = \"9\""));
    assert_int_equal(circuit_library_new(&broken, e.files, e.n, &err), ST_OK);
    instance_free(fixture_instance(broken, j, false)); /* more than needed is no fault */
    circuit_library_free(broken);
    embedded_free(&e);
    json_decref(j);
}

/* A block file that fits the language but not the model is found out at its node. */
static void instance__a_wrong_width_is_said_at_its_node(void **state)
{
    static Embedded e;
    CircuitLibrary *broken = NULL;
    json_t *j = fixture_load("smollm2-135m");
    Err err = {{0}};

    (void)state;
    assert_int_equal(embedded_add_dir(&e, "circuits", &err), ST_OK);
    assert_true(embedded_replace(&e, "circuits/blocks/mlp.toml", "= [\"ffn\", \"hidden\"]", "= [\"ffn\", \"ffn\"]"));
    assert_int_equal(circuit_library_new(&broken, e.files, e.n, &err), ST_OK);
    assert_refused(broken, j, false, ST_FORMAT,
                   TEXTS("node gate (circuits/blocks/mlp.toml:", "its input is 576 elements wide, but must be 1536"));
    circuit_library_free(broken);
    assert_true(embedded_replace(&e, "circuits/blocks/mlp.toml", "= [\"ffn\", \"ffn\"]", "= [\"ffn\", \"hidden\"]"));
    assert_true(embedded_replace(&e, "circuits/blocks/mlp.toml", "in   = [\"g\", \"u\"]", "in   = [\"g\", \"g\"]"));
    assert_int_equal(circuit_library_new(&broken, e.files, e.n, &err), ST_OK);
    assert_refused(broken, j, false, ST_FORMAT, TEXTS("nothing reads 'u', which node up makes"));
    circuit_library_free(broken);
    embedded_free(&e);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instance__every_architecture_has_its_dims_and_nodes),
        cmocka_unit_test(instance__edges_have_one_producer_and_a_width),
        cmocka_unit_test(instance__parameters_are_numbers),
        cmocka_unit_test(instance__every_layer_has_its_states),
        cmocka_unit_test(instance__layers_that_are_equal_share_a_block),
        cmocka_unit_test(instance__layers_of_different_formats_are_different_blocks),
        cmocka_unit_test(instance__a_bare_configuration_has_the_format_asked_for),
        cmocka_unit_test(instance__outlives_the_library_and_the_checkpoint),
        cmocka_unit_test(instance__paged_states_are_grouped_by_window),
        cmocka_unit_test(instance__refuses_a_state_that_keeps_less_than_its_op_sees),
        cmocka_unit_test(instance__a_wrong_width_is_said_at_its_node),
    };

    return cmocka_run_group_tests(tests, load_library, free_library);
}
