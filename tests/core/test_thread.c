/* thread: starting, joining, handing values over, waiting with a limit. */
#include "core/thread.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

typedef struct Box {
    Mutex lock;
    Cond changed;
    int value, taken;
    bool go;
} Box;

static void box_init(Box *b)
{
    memset(b, 0, sizeof *b);
    mutex_init(&b->lock);
    cond_init(&b->changed);
}

static void box_release(Box *b)
{
    cond_release(&b->changed);
    mutex_release(&b->lock);
}

static void *add_many(void *arg)
{
    Box *b = arg;
    for (int i = 0; i < 10000; i++) {
        mutex_lock(&b->lock);
        b->value++;
        mutex_unlock(&b->lock);
    }
    return NULL;
}

static void mutex__keeps_increments_apart(void **state)
{
    Thread t[4];
    Box b;
    Err err;
    (void)state;
    box_init(&b);
    for (int i = 0; i < 4; i++)
        assert_int_equal(thread_start(&t[i], "a name longer than fifteen bytes", add_many, &b, &err), ST_OK);
    for (int i = 0; i < 4; i++)
        thread_join(t[i]);
    assert_int_equal(b.value, 40000);
    box_release(&b);
}

static void *wait_and_take(void *arg)
{
    Box *b = arg;
    mutex_lock(&b->lock);
    while (!b->go)
        cond_wait(&b->changed, &b->lock);
    b->taken++;
    cond_signal(&b->changed);
    mutex_unlock(&b->lock);
    return NULL;
}

static void cond__broadcast_wakes_all(void **state)
{
    Thread t[3];
    Box b;
    Err err;
    (void)state;
    box_init(&b);
    for (int i = 0; i < 3; i++)
        assert_int_equal(thread_start(&t[i], "wait", wait_and_take, &b, &err), ST_OK);
    mutex_lock(&b.lock);
    b.go = true;
    cond_broadcast(&b.changed);
    mutex_unlock(&b.lock);
    for (int i = 0; i < 3; i++)
        thread_join(t[i]);
    assert_int_equal(b.taken, 3);
    box_release(&b);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void cond_wait_ns__returns_false_when_time_ran_out(void **state)
{
    Box b;
    (void)state;
    box_init(&b);
    mutex_lock(&b.lock);
    uint64_t start = now_ns();
    while (cond_wait_ns(&b.changed, &b.lock, 30000000)) /* true would be a spurious wake-up */
        start = now_ns();
    assert_true(now_ns() - start >= 30000000);
    assert_false(cond_wait_ns(&b.changed, &b.lock, 0));
    mutex_unlock(&b.lock);
    box_release(&b);
}

static void cond_wait_ns__returns_true_when_signalled(void **state)
{
    Thread t;
    Box b;
    Err err;
    (void)state;
    box_init(&b);
    mutex_lock(&b.lock);
    b.go = true;
    assert_int_equal(thread_start(&t, "signal", wait_and_take, &b, &err), ST_OK);
    while (b.taken == 0) /* the longest wait there is: its deadline must not wrap into the past */
        assert_true(cond_wait_ns(&b.changed, &b.lock, UINT64_MAX));
    mutex_unlock(&b.lock);
    thread_join(t);
    assert_int_equal(b.taken, 1);
    box_release(&b);
}

static void cpu_count__is_at_least_one(void **state)
{
    (void)state;
    assert_true(cpu_count() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutex__keeps_increments_apart),
        cmocka_unit_test(cond__broadcast_wakes_all),
        cmocka_unit_test(cond_wait_ns__returns_false_when_time_ran_out),
        cmocka_unit_test(cond_wait_ns__returns_true_when_signalled),
        cmocka_unit_test(cpu_count__is_at_least_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
