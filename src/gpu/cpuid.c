/* cpuid.c - CPU classes and the features that they stand for.
 *
 * A class is a row: the CPUID bits that its code may use and the register state that the operating system must save.
 * Bits are those of the Intel SDM, volume 2A, CPUID, and volume 1, 13.2 (XCR0); x86-64-v3 is the level of the x86-64
 * psABI. Kernels of a class are compiled for exactly these features, so one missing bit refuses the class. */
#include "gpu/cpuid.h"
#include "gpu/gpu.h"
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define BIT(n) (1u << (n))

/* CPUID.1:ECX: SSE3, SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C */
#define V3_LEAF1_ECX                                                                                                   \
    (BIT(0) | BIT(9) | BIT(12) | BIT(13) | BIT(19) | BIT(20) | BIT(22) | BIT(23) | BIT(27) | BIT(28) | BIT(29))
/* CPUID.7.0:EBX: BMI1, AVX2, BMI2 */
#define V3_LEAF7_EBX (BIT(3) | BIT(5) | BIT(8))
/* CPUID.80000001H:ECX: LAHF/SAHF, LZCNT */
#define V3_EXT1_ECX (BIT(0) | BIT(5))
/* XCR0: SSE, AVX */
#define V3_XCR0 (BIT(1) | BIT(2))
/* CPUID.7.0:EBX: AVX512F, AVX512DQ, AVX512BW, AVX512VL */
#define AVX512_LEAF7_EBX (BIT(16) | BIT(17) | BIT(30) | BIT(31))
/* CPUID.7.0:ECX: AVX512_VNNI */
#define AVX512_LEAF7_ECX BIT(11)
/* XCR0: opmask, upper halves of ZMM0-15, ZMM16-31 */
#define AVX512_XCR0 (BIT(5) | BIT(6) | BIT(7))

static const struct {
    const char *name;
    CpuFacts needs;
} classes[] = {
    {"avx2", {V3_LEAF1_ECX, V3_LEAF7_EBX, 0, V3_EXT1_ECX, V3_XCR0}},
    {"avx512", {V3_LEAF1_ECX, V3_LEAF7_EBX | AVX512_LEAF7_EBX, AVX512_LEAF7_ECX, V3_EXT1_ECX, V3_XCR0 | AVX512_XCR0}},
};

void cpu_facts_read(CpuFacts *out)
{
    *out = (CpuFacts){0};
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d))
        out->leaf1_ecx = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        out->leaf7_ebx = b;
        out->leaf7_ecx = c;
    }
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d))
        out->ext1_ecx = c;
    if (out->leaf1_ecx & BIT(27)) { /* OSXSAVE: without it xgetbv is an illegal instruction */
        uint32_t lo, hi;
        __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
        out->xcr0 = (uint64_t)hi << 32 | lo;
    }
#endif
}

bool cpu_facts_can_run(const CpuFacts *have, const char *class_name)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const CpuFacts *need = &classes[i].needs;
        if (strcmp(classes[i].name, class_name) == 0)
            return !(need->leaf1_ecx & ~have->leaf1_ecx) && !(need->leaf7_ebx & ~have->leaf7_ebx) &&
                   !(need->leaf7_ecx & ~have->leaf7_ecx) && !(need->ext1_ecx & ~have->ext1_ecx) &&
                   !(need->xcr0 & ~have->xcr0);
    }
    return false;
}

bool gpu_cpu_can_run(const char *class_name)
{
    CpuFacts facts;
    cpu_facts_read(&facts);
    return cpu_facts_can_run(&facts, class_name);
}

const char *gpu_cpu_best_class(const char *const *names)
{
    for (; *names; names++)
        if (gpu_cpu_can_run(*names))
            return *names;
    return NULL;
}
