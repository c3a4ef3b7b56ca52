/* cmd_bench.c - `metrale bench`: workloads on an engine in this process, or a plan's launches one by one, and records of
 * both side by side. See bench/bench.h, bench/steps.h and bench/record.h for what each figure means.
 *
 * All rows are measured on one load of the weights, whose bounds (sequences, their length, KV) are those of the largest. */
#include "bench/bench.h"
#include "bench/record.h"
#include "bench/steps.h"
#include "cli/cli.h"
#include "cli/dummy_model.h"
#include "cli/host.h"
#include "cli/loader.h"
#include "core/file.h"
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 16, MAX_SEQS = 1024, PREFILL_GEN = 16, STEP_ROUNDS = 10, MAX_RECORD = 64 << 20 };

typedef struct Args {
    const char *model, *dummy, *compare[2];
    BenchWork work; /* of every row, but for concurrency */
    uint32_t concurrency[MAX_ROWS], n_concurrency, prefill, n_compare;
    bool json, steps;
    int argc;
    char **argv;
    Levers levers;
} Args;

static uint32_t number(struct argp_state *state, const char *flag, const char *text, uint32_t least, uint32_t most)
{
    uint64_t v = 0;
    if (!cli_whole(text, least, most, &v))
        argp_error(state, "--%s: \"%s\" is no whole number from %u to %u", flag, text, least, most);
    return (uint32_t)v;
}

/* "1,8,32" */
static void numbers(struct argp_state *state, Args *a, char *text)
{
    char *rest = NULL;

    a->n_concurrency = 0;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (a->n_concurrency == MAX_ROWS)
            argp_error(state, "--concurrency: more than %d numbers", MAX_ROWS);
        a->concurrency[a->n_concurrency++] = number(state, "concurrency", one, 1, MAX_SEQS);
    }
    if (a->n_concurrency == 0)
        argp_error(state, "--concurrency: no number");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;
    char *copy;

    switch (key) {
    case 'p':
        a->work.prompt = number(state, "prompt", arg, 1, 1 << 20);
        return 0;
    case 'g':
        a->work.gen = number(state, "gen", arg, 1, 1 << 20);
        return 0;
    case 'c':
        copy = strdup(arg); /* the command line goes into the record as it was */
        if (copy == NULL)
            return ENOMEM;
        numbers(state, a, copy);
        free(copy);
        return 0;
    case 'l':
        a->prefill = number(state, "prefill", arg, 1, 1 << 20);
        return 0;
    case 'r':
        a->work.repeat = number(state, "repeat", arg, 1, 1000);
        return 0;
    case 'd':
        a->dummy = arg;
        return 0;
    case 's':
        a->steps = true;
        return 0;
    case 'm':
        if (a->n_compare == 2)
            argp_error(state, "--compare: two records are set side by side, not three");
        a->compare[a->n_compare++] = arg;
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->levers;
        return 0;
    case ARGP_KEY_ARG:
        cli_one_model(state, &a->model, arg);
        return 0;
    case ARGP_KEY_END:
        if (a->model && a->n_compare == 2)
            argp_error(state, "--compare twice sets two records side by side and runs nothing; leave MODEL out");
        if (a->json && a->n_compare > 0)
            argp_error(state, "--json prints a record, --compare two of them side by side; give one");
        if (!a->model && a->n_compare < 2)
            argp_error(state, "MODEL is needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static Status read_record(json_t **out, const char *path, Err *err)
{
    char *text = NULL;
    size_t len = 0;
    Status st = file_read(path, MAX_RECORD, &text, &len, err);

    if (st == ST_OK)
        st = record_parse(out, text, len, path, err);
    free(text);
    return st;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* What the largest row needs. */
static LoadOptions bounds(const Args *a)
{
    const uint32_t len = a->work.prompt + a->work.gen;
    uint32_t alone = a->prefill ? a->prefill + PREFILL_GEN : 0;
    LoadOptions lo = {.level = LOAD_MODEL,
                      .quiet = true,
                      .dummy = a->dummy ? a->dummy : "config",
                      .max_len = larger(len, alone),
                      .clock = clock_system()};
    uint64_t tokens;

    for (uint32_t i = 0; i < a->n_concurrency; i++)
        lo.max_seqs = larger(lo.max_seqs, a->concurrency[i]);
    tokens = ((uint64_t)kv_group_blocks(len) + 1) * KV_BLOCK_TOKENS *
             lo.max_seqs; /* a block more: the step behind the last */
    alone = (kv_group_blocks(alone) + 1) * KV_BLOCK_TOKENS;
    lo.kv_tokens = tokens > 1 << 30 ? 1 << 30 : larger((uint32_t)tokens, alone);
    return lo;
}

static Status run_row(json_t *record, const Loaded *l, Engine *e, const BenchWork *w, double copy, Err *err)
{
    BenchResult r;
    GpuClocks clocks;
    Status st = bench_run(&r, e, clock_system(), w, copy, err);

    gpu_clocks(l->gpu, &clocks);
    return st == ST_OK ? record_add_row(record, w, &r, &clocks, err) : st;
}

static Status run_rows(json_t *record, const Args *a, const Loaded *l, Engine *e, double copy, Err *err)
{
    Status st = ST_OK;
    BenchWork w = a->work;

    for (uint32_t i = 0; i < a->n_concurrency; i++) {
        w.concurrency = a->concurrency[i];
        TRY(run_row(record, l, e, &w, copy, err));
    }
    w.prompt = a->prefill;
    w.gen = PREFILL_GEN;
    w.concurrency = 1;
    if (a->prefill)
        TRY(run_row(record, l, e, &w, copy, err));
done:
    return st;
}

static Status run_steps(json_t *record, const StepLoad *load, const Loaded *l, double copy, Err *err)
{
    StepTimes t;
    Status st = bench_steps(&t, l->model, load, STEP_ROUNDS, err);

    if (st != ST_OK)
        return st;
    st = record_add_steps(record, &t, load, copy, err);
    step_times_release(&t);
    return st;
}

/* A decode step in the middle of each row, then the last chunk of the longest prompt. */
static Status run_launches(json_t *record, const Args *a, const Loaded *l, double copy, Err *err)
{
    const uint32_t prompt = larger(a->work.prompt, a->prefill), most = model_options(l->model)->max_rows;
    const StepLoad chunk = {
        .rows = prompt < most ? prompt : most, .seqs = 1, .outs = 1, .first = prompt < most ? 0 : prompt - most};
    Status st = ST_OK;

    for (uint32_t i = 0; i < a->n_concurrency; i++) {
        const uint32_t c = a->concurrency[i];
        const StepLoad decode = {.rows = c, .seqs = c, .outs = c, .first = a->work.prompt + a->work.gen / 2};
        TRY(run_steps(record, &decode, l, copy, err));
    }
    TRY(run_steps(record, &chunk, l, copy, err));
done:
    return st;
}

static Status measure(json_t **out, const Args *a, const Loaded *l, Engine *e, double ready_s, Err *err)
{
    Status st = ST_OK;
    json_t *record = NULL;
    GpuFacts facts;
    char host[256];
    double copy = 0;

    gpu_facts(l->gpu, &facts);
    host_describe(host, sizeof host);
    RecordFacts f = {.unix_s = clock_unix_s(clock_system()),
                     .argc = a->argc,
                     .argv = a->argv,
                     .version = METRALE_VERSION,
                     .commit = host_commit(),
                     .host = host,
                     .model = l->path,
                     .dummy = str_ends(l->path, ".json") ? (a->dummy ? a->dummy : "config") : NULL,
                     .target = l->target,
                     .device = &facts,
                     .ready_s = ready_s};
    TRY(facts.host_memory ? bench_copy(&copy, clock_system(), facts.units, (size_t)512 << 20, err)
                          : bench_copy_device(&copy, l->gpu, (size_t)1 << 30, err));
    gpu_clocks(l->gpu, &f.clocks);
    f.copy_gb_s = copy;
    TRY(record_new(&record, &f, l->model, err));
    TRY(a->steps ? run_launches(record, a, l, copy, err) : run_rows(record, a, l, e, copy, err));
    *out = record;
    record = NULL;
done:
    json_decref(record);
    return st;
}

static Status run(json_t **out, Args *a, Err *err)
{
    Status st = ST_OK;
    Loaded l = {0};
    Engine *engine = NULL;
    const LoadOptions lo = bounds(a);
    const EngineOptions eo = {.queue_len = lo.max_seqs};

    if (a->dummy && !str_ends(a->model, ".json"))
        return err_set(err, ST_INVALID,
                       "--dummy %s: %s has weights of its own; name a config.json, or leave --dummy out", a->dummy,
                       a->model);
    TRY(loaded_open(&l, a->model, &a->levers, &lo, err));
    TRY(engine_new(&engine, l.model, clock_system(), &eo, &l.log, err));
    TRY(measure(out, a, &l, engine, host_process_age_s(), err));
done:
    engine_free(engine);
    loaded_close(&l);
    return st;
}

int cmd_bench(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"prompt", 'p', "N", 0, "prompt tokens of a request (128)", 0},
        {"gen", 'g', "N", 0, "generated tokens of a request (128)", 0},
        {"concurrency", 'c', "N,...", 0, "requests at a time; a list gives a row each, on one load of the weights (1)",
         0},
        {"prefill", 'l', "N", 0, "one more row: a prompt of N tokens, alone", 0},
        {"repeat", 'r', "N", 0, "timed runs of a row; their median, least and most are reported (3)", 0},
        {"steps", 's', 0, 0,
         "time each launch of the plans by itself: of a decode step of each concurrency, half way through gen, and of "
         "the longest prompt's last chunk",
         0},
        {"dummy", 'd', "FORMAT", 0, "random weights for a MODEL that is only a config.json: " DUMMY_FORMATS " (config)",
         0},
        {"json", 'j', 0, 0, "print the record as JSON", 0},
        {"compare", 'm', "FILE", 0,
         "set this run beside a record that --json printed; given twice, without MODEL: two records, and no run", 0},
        {0}};
    Status st = ST_OK;
    Err err;
    Args a = {.work = {.prompt = 128, .gen = 128, .repeat = 3, .seed = 1},
              .concurrency = {1},
              .n_concurrency = 1,
              .argc = argc,
              .argv = argv};
    json_t *record[2] = {NULL, NULL}; /* what is compared with, and this run's or the second */
    Str text = STR_INIT;

    levers_init(&a.levers);
    const struct argp_child children[] = {{&a.levers.parser, 0, "Settings:", 1}, {0}};
    const struct argp parser = {options,
                                parse,
                                "MODEL\n--compare FILE --compare FILE",
                                "Times prefill and decode of a model in this process.",
                                children,
                                NULL,
                                NULL};
    argp_parse(&parser, argc, argv, 0, NULL, &a);

    for (uint32_t i = 0; i < a.n_compare; i++) /* before the run: a bad file costs no time */
        TRY(read_record(&record[i], a.compare[i], &err));
    if (a.model)
        TRY(run(&record[1], &a, &err));
    if (a.json)
        record_print(record[1], &text);
    else if (a.model)
        record_show(record[1], &text);
    if (a.n_compare > 0)
        record_compare(record[0], record[1], &text);
    if (!str_ok(&text))
        TRY(err_set(&err, ST_NOMEM, "out of memory for the report"));
    fwrite(str_c(&text), 1, text.len, stdout);
done:
    json_decref(record[0]);
    json_decref(record[1]);
    str_release(&text);
    levers_release(&a.levers);
    return st == ST_OK ? 0 : cli_fail(&err);
}
