/* recurrent.cuh - what ops with a recurrent state share.
 *   positions [rows], seq_start [seqs + 1], state_slots [seqs]  i32
 * A state is f32, one for each slot. A sequence that begins in this step (its first row is at position 0) finds zeros, whatever the
 * slot holds. Rows are taken one after the other, so that a row's result depends on nothing but the rows of its sequence before it. */
#ifndef METRALE_RECURRENT_CUH
#define METRALE_RECURRENT_CUH
#include <cstddef>

struct SeqRows {
    int first, last; /* rows [first, last) of the step */
    size_t slot;
    bool begins;
};

__device__ __forceinline__ SeqRows seq_rows(const int *positions, const int *seq_start, const int *state_slots, int seq)
{
    const int first = seq_start[seq], last = seq_start[seq + 1];
    return {first, last, (size_t)state_slots[seq], first < last && positions[first] == 0};
}

/* ln(1 + e^x) */
__device__ __forceinline__ float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

/* -e^a, or a where the vector holds the rate itself */
__device__ __forceinline__ float decay_rate(float a, int value)
{
    return value ? a : -expf(a);
}
#endif
