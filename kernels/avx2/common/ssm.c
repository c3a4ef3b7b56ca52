/* ssm_update: the selective state space of Mamba-2 (Dao, Gu 2024), row by row, for each head h of group h / (n_heads / n_groups):
 *   d = softplus(dt + dt_bias);  S = e^(rate d) S + (d x) B^T;  y = S C + skip x
 *   y      [rows][n_heads][head_dim] f32;  dt [rows][n_heads]
 *   x      [rows]: x [n_heads][head_dim], B [n_groups][state_dim], C [n_groups][state_dim]
 *   a_log, dt_bias, skip [n_heads]
 *   state  [slot][n_heads][head_dim][state_dim] (recurrent.h)
 *   grid   (seqs, n_heads)
 * Order: S C into 16 lanes by index mod 16, lanes by simd.h's tree.
 *
 * Sixteen lines of S stay in L1 while a run of rows passes over them; a row's B and C are loaded once for as many lines as there are
 * registers for their sums, and the sums across lanes are taken sixteen at a time. A line costs the same operations in the same order,
 * however many rows there are. A matrix form of a chunk takes two multiply-adds an element and more within the chunk where
 * this one takes three operations, in another order. */
#include "recurrent.h"
#include "simd_sums.h"

enum { RUN = 64, LINES = 16, GROUP = V_REGS / 4 };

/* One row for G lines of S: sums[l] = S C of line l, lane by lane; whole: size is a multiple of 16. */
INLINE void ssm_lines(const int G, const bool whole, float *sums, float *s, int size, const float *dx, const float *vb,
                      const float *vc, v16 decay)
{
    v16 acc[GROUP];

    for (int l = 0; l < G; l++)
        acc[l] = v_zero();
    for (int i = 0; i < size; i += 16) {
        int n = whole || size - i >= 16 ? 16 : size - i;
        v16 bi = lanes(vb + i, n), ci = lanes(vc + i, n);
        for (int l = 0; l < G; l++) {
            float *p = s + (size_t)l * (size_t)size + i;
            v16 t = v_fma(v_set1(dx[l]), bi, v_mul(decay, lanes(p, n)));
            put_lanes(p, t, n);
            acc[l] = v_fma(t, ci, acc[l]);
        }
    }
    for (int l = 0; l < G; l++)
        v_store(sums + 16 * l, acc[l]);
}

KERNEL(ssm_update)
{
    int heads = I32(10), dim = I32(11), groups = I32(12), size = I32(13), h = (int)b->y, group = h / (heads / groups);
    SeqRows s = seq_rows(PTR(7, int32_t), PTR(8, int32_t), PTR(9, int32_t), b->x);
    float *state = PTR(6, float) + (s.slot * (size_t)heads + (size_t)h) * (size_t)dim * (size_t)size;
    float rate = decay_rate(PTR(3, float)[h], I32(14)), bias = PTR(4, float)[h], skip = PTR(5, float)[h];
    size_t width = (size_t)(heads * dim + 2 * groups * size);
    float d[RUN], decay[RUN];

    if (s.begins)
        memset(state, 0, sizeof(float) * (size_t)dim * (size_t)size);
    for (int run = s.first; run < s.last; run += RUN) {
        int rows = s.last - run < RUN ? s.last - run : RUN;
        for (int r = 0; r < rows; r++) {
            d[r] = softplus(PTR(2, float)[(size_t)(run + r) * (size_t)heads + (size_t)h] + bias);
            decay[r] = expf(rate * d[r]);
        }
        for (int p = 0; p < dim; p += LINES) {
            int m = dim - p < LINES ? dim - p : LINES;
            for (int r = 0; r < rows; r++) {
                const float *row = PTR(1, float) + (size_t)(run + r) * width;
                const float *vb = row + heads * dim + group * size, *vc = vb + groups * size;
                float *y = PTR(0, float) + ((size_t)(run + r) * (size_t)heads + (size_t)h) * (size_t)dim + p;
                float *lines = state + (size_t)p * (size_t)size, dx[LINES], sums[16 * LINES];
                v16 x = lanes(row + h * dim + p, m), e = v_set1(decay[r]);
                int l = 0;
                v_store(dx, v_mul(v_set1(d[r]), x));
                for (; size % 16 == 0 && l + GROUP <= m; l += GROUP)
                    ssm_lines(GROUP, true, sums + 16 * l, lines + (size_t)l * (size_t)size, size, dx + l, vb, vc, e);
                for (; l < m; l++)
                    ssm_lines(1, false, sums + 16 * l, lines + (size_t)l * (size_t)size, size, dx + l, vb, vc, e);
                memset(sums + 16 * l, 0, sizeof(float) * 16 * (size_t)(LINES - l));
                put_lanes(y, v_fma(v_set1(skip), x, v_sums(sums)), m);
            }
        }
    }
}
