/* The families that read q6_k matrices. cell.h has the product, tile.h the ops around it.
 *   w = d * s * (q - 32); s for 16 k */
#define BLOCK_K    256
#define HEAD_BYTES 32
#define CELL_BYTES (32 + 128 + 256)
#define TOP        63
#define ZERO       32
#define HALVES     1
#define MINIMA     0
#include "cell.h"

INLINE w64 cell_codes(const uint8_t *cell, const int g)
{
    return w_or(plane_nibbles(cell + 160, g), plane_pairs(cell + 32, g, 4));
}

INLINE Scales cell_scales(const uint8_t *head, const uint8_t *cell)
{
    return (Scales){.d = v_load_f16((const uint16_t *)head), .s = {v_load_i8(cell), v_load_i8(cell + 16)}};
}

#include "expert_linear.h"

KERNEL(embed_q6_k)
{
    embed(a, b);
}
KERNEL(linear_q6_k)
{
    linear(a, b);
}
KERNEL(linear_add_q6_k)
{
    linear_add(a, b);
}
KERNEL(linear_3_q6_k)
{
    linear_3(a, b);
}
KERNEL(linear_gate_q6_k)
{
    linear_gate(END_GATE_I8, a, b);
}
KERNEL(lm_head_q6_k)
{
    lm_head(a, b);
}
KERNEL(expert_pair_q6_k)
{
    expert_by_pair(a, b);
}
KERNEL(expert_rows_q6_k)
{
    expert_by_expert(a, b);
}
