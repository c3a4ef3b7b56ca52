/* model.h - an instance made ready on a device: plans lowered, weights laid out, buffers and KV pools allocated,
 * kernels resolved. Runs steps.
 *
 * Owns: plans, device memory, resolved launches.   Not: the instance, families, store, backend (all must outlive it).
 * Not: which sequence owns which KV block and which state slot: the caller's tables say so.
 * Thread: the engine thread only. */
#ifndef METRALE_MODEL_MODEL_H
#define METRALE_MODEL_MODEL_H
#include "circuit/plan.h"
#include "core/clock.h"
#include "core/log.h"
#include "gpu/gpu.h"
#include "model/memory.h"
#include "weights/store.h"

typedef struct Model Model;

typedef struct ModelOptions {
    uint32_t max_rows;  /* tokens of the largest extend step */
    uint32_t max_outs;  /* output rows of the largest extend step; logits take 4 * vocab bytes for each */
    uint32_t max_seqs;  /* sequences of one step; decode rungs 1, 2, 4, 8, ... up to this */
    uint32_t max_len;   /* tokens of one sequence */
    uint32_t kv_blocks; /* blocks of 16 tokens in the pool of a KV group; one with a window takes as many or fewer.
                           0: as many as max_seqs sequences of max_len can use and the device's free memory holds */
    bool batch_invariant;
    bool eager;                /* no graphs, also where the device has them */
    const char *const *levers; /* opted-in rules; may be NULL */
    Clock *clock;              /* for model_times; NULL: all are 0 */
} ModelOptions;

/* What a start took: lowering and memory; reading, laying out and uploading the weights; kernels and graphs. */
typedef struct ModelTimes {
    uint64_t plan_ns, load_ns, bind_ns;
} ModelTimes;

/* The step shapes that a model with these options plans: a decode rung for each power of two until one holds all
 * sequences, ascending, then extend. At most n are written; how many there are is returned, at most MODEL_MAX_PLANS. */
enum { MODEL_MAX_PLANS = 16 };
uint32_t model_shapes(const ModelOptions *opt, StepShape *out, uint32_t n);

/* Reads every weight once through the store (bounded staging memory), lays it out, checks predicted = allocated. */
Status model_new(Model **out, const Instance *in, const FamilySet *fs, WeightStore *store, GpuBackend *gpu,
                 const ModelOptions *opt, const Log *log, Err *err);
void model_free(Model *m);

/* Queues one step and returns, on a device that works by itself; else it runs it. Tables of KV groups follow each other as MemoryPlan.groups do. KV of the step's rows is written at step->slots, recurrent states are at step->state_slots, each below
 * max_seqs and of one sequence only; a row at position 0 starts from zeros whatever its slot holds. logits: host memory f32 [outs][vocab], as bias
 * and penalties leave them, valid when the step is collected; NULL when they are not wanted. All tables are checked against the model's bounds (ST_INVALID). A decode step (every sequence one row) takes
 * the smallest rung that holds it; where graphs are, it runs as one, filled up with rows of nobody. */
Status model_launch(Model *m, const StepInput *step, float *logits, Err *err);
/* Waits for the oldest step that was launched; its picks, one for each output, if it had samples. At most MODEL_MAX_FLIGHTS
 * steps may be launched and not collected: one may wait in the queue while the one before it runs. */
enum { MODEL_MAX_FLIGHTS = 2 };
Status model_collect(Model *m, SamplePick *picks, Err *err);
/* Both, for a step without samples. */
Status model_step(Model *m, const StepInput *step, float *logits, Err *err);
/* Does a launch return before the step has run? */
bool model_runs_ahead(const Model *m);

/* NULL while the device works; when it is lost for good, why. Every later step fails. */
const char *model_lost(const Model *m);
const MemoryPlan *model_memory(const Model *m);
const ModelOptions *model_options(const Model *m); /* kv_blocks: what there is */
const ModelTimes *model_times(const Model *m);
uint32_t model_vocab(const Model *m);
/* Tokens that the longest sequence may have: max_len, or what the KV pools hold of it where that is less. */
uint32_t model_max_tokens(const Model *m);
/* Plan used for a decode step of `rows`, or for extend when rows is 0; for reports. */
const Plan *model_plan(const Model *m, uint32_t decode_rows);
/* Bytes of weights that one decode step reads. */
uint64_t model_step_weight_bytes(const Model *m);
#endif
