/* clock.h - time as an interface, so that code above can run on a scripted clock. */
#ifndef METRALE_CORE_CLOCK_H
#define METRALE_CORE_CLOCK_H
#include <stdint.h>

typedef struct Clock Clock;
struct Clock {
    uint64_t (*now_ns)(Clock *c); /* monotonic */
    int64_t (*unix_s)(Clock *c);  /* wall time, seconds */
};
static inline uint64_t clock_ns(Clock *c)
{
    return c->now_ns(c);
}
static inline int64_t clock_unix_s(Clock *c)
{
    return c->unix_s(c);
}

Clock *clock_system(void); /* the operating system's; never freed */

typedef struct ClockFake {
    Clock base;
    uint64_t ns;
    int64_t s;
} ClockFake;
void clock_fake_init(ClockFake *c); /* stands at 0 until its fields are moved */
#endif
