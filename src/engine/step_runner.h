/* step_runner.h - what the engine needs of a model: bounds, and calls that launch a step and collect what it picked. engine_new makes one of a
 * Model; tests give their own and so script the logits.
 * Owns: nothing.   Thread: both are called by the engine thread only. */
#ifndef METRALE_ENGINE_STEP_RUNNER_H
#define METRALE_ENGINE_STEP_RUNNER_H
#include "circuit/plan.h"
#include "engine/engine.h"

typedef struct StepRunner {
    /* As model_launch and model_collect. */
    Status (*launch)(void *ctx, const StepInput *step, float *logits, Err *err);
    Status (*collect)(void *ctx, SamplePick *picks, Err *err);
    bool ahead; /* as model_runs_ahead: a step is launched before the one in front of it is collected */
    const char *(*lost)(void *ctx); /* as model_lost; NULL: never */
    void *ctx;
    uint32_t max_rows, max_outs, max_seqs, max_len, kv_blocks; /* as ModelOptions */
    uint32_t vocab;
    /* The KV groups behind slots and block_table. n_groups 0: one that keeps all tokens, in kv_blocks blocks. */
    KvGroup groups[KV_MAX_GROUPS];
    uint32_t n_groups;
} StepRunner;

/* engine_new over any runner (copied). engine_model() of such an engine is NULL. */
Status engine_new_with_runner(Engine **out, const StepRunner *runner, Clock *clock, const EngineOptions *opt,
                              const Log *log, Err *err);
#endif
