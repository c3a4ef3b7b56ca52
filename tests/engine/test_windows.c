/* windows: an engine over real models whose sequences go far past their windows, batched, cut into chunks, preempted and
 * cancelled; KV blocks that belong to nobody are NaN. Tokens and log-probabilities are those of the request alone. */
#include "support/kv_poison.h"

#include "engine/engine.h"
#include "engine/step_runner.h"

enum { REQUESTS = 7, MAX_LEN = 320, MAX_SEQS = 3, MAX_POOL = 128 };

/* A runner between engine and model that poisons, before each step, all blocks but those that a running sequence showed
 * last. A state slot stands for the sequence that runs in it. */
typedef struct Poisoner {
    OpenModel m;
    StepRunner runner;
    bool shown[KV_MAX_GROUPS][MAX_SEQS][MAX_POOL]; /* blocks of the sequence in each state slot */
    uint32_t most_held[KV_MAX_GROUPS];             /* by one sequence */
    uint64_t poisoned;
} Poisoner;

static Status poisoner_launch(void *ctx, const StepInput *s, float *logits, Err *err)
{
    Poisoner *p = ctx;
    const uint32_t stride = kv_group_blocks(p->runner.max_len);

    for (uint32_t g = 0; g < p->runner.n_groups; g++) {
        for (uint32_t q = 0; q < s->seqs; q++) {
            const int32_t *table = s->block_table + (g * s->seqs + q) * stride;
            const uint32_t from = (uint32_t)s->positions[s->seq_start[q]],
                           to = (uint32_t)s->positions[s->seq_start[q + 1] - 1] / 16;
            bool *mine = p->shown[g][s->state_slots[q]];
            uint32_t held = 0;

            memset(mine, 0, MAX_POOL * sizeof *mine);
            for (uint32_t b = kv_group_dead(p->runner.groups[g].window, from); b <= to; b++, held++)
                mine[table[b]] = true;
            p->most_held[g] = held > p->most_held[g] ? held : p->most_held[g];
        }
        for (uint32_t b = 0; b < p->runner.groups[g].blocks; b++) {
            bool live = false;
            for (uint32_t slot = 0; slot < MAX_SEQS; slot++)
                live |= p->shown[g][slot][b];
            if (!live) {
                kv_poison_block(&p->m, g, (int32_t)b);
                p->poisoned++;
            }
        }
    }
    return model_launch(p->m.model, s, logits, err);
}

static Status poisoner_collect(void *ctx, SamplePick *picks, Err *err)
{
    Poisoner *p = ctx;

    return model_collect(p->m.model, picks, err);
}

static void poisoner_open(Poisoner *p, const char *path, const char *hw, uint32_t window, const ModelOptions *mo)
{
    const MemoryPlan *mem;

    *p = (Poisoner){.m = open_poisoned(path, hw, DT_BF16, window, mo)};
    mem = model_memory(p->m.model);
    p->runner = (StepRunner){.launch = poisoner_launch,
                             .collect = poisoner_collect,
                             .ctx = p,
                             .max_rows = mo->max_rows,
                             .max_outs = mo->max_outs,
                             .max_seqs = mo->max_seqs,
                             .max_len = mo->max_len,
                             .vocab = model_vocab(p->m.model),
                             .n_groups = mem->n_groups};
    for (uint32_t g = 0; g < mem->n_groups; g++) {
        assert_true(mem->groups[g].blocks <= MAX_POOL);
        p->runner.groups[g] = mem->groups[g];
    }
    kv_poison_all(&p->m);
}

typedef struct Answer {
    int32_t tokens[MAX_LEN];
    float logprobs[MAX_LEN];
    uint32_t n;
    FinishReason finish;
} Answer;

static void read_answer(Stream *s, Answer *a)
{
    TokenEvent e;

    while (a->finish == FINISH_NONE && stream_next(s, &e, 0)) {
        if (e.token >= 0) {
            a->tokens[a->n] = e.token;
            a->logprobs[a->n++] = e.logprob;
        }
        a->finish = e.finish;
    }
}

/* Runs the requests, arriving a few steps apart; request i is cancelled after leave[i] steps unless that is 0. Returns
 * the preemptions. */
static uint64_t run_requests(Poisoner *p, const GenRequest *r, uint32_t n, const uint32_t *leave, Answer *answers)
{
    const EngineOptions opt = {.queue_len = REQUESTS};
    ClockFake clock;
    Engine *e;
    EngineStats stats;
    Stream *streams[REQUESTS] = {0};
    uint32_t open = n;
    Err err;

    clock_fake_init(&clock);
    assert_int_equal(engine_new_with_runner(&e, &p->runner, &clock.base, &opt, NULL, &err), ST_OK);
    for (uint32_t step = 0; open > 0; step++) {
        bool worked;
        if (step % 3 == 0 && step / 3 < n)
            assert_int_equal(engine_submit(e, &r[step / 3], &streams[step / 3], &err), ST_OK);
        for (uint32_t i = 0; i < n; i++)
            if (leave[i] == step && step > 0)
                stream_cancel(streams[i]);
        if (engine_step(e, &worked, &err) != ST_OK)
            fail_msg("%s", err.msg);
        open = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (streams[i])
                read_answer(streams[i], &answers[i]);
            open += answers[i].finish == FINISH_NONE;
        }
    }
    engine_stats(e, &stats);
    assert_int_equal(stats.running + stats.waiting + stats.kv_blocks_used, 0);
    for (uint32_t i = 0; i < n; i++)
        stream_free(streams[i]);
    engine_free(e);
    return stats.preemptions;
}

/* pool: blocks of a group that keeps all tokens; of a window at most. */
static void check_model(const char *path, const char *hw, uint32_t window, uint32_t pool, bool preempts)
{
    static const uint32_t stays[REQUESTS] = {0}, leave[REQUESTS] = {0, 0, 30, 0, 45, 0, 0};
    const ModelOptions mo = {.max_rows = 40,
                             .max_outs = MAX_SEQS,
                             .max_seqs = MAX_SEQS,
                             .max_len = MAX_LEN,
                             .kv_blocks = pool,
                             .batch_invariant = true};
    int32_t prompts[REQUESTS][MAX_LEN];
    GenRequest r[REQUESTS];
    Answer *alone = calloc(REQUESTS, sizeof *alone), *together = calloc(REQUESTS, sizeof *together);
    Poisoner *p = malloc(sizeof *p);
    uint64_t preemptions;

    assert_true(alone && together && p);
    if (class_runs(hw)) {
        poisoner_open(p, path, hw, window, &mo);
        for (uint32_t i = 0; i < REQUESTS; i++) {
            r[i] = (GenRequest){.prompt = prompts[i],
                                .n_prompt = 5 + i * 67 % 190,
                                .max_tokens = 100 - i * 5,
                                .ignore_eos = true,
                                .want_logprobs = true};
            sampling_defaults(&r[i].sampling);
            r[i].sampling.seed = i;
            for (uint32_t k = 0; k < r[i].n_prompt; k++)
                prompts[i][k] = (int32_t)((k * 31 + i * 17 + k * k % 13) % p->runner.vocab);
            (void)run_requests(p, &r[i], 1, stays, &alone[i]);
        }
        preemptions = run_requests(p, r, REQUESTS, leave, together);
        for (uint32_t i = 0; i < REQUESTS; i++) {
            assert_int_equal(together[i].finish, leave[i] ? FINISH_CANCELLED : FINISH_LENGTH);
            assert_true(leave[i] ? together[i].n < alone[i].n : together[i].n == alone[i].n);
            for (uint32_t k = 0; k < together[i].n; k++)
                if (together[i].tokens[k] != alone[i].tokens[k] || together[i].logprobs[k] != alone[i].logprobs[k])
                    fail_msg("%s, request %u, token %u: %d (%.9g) instead of %d (%.9g)", path, i, k,
                             together[i].tokens[k], (double)together[i].logprobs[k], alone[i].tokens[k],
                             (double)alone[i].logprobs[k]);
        }
        assert_true(preempts == (preemptions > 0));
        assert_true(p->poisoned > 1000);
        for (uint32_t g = 0; g < p->runner.n_groups; g++)
            if (p->runner.groups[g].window > 0)
                assert_true(p->most_held[g] <= kv_group_live(p->runner.groups[g].window, mo.max_rows));
            else
                assert_int_equal(p->most_held[g], 15); /* of the longest request, 229 tokens without the last one */
        close_model(&p->m);
    }
    free(p);
    free(alone);
    free(together);
}

static void windows__in_every_second_layer_with_ample_pools(void **state)
{
    (void)state;
    check_model("oracles/gpt_oss", "avx2", 8, 80, false);
    check_model("oracles/gpt_oss", "avx512", 37, 80, false);
    for (const char *hw = NULL; (hw = next_gpu_class(hw)) != NULL;)
        check_model("oracles/gpt_oss", hw, 37, 80, false);
}

static void windows__in_most_layers_with_preemption_by_the_layers_that_keep_all(void **state)
{
    (void)state;
    check_model("oracles/gemma3", "avx2", 37, 22, true);
    check_model("oracles/gemma3", "avx512", 16, 22, true);
    for (const char *hw = NULL; (hw = next_gpu_class(hw)) != NULL;)
        check_model("oracles/gemma3", hw, 16, 22, true);
}

static void windows__in_every_layer_serve_more_tokens_than_the_pool_has(void **state)
{
    (void)state;
    check_model("oracles/mistral", "avx2", 8, 12, false);
    check_model("oracles/mistral", "avx2", 100, 9, true); /* one window and little more */
    check_model("oracles/mistral", "avx512", 100, 9, true);
    for (const char *hw = NULL; (hw = next_gpu_class(hw)) != NULL;)
        check_model("oracles/mistral", hw, 100, 9, true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows__in_every_second_layer_with_ample_pools),
        cmocka_unit_test(windows__in_most_layers_with_preemption_by_the_layers_that_keep_all),
        cmocka_unit_test(windows__in_every_layer_serve_more_tokens_than_the_pool_has),
    };
    only_class = argc > 1 ? argv[1] : NULL;
    say_skipped_gpu_classes();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
