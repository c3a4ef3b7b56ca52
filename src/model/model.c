/* model.c - the one forward pass: a plan executor.
 *
 * For each plan every launch of every layer is resolved once at start (kernel handle, pointers). What depends on the step's counts
 * (grids, dynamic integers) is filled in when the counts differ from those of the last step that used the plan: in a decode loop that
 * is never. A step is then: copy the tables in, launch the list, copy the picks out, all of it queued; what waits is collecting.
 * Two steps may be in flight, so each has its own host memory for tables and picks. The device has one of each, since steps run
 * one after the other; its picks outlast the step, because the next one's rows may be told to take their tokens from there.
 *
 * Where the device has graphs, each decode rung is bound for its most rows at start and its list is recorded once. A decode
 * step is then one upload, one graph, one download; rows that it lacks are rows of nobody (memory.h), which touch nothing
 * that is alive.
 *
 * Plans share one activation arena; they never run at the same time. */
#include "model/load.h"
#include "model/model_parts.h"
#include "model/rope_table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_WORDS = sizeof(SampleRow) / sizeof(int32_t) };

/* ---- binding ---------------------------------------------------------------------------------------------------- */

static void *weight_ptr(const Model *m, const uint32_t *places, uint32_t slot)
{
    return (uint8_t *)m->weights.ptr + m->load->places[places[slot]].offset;
}

/* Where a step table is; group: of one that each KV group has, else 0. */
static uint64_t input_place(const BoundPlan *bp, StepTable t, uint32_t group)
{
    return bp->input_at[t] + group * memory_input_bytes(&bp->plan->shape, t);
}

/* The fixed part of a step's arguments for one layer (state_base) whose weights are `places`. */
static void bind_args(const Model *m, const BoundPlan *bp, const PlanStep *s, const uint32_t *places,
                      uint32_t state_base, KArg *out)
{
    for (uint32_t i = 0; i < s->n_args; i++) {
        const PlanArg *a = &s->args[i];
        out[i] = (KArg){.i64 = 0};
        switch (a->kind) {
        case ARG_NULL:
            break;
        case ARG_BUFFER:
            out[i].ptr = (uint8_t *)m->arena.ptr + a->offset;
            break;
        case ARG_WEIGHT:
            out[i].ptr = weight_ptr(m, places, a->index);
            break;
        case ARG_STATE:
            out[i].ptr = (uint8_t *)m->kv.ptr + m->state_at[a->part][state_base + a->index];
            break;
        case ARG_ROPE:
            out[i].ptr = (uint8_t *)m->tables.ptr + m->rope_at[a->index];
            break;
        case ARG_STEP:
            out[i].ptr = a->index == STEP_PICKS   ? m->exchange.ptr
                         : a->index == STEP_EDITS ? (uint8_t *)m->exchange.ptr + m->edits_at
                                                  : (uint8_t *)m->inputs.ptr + input_place(bp, a->index, a->part);
            break;
        case ARG_I32:
        case ARG_EXPR:
            out[i].i32 = a->value;
            break;
        case ARG_F32:
            out[i].f32 = a->fvalue;
            break;
        }
    }
}

static Status bind_block(Model *m, BoundPlan *bp, const PlanBlock *b, const uint32_t *places, uint32_t state_base,
                         KArg **args, Err *err)
{
    Status st = ST_OK;
    for (uint32_t i = 0; i < b->n_steps; i++) {
        const PlanStep *s = &b->steps[i];
        BoundLaunch *l = &bp->launches[bp->n_launches++];
        *l = (BoundLaunch){
            .step = s,
            .launch = {
                .block = {s->point->block, 1, 1}, .n_args = s->n_args, .args = *args, .overlap = s->point->overlap}};
        TRY(gpu_kernel(m->gpu, s->kernel, &l->kernel, err));
        bind_args(m, bp, s, places, state_base, *args);
        *args += s->n_args;
    }
done:
    return st;
}

static Status bind_plan(Model *m, BoundPlan *bp, Err *err)
{
    Status st = ST_OK;
    const Plan *p = bp->plan;
    size_t launches = p->stem.n_steps + p->head.n_steps, n_args = 0;
    const PlanBlock *ends[2] = {&p->stem, &p->head};

    for (int e = 0; e < 2; e++)
        for (uint32_t i = 0; i < ends[e]->n_steps; i++)
            n_args += ends[e]->steps[i].n_args;
    for (uint32_t l = 0; l < m->in->n_layers; l++) {
        const PlanBlock *b = &p->blocks[m->in->layers[l].block];
        launches += b->n_steps;
        for (uint32_t i = 0; i < b->n_steps; i++)
            n_args += b->steps[i].n_args;
    }
    bp->launches = calloc(launches + 1, sizeof *bp->launches);
    bp->args = calloc(n_args + 1, sizeof *bp->args);
    if (bp->launches == NULL || bp->args == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for %zu launches", launches));

    memory_input_places(&p->shape, m->in->n_kv_groups, bp->input_at);
    KArg *args = bp->args;
    TRY(bind_block(m, bp, &p->stem, m->load->stem, 0, &args, err));
    for (uint32_t l = 0; l < m->in->n_layers; l++) {
        const InstanceLayer *layer = &m->in->layers[l];
        TRY(bind_block(m, bp, &p->blocks[layer->block], m->load->layers[l], layer->state_base, &args, err));
    }
    bp->head_at = bp->n_launches;
    TRY(bind_block(m, bp, &p->head, m->load->head, 0, &args, err));
done:
    return st;
}

static Status eval_u32(const PlanStep *s, const Expr *e, const BoundPlan *bp, const char *what, uint32_t *out, Err *err)
{
    int64_t v = 0;
    Status st = e ? plan_eval(s, e, bp->rows, bp->outs, bp->seqs, &v, err) : ST_OK;
    if (st != ST_OK)
        return st;
    if (v < 0 || v > UINT32_MAX)
        return err_set(err, ST_INVALID, "kernel %s: its %s expression \"%s\" gives %lld", s->point->entry, what,
                       expr_text(e), (long long)v);
    *out = (uint32_t)v;
    return ST_OK;
}

/* Fills in what depends on the counts. Layers that share a block share PlanSteps: the values are computed once for each run of launches
 * of one step and copied by looking one layer back. */
static Status bind_counts(Model *m, BoundPlan *bp, uint32_t rows, uint32_t outs, uint32_t seqs, Err *err)
{
    Status st = ST_OK;

    if (bp->rows == rows && bp->outs == outs && bp->seqs == seqs)
        return ST_OK;
    bp->rows = rows;
    bp->outs = outs;
    bp->seqs = seqs;
    for (uint32_t i = 0; i < bp->n_launches; i++) {
        BoundLaunch *l = &bp->launches[i];
        const PlanStep *s = l->step;
        KArg *args = bp->args + (l->launch.args - bp->args);

        uint32_t back = i;
        for (uint32_t b = 0; b < m->in->n_blocks && back == i; b++) {
            uint32_t n = bp->plan->blocks[b].n_steps;
            if (i >= n && bp->launches[i - n].step == s)
                back = i - n;
        }
        if (back != i) {
            const BoundLaunch *o = &bp->launches[back];
            l->launch.grid = o->launch.grid;
            l->launch.smem = o->launch.smem;
            l->skip = o->skip;
            for (uint32_t a = 0; a < s->n_args; a++)
                if (s->args[a].kind == ARG_EXPR)
                    args[a] = o->launch.args[a];
            continue;
        }
        TRY(eval_u32(s, s->point->grid[0], bp, "grid", &l->launch.grid.x, err));
        TRY(eval_u32(s, s->point->grid[1], bp, "grid", &l->launch.grid.y, err));
        TRY(eval_u32(s, s->point->grid[2], bp, "grid", &l->launch.grid.z, err));
        TRY(eval_u32(s, s->point->smem, bp, "smem", &l->launch.smem, err));
        l->skip = l->launch.grid.x == 0 || l->launch.grid.y == 0 || l->launch.grid.z == 0;
        for (uint32_t a = 0; a < s->n_args; a++)
            if (s->args[a].kind == ARG_EXPR) {
                uint32_t v = 0;
                TRY(eval_u32(s, s->args[a].expr, bp, s->args[a].name, &v, err));
                args[a].i32 = (int32_t)v;
            }
    }
done:
    if (st != ST_OK)
        bp->rows = 0;
    return st;
}

Status model_queue(Model *m, const BoundPlan *bp, uint32_t first, uint32_t end, Err *err)
{
    Status st = ST_OK;
    for (uint32_t i = first; i < end; i++)
        if (!bp->launches[i].skip)
            TRY(gpu_launch(m->gpu, bp->launches[i].kernel, &bp->launches[i].launch, err));
done:
    return st;
}

/* The whole list of a decode rung at its most rows, all of them wanted. */
static Status record_plan(Model *m, BoundPlan *bp, Err *err)
{
    const StepShape *s = &bp->plan->shape;
    Status st = bind_counts(m, bp, s->max_rows, s->max_outs, s->max_seqs, err), ended;
    Err ignored;

    if (st == ST_OK)
        st = gpu_graph_begin(m->gpu, err);
    if (st != ST_OK)
        return st;
    st = model_queue(m, bp, 0, bp->n_launches, err);
    ended = gpu_graph_end(m->gpu, &bp->graph, st == ST_OK ? err : &ignored); /* in any case */
    return st == ST_OK ? ended : st;
}

/* ---- start ------------------------------------------------------------------------------------------------------ */

uint32_t model_shapes(const ModelOptions *o, StepShape *out, uint32_t n)
{
    uint32_t have = 0;

    for (uint32_t rung = 1, last = 0; last < o->max_seqs && have < MODEL_MAX_PLANS - 1; last = rung, rung *= 2, have++)
        if (have < n)
            out[have] = (StepShape){SHAPE_DECODE, last + 1, rung, rung, rung, o->max_len};
    if (have < n)
        out[have] = (StepShape){SHAPE_EXTEND, 1, o->max_rows, o->max_seqs, o->max_outs, o->max_len};
    return have + 1;
}

static Status lower_all(Model *m, const FamilySet *fs, Err *err)
{
    Status st = ST_OK;
    LowerOptions lo = {.batch_invariant = m->opt.batch_invariant, .levers = m->opt.levers};
    StepShape shapes[MODEL_MAX_PLANS];
    const uint32_t n = model_shapes(&m->opt, shapes, MODEL_MAX_PLANS);

    for (uint32_t i = 0; i < n; i++) {
        lo.shape = shapes[i];
        TRY(plan_lower(&m->plans[m->n_plans].plan, m->in, fs, &lo, err));
        m->n_plans++;
    }
    m->widest = lo.shape;
    for (uint32_t i = 0; i < m->n_plans; i++)
        shape_widen(&m->widest, &m->plans[i].plan->shape);
done:
    return st;
}

static Status alloc_counted(Model *m, uint64_t bytes, const char *what, GpuBuf *out, uint64_t *sum, Err *err)
{
    if (bytes == 0)
        return ST_OK;
    *sum += bytes;
    return gpu_mem_alloc(m->gpu, bytes, what, out, err);
}

static Status allocate(Model *m, Err *err)
{
    Status st = ST_OK;
    const Instance *in = m->in;
    const KvGroup *groups = m->memory.groups;
    uint64_t weights = m->load->bytes, kv = 0, arena = 0, tables = 0, inputs, exchange, sum = 0, places[STEP_TABLES];
    const uint32_t pad = memory_padding(m->plans[0].plan);
    void *host = NULL;

    m->rope_at = calloc(in->n_ropes + 1u, sizeof *m->rope_at);
    for (int p = 0; p < 4; p++)
        m->state_at[p] = calloc(in->n_states + 1u, sizeof *m->state_at[p]);
    if (!m->rope_at || !m->state_at[0] || !m->state_at[1] || !m->state_at[2] || !m->state_at[3])
        TRY(err_set(err, ST_NOMEM, "out of memory for the model's tables"));
    for (uint32_t l = 0; l < in->n_layers; l++) {
        const InstanceBlock *b = &in->blocks[in->layers[l].block];
        for (uint32_t s = 0; s < b->n_states; s++)
            for (uint32_t p = 0; p < b->states[s].n_parts; p++) {
                const InstanceState *state = &b->states[s];
                const bool paged = state->kind == STATE_PAGED;
                const uint32_t count = paged ? groups[instance_kv_group(in, state)].blocks : m->widest.max_seqs;
                uint64_t bytes;
                TRY(memory_state_bytes(state, p, pad + count, &bytes, err));
                m->recurrent |= !paged;
                m->state_at[p][in->layers[l].state_base + s] = kv;
                kv += bytes;
            }
    }
    for (uint32_t i = 0; i < m->n_plans; i++)
        arena = m->plans[i].plan->arena_bytes > arena ? m->plans[i].plan->arena_bytes : arena;
    for (uint32_t i = 0; i < in->n_ropes; i++) {
        m->rope_at[i] = tables;
        tables += memory_rope_bytes(&in->ropes[i], m->opt.max_len);
    }
    inputs = memory_input_places(&m->widest, in->n_kv_groups, places);
    TRY(alloc_counted(m, weights, "weights", &m->weights, &sum, err));
    TRY(alloc_counted(m, kv, "KV cache and states", &m->kv, &sum, err));
    TRY(alloc_counted(m, arena, "activations", &m->arena, &sum, err));
    TRY(alloc_counted(m, tables, "rope tables", &m->tables, &sum, err));
    TRY(alloc_counted(m, inputs, "step inputs", &m->inputs, &sum, err));
    exchange = memory_exchange_bytes(&m->widest, m->vocab, &m->edits_at);
    TRY(alloc_counted(m, exchange, "picks and edits", &m->exchange, &sum, err));
    TRY(gpu_mem_set(m->gpu, m->exchange.ptr, 0, m->edits_at, err)); /* whatever a row asks for, it finds a token */
    for (int f = 0; f < MODEL_MAX_FLIGHTS; f++) {
        TRY(gpu_host_alloc(m->gpu, m->inputs.bytes + exchange, "step inputs", &host, err));
        m->host[f] = host;
        memset(host, 0, inputs);
    }
    if (sum != m->memory.total)
        TRY(err_set(
            err, ST_INVALID,
            "memory: %llu bytes predicted, %llu allocated; the memory plan of this build is wrong, please report it",
            (unsigned long long)m->memory.total, (unsigned long long)sum));
done:
    return st;
}

static Status fill_tables(Model *m, WeightStore *store, Err *err)
{
    Status st = ST_OK;
    float *host = NULL;

    for (uint32_t i = 0; i < m->in->n_ropes; i++) {
        uint64_t bytes = memory_rope_bytes(&m->in->ropes[i], m->opt.max_len);
        free(host);
        host = calloc(1, bytes);
        if (host == NULL)
            TRY(err_set(err, ST_NOMEM, "out of memory for a rope table of %u positions", m->opt.max_len));
        TRY(rope_table_fill(&m->in->ropes[i], store, m->opt.max_len, host, err));
        TRY(gpu_upload(m->gpu, (uint8_t *)m->tables.ptr + m->rope_at[i], host, bytes, err));
        TRY(gpu_sync(m->gpu, err));
    }
done:
    free(host);
    return st;
}

static Status check_options(const ModelOptions *o, Err *err)
{
    if (o->max_rows == 0 || o->max_rows > 65536 || o->max_seqs == 0 || o->max_seqs > 1024 || o->max_outs == 0 ||
        o->max_outs > o->max_rows || o->max_len == 0 || o->max_len > (1u << 24) ||
        o->kv_blocks > INT32_MAX / KV_BLOCK_TOKENS)
        return err_set(err, ST_INVALID,
                       "model bounds out of range: max_rows %u (1..65536), max_seqs %u (1..1024), max_outs %u "
                       "(1..max_rows), max_len %u "
                       "(1..16777216), kv_blocks %u (0..134217727)",
                       o->max_rows, o->max_seqs, o->max_outs, o->max_len, o->kv_blocks);
    return ST_OK;
}

/* "1024, and 60 for the last 128 tokens" */
static void describe_pools(const MemoryPlan *p, char *out, size_t size)
{
    size_t at = 0;

    for (uint32_t g = 0; g < p->n_groups && at < size; g++) {
        const KvGroup *k = &p->groups[g];
        const char *and = g > 0 ? ", and " : "";
        int n = k->window == 0
                    ? snprintf(out + at, size - at, "%s%u", and, k->blocks)
                    : snprintf(out + at, size - at, "%s%u for the last %u tokens", and, k->blocks, k->window);
        at += n > 0 ? (size_t)n : 0;
    }
}

Status model_new(Model **out, const Instance *in, const FamilySet *fs, WeightStore *store, GpuBackend *gpu,
                 const ModelOptions *opt, const Log *log, Err *err)
{
    Status st = ST_OK;
    Model *m = NULL;
    const Plan *plans[MODEL_MAX_PLANS];
    char pools[160];
    int64_t vocab = 0;
    ClockFake still; /* where nobody wants to know */
    Clock *clock = opt->clock ? opt->clock : &still.base;
    uint64_t begin, loading, loaded;

    clock_fake_init(&still);
    begin = clock_ns(clock);
    TRY(check_options(opt, err));
    m = calloc(1, sizeof *m);
    if (m == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the model");
    m->in = in;
    m->gpu = gpu;
    m->opt = *opt;
    instance_dim(in, "vocab", &vocab);
    m->vocab = (uint32_t)vocab;
    TRY(lower_all(m, fs, err));
    for (uint32_t i = 0; i < m->n_plans; i++)
        plans[i] = m->plans[i].plan;
    if (m->opt.kv_blocks == 0) {
        GpuFacts facts;
        gpu_facts(gpu, &facts);
        TRY(memory_fit(&m->opt.kv_blocks, plans, m->n_plans, facts.mem_free, facts.mem_total, err));
    }
    TRY(memory_predict(&m->memory, plans, m->n_plans, m->opt.kv_blocks, err));
    TRY(load_plan_new(&m->load, plans, m->n_plans, err));
    TRY(allocate(m, err));
    loading = clock_ns(clock);
    TRY(load_run(m->load, store, gpu, m->weights, err));
    loaded = clock_ns(clock);
    TRY(fill_tables(m, store, err));
    for (uint32_t i = 0; i < m->n_plans; i++)
        TRY(bind_plan(m, &m->plans[i], err));
    if (gpu_has_graphs(gpu) && memory_padding(plans[0]) && !opt->eager)
        for (uint32_t i = 0; i + 1 < m->n_plans; i++)
            TRY(record_plan(m, &m->plans[i], err));
    m->times =
        (ModelTimes){.plan_ns = loading - begin, .load_ns = loaded - loading, .bind_ns = clock_ns(clock) - loaded};
    describe_pools(&m->memory, pools, sizeof pools);
    log_info(log,
             "memory: %.1f MiB weights, %.1f MiB KV (blocks of 16 tokens: %s), %.1f MiB states of %u sequences, "
             "%.1f MiB activations, %.1f MiB tables; allocated as predicted",
             (double)m->memory.weights / 1048576, (double)m->memory.kv / 1048576, pools,
             (double)m->memory.states / 1048576, m->widest.max_seqs, (double)m->memory.activations / 1048576,
             (double)(m->memory.tables + m->memory.inputs) / 1048576);
    *out = m;
    m = NULL;
done:
    model_free(m);
    return st;
}

void model_free(Model *m)
{
    if (m == NULL)
        return;
    if (m->launched != m->collected)
        (void)gpu_sync(m->gpu, NULL); /* what runs still reads and writes host memory */
    for (uint32_t i = 0; i < MODEL_MAX_PLANS; i++) {
        gpu_graph_free(m->gpu, m->plans[i].graph);
        plan_free(m->plans[i].plan);
        free(m->plans[i].launches);
        free(m->plans[i].args);
    }
    load_plan_free(m->load);
    gpu_mem_free(m->gpu, &m->weights);
    gpu_mem_free(m->gpu, &m->kv);
    gpu_mem_free(m->gpu, &m->arena);
    gpu_mem_free(m->gpu, &m->tables);
    gpu_mem_free(m->gpu, &m->inputs);
    gpu_mem_free(m->gpu, &m->exchange);
    for (int f = 0; f < MODEL_MAX_FLIGHTS; f++) {
        gpu_event_free(m->gpu, m->flights[f].done);
        gpu_host_free(m->gpu, m->host[f]);
    }
    for (int p = 0; p < 4; p++)
        free(m->state_at[p]);
    free(m->rope_at);
    free(m);
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static Status bad_step(Err *err, const char *what, long long value, long long limit)
{
    return err_set(err, ST_INVALID, "step: %s is %lld, which must be below %lld", what, value, limit);
}

/* The slots and blocks of sequence q in one group. */
static Status check_blocks(const Model *m, const StepInput *s, uint32_t group, uint32_t q, Err *err)
{
    const KvGroup *g = &m->memory.groups[group];
    const uint32_t max_blocks = shape_max_blocks(&m->widest);
    const int32_t *slots = s->slots + (size_t)group * s->rows;
    const int32_t *table = s->block_table + ((size_t)group * s->seqs + q) * max_blocks;
    const int32_t from = s->seq_start[q], to = s->seq_start[q + 1];

    for (int32_t b = 0; b <= s->positions[to - 1] / KV_BLOCK_TOKENS;
         b++) /* dead ones as well: a kernel may load them */
        if (table[b] < 0 || table[b] >= (int32_t)g->blocks)
            return bad_step(err, "a KV block", table[b], g->blocks);
    for (int32_t r = from; r < to; r++)
        if (slots[r] < 0 || slots[r] >= (int64_t)g->blocks * KV_BLOCK_TOKENS)
            return bad_step(err, "a KV slot", slots[r], (long long)g->blocks * KV_BLOCK_TOKENS);
    return ST_OK;
}

static Status check_samples(const Model *m, const StepInput *s, Err *err)
{
    const uint32_t most = step_max_edits(m->widest.max_outs, m->vocab, m->widest.max_len);

    if (s->n_edits > most)
        return bad_step(err, "the number of edits", s->n_edits, (long long)most + 1);
    for (uint32_t i = 0; i < s->n_edits; i++)
        if (s->edits[i].token < 0 || s->edits[i].token >= (int32_t)m->vocab)
            return bad_step(err, "the token of an edit", s->edits[i].token, m->vocab);
    for (uint32_t o = 0; s->samples && o < s->outs; o++) {
        uint64_t end = (uint64_t)s->samples[o].first_edit + s->samples[o].n_bias + s->samples[o].n_seen;
        if (end > s->n_edits)
            return bad_step(err, "the last edit of an output", (long long)end, (long long)s->n_edits + 1);
    }
    return ST_OK;
}

/* Every index that a kernel will follow is checked here, once. */
static Status check_step(const Model *m, const StepShape *shape, const StepInput *s, Err *err)
{
    Status st = ST_OK;

    if (s->rows == 0 || s->rows > shape->max_rows)
        return bad_step(err, "the number of rows", s->rows, (long long)shape->max_rows + 1);
    if (s->seqs == 0 || s->seqs > m->opt.max_seqs || s->seqs > s->rows)
        return bad_step(err, "the number of sequences", s->seqs, (long long)m->opt.max_seqs + 1);
    if (s->outs > s->rows || s->outs > shape->max_outs)
        return bad_step(err, "the number of outputs", s->outs, (long long)shape->max_outs + 1);
    if (s->seq_start[0] != 0 || s->seq_start[s->seqs] != (int32_t)s->rows)
        return bad_step(err, "the first or last sequence's start", s->seq_start[0], 1);
    for (uint32_t q = 0; q < s->seqs; q++) {
        int32_t from = s->seq_start[q], to = s->seq_start[q + 1];
        if (from >= to || to > (int32_t)s->rows)
            return bad_step(err, "a sequence's start", from, to);
        for (int32_t r = from; r < to; r++) {
            if (s->row_seq[r] != (int32_t)q)
                return bad_step(err, "a row's sequence", s->row_seq[r], q + 1);
            if (s->positions[r] < 0 || s->positions[r] >= (int32_t)m->opt.max_len ||
                s->positions[r] != s->positions[from] + (r - from))
                return bad_step(err, "a position", s->positions[r], m->opt.max_len);
            if (s->tokens[r] < -(int64_t)m->n_picks || s->tokens[r] >= (int32_t)m->vocab)
                return bad_step(err, "a token", s->tokens[r], m->vocab);
        }
        for (uint32_t g = 0; g < m->in->n_kv_groups; g++)
            TRY(check_blocks(m, s, g, q, err));
    }
    for (uint32_t q = 0; m->recurrent && q < s->seqs; q++)
        if (s->state_slots == NULL || s->state_slots[q] < 0 || s->state_slots[q] >= (int32_t)m->widest.max_seqs)
            return bad_step(err, "a state slot", s->state_slots ? s->state_slots[q] : -1, m->widest.max_seqs);
    for (uint32_t o = 0; o < s->outs; o++)
        if (s->out_rows[o] < (o ? s->out_rows[o - 1] + 1 : 0) || s->out_rows[o] >= (int32_t)s->rows)
            return bad_step(err, "an output row", s->out_rows[o], s->rows);
    TRY(check_samples(m, s, err));
done:
    return st;
}

static uint8_t *staging(const Model *m)
{
    return m->host[m->launched % MODEL_MAX_FLIGHTS];
}

static int32_t *host_table(const Model *m, const BoundPlan *bp, StepTable t, uint32_t group)
{
    return (int32_t *)(void *)(staging(m) + input_place(bp, t, group));
}

/* Rows of nobody behind the step's own, up to what the graph was recorded for: token 0 at position 0, whose keys, values
 * and states go where no sequence's are. Outputs that nobody asked for are the last row's, and no token is wanted of them. */
static void pad_inputs(Model *m, const BoundPlan *bp, const StepInput *s)
{
    const uint32_t max_blocks = shape_max_blocks(&m->widest), n = bp->plan->shape.max_rows;

    for (uint32_t r = s->rows; r < n; r++) {
        host_table(m, bp, STEP_TOKENS, 0)[r] = 0;
        host_table(m, bp, STEP_POSITIONS, 0)[r] = 0;
        host_table(m, bp, STEP_ROW_SEQ, 0)[r] = (int32_t)r;
        host_table(m, bp, STEP_SEQ_START, 0)[r + 1] = (int32_t)r + 1;
        host_table(m, bp, STEP_STATE_SLOTS, 0)[r] = (int32_t)m->widest.max_seqs;
        for (uint32_t g = 0; g < m->in->n_kv_groups; g++) {
            const int32_t block = (int32_t)m->memory.groups[g].blocks;
            host_table(m, bp, STEP_SLOTS, g)[r] = block * KV_BLOCK_TOKENS;
            host_table(m, bp, STEP_BLOCK_TABLE, g)[(size_t)r * max_blocks] = block;
        }
    }
    for (uint32_t o = s->outs; o < n; o++)
        host_table(m, bp, STEP_OUT_ROWS, 0)[o] = (int32_t)n - 1;
    memset(host_table(m, bp, STEP_SAMPLES, 0) + s->outs * SAMPLE_WORDS, 0, (n - s->outs) * sizeof(SampleRow));
}

/* All tables in one upload, but for the edits, which few steps have. */
static Status upload_inputs(Model *m, const BoundPlan *bp, const StepInput *s, bool pad, Err *err)
{
    Status st = ST_OK;
    const size_t blocks = shape_max_blocks(&m->widest);
    const uint32_t groups = m->in->n_kv_groups;
    uint8_t *edits = staging(m) + m->inputs.bytes + m->edits_at;
    const struct {
        StepTable table;
        const int32_t *from;
        size_t n; /* of one group, where the table is one of several */
    } in[] = {{STEP_TOKENS, s->tokens, s->rows},
              {STEP_POSITIONS, s->positions, s->rows},
              {STEP_SLOTS, s->slots, s->rows},
              {STEP_ROW_SEQ, s->row_seq, s->rows},
              {STEP_SEQ_START, s->seq_start, s->seqs + 1u},
              {STEP_BLOCK_TABLE, s->block_table, s->seqs * blocks},
              {STEP_OUT_ROWS, s->out_rows, s->outs},
              {STEP_STATE_SLOTS, s->state_slots, m->recurrent ? s->seqs : 0}};
    const size_t seqs = pad ? bp->plan->shape.max_seqs : s->seqs;

    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        for (uint32_t g = 0; in[i].n > 0 && g < (step_table_grouped(in[i].table) ? groups : 1); g++)
            memcpy(host_table(m, bp, in[i].table, g), in[i].from + g * in[i].n, in[i].n * sizeof(int32_t));
    if (s->samples && s->outs > 0)
        memcpy(host_table(m, bp, STEP_SAMPLES, 0), s->samples, s->outs * sizeof *s->samples);
    else
        memset(host_table(m, bp, STEP_SAMPLES, 0), 0, s->outs * sizeof *s->samples);
    if (pad)
        pad_inputs(m, bp, s);
    TRY(gpu_upload(m->gpu, m->inputs.ptr, staging(m),
                   input_place(bp, STEP_BLOCK_TABLE, groups - 1) + seqs * blocks * sizeof(int32_t), err));
    if (s->n_edits > 0)
        memcpy(edits, s->edits, s->n_edits * sizeof *s->edits);
    TRY(gpu_upload(m->gpu, (uint8_t *)m->exchange.ptr + m->edits_at, edits, s->n_edits * sizeof *s->edits, err));
done:
    return st;
}

static BoundPlan *choose_plan(Model *m, const StepInput *s)
{
    if (s->rows == s->seqs)
        for (uint32_t i = 0; i + 1 < m->n_plans; i++)
            if (s->rows <= m->plans[i].plan->shape.max_rows)
                return &m->plans[i];
    return &m->plans[m->n_plans - 1];
}

Status model_prepare(Model *m, const StepInput *step, BoundPlan **out, Err *err)
{
    Status st = ST_OK;
    BoundPlan *bp = choose_plan(m, step);

    TRY(check_step(m, &bp->plan->shape, step, err));
    TRY(bind_counts(m, bp, step->rows, step->outs, step->seqs, err));
    TRY(upload_inputs(m, bp, step, false, err));
    *out = bp;
done:
    return st;
}

static Status queue_step(Model *m, BoundPlan *bp, const StepInput *step, float *logits, Err *err)
{
    Status st = ST_OK;
    const bool graph = bp->graph != NULL && step->outs > 0; /* recorded with the head */
    Flight *flight = &m->flights[m->launched % MODEL_MAX_FLIGHTS];

    if (!graph)
        TRY(bind_counts(m, bp, step->rows, step->outs, step->seqs, err));
    TRY(upload_inputs(m, bp, step, graph, err));
    if (graph)
        TRY(gpu_graph_launch(m->gpu, bp->graph, err));
    else
        TRY(model_queue(m, bp, 0, step->outs ? bp->n_launches : bp->head_at, err));
    flight->outs = step->samples ? step->outs : 0;
    TRY(gpu_download(m->gpu, staging(m) + m->inputs.bytes, m->exchange.ptr, flight->outs * sizeof(SamplePick), err));
    if (step->outs && logits)
        TRY(gpu_download(m->gpu, logits, (uint8_t *)m->arena.ptr + bp->plan->logits_offset,
                         (size_t)step->outs * m->vocab * sizeof(float), err));
    TRY(gpu_event_record(m->gpu, &flight->done, err));
done:
    return st;
}

Status model_launch(Model *m, const StepInput *step, float *logits, Err *err)
{
    BoundPlan *bp = choose_plan(m, step);
    Status st;

    if (m->launched - m->collected == MODEL_MAX_FLIGHTS)
        return err_set(err, ST_INVALID, "step: %d are in flight; collect one first", MODEL_MAX_FLIGHTS);
    st = check_step(m, &bp->plan->shape, step, err);
    if (st != ST_OK)
        return st;
    st = queue_step(m, bp, step, logits, err);
    if (st != ST_OK) {
        (void)gpu_sync(m->gpu, NULL); /* what was queued still uses its host memory */
        return st;
    }
    m->launched++;
    if (step->samples && step->outs > 0)
        m->n_picks = step->outs;
    return ST_OK;
}

Status model_collect(Model *m, SamplePick *picks, Err *err)
{
    Flight *flight = &m->flights[m->collected % MODEL_MAX_FLIGHTS];
    Status st;

    if (m->launched == m->collected)
        return err_set(err, ST_INVALID, "step: none is in flight; launch one first");
    st = gpu_event_wait(m->gpu, flight->done, err);
    if (st == ST_OK && flight->outs > 0 && picks)
        memcpy(picks, m->host[m->collected % MODEL_MAX_FLIGHTS] + m->inputs.bytes, flight->outs * sizeof *picks);
    gpu_event_free(m->gpu, flight->done);
    *flight = (Flight){0};
    m->collected++;
    return st;
}

Status model_step(Model *m, const StepInput *step, float *logits, Err *err)
{
    Status st = model_launch(m, step, logits, err);
    return st == ST_OK ? model_collect(m, NULL, err) : st;
}

/* ---- facts ------------------------------------------------------------------------------------------------------ */

const char *model_lost(const Model *m)
{
    return gpu_lost(m->gpu);
}

bool model_runs_ahead(const Model *m)
{
    GpuFacts facts;

    gpu_facts(m->gpu, &facts);
    return facts.runs_ahead;
}

const MemoryPlan *model_memory(const Model *m)
{
    return &m->memory;
}

const ModelTimes *model_times(const Model *m)
{
    return &m->times;
}

const ModelOptions *model_options(const Model *m)
{
    return &m->opt;
}

uint32_t model_vocab(const Model *m)
{
    return m->vocab;
}

uint32_t model_max_tokens(const Model *m)
{
    uint32_t tokens = m->opt.max_len;

    for (uint32_t g = 0; g < m->memory.n_groups; g++) {
        uint32_t most = kv_group_tokens(m->memory.groups[g]);
        tokens = most < tokens ? most : tokens;
    }
    return tokens;
}

const Plan *model_plan(const Model *m, uint32_t decode_rows)
{
    for (uint32_t i = 0; decode_rows && i + 1 < m->n_plans; i++)
        if (decode_rows <= m->plans[i].plan->shape.max_rows)
            return m->plans[i].plan;
    return m->plans[m->n_plans - 1].plan;
}

static uint64_t block_weight_bytes(const PlanBlock *b)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < b->n_steps; i++)
        sum += b->steps[i].weight_bytes;
    return sum;
}

uint64_t model_step_weight_bytes(const Model *m)
{
    const Plan *p = model_plan(m, 1);
    uint64_t sum = block_weight_bytes(&p->head); /* the stem reads one row of the table */
    for (uint32_t l = 0; l < m->in->n_layers; l++)
        sum += block_weight_bytes(&p->blocks[m->in->layers[l].block]);
    return sum;
}
