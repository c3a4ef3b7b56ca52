/* paged_attention: y[r][h] = softmax(scale * q[r][h] . K^T) V over the tokens of the row's sequence that it may see:
 * positions max(0, pos - window + 1) .. pos (window 0: all up to pos).
 *   y, q       [rows][n_heads * head_dim] f32; y in i8/32 with act_quant fused
 *   kpool, vpool  kv.h
 *   positions, row_seq [rows]; table [seqs][max_blocks] physical blocks
 *   sinks      [n_heads] f32 or NULL: an extra score that takes weight and gives nothing
 *   grid       (ceil(rows, ROWS), n_kv_heads): the query heads that share one KV head
 *   smem       4 * QUERIES * head_dim bytes, QUERIES <= 4
 *   ROWS       build constant: rows of a block; 1 where they are of different sequences
 * Order: blocks of 16 tokens by position, online softmax (Milakov, Gimelshein 2018): scores of a block are one
 * chain over d for each token,
 * the values one chain over tokens for each element. Physical placement and other rows change nothing.
 *
 * Queries (rows of one sequence times heads of one group) are taken QUERIES at a time against SPAN blocks of
 * tokens, so that a key or
 * value, once loaded and widened, meets them all, and enough independent chains hide the latency of fma. Each
 * query's own sequence of
 * operations is that of the query alone: what another query's mask leaves out is skipped for that query, never
 * added as a zero.
 * What is not on the path of all tokens is kept out of line: it would be inlined a hundred times. */
#ifndef METRALE_PAGED_ATTENTION_H
#define METRALE_PAGED_ATTENTION_H
#include "act_i8.h"
#include "kernel_abi.h"
#include "kv.h"
#include <math.h>
#include <stdbool.h>

#define INLINE static inline __attribute__((always_inline))

#if V_REGS >= 32
enum { QUERIES = 4, SPAN = 4, WIDE = 4 }; /* WIDE: registers of one query's output that are summed at a time */
#else
enum { QUERIES = 3, SPAN = 2, WIDE = 2 };
#endif

typedef struct Attention {
    const kv_t *kpool, *vpool;
    const int32_t *table; /* of the sequence */
    float *o;             /* scratch [QUERIES][head_dim] */
    int n_kv, kvh, head_dim;
    float scale, cap;
} Attention;

typedef struct Query {
    const float *q;
    int pos, first; /* tokens seen: first .. pos */
    float sink;     /* -INFINITY: none */
    float m, l;     /* running maximum, sum */
} Query;

/* o[c] = o[c] * keep[c][j], then + sum over tokens from..to of block j of p * v, for blocks in turn; C queries, D
 * registers of each. */
INLINE void add_values(const int C, const int D, const Attention *t, float *o, const int d, const kv_t *const *vb,
                       int n_blocks, const float (*p)[SPAN * 16], const float (*keep)[SPAN], int from, int to)
{
    const int hd = t->head_dim;
    v16 acc[QUERIES][WIDE];
    for (int c = 0; c < C; c++)
        for (int i = 0; i < D; i++)
            acc[c][i] = v_load(o + c * hd + d + 16 * i);
    for (int j = 0; j < n_blocks; j++) {
        for (int c = 0; c < C; c++)
            for (int i = 0; i < D; i++)
                acc[c][i] = v_mul(acc[c][i], v_set1(keep[c][j]));
        for (int k = from; k <= to; k++)
#pragma GCC unroll 4
            for (int i = 0; i < D; i++) {
                v16 v = kv_load(vb[j] + (size_t)k * (size_t)hd + d + 16 * i);
#pragma GCC unroll 4
                for (int c = 0; c < C; c++)
                    acc[c][i] = v_fma(v, v_set1(p[c][j * 16 + k]), acc[c][i]);
            }
    }
    for (int c = 0; c < C; c++)
        for (int i = 0; i < D; i++)
            v_store(o + c * hd + d + 16 * i, acc[c][i]);
}

/* All of the head. */
INLINE void add_all(const int C, const Attention *t, float *o, const kv_t *const *vb, int n_blocks,
                    const float (*p)[SPAN * 16], const float (*keep)[SPAN], int from, int to)
{
    const int hd = t->head_dim;
    int d = 0;
    for (; d + 16 * WIDE <= hd; d += 16 * WIDE)
        add_values(C, WIDE, t, o, d, vb, n_blocks, p, keep, from, to);
    for (; d + 16 <= hd; d += 16)
        add_values(C, 1, t, o, d, vb, n_blocks, p, keep, from, to);
    for (; d < hd; d++)
        for (int c = 0; c < C; c++)
            for (int j = 0; j < n_blocks; j++) {
                float *at = o + c * hd + d;
                *at *= keep[c][j];
                for (int k = from; k <= to; k++)
                    *at = fmaf(kv_scalar(vb[j][(size_t)k * (size_t)hd + d]), p[c][j * 16 + k], *at);
            }
}

/* One block of one query: p, 16 dots, become the weights of its tokens lo..hi, 0 elsewhere; returns the factor for
 * what was summed
 * before. */
static __attribute__((noinline)) float soften(const Attention *t, Query *u, float *p, int lo, int hi)
{
    float keep = 1.0f;
    v16 s = v_mul(v_load(p), v_set1(t->scale));
    if (t->cap > 0.0f) {
        v_store(p, s);
        for (int k = lo; k <= hi; k++)
            p[k] = t->cap * tanhf(p[k] / t->cap);
        s = v_load(p);
    }
    s = v_keep(s, lo, hi, -INFINITY); /* tokens outside may hold anything, NaN included */
    float top = v_maximum(s);
    if (top > u->m) {
        keep = u->m == -INFINITY ? 0.0f : s_exp(u->m - top);
        u->m = top;
        u->l *= keep;
    }
    s = v_keep(v_exp(v_sub(s, v_set1(u->m))), lo, hi, 0.0f);
    v_store(p, s);
    u->l += v_sum(s);
    return keep;
}

/* One query and one block of tokens that it sees in part, or that is not one of SPAN. */
static __attribute__((noinline)) void attend_block(const Attention *t, Query *u, float *o, const kv_t *vb, float *p,
                                                   int at)
{
    int lo = u->first > at ? u->first - at : 0, hi = u->pos - at < KV_TOKENS - 1 ? u->pos - at : KV_TOKENS - 1;
    if (lo > hi)
        return;
    float keep[1][SPAN] = {{soften(t, u, p, lo, hi)}}, weights[1][SPAN * 16];
    memcpy(weights, p, sizeof(float) * 16);
    add_all(1, t, o, &vb, 1, (const float(*)[SPAN * 16]) weights, (const float(*)[SPAN])keep, lo, hi);
}

/* C queries of one sequence and KV head: t->o[c] = their outputs, not yet divided by l. */
INLINE void attend(const int C, const Attention *t, Query *u)
{
    const int hd = t->head_dim;
    int begin = u[0].first, end = u[0].pos;
    float p[QUERIES][SPAN * 16], keep[QUERIES][SPAN];

    for (int c = 0; c < C; c++) {
        begin = u[c].first < begin ? u[c].first : begin;
        end = u[c].pos > end ? u[c].pos : end;
        u[c].m = u[c].sink;
        u[c].l = u[c].sink == -INFINITY ? 0.0f : 1.0f;
    }
    memset(t->o, 0, sizeof(float) * (size_t)(C * hd));
    for (int blk = begin / KV_TOKENS; blk <= end / KV_TOKENS; blk += SPAN) {
        int n = end / KV_TOKENS - blk + 1 < SPAN ? end / KV_TOKENS - blk + 1 : SPAN;
        const kv_t *kb[SPAN], *vb[SPAN];
        v16 s[QUERIES][SPAN];

#pragma GCC unroll 4
        for (int j = 0; j < SPAN; j++) { /* behind the last block: that block again, its scores unused */
            size_t at = ((size_t)t->table[blk + (j < n ? j : n - 1)] * (size_t)t->n_kv + (size_t)t->kvh) * (size_t)hd *
                        KV_TOKENS;
            kb[j] = t->kpool + at;
            vb[j] = t->vpool + at;
#pragma GCC unroll 4
            for (int c = 0; c < C; c++)
                s[c][j] = v_zero();
        }
        for (int d = 0; d < hd; d++)
#pragma GCC unroll 4
            for (int j = 0; j < SPAN; j++) {
                v16 k = kv_load(kb[j] + (size_t)d * KV_TOKENS);
#pragma GCC unroll 4
                for (int c = 0; c < C; c++)
                    s[c][j] = v_fma(k, v_set1(u[c].q[d]), s[c][j]);
            }
        bool whole = n == SPAN;
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            whole = whole && u[c].first <= blk * KV_TOKENS && u[c].pos >= (blk + SPAN) * KV_TOKENS - 1;
#pragma GCC unroll 4
            for (int j = 0; j < SPAN; j++)
                v_store(&p[c][16 * j], s[c][j]);
        }
        if (whole) {
            for (int c = 0; c < C; c++)
                for (int j = 0; j < SPAN; j++)
                    keep[c][j] = soften(t, &u[c], &p[c][16 * j], 0, KV_TOKENS - 1);
            add_all(C, t, t->o, vb, SPAN, (const float(*)[SPAN * 16]) p, (const float(*)[SPAN])keep, 0, KV_TOKENS - 1);
        } else {
            for (int c = 0; c < C; c++)
                for (int j = 0; j < n; j++)
                    attend_block(t, &u[c], t->o + c * hd, vb[j], &p[c][16 * j], (blk + j) * KV_TOKENS);
        }
    }
}

static __attribute__((noinline)) void attend_1(const Attention *t, Query *u)
{
    attend(1, t, u);
}
static __attribute__((noinline)) void attend_2(const Attention *t, Query *u)
{
    attend(2, t, u);
}
static __attribute__((noinline)) void attend_3(const Attention *t, Query *u)
{
    attend(3, t, u);
}
static __attribute__((noinline)) void attend_4(const Attention *t, Query *u)
{
    attend(QUERIES < 4 ? QUERIES : 4, t, u);
}

/* Writes o / l of one query: f32, or blocks of i8/32 (head_dim a multiple of 32). */
INLINE void give(const bool quant, const Attention *t, const Query *u, const float *o, void *y, size_t at)
{
    const int hd = t->head_dim;
    const v16 l = v_set1(u->l);
    int d = 0;
    if (quant) {
        for (; d < hd; d += 32)
            act_quant_block((ActBlock *)y + (at + (size_t)d) / 32, v_div(v_load(o + d), l),
                            v_div(v_load(o + d + 16), l));
        return;
    }
    for (; d + 16 <= hd; d += 16)
        v_store((float *)y + at + d, v_div(v_load(o + d), l));
    for (; d < hd; d++)
        ((float *)y)[at + (size_t)d] = o[d] / u->l;
}

INLINE void paged_attention(const bool quant, const KArg *a, const KBlock *b)
{
    const int32_t *positions = PTR(4, int32_t), *row_seq = PTR(5, int32_t);
    const int rows = I32(8), max_blocks = I32(9), n_heads = I32(10), n_kv = I32(11), window = I32(14);
    const int hd = I32(12), group = n_heads / n_kv, head0 = (int)b->y * group;
    const float *q = PTR(1, float), *sinks = PTR(7, float);
    Attention t = {.kpool = PTR(2, kv_t),
                   .vpool = PTR(3, kv_t),
                   .o = b->smem,
                   .n_kv = n_kv,
                   .kvh = (int)b->y,
                   .head_dim = hd,
                   .scale = F32(13),
                   .cap = F32(15)};
    int row = (int)b->x * ROWS, last = row + ROWS < rows ? row + ROWS : rows;

    while (row < last) { /* one run of rows of one sequence */
        int end = row + 1;
        while (end < last && row_seq[end] == row_seq[row])
            end++;
        t.table = PTR(6, int32_t) + (size_t)row_seq[row] * (size_t)max_blocks;
        for (int i = 0, n = (end - row) * group; i < n; i += QUERIES) {
            int now = n - i < QUERIES ? n - i : QUERIES;
            Query u[QUERIES];
            size_t at[QUERIES];
            for (int c = 0; c < now; c++) {
                int r = row + (i + c) / group, h = head0 + (i + c) % group, pos = positions[r];
                at[c] = ((size_t)r * (size_t)n_heads + (size_t)h) * (size_t)hd;
                u[c] = (Query){.q = q + at[c],
                               .pos = pos,
                               .first = window > 0 && pos - window + 1 > 0 ? pos - window + 1 : 0,
                               .sink = sinks ? sinks[h] : -INFINITY};
            }
            (now == 1 ? attend_1 : now == 2 ? attend_2 : now == 3 ? attend_3 : attend_4)(&t, u);
            for (int c = 0; c < now; c++)
                give(quant, &t, &u[c], t.o + c * hd, PTR(0, void), at[c]);
        }
        row = end;
    }
}
#endif
