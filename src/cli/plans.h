/* plans.h - all the plans of a start, made without one: for what is said of a model before it runs.
 * Owns: the plans.   Not: the instance and the families, which must outlive it.   Thread: main. */
#ifndef METRALE_CLI_PLANS_H
#define METRALE_CLI_PLANS_H
#include "circuit/plan.h"
#include "model/model.h"

typedef struct PlanSet {
    const Plan *plans[MODEL_MAX_PLANS]; /* decode rungs, ascending; then extend */
    uint32_t n;
} PlanSet;

/* Lowers in for every shape of opt. On failure *out is empty. */
Status plan_set_lower(PlanSet *out, const Instance *in, const FamilySet *fs, const ModelOptions *opt, Err *err);
/* What a start with opt takes. With kv_blocks 0 the memory that the class has decides, as the device's will at the start. */
Status plan_set_memory(MemoryPlan *out, const PlanSet *set, const ModelOptions *opt, Err *err);
void plan_set_release(PlanSet *set);
#endif
