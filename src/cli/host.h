/* host.h - what the operating system says of this machine and this process, and the build of itself: facts of a record.
 * Owns: nothing.   Thread: any. */
#ifndef METRALE_CLI_HOST_H
#define METRALE_CLI_HOST_H
#include <stddef.h>

const char *host_commit(void); /* that was checked out when this binary was built; "unknown" without git */
/* Seconds since the process began, to 1/100; 0 when the system does not say. */
double host_process_age_s(void);
/* "AMD EPYC 9654 96-Core Processor, 16 CPUs, Linux 6.1.0" */
void host_describe(char *out, size_t size);
#endif
