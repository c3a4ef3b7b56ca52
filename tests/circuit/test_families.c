/* families: FAMILIES.toml and HARDWARE.toml are read strictly, layers merge by id, and a refusal names its place. */
#include "lower_fixture.h"

#define LINES "kernels/cpu1/common/FAMILIES.toml:"

static const Family *family(const FamilySet *fs, const char *id)
{
    for (uint32_t i = 0; i < fs->n_families; i++)
        if (strcmp(fs->families[i].id, id) == 0)
            return &fs->families[i];
    fail_msg("no family %s", id);
    return NULL;
}

static void families__reads_a_family_whole(void **state)
{
    Kernels *k = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k);
    const Family *f = family(fs, "linear_q");

    (void)state;
    assert_int_equal(fs->n_families, 10);
    assert_int_equal(fs->n_rules, 10); /* one implied for each */
    assert_ptr_equal(f->op, op_def(OP_LINEAR));
    assert_string_equal(f->layout, "n16");
    assert_int_equal(f->n_formats, 2);
    assert_int_equal(f->n_args, 7);
    assert_string_equal(f->args[3].name, "b");
    assert_string_equal(f->args[3].binding, "bias");
    assert_string_equal(f->args[4].name, "rows");
    assert_string_equal(f->args[4].binding, "rows");
    assert_int_equal(f->n_points, 2);
    assert_string_equal(f->points[0].constants, "ROWS=1 TILE=16"); /* sorted, whatever the file's order */
    assert_int_equal(f->points[0].rows_hi, 1);
    assert_int_equal(f->points[1].rows_hi, 0);
    assert_string_equal(expr_text(f->points[1].grid[1]), "ceil(rows, ROWS)");
    assert_string_equal(expr_text(f->points[1].smem), "0");
    assert_string_equal(f->file, "kernels/cpu1/common/FAMILIES.toml");
    families_free(fs);
    fix_kernels_free(k);
}

static void families__facts_come_from_the_class_and_fall_back_to_its_parent(void **state)
{
    Kernels *k = fix_kernels();
    FamilySet *fs;

    (void)state;
    fix_file(k, "kernels/base/HARDWARE.toml",
             "[hardware]\nname = \"base\"\nvendor = \"cpu\"\narch = \"a\"\nbandwidth = 10\nactivation = \"bf16\"\n"
             "launch_us = 3\n");
    fix_file(k, "kernels/cpu1/HARDWARE.toml",
             "[hardware]\nname = \"cpu1\"\nvendor = \"cpu\"\narch = \"b\"\ninherits = \"base\"\nbandwidth = 40.5\n"
             "[build]\nflags = [\"-O3\"]\n[defaults]\nthreads = 4\n");
    fs = fix_load(k);
    assert_string_equal(fs->facts.name, "cpu1");
    assert_int_equal(fs->facts.activation, DT_BF16);
    assert_true(fs->facts.bandwidth == 40.5e9);
    assert_true(fs->facts.launch_s == 3e-6);
    families_free(fs);
    fix_kernels_free(k);
}

static void families__facts_that_are_missing_or_wrong_are_refused(void **state)
{
    Kernels *k = fix_kernels();

    (void)state;
    fix_load_fails(k, "kernels/cpu1/HARDWARE.toml is not in this binary");
    k = fix_kernels();
    fix_file(k, "kernels/cpu1/HARDWARE.toml", "[hardware]\nname = \"cpu1\"\nbandwidth = 1\nlaunch_us = 1\n");
    fix_load_fails(k, "activation must name the format");
    k = fix_kernels();
    fix_file(k, "kernels/cpu1/HARDWARE.toml", "[hardware]\nactivation = \"f32\"\nlaunch_us = 1\n");
    fix_load_fails(k, "needs bandwidth");
    k = fix_kernels();
    fix_file(k, "kernels/cpu1/HARDWARE.toml", HARDWARE_CPU "speed = 3\n");
    fix_load_fails(k, "kernels/cpu1/HARDWARE.toml:8:");
}

static void families__an_upper_layer_wins_whole_and_comes_first(void **state)
{
    Kernels *k = fix_kernels();
    FamilySet *fs;

    (void)state;
    fix_file(k, "kernels/cpu1/HARDWARE.toml", HARDWARE_CPU);
    fix_layer_files(
        k, "kernels/cpu1/small/any",
        FAMILY("silu_f", "silu_mul", "", "\"y:out\", \"g:in0\", \"u:in1\"") POINT("silu_2", "[1, 4]", "rows"), NULL);
    fix_layer_files(k, "kernels/cpu1/common", F_SILU F_QUANT, NULL);
    fs = fix_load(k);
    assert_int_equal(fs->n_families, 2);
    assert_string_equal(fs->families[0].id, "silu_f");
    assert_string_equal(fs->families[0].file, "kernels/cpu1/small/any/FAMILIES.toml");
    assert_int_equal(fs->families[0].n_args, 3);
    assert_int_equal(fs->families[0].n_inplace, 0);
    assert_string_equal(fs->families[1].id, "quant_f");
    families_free(fs);
    fix_kernels_free(k);
}

typedef struct Fault {
    const char *text, *message;
} Fault;

#define SILU(more, args, point)                                                                                        \
    "[[family]]\nid = \"s\"\nop = \"silu_mul\"\nnumerics = \"f32\"\n" more "args = [" args "]\n[[family.point]]\n"     \
    "entry = \"e\"\nmodule = \"m\"\n" point
#define ARGS  "\"y:out\", \"a:in0\", \"b:in1\""
#define PLAIN "rows = [1, 0]\ngrid = [\"rows\", \"1\", \"1\"]\nblock = 1\n"

static void families__each_fault_names_file_line_and_what_is_wrong(void **state)
{
    static const Fault faults[] = {
        {"x = 1\n", LINES "1: "},
        {SILU("shape = 3\n", ARGS, PLAIN), LINES "5: "},
        {SILU("", ARGS, PLAIN "speed = 1\n"), LINES "12: "},
        {"[[family]]\nop = \"silu_mul\"\nnumerics = \"x\"\n", "'id' is missing"},
        {"[[family]]\nid = \"s\"\nop = \"silu\"\nnumerics = \"x\"\n", "there is no op 'silu'"},
        {"[[family]]\nid = \"s\"\nop = \"silu_mul\"\nargs = [\"y:out\"]\n", "'numerics' is missing"},
        {SILU("formats = { in0 = \"f33\" }\n", ARGS, PLAIN), LINES "5: 'formats.in0' names no format"},
        {SILU("formats = { in = \"f32\" }\n", ARGS, PLAIN), "'formats' lists 'in', which is neither"},
        {SILU("formats = { weight = \"f32\" }\n", ARGS, PLAIN), "'formats' lists 'weight'"},
        {SILU("compute = \"magic\"\n", ARGS, PLAIN), "compute is"},
        {SILU("inplace = [\"out=in2\"]\n", ARGS, PLAIN), "'inplace' has 'out=in2'"},
        {SILU("inplace = [\"in0=out\"]\n", ARGS, PLAIN), "'inplace' has 'in0=out'"},
        {SILU("", "\"y:out\", \":in0\"", PLAIN), "an argument is"},
        {SILU("", "\"y:step.speed\"", PLAIN), LINES "1: family s: argument 'y': 'step.speed' is no table of a step"},
        {SILU("", "\"y:q.weight\"", PLAIN), "names 'q.weight'"},
        {SILU("", "\"y:rows +\"", PLAIN), "argument 'y': the binding 'rows +' is neither"},
        {SILU("", ARGS, "rows = [4, 2]\ngrid = [\"rows\", \"1\", \"1\"]\nblock = 1\n"), LINES "9: 'rows' is [4, 2]"},
        {SILU("", ARGS, "rows = [0, 2]\ngrid = [\"rows\", \"1\", \"1\"]\nblock = 1\n"), "'rows' is [0, 2]"},
        {SILU("", ARGS, "rows = [1, 2]\ngrid = [\"rows\", \"1\"]\nblock = 1\n"), "'grid' must list three"},
        {SILU("", ARGS, "rows = [1, 2]\ngrid = [\"rows\", \"1\", \"(\"]\nblock = 1\n"), LINES "10: "},
        {SILU("", ARGS, "rows = [1, 2]\ngrid = [\"rows\", \"1\", \"x.y\"]\nblock = 1\n"), "'grid' 'x.y' names 'x.y'"},
        {SILU("", ARGS, "rows = [1, 2]\ngrid = [\"rows\", \"1\", \"1\"]\n"), "'block' must be"},
        {SILU("", ARGS, PLAIN "constants = { A = 1.5 }\n"), "'constants.A' must be an integer"},
        {"[[family]]\nid = \"s\"\nop = \"silu_mul\"\nnumerics = \"x\"\nargs = [\"y:out\"]\n",
         "has no [[family.point]]"},
        {"[[family]]\nid = \"s\"\nop = \"linear\"\nnumerics = \"x\"\nargs = [\"y:out\"]\n" POINT("e", "[1, 0]", "rows"),
         "gives no format for the matrix 'weight'"},
        {"[[family]]\nid = \"s\"\nop = \"rms_norm\"\nnumerics = \"x\"\nformats = { weight = \"bf16\" }\nargs = "
         "[\"y:out\"]\n" POINT("e", "[1, 0]", "rows"),
         "vectors reach kernels as f32"},
        {"[[family]]\nid = \"s\"\nop = \"kv_write\"\nnumerics = \"x\"\nargs = [\"k:in0\"]\n" POINT("e", "[1, 0]",
                                                                                                   "rows"),
         "gives no format for the state"},
        {"[[family]]\nid = \"s\"\nnumerics = \"x\"\nargs = [\"y\"]\n" POINT("e", "[1, 0]", "rows"),
         LINES "1: family s has no op and no rule"},
        {F_SILU F_SILU, "family silu_f is defined a second time; the first is in line 1"},
        {F_SILU FAMILY("other", "silu_mul", "", ARGS) POINT("silu_1", "[1, 0]", "rows"),
         "entry silu_1 belongs to family other and, in " LINES "1, to family silu_f"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        Kernels *k = fix_kernels();
        fix_file(k, "kernels/cpu1/HARDWARE.toml", HARDWARE_CPU);
        k->layers[k->target.n_layers++] = "kernels/cpu1/common";
        fix_file(k, "kernels/cpu1/common/FAMILIES.toml", faults[i].text);
        k->objects[0] = (KernelObject){.entry = "e", .module = "m", .constants = "", .hash = ""};
        k->objects[1] = (KernelObject){.entry = "silu_1", .module = "m", .constants = "", .hash = ""};
        k->target.n_objects = 2;
        fix_load_fails(k, faults[i].message);
    }
}

static void families__every_point_is_an_object_of_the_target(void **state)
{
    Kernels *k = fix_cpu(F_LINEAR, NULL);

    (void)state;
    k->target.n_objects--;
    fix_load_fails(k, "kernels/cpu1/common/FAMILIES.toml:1: family linear_q: target cpu1/small/any has no kernel "
                      "linear_1[ROWS=8 TILE=16]");
    k = fix_cpu(F_LINEAR, NULL);
    k->objects[1].module = "other";
    fix_load_fails(k, "kernel linear_1 comes from module other, not m");
}

/* The tree's own CPU families, with an object for each of their points. */
static char *read_tree(const char *path)
{
    char full[512], *text;
    FILE *f;
    size_t len;

    snprintf(full, sizeof full, "%s/%s", METRALE_SOURCE_DIR, path);
    f = fopen(full, "rb");
    if (f == NULL)
        fail_msg("%s is not there", full);
    text = calloc(1, 1 << 20);
    assert_non_null(text);
    len = fread(text, 1, (1 << 20) - 1, f);
    assert_true(len > 0);
    fclose(f);
    return text;
}

static void families__the_tree_s_cpu_families_load_and_cover_a_dense_model_in_every_weight_format(void **state)
{
    static const DType formats[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q4_0, DT_Q4_1}, kvs[] = {DT_F32, DT_BF16};
    char *families = read_tree("kernels/avx2/common/FAMILIES.toml"),
         *rules = read_tree("kernels/avx2/common/RULES.toml"), *hardware = read_tree("kernels/avx2/HARDWARE.toml");
    Kernels *k = fix_kernels();
    FamilySet *fs;

    (void)state;
    k->target.hw = "avx2";
    fix_file(k, "kernels/avx2/HARDWARE.toml", hardware);
    fix_layer_files(k, "kernels/avx2/common", families, rules);
    fs = fix_load(k);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (size_t j = 0; j < 2; j++) {
            Model *m = fix_model(formats[i], kvs[j]);
            Plan *decode = fix_lower(&m->in, fs, fix_decode(1)), *rung = fix_lower(&m->in, fs, fix_decode(16)),
                 *extend = fix_lower(&m->in, fs, fix_extend(512));
            assert_true(extend->arena_bytes > decode->arena_bytes);
            plan_free(decode);
            plan_free(rung);
            plan_free(extend);
            free(m);
        }
    families_free(fs);
    fix_kernels_free(k);
    free(families);
    free(rules);
    free(hardware);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families__reads_a_family_whole),
        cmocka_unit_test(families__facts_come_from_the_class_and_fall_back_to_its_parent),
        cmocka_unit_test(families__facts_that_are_missing_or_wrong_are_refused),
        cmocka_unit_test(families__an_upper_layer_wins_whole_and_comes_first),
        cmocka_unit_test(families__each_fault_names_file_line_and_what_is_wrong),
        cmocka_unit_test(families__every_point_is_an_object_of_the_target),
        cmocka_unit_test(families__the_tree_s_cpu_families_load_and_cover_a_dense_model_in_every_weight_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
