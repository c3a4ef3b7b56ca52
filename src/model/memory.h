/* memory.h - every byte that a model takes on its device, predicted from plans alone. model_new allocates exactly this
 * and refuses to start otherwise. Pure; no device, no store bytes.   Thread: any. */
#ifndef METRALE_MODEL_MEMORY_H
#define METRALE_MODEL_MEMORY_H
#include "circuit/plan.h"
#include "core/arena.h"

typedef struct MemoryPlan {
    uint64_t weights, kv, states, activations, tables, inputs, total; /* bytes; states: of sequences */
    KvGroup groups[KV_MAX_GROUPS]; /* as Instance.kv_windows, with the blocks of each one's pool */
    uint32_t n_groups;
    uint64_t group_bytes[KV_MAX_GROUPS]; /* of one block of 16 tokens over the group's layers */
    uint64_t kv_block_bytes;             /* the sum of these: of one block over all layers */
    uint64_t state_bytes;                /* of one sequence over all layers */
    uint64_t converted;                  /* weight bytes whose format is widened at load */
} MemoryPlan;

/* plans: all plans of the model (decode rungs and extend), same instance. kv_blocks: of a group without a window; one
 * with a window has a smaller pool where that holds all that the step's sequences and rows can need. */
Status memory_predict(MemoryPlan *out, const Plan *const *plans, size_t n_plans, uint32_t kv_blocks, Err *err);

/* The most kv_blocks with which memory_predict's total stays within `free` bytes less a margin: a twentieth of `total` and
 * 1 GiB, for the device's own code and graphs, and for the next process. No more than the widest step's sequences
 * can use at their full length. ST_DEVMEM when not one block fits. */
Status memory_fit(uint32_t *kv_blocks, const Plan *const *plans, size_t n_plans, uint64_t free, uint64_t total,
                  Err *err);

/* GPU classes run a decode step as the graph of its rung, which always has the rung's rows. Rows of nobody then fill it up,
 * and they have a KV block in each group (number KvGroup.blocks) and a state slot (number max_seqs) of their own behind the others. */
uint32_t memory_padding(const Plan *p); /* 1 or 0: how many of each */

/* The pieces, each rounded up to its alignment; model_new lays memory out with the same functions. */
void memory_groups(const Instance *in, const StepShape *widest, uint32_t kv_blocks, KvGroup out[KV_MAX_GROUPS]);
/* Of one group, where each has such a table; 0 for edits and picks. */
uint64_t memory_input_bytes(const StepShape *shape, StepTable t);
/* Where each table of a step of this shape is (of one that each group has: the first group's, the others follow), the block tables
 * last; the end is returned. */
uint64_t memory_input_places(const StepShape *shape, uint32_t groups, uint64_t at[STEP_TABLES]);
/* What all plans share beside them, since one step's picks are the next one's tokens: picks, then edits from *edits_at on. */
uint64_t memory_exchange_bytes(const StepShape *widest, uint32_t vocab, uint64_t *edits_at);
/* count: blocks of a paged state, slots of a recurrent one; there is a slot for each sequence of the widest step. */
Status memory_state_bytes(const InstanceState *s, uint32_t part, uint32_t count, uint64_t *bytes, Err *err);
uint64_t memory_rope_bytes(const RopeSpec *r, uint32_t max_len);

static inline uint32_t shape_max_blocks(const StepShape *s)
{
    return kv_group_blocks(s->max_len);
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
