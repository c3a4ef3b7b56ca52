/* Weight maps: which tensor a slot gets, and what is refused: missing, misshapen, of an unknown format, left over. */
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

static json_t *tensors(json_t *j)
{
    return json_object_get(j, "tensors");
}

/* Adds or replaces a tensor ("['bf16', [64]]"); NULL deletes it. */
static void set_tensor(json_t *j, const char *name, const char *desc)
{
    if (desc == NULL)
        json_object_del(tensors(j), name);
    else
        json_object_set_new(tensors(j), name, json_literal(desc));
}

static void refused(const char *checkpoint, const char *tensor, const char *desc, Status want, const char *const *texts)
{
    json_t *j = fixture_load(checkpoint);

    set_tensor(j, tensor, desc);
    assert_refused(lib, j, str_ends(checkpoint, ".gguf"), want, texts);
    json_decref(j);
}

static const InstanceBinding *binding_of(const Instance *in, uint32_t layer, const char *slot)
{
    int w = weight_of(&in->blocks[in->layers[layer].block], slot);

    assert_true(w >= 0);
    return &in->layers[layer].bindings[w];
}

static void weight_map__each_layer_has_its_own_tensors(void **state)
{
    Instance *in = fixture_open(lib, "llama");

    (void)state;
    assert_string_equal(binding_of(in, 0, "q")->tensor, "model.layers.0.self_attn.q_proj.weight");
    assert_string_equal(binding_of(in, 1, "down")->tensor, "model.layers.1.mlp.down_proj.weight");
    assert_int_equal(binding_of(in, 1, "q")->order, ROWS_AS_STORED);
    assert_string_equal(in->stem_bindings[0].tensor, "model.embed_tokens.weight");
    instance_free(in);
}

static void weight_map__gguf_q_and_k_have_their_pairs_side_by_side(void **state)
{
    Instance *in = fixture_open(lib, "q4_1-llama.gguf");

    (void)state;
    assert_int_equal(binding_of(in, 1, "q")->order, ROWS_ROPE_INTERLEAVED);
    assert_int_equal(binding_of(in, 1, "k")->order, ROWS_ROPE_INTERLEAVED);
    assert_int_equal(binding_of(in, 1, "k")->head_dim, 32);
    assert_int_equal(binding_of(in, 1, "v")->order, ROWS_AS_STORED);
    assert_string_equal(binding_of(in, 1, "k")->tensor, "blk.1.attn_k.weight");
    instance_free(in);
    in = fixture_open(lib, "q8_0-qwen3.gguf");
    assert_int_equal(binding_of(in, 0, "q")->order, ROWS_AS_STORED);
    instance_free(in);
}

static void weight_map__a_tied_head_reads_the_embedding(void **state)
{
    Instance *in = fixture_open(lib, "llama"); /* tie_word_embeddings */

    (void)state;
    assert_string_equal(in->head_bindings[weight_of(&in->head, "head")].tensor, "model.embed_tokens.weight");
    instance_free(in);
    in = fixture_open(lib, "llama3-rope"); /* not tied */
    assert_string_equal(in->head_bindings[weight_of(&in->head, "head")].tensor, "lm_head.weight");
    instance_free(in);
    in = fixture_open(lib, "q4_1-llama.gguf"); /* no output.weight */
    assert_string_equal(in->head_bindings[weight_of(&in->head, "head")].tensor, "token_embd.weight");
    instance_free(in);
    in = fixture_open(lib, "q8_0-llama3rope.gguf");
    assert_string_equal(in->head_bindings[weight_of(&in->head, "head")].tensor, "output.weight");
    instance_free(in);
    refused("llama3-rope", "lm_head.weight", NULL, ST_NOTFOUND, TEXTS("tensor lm_head.weight is missing"));
}

static void weight_map__one_prefix_serves_the_whole_checkpoint(void **state)
{
    json_t *j = fixture_load("llama"), *bare = json_object(), *v;
    const char *name;
    Instance *in;

    (void)state;
    json_object_foreach(tensors(j), name, v) json_object_set(bare, str_starts(name, "model.") ? name + 6 : name, v);
    json_object_set_new(j, "tensors", bare);
    in = fixture_instance(lib, j, false);
    assert_string_equal(binding_of(in, 0, "q")->tensor, "layers.0.self_attn.q_proj.weight");
    instance_free(in);
    json_decref(j);
}

static void weight_map__a_missing_tensor_is_named(void **state)
{
    (void)state;
    refused("llama", "model.layers.1.mlp.up_proj.weight", NULL, ST_NOTFOUND,
            TEXTS("config.json: tensor model.layers.1.mlp.up_proj.weight is missing"));
    refused("llama", "model.norm.weight", NULL, ST_NOTFOUND, TEXTS("model.norm.weight"));
    refused("qwen2", "model.layers.0.self_attn.k_proj.bias", NULL, ST_NOTFOUND, TEXTS("k_proj.bias is missing"));
    refused("q4_1-llama.gguf", "output_norm.weight", NULL, ST_NOTFOUND, TEXTS("model.gguf", "output_norm.weight"));
}

static void weight_map__a_shape_names_what_it_is_and_must_be(void **state)
{
    (void)state;
    refused("q4_1-llama.gguf", "blk.0.ffn_down.weight", "['q4_1', [160, 96]]", ST_FORMAT,
            TEXTS("model.gguf: tensor blk.0.ffn_down.weight has shape [160, 96], but must have [96, 160]",
                  "hidden by ffn"));
    refused("llama", "model.embed_tokens.weight", "['bf16', [264, 64]]", ST_FORMAT,
            TEXTS("[264, 64]", "[256, 64]", "vocab by hidden"));
    refused("llama", "model.norm.weight", "['bf16', [1, 64]]", ST_FORMAT, TEXTS("[1, 64]", "[64]"));
    refused("llama", "model.norm.weight", "['bf16', []]", ST_FORMAT, TEXTS("shape []"));
}

static void weight_map__a_format_that_no_kernel_reads_is_refused(void **state)
{
    (void)state;
    refused("q4_1-llama.gguf", "token_embd.weight", "['iq1_s', [272, 96]]", ST_UNSUPPORTED,
            TEXTS("tensor token_embd.weight is stored as iq1_s", "a block format such as q8_0 or q4_k"));
    refused("q4_1-llama.gguf", "token_embd.weight", "['i8/32', [272, 96]]", ST_UNSUPPORTED, TEXTS("stored as i8/32"));
    refused("llama", "model.layers.0.self_attn.q_proj.weight", "['i32', [64, 64]]", ST_UNSUPPORTED,
            TEXTS("stored as i32"));
    refused("q4_1-llama.gguf", "blk.0.attn_norm.weight", "['q8_0', [96]]", ST_UNSUPPORTED,
            TEXTS("blk.0.attn_norm.weight is stored as q8_0; a vector"));
}

static void weight_map__rows_hold_whole_blocks(void **state)
{
    json_t *j = fixture_load("qwen2"), *meta = json_object_get(j, "meta");

    (void)state;
    json_object_set_new(meta, "intermediate_size", json_integer(120));
    for (int l = 0; l < 2; l++) {
        char name[64];

        snprintf(name, sizeof name, "model.layers.%d.mlp.gate_proj.weight", l);
        set_tensor(j, name, "['bf16', [120, 64]]");
        snprintf(name, sizeof name, "model.layers.%d.mlp.up_proj.weight", l);
        set_tensor(j, name, "['bf16', [120, 64]]");
        snprintf(name, sizeof name, "model.layers.%d.mlp.down_proj.weight", l);
        set_tensor(j, name, "['q4_1', [64, 120]]");
    }
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("model.layers.0.mlp.down_proj.weight are 120", "32"));
    json_decref(j);
}

static void weight_map__a_tensor_that_nothing_reads_is_refused(void **state)
{
    (void)state;
    refused("llama", "model.layers.0.self_attn.q_proj.bias", "['bf16', [64]]", ST_UNSUPPORTED,
            TEXTS("nothing reads tensor model.layers.0.self_attn.q_proj.bias", "circuits/llama.weights.toml"));
    refused("llama", "model.layers.2.mlp.up_proj.weight", "['bf16', [192, 64]]", ST_UNSUPPORTED,
            TEXTS("model.layers.2.mlp.up_proj.weight"));
    refused("q4_1-llama.gguf", "rope_factors_long.weight", "['f32', [16]]", ST_UNSUPPORTED,
            TEXTS("rope_factors_long.weight"));
}

static void weight_map__known_leftovers_are_ignored(void **state)
{
    json_t *j = fixture_load("llama");

    (void)state;
    set_tensor(j, "model.layers.1.self_attn.rotary_emb.inv_freq", "['f32', [16]]");
    set_tensor(j, "lm_head.weight", "['bf16', [256, 64]]"); /* the head is tied: a copy */
    instance_free(fixture_instance(lib, j, false));
    set_tensor(j, "model.layers.2.self_attn.rotary_emb.inv_freq", "['f32', [16]]");
    assert_refused(lib, j, false, ST_UNSUPPORTED, TEXTS("model.layers.2.self_attn.rotary_emb.inv_freq"));
    json_decref(j);
}

static void weight_map__switches_bring_biases(void **state)
{
    static const char *const proj[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"};
    json_t *j = fixture_load("llama");
    Instance *in;

    (void)state;
    json_object_set_new(json_object_get(j, "meta"), "attention_bias", json_true());
    assert_refused(lib, j, false, ST_NOTFOUND, TEXTS("model.layers.0.self_attn.q_proj.bias is missing"));
    for (int l = 0; l < 2; l++)
        for (int p = 0; p < 4; p++) {
            char name[64];

            snprintf(name, sizeof name, "model.layers.%d.%s.bias", l, proj[p]);
            set_tensor(j, name, "['bf16', [64]]");
        }
    in = fixture_instance(lib, j, false);
    assert_true(weight_of(&in->blocks[0], "q_bias") >= 0 && weight_of(&in->blocks[0], "o_bias") >= 0);
    assert_int_equal(weight_of(&in->blocks[0], "gate_bias"), -1);
    assert_true(node_of(&in->blocks[0], "o")->weight[1] >= 0);
    instance_free(in);
    json_decref(j);
}

static void weight_map__gguf_biases_are_there_when_the_tensors_are(void **state)
{
    json_t *j = fixture_load("q4_1-llama.gguf");
    Instance *in = fixture_instance(lib, j, true);

    (void)state;
    assert_int_equal(weight_of(&in->blocks[0], "k_bias"), -1);
    instance_free(in);
    set_tensor(j, "blk.1.attn_k.bias", "['f32', [64]]");
    in = fixture_instance(lib, j, true);
    assert_int_equal(in->n_blocks, 2); /* the layers differ now */
    assert_int_equal(weight_of(&in->blocks[in->layers[0].block], "k_bias"), -1);
    assert_int_equal(binding_of(in, 1, "k_bias")->order, ROWS_ROPE_INTERLEAVED);
    instance_free(in);
    json_decref(j);
}

static void weight_map__a_tensor_of_divisors_belongs_to_the_rope(void **state)
{
    Instance *in = fixture_open(lib, "q8_0-llama3rope.gguf");

    (void)state;
    assert_string_equal(in->ropes[0].factors_tensor, "rope_freqs.weight");
    assert_int_equal(in->ropes[0].kind, ROPE_DEFAULT);
    instance_free(in);
    refused("q8_0-llama3rope.gguf", "rope_freqs.weight", "['f32', [15]]", ST_FORMAT,
            TEXTS("rope_freqs.weight must be a vector of 16 f32"));
}

/* No architecture here has fused tensors, but the language says them: q, k and v as rows of one. */
static void weight_map__a_slot_can_be_rows_of_a_larger_tensor(void **state)
{
    static Embedded e;
    CircuitLibrary *fused = NULL;
    json_t *j = fixture_load("llama");
    Instance *in;
    Err err = {{0}};

    (void)state;
    assert_int_equal(embedded_add_dir(&e, "circuits", &err), ST_OK);
    assert_true(embedded_replace(
        &e, "circuits/llama.weights.toml", "[safetensors.layer]",
        "[safetensors.layer]\n"
        "q = { name = \"{p}layers.{l}.qkv.weight\", row = \"0\", of = \"(n_heads + 2 * n_kv_heads) * head_dim\" }\n"
        "k = { name = \"{p}layers.{l}.qkv.weight\", row = \"n_heads * head_dim\", of = \"(n_heads + 2 * n_kv_heads) * "
        "head_dim\" }\n"
        "v = [\"{p}layers.{l}.self_attn.v.weight\", { name = \"{p}layers.{l}.qkv.weight\", row = \"(n_heads + "
        "n_kv_heads) * head_dim\", of = \"(n_heads + 2 * n_kv_heads) * head_dim\" }]\n"));
    if (circuit_library_new(&fused, e.files, e.n, &err) != ST_OK)
        fail_msg("%s", err.msg);
    for (int l = 0; l < 2; l++)
        for (const char *p = "qkv"; *p; p++) {
            char name[64];

            snprintf(name, sizeof name, "model.layers.%d.self_attn.%c_proj.weight", l, *p);
            set_tensor(j, name, NULL);
            snprintf(name, sizeof name, "model.layers.%d.qkv.weight", l);
            set_tensor(j, name, "['bf16', [192, 64]]");
        }
    in = fixture_instance(fused, j, false);
    assert_string_equal(binding_of(in, 1, "v")->tensor, "model.layers.1.qkv.weight");
    assert_int_equal(binding_of(in, 1, "q")->row, 0);
    assert_int_equal(binding_of(in, 1, "k")->row, 64);
    assert_int_equal(binding_of(in, 1, "v")->row, 128);
    assert_int_equal(in->blocks[0].weights[weight_of(&in->blocks[0], "v")].n, 64);
    instance_free(in);
    set_tensor(j, "model.layers.1.qkv.weight", "['bf16', [128, 64]]");
    assert_refused(fused, j, false, ST_FORMAT, TEXTS("model.layers.1.qkv.weight has shape [128, 64]", "[192, 64]"));
    circuit_library_free(fused);
    embedded_free(&e);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weight_map__each_layer_has_its_own_tensors),
        cmocka_unit_test(weight_map__gguf_q_and_k_have_their_pairs_side_by_side),
        cmocka_unit_test(weight_map__a_tied_head_reads_the_embedding),
        cmocka_unit_test(weight_map__one_prefix_serves_the_whole_checkpoint),
        cmocka_unit_test(weight_map__a_missing_tensor_is_named),
        cmocka_unit_test(weight_map__a_shape_names_what_it_is_and_must_be),
        cmocka_unit_test(weight_map__a_format_that_no_kernel_reads_is_refused),
        cmocka_unit_test(weight_map__rows_hold_whole_blocks),
        cmocka_unit_test(weight_map__a_tensor_that_nothing_reads_is_refused),
        cmocka_unit_test(weight_map__known_leftovers_are_ignored),
        cmocka_unit_test(weight_map__switches_bring_biases),
        cmocka_unit_test(weight_map__gguf_biases_are_there_when_the_tensors_are),
        cmocka_unit_test(weight_map__a_tensor_of_divisors_belongs_to_the_rope),
        cmocka_unit_test(weight_map__a_slot_can_be_rows_of_a_larger_tensor),
    };

    return cmocka_run_group_tests(tests, load_library, free_library);
}
