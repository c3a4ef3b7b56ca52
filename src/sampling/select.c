/* select.c - radix selection on the bits of a float.
 *
 * The idea: a float's bits, suitably flipped, order like the float. A histogram over the top 11 bits, with the count and
 * the weight of each bin, shows in which bin the boundary lies; all above is kept, all below is dropped, and the bin
 * itself is split by its next 11, then its last 10 bits. What is left at the boundary are equal logits, taken by token.
 *
 * So the cost is linear for any input, the result is exact and does not depend on the order of work, and the array
 * never leaves its token order. */
#include "sampling/select.h"
#include <stdbool.h>
#include <string.h>

enum { MAX_BINS = 2048 };

typedef struct Bin {
    double mass;
    uint32_t count;
} Bin;

/* Unsigned order of keys = order of floats: negative ones have all bits flipped, others the sign. */
static uint32_t order_key(float logit)
{
    uint32_t u;

    logit += 0.0f; /* -0 becomes +0: they are equal, so their keys must be */
    memcpy(&u, &logit, sizeof u);
    return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}

uint32_t select_best(Candidate *c, uint32_t n, uint32_t max_count, double max_mass, const Tempered *t, uint64_t *visits)
{
    static const struct {
        uint32_t shift, bits;
    } levels[] = {{21, 11}, {10, 11}, {0, 10}};
    const bool by_mass = max_mass < (double)INFINITY;
    Bin bins[MAX_BINS];
    uint32_t prefix = 0, count = 0, kept = 0; /* prefix: leading bits of the boundary; count, mass: surely above it */
    double mass = 0;
    uint64_t unasked = 0;

    visits = visits ? visits : &unasked;
    for (uint32_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        const uint32_t shift = levels[l].shift, bits = levels[l].bits, n_bins = 1u << bits;

        memset(bins, 0, n_bins * sizeof *bins);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t key = order_key(c[i].logit) >> shift;
            if (l > 0 && key >> bits != prefix)
                continue; /* above, and counted at an earlier level */
            Bin *b = &bins[key & (n_bins - 1)];
            b->count++;
            if (by_mass)
                b->mass += (double)tempered_weight(t, c[i].logit);
        }
        uint32_t b = n_bins - 1;
        for (; b > 0 && count + bins[b].count < max_count && mass + bins[b].mass < max_mass; b--) {
            count += bins[b].count;
            mass += bins[b].mass;
        }
        prefix = prefix << bits | b;

        kept = 0;
        for (uint32_t i = 0; i < n; i++)
            if (order_key(c[i].logit) >> shift >= prefix)
                c[kept++] = c[i];
        *visits += 2 * (uint64_t)n;
        n = kept;
        if (bins[b].count <= 1)
            return n; /* no tie to break: the one at the boundary is what reaches the goal */
    }
    *visits += n;
    kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (order_key(c[i].logit) == prefix) { /* equal at the boundary: by token, as long as the goal is not reached */
            if (count >= max_count || mass >= max_mass)
                continue;
            count++;
            mass += by_mass ? (double)tempered_weight(t, c[i].logit) : 0;
        }
        c[kept++] = c[i];
    }
    return kept;
}
