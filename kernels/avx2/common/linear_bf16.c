/* The families that read bf16 matrices: embed, linear, lm_head. linear_float.h and embed.h have the algorithms. */
#define WEIGHT 2
#include "embed.h"
#include "linear_float.h"

KERNEL(embed_bf16)
{
    embed(a, b);
}
KERNEL(linear_bf16)
{
    linear(a, b);
}
KERNEL(lm_head_bf16)
{
    lm_head(a, b);
}
