/* The families that read q4_1 matrices: embed, linear, lm_head. linear_quant.h and embed.h have the algorithms. */
#define WEIGHT 5
#include "embed.h"
#include "linear_quant.h"

KERNEL(embed_q4_1)
{
    embed(a, b);
}
KERNEL(linear_q4_1)
{
    linear(a, b);
}
KERNEL(lm_head_q4_1)
{
    lm_head(a, b);
}
