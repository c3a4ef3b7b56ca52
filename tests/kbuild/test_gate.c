/* test_gate.c - the compile gate of the NVIDIA classes, with the real compiler: what must compile does, for each arch of the tree,
 * and what must not does not. Skipped where there is no nvcc (METRALE_NVCC names one that is not on PATH). */
#include "kbuild/build.h"
#include "support/tree.h"

#define GPU(name, arch, more)                                                                                          \
    "[hardware]\nname = \"" name "\"\nvendor = \"nvidia\"\narch = \"" arch                                             \
    "\"\nbandwidth = 1\nactivation = \"bf16\"\n" more
#define GOOD "extern \"C\" __global__ void scale(float *x)\n{\n    x[threadIdx.x] *= N;\n}\n"
#define BAD  "extern \"C\" __global__ void scale(float *x)\n{\n    x[threadIdx.x] *= undeclared;\n}\n"

static const char *nvcc(void)
{
    const char *path = getenv("METRALE_NVCC");
    return path && *path ? path : "nvcc";
}

static Status build(const char *source, char *log, size_t size, Err *err)
{
    BuildOptions o = {
        .tree = TREE,
        .circuits = "circuits",
        .abi = METRALE_SOURCE_DIR "/src/kernels",
        .cache = "cache",
        .out = "out",
        .tools = {"cc", nvcc()},
        .jobs = 2,
        .log = tmpfile(),
    };
    BuildSummary s;
    tree_clear(TREE);
    tree_clear("cache");
    put("base/HARDWARE.toml",
        GPU("base", "sm_121a", "[build]\nflags = [\"-std=c++17\", \"-Werror\", \"all-warnings\"]\n"));
    put("child/HARDWARE.toml", GPU("child", "sm_90a", "inherits = \"base\"\n"));
    put("base/common/scale.cu", source);
    put("base/common/FAMILIES.toml", FAMILIES "constants = { N = 3 }\n");
    put("base/toy/MODEL.toml", MODEL_TOML);
    put("base/toy/any/KERNEL.toml", "# nothing\n");
    put_in("circuits", "none.toml", "");
    Status st = build_run(&o, &s, err);
    rewind(o.log);
    log[fread(log, 1, size - 1, o.log)] = '\0';
    fclose(o.log);
    if (st == ST_OK)
        assert_int_equal(s.n_compiled, 2); /* one cubin for each arch: the same source is another artifact */
    return st;
}

static void gate__good_source_becomes_a_cubin_for_each_arch(void **state)
{
    char log[4096];
    Err err = {""};
    (void)state;
    if (build(GOOD, log, sizeof log, &err) != ST_OK)
        fail_msg("%s%s", log, err.msg);
}

static void gate__bad_source_stops_the_build_at_its_line(void **state)
{
    char log[4096];
    Err err;
    (void)state;
    assert_int_equal(build(BAD, log, sizeof log, &err), ST_INVALID);
    assert_non_null(strstr(log, TREE "/base/common/scale.cu(3)"));
    assert_non_null(strstr(log, "undeclared"));
    assert_non_null(strstr(err.msg, TREE "/base/common/scale.cu does not compile"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gate__good_source_becomes_a_cubin_for_each_arch),
        cmocka_unit_test(gate__bad_source_stops_the_build_at_its_line),
    };
    const Toolchain tools = {"cc", nvcc()};
    const char *identity;
    Err err;
    Arena *a = arena_new();
    Status st = compute_nvidia.identify(&tools, a, &identity, &err);
    arena_free(a);
    if (st != ST_OK) {
        printf("SKIP: %s\n", err.msg);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
