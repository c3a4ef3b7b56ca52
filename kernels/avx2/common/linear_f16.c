/* The families that read f16 matrices. linear_float.h has the product, tile.h the ops around it, embed.h the table look-up. */
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
KERNEL(linear_add_f16)
{
    linear_add(a, b);
}
KERNEL(linear_3_f16)
{
    linear_3(a, b);
}
KERNEL(linear_gate_f16)
{
    linear_gate(END_GATE, a, b);
}
KERNEL(lm_head_f16)
{
    lm_head(a, b);
}
