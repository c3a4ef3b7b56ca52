/* The families that read iq4_nl matrices. cell.h has the product, tile.h the ops around it.
 *   w = d * value[q] */
#define BLOCK_K    32
#define HEAD_BYTES 0
#define CELL_BYTES (32 + 256)
#define TOP        127
#define ZERO       0
#define HALVES     0
#define MINIMA     0
#include "cell.h"
#include "iq4.h"

INLINE w64 cell_codes(const uint8_t *cell, const int g)
{
    return w_lookup(IQ4_VALUES, plane_nibbles(cell + 32, g));
}

INLINE Scales cell_scales(const uint8_t *head, const uint8_t *cell)
{
    (void)head;
    return (Scales){.d = v_load_f16((const uint16_t *)cell)};
}

#include "expert_linear.h"

KERNEL(embed_iq4_nl)
{
    embed(a, b);
}
KERNEL(linear_iq4_nl)
{
    linear(a, b);
}
KERNEL(linear_add_iq4_nl)
{
    linear_add(a, b);
}
KERNEL(linear_3_iq4_nl)
{
    linear_3(a, b);
}
KERNEL(linear_gate_iq4_nl)
{
    linear_gate(END_GATE_I8, a, b);
}
KERNEL(lm_head_iq4_nl)
{
    lm_head(a, b);
}
KERNEL(expert_pair_iq4_nl)
{
    expert_by_pair(a, b);
}
KERNEL(expert_rows_iq4_nl)
{
    expert_by_expert(a, b);
}
