/* Products of bf16 matrices with the experts that a router chose; expert_linear.h has both walks. */
#define WEIGHT 2
#include "linear_float.h"

#include "expert_linear.h"

KERNEL(expert_pair_bf16)
{
    expert_by_pair(a, b);
}
KERNEL(expert_rows_bf16)
{
    expert_by_expert(a, b);
}
