/* families: the real engine over the real model and kernels, for every architecture: whatever arrives, leaves, is preempted or
 * cut into chunks, each request's tokens, logits and log-probabilities are those it gets alone, bit for bit.
 *
 * Alone is: another model object with room for everything, the prompt in one step, then a token at a time, without an engine.
 * A schedule has random bounds (rows of a step, sequences, outputs, window, a KV pool that holds hardly more than its longest
 * request), random arrivals and requests that leave in the middle of their prompt or of their answer.
 *
 * Each request's first token is its own, so that a step's sequence can be told by it. The runner between engine and model
 * keeps which token each KV slot holds; it reads a sequence's history through the step's block tables, as far back as the
 * window of each KV group goes, as attention does, and holds it, and the logits behind it, against the request's. */
#include "engine/step_runner.h"
#include "support/open_model.h"

enum { REQUESTS = 10, MAX_LEN = 112, MAX_ANSWER = 40, MAX_TOP = 4, POOL = (MAX_LEN + 15) / 16 };

typedef enum { STAYS, LEAVES_PROMPT, LEAVES_ANSWER } Leaving;

typedef struct Planned { /* one request of a schedule */
    GenRequest req;
    int32_t tokens[MAX_LEN + 1]; /* prompt, then the answer it gets alone */
    int32_t stop;
    LogitBias bias;
    float *logits;              /* [n_answer][vocab]: before each token of the answer, biased and penalised */
    TokenEvent answer[MAX_LEN]; /* at_ns 0 */
    uint32_t n_answer, n_got, arrives_at, leaves_after;
    Leaving leaving;
    bool left;
    FinishReason finish;
    uint32_t reached; /* leading tokens that the model has seen since it last began */
    Stream *stream;
} Planned;

typedef struct Counts {
    uint64_t preemptions, begun_again, chunked, mixed, left_prompt, left_answer;
} Counts;

typedef struct Schedule {
    const char *path, *hw;
    uint32_t seed;
    uint64_t rnd;
    Model *model;
    StepRunner runner;
    Planned plans[REQUESTS];
    int32_t *held[KV_MAX_GROUPS];           /* [slots]: token in each KV slot */
    Planned *owner[16];                     /* of each state slot, since its sequence was at position 0 */
    float *logits;                          /* of a step */
    SamplePick picks[MODEL_MAX_FLIGHTS][8]; /* of steps that were launched; CPU classes have run them then */
    uint32_t outs[MODEL_MAX_FLIGHTS];
    uint64_t launched, collected, with_outputs; /* the last step with outputs, counted from 1 */
    Counts counts;
    char fault[256];
} Schedule;

static uint32_t below(Schedule *s, uint32_t n)
{
    s->rnd = s->rnd * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth's MMIX */
    return (uint32_t)(s->rnd >> 33) % n;
}

#define FAIL(s, ...)                                                                                                   \
    do {                                                                                                               \
        print_error("%s on %s, seed %u: ", (s)->path, (s)->hw, (s)->seed);                                             \
        fail_msg(__VA_ARGS__);                                                                                         \
    } while (0)

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void plan_request(Schedule *s, uint32_t index, uint32_t limit)
{
    Planned *p = &s->plans[index];
    const uint32_t vocab = s->runner.vocab;
    SamplingParams *sp = &p->req.sampling;

    *p = (Planned){.arrives_at = below(s, 20), .leaving = (Leaving)below(s, 4), .leaves_after = 1 + below(s, 20)};
    if (p->leaving > LEAVES_ANSWER)
        p->leaving = STAYS;
    switch (below(s, 4)) {
    case 0:
        p->req.n_prompt = 1;
        break;
    case 1:
        p->req.n_prompt = limit - 1 - below(s, limit / 4);
        break;
    default:
        p->req.n_prompt = 1 + below(s, limit / 2);
    }
    p->tokens[0] = (int32_t)index;
    for (uint32_t i = 1; i < p->req.n_prompt; i++)
        p->tokens[i] = (int32_t)below(s, vocab);
    p->req.prompt = p->tokens;
    p->req.max_tokens = below(s, 4) ? MAX_ANSWER - below(s, 8) : 1 + below(s, MAX_ANSWER);
    p->stop = (int32_t)below(s, vocab);
    p->req.stop_ids = &p->stop;
    p->req.n_stop_ids = below(s, 2);
    p->req.want_logprobs = below(s, 4) > 0;
    p->req.n_top_logprobs = below(s, MAX_TOP + 1);
    sampling_defaults(sp);
    sp->seed = below(s, 1000);
    sp->temperature = below(s, 3) ? 1.0f : 0;
    sp->top_k = (int32_t)below(s, 20);
    sp->top_p = below(s, 2) ? 0.9f : 1;
    sp->min_p = below(s, 4) ? 0 : 0.02f;
    sp->frequency_penalty = below(s, 2) ? 0.5f : 0;
    sp->repetition_penalty = below(s, 2) ? 1.3f : 1;
    p->bias = (LogitBias){(int32_t)below(s, vocab), 1.5f};
    sp->bias = &p->bias;
    sp->n_bias = below(s, 2);
}

static FinishReason ends(const Planned *p, uint32_t n, uint32_t limit)
{
    if (p->req.n_stop_ids > 0 && p->tokens[n - 1] == p->stop)
        return FINISH_STOP;
    return n == limit || n - p->req.n_prompt == p->req.max_tokens ? FINISH_LENGTH : FINISH_NONE;
}

/* The request's answer alone; limit: tokens that a sequence of the schedule may have. */
static void answer_alone(Schedule *s, Planned *p, Solo *solo, uint32_t limit)
{
    const uint32_t vocab = s->runner.vocab;
    const size_t row = vocab * sizeof(float);
    uint32_t n = p->req.n_prompt;
    float *prompt = malloc(n * row), *scratch = malloc(row);
    uint64_t *sort = calloc(vocab, sizeof *sort);
    SamplingParams sp = p->req.sampling;
    FinishReason finish = FINISH_NONE;
    Err e;

    p->logits = calloc(MAX_ANSWER, row);
    assert_true(prompt && scratch && sort && p->logits);
    sp.n_prompt = n;
    solo_reset(solo);
    if (solo_append(solo, p->tokens, n, prompt, &e) != ST_OK)
        FAIL(s, "%s", e.msg);
    memcpy(p->logits, prompt + (size_t)(n - 1) * vocab, row);
    while (finish == FINISH_NONE) {
        TokenEvent *out = &p->answer[p->n_answer];
        TokenLogprob own = {0};
        *out = (TokenEvent){.n_top = p->req.want_logprobs ? p->req.n_top_logprobs : 0};
        memcpy(scratch, p->logits + (size_t)p->n_answer * vocab, row);
        if (sampling_pick(&sp, scratch, vocab, p->tokens, n, p->n_answer, sort, &out->token, out->n_top, out->top,
                          p->req.want_logprobs ? &own : NULL, &e) != ST_OK)
            FAIL(s, "%s", e.msg);
        memcpy(p->logits + (size_t)p->n_answer * vocab, scratch, row);
        out->logprob = own.logprob;
        p->tokens[n++] = out->token;
        p->n_answer++;
        finish = out->finish = ends(p, n, limit);
        if (finish == FINISH_NONE &&
            solo_append(solo, p->tokens + n - 1, 1, p->logits + (size_t)p->n_answer * vocab, &e) != ST_OK)
            FAIL(s, "%s", e.msg);
    }
    free(prompt);
    free(scratch);
    free(sort);
}

/* ---- the runner between engine and model -------------------------------------------------------------------------- */

/* Which request sequence q of the step is; NULL and a fault when its history is none's. */
static Planned *request_of(Schedule *s, const StepInput *in, uint32_t q)
{
    const uint32_t begin = (uint32_t)in->positions[in->seq_start[q]];
    const uint32_t end = (uint32_t)in->positions[in->seq_start[q + 1] - 1] + 1;
    const int32_t first = in->tokens[in->seq_start[q]];
    Planned **owner = &s->owner[in->state_slots[q]];

    if (begin == 0)
        *owner = first >= 0 && first < REQUESTS ? &s->plans[first] : NULL;
    for (uint32_t g = 0; *owner && g < s->runner.n_groups; g++) {
        const int32_t *table = in->block_table + ((size_t)g * in->seqs + q) * ((s->runner.max_len + 15) / 16);
        const uint32_t window = s->runner.groups[g].window;

        for (uint32_t i = window > 0 && begin >= window ? begin - window + 1 : 0; i < end; i++) {
            int32_t token = s->held[g][table[i / 16] * 16 + (int32_t)(i % 16)];
            if ((*owner)->tokens[i] != token) {
                snprintf(s->fault, sizeof s->fault, "request %d has token %d at %u of %u in its blocks, not its own",
                         (*owner)->tokens[0], token, i, end);
                return NULL;
            }
        }
    }
    if (*owner == NULL)
        snprintf(s->fault, sizeof s->fault, "sequence %u of a step is no request's", q);
    return *owner;
}

static void watch(Schedule *s, const StepInput *in, const float *logits)
{
    const uint32_t vocab = s->runner.vocab;
    uint32_t most = 0, least = UINT32_MAX, out = 0;

    for (uint32_t q = 0; q < in->seqs && s->fault[0] == '\0'; q++) {
        const int32_t last = in->seq_start[q + 1] - 1;
        const uint32_t rows = (uint32_t)(last + 1 - in->seq_start[q]);
        Planned *p = request_of(s, in, q);
        if (p == NULL)
            return;
        const uint32_t begin = (uint32_t)in->positions[in->seq_start[q]];
        s->counts.begun_again += begin == 0 && p->reached > 0;
        p->reached = (uint32_t)in->positions[last] + 1;
        most = rows > most ? rows : most;
        least = rows < least ? rows : least;
        if (out == in->outs || in->out_rows[out] != last) {
            s->counts.chunked++;
            continue;
        }
        const uint32_t at = p->reached - p->req.n_prompt;
        if (at == p->n_answer && s->runner.ahead) /* the row behind a last token that was not known to be the last */
            ;
        else if (p->reached < p->req.n_prompt || at >= p->n_answer)
            snprintf(s->fault, sizeof s->fault, "request %d has an output behind its token %u", p->tokens[0],
                     p->reached);
        else if (memcmp(logits + (size_t)out * vocab, p->logits + (size_t)at * vocab, vocab * sizeof(float)) != 0)
            snprintf(s->fault, sizeof s->fault,
                     "request %d: other logits behind its token %u (%u of the answer) than alone, in a step of %u rows "
                     "and %u sequences",
                     p->tokens[0], p->reached, at, in->rows, in->seqs);
        out++;
    }
    s->counts.mixed += most > 1 && least == 1;
}

/* As the step will find its tokens. */
static StepInput known(Schedule *s, const StepInput *in, int32_t *tokens)
{
    StepInput out = *in;

    for (uint32_t r = 0; r < in->rows; r++)
        tokens[r] = in->tokens[r] >= 0 ? in->tokens[r]
                                       : s->picks[(s->with_outputs - 1) % MODEL_MAX_FLIGHTS][-1 - in->tokens[r]].token;
    out.tokens = tokens;
    return out;
}

static Status launch_watched(void *ctx, const StepInput *in, float *logits, Err *err)
{
    Schedule *s = ctx;
    const size_t at = s->launched % MODEL_MAX_FLIGHTS;
    int32_t tokens[MAX_LEN];
    const StepInput asked = known(s, in, tokens);
    Status st = model_launch(s->model, in, s->logits, err);

    s->outs[at] = in->outs;
    if (st == ST_OK)
        st = model_collect(s->model, s->picks[at], err);
    if (st != ST_OK)
        return st;
    s->launched++;
    s->with_outputs = in->outs > 0 ? s->launched : s->with_outputs;
    if (logits)
        memcpy(logits, s->logits, (size_t)in->outs * s->runner.vocab * sizeof *logits);
    for (uint32_t g = 0; g < s->runner.n_groups; g++)
        for (uint32_t r = 0; r < in->rows; r++)
            s->held[g][in->slots[(size_t)g * in->rows + r]] = tokens[r];
    watch(s, &asked, s->logits);
    return s->fault[0] ? err_set(err, ST_INVALID, "%s", s->fault) : ST_OK;
}

static Status collect_watched(void *ctx, SamplePick *picks, Err *err)
{
    Schedule *s = ctx;
    const size_t at = s->collected++ % MODEL_MAX_FLIGHTS;

    (void)err;
    memcpy(picks, s->picks[at], s->outs[at] * sizeof *picks);
    return ST_OK;
}

/* ---- schedules ---------------------------------------------------------------------------------------------------- */

static void take_event(Schedule *s, Planned *p, const TokenEvent *got)
{
    const TokenEvent *want = &p->answer[p->n_got];

    p->finish = got->finish;
    if (got->token < 0 && p->left && got->finish == FINISH_CANCELLED)
        return;
    if (p->n_got == p->n_answer || got->token != want->token || got->finish != want->finish)
        FAIL(s, "request %d: token %d, finish %d, as number %u of its answer; alone %d, %d", p->tokens[0], got->token,
             (int)got->finish, p->n_got, want->token, (int)want->finish);
    if (got->n_top != want->n_top || memcmp(&got->logprob, &want->logprob, sizeof got->logprob) != 0 ||
        memcmp(got->top, want->top, want->n_top * sizeof *want->top) != 0)
        FAIL(s, "request %d: other log-probabilities than alone in number %u of its answer", p->tokens[0], p->n_got);
    p->n_got++;
}

static void maybe_leave(Schedule *s, Planned *p)
{
    bool now = (p->leaving == LEAVES_PROMPT && p->n_got == 0 && p->reached > 0 && p->reached < p->req.n_prompt) ||
               (p->leaving == LEAVES_ANSWER && p->n_got >= p->leaves_after);

    if (!now || p->left || p->finish != FINISH_NONE)
        return;
    stream_cancel(p->stream);
    p->left = true;
    s->counts.left_prompt += p->leaving == LEAVES_PROMPT;
    s->counts.left_answer += p->leaving == LEAVES_ANSWER;
}

static void run_engine(Schedule *s)
{
    const EngineOptions opt = {.queue_len = REQUESTS};
    ClockFake clock;
    Engine *e = NULL;
    EngineStats stats;
    bool worked;
    Err err;

    clock_fake_init(&clock);
    if (engine_new_with_runner(&e, &s->runner, &clock.base, &opt, NULL, &err) != ST_OK)
        FAIL(s, "%s", err.msg);
    for (uint32_t step = 0, open = REQUESTS; open > 0; step++) {
        if (step > 20000)
            FAIL(s, "it does not end");
        for (uint32_t i = 0; i < REQUESTS; i++) {
            Planned *p = &s->plans[i];
            if (p->arrives_at == step && engine_submit(e, &p->req, &p->stream, &err) != ST_OK)
                FAIL(s, "%s", err.msg);
        }
        if (engine_step(e, &worked, &err) != ST_OK)
            FAIL(s, "%s", err.msg);
        open = 0;
        for (uint32_t i = 0; i < REQUESTS; i++) {
            Planned *p = &s->plans[i];
            TokenEvent event;
            while (p->stream && p->finish == FINISH_NONE && stream_next(p->stream, &event, 0))
                take_event(s, p, &event);
            if (p->stream)
                maybe_leave(s, p);
            open += p->finish == FINISH_NONE;
        }
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        if (s->plans[i].finish != FINISH_CANCELLED && s->plans[i].n_got != s->plans[i].n_answer)
            FAIL(s, "request %u gets %u tokens, alone %u", i, s->plans[i].n_got, s->plans[i].n_answer);
        stream_free(s->plans[i].stream);
    }
    engine_stats(e, &stats);
    if (stats.running + stats.waiting + stats.kv_blocks_used != 0)
        FAIL(s, "%u KV blocks are still in use", stats.kv_blocks_used);
    s->counts.preemptions += stats.preemptions;
    engine_free(e);
}

static void run_schedule(const char *path, const char *hw, uint32_t seed, Counts *total)
{
    static const uint32_t chunks[] = {1, 2, 5, 7, 16, 24, 33, 64};
    static const DType formats[] = {DT_F16, DT_BF16, DT_F32, DT_F16};
    static const ModelOptions roomy = {.max_rows = MAX_LEN,
                                       .max_outs = MAX_LEN,
                                       .max_seqs = 1,
                                       .max_len = MAX_LEN,
                                       .kv_blocks = POOL,
                                       .batch_invariant = true};
    Schedule *s = calloc(1, sizeof *s);
    Solo *solo;
    Err e;

    assert_non_null(s);
    *s = (Schedule){.path = path, .hw = hw, .seed = seed, .rnd = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15)};
    ModelOptions o = {.max_rows = chunks[below(s, 8)],
                      .max_seqs = 2 + below(s, 6),
                      .max_len = MAX_LEN - below(s, 60),
                      .batch_invariant = true};
    o.max_outs = below(s, 2) || o.max_rows < o.max_seqs ? o.max_rows : o.max_seqs;
    o.kv_blocks = (o.max_len + 15) / 16 - below(s, 2) + below(s, 3);
    const DType kv = formats[seed % 4];

    GpuBackend *gpu[2]; /* threads change nothing either; one is quicker where others want the CPUs */
    if (gpu_cpu_new(&gpu[0], hw, 1, &e) != ST_OK || gpu_cpu_new(&gpu[1], hw, seed % 8 == 0 ? 2 : 1, &e) != ST_OK)
        FAIL(s, "%s", e.msg);
    OpenModel alone = open_model(path, hw, kv, &roomy, gpu[0]), m = open_model(path, hw, kv, &o, gpu[1]);
    s->model = m.model;
    s->runner = (StepRunner){.launch = launch_watched,
                             .collect = collect_watched,
                             .ahead = seed % 2 == 1,
                             .ctx = s,
                             .max_rows = o.max_rows,
                             .max_outs = o.max_outs,
                             .max_seqs = o.max_seqs,
                             .max_len = o.max_len,
                             .kv_blocks = o.kv_blocks,
                             .vocab = model_vocab(m.model),
                             .n_groups = model_memory(m.model)->n_groups};
    for (uint32_t g = 0; g < s->runner.n_groups; g++) {
        s->runner.groups[g] = model_memory(m.model)->groups[g];
        s->held[g] = calloc(s->runner.groups[g].blocks * 16u, sizeof(int32_t));
        assert_non_null(s->held[g]);
    }
    s->logits = calloc(o.max_outs, (size_t)s->runner.vocab * sizeof(float));
    assert_non_null(s->logits);
    const uint32_t limit = model_max_tokens(m.model);
    if (solo_new(&solo, alone.model, &e) != ST_OK)
        FAIL(s, "%s", e.msg);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        plan_request(s, i, limit);
        answer_alone(s, &s->plans[i], solo, limit);
    }
    run_engine(s);
    total->preemptions += s->counts.preemptions;
    total->begun_again += s->counts.begun_again;
    total->chunked += s->counts.chunked;
    total->mixed += s->counts.mixed;
    total->left_prompt += s->counts.left_prompt;
    total->left_answer += s->counts.left_answer;
    for (uint32_t i = 0; i < REQUESTS; i++)
        free(s->plans[i].logits);
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
        free(s->held[g]);
    free(s->logits);
    solo_free(solo);
    close_model(&m);
    close_model(&alone);
    free(s);
}

static const char *const families[] = {
    "oracles/llama", "oracles/llama3-rope", "oracles/mistral", "oracles/qwen2", "oracles/qwen3", "oracles/qwen3-yarn",
    "oracles/granite", "oracles/olmoe", "oracles/gemma3", "oracles/qwen3_moe", "oracles/glm4_moe", "oracles/minimax_m2",
    "oracles/gpt_oss", "oracles/qwen3_next", "oracles/qwen3_5", "oracles/qwen3_5_moe", "oracles/nemotron_h",
    "oracles/deepseek_v3", "oracles/smollm3",
    /* 8-bit activations, dense and with experts */
    "formats/gguf-q4_0-llama/model.gguf", "formats/gguf-q4_0-qwen3moe/model.gguf"};
enum { FAMILIES = sizeof families / sizeof *families, SEEDS = 8 };

/* All seeds of one family, on each class that runs here. */
static void check_family(void **state)
{
    static const char *const classes[] = {"avx2", "avx512"};
    const char *const *path = *state;

    for (uint32_t c = 0; c < 2; c++) {
        Counts n = {0};
        if (!class_runs(classes[c]))
            continue;
        for (uint32_t i = 0; i < SEEDS; i++)
            run_schedule(*path, classes[c], ((uint32_t)(path - families) * 2 + c) * SEEDS + i, &n);
        if (!(n.preemptions > 0 && n.begun_again > 0 && n.chunked > 0 && n.mixed > 0 && n.left_prompt > 0 &&
              n.left_answer > 0))
            fail_msg("%s on %s: the schedules are too tame to test what they are for", *path, classes[c]);
    }
}

int main(void)
{
    struct CMUnitTest tests[FAMILIES];
    for (size_t i = 0; i < FAMILIES; i++)
        tests[i] = (struct CMUnitTest){
            .name = families[i], .test_func = check_family, .initial_state = (void *)(uintptr_t)&families[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
