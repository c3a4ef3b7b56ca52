/* The families that read q8_0 matrices. linear_quant.h has the product, tile.h the ops around it, embed.h the table look-up. */
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
KERNEL(linear_add_q8_0)
{
    linear_add(a, b);
}
KERNEL(linear_3_q8_0)
{
    linear_3(a, b);
}
KERNEL(linear_gate_q8_0)
{
    linear_gate(END_GATE_I8, a, b);
}
KERNEL(lm_head_q8_0)
{
    lm_head(a, b);
}
