/* The gated delta rule (Yang, Kautz, Hatamizadeh 2024).
 *   gdn_gates       y[r] = e^(rate * softplus(a + dt_bias)) of each head, then sigmoid(b) of each;  grid (rows)
 *   gdn_recurrence  row by row, for each value head h with key head h / (v_heads / k_heads), or h mod k_heads with share 1:
 *                     S = decay S;  d = beta (v - S^T k);  S = S + k d^T;  y = scale S^T q
 *     y, v    [rows][v_heads][v_dim] f32;  q, k [rows][k_heads][k_dim];  gates [rows][2][v_heads]: decay, beta
 *     state   [slot][v_heads][k_dim][v_dim] (recurrent.h)
 *     grid    (seqs, v_heads, ceil(v_dim, 64)): columns of S are independent of each other
 * Order: each column's two sums over k_dim by index, one fma a term. */
#include "recurrent.h"

enum { COLUMNS = 64 };

KERNEL(gdn_gates)
{
    int heads = I32(6), value = I32(7);
    float *y = PTR(0, float) + (size_t)b->x * (size_t)(2 * heads);
    const float *a0 = PTR(1, float) + (size_t)b->x * (size_t)heads, *b0 = PTR(2, float) + (size_t)b->x * (size_t)heads;
    const float *a_log = PTR(3, float), *dt_bias = PTR(4, float);

    for (int h = 0; h < heads; h++) {
        y[h] = expf(decay_rate(a_log[h], value) * softplus(a0[h] + dt_bias[h]));
        y[heads + h] = 1.0f / (1.0f + expf(-b0[h]));
    }
}

typedef struct GdnRow {
    const float *q, *k, *v;
    float *y;
    float decay, beta, scale;
} GdnRow;

/* One row for R registers of neighbouring columns, the last of n lanes. s is [k_dim][stride]. */
INLINE void gdn_columns(const int R, int n, const GdnRow *r, float *s, size_t stride, int k_dim, int at)
{
    v16 seen[4], out[4], d[4], decay = v_set1(r->decay);

    for (int i = 0; i < R; i++)
        seen[i] = out[i] = v_zero();
    for (int k = 0; k < k_dim; k++) {
        v16 key = v_set1(r->k[k]);
        for (int i = 0; i < R; i++)
            seen[i] = v_fma(v_mul(decay, lanes(s + (size_t)k * stride + at + 16 * i, n)), key, seen[i]);
    }
    for (int i = 0; i < R; i++)
        d[i] = v_mul(v_sub(lanes(r->v + at + 16 * i, n), seen[i]), v_set1(r->beta));
    for (int k = 0; k < k_dim; k++) {
        v16 key = v_set1(r->k[k]), query = v_set1(r->q[k]);
        for (int i = 0; i < R; i++) {
            float *p = s + (size_t)k * stride + at + 16 * i;
            v16 t = v_fma(key, d[i], v_mul(decay, lanes(p, n)));
            put_lanes(p, t, n);
            out[i] = v_fma(t, query, out[i]);
        }
    }
    for (int i = 0; i < R; i++)
        put_lanes(r->y + at + 16 * i, v_mul(out[i], v_set1(r->scale)), n);
}

KERNEL(gdn_recurrence)
{
    int k_heads = I32(9), heads = I32(10), k_dim = I32(11), v_dim = I32(12), h = (int)b->y;
    int key = I32(14) ? h % k_heads : h / (heads / k_heads);
    int from = (int)b->z * COLUMNS, to = v_dim - from < COLUMNS ? v_dim : from + COLUMNS;
    SeqRows s = seq_rows(PTR(6, int32_t), PTR(7, int32_t), PTR(8, int32_t), b->x);
    float *state = PTR(5, float) + (s.slot * (size_t)heads + (size_t)h) * (size_t)k_dim * (size_t)v_dim;

    for (int k = 0; s.begins && k < k_dim; k++)
        memset(state + (size_t)k * (size_t)v_dim + from, 0, sizeof(float) * (size_t)(to - from));
    for (int r = s.first; r < s.last; r++) {
        size_t at_k = ((size_t)r * (size_t)k_heads + (size_t)key) * (size_t)k_dim;
        size_t at_v = ((size_t)r * (size_t)heads + (size_t)h) * (size_t)v_dim;
        const float *gates = PTR(4, float) + (size_t)r * (size_t)(2 * heads);
        GdnRow row = {PTR(1, float) + at_k,
                      PTR(2, float) + at_k,
                      PTR(3, float) + at_v,
                      PTR(0, float) + at_v,
                      gates[h],
                      gates[heads + h],
                      F32(13)};
        if (to - from == COLUMNS)
            gdn_columns(4, 16, &row, state, (size_t)v_dim, k_dim, from);
        else
            for (int c = from; c < to; c += 16)
                gdn_columns(1, to - c < 16 ? to - c : 16, &row, state, (size_t)v_dim, k_dim, c);
    }
}
