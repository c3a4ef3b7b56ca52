/* The families that read f32 matrices: embed, linear, lm_head. linear_float.h and embed.h have the algorithms. */
#define WEIGHT 0
#include "embed.h"
#include "linear_float.h"

KERNEL(embed_f32)
{
    embed(a, b);
}
KERNEL(linear_f32)
{
    linear(a, b);
}
KERNEL(lm_head_f32)
{
    lm_head(a, b);
}
