/* process.h - child processes with their output captured, some at a time.
 *
 * Owns: nothing beyond a call; each Process belongs to the caller.   Thread: any; waits only for its own children. */
#ifndef METRALE_COMPUTE_PROCESS_H
#define METRALE_COMPUTE_PROCESS_H
#include "core/status.h"
#include "core/str.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct Process {
    const char *const *argv; /* NULL-terminated; argv[0] is looked up on PATH when it has no slash */
    Str output;              /* what it wrote to stdout and stderr, in the order it came; release it */
    bool ran;                /* false: not started, because one before it failed */
    int code;                /* exit status; 127: could not be started; 128 + n: ended by signal n */
} Process;

/* Runs p[0..n), at most `jobs` (>= 1) at a time. After the first that does not exit with 0 no further one is started, and
 * the running ones are waited for. Fails only when the system refuses pipes or memory. */
Status process_run(Process *p, size_t n, unsigned jobs, Err *err);
#endif
