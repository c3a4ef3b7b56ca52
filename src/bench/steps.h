/* steps.h - the launches of a plan, timed one kind at a time (model/launch_times.h), each beside what it moves and computes.
 * A step of equal sequences is made up; its tokens are random, its sequences' KV is made up too.
 * Owns: nothing.   Thread: the engine thread; no engine on the model may have sequences. */
#ifndef METRALE_BENCH_STEPS_H
#define METRALE_BENCH_STEPS_H
#include "bench/traffic.h"
#include "model/launch_times.h"

/* Times the plan of such a step: of one row each, the decode rung, else extend. ST_INVALID when the model's bounds are less. */
Status bench_steps(StepTimes *out, Model *m, const StepLoad *load, uint32_t rounds, Err *err);
#endif
