/* model_parts.h - the inside of a Model, for the files of this room that run its launches: model.c and launch_times.c.
 * Owns, thread: as model.h. */
#ifndef METRALE_MODEL_MODEL_PARTS_H
#define METRALE_MODEL_MODEL_PARTS_H
#include "model/load.h"
#include "model/model.h"

/* One resolved launch. Its arguments are n_args slots of the plan's pool. */
typedef struct BoundLaunch {
    const PlanStep *step;
    GpuKernel *kernel;
    GpuLaunch launch;
    bool skip; /* nothing to do at these counts */
} BoundLaunch;

typedef struct BoundPlan {
    Plan *plan;
    BoundLaunch *launches; /* stem, then each layer, then head */
    uint32_t n_launches, head_at;
    KArg *args;
    uint32_t rows, outs, seqs; /* the counts it is bound for; rows 0: none yet */
    uint64_t input_at[STEP_TABLES];
    GpuGraph *graph; /* of a decode rung; NULL: launched one by one */
} BoundPlan;

/* A step that was launched and not collected. */
typedef struct Flight {
    GpuEvent *done;
    uint32_t outs; /* whose picks come back */
} Flight;

struct Model {
    const Instance *in;
    GpuBackend *gpu;
    ModelOptions opt;
    StepShape widest;
    MemoryPlan memory;
    LoadPlan *load;
    GpuBuf weights, kv, arena, tables, inputs; /* kv: paged and recurrent states */
    uint64_t *state_at[4];                     /* [part][state]: offset in kv */
    uint64_t *rope_at;                         /* [rope]: offset in tables */
    GpuBuf exchange;                           /* picks, then edits */
    uint64_t edits_at;
    /* Of each flight: where its tables are put together, then as exchange; pinned where the device has such memory. */
    uint8_t *host[MODEL_MAX_FLIGHTS];
    Flight flights[MODEL_MAX_FLIGHTS];
    uint64_t launched, collected;
    uint32_t n_picks;                 /* of the last step that picked: what a row's token may be taken from */
    BoundPlan plans[MODEL_MAX_PLANS]; /* decode rungs, ascending; then extend */
    uint32_t n_plans;
    uint32_t vocab;
    ModelTimes times;
    bool recurrent; /* some state is kept for each sequence */
};

/* Chooses the plan of a step, checks its tables, binds its counts and puts the tables on the device: what comes before
 * the launches. */
Status model_prepare(Model *m, const StepInput *step, BoundPlan **out, Err *err);
/* Queues launches [first, end) of a bound plan. */
Status model_queue(Model *m, const BoundPlan *bp, uint32_t first, uint32_t end, Err *err);
#endif
