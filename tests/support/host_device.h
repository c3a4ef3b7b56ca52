/* host_device.h - the calls of a StepRunner around a function that makes logits: takes over tokens that the step before
 * picked, picks by the definition of op sample, and keeps what was picked until it is collected. With `ahead`, a step that
 * fails is found out about when it is collected, as on a device. */
#ifndef METRALE_TESTS_HOST_DEVICE_H
#define METRALE_TESTS_HOST_DEVICE_H
#include "engine/step_runner.h"
#include "sampling/row.h"
#include <stdlib.h>
#include <string.h>

typedef struct HostDevice {
    Status (*run)(void *ctx, const StepInput *step, float *logits, Err *err); /* all tokens of the step are known */
    void *ctx;
    bool ahead;
    uint32_t vocab, outs[MODEL_MAX_FLIGHTS];
    int32_t *tokens;
    float *logits;
    uint64_t *scratch;
    SamplePick *last, *picks[MODEL_MAX_FLIGHTS]; /* last: of the last step with outputs */
    Status status[MODEL_MAX_FLIGHTS];
    Err why[MODEL_MAX_FLIGHTS];
    uint64_t launched, collected;
} HostDevice;

static inline Status host_device_launch(void *ctx, const StepInput *asked, float *logits, Err *err)
{
    HostDevice *d = ctx;
    const size_t at = d->launched % MODEL_MAX_FLIGHTS;
    StepInput step = *asked;

    if (d->launched - d->collected == (d->ahead ? MODEL_MAX_FLIGHTS : 1))
        return err_set(err, ST_INVALID, "too many steps are in flight");
    for (uint32_t r = 0; r < step.rows; r++)
        d->tokens[r] = asked->tokens[r] < 0 ? d->last[-1 - asked->tokens[r]].token : asked->tokens[r];
    for (uint32_t r = 0; r < step.rows; r++) /* of an output that had none; as kernels do it */
        d->tokens[r] = d->tokens[r] < 0 ? 0 : d->tokens[r];
    step.tokens = d->tokens;
    d->status[at] = d->run(d->ctx, &step, d->logits, &d->why[at]);
    if (d->status[at] != ST_OK && !d->ahead)
        return err_set(err, d->status[at], "%s", d->why[at].msg);
    for (uint32_t o = 0; o < step.outs && d->status[at] == ST_OK; o++)
        sampling_row(&step.samples[o], step.edits, step.tokens[step.out_rows[o]], d->logits + (size_t)o * d->vocab,
                     d->vocab, d->scratch, &d->last[o]);
    d->outs[at] = step.outs;
    memcpy(d->picks[at], d->last, step.outs * sizeof *d->last);
    if (logits)
        memcpy(logits, d->logits, (size_t)step.outs * d->vocab * sizeof *logits);
    d->launched++;
    return ST_OK;
}

static inline Status host_device_collect(void *ctx, SamplePick *picks, Err *err)
{
    HostDevice *d = ctx;
    const size_t at = d->collected % MODEL_MAX_FLIGHTS;

    if (d->collected == d->launched)
        return err_set(err, ST_INVALID, "no step is in flight");
    d->collected++;
    if (d->status[at] != ST_OK)
        return err_set(err, d->status[at], "%s", d->why[at].msg);
    memcpy(picks, d->picks[at], d->outs[at] * sizeof *picks);
    return ST_OK;
}

/* Makes the runner, whose bounds are set, call `run`. */
static inline void host_device_init(HostDevice *d, StepRunner *r, bool ahead,
                                    Status (*run)(void *ctx, const StepInput *step, float *logits, Err *err), void *ctx)
{
    *d = (HostDevice){.run = run, .ctx = ctx, .ahead = ahead, .vocab = r->vocab};
    d->tokens = calloc(r->max_rows, sizeof *d->tokens);
    d->logits = calloc(r->max_outs, (size_t)r->vocab * sizeof *d->logits);
    d->scratch = calloc(r->vocab, sizeof *d->scratch);
    d->last = calloc(r->max_outs, sizeof *d->last);
    for (int f = 0; f < MODEL_MAX_FLIGHTS; f++)
        d->picks[f] = calloc(r->max_outs, sizeof *d->last);
    if (!d->tokens || !d->logits || !d->scratch || !d->last || !d->picks[0] || !d->picks[1])
        abort();
    r->launch = host_device_launch;
    r->collect = host_device_collect;
    r->ahead = ahead;
    r->ctx = d;
}

static inline void host_device_release(HostDevice *d)
{
    free(d->tokens);
    free(d->logits);
    free(d->scratch);
    free(d->last);
    for (int f = 0; f < MODEL_MAX_FLIGHTS; f++)
        free(d->picks[f]);
}
#endif
