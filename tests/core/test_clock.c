/* clock: the system's moves forward, the fake one only when told. */
#include "core/clock.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

static void clock_fake__stands_until_it_is_moved(void **state)
{
    ClockFake fake;
    (void)state;
    clock_fake_init(&fake);
    assert_true(clock_ns(&fake.base) == 0 && clock_unix_s(&fake.base) == 0);
    fake.ns = 1500;
    fake.s = -3;
    assert_true(clock_ns(&fake.base) == 1500 && clock_ns(&fake.base) == 1500);
    assert_true(clock_unix_s(&fake.base) == -3);
}

static void clock_fake__two_do_not_share_their_time(void **state)
{
    ClockFake a, b;
    (void)state;
    clock_fake_init(&a);
    clock_fake_init(&b);
    a.ns = 5;
    assert_true(clock_ns(&a.base) == 5 && clock_ns(&b.base) == 0);
}

static void clock_system__is_monotonic_and_in_nanoseconds(void **state)
{
    Clock *c = clock_system();
    struct timespec pause = {.tv_nsec = 20000000};
    (void)state;
    uint64_t before = clock_ns(c);
    assert_int_equal(nanosleep(&pause, NULL), 0);
    uint64_t after = clock_ns(c);
    assert_true(after - before >= 20000000);
    assert_true(after - before < UINT64_C(60000000000)); /* a busy machine, but the unit is right */
    for (int i = 0; i < 1000; i++) {
        uint64_t now = clock_ns(c);
        assert_true(now >= after);
        after = now;
    }
}

static void clock_system__tells_the_wall_time(void **state)
{
    int64_t before = (int64_t)time(NULL), now = clock_unix_s(clock_system());
    (void)state;
    assert_true(now >= before - 1 && now <= before + 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clock_fake__stands_until_it_is_moved),
        cmocka_unit_test(clock_fake__two_do_not_share_their_time),
        cmocka_unit_test(clock_system__is_monotonic_and_in_nanoseconds),
        cmocka_unit_test(clock_system__tells_the_wall_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
