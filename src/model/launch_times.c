/* launch_times.c - see launch_times.h.
 *
 * A launch is not timed on what the one before it in the list happened to leave behind: before each group the plan runs
 * from its start up to the group's first launch, so that ids and other indexes in the activations are what the kernel may follow.
 * Launches of a group share their activations. Those that write over their input change its values round by round, which
 * costs the same time.
 *
 * KV that no step has written would be whatever the memory held. It is filled with a byte whose repetition is a small normal
 * number in f16, bf16 and f32. */
#include "model/launch_times.h"
#include "model/model_parts.h"
#include <stdlib.h>
#include <string.h>

/* Starting a graph and the events around it take some microseconds: launches are repeated until a span is SPAN_NS long. Longer
 * ones than ENOUGH_NS are measured FEW times only. */
enum { SPAN_NS = 1000 * 1000, MOST_LAUNCHES = 4096, FEW = 3, ENOUGH_NS = 40 * 1000 * 1000, KV_BYTE = 0x3c };

typedef struct Group {
    const BoundLaunch **launch;
    uint32_t n;
} Group;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static Status launch_group(Model *m, const Group *g, uint32_t times, Err *err)
{
    Status st = ST_OK;

    for (uint32_t t = 0; t < times; t++)
        for (uint32_t i = 0; i < g->n; i++)
            TRY(gpu_launch(m->gpu, g->launch[i]->kernel, &g->launch[i]->launch, err));
done:
    return st;
}

static Status record_group(Model *m, const Group *g, uint32_t times, GpuGraph **out, Err *err)
{
    Status st = gpu_graph_begin(m->gpu, err), ended;
    Err ignored;

    if (st != ST_OK)
        return st;
    st = launch_group(m, g, times, err);
    ended = gpu_graph_end(m->gpu, out, st == ST_OK ? err : &ignored);
    return st == ST_OK ? ended : st;
}

static Status time_once(Model *m, const Group *g, GpuGraph *graph, uint32_t times, uint64_t *ns, Err *err)
{
    GpuEvent *begin = NULL, *end = NULL;
    Status st = ST_OK;

    TRY(gpu_event_record(m->gpu, &begin, err));
    TRY(graph ? gpu_graph_launch(m->gpu, graph, err) : launch_group(m, g, times, err));
    TRY(gpu_event_record(m->gpu, &end, err));
    TRY(gpu_sync(m->gpu, err));
    TRY(gpu_event_elapsed_ns(m->gpu, begin, end, ns, err));
done:
    gpu_event_free(m->gpu, begin);
    gpu_event_free(m->gpu, end);
    return st;
}

/* Median, least and most time of the whole group, in us. */
static Status time_group(Model *m, const Group *g, uint64_t span_ns, uint32_t rounds, double us[3], Err *err)
{
    double *each = calloc(rounds, sizeof *each);
    GpuGraph *graph = NULL;
    uint64_t ns = 0, sum = 0;
    uint32_t n = 0, times = 1;
    Status st = ST_OK;

    if (each == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the times of %u rounds", rounds);
    TRY(time_once(m, g, NULL, 1, &ns, err)); /* clocks, and pages that nobody has touched */
    TRY(time_once(m, g, NULL, 1, &ns, err));
    while (ns * times < span_ns && times * g->n < MOST_LAUNCHES)
        times *= 2;
    if (gpu_has_graphs(m->gpu) && !m->opt.eager) {
        TRY(record_group(m, g, times, &graph, err));
        TRY(time_once(m, g, graph, times, &ns, err)); /* not counted */
    }
    for (; n < rounds && (n < FEW || sum < ENOUGH_NS); n++) {
        TRY(time_once(m, g, graph, times, &ns, err));
        each[n] = (double)ns * 1e-3 / times;
        sum += ns;
    }
    qsort(each, n, sizeof *each, by_value);
    us[0] = each[n / 2];
    us[1] = each[0];
    us[2] = each[n - 1];
done:
    gpu_graph_free(m->gpu, graph);
    free(each);
    return st;
}

/* The launches of step i of a block; `first` is the first one's place in the plan's list. */
static void collect(const BoundPlan *bp, const PlanBlock *b, uint32_t i, Group *g, uint32_t *first)
{
    const PlanStep *s = &b->steps[i];

    g->n = 0;
    for (uint32_t l = 0; l < bp->n_launches; l++)
        if (bp->launches[l].step == s && !bp->launches[l].skip) {
            *first = g->n == 0 ? l : *first;
            g->launch[g->n++] = &bp->launches[l];
        }
}

static Status time_block(StepTimes *out, Model *m, const BoundPlan *bp, const PlanBlock *b, Group *g, Err *err)
{
    Status st = ST_OK;
    uint32_t first = 0;
    double us[3];

    for (uint32_t i = 0; i < b->n_steps; i++) {
        collect(bp, b, i, g, &first);
        if (g->n == 0)
            continue;
        TRY(model_queue(m, bp, 0, first, err));
        TRY(time_group(m, g, SPAN_NS, out->rounds, us, err));
        out->launch[out->n++] = (LaunchTime){.block = b,
                                             .step = &b->steps[i],
                                             .launches = g->n,
                                             .us = us[0] / g->n,
                                             .us_min = us[1] / g->n,
                                             .us_max = us[2] / g->n};
    }
done:
    return st;
}

/* Everything in its order. */
static Status time_step(StepTimes *out, Model *m, const BoundPlan *bp, Group *g, uint32_t end, Err *err)
{
    double us[3];
    Status st;

    g->n = 0;
    for (uint32_t l = 0; l < end; l++)
        if (!bp->launches[l].skip)
            g->launch[g->n++] = &bp->launches[l];
    st = time_group(m, g, 0, out->rounds, us, err); /* as it runs: one graph */
    out->step_us = us[0];
    out->step_us_min = us[1];
    out->step_us_max = us[2];
    return st;
}

Status model_time_launches(StepTimes *out, Model *m, const StepInput *step, uint32_t rounds, Err *err)
{
    Status st = ST_OK;
    BoundPlan *bp = NULL;
    Group g = {0};
    uint32_t n, end;

    *out = (StepTimes){.rounds = rounds};
    TRY(gpu_mem_set(m->gpu, m->kv.ptr, KV_BYTE, m->kv.bytes, err));
    TRY(model_prepare(m, step, &bp, err));
    out->plan = bp->plan;
    n = bp->plan->stem.n_steps + bp->plan->head.n_steps;
    for (uint32_t b = 0; b < m->in->n_blocks; b++)
        n += bp->plan->blocks[b].n_steps;
    out->launch = calloc(n + 1u, sizeof *out->launch);
    g.launch = calloc(bp->n_launches + 1u, sizeof *g.launch);
    if (out->launch == NULL || g.launch == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for the times of %u launches", bp->n_launches));
    end = step->outs ? bp->n_launches : bp->head_at;
    TRY(time_step(out, m, bp, &g, end, err));
    TRY(time_block(out, m, bp, &bp->plan->stem, &g, err));
    for (uint32_t b = 0; b < m->in->n_blocks; b++)
        TRY(time_block(out, m, bp, &bp->plan->blocks[b], &g, err));
    if (step->outs)
        TRY(time_block(out, m, bp, &bp->plan->head, &g, err));
    TRY(gpu_sync(m->gpu, err));
done:
    free(g.launch);
    if (st != ST_OK)
        step_times_release(out);
    return st;
}

void step_times_release(StepTimes *t)
{
    free(t->launch);
    *t = (StepTimes){0};
}
