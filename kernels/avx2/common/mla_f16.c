/* The families that keep latents in f16: latent_write, and mla_attention for each format of kv_b. mla.h has the algorithms. */
#define KV_FORMAT 2
#include "mla.h"

KERNEL(latent_write_f16)
{
    latent_write(a, b);
}
KERNEL(mla_attention_f32_f16)
{
    mla_attention(ROWS_F32, a, b);
}
KERNEL(mla_attention_f16_f16)
{
    mla_attention(ROWS_F16, a, b);
}
KERNEL(mla_attention_bf16_f16)
{
    mla_attention(ROWS_BF16, a, b);
}
KERNEL(mla_attention_q8_0_f16)
{
    mla_attention(ROWS_Q8_0, a, b);
}
KERNEL(mla_attention_fp8_128_f16)
{
    mla_attention(ROWS_FP8_128, a, b);
}
