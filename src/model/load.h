/* load.h - which bytes each weight slot needs on the device, in what layout, and how they get there.
 * A tensor that several slots read in one layout (a tied embedding) is placed once.
 *
 * Owns: the list (one arena).   Not: device memory, the store.   Thread: one caller. */
#ifndef METRALE_MODEL_LOAD_H
#define METRALE_MODEL_LOAD_H
#include "circuit/plan.h"
#include "core/arena.h"
#include "gpu/gpu.h"
#include "weights/layout.h"
#include "weights/store.h"

typedef struct LoadPlace {
    const InstanceBinding *binding;
    const InstanceWeight *weight;
    WeightLayout layout;
    uint64_t offset, bytes; /* in the weights' allocation; offset 256-byte aligned */
} LoadPlace;

typedef struct LoadPlan {
    const LoadPlace *places;
    uint32_t n_places;
    const uint32_t *stem,
        *head, *const *layers; /* place of each slot: [slot], [layer][slot]; UINT32_MAX: no kernel reads it */
    uint64_t bytes;            /* of the allocation */
    uint64_t converted;        /* of these, bytes of weights that are widened at load */
    Arena *arena;
} LoadPlan;

/* Device bytes of a slot: experts one behind the other, each laid out for itself; a vector is one row, over all experts.
 * False when the layout does not take it. */
bool load_bytes(WeightLayout layout, const InstanceWeight *w, uint64_t *bytes);

/* All plans of one model must ask for the same layouts. */
Status load_plan_new(LoadPlan **out, const Plan *const *plans, size_t n_plans, Err *err);
void load_plan_free(LoadPlan *lp);
/* Reads every place's rows and writes them, laid out, at weights.ptr + offset, by as many threads as there are
 * CPUs, up to 16. Each has at most 24 MiB of staging, and one expert's matrix where columns must be turned. A value that is not
 * finite is refused with its tensor and row. gpu NULL: everything is read and checked, and goes nowhere. */
Status load_run(const LoadPlan *lp, WeightStore *store, GpuBackend *gpu, GpuBuf weights, Err *err);
#endif
