/* Reports on the real tree: every class of kernels/ as its tables describe it, and models of tests/data. */
#include "circuit/report.h"
#include "circuit_fixture.h"
#include "support/embedded.h"

static Embedded files;
static Classes *classes;
static CircuitLibrary *lib;

static int by_path(const void *a, const void *b)
{
    return strcmp(((const EmbeddedFile *)a)->path, ((const EmbeddedFile *)b)->path);
}

static int open_tree(void **state)
{
    Err err = {{0}};

    (void)state;
    lib = fixture_library();
    if (embedded_add_dir(&files, "kernels", &err) != ST_OK)
        fail_msg("%s", err.msg);
    qsort(files.files, files.n, sizeof *files.files, by_path);
    const KernelRegistry reg = {.files = files.files, .n_files = files.n};
    if (classes_new(&classes, &reg, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return 0;
}

static int close_tree(void **state)
{
    (void)state;
    classes_free(classes);
    circuit_library_free(lib);
    embedded_free(&files);
    return 0;
}

static json_t *gap(const char *model, const char *hw, bool *open)
{
    const StepShape shapes[] = {{SHAPE_DECODE, 1, 1, 1, 1, 2048}, {SHAPE_EXTEND, 1, 512, 8, 8, 2048}};
    Instance *in = fixture_open(lib, model);
    const ReportNeed need = {.in = in, .shapes = shapes, .n_shapes = 2, .batch_invariant = true};
    const ReportClass *c = NULL;
    json_t *j = NULL;
    Err err = {{0}};

    if (classes_find(classes, hw, &c, &err) != ST_OK || report_gap(&j, open, classes, c, &need, &err) != ST_OK)
        fail_msg("%s", err.msg);
    instance_free(in);
    return j;
}

static void gap__the_cpu_classes_cover_the_default_model(void **state)
{
    static const char *const hw[] = {"avx2", "avx512"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        bool open = true;
        json_t *j = gap("smollm2-q4_1.gguf", hw[i], &open);
        if (open)
            fail_msg("%s has gaps", hw[i]);
        json_decref(j);
    }
}

static void gap__of_hopper_leaves_out_what_it_inherits(void **state)
{
    bool open = false;
    json_t *j = gap("smollm2-q4_1.gguf", "hopper", &open), *missing = json_object_get(j, "missing");
    size_t i;
    const json_t *item;

    (void)state;
    json_array_foreach(missing, i, item)
    {
        const char *op = json_string_value(json_object_get(item, "op"));
        /* gb10 has these, and hopper inherits them. */
        assert_true(strcmp(op, "rms_norm") != 0 && strcmp(op, "residual_add") != 0 && strcmp(op, "silu_mul") != 0);
    }
    assert_true(open == (json_array_size(missing) > 0));
    json_decref(j);
}

static void lkb__every_class_has_families_and_avx512_adds_none_of_its_own(void **state)
{
    json_t *j = NULL;
    Err err = {{0}};
    size_t i;
    const json_t *item;

    (void)state;
    assert_int_equal(report_lkb(&j, classes, NULL, NULL, 0, &err), ST_OK);
    json_array_foreach(json_object_get(j, "classes"), i, item)
    {
        assert_true(json_integer_value(json_object_get(item, "families")) > 0);
        if (strcmp(json_string_value(json_object_get(item, "class")), "avx512") == 0) {
            assert_int_equal(json_integer_value(json_object_get(item, "own_families")), 0);
            assert_true(json_integer_value(json_object_get(item, "residual_files")) > 0);
        }
    }
    assert_true(i >= 5);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gap__the_cpu_classes_cover_the_default_model),
        cmocka_unit_test(gap__of_hopper_leaves_out_what_it_inherits),
        cmocka_unit_test(lkb__every_class_has_families_and_avx512_adds_none_of_its_own),
    };
    return cmocka_run_group_tests(tests, open_tree, close_tree);
}
