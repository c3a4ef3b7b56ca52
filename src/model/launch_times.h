/* launch_times.h - how long each launch of a plan takes on its device, alone: what kernels are tuned by.
 *
 * A plan launches a step of a block once in each layer that has the block. These launches are timed together, one behind the other, each
 * with its own layer's weights and states, so that no launch finds its weights in a cache unless all layers fit there, as
 * in a real step. A device with graphs gets them as one graph, so that the host's pace does not count.
 *
 * Owns: the list it returns is the caller's (free).   Thread: the engine thread. */
#ifndef METRALE_MODEL_LAUNCH_TIMES_H
#define METRALE_MODEL_LAUNCH_TIMES_H
#include "model/model.h"

typedef struct LaunchTime {
    const PlanBlock *block;
    const PlanStep *step;      /* the plan's */
    uint32_t launches;         /* in one step of the model: one in each layer that has the block */
    double us, us_min, us_max; /* of one launch: median, least and most over the rounds */
} LaunchTime;

typedef struct StepTimes {
    const Plan *plan;
    LaunchTime *launch; /* stem, each distinct block, head; launches that the step's counts leave out are not here */
    uint32_t n;
    double step_us, step_us_min, step_us_max; /* all launches of the step in their order */
    uint32_t rounds;                          /* at most; fewer where a round is long */
} StepTimes;

/* Times the plan that `step` (tables as for model_step) takes. KV and states are overwritten: no sequence of the model lives
 * on. rounds: at least 1. */
Status model_time_launches(StepTimes *out, Model *m, const StepInput *step, uint32_t rounds, Err *err);
void step_times_release(StepTimes *t);
#endif
