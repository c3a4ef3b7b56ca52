/* host.h - this machine's memory: how much there is, and how device buffers of the cpu and mock backends are taken
 * from it.
 *
 * Owns: nothing.   Thread: any. */
#ifndef METRALE_GPU_HOST_H
#define METRALE_GPU_HOST_H
#include <stddef.h>
#include <stdint.h>

/* At least 256-byte aligned; 2 MiB aligned and in huge pages where the kernel grants them from HOST_HUGE bytes on.
 * Contents undefined. NULL when there is no memory. Given back with the same number of bytes. */
enum { HOST_HUGE = 8 << 20 };
void *host_alloc(size_t bytes);
void host_free(void *p, size_t bytes); /* NULL is fine */

/* Bytes of memory that the process may ever have, and may have now, without swapping: the machine's, or the tightest
 * cgroup limit (v1 or v2) above the process. UINT64_MAX when unknown. root goes in front of /proc and /sys: "" except
 * in tests. */
void host_memory(const char *root, uint64_t *total, uint64_t *available);

/* "AMD EPYC 9654 96-Core Processor"; "CPU" when unknown. */
void host_cpu_name(char *out, size_t cap);

#endif
