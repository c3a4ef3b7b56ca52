/* conv1d_update: y[r][c] = silu(bias[c] + sum over j of w[c][j] * x[r - taps + 1 + j][c]) over the rows of the row's sequence, those of
 * earlier steps from the state.
 *   y, x    [rows][width]  bf16 row-major
 *   w       [width][taps] f32, bias [width] f32 or NULL
 *   state   [slot][taps - 1][width] f32: the last rows, oldest first (recurrent.cuh)
 *   grid    (seqs, ceil(width, 128), ceil(rows, ROWS))  block (128): a thread a channel of ROWS rows of a sequence; the block of its
 *           first rows, the only one that reads the state, also leaves the new one
 *   bytes   rows*width*4, seqs*width*taps*8; rows are read `taps` times, from L1 but for the first
 * Order: bias, then one fma for each tap from the oldest row on. */
#include "load.cuh"
#include "overlap.cuh"
#include "recurrent.cuh"

enum { CHANNELS = 128 };

/* Channel c of row r, which may lie before the step. */
__device__ __forceinline__ float past(const bf16 *x, const float *state, const SeqRows &s, int r, int taps, int width)
{
    if (r >= s.first)
        return __bfloat162float(x[(size_t)r * (size_t)width]);
    return s.begins ? 0.0f : state[(size_t)(r - s.first + taps - 1) * (size_t)width];
}

extern "C" __global__ void __launch_bounds__(CHANNELS)
    conv1d_update(bf16 *y, const bf16 *x, const float *__restrict__ w, const float *__restrict__ bias, float *state,
                  const int *__restrict__ positions, const int *__restrict__ seq_start,
                  const int *__restrict__ state_slots, int width, int taps)
{
    await_predecessors();
    const int c = (int)blockIdx.y * CHANNELS + (int)threadIdx.x;
    const SeqRows s = seq_rows(positions, seq_start, state_slots, (int)blockIdx.x);
    const int from = s.first + (int)blockIdx.z * ROWS, to = min(from + ROWS, s.last);
    if (c >= width || from >= s.last)
        return;
    const float start = bias ? bias[c] : 0.0f;

    x += c;
    w += (size_t)c * (size_t)taps;
    state += s.slot * (size_t)(taps - 1) * (size_t)width + (size_t)c;
    for (int r = from; r < to; r++) {
        float sum = start;
        for (int j = 0; j < taps; j++)
            sum = fmaf(past(x, state, s, r - taps + 1 + j, taps, width), w[j], sum);
        y[(size_t)r * (size_t)width + (size_t)c] = __float2bfloat16_rn(sum / (1.0f + __expf(-sum)));
    }
    for (int j = 0; blockIdx.z == 0 && j < taps - 1; j++) /* from a later row to an earlier one, in order */
        state[(size_t)j * (size_t)width] = past(x, state, s, s.last - taps + 1 + j, taps, width);
}
