/* The families that read mxfp4 matrices. cell.h has the product, tile.h the ops around it.
 *   w = 2^(e - 127) * e2m1(q), as 2^(e - 128) * (twice e2m1 + 12 - 12) */
#define BLOCK_K    32
#define HEAD_BYTES 0
#define CELL_BYTES (16 + 256)
#define TOP        31
#define ZERO       12
#define HALVES     0
#define MINIMA     0
#include "cell.h"

static const int8_t E2M1_TWICE_12[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

INLINE w64 cell_codes(const uint8_t *cell, const int g)
{
    return w_lookup(E2M1_TWICE_12, plane_nibbles(cell + 16, g));
}

INLINE Scales cell_scales(const uint8_t *head, const uint8_t *cell)
{
    (void)head;
    return (Scales){.d = v_load_e8m0(cell)};
}

#include "expert_linear.h"

KERNEL(embed_mxfp4)
{
    embed(a, b);
}
KERNEL(linear_mxfp4)
{
    linear(a, b);
}
KERNEL(linear_add_mxfp4)
{
    linear_add(a, b);
}
KERNEL(linear_3_mxfp4)
{
    linear_3(a, b);
}
KERNEL(linear_gate_mxfp4)
{
    linear_gate(END_GATE_I8, a, b);
}
KERNEL(lm_head_mxfp4)
{
    lm_head(a, b);
}
KERNEL(expert_pair_mxfp4)
{
    expert_by_pair(a, b);
}
KERNEL(expert_rows_mxfp4)
{
    expert_by_expert(a, b);
}
