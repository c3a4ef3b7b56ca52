/* Products of q8_0 matrices with the experts that a router chose; expert_linear.h has both walks. */
#define WEIGHT 3
#include "linear_quant.h"

#include "expert_linear.h"

KERNEL(expert_pair_q8_0)
{
    expert_by_pair(a, b);
}
KERNEL(expert_rows_q8_0)
{
    expert_by_expert(a, b);
}
