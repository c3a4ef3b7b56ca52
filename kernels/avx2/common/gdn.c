/* The gated delta rule (Yang, Kautz, Hatamizadeh 2024).
 *   gdn_gates       y[r] = e^(rate * softplus(a + dt_bias)) of each head, then sigmoid(b) of each;  grid (rows)
 *   gdn_recurrence  row by row, for each value head h with key head h / (v_heads / k_heads), or h mod k_heads with share 1:
 *                     S = decay S;  d = beta (v - S^T k);  S = S + k d^T;  y = scale S^T q
 *     y, v    [rows][v_heads][v_dim] f32;  q, k [rows][k_heads][k_dim];  gates [rows][2][v_heads]: decay, beta
 *     state   [slot][v_heads][k_dim][v_dim] (recurrent.h)
 *     grid    (seqs, v_heads, ceil(v_dim, 32)): columns of S are independent of each other
 *     smem    4 * 32 * k_dim: the block's columns of S
 * Order: each column's two sums over k_dim by index, one fma a term.
 *
 * A sequence's rows pass over its columns while these lie packed in L1, and a row's pass does what the next row asks first of
 * the same element: it learns, answers the query, is decayed by the next row's gate and seen by the next row's key. So an
 * element costs four multiply-adds and one load and store a row. What is computed, and in which order, is the same
 * for one row as for a thousand. A matrix form of a chunk of C rows takes 3 k_dim + C multiply-adds a column where
 * this one takes 4 k_dim, in another order. */
#include "recurrent.h"

enum { COLUMNS = 32, COLUMN_REGS = COLUMNS / 16 };

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

/* The columns of one value head of a sequence: pointers to row 0 of the step, elements from row to row. */
typedef struct GdnHead {
    SeqRows rows;
    const float *q, *k, *v, *decay, *beta;
    float *y;
    size_t k_step, v_step, gate_step;
    float scale;
    int k_dim, v_dim;
} GdnHead;

/* All rows for R registers of columns, the last of n lanes. s is [k_dim][v_dim] from the first column on; tile
 * [k_dim][COLUMNS] holds S times the decay of the row at hand. */
INLINE void gdn_columns(const int R, int n, const GdnHead *g, float *s, float *tile)
{
    v16 seen[COLUMN_REGS], out[COLUMN_REGS], d[COLUMN_REGS];
    size_t first = (size_t)g->rows.first, last = (size_t)g->rows.last, width = (size_t)g->v_dim;
    v16 decay = v_set1(g->decay[first * g->gate_step]);

    for (int i = 0; i < R; i++)
        seen[i] = v_zero();
    for (int k = 0; k < g->k_dim; k++) {
        v16 key = v_set1(g->k[first * g->k_step + (size_t)k]);
        for (int i = 0; i < R; i++) {
            v16 t = g->rows.begins ? v_zero() : lanes(s + (size_t)k * width + 16 * i, i + 1 < R ? 16 : n);
            t = v_mul(decay, t);
            v_store(tile + k * COLUMNS + 16 * i, t);
            seen[i] = v_fma(t, key, seen[i]);
        }
    }
    for (size_t r = first; r < last; r++) {
        const float *keys = g->k + r * g->k_step, *queries = g->q + r * g->k_step, *next = keys + g->k_step;
        v16 beta = v_set1(g->beta[r * g->gate_step]);
        for (int i = 0; i < R; i++) {
            d[i] = v_mul(v_sub(lanes(g->v + r * g->v_step + 16 * i, i + 1 < R ? 16 : n), seen[i]), beta);
            seen[i] = out[i] = v_zero();
        }
        if (r + 1 < last) {
            decay = v_set1(g->decay[(r + 1) * g->gate_step]);
            for (int k = 0; k < g->k_dim; k++) {
                v16 key = v_set1(keys[k]), query = v_set1(queries[k]), then = v_set1(next[k]);
                for (int i = 0; i < R; i++) {
                    float *p = tile + k * COLUMNS + 16 * i;
                    v16 t = v_fma(key, d[i], v_load(p));
                    out[i] = v_fma(t, query, out[i]);
                    t = v_mul(decay, t);
                    v_store(p, t);
                    seen[i] = v_fma(t, then, seen[i]);
                }
            }
        } else {
            for (int k = 0; k < g->k_dim; k++) {
                v16 key = v_set1(keys[k]), query = v_set1(queries[k]);
                for (int i = 0; i < R; i++) {
                    v16 t = v_fma(key, d[i], v_load(tile + k * COLUMNS + 16 * i));
                    put_lanes(s + (size_t)k * width + 16 * i, t, i + 1 < R ? 16 : n);
                    out[i] = v_fma(t, query, out[i]);
                }
            }
        }
        for (int i = 0; i < R; i++)
            put_lanes(g->y + r * g->v_step + 16 * i, v_mul(out[i], v_set1(g->scale)), i + 1 < R ? 16 : n);
    }
}

KERNEL(gdn_recurrence)
{
    int k_heads = I32(9), heads = I32(10), k_dim = I32(11), v_dim = I32(12), h = (int)b->y;
    int key = I32(14) ? h % k_heads : h / (heads / k_heads);
    int at = (int)b->z * COLUMNS, n = v_dim - at;
    size_t k_at = (size_t)key * (size_t)k_dim, v_at = (size_t)h * (size_t)v_dim + (size_t)at;
    GdnHead g = {.rows = seq_rows(PTR(6, int32_t), PTR(7, int32_t), PTR(8, int32_t), b->x),
                 .q = PTR(1, float) + k_at,
                 .k = PTR(2, float) + k_at,
                 .v = PTR(3, float) + v_at,
                 .decay = PTR(4, float) + h,
                 .beta = PTR(4, float) + heads + h,
                 .y = PTR(0, float) + v_at,
                 .k_step = (size_t)k_heads * (size_t)k_dim,
                 .v_step = (size_t)heads * (size_t)v_dim,
                 .gate_step = 2 * (size_t)heads,
                 .scale = F32(13),
                 .k_dim = k_dim,
                 .v_dim = v_dim};
    float *state = PTR(5, float) + (g.rows.slot * (size_t)heads + (size_t)h) * (size_t)k_dim * (size_t)v_dim + at;

    if (n >= COLUMNS)
        gdn_columns(2, 16, &g, state, b->smem);
    else if (n > 16)
        gdn_columns(2, n - 16, &g, state, b->smem);
    else
        gdn_columns(1, n, &g, state, b->smem);
}
