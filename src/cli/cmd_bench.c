/* cmd_bench.c - `metrale bench`: a workload on an engine in this process, see bench/bench.h for what each figure means. */
#include "bench/bench.h"
#include "cli/cli.h"
#include "cli/dummy_model.h"
#include "cli/loader.h"
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Args {
    const char *model, *dummy;
    BenchWork work;
    bool json;
    Levers levers;
} Args;

static uint32_t number(struct argp_state *state, const char *flag, const char *text, uint32_t least, uint32_t most)
{
    uint64_t v = 0;
    if (!cli_whole(text, least, most, &v))
        argp_error(state, "--%s: \"%s\" is no whole number from %u to %u", flag, text, least, most);
    return (uint32_t)v;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;
    switch (key) {
    case 'p':
        a->work.prompt = number(state, "prompt", arg, 1, 1 << 20);
        return 0;
    case 'g':
        a->work.gen = number(state, "gen", arg, 1, 1 << 20);
        return 0;
    case 'c':
        a->work.concurrency = number(state, "concurrency", arg, 1, 1024);
        return 0;
    case 'r':
        a->work.repeat = number(state, "repeat", arg, 1, 1000);
        return 0;
    case 'd':
        a->dummy = arg;
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
        if (!a->model)
            argp_error(state, "MODEL is needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_result(const Args *a, const Loaded *l, const BenchResult *r, unsigned threads)
{
    const Plan *plan = model_plan(l->model, 1);
    if (a->json) {
        printf("{\"target\": \"%s\", \"plan\": \"%s\", \"threads\": %u, \"prompt\": %u, \"gen\": %u, \"concurrency\": "
               "%u, \"repeat\": %u, "
               "\"prefill_tok_s\": %.1f, \"decode_tok_s\": %.1f, \"ttft_ms\": %.2f, \"step_p50_ms\": %.3f, "
               "\"step_p99_ms\": %.3f, "
               "\"bytes_token\": %.0f, \"copy_gb_s\": %.1f, \"share_of_copy\": %.3f, \"tokens_hash\": \"%016llx\"}\n",
               l->target->name, plan->digest, threads, a->work.prompt, a->work.gen, a->work.concurrency, a->work.repeat,
               r->prefill_tok_s, r->decode_tok_s, r->ttft_ms, r->step_p50_ms, r->step_p99_ms, r->bytes_token,
               r->copy_gb_s, r->share, (unsigned long long)r->tokens_hash);
        return;
    }
    printf("%s, %u threads, plan %.12s: %u prompt + %u generated tokens, %u at a time, median of %u\n", l->target->name,
           threads, plan->digest, a->work.prompt, a->work.gen, a->work.concurrency, a->work.repeat);
    printf("  prefill  %10.1f tok/s    first token %.2f ms\n", r->prefill_tok_s, r->ttft_ms);
    printf("  decode   %10.1f tok/s    step p50 %.3f ms, p99 %.3f ms\n", r->decode_tok_s, r->step_p50_ms,
           r->step_p99_ms);
    printf("  reads    %10.2f MB a token: %.1f GB/s, %.0f%% of the %.1f GB/s that a copy moves here\n",
           r->bytes_token * 1e-6, r->bytes_token * r->decode_tok_s * 1e-9, 100 * r->share, r->copy_gb_s);
    printf("  tokens   %016llx\n", (unsigned long long)r->tokens_hash);
}

int cmd_bench(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"prompt", 'p', "N", 0, "prompt tokens of a request (128)", 0},
        {"gen", 'g', "N", 0, "generated tokens of a request (128)", 0},
        {"concurrency", 'c', "N", 0, "requests at a time (1)", 0},
        {"repeat", 'r', "N", 0, "timed runs; the median by decode rate is reported (3)", 0},
        {"dummy", 'd', "FORMAT", 0, "random weights for a MODEL that is only a config.json: " DUMMY_FORMATS " (config)",
         0},
        {"json", 'j', 0, 0, "print a JSON object", 0},
        {0}};
    Status st = ST_OK;
    Err err;
    Args a = {.work = {.prompt = 128, .gen = 128, .concurrency = 1, .repeat = 3, .seed = 1}};
    Loaded l = {0};
    Engine *engine = NULL;
    BenchResult r;
    GpuFacts facts;
    double copy = 0;

    levers_init(&a.levers);
    const struct argp_child children[] = {{&a.levers.parser, 0, "Settings:", 1}, {0}};
    const struct argp parser = {options,  parse, "MODEL", "Times prefill and decode of a model in this process.",
                                children, NULL,  NULL};
    argp_parse(&parser, argc, argv, 0, NULL, &a);

    LoadOptions lo = {
        .level = LOAD_MODEL, .quiet = true, .dummy = a.dummy ? a.dummy : "config", .max_seqs = a.work.concurrency};
    EngineOptions eo = {.queue_len = a.work.concurrency};
    if (a.dummy && !str_ends(a.model, ".json"))
        TRY(err_set(&err, ST_INVALID, "--dummy %s: %s has weights of its own; name a config.json, or leave --dummy out",
                    a.dummy, a.model));
    TRY(loaded_open(&l, a.model, &a.levers, &lo, &err));
    gpu_facts(l.gpu, &facts);
    TRY(facts.host_memory ? bench_copy(&copy, clock_system(), facts.units, (size_t)512 << 20, &err)
                          : bench_copy_device(&copy, l.gpu, (size_t)1 << 30, &err));
    TRY(engine_new(&engine, l.model, clock_system(), &eo, &l.log, &err));
    TRY(bench_run(&r, engine, clock_system(), &a.work, copy, &err));
    print_result(&a, &l, &r, facts.units);
done:
    engine_free(engine);
    loaded_close(&l);
    levers_release(&a.levers);
    return st == ST_OK ? 0 : cli_fail(&err);
}
