/* entries.h - the entry points of a weight format, FORMAT: OP_FORMAT for each op of tile.h and expert_linear.h. The source has
 * included the product before, and says as GATE in which format gated rows go on. */
#include "expert_linear.h"

#define ENTRY_PASTE_(op, format) op##_##format
#define ENTRY_PASTE(op, format)  ENTRY_PASTE_(op, format)
#define ENTRY(op)                ENTRY_PASTE(op, FORMAT)

KERNEL(ENTRY(linear))
{
    linear(a, b);
}
KERNEL(ENTRY(linear_add))
{
    linear_add(a, b);
}
KERNEL(ENTRY(linear_3))
{
    linear_3(a, b);
}
KERNEL(ENTRY(linear_gate))
{
    linear_gate(GATE, a, b);
}
KERNEL(ENTRY(lm_head))
{
    lm_head(a, b);
}
KERNEL(ENTRY(expert_pair))
{
    expert_by_pair(a, b);
}
KERNEL(ENTRY(expert_rows))
{
    expert_by_expert(a, b);
}
