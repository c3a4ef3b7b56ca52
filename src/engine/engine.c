/* engine.c - the step loop and its two queues.
 *
 * Submitters put checked requests into the inbox; each step takes them from there, and hands results out through the
 * streams. These two and the published statistics are all that threads share; sequences, KV blocks, tables and logits
 * belong to whoever calls engine_step, which is one thread.
 *
 * A step never delivers before its books are closed: blocks are given back and statistics published first, so that a
 * reader who sees its last event sees the memory free as well.
 *
 * A step picks its tokens on the device. Where that runs ahead of the host, the next step is launched first, with rows that take
 * their tokens from there, and only then the picks are collected: one step later than they are made. A sequence that turns out to
 * have ended has a row too many in the step under way; what that row brings is dropped, and its blocks are free at once, since whoever
 * gets them writes them in a later step.
 *
 * No step is ever needed to notice a cancellation or a deadline while the engine sleeps: it sleeps only when it has no
 * request at all. */
#include "core/thread.h"
#include "engine/batch.h"
#include "engine/scheduler.h"
#include "engine/stream.h"
#include <stdlib.h>

/* A step between its launch and its commit. */
typedef struct Flight {
    Batch batch;
    float *logits; /* [outs][vocab] */
} Flight;

struct Engine {
    StepRunner runner;
    Model *model; /* NULL: made with a runner */
    Clock *clock;
    const Log *log;
    EngineOptions opt;

    Scheduler sched;
    Flight flights[MODEL_MAX_FLIGHTS];
    uint32_t n_flights; /* 2 where the device runs ahead, else 1 */
    uint64_t launched, collected;
    SequenceList outbox; /* sequences with an event to deliver; those that have ended are in no other list */
    SamplePick *picks;   /* [outs] */
    EngineStats counts;  /* steps and tokens so far */
    Thread thread;
    bool has_thread, lost; /* lost: on_lost has been told */

    Mutex lock; /* guards all below */
    Cond wake;  /* a request arrived, or stopping */
    SequenceList inbox;
    bool stopping;
    uint64_t stop_at_ns;
    EngineStats stats; /* as published; the inbox not counted as waiting */
};

/* ---- one turn --------------------------------------------------------------------------------------------------- */

/* Takes the inbox. Returns true when the grace of a stop has passed. */
static bool take_arrivals(Engine *e, uint64_t now)
{
    bool halt;

    mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->inbox.n; i++)
        sequence_list_insert(&e->sched.waiting, e->sched.waiting.n, e->inbox.items[i]);
    e->inbox.n = 0;
    e->stats.waiting = e->sched.waiting.n;
    halt = e->stopping && now >= e->stop_at_ns;
    mutex_unlock(&e->lock);
    return halt;
}

/* Ends a sequence with the event in q->event, which deliver hands out. */
static void retire(Engine *e, Sequence *q)
{
    SequenceList *list = &e->sched.running; /* or, when it was preempted while its step ran, the other */
    uint32_t at = 0;

    while (at < list->n && list->items[at] != q)
        at++;
    if (at == list->n)
        for (list = &e->sched.waiting, at = 0; list->items[at] != q;)
            at++;
    scheduler_remove(&e->sched, list, at);
    for (uint32_t f = 0; f < e->n_flights; f++)
        batch_forget(&e->flights[f].batch, q);
    sequence_list_insert(&e->outbox, e->outbox.n, q);
}

/* Ends what was cancelled, is overdue, or cannot go on. */
static void reap(Engine *e, SequenceList *list, bool halt, uint64_t now)
{
    for (uint32_t i = list->n; i-- > 0;) {
        Sequence *q = list->items[i];
        FinishReason finish = FINISH_CANCELLED;

        if (q->starved) {
            finish = FINISH_ERROR;
            err_set(&q->why, ST_NOMEM, "out of host memory for the KV table of a request of %u tokens", q->n_tokens);
        } else if (halt)
            err_set(&q->why, ST_CANCELLED, "the server is stopping");
        else if (q->deadline_ns != 0 && now >= q->deadline_ns)
            err_set(&q->why, ST_CANCELLED, "the request's deadline has passed");
        else if (!stream_cancelled(q->stream))
            continue;
        q->event = (TokenEvent){.token = -1, .finish = finish, .at_ns = now};
        retire(e, q);
    }
}

/* The token of a sequence's output: its place, the pick, and, if they were wanted, the logits. */
static void take_pick(Engine *e, Sequence *q, uint32_t place, const SamplePick *pick, const float *logits, uint64_t now)
{
    q->event = (TokenEvent){.token = -1, .n_top = q->n_top, .at_ns = now};
    if (sampling_check_pick(pick, e->runner.vocab, &q->why) != ST_OK) {
        q->event = (TokenEvent){.token = -1, .finish = FINISH_ERROR, .at_ns = now};
        log_error(e->log, "a request ends: %s", q->why.msg);
        return;
    }
    e->counts.prompt_tokens += place == q->n_prompt ? q->n_prompt : 0;
    e->counts.generated_tokens++;
    q->tokens[place] = pick->token;
    q->event.token = pick->token;
    if (q->want_logprobs)
        q->event.logprob = sampling_logprob(pick);
    if (q->n_top > 0)
        sampling_top(pick, logits, e->runner.vocab, q->n_top, q->event.top);
    q->event.finish = sequence_stops_at(q, pick->token) ? FINISH_STOP
                      : place + 1 == q->limit           ? FINISH_LENGTH
                                                        : FINISH_NONE;
}

/* The step ran: its outputs become tokens. */
static void commit(Engine *e, const Flight *f)
{
    const uint64_t now = clock_ns(e->clock);
    const Batch *b = &f->batch;

    for (uint32_t o = 0; o < b->outs; o++) {
        Sequence *q = b->sequences[b->out_seqs[o]];
        if (q == NULL)
            continue;
        take_pick(e, q, b->out_places[o], &e->picks[o], f->logits + (size_t)o * e->runner.vocab, now);
        if (q->event.finish != FINISH_NONE)
            retire(e, q);
        else
            sequence_list_insert(&e->outbox, e->outbox.n, q);
    }
    e->counts.steps++;
}

/* The step failed: what the KV pool holds of its rows is unknown, so its sequences end. */
static void fail(Engine *e, const Flight *f, const Err *why)
{
    log_error(e->log, "a step of %u rows of %u requests failed, and so did they: %s", f->batch.rows, f->batch.seqs,
              why->msg);
    for (uint32_t i = 0; i < f->batch.seqs; i++) {
        Sequence *q = f->batch.sequences[i];
        if (q == NULL)
            continue;
        q->event = (TokenEvent){.token = -1, .finish = FINISH_ERROR, .at_ns = clock_ns(e->clock)};
        q->why = *why;
        retire(e, q);
    }
    const char *lost = e->runner.lost && !e->lost ? e->runner.lost(e->runner.ctx) : NULL;
    if (lost) {
        e->lost = true;
        if (e->opt.on_lost)
            e->opt.on_lost(e->opt.lost_ctx, lost);
    }
}

/* Publishes the statistics, then hands out the events. */
static void deliver(Engine *e)
{
    mutex_lock(&e->lock);
    e->counts.requests = e->stats.requests; /* the submitters' count */
    e->counts.running = e->sched.running.n;
    e->counts.waiting = e->sched.waiting.n;
    e->counts.kv_blocks_total = kv_pools_total(&e->sched.kv);
    e->counts.kv_blocks_used = kv_pools_used(&e->sched.kv);
    e->counts.preemptions = e->sched.preemptions;
    e->stats = e->counts;
    mutex_unlock(&e->lock);

    for (uint32_t i = 0; i < e->outbox.n; i++) {
        Sequence *q = e->outbox.items[i];
        stream_push(q->stream, &q->event, q->why.msg);
        if (q->event.finish != FINISH_NONE)
            sequence_free(q);
    }
    e->outbox.n = 0;
}

static Flight *flight_at(Engine *e, uint64_t number)
{
    return &e->flights[number % e->n_flights];
}

/* Waits for the oldest step in flight and hands out what it brought. */
static Status collect(Engine *e, Err *why)
{
    Flight *f = flight_at(e, e->collected);
    const Status st = e->runner.collect(e->runner.ctx, e->picks, why);

    if (st == ST_OK)
        commit(e, f);
    else
        fail(e, f, why);
    f->batch.seqs = f->batch.outs = 0;
    e->collected++;
    deliver(e);
    return st;
}

/* Collects until so many steps are in flight. The first that fails is returned. */
static Status collect_down_to(Engine *e, uint32_t left, Err *why)
{
    Status st = ST_OK, one;
    Err other;

    while (e->launched - e->collected > left) {
        one = collect(e, st == ST_OK ? why : &other);
        st = st == ST_OK ? one : st;
    }
    return st;
}

Status engine_step(Engine *e, bool *worked, Err *err)
{
    Status st = ST_OK;
    Err why, before;
    const uint64_t now = clock_ns(e->clock);
    const bool halt = take_arrivals(e, now);
    Flight *f = flight_at(e, e->launched);

    reap(e, &e->sched.running, halt, now);
    reap(e, &e->sched.waiting, halt, now);
    *worked = e->outbox.n + e->sched.running.n + e->sched.waiting.n > 0 || e->launched > e->collected;
    scheduler_pick(&e->sched);
    deliver(e);

    batch_fill(&f->batch, &e->sched.running);
    if (f->batch.rows == 0) {
        st = collect_down_to(e, 0, &why);
    } else {
        const StepInput in = batch_input(&f->batch);
        st = e->runner.launch(e->runner.ctx, &in, f->batch.want_logits ? f->logits : NULL, &why);
        if (st == ST_OK) {
            batch_launched(&f->batch);
            e->launched++;
            st = collect_down_to(e, e->n_flights - 1, &why);
        } else {
            (void)collect_down_to(e, 0, &before); /* what was launched before may be good */
            fail(e, f, &why);
            f->batch.seqs = f->batch.outs = 0;
            deliver(e);
        }
    }
    return st == ST_OK ? ST_OK : err_set(err, st, "%s", why.msg);
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

static void *engine_main(void *arg)
{
    Engine *e = arg;
    bool worked, done = false;

    while (!done) {
        (void)engine_step(e, &worked, NULL); /* a failed step has told its requests and the log */
        if (worked)
            continue;
        mutex_lock(&e->lock);
        while (e->inbox.n == 0 && !e->stopping)
            cond_wait(&e->wake, &e->lock);
        done = e->stopping && e->inbox.n == 0;
        mutex_unlock(&e->lock);
    }
    return NULL;
}

static Status check_options(const StepRunner *r, const EngineOptions *opt, Err *err)
{
    if (opt->queue_len == 0 || opt->queue_len > 65536)
        return err_set(err, ST_INVALID, "the queue's length is %u; it must be 1 to 65536", opt->queue_len);
    if (r->max_rows == 0 || r->max_outs == 0 || r->max_seqs == 0 || r->max_len == 0 || r->vocab == 0)
        return err_set(err, ST_INVALID,
                       "a step needs bounds above 0; they are %u rows, %u outputs, %u sequences, %u tokens, "
                       "vocabulary %u",
                       r->max_rows, r->max_outs, r->max_seqs, r->max_len, r->vocab);
    return ST_OK;
}

Status engine_new_with_runner(Engine **out, const StepRunner *runner, Clock *clock, const EngineOptions *opt,
                              const Log *log, Err *err)
{
    Status st = ST_OK;
    Engine *e = NULL;

    TRY(check_options(runner, opt, err));
    e = calloc(1, sizeof *e);
    if (e == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the engine");
    e->runner = *runner;
    e->clock = clock;
    e->log = log;
    e->opt = *opt;
    mutex_init(&e->lock);
    cond_init(&e->wake);
    TRY(scheduler_init(&e->sched, runner, opt->queue_len, err));
    const uint32_t places = e->sched.running.cap;
    TRY(sequence_list_init(&e->inbox, opt->queue_len, err));
    TRY(sequence_list_init(&e->outbox, e->sched.waiting.cap + places, err));
    e->n_flights = runner->ahead ? MODEL_MAX_FLIGHTS : 1;
    for (uint32_t f = 0; f < e->n_flights; f++) {
        TRY(batch_init(&e->flights[f].batch, runner, places, e->sched.kv.n, err));
        e->flights[f].logits = calloc(places, (size_t)runner->vocab * sizeof(float));
        if (e->flights[f].logits == NULL)
            TRY(err_set(err, ST_NOMEM, "out of memory for the logits of %u sequences over %u tokens", places,
                        runner->vocab));
    }
    e->picks = calloc(places, sizeof *e->picks);
    if (e->picks == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for the tokens of %u sequences", places));
    e->stats.kv_blocks_total = kv_pools_total(&e->sched.kv);
    *out = e;
    e = NULL;
done:
    engine_free(e);
    return st;
}

static Status launch_model(void *ctx, const StepInput *step, float *logits, Err *err)
{
    return model_launch(ctx, step, logits, err);
}

static Status collect_model(void *ctx, SamplePick *picks, Err *err)
{
    return model_collect(ctx, picks, err);
}

static const char *lost_model(void *ctx)
{
    return model_lost(ctx);
}

Status engine_new(Engine **out, Model *model, Clock *clock, const EngineOptions *opt, const Log *log, Err *err)
{
    const ModelOptions *m = model_options(model);
    const MemoryPlan *mem = model_memory(model);
    StepRunner runner = {.launch = launch_model,
                         .collect = collect_model,
                         .ahead = model_runs_ahead(model),
                         .lost = lost_model,
                         .ctx = model,
                         .max_rows = m->max_rows,
                         .max_outs = m->max_outs,
                         .max_seqs = m->max_seqs,
                         .max_len = m->max_len,
                         .kv_blocks = m->kv_blocks,
                         .vocab = model_vocab(model),
                         .n_groups = mem->n_groups};
    Status st;

    for (uint32_t g = 0; g < mem->n_groups; g++)
        runner.groups[g] = mem->groups[g];
    st = engine_new_with_runner(out, &runner, clock, opt, log, err);
    if (st == ST_OK)
        (*out)->model = model;
    return st;
}

Status engine_start(Engine *e, Err *err)
{
    Status st = thread_start(&e->thread, "engine", engine_main, e, err);
    e->has_thread = st == ST_OK;
    return st;
}

void engine_stop(Engine *e, uint64_t grace_ns)
{
    const uint64_t now = clock_ns(e->clock);
    bool worked = true;

    mutex_lock(&e->lock);
    e->stopping = true;
    e->stop_at_ns = grace_ns < UINT64_MAX - now ? now + grace_ns : UINT64_MAX;
    cond_signal(&e->wake);
    mutex_unlock(&e->lock);

    if (e->has_thread)
        thread_join(e->thread);
    e->has_thread = false;
    while (worked) /* nothing is left after a thread */
        (void)engine_step(e, &worked, NULL);
}

void engine_free(Engine *e)
{
    if (e == NULL)
        return;
    if (e->picks != NULL) /* it was complete, so it may have requests */
        engine_stop(e, 0);
    scheduler_release(&e->sched);
    for (uint32_t f = 0; f < MODEL_MAX_FLIGHTS; f++) {
        batch_release(&e->flights[f].batch);
        free(e->flights[f].logits);
    }
    sequence_list_release(&e->inbox);
    sequence_list_release(&e->outbox);
    free(e->picks);
    cond_release(&e->wake);
    mutex_release(&e->lock);
    free(e);
}

/* ---- for any thread --------------------------------------------------------------------------------------------- */

Status engine_submit(Engine *e, const GenRequest *req, Stream **out, Err *err)
{
    Status st = ST_OK;
    Sequence *q = NULL;
    Stream *reader = NULL;

    TRY(sequence_new(&q, &reader, req, &e->runner, err));
    mutex_lock(&e->lock);
    if (e->stopping) {
        st = err_set(err, ST_CANCELLED, "the server is stopping and takes no more requests");
    } else if (e->inbox.n + e->stats.waiting >= e->opt.queue_len) {
        st = err_set(err, ST_BUSY, "the queue is full: %u requests wait already; try again later", e->opt.queue_len);
    } else {
        sequence_list_insert(&e->inbox, e->inbox.n, q);
        e->stats.requests++;
        *out = reader;
        q = NULL;
        reader = NULL;
        cond_signal(&e->wake);
    }
    mutex_unlock(&e->lock);
done:
    sequence_free(q);
    stream_free(reader);
    return st;
}

void engine_stats(Engine *e, EngineStats *out)
{
    mutex_lock(&e->lock);
    *out = e->stats;
    out->waiting += e->inbox.n;
    mutex_unlock(&e->lock);
}

const Model *engine_model(const Engine *e)
{
    return e->model;
}
