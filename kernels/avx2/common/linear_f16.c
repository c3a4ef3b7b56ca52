/* The families that read f16 matrices: embed, linear, lm_head. linear_float.h and embed.h have the algorithms. */
#define WEIGHT 1
#include "embed.h"
#include "linear_float.h"

KERNEL(embed_f16)
{
    embed(a, b);
}
KERNEL(linear_f16)
{
    linear(a, b);
}
KERNEL(lm_head_f16)
{
    lm_head(a, b);
}
