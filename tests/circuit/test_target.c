/* target: the most specific target of a class serves a checkpoint; presets and defaults come from its TOML. */
#include "circuit/target.h"
#include "lower_fixture.h"

#define MATCH(type, dims) "[model]\nname = \"m\"\n[match]\nmodel_type = " type "\n" dims

typedef struct Registry {
    KernelRegistry reg;
    KernelTarget targets[8];
    EmbeddedFile files[16];
} Registry;

static void add_target(Registry *r, const char *name, const char *hw, const char *model, const char *quant)
{
    r->targets[r->reg.n_targets++] = (KernelTarget){.name = name, .hw = hw, .model = model, .quant = quant};
    r->reg.targets = r->targets;
}

static void add_file(Registry *r, const char *path, const char *text)
{
    size_t i = r->reg.n_files++;

    for (; i > 0 && strcmp(r->files[i - 1].path, path) > 0; i--)
        r->files[i] = r->files[i - 1];
    r->files[i] = (EmbeddedFile){path, text, strlen(text)};
    r->reg.files = r->files;
}

static const char *chosen(const Registry *r, const char *hw, const Instance *in)
{
    const KernelTarget *t = NULL;
    Err err = {{0}};
    Str why = STR_INIT;

    if (target_choose(&t, &r->reg, hw, in, &why, &err) != ST_OK)
        fail_msg("%s", err.msg);
    assert_non_null(strstr(str_c(&why), t->name));
    str_release(&why);
    return t->name;
}

static void target__a_named_model_outranks_the_generic_one_and_more_dims_fewer(void **state)
{
    Registry r = {0};
    Model *m = fix_model(DT_Q4_1, DT_F32);

    (void)state;
    add_target(&r, "c/gen/any", "c", "gen", "any");
    add_file(&r, "kernels/c/gen/MODEL.toml", MATCH("[\"other\", \"small\"]", ""));
    assert_string_equal(chosen(&r, "c", &m->in), "c/gen/any");
    add_target(&r, "c/big/any", "c", "big", "any");
    add_file(&r, "kernels/c/big/MODEL.toml", MATCH("\"small\"", "[match.dims]\nhidden = 128\n"));
    assert_string_equal(chosen(&r, "c", &m->in), "c/gen/any"); /* another hidden size */
    add_target(&r, "c/named/any", "c", "named", "any");
    add_file(&r, "kernels/c/named/MODEL.toml", MATCH("\"small\"", "[match.dims]\nhidden = 64\n"));
    assert_string_equal(chosen(&r, "c", &m->in), "c/named/any");
    add_target(&r, "c/exact/any", "c", "exact", "any");
    add_file(&r, "kernels/c/exact/MODEL.toml", MATCH("\"small\"", "[match.dims]\nhidden = 64\nvocab = 320\n"));
    assert_string_equal(chosen(&r, "c", &m->in), "c/exact/any");
    free(m);
}

static void target__among_equals_the_name_decides(void **state)
{
    Registry r = {0};
    Model *m = fix_model(DT_Q4_1, DT_F32);

    (void)state;
    add_target(&r, "c/b/any", "c", "b", "any");
    add_target(&r, "c/a/any", "c", "a", "any");
    add_file(&r, "kernels/c/a/MODEL.toml", MATCH("\"small\"", ""));
    add_file(&r, "kernels/c/b/MODEL.toml", MATCH("\"small\"", ""));
    assert_string_equal(chosen(&r, "c", &m->in), "c/a/any");
    free(m);
}

static void target__a_quant_directory_takes_the_dominant_matrix_format(void **state)
{
    Registry r = {0};
    Model *q4 = fix_model(DT_Q4_1, DT_F32), *q8 = fix_model(DT_Q8_0, DT_F32);

    (void)state;
    add_target(&r, "c/g/any", "c", "g", "any");
    add_target(&r, "c/g/q4_1", "c", "g", "q4_1");
    add_file(&r, "kernels/c/g/MODEL.toml", MATCH("\"small\"", ""));
    assert_string_equal(chosen(&r, "c", &q4->in), "c/g/q4_1");
    assert_string_equal(chosen(&r, "c", &q8->in), "c/g/any");
    q4->layer.weights[1].stored = DT_Q8_0; /* q alone is no majority */
    assert_string_equal(chosen(&r, "c", &q4->in), "c/g/q4_1");
    free(q4);
    free(q8);
}

static void target__an_inherited_model_serves_the_child_class(void **state)
{
    Registry r = {0};
    Model *m = fix_model(DT_Q4_1, DT_F32);

    (void)state;
    add_target(&r, "child/g/any", "child", "g", "any");
    add_file(&r, "kernels/child/HARDWARE.toml", "[hardware]\nname = \"child\"\ninherits = \"c\"\n");
    add_file(&r, "kernels/c/g/MODEL.toml", MATCH("\"small\"", ""));
    assert_string_equal(chosen(&r, "child", &m->in), "child/g/any");
    free(m);
}

static void target__no_match_lists_what_the_class_has(void **state)
{
    Registry r = {0};
    Model *m = fix_model(DT_Q4_1, DT_F32);
    const KernelTarget *t = NULL;
    Err err = {{0}};

    (void)state;
    assert_int_equal(target_choose(&t, &r.reg, "c", &m->in, NULL, &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "no kernels for class c"));
    add_target(&r, "c/g/any", "c", "g", "any");
    add_file(&r, "kernels/c/g/MODEL.toml", MATCH("\"other\"", ""));
    assert_int_equal(target_choose(&t, &r.reg, "c", &m->in, NULL, &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.msg,
                           "small/config.json: no target of class c serves model_type 'small' in q4_1; there are "
                           "c/g/any"));
    free(m);
}

static void target__faults_of_model_toml_name_their_place(void **state)
{
    static const char *const texts[][2] = {
        {"[model]\nname = \"x\"\n", "[match] is missing"},
        {"[match]\nmodel_type = 3\n", "kernels/c/g/MODEL.toml:2: [match] needs model_type"},
        {"[match]\nmodel_type = \"small\"\nsize = 3\n", "kernels/c/g/MODEL.toml:3:"},
        {"[match]\nmodel_type = \"small\"\n[match.dims]\nhidden = \"64\"\n", "compares dims with integers"},
    };
    Model *m = fix_model(DT_Q4_1, DT_F32);

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Registry r = {0};
        const KernelTarget *t = NULL;
        Err err = {{0}};
        add_target(&r, "c/g/any", "c", "g", "any");
        add_file(&r, "kernels/c/g/MODEL.toml", texts[i][0]);
        assert_int_equal(target_choose(&t, &r.reg, "c", &m->in, NULL, &err), ST_FORMAT);
        if (strstr(err.msg, texts[i][1]) == NULL)
            fail_msg("message '%s' does not say '%s'", err.msg, texts[i][1]);
    }
    free(m);
}

static void target_default__is_text_and_falls_back_to_the_parent(void **state)
{
    static const char *const expect[][2] = {
        {"threads", "6"}, {"kv_dtype", "bf16"}, {"batch_invariant", "true"}, {"share", "0.5"}};
    Registry r = {0};
    Str value = STR_INIT;
    Err err = {{0}};
    bool found;

    (void)state;
    add_file(&r, "kernels/child/HARDWARE.toml", "[hardware]\ninherits = \"c\"\n[defaults]\nthreads = 6\n");
    add_file(&r, "kernels/c/HARDWARE.toml",
             "[defaults]\nthreads = 2\nkv_dtype = \"bf16\"\nbatch_invariant = true\nshare = 0.5\n");
    for (size_t i = 0; i < sizeof expect / sizeof *expect; i++) {
        str_clear(&value);
        assert_int_equal(target_default(&r.reg, "child", expect[i][0], &value, &found, &err), ST_OK);
        assert_true(found);
        assert_string_equal(str_c(&value), expect[i][1]);
    }
    assert_int_equal(target_default(&r.reg, "child", "port", &value, &found, &err), ST_OK);
    assert_false(found);
    assert_int_equal(target_default(&r.reg, "nowhere", "port", &value, &found, &err), ST_OK);
    assert_false(found);
    str_release(&value);
}

static void target_sampling__leaves_absent_keys_alone(void **state)
{
    Registry r = {0};
    SamplingPreset p = {.temperature = 1, .top_p = 0.5, .min_p = 0.1, .top_k = 7};
    Err err = {{0}};

    (void)state;
    add_target(&r, "c/g/any", "c", "g", "any");
    add_file(&r, "kernels/c/g/MODEL.toml", MATCH("\"small\"", "[sampling]\ntemperature = 0.2\ntop_k = 40\n"));
    assert_int_equal(target_sampling(&r.reg, &r.targets[0], &p, &err), ST_OK);
    assert_true(p.temperature == 0.2 && p.top_p == 0.5 && p.min_p == 0.1 && p.top_k == 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(target__a_named_model_outranks_the_generic_one_and_more_dims_fewer),
        cmocka_unit_test(target__among_equals_the_name_decides),
        cmocka_unit_test(target__a_quant_directory_takes_the_dominant_matrix_format),
        cmocka_unit_test(target__an_inherited_model_serves_the_child_class),
        cmocka_unit_test(target__no_match_lists_what_the_class_has),
        cmocka_unit_test(target__faults_of_model_toml_name_their_place),
        cmocka_unit_test(target_default__is_text_and_falls_back_to_the_parent),
        cmocka_unit_test(target_sampling__leaves_absent_keys_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
