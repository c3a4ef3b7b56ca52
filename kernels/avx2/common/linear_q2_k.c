/* The families that read q2_k matrices. cell.h has the product, tile.h the ops around it.
 *   w = d * s * q - dmin * u; s and u in one byte for 16 k */
#define BLOCK_K    256
#define HEAD_BYTES 64
#define CELL_BYTES (32 + 128)
#define TOP        3
#define ZERO       0
#define HALVES     1
#define MINIMA     -1
#include "cell.h"

INLINE w64 cell_codes(const uint8_t *cell, const int g)
{
    return plane_pairs(cell + 32, g, 0);
}

INLINE Scales cell_scales(const uint8_t *head, const uint8_t *cell)
{
    return (Scales){.d = v_load_f16((const uint16_t *)head),
                    .m = v_load_f16((const uint16_t *)(head + 32)),
                    .s = {v_load_low4(cell), v_load_low4(cell + 16)},
                    .u = {v_load_high4(cell), v_load_high4(cell + 16)}};
}

#include "expert_linear.h"

KERNEL(embed_q2_k)
{
    embed(a, b);
}
KERNEL(linear_q2_k)
{
    linear(a, b);
}
KERNEL(linear_add_q2_k)
{
    linear_add(a, b);
}
KERNEL(linear_3_q2_k)
{
    linear_3(a, b);
}
KERNEL(linear_gate_q2_k)
{
    linear_gate(END_GATE_I8, a, b);
}
KERNEL(lm_head_q2_k)
{
    lm_head(a, b);
}
KERNEL(expert_pair_q2_k)
{
    expert_by_pair(a, b);
}
KERNEL(expert_rows_q2_k)
{
    expert_by_expert(a, b);
}
