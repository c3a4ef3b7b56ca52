/* The families that read q8_0 matrices: embed, linear, lm_head. linear_quant.h and embed.h have the algorithms. */
#define WEIGHT 3
#include "embed.h"
#include "linear_quant.h"

KERNEL(embed_q8_0)
{
    embed(a, b);
}
KERNEL(linear_q8_0)
{
    linear(a, b);
}
KERNEL(lm_head_q8_0)
{
    lm_head(a, b);
}
