/* select.h - the best few of many, by count or by probability mass, without sorting.
 * Owns: nothing.   Thread: any. */
#ifndef METRALE_SAMPLING_SELECT_H
#define METRALE_SAMPLING_SELECT_H
#include <math.h>
#include <stdint.h>

typedef struct Candidate {
    float logit; /* not NaN */
    int32_t token;
} Candidate;

/* exp((logit - max) / temperature): unnormalised, the best token weighs 1. */
typedef struct Tempered {
    float max, temperature; /* temperature > 0 */
} Tempered;
static inline float tempered_weight(const Tempered *t, float logit)
{
    /* A division: the reciprocal of a tiny temperature is infinite, and 0 * infinity is no number. */
    return expf((logit - t->max) / t->temperature);
}

/* Shrinks c[0..n) to its shortest best part that has max_count members or weighs max_mass, whichever comes first; best
 * is the greater logit, then the lower token. c is in ascending token order, before and after. max_count >= 1, max_mass
 * > 0 (INFINITY: by count alone, and t is not used). Returns the new n, at least 1 when n was. Adds to *visits, unless
 * NULL, the number of elements looked at: at most 7 * n. */
uint32_t select_best(Candidate *c, uint32_t n, uint32_t max_count, double max_mass, const Tempered *t,
                     uint64_t *visits);
#endif
