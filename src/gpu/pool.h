/* pool.h - a team of threads that shares out the indices [0, n) of one job at a time.
 *
 * Owns: its threads.   Does not own: the job's data.
 * Thread: pool_new, pool_run and pool_free are called by one thread at a time (it is member 0 of the team). */
#ifndef METRALE_GPU_POOL_H
#define METRALE_GPU_POOL_H
#include "core/status.h"
#include <stdint.h>

typedef struct Pool Pool;

enum { POOL_MAX_THREADS = 1024 };

/* Works on [first, end) as member `thread` < pool_threads. Members call it at the same time, with disjoint ranges. */
typedef void (*PoolFn)(void *arg, unsigned thread, uint64_t first, uint64_t end);

/* n_threads counts the caller; 0 means one for each CPU that the process may use. 1 starts no thread. The others are
 * pinned to a CPU each where there are enough; pinning that fails is no error. */
Status pool_new(Pool **out, unsigned n_threads, Err *err);
void pool_free(Pool *p); /* NULL is fine */
unsigned pool_threads(const Pool *p);

/* Calls fn until every index below n was handed out exactly once, and returns when all those calls have returned.
 * n <= 2^62. fn must not call back into the pool. */
void pool_run(Pool *p, PoolFn fn, void *arg, uint64_t n);

#endif
