/* Products of f32 matrices with the experts that a router chose; expert_linear.h has both walks. */
#define WEIGHT 0
#include "linear_float.h"

#include "expert_linear.h"

KERNEL(expert_pair_f32)
{
    expert_by_pair(a, b);
}
KERNEL(expert_rows_f32)
{
    expert_by_expert(a, b);
}
