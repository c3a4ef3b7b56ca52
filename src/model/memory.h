/* memory.h - every byte that a model takes on its device, predicted from plans alone. model_new allocates exactly this
 * and refuses to start otherwise. Pure; no device, no store bytes.   Thread: any. */
#ifndef METRALE_MODEL_MEMORY_H
#define METRALE_MODEL_MEMORY_H
#include "circuit/plan.h"
#include "core/arena.h"

typedef struct MemoryPlan {
    uint64_t weights, kv, states, activations, tables, inputs, total; /* bytes; states: of sequences */
    uint64_t kv_block_bytes;                                          /* of one block of 16 tokens over all layers */
    uint64_t state_bytes;                                             /* of one sequence over all layers */
    uint64_t converted;                                               /* weight bytes whose format is widened at load */
} MemoryPlan;

/* plans: all plans of the model (decode rungs and extend), same instance. */
Status memory_predict(MemoryPlan *out, const Plan *const *plans, size_t n_plans, uint32_t kv_blocks, Err *err);

/* GPU classes run a decode step as the graph of its rung, which always has the rung's rows. Rows of nobody then fill it up,
 * and they have a KV block (number kv_blocks) and a state slot (number max_seqs) of their own behind the others. */
uint32_t memory_padding(const Plan *p); /* 1 or 0: how many of each */

/* The pieces, each rounded up to its alignment; model_new lays memory out with the same functions. */
uint64_t memory_input_bytes(const StepShape *shape, StepTable t);
/* Where each table of a step of this shape is, the block table last; the end is returned. */
uint64_t memory_input_places(const StepShape *shape, uint64_t at[STEP_TABLES]);
/* count: blocks of a paged state, slots of a recurrent one; there is a slot for each sequence of the widest step. */
Status memory_state_bytes(const InstanceState *s, uint32_t part, uint32_t count, uint64_t *bytes, Err *err);
uint64_t memory_rope_bytes(const RopeSpec *r, uint32_t max_len);

static inline uint32_t shape_max_blocks(const StepShape *s)
{
    return (s->max_len + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}
/* Grows a to hold b, too. */
static inline void shape_widen(StepShape *a, const StepShape *b)
{
    a->max_rows = a->max_rows > b->max_rows ? a->max_rows : b->max_rows;
    a->max_seqs = a->max_seqs > b->max_seqs ? a->max_seqs : b->max_seqs;
    a->max_outs = a->max_outs > b->max_outs ? a->max_outs : b->max_outs;
    a->max_len = a->max_len > b->max_len ? a->max_len : b->max_len;
}
#endif
