/* app.c - ids without a random source: a counter, mixed. */
#include "server/app.h"

/* The output function of SplitMix64 (Steele, Lea, Flood 2014) on seed + k * golden ratio. */
uint64_t app_next(App *app)
{
    uint64_t z = app->seed + (atomic_fetch_add(&app->n_ids, 1) + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
