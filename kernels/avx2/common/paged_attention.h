/* paged_attention: y[r][h] = softmax(scale * q[r][h] . K^T) V over the tokens of the row's sequence that it may see:
 * positions max(0, pos - window + 1) .. pos (window 0: all up to pos).
 *   y, q       [rows][n_heads * head_dim] f32
 *   kpool, vpool  kv.h
 *   positions, row_seq [rows]; table [seqs][max_blocks] physical blocks
 *   sinks      [n_heads] f32 or NULL: an extra score that takes weight and gives nothing
 *   grid       (rows, n_kv_heads): the group of query heads that shares one KV head
 *   smem       4 * group * (2 * head_dim + 16) bytes
 * Order: blocks of 16 tokens by position, online softmax (Milakov, Gimelshein 2018): scores of a block are one chain over d for each token,
 * the values one chain over tokens for each element. Physical placement and other rows change nothing. */
#ifndef METRALE_PAGED_ATTENTION_H
#define METRALE_PAGED_ATTENTION_H
#include "kernel_abi.h"
#include "kv.h"
#include <math.h>

static inline void paged_attention(const KArg *a, const KBlock *b)
{
    int max_blocks = I32(9), n_heads = I32(10), n_kv = I32(11), hd = I32(12), window = I32(14);
    float scale = F32(13), cap = F32(15);
    const float *sinks = PTR(7, float);
    int row = (int)b->x, kvh = (int)b->y, group = n_heads / n_kv;
    int pos = PTR(4, int32_t)[row];
    const int32_t *table = PTR(6, int32_t) + (size_t)PTR(5, int32_t)[row] * (size_t)max_blocks;
    const float *q = PTR(1, float) + ((size_t)row * (size_t)n_heads + (size_t)(kvh * group)) * (size_t)hd;
    float *y = PTR(0, float) + ((size_t)row * (size_t)n_heads + (size_t)(kvh * group)) * (size_t)hd;
    float *o = b->smem, *p = o + (size_t)group * (size_t)hd, *m = p + group * 16, *l = m + group;
    int first = window > 0 && pos - window + 1 > 0 ? pos - window + 1 : 0;

    for (int g = 0; g < group; g++) {
        m[g] = sinks ? sinks[kvh * group + g] : -INFINITY;
        l[g] = sinks ? 1.0f : 0.0f;
    }
    memset(o, 0, sizeof(float) * (size_t)(group * hd));

    for (int blk = first / KV_TOKENS; blk <= pos / KV_TOKENS; blk++) {
        size_t at = ((size_t)table[blk] * (size_t)n_kv + (size_t)kvh) * (size_t)hd * KV_TOKENS;
        const kv_t *kb = PTR(2, kv_t) + at, *vb = PTR(3, kv_t) + at;
        int t0 = first > blk * KV_TOKENS ? first - blk * KV_TOKENS : 0;
        int t1 = pos - blk * KV_TOKENS < KV_TOKENS - 1 ? pos - blk * KV_TOKENS : KV_TOKENS - 1;

        for (int g = 0; g < group; g++) {
            const float *qg = q + g * hd;
            v16 s = v_zero();
            for (int d = 0; d < hd; d++)
                s = v_fma(kv_load(kb + (size_t)d * KV_TOKENS), v_set1(qg[d]), s);
            s = v_mul(s, v_set1(scale));
            float *pg = p + g * 16;
            if (cap > 0.0f) {
                v_store(pg, s);
                for (int t = t0; t <= t1; t++)
                    pg[t] = cap * tanhf(pg[t] / cap);
                s = v_load(pg);
            }
            if (t0 > 0 || t1 < KV_TOKENS - 1) { /* an edge block: tokens outside may hold anything, NaN included */
                v_store(pg, s);
                for (int t = 0; t < KV_TOKENS; t++)
                    if (t < t0 || t > t1)
                        pg[t] = -INFINITY;
                s = v_load(pg);
            }
            float top = v_maximum(s);
            if (top > m[g]) {
                float keep = m[g] == -INFINITY ? 0.0f : s_exp(m[g] - top);
                m[g] = top;
                l[g] *= keep;
                for (int d = 0; d < hd; d++)
                    o[g * hd + d] *= keep;
            }
            v_store(pg, v_exp(v_sub(s, v_set1(m[g]))));
            for (int t = 0; t < KV_TOKENS; t++)
                if (t < t0 || t > t1)
                    pg[t] = 0.0f;
            l[g] += v_sum(v_load(pg));
            int d = 0;
            for (; d + 16 <= hd; d += 16) {
                v16 acc = v_load(o + g * hd + d);
                for (int t = t0; t <= t1; t++)
                    acc = v_fma(kv_load(vb + (size_t)t * (size_t)hd + d), v_set1(pg[t]), acc);
                v_store(o + g * hd + d, acc);
            }
            for (; d < hd; d++)
                for (int t = t0; t <= t1; t++)
                    o[g * hd + d] = fmaf(kv_scalar(vb[(size_t)t * (size_t)hd + d]), pg[t], o[g * hd + d]);
        }
    }
    for (int g = 0; g < group; g++)
        for (int d = 0; d < hd; d++)
            y[g * hd + d] = o[g * hd + d] / l[g];
}
#endif
