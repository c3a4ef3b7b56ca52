/* The families that read q5_1 matrices. cell.h has the product, tile.h the ops around it.
 *   w = d * q + m */
#define BLOCK_K    32
#define HEAD_BYTES 0
#define CELL_BYTES (64 + 64 + 256)
#define TOP        31
#define ZERO       0
#define HALVES     0
#define MINIMA     1
#include "cell.h"

INLINE w64 cell_codes(const uint8_t *cell, const int g)
{
    return w_or(plane_nibbles(cell + 128, g), plane_bits(cell + 64, g, 4));
}

INLINE Scales cell_scales(const uint8_t *head, const uint8_t *cell)
{
    (void)head;
    return (Scales){.d = v_load_f16((const uint16_t *)cell), .m = v_load_f16((const uint16_t *)(cell + 32))};
}

#include "expert_linear.h"

KERNEL(embed_q5_1)
{
    embed(a, b);
}
KERNEL(linear_q5_1)
{
    linear(a, b);
}
KERNEL(linear_add_q5_1)
{
    linear_add(a, b);
}
KERNEL(linear_3_q5_1)
{
    linear_3(a, b);
}
KERNEL(linear_gate_q5_1)
{
    linear_gate(END_GATE_I8, a, b);
}
KERNEL(lm_head_q5_1)
{
    lm_head(a, b);
}
KERNEL(expert_pair_q5_1)
{
    expert_by_pair(a, b);
}
KERNEL(expert_rows_q5_1)
{
    expert_by_expert(a, b);
}
