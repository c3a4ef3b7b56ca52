/* test_compute.c - the commands that compile, and what a compiler may not say. */
#include "compute/compute.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *const flags[] = {"-O2"}, *const dirs[] = {"view", "abi"}, *const defines[] = {"A=1", "B=2"};
static const char *const spillers[] = {"wide"};
static const CompileUnit unit = {
    .source = "view/x.c",
    .label = "kernels/x.c",
    .arch = "sm_90a",
    .flags = flags,
    .n_flags = 1,
    .include_dirs = dirs,
    .n_include_dirs = 2,
    .defines = defines,
    .n_defines = 2,
    .instance = "k0123",
    .may_spill = spillers,
    .n_may_spill = 1,
    .out = "x.o",
};
static const Toolchain tools = {"cc", "nvcc"};

static void expect_command(const ComputeTarget *c, const char *text)
{
    Arena *a = arena_new();
    const char *const *argv;
    char line[512] = "";
    Err err;
    assert_int_equal(c->command(&tools, &unit, a, &argv, &err), ST_OK);
    for (; *argv; argv++)
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s", *line ? " " : "", *argv);
    assert_string_equal(line, text);
    arena_free(a);
}

static void compute__cpu_command_is_flags_includes_constants_and_instance(void **state)
{
    (void)state;
    expect_command(&compute_cpu, "cc -O2 -I view -I abi -DA=1 -DB=2 -DMETRALE_INSTANCE=k0123 -c view/x.c -o x.o");
}

static void compute__nvidia_command_makes_a_cubin_for_the_arch(void **state)
{
    (void)state;
    expect_command(&compute_nvidia,
                   "nvcc -cubin -arch=sm_90a -Xptxas -v -O2 -I view -I abi -DA=1 -DB=2 view/x.c -o x.o");
}

static void compute__cpu_symbols_carry_the_instance_and_images_do_not(void **state)
{
    Arena *a = arena_new();
    (void)state;
    assert_string_equal(compute_cpu.symbol(&unit, "scale", a), "scale__k0123");
    assert_string_equal(compute_nvidia.symbol(&unit, "scale", a), "scale");
    arena_free(a);
}

static void compute__unknown_vendor_names_those_that_exist(void **state)
{
    const ComputeTarget *c = NULL;
    Err err;
    (void)state;
    assert_int_equal(compute_find("cpu", &c, &err), ST_OK);
    assert_ptr_equal(c, &compute_cpu);
    assert_int_equal(compute_find("apple", &c, &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "vendor 'apple'"));
    assert_non_null(strstr(err.msg, "cpu, nvidia"));
}

static void compute__absent_compiler_is_not_found(void **state)
{
    Arena *a = arena_new();
    const char *identity = NULL;
    const Toolchain none = {"metrale-no-cc", "metrale-no-nvcc"};
    Err err;
    (void)state;
    assert_int_equal(compute_cpu.identify(&none, a, &identity, &err), ST_NOTFOUND);
    assert_non_null(strstr(err.msg, "metrale-no-cc"));
    assert_int_equal(compute_nvidia.identify(&none, a, &identity, &err), ST_NOTFOUND);
    assert_non_null(strstr(err.msg, "metrale-no-nvcc"));
    assert_int_equal(compute_cpu.identify(&tools, a, &identity, &err), ST_OK);
    assert_true(strlen(identity) > 0);
    arena_free(a);
}

#define PTXAS(entry, stores, loads)                                                                                    \
    "ptxas info    : Compiling entry function '" entry                                                                 \
    "' for 'sm_90a'\nptxas info    : Function properties for " entry "\n    16 bytes stack frame, " stores             \
    " bytes spill stores, " loads " bytes spill loads\n"                                                               \
    "ptxas info    : Used 40 registers\n"

static void compute__spill_is_refused_unless_its_point_says_why(void **state)
{
    Err err;
    (void)state;
    assert_int_equal(compute_nvidia.accept(&unit, "", &err), ST_OK);
    assert_int_equal(compute_nvidia.accept(&unit, PTXAS("thin", "0", "0"), &err), ST_OK);
    assert_int_equal(compute_nvidia.accept(&unit, PTXAS("wide", "8", "16"), &err), ST_OK);
    assert_int_equal(compute_nvidia.accept(&unit, PTXAS("wide", "8", "16") PTXAS("thin", "120", "4"), &err),
                     ST_INVALID);
    assert_non_null(strstr(err.msg, "kernels/x.c: 'thin' spills registers for sm_90a (120 bytes stored, 4 loaded)"));
    assert_non_null(strstr(err.msg, "spills = "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compute__cpu_command_is_flags_includes_constants_and_instance),
        cmocka_unit_test(compute__nvidia_command_makes_a_cubin_for_the_arch),
        cmocka_unit_test(compute__cpu_symbols_carry_the_instance_and_images_do_not),
        cmocka_unit_test(compute__unknown_vendor_names_those_that_exist),
        cmocka_unit_test(compute__absent_compiler_is_not_found),
        cmocka_unit_test(compute__spill_is_refused_unless_its_point_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
