/* thread.h - mutex and condition with errors folded away: pthread calls that cannot fail on valid objects. */
#ifndef METRALE_CORE_THREAD_H
#define METRALE_CORE_THREAD_H
#include "core/status.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef pthread_mutex_t Mutex;
typedef pthread_cond_t Cond; /* on CLOCK_MONOTONIC */

void mutex_init(Mutex *m);
void mutex_release(Mutex *m);
void mutex_lock(Mutex *m);
void mutex_unlock(Mutex *m);
void cond_init(Cond *c);
void cond_release(Cond *c);
void cond_wait(Cond *c, Mutex *m);
bool cond_wait_ns(Cond *c, Mutex *m, uint64_t ns); /* false: time ran out */
void cond_signal(Cond *c);
void cond_broadcast(Cond *c);

typedef pthread_t Thread;
Status thread_start(Thread *t, const char *name, void *(*run)(void *), void *arg, Err *err);
void thread_join(Thread t);
unsigned cpu_count(void); /* CPUs this process may run on */
#endif
