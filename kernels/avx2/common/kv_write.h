/* kv_write: puts each row's k and v into the pools at the row's slot (kv.h)
 *   k, v   [rows][n_kv_heads * head_dim] f32
 *   slots  [rows] i32
 *   grid   (rows) */
#ifndef METRALE_KV_WRITE_H
#define METRALE_KV_WRITE_H
#include "kernel_abi.h"
#include "kv.h"

static inline void kv_write(const KArg *a, const KBlock *b)
{
    int heads = I32(6), head_dim = I32(7);
    size_t row = (size_t)b->x * (size_t)(heads * head_dim);
    for (int h = 0; h < heads; h++)
        kv_put(PTR(2, kv_t), PTR(3, kv_t), PTR(4, int32_t)[b->x], h, heads, head_dim,
               PTR(0, float) + row + h * head_dim, PTR(1, float) + row + h * head_dim);
}
#endif
