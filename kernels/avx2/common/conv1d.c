/* conv1d_update: y[r][c] = silu(bias[c] + sum over j of w[c][j] * x[r - taps + 1 + j][c]) over the rows of the row's sequence, those of
 * earlier steps from the state.
 *   y, x    [rows][width] f32
 *   w       [width][taps] f32, bias [width] or NULL
 *   state   [slot][taps - 1][width]: the last rows, oldest first (recurrent.h)
 *   grid    (seqs, ceil(width, 256)): a sequence's rows of 256 channels
 *   smem    4 * 256 * taps: the weights, tap by tap
 * Order: bias, then one fma for each tap from the oldest row on. */
#include "recurrent.h"

enum { CHANNELS = 256 };

/* Row r of the channels at hand: of this step, or of the state. */
static inline const float *past_row(const float *x, const float *state, const SeqRows *s, int r, int taps, size_t width)
{
    return r >= s->first ? x + (size_t)r * width : state + (size_t)(r - s->first + taps - 1) * width;
}

KERNEL(conv1d_update)
{
    int width = I32(8), taps = I32(9), c0 = (int)b->y * CHANNELS, n = width - c0 < CHANNELS ? width - c0 : CHANNELS;
    SeqRows s = seq_rows(PTR(5, int32_t), PTR(6, int32_t), PTR(7, int32_t), b->x);
    const float *x = PTR(1, float) + c0, *weight = PTR(2, float) + (size_t)c0 * (size_t)taps;
    const float *bias = PTR(3, float) ? PTR(3, float) + c0 : NULL;
    float *state = PTR(4, float) + s.slot * (size_t)(taps - 1) * (size_t)width + c0, *w = b->smem;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < taps; j++)
            w[j * CHANNELS + i] = weight[i * taps + j];
    for (int j = 0; s.begins && j < taps - 1; j++)
        memset(state + (size_t)j * (size_t)width, 0, sizeof(float) * (size_t)n);
    for (int r = s.first; r < s.last; r++)
        for (int c = 0; c < n; c += 16) {
            int m = n - c < 16 ? n - c : 16;
            v16 acc = bias ? lanes(bias + c, m) : v_zero();
            for (int j = 0; j < taps; j++) {
                const float *row = past_row(x, state, &s, r - taps + 1 + j, taps, (size_t)width);
                acc = v_fma(lanes(row + c, m), v_load(w + j * CHANNELS + c), acc);
            }
            put_lanes(PTR(0, float) + (size_t)r * (size_t)width + c0 + c, v_silu(acc), m);
        }
    for (int j = 0; j < taps - 1; j++) /* from a later row to an earlier one, in order */
        memmove(state + (size_t)j * (size_t)width, past_row(x, state, &s, s.last - taps + 1 + j, taps, (size_t)width),
                sizeof(float) * (size_t)n);
}
