/* plans.c - see plans.h. */
#include "cli/plans.h"

Status plan_set_lower(PlanSet *out, const Instance *in, const FamilySet *fs, const ModelOptions *opt, Err *err)
{
    StepShape shapes[MODEL_MAX_PLANS];
    const uint32_t n = model_shapes(opt, shapes, MODEL_MAX_PLANS);
    Status st = ST_OK;

    *out = (PlanSet){.n = 0};
    for (uint32_t i = 0; i < n; i++) {
        LowerOptions lo = {.shape = shapes[i], .batch_invariant = opt->batch_invariant, .levers = opt->levers};
        Plan *plan = NULL;
        TRY(plan_lower(&plan, in, fs, &lo, err));
        out->plans[out->n++] = plan;
    }
done:
    if (st != ST_OK)
        plan_set_release(out);
    return st;
}

Status plan_set_memory(MemoryPlan *out, const PlanSet *set, const ModelOptions *opt, Err *err)
{
    const uint64_t memory = (uint64_t)set->plans[0]->families->facts.memory;
    uint32_t blocks = opt->kv_blocks;
    Status st = blocks ? ST_OK : memory_fit(&blocks, set->plans, set->n, memory, memory, err);

    return st == ST_OK ? memory_predict(out, set->plans, set->n, blocks, err) : st;
}

void plan_set_release(PlanSet *set)
{
    for (uint32_t i = 0; i < set->n; i++)
        plan_free((Plan *)(uintptr_t)set->plans[i]);
    *set = (PlanSet){.n = 0};
}
