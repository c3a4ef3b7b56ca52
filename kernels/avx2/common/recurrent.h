/* recurrent.h - the rows of one sequence in a step, for kernels that keep a state for each sequence.
 *   seq_start   [seqs + 1], state_slots [seqs], positions [rows] i32
 * A state is f32, one for each slot. A sequence that begins in this step (its first row is at position 0) finds zeros, whatever the slot
 * holds. Rows are taken one after the other, so that a row's result depends on nothing but the rows of its sequence before it. */
#ifndef METRALE_RECURRENT_H
#define METRALE_RECURRENT_H
#include "kernel_abi.h"
#include "simd.h"
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct SeqRows {
    int first, last; /* rows [first, last) of the step */
    size_t slot;
    bool begins;
} SeqRows;

static inline SeqRows seq_rows(const int32_t *positions, const int32_t *seq_start, const int32_t *state_slots,
                               uint32_t seq)
{
    return (SeqRows){seq_start[seq], seq_start[seq + 1], (size_t)state_slots[seq], positions[seq_start[seq]] == 0};
}

INLINE v16 lanes(const float *p, int n)
{
    return n == 16 ? v_load(p) : v_load_n(p, n);
}

INLINE void put_lanes(float *p, v16 v, int n)
{
    if (n == 16)
        v_store(p, v);
    else
        v_store_n(p, v, n);
}

/* ln(1 + e^x) */
static inline float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

/* -e^a, or a where the vector holds the rate itself */
static inline float decay_rate(float a, int value)
{
    return value ? a : -expf(a);
}
#endif
