/* binding.h - from a weight slot's rows to the rows of its stored tensor, and the op's parameters by name. Shared by the loader and the reference. */
#ifndef METRALE_MODEL_BINDING_H
#define METRALE_MODEL_BINDING_H
#include "circuit/instance.h"

/* Stored row (of a vector: element) of row r of a slot, or of row r of one of its experts, neox order; counted in the
 * tensor, with experts in that expert's part of it. */
static inline uint64_t binding_row(const InstanceBinding *b, uint64_t r)
{
    if (b->order == ROWS_ROPE_INTERLEAVED) {
        uint64_t i = r % b->head_dim, half = b->head_dim / 2;
        r = r - i + (i < half ? 2 * i : 2 * (i - half) + 1);
    }
    return b->row + r * (b->step > 1 ? b->step : 1);
}

/* The experts of a weight; 1 for a plain one. */
static inline uint32_t weight_experts(const InstanceWeight *w)
{
    return w->experts ? w->experts : 1;
}

/* Rows (of a vector: elements) of one expert; of a plain weight all. */
static inline uint64_t weight_rows(const InstanceWeight *w)
{
    return (w->vector ? w->k : w->n) / weight_experts(w);
}

/* The tensor that holds expert e, and the first row of that expert's part of it. */
static inline const char *binding_tensor(const InstanceBinding *b, const InstanceWeight *w, uint32_t e, uint64_t *base)
{
    *base = b->tensors ? 0 : e * (b->of ? b->of : weight_rows(w));
    return b->tensors ? b->tensors[e] : b->tensor;
}

static inline double node_param(const InstanceNode *node, const char *name)
{
    int i = op_param(node->op, name);
    return i < 0 ? 0.0 : node->param[i];
}
#endif
