/* host.c - see host.h. */
#include "cli/host.h"
#include "gpu/host.h"
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

const char *host_commit(void)
{
    return METRALE_COMMIT;
}

/* proc(5): field 22 of stat is the start in clock ticks since boot. Field 2 is a name in brackets that may hold anything. */
double host_process_age_s(void)
{
    enum { FIELDS_BEHIND_NAME = 20 };
    char line[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    const size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    const double tick = (double)sysconf(_SC_CLK_TCK);
    struct timespec now;
    uint64_t start = 0;
    double age;

    if (f)
        fclose(f);
    line[n] = '\0';
    const char *p = strrchr(line, ')');
    for (int i = 0; p && i < FIELDS_BEHIND_NAME; i++)
        p = strchr(p + 1, ' ');
    if (p == NULL || sscanf(p, " %" SCNu64, &start) != 1 || clock_gettime(CLOCK_BOOTTIME, &now) != 0)
        return 0;
    age = (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - (double)start / tick;
    return age > 0 ? age : 0;
}

void host_describe(char *out, size_t size)
{
    char cpu[128];
    struct utsname u;
    cpu_set_t set;
    int n = 0;

    host_cpu_name(cpu, sizeof cpu);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    snprintf(out, size, "%s, %d CPUs, %s %s", cpu, n, uname(&u) == 0 ? u.sysname : "", u.release);
}
