/* Products of q4_0 matrices with the experts that a router chose; expert_linear.h has both walks. */
#define WEIGHT 4
#include "linear_quant.h"

#include "expert_linear.h"

KERNEL(expert_pair_q4_0)
{
    expert_by_pair(a, b);
}
KERNEL(expert_rows_q4_0)
{
    expert_by_expert(a, b);
}
