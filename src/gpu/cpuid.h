/* cpuid.h - which hardware classes this CPU can run. Split into reading and judging, so that tests can judge CPUs
 * that they do not run on.
 *
 * Owns: nothing.   Thread: any. */
#ifndef METRALE_GPU_CPUID_H
#define METRALE_GPU_CPUID_H
#include <stdbool.h>
#include <stdint.h>

/* The words of CPUID and XCR0 that the classes ask about; all 0 on other machines than x86-64. */
typedef struct CpuFacts {
    uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, ext1_ecx;
    uint64_t xcr0; /* register state that the operating system saves */
} CpuFacts;

void cpu_facts_read(CpuFacts *out);
/* False for a class_name that is no CPU class. */
bool cpu_facts_can_run(const CpuFacts *facts, const char *class_name);

#endif
