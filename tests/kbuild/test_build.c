/* test_build.c - the build driver on small trees: what is compiled, what is not, and what comes out. */
#include "compute/process.h"
#include "kbuild/build.h"
#include "kernels/registry.h"
#include "support/tree.h"
#include <dlfcn.h>
#include <fcntl.h>

#define ABI METRALE_SOURCE_DIR "/src/kernels"

/* What one run left. */
typedef struct Run {
    Status st;
    Err err;
    BuildSummary s;
    char log[8192];
} Run;

static void plant(void)
{
    tree_plant();
    put("low/HARDWARE.toml", HARDWARE_TOML("low", "[build]\nflags = [\"-std=c17\", \"-O1\", \"-fPIC\"]\n"));
    put("low/toy2/MODEL.toml", MODEL_TOML);
    put("low/toy2/any/KERNEL.toml", "# nothing\n");
    tree_clear("cache");
    tree_clear("out");
    tree_clear("circuits");
    put_in("circuits", "blocks/part.toml", "# a block\n");
    put_in("circuits", "toy.toml", "text = \"what?\?/ \\\"quoted\\\" \xc3\xa9 \"\n");
}

static BuildOptions options(void)
{
    return (BuildOptions){
        .tree = TREE,
        .circuits = "circuits",
        .abi = ABI,
        .cache = "cache",
        .out = "out",
        .tools = {"cc", "metrale-no-nvcc"},
        .jobs = 2,
    };
}

static Run run(BuildOptions o)
{
    Run r = {0};
    FILE *log = tmpfile();
    assert_non_null(log);
    o.log = log;
    r.st = build_run(&o, &r.s, &r.err);
    rewind(log);
    r.log[fread(r.log, 1, sizeof r.log - 1, log)] = '\0';
    fclose(log);
    return r;
}

static Run run_ok(BuildOptions o)
{
    Run r = run(o);
    if (r.st != ST_OK)
        print_message("%s%s\n", r.log, r.err.msg);
    assert_int_equal(r.st, ST_OK);
    return r;
}

static char *read_text(const char *path)
{
    char *text = NULL;
    size_t len;
    Err err;
    assert_int_equal(file_read(path, 1 << 24, &text, &len, &err), ST_OK);
    return text;
}

static bool text_has(const char *path, const char *words)
{
    char *text = read_text(path);
    bool found = strstr(text, words) != NULL;
    free(text);
    return found;
}

/* The outputs, linked and loaded as the program would have them. */
static void *load_registry(const KernelRegistry **r)
{
    const char *const argv[] = {"cc",
                                "-shared",
                                "-fPIC",
                                "-std=c17",
                                "-I",
                                METRALE_SOURCE_DIR "/src",
                                "out/registry.c",
                                "out/libmetrale_kernels.a",
                                "-o",
                                "out/registry.so",
                                NULL};
    Process p = {.argv = argv};
    Err err;
    assert_int_equal(process_run(&p, 1, 1, &err), ST_OK);
    if (p.code)
        print_message("%s\n", str_c(&p.output));
    assert_int_equal(p.code, 0);
    str_release(&p.output);
    void *so = dlopen("out/registry.so", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(so);
    *r = dlsym(so, "metrale_registry");
    assert_non_null(*r);
    return so;
}

static float call_scale(const KernelRegistry *r, const char *target, const char *constants)
{
    float x = 1.0f;
    KArg arg = {.ptr = &x};
    KBlock b = {.nx = 1, .ny = 1, .nz = 1};
    for (size_t i = 0; i < r->n_targets; i++)
        for (size_t j = 0; j < r->targets[i].n_objects; j++)
            if (!strcmp(r->targets[i].name, target) && !strcmp(r->targets[i].objects[j].constants, constants)) {
                r->targets[i].objects[j].fn(&arg, &b);
                return x;
            }
    fail_msg("no object of %s with constants '%s'", target, constants);
    return 0.0f;
}

/* ---- what is compiled ---- */

static void build__targets_with_equal_inputs_share_one_artifact(void **state)
{
    (void)state;
    plant();
    Run r = run_ok(options());
    assert_int_equal(r.s.n_targets, 4); /* two models in two classes, with equal flags */
    assert_int_equal(r.s.n_artifacts, 1);
    assert_int_equal(r.s.n_compiled, 1);
}

static void build__second_run_compiles_nothing(void **state)
{
    (void)state;
    plant();
    run_ok(options());
    tree_clear("out");
    Run r = run_ok(options());
    assert_int_equal(r.s.n_compiled, 0);
    assert_int_equal(r.s.n_cached, 1);
    assert_true(file_exists("out/registry.c"));
    assert_true(file_exists("out/libmetrale_kernels.a"));
}

static void build__changed_header_recompiles_what_reaches_it(void **state)
{
    (void)state;
    plant();
    put("low/common/deep.h", "#define DEEP 1\n");
    put("low/common/unrelated.h", "/* nobody includes this */\n");
    put("low/common/factor.h", "#include \"deep.h\"\n" FACTOR_H);
    run_ok(options());
    put("low/common/unrelated.h", "/* nobody, still */\n");
    assert_int_equal(run_ok(options()).s.n_compiled, 0);
    put("low/common/deep.h", "#define DEEP 2\n");
    assert_int_equal(run_ok(options()).s.n_compiled, 1);
    put("low/common/deep.h", "#define DEEP 1\n"); /* and back: the cache still has it */
    assert_int_equal(run_ok(options()).s.n_compiled, 0);
}

static void build__flags_constants_and_compiler_are_part_of_the_key(void **state)
{
    (void)state;
    plant();
    run_ok(options());
    put("low/common/KERNEL.toml", "[build]\nflags = [\"-O2\"]\n");
    assert_int_equal(run_ok(options()).s.n_compiled, 1);
    put("low/common/FAMILIES.toml", FAMILIES "constants = { N = 3 }\n");
    assert_int_equal(run_ok(options()).s.n_compiled, 1);
    put_in("bin", "cc-two", "#!/bin/sh\n[ \"$1\" = --version ] && echo another one && exit 0\nexec cc \"$@\"\n");
    assert_int_equal(chmod("bin/cc-two", 0755), 0);
    BuildOptions o = options();
    o.tools.cc = "bin/cc-two";
    assert_int_equal(run_ok(o).s.n_compiled, 1);
}

static void build__globs_choose_targets(void **state)
{
    (void)state;
    plant();
    BuildOptions o = options();
    o.hw = "h*";
    o.model = "toy?";
    Run r = run_ok(o);
    assert_int_equal(r.s.n_targets, 1);
    assert_true(text_has("out/registry.c", "\"high/toy2/any\""));
    assert_false(text_has("out/registry.c", "\"low/toy2/any\""));
    o.model = "nothing";
    r = run(o);
    assert_int_equal(r.st, ST_NOTFOUND);
    assert_non_null(strstr(r.err.msg, "model 'nothing'"));
    assert_non_null(strstr(r.err.msg, "high/toy/any, high/toy2/any"));
}

/* ---- what comes out ---- */

static void build__kernels_can_be_called_through_the_registry(void **state)
{
    const KernelRegistry *r;
    (void)state;
    plant();
    put("high/common/factor.h", "#define FACTOR 3.0f\n");
    put("high/common/KERNEL.toml", "[shadow]\n\"factor.h\" = \"measured\"\n");
    run_ok(options());
    void *so = load_registry(&r);
    assert_int_equal(r->n_targets, 4);
    /* low/common/scale.c asks for "factor.h" and gets the one that its target sees, not the one beside it. */
    assert_float_equal(call_scale(r, "low/toy/any", ""), 2.0f, 0.0f);
    assert_float_equal(call_scale(r, "high/toy/any", ""), 3.0f, 0.0f);
    assert_string_equal(r->targets[0].layers[0], "kernels/high/common");
    assert_string_equal(r->targets[0].vendor, "cpu");
    dlclose(so);
}

static void build__points_of_one_entry_are_told_apart_by_constants(void **state)
{
    const KernelRegistry *r;
    (void)state;
    plant();
    put("low/common/factor.h", "#define FACTOR (10.0f * N)\n");
    put("low/common/FAMILIES.toml",
        FAMILIES "constants = { N = 1 }\n[[family.point]]\nentry = \"scale\"\nmodule = \"scale\"\n"
                 "constants = { N = 4 }\n[[family.point]]\nentry = \"scale\"\nmodule = \"scale\"\n"
                 "constants = { N = 4 }\nrows = [9, 0]\n");
    Run run = run_ok(options());
    assert_int_equal(run.s.n_artifacts, 2);
    void *so = load_registry(&r);
    assert_int_equal(r->targets[0].n_objects, 2);
    assert_float_equal(call_scale(r, "low/toy/any", "N=1"), 10.0f, 0.0f);
    assert_float_equal(call_scale(r, "low/toy/any", "N=4"), 40.0f, 0.0f);
    dlclose(so);
}

static void build__tables_are_embedded_sorted_and_byte_for_byte(void **state)
{
    const KernelRegistry *r;
    (void)state;
    plant();
    run_ok(options());
    void *so = load_registry(&r);
    bool seen = false;
    for (size_t i = 0; i < r->n_files; i++) {
        assert_true(i == 0 || strcmp(r->files[i - 1].path, r->files[i].path) < 0);
        char path[128];
        snprintf(path, sizeof path, "%s%s", str_starts(r->files[i].path, "kernels/") ? TREE : "circuits",
                 strchr(r->files[i].path, '/'));
        char *text = read_text(path);
        assert_string_equal(r->files[i].text, text);
        assert_int_equal(r->files[i].len, strlen(text));
        free(text);
        seen |= !strcmp(r->files[i].path, "circuits/toy.toml");
    }
    assert_true(seen);
    assert_int_equal(r->n_files, 10);
    dlclose(so);
}

static void build__skip_embeds_the_tables_and_no_target(void **state)
{
    const KernelRegistry *r;
    (void)state;
    plant();
    BuildOptions o = options();
    o.skip = true;
    o.tools.cc = "metrale-no-cc";
    Run run = run_ok(o);
    assert_int_equal(run.s.n_targets, 0);
    void *so = load_registry(&r);
    assert_int_equal(r->n_targets, 0);
    assert_null(r->targets);
    assert_int_equal(r->n_files, 10);
    dlclose(so);
}

static void build__unchanged_outputs_are_not_touched(void **state)
{
    static const char *const outputs[] = {"out/registry.c", "out/libmetrale_kernels.a", "out/registry.d"};
    struct stat before[3], after;
    (void)state;
    plant();
    run_ok(options());
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(stat(outputs[i], &before[i]), 0);
    run_ok(options());
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(stat(outputs[i], &after), 0);
        assert_int_equal(after.st_ino, before[i].st_ino);
    }
    put("low/toy/MODEL.toml", MODEL_TOML "# more\n");
    run_ok(options());
    assert_int_equal(stat(outputs[0], &after), 0);
    assert_int_not_equal(after.st_ino, before[0].st_ino);
    assert_int_equal(stat(outputs[1], &after), 0);
    assert_int_equal(after.st_ino, before[1].st_ino);
}

static void build__depfile_names_all_that_was_read(void **state)
{
    (void)state;
    plant();
    run_ok(options());
    /* The ends of the names: a blank in the checkout's path is escaped there. */
    assert_true(text_has("out/registry.d", "out/registry.c out/libmetrale_kernels.a:"));
    assert_true(text_has("out/registry.d", "/low/common/factor.h"));
    assert_true(text_has("out/registry.d", "/high/HARDWARE.toml"));
    assert_true(text_has("out/registry.d", "circuits/blocks/part.toml"));
    assert_true(text_has("out/registry.d", "/src/kernels/kernel_abi.h"));
}

static void build__leaves_nothing_but_artifacts_in_the_cache(void **state)
{
    DirEntry *entries;
    size_t n;
    Err err;
    (void)state;
    plant();
    run_ok(options());
    put("low/common/scale.c", "KERNEL(scale)\n{\n    broken\n}\n");
    run(options());
    Arena *a = arena_new();
    assert_int_equal(dir_list("cache", a, &entries, &n, &err), ST_OK);
    assert_int_equal(n, 1);
    arena_free(a);
}

/* ---- what is refused ---- */

static void build__faulty_tree_is_refused_with_its_faults(void **state)
{
    (void)state;
    plant();
    put("high/common/factor.h", "#define FACTOR 3.0f\n");
    Run r = run(options());
    assert_int_equal(r.st, ST_INVALID);
    assert_non_null(strstr(r.log, TREE "/high/common/factor.h:1: undeclared shadow of low/common/factor.h: add "));
    assert_non_null(strstr(r.err.msg, "1 fault in the kernel tree"));
    assert_false(file_exists("out/registry.c"));
}

static void build__entry_that_no_object_exports_is_refused_at_its_point(void **state)
{
    (void)state;
    plant();
    put("low/common/FAMILIES.toml", FAMILIES "[[family.point]]\nentry = \"scale_rows\"\nmodule = \"scale\"\n");
    Run r = run(options());
    assert_int_equal(r.st, ST_INVALID);
    assert_non_null(strstr(r.err.msg, TREE "/low/common/FAMILIES.toml:6: the point names the entry 'scale_rows'"));
    assert_non_null(strstr(r.err.msg, TREE "/low/common/scale.c does not export"));
}

static void build__failing_compiler_is_shown_with_the_sources_own_line(void **state)
{
    (void)state;
    plant();
    put("low/common/scale.c", "#include \"kernel_abi.h\"\nKERNEL(scale)\n{\n    nonsense here;\n}\n");
    Run r = run(options());
    assert_int_equal(r.st, ST_INVALID);
    assert_non_null(strstr(r.log, TREE "/low/common/scale.c:4:"));
    assert_non_null(strstr(r.log, "nonsense"));
    assert_non_null(strstr(r.err.msg, TREE "/low/common/scale.c does not compile"));
}

#define GPU_HARDWARE                                                                                                   \
    "[hardware]\nname = \"gpu\"\nvendor = \"nvidia\"\narch = \"sm_1\"\nbandwidth = 1\nactivation = \"bf16\"\n"

static void plant_gpu(void)
{
    plant();
    put("gpu/HARDWARE.toml", GPU_HARDWARE);
    put("gpu/common/scale.cu", "extern \"C\" __global__ void scale(float *x)\n{\n}\n");
    put("gpu/common/FAMILIES.toml", FAMILIES);
    put("gpu/toy/MODEL.toml", MODEL_TOML);
    put("gpu/toy/any/KERNEL.toml", "# nothing\n");
}

/* Stands in for nvcc: makes an object with the entry, and says what ptxas would. */
static BuildOptions with_fake_nvcc(const char *spilled)
{
    char script[1024];
    snprintf(script, sizeof script,
             "#!/bin/sh\n[ \"$1\" = --version ] && echo fake nvcc && exit 0\nfor last; do :; done\n"
             "echo 'void scale(void) {}' | cc -x c -c - -o \"$last\" || exit 1\n"
             "echo 'ptxas info    : Function properties for scale'\n"
             "echo '    0 bytes stack frame, %s bytes spill stores, 0 bytes spill loads'\n",
             spilled);
    put_in("bin", "nvcc", script);
    assert_int_equal(chmod("bin/nvcc", 0755), 0);
    BuildOptions o = options();
    o.tools.nvcc = "bin/nvcc";
    return o;
}

static void build__class_without_a_compiler_is_left_out_with_one_line(void **state)
{
    const KernelRegistry *r;
    (void)state;
    plant_gpu();
    Run run = run_ok(options());
    assert_int_equal(run.s.n_targets, 4);
    assert_non_null(strstr(run.log, "the class 'gpu' is left out"));
    assert_ptr_equal(strchr(run.log, '\n'), run.log + strlen(run.log) - 1);
    void *so = load_registry(&r);
    assert_non_null(strstr(r->left_out, "gpu: "));
    dlclose(so);
}

static void build__class_asked_for_by_name_needs_its_compiler(void **state)
{
    (void)state;
    plant_gpu();
    BuildOptions o = options();
    o.hw = "gpu";
    Run r = run(o);
    assert_int_equal(r.st, ST_NOTFOUND);
    assert_non_null(strstr(r.err.msg, "the class 'gpu' was asked for"));
    assert_non_null(strstr(r.err.msg, "metrale-no-nvcc"));
    o.hw = "g*"; /* a glob asks for what there is */
    assert_int_equal(run_ok(o).s.n_targets, 0);
}

static void build__gpu_image_is_embedded(void **state)
{
    const KernelRegistry *r;
    (void)state;
    plant_gpu();
    BuildOptions o = with_fake_nvcc("0");
    o.hw = "gpu";
    run_ok(o);
    void *so = load_registry(&r);
    const KernelObject *k = &r->targets[0].objects[0];
    assert_null(k->fn);
    assert_string_equal(k->symbol, "scale");
    assert_true(k->image->len > 64);
    assert_memory_equal(k->image->bytes, "\177ELF", 4);
    dlclose(so);
}

static void build__spill_is_refused_until_its_point_says_why(void **state)
{
    (void)state;
    plant_gpu();
    BuildOptions o = with_fake_nvcc("24");
    o.hw = "gpu";
    Run r = run(o);
    assert_int_equal(r.st, ST_INVALID);
    assert_non_null(strstr(r.err.msg, TREE "/gpu/common/scale.cu: 'scale' spills registers for sm_1 (24 bytes stored"));
    put("gpu/common/FAMILIES.toml", FAMILIES "spills = \"the tile is worth it: docs/perf.md\"\n");
    assert_int_equal(run_ok(o).s.n_compiled, 1);
    put("gpu/common/FAMILIES.toml", FAMILIES); /* the cache does not forgive what the point no longer does */
    assert_int_equal(run(o).st, ST_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build__targets_with_equal_inputs_share_one_artifact),
        cmocka_unit_test(build__second_run_compiles_nothing),
        cmocka_unit_test(build__changed_header_recompiles_what_reaches_it),
        cmocka_unit_test(build__flags_constants_and_compiler_are_part_of_the_key),
        cmocka_unit_test(build__globs_choose_targets),
        cmocka_unit_test(build__kernels_can_be_called_through_the_registry),
        cmocka_unit_test(build__points_of_one_entry_are_told_apart_by_constants),
        cmocka_unit_test(build__tables_are_embedded_sorted_and_byte_for_byte),
        cmocka_unit_test(build__skip_embeds_the_tables_and_no_target),
        cmocka_unit_test(build__unchanged_outputs_are_not_touched),
        cmocka_unit_test(build__depfile_names_all_that_was_read),
        cmocka_unit_test(build__leaves_nothing_but_artifacts_in_the_cache),
        cmocka_unit_test(build__faulty_tree_is_refused_with_its_faults),
        cmocka_unit_test(build__entry_that_no_object_exports_is_refused_at_its_point),
        cmocka_unit_test(build__failing_compiler_is_shown_with_the_sources_own_line),
        cmocka_unit_test(build__class_without_a_compiler_is_left_out_with_one_line),
        cmocka_unit_test(build__class_asked_for_by_name_needs_its_compiler),
        cmocka_unit_test(build__gpu_image_is_embedded),
        cmocka_unit_test(build__spill_is_refused_until_its_point_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
