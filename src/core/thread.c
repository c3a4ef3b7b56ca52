/* thread.c - pthread with its impossible errors asserted away.
 *
 * Locking, waiting and signalling fail only on an object that was never initialized or is misused, which is our bug
 * and no condition a caller could handle. Starting a thread can fail for lack of resources and says so. Conditions
 * wait on the monotonic clock, so that setting the wall clock neither wakes nor delays anybody. */
#include "core/thread.h"
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

static void must(int rc)
{
    assert(rc == 0);
    (void)rc;
}

void mutex_init(Mutex *m)
{
    must(pthread_mutex_init(m, NULL));
}
void mutex_release(Mutex *m)
{
    must(pthread_mutex_destroy(m));
}
void mutex_lock(Mutex *m)
{
    must(pthread_mutex_lock(m));
}
void mutex_unlock(Mutex *m)
{
    must(pthread_mutex_unlock(m));
}

void cond_init(Cond *c)
{
    pthread_condattr_t attr;

    must(pthread_condattr_init(&attr));
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    must(pthread_cond_init(c, &attr));
    must(pthread_condattr_destroy(&attr));
}

void cond_release(Cond *c)
{
    must(pthread_cond_destroy(c));
}
void cond_wait(Cond *c, Mutex *m)
{
    must(pthread_cond_wait(c, m));
}
void cond_signal(Cond *c)
{
    must(pthread_cond_signal(c));
}
void cond_broadcast(Cond *c)
{
    must(pthread_cond_broadcast(c));
}

bool cond_wait_ns(Cond *c, Mutex *m, uint64_t ns)
{
    struct timespec t;
    int rc;

    /* 2^64 ns are 584 years: the seconds cannot overflow a 64-bit time_t. */
    clock_gettime(CLOCK_MONOTONIC, &t);
    ns += (uint64_t)t.tv_nsec < UINT64_MAX - ns ? (uint64_t)t.tv_nsec : 0;
    t.tv_sec += (time_t)(ns / NS_PER_S);
    t.tv_nsec = (long)(ns % NS_PER_S);
    rc = pthread_cond_timedwait(c, m, &t);
    if (rc == ETIMEDOUT)
        return false;
    must(rc);
    return true;
}

Status thread_start(Thread *t, const char *name, void *(*run)(void *), void *arg, Err *err)
{
    char short_name[16]; /* the kernel's limit, with its NUL */
    int rc = pthread_create(t, NULL, run, arg);

    if (rc != 0)
        return err_set(err, rc == EAGAIN ? ST_BUSY : ST_INVALID, "cannot start the thread '%s': %s", name,
                       strerror(rc));
    snprintf(short_name, sizeof short_name, "%s", name);
    (void)pthread_setname_np(*t, short_name); /* the name is for debuggers only */
    return ST_OK;
}

void thread_join(Thread t)
{
    must(pthread_join(t, NULL));
}

unsigned cpu_count(void)
{
    cpu_set_t set;
    long online;

    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (unsigned)CPU_COUNT(&set);
    online = sysconf(_SC_NPROCESSORS_ONLN); /* more CPUs than a cpu_set_t holds */
    return online > 0 ? (unsigned)online : 1;
}
