/* Config maps: every key has a meaning, every value is checked, spellings agree. One small checkpoint, changed by one
 * key at a time. */
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

/* A bare configuration of a small model; `change` is an object whose keys replace the model's. */
static json_t *checkpoint(const char *change)
{
    json_t *j = json_object(), *more = json_literal(change);
    json_t *meta = json_literal("{'model_type': 'llama', 'hidden_size': 64, 'num_hidden_layers': 2,"
                                " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'intermediate_size': 128,"
                                " 'vocab_size': 256, 'max_position_embeddings': 512, 'rms_norm_eps': 1e-5,"
                                " 'hidden_act': 'silu', 'rope_theta': 10000.0}");

    json_object_update(meta, more);
    json_object_set_new(j, "meta", meta);
    json_decref(more);
    return j;
}

static json_t *without(json_t *j, const char *key)
{
    json_object_del(json_object_get(j, "meta"), key);
    return j;
}

static Instance *instance(const char *change)
{
    json_t *j = checkpoint(change);
    Instance *in = fixture_instance(lib, j, false);

    json_decref(j);
    return in;
}

static void refused(const char *change, Status want, const char *const *texts)
{
    json_t *j = checkpoint(change);

    assert_refused(lib, j, false, want, texts);
    json_decref(j);
}

static void config_map__defaults_fill_what_is_not_said(void **state)
{
    Instance *in = instance("{}");

    (void)state;
    assert_int_equal(dim_of(in, "hidden"), 64);
    assert_int_equal(dim_of(in, "head_dim"), 16);
    assert_int_equal(dim_of(in, "rotary_dims"), 16);
    assert_true(param_of(&in->blocks[0], "attn", "scale") == 0.25);
    assert_int_equal(in->bos_id, -1);
    assert_int_equal(in->n_eos, 0);
    instance_free(in);
    in = instance("{'num_key_value_heads': null, 'head_dim': 8, 'pad_token_id': null}");
    assert_int_equal(dim_of(in, "n_kv_heads"), 4);
    assert_int_equal(dim_of(in, "head_dim"), 8);
    instance_free(in);
}

static void config_map__an_unclassified_key_is_refused_by_its_path(void **state)
{
    (void)state;
    refused("{'attention_temperature': 2}", ST_UNSUPPORTED,
            TEXTS("config.json: key attention_temperature is not classified", "circuits/llama.config.toml"));
    refused("{'rope_scaling': {'rope_type': 'linear', 'factor': 2.0, 'shift': 1}}", ST_UNSUPPORTED,
            TEXTS("key rope_scaling.shift is not classified"));
    refused("{'text_config': {'hidden_size': 64}}", ST_UNSUPPORTED, TEXTS("key text_config is not classified"));
}

static void config_map__a_vendor_blob_is_ignored_only_as_a_whole_tree(void **state)
{
    Instance *in = instance("{'transformers.js_config': {'kv_cache_dtype': {'q4f16': 'float16'}}}");

    (void)state;
    instance_free(in);
    refused("{'initializer_range': {'deep': 1}}", ST_UNSUPPORTED,
            TEXTS("initializer_range is an object", "initializer_range.*"));
}

static void config_map__a_missing_key_is_named(void **state)
{
    static const char *const keys[] = {
        "hidden_size",  "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
        "rms_norm_eps", "vocab_size",        "model_type"};

    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *j = without(checkpoint("{}"), keys[i]);

        assert_refused(lib, j, false, ST_FORMAT, TEXTS("config.json", keys[i], "missing"));
        json_decref(j);
    }
}

static void config_map__a_wrong_type_is_refused(void **state)
{
    (void)state;
    refused("{'hidden_size': '64'}", ST_FORMAT, TEXTS("hidden_size is \"64\"; it must be an integer"));
    refused("{'hidden_size': 64.0}", ST_FORMAT, TEXTS("hidden_size is 64.0; it must be an integer"));
    refused("{'rms_norm_eps': '1e-5'}", ST_FORMAT, TEXTS("rms_norm_eps", "a finite number"));
    refused("{'tie_word_embeddings': 1}", ST_FORMAT, TEXTS("tie_word_embeddings is 1; it must be true or false"));
    refused("{'torch_dtype': 16}", ST_FORMAT, TEXTS("torch_dtype is 16; it must be a string"));
    refused("{'rope_scaling': 'linear'}", ST_FORMAT, TEXTS("rope_scaling is \"linear\"; it must be an object or null"));
    refused("{'eos_token_id': 'end'}", ST_FORMAT, TEXTS("eos_token_id is \"end\"; it must be a token id"));
}

static void config_map__a_number_out_of_range_is_refused(void **state)
{
    (void)state;
    refused("{'num_attention_heads': 0}", ST_FORMAT, TEXTS("num_attention_heads is 0", "from 1 to"));
    refused("{'intermediate_size': -8}", ST_FORMAT, TEXTS("intermediate_size is -8"));
    refused("{'vocab_size': 2147483648}", ST_FORMAT, TEXTS("vocab_size is 2147483648", "2147483647"));
    refused("{'num_hidden_layers': 1000000000}", ST_FORMAT, TEXTS("num_hidden_layers is 1000000000", "4096"));
    refused("{'rms_norm_eps': 0}", ST_FORMAT, TEXTS("rms_norm_eps is 0; it must be above 0"));
    refused("{'rope_theta': -1.0}", ST_FORMAT, TEXTS("rope_theta is -1.0; it must be above 1"));
    refused("{'bos_token_id': -1}", ST_FORMAT, TEXTS("bos_token_id is -1"));
    refused("{'max_position_embeddings': 1e3}", ST_FORMAT, TEXTS("max_position_embeddings is 1000.0"));
}

static void config_map__numbers_that_do_not_fit_each_other_are_refused(void **state)
{
    (void)state;
    refused("{'hidden_size': 66}", ST_FORMAT,
            TEXTS("head_dim is not given", "hidden = 66", "n_heads = 4", "add the key head_dim"));
    refused("{'num_attention_heads': 3, 'num_key_value_heads': 2, 'head_dim': 16}", ST_FORMAT,
            TEXTS("n_heads = 3", "n_kv_heads = 2", "multiple"));
    refused("{'num_key_value_heads': 8}", ST_FORMAT, TEXTS("n_kv_heads = 8", "n_heads = 4"));
    refused("{'head_dim': 15}", ST_INVALID, TEXTS("config.json: rope rotates 15 elements", "even"));
    refused("{'head_dim': 1073741824}", ST_FORMAT, TEXTS("n_heads * head_dim * (1 + output_gate) is 4294967296"));
}

static void config_map__what_the_circuit_cannot_do_is_refused_with_a_reason(void **state)
{
    (void)state;
    refused("{'hidden_act': 'gelu'}", ST_UNSUPPORTED,
            TEXTS("hidden_act is \"gelu\", not \"silu\"", "silu only", "circuits/config/decoder.toml:"));
    refused("{'rope_interleaved': true}", ST_UNSUPPORTED, TEXTS("rope_interleaved is true, not false"));
    refused("{'quantization_config': {'quant_method': 'exl9'}}", ST_UNSUPPORTED,
            TEXTS("quant_method is \"exl9\"", "compressed-tensors"));
    refused("{'architectures': ['LlamaForSequenceClassification']}", ST_UNSUPPORTED,
            TEXTS("architectures", "LlamaForSequenceClassification", "LlamaForCausalLM"));
    refused("{'rope_scaling': {'type': 'dynamic', 'factor': 2.0}}", ST_FORMAT,
            TEXTS("rope_scaling.type is \"dynamic\"", "default, linear, llama3, yarn"));
    refused("{'model_type': 'llamo'}", ST_UNSUPPORTED, TEXTS("no circuit serves model_type \"llamo\"", "qwen3"));
    instance_free(instance("{'quantization_config': null, 'architectures': ['LlamaForCausalLM']}"));
}

static void config_map__old_and_new_spellings_of_rope_are_one(void **state)
{
    static const char *const spellings[] = {
        "{'rope_theta': 500000.0, 'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0, 'low_freq_factor': 1.0,"
        " 'high_freq_factor': 4.0, 'original_max_position_embeddings': 128}}",
        "{'rope_theta': 500000, 'rope_scaling': {'type': 'llama3', 'rope_type': 'llama3', 'factor': 8,"
        " 'low_freq_factor': 1, 'high_freq_factor': 4, 'original_max_position_embeddings': 128}}",
        "{'rope_theta': null, 'rope_parameters': {'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 8.0,"
        " 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 128}}",
    };
    char first[33], other[33];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        Instance *in = instance(spellings[i]);

        assert_int_equal(in->n_ropes, 1);
        assert_int_equal(in->ropes[0].kind, ROPE_LLAMA3);
        assert_true(in->ropes[0].theta == 500000 && in->ropes[0].factor == 8);
        assert_true(in->ropes[0].original_max_position == 128);
        assert_int_equal(instance_digest(in, i ? other : first, NULL), ST_OK);
        if (i > 0)
            assert_string_equal(first, other);
        instance_free(in);
    }
}

static void config_map__spellings_that_disagree_are_refused(void **state)
{
    (void)state;
    refused("{'rope_parameters': {'rope_theta': 500000.0}}", ST_FORMAT,
            TEXTS("rope_parameters.rope_theta and rope_theta disagree"));
    refused("{'rope_scaling': {'type': 'linear', 'rope_type': 'yarn', 'factor': 2.0}}", ST_FORMAT,
            TEXTS("rope_scaling.rope_type and rope_scaling.type disagree"));
    instance_free(instance("{'rope_parameters': {'rope_theta': 10000.0, 'rope_type': 'default'}}"));
}

static void config_map__scaling_needs_its_numbers(void **state)
{
    (void)state;
    refused("{'rope_scaling': {'type': 'linear'}}", ST_FORMAT, TEXTS("factor is missing"));
    refused("{'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0, 'low_freq_factor': 1.0}}", ST_FORMAT,
            TEXTS("high_freq_factor is missing"));
    refused("{'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0, 'low_freq_factor': 4.0, 'high_freq_factor': 1.0}}",
            ST_INVALID, TEXTS("config.json", "low_freq_factor is 4"));
}

static void config_map__yarn_takes_mscale_and_its_original_length(void **state)
{
    Instance *in = instance("{'rope_scaling': {'type': 'yarn', 'factor': 40, 'mscale': 1.0, 'mscale_all_dim': 0.5,"
                            " 'truncate': false, 'beta_fast': 16}}");
    const RopeSpec *r = &in->ropes[0];

    (void)state;
    assert_int_equal(r->kind, ROPE_YARN);
    assert_true(r->original_max_position == 512); /* not given: what the model takes */
    assert_true(r->beta_fast == 16 && r->beta_slow == 1 && !r->truncate);
    /* (0.1 ln 40 + 1) / (0.05 ln 40 + 1) */
    assert_true(r->attention_factor > 1.155718 && r->attention_factor < 1.155731);
    instance_free(in);
    in = instance("{'rope_scaling': {'type': 'yarn', 'factor': 40, 'attention_factor': 2.0, 'mscale': 1.0,"
                  " 'mscale_all_dim': 0.5}}");
    assert_true(in->ropes[0].attention_factor == 2 && in->ropes[0].truncate);
    instance_free(in);
}

static void config_map__ids_are_one_or_a_list(void **state)
{
    Instance *in = instance("{'bos_token_id': 7, 'eos_token_id': [3, 5, 3]}");

    (void)state;
    assert_int_equal(in->bos_id, 7);
    assert_int_equal(in->n_eos, 2);
    assert_int_equal(in->eos_ids[0], 3);
    assert_int_equal(in->eos_ids[1], 5);
    instance_free(in);
    refused("{'bos_token_id': [1, 2]}", ST_FORMAT, TEXTS("bos_token_id", "one token id"));
    refused("{'eos_token_id': [1,2,3,4,5,6,7,8,9]}", ST_FORMAT, TEXTS("eos_token_id", "at most 8"));
}

/* ---- windows by layer --------------------------------------------------------------------------------------------- */
static json_t *windowed(const char *model_type, const char *change)
{
    json_t *j = checkpoint(change);

    json_object_set_new(json_object_get(j, "meta"), "model_type", json_string(model_type));
    json_object_set_new(json_object_get(j, "meta"), "num_hidden_layers", json_integer(4));
    return j;
}

static void windows(const char *model_type, const char *change, double a, double b, double c, double d)
{
    json_t *j = windowed(model_type, change);
    Instance *in = fixture_instance(lib, j, false);
    double want[] = {a, b, c, d};

    for (uint32_t i = 0; i < 4; i++)
        if (layer_window(in, i) != want[i])
            fail_msg("%s %s: layer %u has window %g, not %g", model_type, change, i, layer_window(in, i), want[i]);
    instance_free(in);
    json_decref(j);
}

static void config_map__a_window_that_is_switched_off_means_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *m = i ? "qwen3" : "qwen2";

        windows(m, "{'head_dim': 16, 'use_sliding_window': false, 'sliding_window': 8, 'max_window_layers': 0}", 0, 0,
                0, 0);
        windows(m, "{'head_dim': 16, 'sliding_window': 8, 'max_window_layers': 0}", 0, 0, 0, 0);
    }
}

static void config_map__windows_begin_at_max_window_layers(void **state)
{
    (void)state;
    windows("qwen2", "{'use_sliding_window': true, 'sliding_window': 8, 'max_window_layers': 2}", 0, 0, 8, 8);
    windows("qwen2", "{'use_sliding_window': true, 'sliding_window': 8}", 0, 0, 0, 0); /* from layer 28 on */
    windows("qwen2", "{'use_sliding_window': true, 'sliding_window': null, 'max_window_layers': 2}", 0, 0, 0, 0);
}

static void config_map__a_list_of_layer_types_is_followed_exactly(void **state)
{
    json_t *j;

    (void)state;
    windows("qwen3",
            "{'use_sliding_window': true, 'sliding_window': 8, 'max_window_layers': 0, 'layer_types':"
            " ['sliding_attention', 'full_attention', 'full_attention', 'sliding_attention']}",
            8, 0, 0, 8);
    j = windowed("qwen3", "{'layer_types': ['full_attention']}");
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("layer_types has 1 items", "4 layers"));
    json_decref(j);
    j = windowed("qwen3", "{'layer_types': ['full_attention', 'full_attention', 'chunked', 'full_attention']}");
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("layer_types is \"chunked\"", "full_attention, sliding_attention"));
    json_decref(j);
}

static void config_map__null_is_no_window(void **state)
{
    (void)state;
    windows("mistral", "{'sliding_window': 8}", 8, 8, 8, 8);
    windows("mistral", "{'sliding_window': null}", 0, 0, 0, 0);
    windows("mistral", "{}", 4096, 4096, 4096, 4096);
}

/* ---- GGUF --------------------------------------------------------------------------------------------------------- */
static void gguf_refused(const char *key, const char *value, Status want, const char *const *texts)
{
    json_t *j = fixture_load("q4_1-llama.gguf"), *meta = json_object_get(j, "meta");

    if (value != NULL)
        json_object_set_new(meta, key, json_literal(value));
    else
        json_object_del(meta, key);
    assert_refused(lib, j, true, want, texts);
    json_decref(j);
}

static void config_map__gguf_keys_are_classified_too(void **state)
{
    (void)state;
    gguf_refused("llama.attention.sinks", "1", ST_UNSUPPORTED,
                 TEXTS("model.gguf: key llama.attention.sinks is not classified"));
    gguf_refused("qwen2.block_count", "1", ST_UNSUPPORTED, TEXTS("qwen2.block_count belongs to no known group"));
    gguf_refused("llama.attention.head_count", NULL, ST_FORMAT, TEXTS("key llama.attention.head_count is missing"));
    gguf_refused("llama.block_count", "'2'", ST_FORMAT, TEXTS("llama.block_count is \"2\"; it must be an integer"));
    gguf_refused("llama.expert_count", "8", ST_UNSUPPORTED, TEXTS("llama.expert_count is 8, not 0"));
    gguf_refused("llama.attention.value_length", "16", ST_FORMAT, TEXTS("value_dim = 16", "head_dim = 32"));
    gguf_refused("llama.rope.dimension_count", "31", ST_INVALID, TEXTS("31"));
    gguf_refused("llama.rope.dimension_count", "64", ST_FORMAT, TEXTS("rotary_dims = 64"));
    gguf_refused("general.architecture", "'llamo'", ST_UNSUPPORTED, TEXTS("general.architecture \"llamo\""));
    gguf_refused("general.architecture", NULL, ST_FORMAT, TEXTS("general.architecture is missing"));
}

static void config_map__gguf_vocabulary_is_counted_when_no_key_says_it(void **state)
{
    json_t *j = fixture_load("q8_0-qwen3.gguf");
    Instance *in = fixture_instance(lib, j, true);

    (void)state;
    assert_int_equal(dim_of(in, "vocab"), 272);
    instance_free(in);
    json_decref(j);
    gguf_refused("tokenizer.ggml.tokens", "['a', 'b']", ST_FORMAT,
                 TEXTS("llama.vocab_size is 272", "tokenizer.ggml.tokens has 2 items"));
}

static void config_map__gguf_scaling_is_read(void **state)
{
    json_t *j = fixture_load("q4_1-llama.gguf"), *meta = json_object_get(j, "meta");
    Instance *in;

    (void)state;
    json_object_set_new(meta, "llama.rope.scaling.type", json_string("yarn"));
    json_object_set_new(meta, "llama.rope.scaling.factor", json_real(4));
    json_object_set_new(meta, "llama.rope.scaling.original_context_length", json_integer(128));
    json_object_set_new(meta, "llama.rope.scaling.finetuned", json_true());
    in = fixture_instance(lib, j, true);
    assert_int_equal(in->ropes[0].kind, ROPE_YARN);
    assert_true(in->ropes[0].factor == 4 && in->ropes[0].original_max_position == 128);
    instance_free(in);
    json_object_set_new(meta, "llama.rope.scaling.type", json_string("none"));
    in = fixture_instance(lib, j, true);
    assert_int_equal(in->ropes[0].kind, ROPE_DEFAULT);
    instance_free(in);
    json_decref(j);
}

static void config_map__a_configuration_that_is_no_object_is_refused(void **state)
{
    json_t *j = json_object();

    (void)state;
    json_object_set_new(j, "meta", json_array());
    assert_refused(lib, j, false, ST_FORMAT, TEXTS("must be a JSON object"));
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_map__defaults_fill_what_is_not_said),
        cmocka_unit_test(config_map__an_unclassified_key_is_refused_by_its_path),
        cmocka_unit_test(config_map__a_vendor_blob_is_ignored_only_as_a_whole_tree),
        cmocka_unit_test(config_map__a_missing_key_is_named),
        cmocka_unit_test(config_map__a_wrong_type_is_refused),
        cmocka_unit_test(config_map__a_number_out_of_range_is_refused),
        cmocka_unit_test(config_map__numbers_that_do_not_fit_each_other_are_refused),
        cmocka_unit_test(config_map__what_the_circuit_cannot_do_is_refused_with_a_reason),
        cmocka_unit_test(config_map__old_and_new_spellings_of_rope_are_one),
        cmocka_unit_test(config_map__spellings_that_disagree_are_refused),
        cmocka_unit_test(config_map__scaling_needs_its_numbers),
        cmocka_unit_test(config_map__yarn_takes_mscale_and_its_original_length),
        cmocka_unit_test(config_map__ids_are_one_or_a_list),
        cmocka_unit_test(config_map__a_window_that_is_switched_off_means_nothing),
        cmocka_unit_test(config_map__windows_begin_at_max_window_layers),
        cmocka_unit_test(config_map__a_list_of_layer_types_is_followed_exactly),
        cmocka_unit_test(config_map__null_is_no_window),
        cmocka_unit_test(config_map__gguf_keys_are_classified_too),
        cmocka_unit_test(config_map__gguf_vocabulary_is_counted_when_no_key_says_it),
        cmocka_unit_test(config_map__gguf_scaling_is_read),
        cmocka_unit_test(config_map__a_configuration_that_is_no_object_is_refused),
    };

    return cmocka_run_group_tests(tests, load_library, free_library);
}
