/* kv_write: puts each row's k and v into the pools at the row's slot (kv.h)
 *   k, v   [rows][n_kv_heads * head_dim] f32
 *   slots  [rows] i32
 *   grid   (rows) */
#ifndef METRALE_KV_WRITE_H
#define METRALE_KV_WRITE_H
#include "kernel_abi.h"
#include "kv.h"
#include "rope.h"

static inline void kv_write(const KArg *a, const KBlock *b)
{
    int heads = I32(6), head_dim = I32(7);
    size_t row = (size_t)b->x * (size_t)(heads * head_dim);
    for (int h = 0; h < heads; h++)
        kv_put(PTR(2, kv_t), PTR(3, kv_t), PTR(4, int32_t)[b->x], h, heads, head_dim,
               PTR(0, float) + row + h * head_dim, PTR(1, float) + row + h * head_dim);
}

/* rope, then kv_write of the rotated key: yq q k v table positions kpool vpool slots rows wq head_dim rotary style
 * n_kv_heads
 *   smem   4 * n_kv_heads * head_dim bytes: the rotated key */
static inline void rope_kv(const KArg *a, const KBlock *b)
{
    int wq = I32(10), head_dim = I32(11), rotary = I32(12), style = I32(13), heads = I32(14), wk = heads * head_dim;
    const float *cs = PTR(4, float) + (size_t)PTR(5, int32_t)[b->x] * (size_t)rotary;
    const float *v = PTR(3, float) + (size_t)b->x * (size_t)wk;
    float *k = b->smem;
    rope_heads(PTR(0, float) + (size_t)b->x * (size_t)wq, PTR(1, float) + (size_t)b->x * (size_t)wq, cs, wq, head_dim,
               rotary, style);
    rope_heads(k, PTR(2, float) + (size_t)b->x * (size_t)wk, cs, wk, head_dim, rotary, style);
    for (int h = 0; h < heads; h++)
        kv_put(PTR(6, kv_t), PTR(7, kv_t), PTR(8, int32_t)[b->x], h, heads, head_dim, k + h * head_dim,
               v + h * head_dim);
}
#endif
