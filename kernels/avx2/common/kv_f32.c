/* The families that keep KV in f32. kv_write.h and paged_attention.h have the algorithms. */
#define KV_FORMAT 0
#include "kv_write.h"
#include "paged_attention.h"

KERNEL(kv_write_f32)
{
    kv_write(a, b);
}
KERNEL(rope_kv_f32)
{
    rope_kv(a, b);
}
KERNEL(paged_attention_f32)
{
    paged_attention(false, a, b);
}
KERNEL(paged_attention_quant_f32)
{
    paged_attention(true, a, b);
}
