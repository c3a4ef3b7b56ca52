/* Attention over latents (DeepSeek-AI 2024), absorbed: what kv_b would make of a latent for its keys is moved into the query, what it would
 * make for its values behind the sum. One form for one row and for many.
 *   latent_write   pool[slot(row)] = latent [rows][latent_dim], then rope [rows][rope_dim], the rotated part of the key;  grid (rows)
 *   mla_attention  y[r][h] = V_h (softmax(scale (K_h^T q_nope + q_rope) . C) C), C the latents of positions 0 .. pos
 *     y        [rows][n_heads][v_dim] f32;  q_nope [rows][n_heads][nope], q_rope [rows][n_heads][rope]
 *     kv_b     rows as stored: of each head K_h [nope][latent], then V_h [v_dim][latent]
 *     pool     [block][16][latent + rope], in the format of kv.h
 *     positions, row_seq [rows]; table [seqs][max_blocks] physical blocks
 *     grid     (rows, ceil(n_heads, 4)): four heads share a pass over the latents
 *     smem     4 * 4 * (2 * latent + 16)
 * Order: K_h^T q by the rows of K_h, one fma each; a score into 16 lanes by index mod 16, latent first, lanes by simd.h's tree; blocks of 16
 * tokens by position, online softmax (Milakov, Gimelshein 2018); values one chain over tokens for each element, divided by the sum of the
 * weights; V_h by lanes again. */
#ifndef METRALE_MLA_H
#define METRALE_MLA_H
#include "codes.h"
#include "kernel_abi.h"
#include "kv.h"
#include "simd.h"
#include <math.h>
#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))

enum { HEADS = 4 };

/* n of 16 lanes; what lies behind them is not read. */
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

INLINE v16 kv_lanes(const kv_t *p, int n)
{
    kv_t t[16] = {0};
    if (n == 16)
        return kv_load(p);
    memcpy(t, p, sizeof(kv_t) * (size_t)n);
    return kv_load(t);
}

INLINE int left(int c, int width)
{
    return width - c < 16 ? width - c : 16;
}

/* Elements c .. c + n - 1 of a stored row of k. */
typedef enum { ROWS_F32, ROWS_F16, ROWS_BF16, ROWS_Q8_0, ROWS_FP8_128 } RowFormat;

INLINE v16 row_lanes(const RowFormat f, const uint8_t *w, size_t row, int k, int c, int n)
{
    if (f == ROWS_Q8_0) { /* blocks of 32: f16 scale, 32 i8 */
        const uint8_t *block = w + (row * (size_t)(k / 32) + (size_t)(c / 32)) * 34;
        uint16_t d[16] = {0};
        float q[16], scale[16];
        memcpy(d, block, 2);
        for (int i = 0; i < n; i++)
            q[i] = (float)(int8_t)block[2 + c % 32 + i];
        v_store(scale, v_load_f16(d));
        return v_mul(lanes(q, n), v_set1(scale[0]));
    }
    if (f == ROWS_FP8_128) { /* a scale for each 128 of k, then the codes */
        const size_t spans = ((size_t)k + 127) / 128;
        const uint8_t *p = w + row * (spans * 4 + (size_t)k);
        uint8_t q[16] = {0};
        float d;
        memcpy(&d, p + (size_t)(c / 128) * 4, 4);
        memcpy(q, p + spans * 4 + c, (size_t)n);
        return v_mul(v_mul(v_load_e4m3(q), v_set1(256.0f)), v_set1(d));
    }
    if (f == ROWS_F32)
        return lanes((const float *)(const void *)w + row * (size_t)k + c, n);
    uint16_t t[16] = {0};
    memcpy(t, w + (row * (size_t)k + (size_t)c) * 2, 2 * (size_t)n);
    return f == ROWS_F16 ? v_load_f16(t) : v_load_bf16(t);
}

typedef struct Mla {
    const uint8_t *w;
    int nope, rope, v_dim, latent;
    float scale;
} Mla;

/* Scratch of one head. */
typedef struct Head {
    float *q, *o, *p;    /* [latent], [latent], [16] */
    const float *q_rope; /* [rope] */
    float top, sum;
} Head;

/* q = K_h^T q_nope */
INLINE void absorb(const RowFormat f, const Mla *m, size_t first, const float *q_nope, float *q)
{
    memset(q, 0, sizeof(float) * (size_t)m->latent);
    for (int i = 0; i < m->nope; i++) {
        v16 x = v_set1(q_nope[i]);
        for (int c = 0; c < m->latent; c += 16) {
            int n = left(c, m->latent);
            put_lanes(q + c, v_fma(row_lanes(f, m->w, first + (size_t)i, m->latent, c, n), x, lanes(q + c, n)), n);
        }
    }
}

/* Tokens 0 .. last of one block. */
static inline void attend(const Mla *m, Head *h, const kv_t *block, int last)
{
    const size_t width = (size_t)(m->latent + m->rope);
    float top = -INFINITY;

    for (int t = 0; t < 16; t++) {
        const kv_t *token = block + (size_t)t * width;
        v16 acc = v_zero();
        h->p[t] = -INFINITY;
        if (t > last)
            continue;
        for (int c = 0; c < m->latent; c += 16)
            acc = v_fma(kv_lanes(token + c, left(c, m->latent)), lanes(h->q + c, left(c, m->latent)), acc);
        for (int c = 0; c < m->rope; c += 16)
            acc = v_fma(kv_lanes(token + m->latent + c, left(c, m->rope)), lanes(h->q_rope + c, left(c, m->rope)), acc);
        h->p[t] = v_sum(acc) * m->scale;
        top = h->p[t] > top ? h->p[t] : top;
    }
    if (top > h->top) {
        float keep = h->top == -INFINITY ? 0.0f : s_exp(h->top - top);
        h->top = top;
        h->sum *= keep;
        for (int c = 0; c < m->latent; c += 16)
            put_lanes(h->o + c, v_mul(lanes(h->o + c, left(c, m->latent)), v_set1(keep)), left(c, m->latent));
    }
    v_store(h->p, v_exp(v_sub(v_load(h->p), v_set1(h->top))));
    for (int t = last + 1; t < 16; t++)
        h->p[t] = 0.0f;
    h->sum += v_sum(v_load(h->p));
    for (int c = 0; c < m->latent; c += 16) {
        int n = left(c, m->latent);
        v16 acc = lanes(h->o + c, n);
        for (int t = 0; t <= last; t++)
            acc = v_fma(kv_lanes(block + (size_t)t * width + c, n), v_set1(h->p[t]), acc);
        put_lanes(h->o + c, acc, n);
    }
}

/* y = V_h (o / sum) */
INLINE void values(const RowFormat f, const Mla *m, size_t first, Head *h, float *y)
{
    for (int c = 0; c < m->latent; c += 16)
        put_lanes(h->o + c, v_div(lanes(h->o + c, left(c, m->latent)), v_set1(h->sum)), left(c, m->latent));
    for (int i = 0; i < m->v_dim; i++) {
        v16 acc = v_zero();
        for (int c = 0; c < m->latent; c += 16) {
            int n = left(c, m->latent);
            acc = v_fma(row_lanes(f, m->w, first + (size_t)i, m->latent, c, n), lanes(h->o + c, n), acc);
        }
        y[i] = v_sum(acc);
    }
}

INLINE void mla_attention(const RowFormat f, const KArg *a, const KBlock *b)
{
    Mla m = {PTR(3, uint8_t), I32(11), I32(12), I32(13), I32(14), F32(9)};
    int heads = I32(10), h0 = (int)b->y * HEADS, n = heads - h0 < HEADS ? heads - h0 : HEADS;
    int pos = PTR(5, int32_t)[b->x];
    const int32_t *table = PTR(7, int32_t) + (size_t)PTR(6, int32_t)[b->x] * (size_t)I32(8);
    const size_t part = (size_t)(m.nope + m.v_dim), at = (size_t)b->x * (size_t)heads + (size_t)h0;
    float *scratch = b->smem;
    Head h[HEADS];

    for (int i = 0; i < n; i++, scratch += 2 * m.latent + 16) {
        h[i] = (Head){scratch + 16, scratch + 16 + m.latent,
                      scratch,      PTR(2, float) + (at + (size_t)i) * (size_t)m.rope,
                      -INFINITY,    0.0f};
        memset(h[i].o, 0, sizeof(float) * (size_t)m.latent);
        absorb(f, &m, (size_t)(h0 + i) * part, PTR(1, float) + (at + (size_t)i) * (size_t)m.nope, h[i].q);
    }
    for (int blk = 0; blk <= pos / KV_TOKENS; blk++) {
        const kv_t *block = PTR(4, kv_t) + (size_t)table[blk] * KV_TOKENS * (size_t)(m.latent + m.rope);
        int last = pos - blk * KV_TOKENS < KV_TOKENS - 1 ? pos - blk * KV_TOKENS : KV_TOKENS - 1;
        for (int i = 0; i < n; i++)
            attend(&m, &h[i], block, last);
    }
    for (int i = 0; i < n; i++)
        values(f, &m, (size_t)(h0 + i) * part + (size_t)m.nope, &h[i],
               PTR(0, float) + (at + (size_t)i) * (size_t)m.v_dim);
}

static inline void put_run(kv_t *to, const float *from, int width)
{
    for (int c = 0; c < width; c += 16) {
        int n = width - c < 16 ? width - c : 16;
        kv_t t[16];
        kv_store(t, v_load_n(from + c, n));
        memcpy(to + c, t, sizeof(kv_t) * (size_t)n);
    }
}

static inline void latent_write(const KArg *a, const KBlock *b)
{
    int latent = I32(5), rope = I32(6);
    kv_t *to = PTR(2, kv_t) + (size_t)PTR(3, int32_t)[b->x] * (size_t)(latent + rope);

    put_run(to, PTR(0, float) + (size_t)b->x * (size_t)latent, latent);
    put_run(to + latent, PTR(1, float) + (size_t)b->x * (size_t)rope, rope);
}
#endif
