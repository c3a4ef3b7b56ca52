/* pool.c - the worker pool of the cpu backend.
 *
 * Handing out. A job's range is cut into one contiguous share for each thread, so that a thread meets the same rows
 * of a weight in every step. A share is a counter on a cache line of its own, from which its thread takes chunks;
 * a thread whose share is used up takes chunks from the others', so that a core that the host took away delays
 * a job by one chunk and not by a share. Against one counter for all with the same chunks (Zen 4, 2 cores, sums
 * over a buffer in 288 blocks): 512 KiB that live in L2 140 to 120 GB/s, 2 MiB 152 to 146, beyond L2 the same.
 *
 * Joining. Nobody waits for a thread that has not turned up: the job is open while `gate` has its OPEN bit, a worker
 * joins by adding one to `gate` while it is open, and the caller closes it when all indices are claimed, then waits
 * only for those that joined. A worker that wakes late finds the gate closed and has touched nothing. So a
 * descheduled worker costs its share of the speed, never a stall.
 *
 * gate:   | epoch (18 bits) | STOP | OPEN | joined (12 bits) |
 * The epoch tells a worker whether it has looked at this job already. It may wrap: a worker that mistakes a new job
 * for an old one just stays away, and one that joins always reads the job that is open now.
 *
 * Invariant: share[], fn and arg change only while the gate is closed and joined is 0. A worker leaves with a
 * release and the caller reads the last leave with an acquire: what the workers wrote is seen when pool_run returns.
 *
 * Waiting. Between jobs a worker spins for SPIN_NS and then sleeps in a futex on `gate`; a job that finds sleepers
 * pays one system call. `sleepers` and `gate` are sequentially consistent: either the caller sees the sleeper, or the
 * sleeper sees the new gate.
 *
 * The caller's thread is never pinned: it belongs to somebody else. Workers take the CPUs of the process in order and
 * leave the first one to it. */
#include "gpu/pool.h"
#include "core/clock.h"
#include "core/thread.h"
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GATE_JOINED 0x00000fffu
#define GATE_OPEN   0x00001000u
#define GATE_STOP   0x00002000u
#define GATE_EPOCH  0xffffc000u
#define GATE_STEP   0x00004000u

_Static_assert(POOL_MAX_THREADS <= GATE_JOINED, "every thread must fit into the joined count");

enum {
    CACHE_LINE = 128, /* two lines of 64: some CPUs fetch them in pairs */
    /* Longer than the gaps between the launches of a step, far shorter than anything a person would call load. */
    SPIN_NS = 50 * 1000,
    SPIN_LOOKS = 32,    /* looks at the gate between two looks at the clock */
    FINISH_LOOKS = 256, /* looks at a straggler before the caller offers its CPU: the straggler may need it */
    CHUNKS = 8,         /* chunks in a share */
};

typedef struct Share {
    _Alignas(CACHE_LINE) _Atomic uint64_t next; /* may run past end */
    uint64_t end;
} Share;

typedef struct Worker {
    Pool *pool;
    unsigned index; /* 1 .. n_threads - 1 */
    int cpu;        /* -1: not pinned */
    Thread thread;
} Worker;

struct Pool {
    _Alignas(CACHE_LINE) _Atomic uint32_t gate;
    _Atomic uint32_t sleepers;
    _Atomic uint32_t max_join; /* more helpers than this have nothing to do; a hint */

    /* The job; see the invariant above. */
    _Alignas(CACHE_LINE) PoolFn fn;
    void *arg;
    uint64_t chunk;
    unsigned n_shares;

    unsigned n_threads, n_started;
    Share *shares;   /* [n_threads] */
    Worker *workers; /* [n_threads], [0] unused */
};

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns at once when *word is not `seen`; may return early for no reason. */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, uint32_t n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Is there something to do for a worker that has looked at the job of epoch `seen`? */
static bool gate_calls(uint32_t gate, uint32_t seen)
{
    return (gate & GATE_STOP) || ((gate & GATE_OPEN) && (gate & GATE_EPOCH) != seen);
}

static void pool_work(Pool *p, unsigned thread)
{
    for (unsigned i = 0; i < p->n_shares; i++) {
        Share *s = &p->shares[(thread + i) % p->n_shares];
        for (;;) {
            /* A look before the addition: the lines of used-up shares stay shared among the threads. */
            if (atomic_load_explicit(&s->next, memory_order_relaxed) >= s->end)
                break;
            uint64_t first = atomic_fetch_add_explicit(&s->next, p->chunk, memory_order_relaxed);
            if (first >= s->end)
                break;
            uint64_t left = s->end - first;
            p->fn(p->arg, thread, first, first + (left < p->chunk ? left : p->chunk));
        }
    }
}

/* Takes part in the job of epoch `epoch` unless it is over or has help enough. */
static void pool_join(Pool *p, unsigned thread, uint32_t epoch)
{
    uint32_t max_join = atomic_load_explicit(&p->max_join, memory_order_relaxed);
    uint32_t gate = atomic_load_explicit(&p->gate, memory_order_relaxed);

    do {
        if ((gate & (GATE_EPOCH | GATE_OPEN)) != (epoch | GATE_OPEN) || (gate & GATE_JOINED) >= max_join)
            return;
    } while (
        !atomic_compare_exchange_weak_explicit(&p->gate, &gate, gate + 1, memory_order_acquire, memory_order_relaxed));
    pool_work(p, thread);
    atomic_fetch_sub_explicit(&p->gate, 1, memory_order_release);
}

/* Waits for a gate that calls; the last state of the gate otherwise after SPIN_NS without a new job. */
static uint32_t pool_spin(Pool *p, uint32_t seen)
{
    Clock *clock = clock_system();
    uint64_t start = clock_ns(clock);
    uint32_t epoch = seen;

    for (;;) {
        uint32_t gate = 0;
        for (unsigned i = 0; i < SPIN_LOOKS; i++) {
            gate = atomic_load_explicit(&p->gate, memory_order_acquire);
            if (gate_calls(gate, seen))
                return gate;
            cpu_relax();
        }
        uint64_t now = clock_ns(clock);
        if ((gate & GATE_EPOCH) != epoch) { /* a job came and went: there is traffic, stay awake */
            epoch = gate & GATE_EPOCH;
            start = now;
        } else if (now - start >= SPIN_NS) {
            return gate;
        }
    }
}

static void *worker_main(void *arg)
{
    Worker *self = arg;
    Pool *p = self->pool;
    uint32_t seen = 0;

    if (self->cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(self->cpu, &set);
        (void)sched_setaffinity(0, sizeof set, &set); /* unpinned is slower, not wrong */
    }
    for (;;) {
        uint32_t gate = pool_spin(p, seen);
        if (gate & GATE_STOP)
            return NULL;
        if (gate_calls(gate, seen)) {
            seen = gate & GATE_EPOCH;
            pool_join(p, self->index, seen);
            continue;
        }
        /* One sleep, then spin again even when the job that woke us is over: the next one is likely near. */
        atomic_fetch_add(&p->sleepers, 1);
        gate = atomic_load(&p->gate);
        if (!gate_calls(gate, seen))
            futex_wait(&p->gate, gate);
        atomic_fetch_sub(&p->sleepers, 1);
    }
}

void pool_run(Pool *p, PoolFn fn, void *arg, uint64_t n)
{
    if (n <= 1 || p->n_started == 0) {
        if (n)
            fn(arg, 0, 0, n);
        return;
    }

    unsigned n_shares = n < p->n_threads ? (unsigned)n : p->n_threads;
    uint64_t each = n / n_shares, more = n % n_shares, at = 0;
    for (unsigned i = 0; i < n_shares; i++) {
        atomic_store_explicit(&p->shares[i].next, at, memory_order_relaxed);
        at += each + (i < more);
        p->shares[i].end = at;
    }
    p->fn = fn;
    p->arg = arg;
    p->n_shares = n_shares;
    p->chunk = each / CHUNKS ? each / CHUNKS : 1;
    atomic_store_explicit(&p->max_join, n_shares - 1, memory_order_relaxed);

    uint32_t epoch = (atomic_load_explicit(&p->gate, memory_order_relaxed) & GATE_EPOCH) + GATE_STEP;
    atomic_store(&p->gate, epoch | GATE_OPEN);
    uint32_t sleepers = atomic_load(&p->sleepers);
    if (sleepers)
        futex_wake(&p->gate, sleepers < n_shares - 1 ? sleepers : n_shares - 1);

    pool_work(p, 0);

    uint32_t gate = atomic_fetch_and_explicit(&p->gate, ~GATE_OPEN, memory_order_acquire);
    for (unsigned looks = 0; gate & GATE_JOINED; looks++) {
        if (looks < FINISH_LOOKS)
            cpu_relax();
        else
            sched_yield();
        gate = atomic_load_explicit(&p->gate, memory_order_acquire);
    }
}

/* Gives each worker a CPU of the process's mask, the first being the caller's; none when there are too few. */
static void pool_place(Pool *p)
{
    for (unsigned i = 0; i < p->n_threads; i++)
        p->workers[i].cpu = -1;
    cpu_set_t allowed; /* on machines beyond CPU_SETSIZE the call fails and nobody is pinned */
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || (unsigned)CPU_COUNT(&allowed) < p->n_threads)
        return;
    unsigned i = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && i < p->n_threads; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            p->workers[i++].cpu = cpu;
}

Status pool_new(Pool **out, unsigned n_threads, Err *err)
{
    Status st = ST_OK;
    Pool *p = NULL;

    if (n_threads == 0) {
        n_threads = cpu_count();
        n_threads = n_threads == 0 ? 1 : n_threads > POOL_MAX_THREADS ? POOL_MAX_THREADS : n_threads;
    }
    if (n_threads > POOL_MAX_THREADS)
        return err_set(err, ST_INVALID, "%u worker threads are too many: ask for at most %d, or 0 for one a CPU.",
                       n_threads, POOL_MAX_THREADS);

    p = aligned_alloc(CACHE_LINE, sizeof *p);
    if (!p)
        return err_set(err, ST_NOMEM, "Out of host memory for a worker pool of %u threads.", n_threads);
    *p = (Pool){.n_threads = n_threads};
    p->shares = aligned_alloc(CACHE_LINE, n_threads * sizeof *p->shares);
    p->workers = calloc(n_threads, sizeof *p->workers);
    if (!p->shares || !p->workers)
        TRY(err_set(err, ST_NOMEM, "Out of host memory for a worker pool of %u threads.", n_threads));
    for (unsigned i = 0; i < n_threads; i++)
        p->shares[i] = (Share){0};
    pool_place(p);

    for (unsigned i = 1; i < n_threads; i++) {
        char name[24];
        snprintf(name, sizeof name, "gpu-cpu-%u", i);
        p->workers[i].pool = p;
        p->workers[i].index = i;
        TRY(thread_start(&p->workers[i].thread, name, worker_main, &p->workers[i], err));
        p->n_started++;
    }
    *out = p;
    p = NULL;
done:
    pool_free(p);
    return st;
}

void pool_free(Pool *p)
{
    if (!p)
        return;
    atomic_fetch_or(&p->gate, GATE_STOP);
    futex_wake(&p->gate, POOL_MAX_THREADS);
    for (unsigned i = 1; i <= p->n_started; i++)
        thread_join(p->workers[i].thread);
    free(p->workers);
    free(p->shares);
    free(p);
}

unsigned pool_threads(const Pool *p)
{
    return p->n_threads;
}
