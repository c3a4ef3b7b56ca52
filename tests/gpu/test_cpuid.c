/* test_cpuid.c - a class is refused for want of any one feature, and for registers that the system does not save. */
#include "gpu/cpuid.h"
#include "gpu/gpu.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the headers above */
#include <cmocka.h>

static const CpuFacts all = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX};

static void cpuid__nothing_runs_without_features(void **state)
{
    CpuFacts none = {0};
    (void)state;
    assert_false(cpu_facts_can_run(&none, "avx2"));
    assert_false(cpu_facts_can_run(&none, "avx512"));
    assert_true(cpu_facts_can_run(&all, "avx2"));
    assert_true(cpu_facts_can_run(&all, "avx512"));
}

static void cpuid__gpu_class_is_no_cpu_class(void **state)
{
    (void)state;
    assert_false(cpu_facts_can_run(&all, "hopper"));
    assert_false(cpu_facts_can_run(&all, ""));
    assert_false(gpu_cpu_can_run("avx"));
}

typedef struct Lack {
    const char *feature;
    CpuFacts without; /* one bit */
    bool avx2, avx512;
} Lack;

static void cpuid__one_missing_feature_refuses_the_class(void **state)
{
    /* Bits as in the Intel SDM, volume 2A, table 3-8 on. */
    static const Lack lacks[] = {
        {"FMA", {.leaf1_ecx = 1u << 12}, false, false},
        {"MOVBE", {.leaf1_ecx = 1u << 22}, false, false},
        {"POPCNT", {.leaf1_ecx = 1u << 23}, false, false},
        {"OSXSAVE", {.leaf1_ecx = 1u << 27}, false, false},
        {"AVX", {.leaf1_ecx = 1u << 28}, false, false},
        {"F16C", {.leaf1_ecx = 1u << 29}, false, false},
        {"BMI1", {.leaf7_ebx = 1u << 3}, false, false},
        {"AVX2", {.leaf7_ebx = 1u << 5}, false, false},
        {"BMI2", {.leaf7_ebx = 1u << 8}, false, false},
        {"LZCNT", {.ext1_ecx = 1u << 5}, false, false},
        {"XMM state", {.xcr0 = 1u << 1}, false, false},
        {"YMM state", {.xcr0 = 1u << 2}, false, false},
        {"AVX512F", {.leaf7_ebx = 1u << 16}, true, false},
        {"AVX512DQ", {.leaf7_ebx = 1u << 17}, true, false},
        {"AVX512BW", {.leaf7_ebx = 1u << 30}, true, false},
        {"AVX512VL", {.leaf7_ebx = 1u << 31}, true, false},
        {"AVX512_VNNI", {.leaf7_ecx = 1u << 11}, true, false},
        {"opmask state", {.xcr0 = 1u << 5}, true, false},
        {"ZMM0-15 state", {.xcr0 = 1u << 6}, true, false},
        {"ZMM16-31 state", {.xcr0 = 1u << 7}, true, false},
        {"SHA, which no class needs", {.leaf7_ebx = 1u << 29}, true, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++) {
        const Lack *l = &lacks[i];
        CpuFacts have = {
            all.leaf1_ecx & ~l->without.leaf1_ecx, all.leaf7_ebx & ~l->without.leaf7_ebx,
            all.leaf7_ecx & ~l->without.leaf7_ecx, all.ext1_ecx & ~l->without.ext1_ecx,
            all.xcr0 & ~l->without.xcr0,
        };
        if (cpu_facts_can_run(&have, "avx2") != l->avx2 || cpu_facts_can_run(&have, "avx512") != l->avx512)
            fail_msg("without %s: avx2 %d, avx512 %d", l->feature, cpu_facts_can_run(&have, "avx2"),
                     cpu_facts_can_run(&have, "avx512"));
    }
}

/* The compiler's own CPUID reader as a second opinion on this machine. */
static void cpuid__agrees_with_the_compiler_on_this_cpu(void **state)
{
    (void)state;
#if defined(__x86_64__)
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
              __builtin_cpu_supports("bmi2");
    bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512vnni");
    assert_int_equal(gpu_cpu_can_run("avx2"), v3);
    assert_int_equal(gpu_cpu_can_run("avx512"), v3 && v4);
#else
    assert_false(gpu_cpu_can_run("avx2"));
    assert_false(gpu_cpu_can_run("avx512"));
#endif
}

static void cpuid__best_class_is_the_first_that_runs(void **state)
{
    static const char *const gpus[] = {"hopper", "b200", NULL};
    static const char *const mixed[] = {"hopper", "avx2", NULL};
    static const char *const both[] = {"avx512", "avx2", NULL};
    static const char *const nothing[] = {NULL};
    (void)state;
    assert_null(gpu_cpu_best_class(gpus));
    assert_null(gpu_cpu_best_class(nothing));
    assert_true(gpu_cpu_best_class(mixed) == (gpu_cpu_can_run("avx2") ? mixed[1] : NULL));
    const char *best = gpu_cpu_best_class(both);
    if (gpu_cpu_can_run("avx512"))
        assert_string_equal(best, "avx512");
    else if (gpu_cpu_can_run("avx2"))
        assert_string_equal(best, "avx2");
    else
        assert_null(best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpuid__nothing_runs_without_features),
        cmocka_unit_test(cpuid__gpu_class_is_no_cpu_class),
        cmocka_unit_test(cpuid__one_missing_feature_refuses_the_class),
        cmocka_unit_test(cpuid__agrees_with_the_compiler_on_this_cpu),
        cmocka_unit_test(cpuid__best_class_is_the_first_that_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
