/* bench.c - see bench.h. */
#include "bench/bench.h"
#include "bench/traffic.h"
#include "core/hash.h"
#include "core/thread.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct Run {
    double prefill_tok_s, decode_tok_s, ttft_ms, p50_ms, p99_ms;
    uint64_t hash;
} Run;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Value at share q of n sorted values, nearest rank. */
static double quantile(double *v, size_t n, double q)
{
    if (n == 0)
        return 0;
    qsort(v, n, sizeof *v, by_value);
    size_t i = (size_t)(q * (double)n);
    return v[i < n ? i : n - 1];
}

static uint64_t next_random(uint64_t *s) /* splitmix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

typedef struct Streams {
    Stream **s;
    double *first_ms; /* [concurrency]; < 0: none yet */
    uint32_t n, open;
} Streams;

static Status submit_all(Streams *st, Engine *e, const BenchWork *w, uint64_t *seed, Err *err)
{
    Status status = ST_OK;
    int32_t *prompt = malloc(sizeof(int32_t) * w->prompt);
    uint32_t vocab = model_vocab(engine_model(e));
    SamplingParams greedy;

    if (prompt == NULL)
        return err_set(err, ST_NOMEM, "out of memory for a prompt of %u tokens", w->prompt);
    sampling_defaults(&greedy);
    greedy.temperature = 0;
    for (uint32_t i = 0; i < w->concurrency && status == ST_OK; i++) {
        for (uint32_t t = 0; t < w->prompt; t++)
            prompt[t] = (int32_t)(next_random(seed) % vocab);
        GenRequest req = {
            .prompt = prompt, .n_prompt = w->prompt, .max_tokens = w->gen, .sampling = greedy, .ignore_eos = true};
        status = engine_submit(e, &req, &st->s[i], err);
        st->first_ms[i] = -1;
        st->n = st->open = i + (status == ST_OK);
    }
    free(prompt);
    return status;
}

/* Takes what the step produced; notes first tokens. */
static Status drain(Streams *st, double now_ms, Hasher *hash, Err *err)
{
    TokenEvent ev;
    for (uint32_t i = 0; i < st->n; i++)
        while (stream_next(st->s[i], &ev, 0)) {
            if (ev.finish == FINISH_ERROR)
                return err_set(err, ST_DEVICE, "%s", stream_error(st->s[i]));
            if (ev.token >= 0) {
                hasher_add_u64(hash, (uint64_t)ev.token);
                if (st->first_ms[i] < 0)
                    st->first_ms[i] = now_ms;
            }
            st->open -= ev.finish != FINISH_NONE;
        }
    return ST_OK;
}

static Status run_once(Run *out, Engine *e, Clock *clock, const BenchWork *w, Err *err)
{
    Status st = ST_OK;
    Streams streams = {.s = calloc(w->concurrency, sizeof(Stream *)),
                       .first_ms = calloc(w->concurrency, sizeof(double))};
    size_t cap = (size_t)w->gen + 2 + w->concurrency, n = 0;
    double *steps = malloc(sizeof *steps * cap), prefill_s = 0, decode_s = 0;
    uint64_t seed = w->seed, decoded = 0, prompts = 0, begin;
    Hasher *hash = hasher_new();
    EngineStats before, after;

    if (!streams.s || !streams.first_ms || !steps || !hash)
        TRY(err_set(err, ST_NOMEM, "out of memory for %u requests", w->concurrency));
    begin = clock_ns(clock);
    TRY(submit_all(&streams, e, w, &seed, err));
    engine_stats(e, &before);
    while (streams.open) {
        bool worked = false;
        uint64_t t0 = clock_ns(clock);
        TRY(engine_step(e, &worked, err));
        uint64_t t1 = clock_ns(clock);
        engine_stats(e, &after);
        if (after.generated_tokens > before.generated_tokens && after.prompt_tokens == before.prompt_tokens) {
            decode_s += (double)(t1 - t0) * 1e-9;
            decoded += after.generated_tokens - before.generated_tokens;
            if (n < cap)
                steps[n++] = (double)(t1 - t0) * 1e-6;
        } else if (after.steps > before.steps) {
            prefill_s += (double)(t1 - t0) * 1e-9; /* a prompt is counted with its last chunk */
            prompts += after.prompt_tokens - before.prompt_tokens;
        } else if (!worked)
            TRY(err_set(err, ST_BUSY, "the workload does not fit: %u sequences of %u tokens; raise --kv-tokens",
                        w->concurrency, w->prompt + w->gen));
        before = after;
        TRY(drain(&streams, (double)(t1 - begin) * 1e-6, hash, err));
    }
    *out = (Run){.prefill_tok_s = prefill_s > 0 ? (double)prompts / prefill_s : 0,
                 .decode_tok_s = decode_s > 0 ? (double)decoded / decode_s : 0,
                 .ttft_ms = quantile(streams.first_ms, w->concurrency, 0.5),
                 .hash = hasher_value(hash).lo};
    out->p50_ms = quantile(steps, n, 0.50);
    out->p99_ms = quantile(steps, n, 0.99);
done:
    for (uint32_t i = 0; i < streams.n; i++)
        stream_free(streams.s[i]);
    free(streams.s);
    free(streams.first_ms);
    free(steps);
    hasher_free(hash);
    return st;
}

/* Of one member of all runs. */
static BenchFigure figure(const Run *runs, uint32_t n, size_t member, double *room)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy(&room[i], (const char *)&runs[i] + member, sizeof *room);
    qsort(room, n, sizeof *room, by_value);
    return (BenchFigure){.median = room[n / 2], .least = room[0], .most = room[n - 1]};
}

Status bench_run(BenchResult *out, Engine *e, Clock *clock, const BenchWork *w, double copy_gb_s, Err *err)
{
    Status st = ST_OK;
    const Model *m = engine_model(e);
    const StepLoad load = {w->concurrency, w->concurrency, w->concurrency, w->prompt + w->gen / 2};
    const double bytes = traffic_least(traffic_of_step(model_plan(m, w->concurrency), &load));
    BenchWork warm = *w;
    Run *runs = calloc(w->repeat, sizeof *runs), ignored;
    double *room = calloc(w->repeat, sizeof *room);

    if (runs == NULL || room == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for %u runs", w->repeat));
    warm.gen = w->gen < 8 ? w->gen : 8;
    TRY(run_once(&ignored, e, clock, &warm, err));
    for (uint32_t r = 0; r < w->repeat; r++)
        TRY(run_once(&runs[r], e, clock, w, err));
#define FIGURE(member) figure(runs, w->repeat, offsetof(Run, member), room)
    *out = (BenchResult){.prefill_tok_s = FIGURE(prefill_tok_s),
                         .decode_tok_s = FIGURE(decode_tok_s),
                         .ttft_ms = FIGURE(ttft_ms),
                         .step_p50_ms = FIGURE(p50_ms),
                         .step_p99_ms = FIGURE(p99_ms),
                         .bytes_step = bytes,
                         .bytes_token = bytes / w->concurrency,
                         .copy_gb_s = copy_gb_s,
                         .tokens_hash = runs[0].hash};
#undef FIGURE
    if (copy_gb_s > 0)
        out->share = out->bytes_token * out->decode_tok_s.median / (copy_gb_s * 1e9);
done:
    free(runs);
    free(room);
    return st;
}

/* ---- copy bandwidth --------------------------------------------------------------------------------------------- */

typedef struct CopyJob {
    const char *from;
    char *to;
    size_t bytes;
    Thread thread;
} CopyJob;

static void *copy_part(void *arg)
{
    CopyJob *j = arg;
    memcpy(j->to, j->from, j->bytes);
    return NULL;
}

/* One round: a thread for each part. Starting them costs some 20 us, next to 10 ms and more of copying. */
static Status copy_round(CopyJob *jobs, unsigned threads, Err *err)
{
    Status st = ST_OK;
    unsigned started = 0;

    while (started < threads && st == ST_OK) {
        st = thread_start(&jobs[started].thread, "copy", copy_part, &jobs[started], err);
        started += st == ST_OK;
    }
    for (unsigned i = 0; i < started; i++)
        thread_join(jobs[i].thread);
    return st;
}

Status bench_copy(double *gb_s, Clock *clock, unsigned threads, size_t bytes, Err *err)
{
    enum { ROUNDS = 6 };
    Status st = ST_OK;
    size_t each = bytes / threads / 4096 * 4096;
    char *from = malloc(each * threads), *to = malloc(each * threads);
    CopyJob *jobs = calloc(threads, sizeof *jobs);
    uint64_t best = UINT64_MAX;

    if (!from || !to || !jobs)
        TRY(err_set(err, ST_NOMEM, "out of memory for a copy of %zu bytes", bytes));
    memset(from, 1, each * threads); /* pages of its own, and there before the clock starts */
    memset(to, 2, each * threads);
    for (unsigned i = 0; i < threads; i++)
        jobs[i] = (CopyJob){.from = from + each * i, .to = to + each * i, .bytes = each};
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t t0 = clock_ns(clock);
        TRY(copy_round(jobs, threads, err));
        uint64_t ns = clock_ns(clock) - t0;
        best = ns < best ? ns : best;
    }
    *gb_s = 2.0 * (double)(each * threads) / (double)best;
done:
    free(from);
    free(to);
    free(jobs);
    return st;
}

Status bench_copy_device(double *gb_s, GpuBackend *gpu, size_t bytes, Err *err)
{
    enum { ROUNDS = 6, COPIES = 4 };
    Status st = ST_OK;
    GpuBuf from = {0}, to = {0};
    GpuEvent *begin = NULL, *end = NULL;
    uint64_t best = UINT64_MAX, ns;

    TRY(gpu_mem_alloc(gpu, bytes, "copy's source", &from, err));
    TRY(gpu_mem_alloc(gpu, bytes, "copy's target", &to, err));
    TRY(gpu_mem_set(gpu, from.ptr, 1, bytes, err));
    for (int r = 0; r < ROUNDS; r++) {
        TRY(gpu_event_record(gpu, &begin, err));
        for (int i = 0; i < COPIES; i++)
            TRY(gpu_copy(gpu, to.ptr, from.ptr, bytes, err));
        TRY(gpu_event_record(gpu, &end, err));
        TRY(gpu_sync(gpu, err));
        TRY(gpu_event_elapsed_ns(gpu, begin, end, &ns, err));
        best = ns > 0 && ns < best ? ns : best;
        gpu_event_free(gpu, begin);
        gpu_event_free(gpu, end);
        begin = end = NULL;
    }
    *gb_s = 2.0 * COPIES * (double)bytes / (double)best;
done:
    gpu_event_free(gpu, begin);
    gpu_event_free(gpu, end);
    gpu_mem_free(gpu, &from);
    gpu_mem_free(gpu, &to);
    return st;
}
