/* memory.h - every byte that a model takes on its device, predicted from plans alone. model_new allocates exactly this
 * and refuses to start otherwise. Pure; no device, no store bytes.   Thread: any. */
#ifndef METRALE_MODEL_MEMORY_H
#define METRALE_MODEL_MEMORY_H
#include "circuit/plan.h"
#include "core/arena.h"

typedef struct MemoryLine {
    const char *what; /* "weights n16", "weights f32", "kv cache", "activations", "rope tables", "step inputs" */
    uint64_t bytes;
} MemoryLine;

typedef struct MemoryPlan {
    uint64_t weights, kv, activations, tables, inputs, total; /* bytes */
    uint64_t kv_block_bytes;                                  /* of one block of 16 tokens over all layers */
    uint64_t converted;                                       /* weight bytes whose format is widened at load */
} MemoryPlan;

/* plans: all plans of the model (decode rungs and extend), same instance. */
Status memory_predict(MemoryPlan *out, const Plan *const *plans, size_t n_plans, uint32_t kv_blocks, Err *err);
#endif
