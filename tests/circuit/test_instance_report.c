/* What reports say of an instance: text, JSON, differences, digest. */
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

static void has(const Str *s, const char *text)
{
    if (strstr(str_c(s), text) == NULL)
        fail_msg("\"%s\" is not in:\n%s", text, str_c(s));
}

static void instance_report__text_has_each_distinct_layer_once(void **state)
{
    Instance *in = fixture_open(lib, "smollm2-q4_1.gguf");
    Str s = STR_INIT;

    (void)state;
    instance_show(in, &s);
    has(&s, "model.gguf: circuit llama\n");
    has(&s, "134515008 parameters");
    has(&s, "bf16, 23040 bytes a token"); /* 30 layers * 2 * 3 heads * 64 * 2 bytes */
    has(&s, "\nfull: layers 0-29\n");
    has(&s, "weight=q[576, 576] q4_1");
    has(&s, "x.1, d -> x.2[576]");
    str_release(&s);
    instance_free(in);
}

static void instance_report__json_says_the_same(void **state)
{
    Instance *in = fixture_open(lib, "q8_0-llama3rope.gguf");
    json_t *j = instance_json(in);

    (void)state;
    assert_non_null(j);
    assert_int_equal(json_integer_value(json_at(j, "dims.hidden")), 64);
    assert_string_equal(json_string_value(json_object_get(j, "arch")), "llama");
    assert_int_equal(json_array_size(json_object_get(j, "layers")), 1);
    assert_int_equal(json_array_size(json_at(json_array_get(json_object_get(j, "blocks"), 0), "nodes")), 15);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(j, "ropes"), 0), "factors_tensor")),
        "rope_freqs.weight");
    assert_int_equal(json_array_size(json_object_get(j, "eos_ids")), 2);
    assert_int_equal(strlen(json_string_value(json_object_get(j, "digest"))), 32);
    json_decref(j);
    instance_free(in);
}

static void instance_report__equal_instances_have_no_difference(void **state)
{
    Instance *a = fixture_open(lib, "llama"), *b = fixture_open(lib, "llama");
    char da[33], db[33];
    Str s = STR_INIT;

    (void)state;
    instance_diff(a, b, &s);
    assert_int_equal(s.len, 0);
    assert_int_equal(instance_digest(a, da, NULL), ST_OK);
    assert_int_equal(instance_digest(b, db, NULL), ST_OK);
    assert_string_equal(da, db);
    str_release(&s);
    instance_free(a);
    instance_free(b);
}

static void instance_report__a_conversion_differs_in_formats_only(void **state)
{
    Instance *a = fixture_open(lib, "smollm2-135m"), *b = fixture_open(lib, "smollm2-q4_1.gguf");
    Str s = STR_INIT;

    (void)state;
    instance_diff(a, b, &s);
    has(&s, "layers 0-29: weight q: [576, 576] bf16, in the second [576, 576] q4_1\n");
    has(&s, "stem: weight embed: [49152, 576] bf16, in the second [49152, 576] q8_0\n");
    for (const char *line = str_c(&s); *line;
         line = strchr(line, '\n') + 1) { /* the eps of GGUF is f32, no difference */
        char one[128];

        snprintf(one, sizeof one, "%.*s", (int)strcspn(line, "\n"), line);
        assert_non_null(strstr(one, ": weight "));
    }
    str_release(&s);
    instance_free(a);
    instance_free(b);
}

static void instance_report__differences_name_layers_nodes_and_parameters(void **state)
{
    json_t *j = fixture_load("qwen2"), *meta = json_object_get(j, "meta");
    Instance *a = fixture_instance(lib, j, false), *b;
    char da[33], db[33];
    Str s = STR_INIT;

    (void)state;
    json_object_set_new(meta, "use_sliding_window", json_true());
    json_object_set_new(meta, "sliding_window", json_integer(8));
    json_object_set_new(meta, "layer_types", json_literal("['full_attention', 'sliding_attention']"));
    b = fixture_instance(lib, j, false);
    instance_diff(a, b, &s);
    assert_string_equal(str_c(&s), "layers 1: node attn: window: 0, in the second 8\n"
                                   "layers 1: state kv.k: 2 x 16 bf16, in the second 2 x 16 bf16 of the last 8\n"
                                   "layers 1: state kv.v: 2 x 16 bf16, in the second 2 x 16 bf16 of the last 8\n");
    assert_int_equal(instance_digest(a, da, NULL), ST_OK);
    assert_int_equal(instance_digest(b, db, NULL), ST_OK);
    assert_string_not_equal(da, db);
    instance_free(b);
    str_clear(&s);
    b = fixture_open(lib, "qwen3");
    instance_diff(a, b, &s);
    has(&s, "layers 0-1: node q_norm: qk_norm (q) -> q.1[256], only in the second\n");
    has(&s, "layers 0-1: weight q_bias: [64] bf16, only in the first\n");
    has(&s, "dim head_dim: 16, in the second 64\n");
    str_release(&s);
    instance_free(a);
    instance_free(b);
    json_decref(j);
}

static void instance_report__the_digest_knows_parameters_not_names(void **state)
{
    json_t *j = fixture_load("llama"), *meta = json_object_get(j, "meta");
    Instance *a = fixture_instance(lib, j, false), *b;
    char da[33], db[33];

    (void)state;
    assert_int_equal(instance_digest(a, da, NULL), ST_OK);
    json_object_set_new(meta, "eos_token_id", json_integer(9));
    json_object_set_new(meta, "_name_or_path", json_string("elsewhere"));
    b = fixture_instance(lib, j, false);
    assert_int_equal(instance_digest(b, db, NULL), ST_OK);
    assert_string_equal(da, db);
    instance_free(b);
    json_object_set_new(meta, "rms_norm_eps", json_real(2e-5));
    b = fixture_instance(lib, j, false);
    assert_int_equal(instance_digest(b, db, NULL), ST_OK);
    assert_string_not_equal(da, db);
    instance_free(b);
    instance_free(a);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instance_report__text_has_each_distinct_layer_once),
        cmocka_unit_test(instance_report__json_says_the_same),
        cmocka_unit_test(instance_report__equal_instances_have_no_difference),
        cmocka_unit_test(instance_report__a_conversion_differs_in_formats_only),
        cmocka_unit_test(instance_report__differences_name_layers_nodes_and_parameters),
        cmocka_unit_test(instance_report__the_digest_knows_parameters_not_names),
    };

    return cmocka_run_group_tests(tests, load_library, free_library);
}
