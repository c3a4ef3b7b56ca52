/* The families that read f32 matrices. linear_float.h has the product, tile.h the ops around it, embed.h the table look-up. */
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
KERNEL(linear_add_f32)
{
    linear_add(a, b);
}
KERNEL(linear_3_f32)
{
    linear_3(a, b);
}
KERNEL(linear_gate_f32)
{
    linear_gate(END_GATE, a, b);
}
KERNEL(lm_head_f32)
{
    lm_head(a, b);
}
