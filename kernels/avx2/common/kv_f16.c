/* The families that keep KV in f16. kv_write.h and paged_attention.h have the algorithms. */
#define KV_FORMAT 2
#include "kv_write.h"
#include "paged_attention.h"

KERNEL(kv_write_f16)
{
    kv_write(a, b);
}
KERNEL(rope_kv_f16)
{
    rope_kv(a, b);
}
KERNEL(paged_attention_f16)
{
    paged_attention(false, a, b);
}
KERNEL(paged_attention_quant_f16)
{
    paged_attention(true, a, b);
}
