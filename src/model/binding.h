/* binding.h - from a weight slot's rows to the rows of its stored tensor, and the op's parameters by name. Shared by the loader and the reference. */
#ifndef METRALE_MODEL_BINDING_H
#define METRALE_MODEL_BINDING_H
#include "circuit/instance.h"

/* Stored row of the slot's row r (neox order). */
static inline uint64_t binding_row(const InstanceBinding *b, uint64_t r)
{
    if (b->order == ROWS_ROPE_INTERLEAVED) {
        uint64_t i = r % b->head_dim, half = b->head_dim / 2;
        r = r - i + (i < half ? 2 * i : 2 * (i - half) + 1);
    }
    return b->row + r;
}

static inline double node_param(const InstanceNode *node, const char *name)
{
    int i = op_param(node->op, name);
    return i < 0 ? 0.0 : node->param[i];
}
#endif
