/* test_pool.c - the pool hands out every index once, keeps its threads apart, and is quiet when idle. */
#include "core/clock.h"
#include "core/thread.h"
#include "gpu/pool.h"
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
/* cmocka wants the headers above */
#include <cmocka.h>

enum { MAX_N = 5000 };

static Pool *make(unsigned n_threads)
{
    Pool *p = NULL;
    Err err;
    if (pool_new(&p, n_threads, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return p;
}

static uint64_t now_ns(void)
{
    return clock_ns(clock_system());
}

static void sleep_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* User and system time of all threads, in milliseconds. */
static double cpu_ms(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return 1e3 * (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-3 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

typedef struct Counts {
    _Atomic uint32_t seen[MAX_N];
    _Atomic bool bad_thread, bad_range;
    unsigned n_threads;
    uint64_t n;
} Counts;

static void count(void *arg, unsigned thread, uint64_t first, uint64_t end)
{
    Counts *c = arg;
    if (thread >= c->n_threads)
        atomic_store(&c->bad_thread, true);
    if (first >= end || end > c->n) {
        atomic_store(&c->bad_range, true);
        return;
    }
    for (uint64_t i = first; i < end; i++)
        atomic_fetch_add(&c->seen[i], 1);
}

static void pool__hands_out_every_index_once(void **state)
{
    static const uint64_t sizes[] = {0,  1,  2,  3,  4,   5,   7,   8,    9,    15,   16,
                                     17, 31, 63, 64, 100, 255, 256, 1000, 4999, MAX_N};
    static Counts c;
    (void)state;

    for (unsigned threads = 1; threads <= 4; threads++) {
        Pool *p = make(threads);
        assert_int_equal(pool_threads(p), threads);
        for (int round = 0; round < 20; round++) {
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                memset(&c, 0, sizeof c);
                c.n_threads = threads;
                c.n = sizes[s];
                pool_run(p, count, &c, c.n);
                assert_false(c.bad_thread);
                assert_false(c.bad_range);
                for (uint64_t i = 0; i < MAX_N; i++)
                    assert_int_equal(c.seen[i], i < c.n);
            }
        }
        pool_free(p);
    }
}

typedef struct Busy {
    _Atomic int in[4];
    _Atomic bool overlap;
    _Atomic uint64_t calls;
} Busy;

static void enter(void *arg, unsigned thread, uint64_t first, uint64_t end)
{
    Busy *b = arg;
    (void)first, (void)end;
    if (atomic_fetch_add(&b->in[thread], 1) != 0)
        atomic_store(&b->overlap, true);
    for (volatile int i = 0; i < 50; i++)
        ;
    atomic_fetch_sub(&b->in[thread], 1);
    atomic_fetch_add(&b->calls, 1);
}

static void pool__never_uses_a_thread_number_twice_at_a_time(void **state)
{
    static Busy b;
    (void)state;
    Pool *p = make(4);
    for (int i = 0; i < 2000; i++)
        pool_run(p, enter, &b, 64);
    pool_free(p);
    assert_false(b.overlap);
    assert_true(b.calls >= 2000 * 8); /* chunks: the work is not handed out in one piece */
}

/* Plain memory on purpose: under the thread sanitizer this proves the order of jobs. */
typedef struct Chain {
    uint64_t v[64];
} Chain;

static void add_neighbour(void *arg, unsigned thread, uint64_t first, uint64_t end)
{
    Chain *c = arg;
    (void)thread;
    for (uint64_t i = first; i < end; i++)
        c[1].v[i] = c[0].v[(i + 1) % 64] + 1;
}

static void pool__job_sees_all_writes_of_the_one_before(void **state)
{
    enum { STEPS = 10000 };
    (void)state;
    for (unsigned threads = 2; threads <= 4; threads++) {
        Pool *p = make(threads);
        Chain *c = calloc(STEPS + 1, sizeof *c);
        assert_non_null(c);
        for (int i = 0; i < STEPS; i++)
            pool_run(p, add_neighbour, &c[i], 64);
        for (int i = 0; i < 64; i++)
            assert_int_equal(c[STEPS].v[i], STEPS);
        free(c);
        pool_free(p);
    }
}

typedef struct Meeting {
    _Atomic unsigned arrived;
    unsigned wanted;
    int n_cpus[4]; /* in the affinity mask of thread i */
    int cpu[4];
} Meeting;

/* Each index waits for the others, so that all threads must take part. */
static void meet(void *arg, unsigned thread, uint64_t first, uint64_t end)
{
    Meeting *m = arg;
    cpu_set_t set;
    (void)first, (void)end;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        m->n_cpus[thread] = CPU_COUNT(&set);
    m->cpu[thread] = sched_getcpu();
    atomic_fetch_add(&m->arrived, 1);
    for (uint64_t start = now_ns(); atomic_load(&m->arrived) < m->wanted && now_ns() - start < 10000000000u;)
        sched_yield();
}

static void pool__threads_work_at_the_same_time_after_sleeping(void **state)
{
    (void)state;
    Pool *p = make(4);
    for (int i = 0; i < 3; i++) {
        Meeting m = {.wanted = 4};
        sleep_ms(5); /* far beyond the spin: the workers sleep */
        pool_run(p, meet, &m, 4);
        assert_int_equal(m.arrived, 4);
    }
    pool_free(p);
}

static void pool__pins_workers_and_leaves_the_caller_alone(void **state)
{
    cpu_set_t before, after;
    (void)state;
    if (cpu_count() < 2) {
        print_message("skipped: one CPU, so there is nothing to pin apart\n");
        skip();
    }
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    Pool *p = make(2);
    Meeting m = {.wanted = 2};
    pool_run(p, meet, &m, 2);
    assert_int_equal(m.arrived, 2);
    assert_int_equal(m.n_cpus[1], 1);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    pool_free(p);
}

static void pool__idle_workers_use_no_cpu(void **state)
{
    static Counts c;
    (void)state;
    Pool *p = make(4);
    c.n_threads = 4;
    c.n = 64;
    pool_run(p, count, &c, c.n);
    sleep_ms(20);
    double start = cpu_ms();
    sleep_ms(300);
    /* Spinning threads would take 300 ms or more. */
    assert_true(cpu_ms() - start < 10);
    pool_run(p, count, &c, c.n); /* and they wake up again */
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(c.seen[i], 2);
    pool_free(p);
}

static void pool__default_is_a_thread_for_each_cpu(void **state)
{
    (void)state;
    Pool *p = make(0);
    unsigned n = cpu_count();
    assert_int_equal(pool_threads(p), n < POOL_MAX_THREADS ? n : POOL_MAX_THREADS);
    pool_free(p);
}

static void pool__refuses_too_many_threads(void **state)
{
    Pool *p = NULL;
    Err err;
    (void)state;
    assert_int_equal(pool_new(&p, POOL_MAX_THREADS + 1, &err), ST_INVALID);
    assert_null(p);
    assert_non_null(strstr(err.msg, "1025"));
    assert_non_null(strstr(err.msg, "at most 1024"));
}

static void pool__comes_and_goes_at_any_moment(void **state)
{
    static Counts c;
    (void)state;
    for (int i = 0; i < 100; i++) {
        Pool *p = make(1 + (unsigned)i % 4);
        if (i % 3) {
            memset(&c, 0, sizeof c);
            c.n_threads = 4;
            c.n = 10;
            pool_run(p, count, &c, c.n);
        }
        pool_free(p);
    }
    pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool__hands_out_every_index_once),
        cmocka_unit_test(pool__never_uses_a_thread_number_twice_at_a_time),
        cmocka_unit_test(pool__job_sees_all_writes_of_the_one_before),
        cmocka_unit_test(pool__threads_work_at_the_same_time_after_sleeping),
        cmocka_unit_test(pool__pins_workers_and_leaves_the_caller_alone),
        cmocka_unit_test(pool__idle_workers_use_no_cpu),
        cmocka_unit_test(pool__default_is_a_thread_for_each_cpu),
        cmocka_unit_test(pool__refuses_too_many_threads),
        cmocka_unit_test(pool__comes_and_goes_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
