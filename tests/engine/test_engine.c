/* engine: scheduling, ends, refusals, failures, stopping; one step at a time over a fake model. */
#include "engine/engine.h"

#include "engine/fake_model.h"
#include "engine/stream.h"
#include <math.h>
#include <stdatomic.h>

/* An engine over a fake model on a fake clock; nothing runs but by step(). */
typedef struct Bench {
    FakeModel f;
    ClockFake clock;
    Engine *e;
} Bench;

static void bench_init_groups(Bench *b, uint32_t max_rows, uint32_t max_seqs, uint32_t max_len, const KvGroup *groups,
                              uint32_t n_groups, uint32_t queue_len)
{
    const EngineOptions opt = {.queue_len = queue_len};
    Err err;
    fake_init_groups(&b->f, max_rows, max_seqs, max_len, groups, n_groups);
    clock_fake_init(&b->clock);
    b->f.clock = &b->clock;
    b->f.step_ns = 1000;
    assert_int_equal(engine_new_with_runner(&b->e, &b->f.runner, &b->clock.base, &opt, NULL, &err), ST_OK);
}

static void bench_init_at(Bench *b, uint32_t max_rows, uint32_t max_seqs, uint32_t max_len, uint32_t kv_blocks,
                          uint32_t queue_len)
{
    bench_init_groups(b, max_rows, max_seqs, max_len, &(KvGroup){0, kv_blocks}, 1, queue_len);
}

static void bench_init(Bench *b)
{
    bench_init_at(b, 32, 4, 128, 32, 8);
}

static void bench_release(Bench *b)
{
    engine_free(b->e);
    fake_release(&b->f);
}

static EngineStats stats(Bench *b)
{
    EngineStats s;
    engine_stats(b->e, &s);
    return s;
}

static bool step(Bench *b)
{
    bool worked;
    Err err;
    assert_int_equal(engine_step(b->e, &worked, &err), ST_OK);
    return worked;
}

/* n tokens of prompt, greedy. */
static GenRequest request(uint32_t n_prompt, uint32_t max_tokens)
{
    static const int32_t prompt[1024] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
    GenRequest r = {.prompt = prompt, .n_prompt = n_prompt, .max_tokens = max_tokens};
    sampling_defaults(&r.sampling);
    r.sampling.temperature = 0;
    return r;
}

static Stream *submit(Bench *b, const GenRequest *r)
{
    Stream *s = NULL;
    Err err;
    assert_int_equal(engine_submit(b->e, r, &s, &err), ST_OK);
    return s;
}

/* Reads what there is; tokens may be NULL. Returns the number of tokens. */
static uint32_t read_all(Stream *s, int32_t *tokens, FinishReason *finish)
{
    TokenEvent e;
    uint32_t n = 0;
    *finish = FINISH_NONE;
    while (stream_next(s, &e, 0)) {
        if (e.token >= 0) {
            if (tokens)
                tokens[n] = e.token;
            n++;
        }
        *finish = e.finish;
    }
    return n;
}

static void expect_end(Stream *s, FinishReason finish, uint32_t n)
{
    FinishReason got;
    assert_int_equal(read_all(s, NULL, &got), n);
    assert_int_equal(got, finish);
}

static void expect_refusal(Bench *b, const GenRequest *r, Status st, const char *part)
{
    Stream *s = NULL;
    Err err;
    assert_int_equal(engine_submit(b->e, r, &s, &err), st);
    assert_null(s);
    if (!strstr(err.msg, part))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, part);
}

/* ---- scheduling ------------------------------------------------------------------------------------------------- */

static void step__mixes_decode_rows_with_prompt_chunks(void **state)
{
    Bench b;
    GenRequest small = request(3, 50), large = request(70, 2), last = request(10, 2);
    (void)state;
    bench_init(&b);
    Stream *s0 = submit(&b, &small);
    step(&b);
    assert_int_equal(b.f.rows, 3);
    assert_int_equal(b.f.outs, 1);
    Stream *s1 = submit(&b, &large), *s2 = submit(&b, &last);
    step(&b); /* 1 + 31 of 70: the decoding one first, no row left for the third */
    assert_int_equal(b.f.rows, 32);
    assert_int_equal(b.f.seqs, 2);
    assert_int_equal(b.f.outs, 1); /* an unfinished prompt has no output */
    assert_int_equal(b.f.seq_rows[0], 1);
    assert_int_equal(b.f.seq_rows[1], 31);
    step(&b);
    assert_int_equal(b.f.seq_rows[1], 31);
    step(&b); /* the last 8 of 70, all 10 of the third */
    assert_int_equal(b.f.seqs, 3);
    assert_int_equal(b.f.rows, 1 + 8 + 10);
    assert_int_equal(b.f.outs, 3);
    step(&b);
    assert_int_equal(b.f.rows, 3);
    expect_end(s1, FINISH_LENGTH, 2);
    expect_end(s2, FINISH_LENGTH, 2);
    assert_int_equal(stats(&b).running, 1);
    stream_free(s0);
    stream_free(s1);
    stream_free(s2);
    bench_release(&b);
}

static void step__admits_in_order_of_arrival_and_lets_nobody_overtake(void **state)
{
    Bench b;
    GenRequest first = request(40, 10), big = request(70, 1), tiny = request(1, 1);
    (void)state;
    bench_init_at(&b, 128, 4, 128, 6, 8); /* 6 blocks: first takes 3 and, later, a 4th; big needs 5 */
    Stream *s0 = submit(&b, &first), *s1 = submit(&b, &big), *s2 = submit(&b, &tiny);
    FinishReason finish = FINISH_NONE;
    while (finish == FINISH_NONE) {
        assert_int_equal(stats(&b).running <= 1, 1);
        step(&b);
        read_all(s0, NULL, &finish);
    }
    step(&b);
    expect_end(s1, FINISH_LENGTH, 1);
    expect_end(s2, FINISH_LENGTH, 1);
    assert_false(step(&b));
    stream_free(s0);
    stream_free(s1);
    stream_free(s2);
    bench_release(&b);
}

/* ---- windows ---------------------------------------------------------------------------------------------------- */

/* Reads to the end of the stream, as the only request; returns the most blocks ever in use. */
static uint32_t run_alone(Bench *b, const GenRequest *r)
{
    int32_t want[1024], got[1024];
    FinishReason finish = FINISH_NONE, want_finish;
    uint32_t n_want = fake_answer(&b->f, r, want, &want_finish), n = 0, most = 0;
    Stream *s = submit(b, r);

    while (finish == FINISH_NONE) {
        assert_true(step(b) && b->f.steps < 5000);
        most = stats(b).kv_blocks_used > most ? stats(b).kv_blocks_used : most;
        n += read_all(s, got + n, &finish);
    }
    assert_int_equal(n, n_want);
    assert_int_equal(finish, want_finish);
    assert_memory_equal(got, want, n * sizeof *got);
    assert_int_equal(stats(b).kv_blocks_used, 0);
    stream_free(s);
    return most;
}

static void window__keeps_a_bounded_number_of_blocks_whatever_the_length(void **state)
{
    const KvGroup window = {40, 8}; /* 39 + 63 tokens of a chunk, where they lie worst */
    GenRequest r = request(700, 200);
    Bench b;
    (void)state;
    assert_int_equal(kv_group_live(40, 63), 8);
    bench_init_groups(&b, 63, 2, 1000, &window, 1, 8);
    assert_int_equal(run_alone(&b, &r), 8);
    assert_int_equal(b.f.steps, 12 + 199); /* no chunk was cut for want of blocks */
    bench_release(&b);
}

static void window__pool_without_room_for_a_chunk_cuts_chunks(void **state)
{
    const KvGroup window = {40, 4}; /* (40 + 1 + 13) / 16 + 1: just enough for a row */
    GenRequest r = request(700, 200);
    Bench b;
    (void)state;
    assert_int_equal(kv_group_live(40, 1), 4);
    bench_init_groups(&b, 64, 2, 1000, &window, 1, 8);
    assert_int_equal(run_alone(&b, &r), 4);
    assert_true(b.f.steps > 11 + 199);
    assert_true(b.f.most_rows >= 16);
    bench_release(&b);
}

/* A pool that does not even hold the window serves what fits in it, and refuses more with a sentence. */
static void window__pool_below_the_window_bounds_the_request(void **state)
{
    const KvGroup groups[2] = {{0, 100}, {40, 3}};
    GenRequest r = request(40, 100), over = request(48, 1);
    Stream *s = NULL;
    Bench b;
    Err err;
    (void)state;
    bench_init_groups(&b, 64, 2, 1000, groups, 2, 8);
    assert_int_equal(engine_submit(b.e, &over, &s, &err), ST_INVALID);
    assert_non_null(strstr(err.msg, "the KV cache holds 48 tokens"));
    assert_int_equal(run_alone(&b, &r), 3 + 3); /* 48 tokens in all */
    bench_release(&b);
}

/* Either pool full: the next request waits, and begins when blocks are back. */
static void window__full_pool_of_either_group_makes_requests_wait(void **state)
{
    const KvGroup full_is_tight[2] = {{0, 9}, {20, 40}}, window_is_tight[2] = {{0, 40}, {20, 5}};
    const KvGroup *const cases[2] = {full_is_tight, window_is_tight};
    (void)state;
    for (int c = 0; c < 2; c++) {
        GenRequest r = request(100, 20);
        int32_t want[128], got[128];
        FinishReason finish;
        Stream *s[3];
        Bench b;

        bench_init_groups(&b, 16, 3, 200, cases[c], 2, 8);
        const uint32_t n = fake_answer(&b.f, &r, want, &finish);
        for (int i = 0; i < 3; i++)
            s[i] = submit(&b, &r);
        step(&b);
        assert_int_equal(stats(&b).running, 1);
        assert_int_equal(stats(&b).waiting, 2);
        while (step(&b))
            assert_true(stats(&b).running <= 1 + (uint32_t)c); /* 3 blocks for good: the second one fits at times */
        for (int i = 0; i < 3; i++) {
            assert_int_equal(read_all(s[i], got, &finish), n);
            assert_int_equal(finish, FINISH_LENGTH);
            assert_memory_equal(got, want, n * sizeof *got);
            stream_free(s[i]);
        }
        assert_int_equal(stats(&b).kv_blocks_used, 0);
        bench_release(&b);
    }
}

static void window__cancelled_request_gives_the_blocks_of_every_group_back(void **state)
{
    const KvGroup groups[3] = {{0, 60}, {20, 8}, {50, 12}};
    GenRequest r = request(300, 0);
    FinishReason finish;
    Bench b;
    (void)state;
    bench_init_groups(&b, 32, 2, 600, groups, 3, 8);
    for (int steps = 1; steps < 40; steps += 6) { /* within its prompt, and far behind */
        Stream *s = submit(&b, &r);
        for (int i = 0; i < steps; i++)
            step(&b);
        assert_true(stats(&b).kv_blocks_used > 0);
        stream_cancel(s);
        step(&b);
        read_all(s, NULL, &finish);
        assert_int_equal(finish, FINISH_CANCELLED);
        assert_int_equal(stats(&b).kv_blocks_used, 0);
        stream_free(s);
    }
    bench_release(&b);
}

static void step__admits_with_one_block_to_spare_unless_it_is_never_needed(void **state)
{
    Bench b;
    GenRequest running = request(16, 10), grows = request(32, 10), fits = request(31, 1);
    (void)state;
    bench_init_at(&b, 64, 4, 128, 4, 8);
    Stream *s0 = submit(&b, &running);
    step(&b);
    step(&b); /* it has 2 blocks of 4 */
    assert_int_equal(stats(&b).kv_blocks_used, 2);
    Stream *s1 = submit(&b, &grows); /* 2 for its prompt, and a third soon */
    step(&b);
    assert_int_equal(stats(&b).running, 1);
    stream_free(s1);
    Stream *s2 = submit(&b, &fits); /* 2 are all that it will ever need */
    step(&b);
    expect_end(s2, FINISH_LENGTH, 1);
    stream_free(s0);
    stream_free(s2);
    bench_release(&b);
}

static void step__bounds_running_sequences_by_outputs(void **state)
{
    const EngineOptions opt = {.queue_len = 8};
    Bench b;
    GenRequest r = request(2, 3);
    Stream *s[5];
    Err err;
    (void)state;
    bench_init(&b);
    engine_free(b.e);
    b.f.runner.max_outs = 2; /* of 4 sequences */
    assert_int_equal(engine_new_with_runner(&b.e, &b.f.runner, &b.clock.base, &opt, NULL, &err), ST_OK);
    for (int i = 0; i < 5; i++)
        s[i] = submit(&b, &r);
    while (step(&b))
        assert_true(b.f.outs <= 2);
    for (int i = 0; i < 5; i++) {
        expect_end(s[i], FINISH_LENGTH, 3);
        stream_free(s[i]);
    }
    bench_release(&b);
}

static void step__preempts_the_youngest_and_resumes_it_with_the_same_answer(void **state)
{
    Bench b;
    GenRequest older = request(16, 60), younger = request(20, 40), last = request(1, 1);
    int32_t want[2][128], got[128];
    uint32_t n_want[2];
    FinishReason finish;
    (void)state;
    bench_init_at(&b, 64, 2, 128, 6, 8); /* 96 tokens; the first two end with 76 + 60 */
    younger.sampling.temperature = 1;
    younger.sampling.seed = 5;
    n_want[0] = fake_answer(&b.f, &older, want[0], &finish);
    n_want[1] = fake_answer(&b.f, &younger, want[1], &finish);
    Stream *s0 = submit(&b, &older), *s1 = submit(&b, &younger), *s2 = submit(&b, &last);
    bool preempted = false;
    for (uint32_t turn = 1; step(&b); turn++) {
        assert_int_equal(read_all(s0, got + turn - 1, &finish), turn <= 60); /* the oldest gets on at every step */
        preempted = preempted || stats(&b).waiting == 2;
        if (turn < 60) /* the preempted one waits ahead of the last, for which there is room by then */
            assert_int_equal(read_all(s2, NULL, &finish), 0);
    }
    assert_true(preempted);
    assert_memory_equal(got, want[0], n_want[0] * sizeof *got);
    assert_true(stats(&b).preemptions >= 1);
    assert_int_equal(read_all(s1, got, &finish), n_want[1]);
    assert_memory_equal(got, want[1], n_want[1] * sizeof *got);
    assert_int_equal(stats(&b).prompt_tokens, 37); /* recomputed rows are not counted again */
    assert_int_equal(stats(&b).generated_tokens, 101);
    stream_free(s0);
    stream_free(s1);
    stream_free(s2);
    bench_release(&b);
}

/* ---- ends ------------------------------------------------------------------------------------------------------- */

static void answer__ends_at_any_of_several_end_ids(void **state)
{
    const int32_t script[] = {11, 11, 12, 5, 40, 2, 41, 42, 43, 44}, ends[] = {2, 5};
    int32_t got[16];
    Bench b;
    GenRequest r = request(2, 8);
    FinishReason finish;
    (void)state;
    bench_init(&b);
    b.f.script = script;
    r.stop_ids = ends;
    r.n_stop_ids = 2;
    Stream *s = submit(&b, &r);
    while (step(&b))
        ;
    assert_int_equal(read_all(s, got, &finish), 3); /* the end token is delivered with the end */
    assert_int_equal(finish, FINISH_STOP);
    assert_int_equal(got[2], 5);
    stream_free(s);

    r.ignore_eos = true;
    s = submit(&b, &r);
    while (step(&b))
        ;
    assert_int_equal(read_all(s, got, &finish), 8);
    assert_int_equal(finish, FINISH_LENGTH);
    assert_int_equal(got[3], 40);
    stream_free(s);
    bench_release(&b);
}

static void answer__is_clipped_to_what_fits(void **state)
{
    const struct {
        uint32_t n_prompt, max_tokens, n;
    } cases[] = {{60, 0, 4}, {60, 10, 4}, {60, 4, 4}, {60, 3, 3}, {63, 0, 1}, {1, UINT32_MAX, 63}};
    Bench b;
    (void)state;
    bench_init_at(&b, 32, 4, 64, 32, 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GenRequest r = request(cases[i].n_prompt, cases[i].max_tokens);
        Stream *s = submit(&b, &r);
        while (step(&b))
            ;
        expect_end(s, FINISH_LENGTH, cases[i].n);
        stream_free(s);
    }
    bench_release(&b);
}

static void answer__carries_logprobs_when_asked(void **state)
{
    Bench b;
    GenRequest r = request(5, 3);
    TokenEvent e;
    (void)state;
    bench_init(&b);
    r.want_logprobs = true;
    r.n_top_logprobs = 20;
    Stream *s = submit(&b, &r);
    r.n_top_logprobs = 0;
    Stream *bare = submit(&b, &r);
    while (step(&b))
        ;
    for (int i = 0; i < 3; i++) {
        assert_true(stream_next(s, &e, 0));
        assert_int_equal(e.n_top, 20);
        assert_int_equal(e.top[0].token, e.token); /* greedy */
        assert_true(e.top[0].logprob == e.logprob && e.logprob < 0);
        assert_true(e.top[19].logprob <= e.top[18].logprob);
        assert_int_equal(e.at_ns, 1000 * (i + 1)); /* the end of its step */
        float own = e.logprob;
        assert_true(stream_next(bare, &e, 0));
        assert_int_equal(e.n_top, 0);
        assert_true(e.logprob == own);
    }
    stream_free(s);
    stream_free(bare);
    bench_release(&b);
}

/* ---- refusals --------------------------------------------------------------------------------------------------- */

static void submit__refuses_what_can_never_be_answered(void **state)
{
    const int32_t beyond[] = {0, FAKE_VOCAB}, negative[] = {-1};
    Bench b;
    GenRequest r;
    (void)state;
    bench_init_at(&b, 32, 4, 64, 32, 8);
    r = request(0, 5);
    expect_refusal(&b, &r, ST_INVALID, "the prompt is empty");
    r = request(70, 5);
    expect_refusal(&b, &r, ST_INVALID, "the prompt has 70 tokens; the context window is 64");
    r = request(64, 5);
    expect_refusal(&b, &r, ST_INVALID, "the prompt has 64 tokens");
    r = request(2, 5);
    r.prompt = beyond;
    expect_refusal(&b, &r, ST_INVALID, "prompt[1] is 61; the vocabulary has tokens 0 to 60");
    r = request(1, 5);
    r.prompt = negative;
    expect_refusal(&b, &r, ST_INVALID, "prompt[0] is -1");
    r = request(2, 5);
    r.stop_ids = beyond;
    r.n_stop_ids = 2;
    expect_refusal(&b, &r, ST_INVALID, "stop_token_ids[1] is 61");
    r = request(2, 5);
    r.sampling.temperature = NAN;
    expect_refusal(&b, &r, ST_INVALID, "temperature is nan");
    r = request(2, 5);
    r.sampling.n_bias = 1;
    r.sampling.bias = &(LogitBias){999999999, 5};
    expect_refusal(&b, &r, ST_INVALID, "logit_bias names token 999999999");
    r = request(2, 5);
    r.n_top_logprobs = 21;
    expect_refusal(&b, &r, ST_INVALID, "top_logprobs is 21");

    r = request(2, 5); /* and a good one is answered */
    Stream *s = submit(&b, &r);
    while (step(&b))
        ;
    expect_end(s, FINISH_LENGTH, 5);
    assert_int_equal(stats(&b).requests, 1);
    stream_free(s);
    bench_release(&b);
}

static void submit__refuses_what_is_larger_than_the_whole_pool(void **state)
{
    Bench b;
    GenRequest huge = request(500, 5), edge = request(208, 1), most = request(207, 0), small = request(10, 5);
    (void)state;
    bench_init_at(&b, 64, 4, 1000, 13, 8); /* 208 tokens */
    expect_refusal(&b, &huge, ST_INVALID, "the KV cache holds 208 tokens");
    expect_refusal(&b, &edge, ST_INVALID, "the KV cache holds 208 tokens");
    Stream *s0 = submit(&b, &most), *s1 = submit(&b, &small);
    while (step(&b))
        ;
    expect_end(s0, FINISH_LENGTH, 1);
    expect_end(s1, FINISH_LENGTH, 5);
    stream_free(s0);
    stream_free(s1);
    bench_release(&b);
}

static void submit__copies_all_lists_of_the_request(void **state)
{
    int32_t prompt[] = {7, 8, 9}, ends[] = {60}, want[8], got[8];
    LogitBias bias = {60, 3.5f}; /* makes the end token likely at some step */
    Bench b;
    GenRequest r = request(0, 8);
    FinishReason want_finish, finish;
    (void)state;
    bench_init(&b);
    r.prompt = prompt;
    r.n_prompt = 3;
    r.stop_ids = ends;
    r.n_stop_ids = 1;
    r.sampling.bias = &bias;
    r.sampling.n_bias = 1;
    uint32_t n = fake_answer(&b.f, &r, want, &want_finish);
    assert_int_equal(want_finish, FINISH_STOP);
    Stream *s = submit(&b, &r);
    prompt[1] = ends[0] = 1;
    bias = (LogitBias){2, 100};
    while (step(&b))
        ;
    assert_int_equal(read_all(s, got, &finish), n);
    assert_memory_equal(got, want, n * sizeof *got);
    assert_int_equal(finish, FINISH_STOP);
    stream_free(s);
    bench_release(&b);
}

static void submit__is_busy_when_the_queue_is_full(void **state)
{
    Bench b;
    GenRequest r = request(4, 2);
    Stream *s[4];
    (void)state;
    bench_init_at(&b, 32, 1, 128, 32, 2);
    s[0] = submit(&b, &r);
    s[1] = submit(&b, &r);
    expect_refusal(&b, &r, ST_BUSY, "2 requests wait already");
    assert_int_equal(stats(&b).waiting, 2);
    step(&b); /* one runs, one waits */
    s[2] = submit(&b, &r);
    expect_refusal(&b, &r, ST_BUSY, "the queue is full");
    while (step(&b))
        ;
    s[3] = submit(&b, &r);
    while (step(&b))
        ;
    for (int i = 0; i < 4; i++) {
        expect_end(s[i], FINISH_LENGTH, 2);
        stream_free(s[i]);
    }
    assert_int_equal(stats(&b).requests, 4);
    bench_release(&b);
}

static void new__refuses_bounds_of_nothing(void **state)
{
    Bench b;
    Engine *e = NULL;
    Err err;
    (void)state;
    bench_init(&b);
    assert_int_equal(engine_new_with_runner(&e, &b.f.runner, &b.clock.base, &(EngineOptions){0}, NULL, &err),
                     ST_INVALID);
    StepRunner none = b.f.runner;
    none.max_outs = 0;
    assert_int_equal(engine_new_with_runner(&e, &none, &b.clock.base, &(EngineOptions){.queue_len = 1}, NULL, &err),
                     ST_INVALID);
    none = b.f.runner;
    none.groups[0].blocks = 0;
    assert_int_equal(engine_new_with_runner(&e, &none, &b.clock.base, &(EngineOptions){.queue_len = 1}, NULL, &err),
                     ST_INVALID);
    assert_null(e);
    assert_null(engine_model(b.e));
    engine_free(NULL);
    bench_release(&b);
}

/* ---- cancellation, deadlines ------------------------------------------------------------------------------------ */

static void cancel__returns_blocks_within_a_step_wherever_the_request_is(void **state)
{
    Bench b;
    GenRequest endless = request(20, 0), large = request(100, 0);
    FinishReason finish;
    (void)state;
    bench_init_at(&b, 32, 2, 128, 32, 8);
    Stream *stays = submit(&b, &endless);
    step(&b);
    uint32_t baseline = stats(&b).kv_blocks_used;

    Stream *decoding = submit(&b, &endless); /* after three tokens */
    for (int i = 0; i < 3; i++)
        step(&b);
    assert_int_equal(stats(&b).kv_blocks_used, baseline + 2);
    assert_int_equal(read_all(decoding, NULL, &finish), 3);
    stream_cancel(decoding);
    step(&b);
    expect_end(decoding, FINISH_CANCELLED, 0);
    assert_int_equal(stats(&b).kv_blocks_used, baseline);
    assert_int_equal(stats(&b).running, 1);
    assert_string_equal(stream_error(decoding), "");

    Stream *reading = submit(&b, &large), *queued = submit(&b, &large); /* within its prompt; in the queue */
    step(&b);
    assert_int_equal(stats(&b).running, 2);
    assert_int_equal(stats(&b).waiting, 1);
    stream_free(queued); /* the client has gone: nobody reads the end */
    stream_cancel(reading);
    step(&b);
    expect_end(reading, FINISH_CANCELLED, 0);
    assert_int_equal(stats(&b).kv_blocks_used, baseline);
    assert_int_equal(stats(&b).running + stats(&b).waiting, 1);

    Stream *unseen = submit(&b, &large); /* not even taken from the inbox */
    stream_cancel(unseen);
    step(&b);
    expect_end(unseen, FINISH_CANCELLED, 0);

    int32_t want[128], got[128]; /* the other one went on all the time */
    uint32_t n = fake_answer(&b.f, &endless, want, &finish);
    while (step(&b))
        ;
    assert_int_equal(read_all(stays, got, &finish), n);
    assert_memory_equal(got, want, n * sizeof *got);
    assert_int_equal(finish, FINISH_LENGTH);
    stream_cancel(stays); /* too late to matter */
    assert_false(step(&b));
    assert_int_equal(stats(&b).kv_blocks_used, 0);
    stream_free(decoding);
    stream_free(reading);
    stream_free(unseen);
    stream_free(stays);
    bench_release(&b);
}

static void deadline__ends_running_and_waiting_requests(void **state)
{
    Bench b;
    GenRequest r = request(4, 0), late;
    (void)state;
    bench_init_at(&b, 32, 1, 128, 32, 8);
    r.deadline_ns = 3500; /* a step takes 1000 */
    late = r;
    late.deadline_ns = 10000;
    Stream *running = submit(&b, &r), *waiting = submit(&b, &r), *next = submit(&b, &late);
    for (int i = 0; i < 5; i++)
        step(&b);
    expect_end(running, FINISH_CANCELLED, 4); /* the step that began at 3000 still counts */
    assert_string_equal(stream_error(running), "the request's deadline has passed");
    expect_end(waiting, FINISH_CANCELLED, 0);
    expect_end(next, FINISH_NONE, 1); /* began at once */
    stream_free(running);
    stream_free(waiting);
    stream_free(next);
    bench_release(&b);
}

/* ---- failures --------------------------------------------------------------------------------------------------- */

static void failed_step__ends_its_requests_and_no_others(void **state)
{
    Bench b;
    GenRequest r = request(4, 6);
    bool worked;
    Err err;
    (void)state;
    bench_init_at(&b, 32, 2, 128, 32, 8);
    b.f.fail_at = 3;
    Stream *s0 = submit(&b, &r), *s1 = submit(&b, &r), *s2 = submit(&b, &r);
    step(&b);
    step(&b);
    assert_int_equal(engine_step(b.e, &worked, &err), ST_DEVICE);
    assert_string_equal(err.msg, "the fake device fell off at step 3");
    expect_end(s0, FINISH_ERROR, 2);
    expect_end(s1, FINISH_ERROR, 2);
    assert_string_equal(stream_error(s0), "the fake device fell off at step 3");
    assert_int_equal(stats(&b).kv_blocks_used, 0);
    expect_end(s2, FINISH_NONE, 0); /* it waited */
    while (step(&b))
        ;
    expect_end(s2, FINISH_LENGTH, 6);
    assert_string_equal(stream_error(s2), "");
    stream_free(s0);
    stream_free(s1);
    stream_free(s2);
    bench_release(&b);
}

static const char *fell_off(void *ctx)
{
    const FakeModel *f = ((HostDevice *)ctx)->ctx;
    return f->fail_at && f->steps >= f->fail_at ? "it fell off" : NULL;
}

static void count_lost(void *ctx, const char *why)
{
    assert_string_equal(why, "it fell off");
    ++*(int *)ctx;
}

static void lost_device__is_told_once(void **state)
{
    FakeModel f;
    ClockFake clock;
    Engine *e;
    GenRequest r = request(4, 6);
    int told = 0;
    const EngineOptions opt = {.queue_len = 8, .on_lost = count_lost, .lost_ctx = &told};
    bool worked;
    Err err;
    (void)state;
    fake_init(&f, 32, 2, 128, 32);
    clock_fake_init(&clock);
    f.runner.lost = fell_off;
    assert_int_equal(engine_new_with_runner(&e, &f.runner, &clock.base, &opt, NULL, &err), ST_OK);
    f.fail_at = 2;
    Stream *s = NULL;
    assert_int_equal(engine_submit(e, &r, &s, &err), ST_OK);
    assert_int_equal(engine_step(e, &worked, &err), ST_OK);
    assert_int_equal(told, 0);
    assert_int_equal(engine_step(e, &worked, &err), ST_DEVICE);
    assert_int_equal(told, 1);
    stream_free(s);
    s = NULL;
    f.fail_at = 3; /* and again */
    assert_int_equal(engine_submit(e, &r, &s, &err), ST_OK);
    assert_int_equal(engine_step(e, &worked, &err), ST_DEVICE);
    assert_int_equal(told, 1);
    stream_free(s);
    engine_free(e);
    fake_release(&f);
}

static void broken_logits__are_an_error_and_never_a_token(void **state)
{
    Bench b;
    GenRequest r = request(4, 6);
    (void)state;
    bench_init(&b);
    b.f.broken_logit = NAN;
    Stream *s = submit(&b, &r);
    step(&b);
    expect_end(s, FINISH_ERROR, 0);
    assert_non_null(strstr(stream_error(s), "the logit nan for token 0"));
    stream_free(s);
    b.f.broken_logit = 0;
    s = submit(&b, &r);
    while (step(&b))
        ;
    expect_end(s, FINISH_LENGTH, 6);
    stream_free(s);
    bench_release(&b);
}

/* ---- stopping --------------------------------------------------------------------------------------------------- */

static void stop__lets_accepted_requests_finish_within_the_grace(void **state)
{
    Bench b;
    GenRequest brief = request(4, 3), endless = request(4, 0);
    (void)state;
    bench_init(&b);
    Stream *s0 = submit(&b, &brief), *s1 = submit(&b, &endless);
    step(&b);
    engine_stop(b.e, 10000); /* ten steps */
    expect_end(s0, FINISH_LENGTH, 3);
    expect_end(s1, FINISH_CANCELLED, 11);
    assert_string_equal(stream_error(s1), "the server is stopping");
    expect_refusal(&b, &brief, ST_CANCELLED, "the server is stopping");
    assert_int_equal(stats(&b).kv_blocks_used, 0);
    engine_stop(b.e, 0); /* again is fine */
    stream_free(s0);
    bench_release(&b);
    expect_end(s1, FINISH_NONE, 0); /* a stream outlives its engine */
    stream_free(s1);
}

static void stop__without_grace_ends_a_running_thread_at_once(void **state)
{
    const EngineOptions opt = {.queue_len = 4};
    static FakeModel f;
    GenRequest r = request(4, 0);
    Engine *e = NULL;
    Stream *s = NULL;
    TokenEvent event;
    uint32_t n = 0;
    Err err;
    (void)state;
    fake_init(&f, 8, 2, 100000, 6250);
    f.script = calloc(100000, sizeof *f.script);
    assert_int_equal(engine_new_with_runner(&e, &f.runner, clock_system(), &opt, NULL, &err), ST_OK);
    assert_int_equal(engine_start(e, &err), ST_OK);
    assert_int_equal(engine_submit(e, &r, &s, &err), ST_OK);
    while (n < 3)
        n += stream_next(s, &event, UINT64_C(60000000000));
    engine_stop(e, 0);
    while (event.finish == FINISH_NONE) /* all is there */
        assert_true(stream_next(s, &event, 0));
    assert_int_equal(event.finish, FINISH_CANCELLED);
    stream_free(s);
    engine_free(e);
    free((void *)(uintptr_t)f.script);
    fake_release(&f);
}

/* A system clock that counts its readings: the engine reads it at each step. */
typedef struct CountingClock {
    Clock base;
    atomic_uint readings;
} CountingClock;

static uint64_t counted_now(Clock *c)
{
    atomic_fetch_add(&((CountingClock *)c)->readings, 1);
    return clock_ns(clock_system());
}

static void idle__thread_sleeps_until_a_request_comes(void **state)
{
    const EngineOptions opt = {.queue_len = 4};
    CountingClock clock = {.base = {.now_ns = counted_now}};
    FakeModel f;
    GenRequest r = request(4, 5);
    Engine *e = NULL;
    Stream *s = NULL, *never;
    TokenEvent event = {0};
    Err err;
    (void)state;
    fake_init(&f, 8, 2, 64, 8);
    assert_int_equal(engine_new_with_runner(&e, &f.runner, &clock.base, &opt, NULL, &err), ST_OK);
    assert_int_equal(engine_start(e, &err), ST_OK);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(stream_new(&never, 1, 0, NULL, NULL, &err), ST_OK);
        assert_false(stream_next(never, &event, 50000000)); /* 50 ms pass */
        stream_release(never);
        stream_free(never);
        assert_in_range(clock.readings, 1,
                        2 + 20 * (unsigned)round); /* a busy loop would have read it a million times */
        assert_int_equal(engine_submit(e, &r, &s, &err), ST_OK);
        do
            (void)stream_next(s, &event, UINT64_C(60000000000));
        while (event.finish == FINISH_NONE);
        assert_int_equal(event.finish, FINISH_LENGTH);
        event.finish = FINISH_NONE;
        stream_free(s);
    }
    engine_free(e); /* stops by itself */
    fake_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step__mixes_decode_rows_with_prompt_chunks),
        cmocka_unit_test(step__admits_in_order_of_arrival_and_lets_nobody_overtake),
        cmocka_unit_test(window__keeps_a_bounded_number_of_blocks_whatever_the_length),
        cmocka_unit_test(window__pool_without_room_for_a_chunk_cuts_chunks),
        cmocka_unit_test(window__pool_below_the_window_bounds_the_request),
        cmocka_unit_test(window__full_pool_of_either_group_makes_requests_wait),
        cmocka_unit_test(window__cancelled_request_gives_the_blocks_of_every_group_back),
        cmocka_unit_test(step__admits_with_one_block_to_spare_unless_it_is_never_needed),
        cmocka_unit_test(step__bounds_running_sequences_by_outputs),
        cmocka_unit_test(step__preempts_the_youngest_and_resumes_it_with_the_same_answer),
        cmocka_unit_test(answer__ends_at_any_of_several_end_ids),
        cmocka_unit_test(answer__is_clipped_to_what_fits),
        cmocka_unit_test(answer__carries_logprobs_when_asked),
        cmocka_unit_test(submit__refuses_what_can_never_be_answered),
        cmocka_unit_test(submit__refuses_what_is_larger_than_the_whole_pool),
        cmocka_unit_test(submit__copies_all_lists_of_the_request),
        cmocka_unit_test(submit__is_busy_when_the_queue_is_full),
        cmocka_unit_test(new__refuses_bounds_of_nothing),
        cmocka_unit_test(cancel__returns_blocks_within_a_step_wherever_the_request_is),
        cmocka_unit_test(deadline__ends_running_and_waiting_requests),
        cmocka_unit_test(failed_step__ends_its_requests_and_no_others),
        cmocka_unit_test(lost_device__is_told_once),
        cmocka_unit_test(broken_logits__are_an_error_and_never_a_token),
        cmocka_unit_test(stop__lets_accepted_requests_finish_within_the_grace),
        cmocka_unit_test(stop__without_grace_ends_a_running_thread_at_once),
        cmocka_unit_test(idle__thread_sleeps_until_a_request_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
