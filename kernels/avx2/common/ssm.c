/* ssm_update: the selective state space of Mamba-2 (Dao, Gu 2024), row by row, for each head h of group h / (n_heads / n_groups):
 *   d = softplus(dt + dt_bias);  S = e^(rate d) S + (d x) B^T;  y = S C + skip x
 *   y      [rows][n_heads][head_dim] f32;  dt [rows][n_heads]
 *   x      [rows]: x [n_heads][head_dim], B [n_groups][state_dim], C [n_groups][state_dim]
 *   a_log, dt_bias, skip [n_heads]
 *   state  [slot][n_heads][head_dim][state_dim] (recurrent.h)
 *   grid   (seqs, n_heads)
 * Order: S C into 16 lanes by index mod 16, lanes by simd.h's tree. */
#include "recurrent.h"

KERNEL(ssm_update)
{
    int heads = I32(10), dim = I32(11), groups = I32(12), size = I32(13), h = (int)b->y, group = h / (heads / groups);
    SeqRows s = seq_rows(PTR(7, int32_t), PTR(8, int32_t), PTR(9, int32_t), b->x);
    float *state = PTR(6, float) + (s.slot * (size_t)heads + (size_t)h) * (size_t)dim * (size_t)size;
    float rate = decay_rate(PTR(3, float)[h], I32(14)), bias = PTR(4, float)[h], skip = PTR(5, float)[h];

    if (s.begins)
        memset(state, 0, sizeof(float) * (size_t)dim * (size_t)size);
    for (int r = s.first; r < s.last; r++) {
        const float *row = PTR(1, float) + (size_t)r * (size_t)(heads * dim + 2 * groups * size), *x = row + h * dim;
        const float *vb = row + heads * dim + group * size, *vc = vb + groups * size;
        float *y = PTR(0, float) + ((size_t)r * (size_t)heads + (size_t)h) * (size_t)dim;
        float d = softplus(PTR(2, float)[(size_t)r * (size_t)heads + (size_t)h] + bias);
        v16 decay = v_set1(expf(rate * d));

        for (int p = 0; p < dim; p++) {
            float *sp = state + (size_t)p * (size_t)size;
            v16 dx = v_set1(d * x[p]), acc = v_zero();
            for (int i = 0; i < size; i += 16) {
                int n = size - i < 16 ? size - i : 16;
                v16 t = v_fma(dx, lanes(vb + i, n), v_mul(decay, lanes(sp + i, n)));
                put_lanes(sp + i, t, n);
                acc = v_fma(t, lanes(vc + i, n), acc);
            }
            y[p] = fmaf(skip, x[p], v_sum(acc));
        }
    }
}
