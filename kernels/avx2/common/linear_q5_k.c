/* The families that read q5_k matrices. cell.h has the product, tile.h the ops around it.
 *   w = d * s * q - dmin * u; s and u for 32 k */
#define BLOCK_K    256
#define HEAD_BYTES 64
#define CELL_BYTES (32 + 64 + 256)
#define TOP        31
#define ZERO       0
#define HALVES     0
#define MINIMA     -1
#include "cell.h"

INLINE w64 cell_codes(const uint8_t *cell, const int g)
{
    return w_or(plane_nibbles(cell + 96, g), plane_bits(cell + 32, g, 4));
}

INLINE Scales cell_scales(const uint8_t *head, const uint8_t *cell)
{
    return (Scales){.d = v_mul(v_load_f16((const uint16_t *)head), v_load_u8(cell)),
                    .m = v_mul(v_load_f16((const uint16_t *)(head + 32)), v_load_u8(cell + 16))};
}

#include "expert_linear.h"

KERNEL(embed_q5_k)
{
    embed(a, b);
}
KERNEL(linear_q5_k)
{
    linear(a, b);
}
KERNEL(linear_add_q5_k)
{
    linear_add(a, b);
}
KERNEL(linear_3_q5_k)
{
    linear_3(a, b);
}
KERNEL(linear_gate_q5_k)
{
    linear_gate(END_GATE_I8, a, b);
}
KERNEL(lm_head_q5_k)
{
    lm_head(a, b);
}
KERNEL(expert_pair_q5_k)
{
    expert_by_pair(a, b);
}
KERNEL(expert_rows_q5_k)
{
    expert_by_expert(a, b);
}
