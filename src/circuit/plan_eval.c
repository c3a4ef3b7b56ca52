/* plan_eval.c - expressions of a step for concrete rows, outs and seqs. Called some ten times for each launch, so the
 * look-up is a scan over the few names that the step's expressions have. Also the names of the step's tables. */
#include "circuit/lowering.h"
#include <string.h>

typedef struct StepValues {
    const PlanScope *scope;
    int64_t rows, outs, seqs;
} StepValues;

static bool lookup_step(void *ctx, const char *name, int64_t *out)
{
    const StepValues *v = ctx;

    for (uint32_t i = 0; i < v->scope->n; i++)
        if (strcmp(v->scope->names[i], name) == 0) {
            *out = v->scope->values[i];
            return true;
        }
    if (strcmp(name, "rows") == 0)
        *out = v->rows;
    else if (strcmp(name, "outs") == 0)
        *out = v->outs;
    else if (strcmp(name, "seqs") == 0)
        *out = v->seqs;
    else
        return false;
    return true;
}

Status plan_eval(const PlanStep *s, const Expr *e, uint32_t rows, uint32_t outs, uint32_t seqs, int64_t *out, Err *err)
{
    StepValues v = {.scope = s->scope, .rows = rows, .outs = outs, .seqs = seqs};

    return expr_eval(e, lookup_step, &v, out, err);
}

const char *step_table_name(StepTable t)
{
    static const char *const names[STEP_TABLES] = {"tokens",    "positions",   "slots",    "row_seq",
                                                   "seq_start", "block_table", "out_rows", "state_slots",
                                                   "samples",   "edits",       "picks"};

    return names[t];
}
