/* The families that read bf16 matrices. linear_float.h has the product, tile.h the ops around it, embed.h the table look-up. */
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
KERNEL(linear_add_bf16)
{
    linear_add(a, b);
}
KERNEL(linear_3_bf16)
{
    linear_3(a, b);
}
KERNEL(linear_gate_bf16)
{
    linear_gate(END_GATE, a, b);
}
KERNEL(lm_head_bf16)
{
    lm_head(a, b);
}
