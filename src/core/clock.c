/* clock.c - the operating system's clock and one that stands still until it is moved. */
#include "core/clock.h"
#include <time.h>

static uint64_t system_now_ns(Clock *c)
{
    struct timespec t;

    (void)c;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int64_t system_unix_s(Clock *c)
{
    (void)c;
    return (int64_t)time(NULL);
}

Clock *clock_system(void)
{
    static const Clock the_system = {.now_ns = system_now_ns, .unix_s = system_unix_s};

    /* The interface takes a Clock that may have state; this one has none and is never written. */
    return (Clock *)(uintptr_t)&the_system;
}

static uint64_t fake_now_ns(Clock *c)
{
    return ((ClockFake *)c)->ns;
}

static int64_t fake_unix_s(Clock *c)
{
    return ((ClockFake *)c)->s;
}

void clock_fake_init(ClockFake *c)
{
    *c = (ClockFake){.base = {.now_ns = fake_now_ns, .unix_s = fake_unix_s}};
}
