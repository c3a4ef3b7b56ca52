/* schedules: whatever arrives, leaves, is preempted or cut into chunks, each request gets the answer it gets alone. */
#include "core/thread.h"
#include "engine/fake_model.h"
#include <stdatomic.h>

enum { REQUESTS = 14, MAX_LEN = 120 };

typedef struct Planned { /* one request of a schedule */
    GenRequest req;
    int32_t prompt[MAX_LEN], stops[2];
    LogitBias bias;
    int32_t expected[MAX_LEN], got[MAX_LEN];
    uint32_t n_expected, n_got;
    FinishReason expected_finish, finish;
    uint32_t arrives_at, leaves_at; /* step; leaves_at 0: stays */
    Stream *stream;
} Planned;

static uint32_t below(unsigned short rng[3], uint32_t n)
{
    return (uint32_t)(nrand48(rng) % (long)n);
}

static void make_planned(Planned *p, const FakeModel *f, unsigned short rng[3])
{
    const uint32_t room = fake_limit(f) - 1;

    *p = (Planned){.arrives_at = below(rng, 60), .leaves_at = below(rng, 3) == 0 ? 1 + below(rng, 80) : 0};
    p->req.prompt = p->prompt;
    p->req.n_prompt = 1 + below(rng, below(rng, 2) ? room : room / 4 + 1);
    if (p->req.n_prompt > room)
        p->req.n_prompt = room;
    for (uint32_t i = 0; i < p->req.n_prompt; i++)
        p->prompt[i] = (int32_t)below(rng, FAKE_VOCAB);
    p->req.max_tokens = below(rng, 4) ? 1 + below(rng, 40) : 0;
    p->req.stop_ids = p->stops;
    p->req.n_stop_ids = below(rng, 3);
    p->stops[0] = (int32_t)below(rng, FAKE_VOCAB);
    p->stops[1] = (int32_t)below(rng, FAKE_VOCAB);
    p->req.ignore_eos = below(rng, 3) == 0;
    sampling_defaults(&p->req.sampling);
    p->req.sampling.seed = below(rng, 1000);
    p->req.sampling.temperature = below(rng, 3) ? 1.0f : 0;
    p->req.sampling.top_k = (int32_t)below(rng, 20);
    p->req.sampling.top_p = below(rng, 2) ? 0.9f : 1;
    p->req.sampling.frequency_penalty = below(rng, 2) ? 0.5f : 0;
    p->req.sampling.repetition_penalty = below(rng, 2) ? 1.3f : 1;
    p->bias = (LogitBias){(int32_t)below(rng, FAKE_VOCAB), 1.5f};
    p->req.sampling.n_bias = below(rng, 2);
    p->req.sampling.bias = &p->bias;
    p->n_expected = fake_answer(f, &p->req, p->expected, &p->expected_finish);
}

static bool read_event(Planned *p, uint64_t wait_ns)
{
    TokenEvent e;

    if (p->finish != FINISH_NONE || !stream_next(p->stream, &e, wait_ns))
        return false;
    if (e.token >= 0 && p->n_got < MAX_LEN)
        p->got[p->n_got++] = e.token;
    p->finish = e.finish;
    return true;
}

static void expect_answer(const Planned *p, bool may_be_cut)
{
    if (p->finish == FINISH_CANCELLED && may_be_cut) {
        assert_true(p->n_got <= p->n_expected);
    } else {
        assert_int_equal(p->finish, p->expected_finish);
        assert_int_equal(p->n_got, p->n_expected);
    }
    assert_memory_equal(p->got, p->expected, p->n_got * sizeof *p->got);
}

/* A fake model of random bounds: of one group that keeps all, of one window, of both, or of three windows; pools from
 * too small for a window to ample. */
static void make_model(FakeModel *f, unsigned short rng[3])
{
    static const uint32_t chunk_rows[] = {1, 2, 3, 7, 16, 33, 64};
    const uint32_t rows = chunk_rows[below(rng, 7)], seqs = 1 + below(rng, 7), len = 30 + below(rng, MAX_LEN - 30);
    const uint32_t kind = below(rng, 5);
    KvGroup groups[3] = {{0, 3 + below(rng, 9)}};
    uint32_t n = 1;

    if (kind == 1 || kind == 2) /* windows without a group that keeps all */
        n = 0;
    for (uint32_t i = 0; i < kind && n < 3; i++) {
        const uint32_t window = 1 + below(rng, below(rng, 2) ? 20 : 70);
        groups[n++] = (KvGroup){window, below(rng, 3) ? kv_group_pool(window, 3 + below(rng, 20), seqs, rows)
                                                      : 2 + below(rng, 7)};
    }
    fake_init_groups(f, rows, seqs, len, groups, n);
}

/* Returns the preemptions of the schedule. */
static uint64_t run_schedule(int seed)
{
    unsigned short rng[3] = {(unsigned short)seed, 0x1234, 0x330e};
    const EngineOptions opt = {.queue_len = REQUESTS};
    ClockFake clock;
    FakeModel f;
    Engine *e = NULL;
    EngineStats stats;
    Planned *plans = calloc(REQUESTS, sizeof *plans);
    uint32_t open = REQUESTS;
    bool worked;
    Err err;

    assert_non_null(plans);
    clock_fake_init(&clock);
    make_model(&f, rng);
    assert_int_equal(engine_new_with_runner(&e, &f.runner, &clock.base, &opt, NULL, &err), ST_OK);
    for (uint32_t i = 0; i < REQUESTS; i++)
        make_planned(&plans[i], &f, rng);

    for (uint32_t step = 0; open > 0; step++) {
        assert_true(step < 20000); /* it ends */
        for (uint32_t i = 0; i < REQUESTS; i++) {
            Planned *p = &plans[i];
            if (p->arrives_at == step)
                assert_int_equal(engine_submit(e, &p->req, &p->stream, &err), ST_OK);
            if (p->leaves_at == step && step > 0 && p->stream)
                stream_cancel(p->stream);
        }
        assert_int_equal(engine_step(e, &worked, &err), ST_OK);
        open = 0;
        for (uint32_t i = 0; i < REQUESTS; i++) {
            while (plans[i].stream && read_event(&plans[i], 0))
                ;
            open += plans[i].finish == FINISH_NONE;
        }
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        expect_answer(&plans[i], plans[i].leaves_at > 0);
        stream_free(plans[i].stream);
    }
    engine_stats(e, &stats);
    assert_int_equal(stats.running + stats.waiting + stats.kv_blocks_used, 0);
    assert_int_equal(stats.requests, REQUESTS);
    engine_free(e);
    fake_release(&f);
    free(plans);
    return stats.preemptions;
}

static void schedules__never_change_an_answer(void **state)
{
    uint64_t preemptions = 0;
    (void)state;
    for (int seed = 0; seed < 400; seed++) {
        if (seed % 100 == 0)
            print_message("seeds from %d\n", seed);
        preemptions += run_schedule(seed);
    }
    assert_true(preemptions > 400); /* or the pools were too large to test what this test is for */
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

typedef struct Client {
    Engine *engine;
    const FakeModel *model;
    int seed;
    uint32_t answered;
    _Atomic uint32_t notified;
} Client;

static void on_event(void *ctx)
{
    ((Client *)ctx)->notified++;
}

static void *run_client(void *arg)
{
    Client *c = arg;
    unsigned short rng[3] = {(unsigned short)c->seed, 77, 0x330e};
    Planned *p = malloc(sizeof *p);
    EngineStats stats;
    Err err;

    for (int i = 0; p && i < 40; i++) {
        make_planned(p, c->model, rng);
        p->req.notify = on_event;
        p->req.notify_ctx = c;
        Status st = engine_submit(c->engine, &p->req, &p->stream, &err);
        if (st == ST_BUSY)
            continue;
        if (st != ST_OK)
            break;
        engine_stats(c->engine, &stats);
        bool leaves = p->leaves_at > 0;
        if (leaves)
            read_event(p, 1000000);
        if (leaves && i % 2)
            stream_cancel(p->stream);
        if (!leaves || i % 2) {
            while (p->finish == FINISH_NONE)
                (void)read_event(p, UINT64_C(60000000000));
            /* No cmocka assertions off the main thread: the count tells. */
            c->answered += (p->finish == FINISH_CANCELLED || p->n_got == p->n_expected) &&
                           memcmp(p->got, p->expected, p->n_got * sizeof *p->got) == 0;
        } else
            c->answered++;
        stream_free(p->stream);
    }
    free(p);
    return NULL;
}

static void schedules__are_safe_under_threads(void **state)
{
    const EngineOptions opt = {.queue_len = 64};
    Client clients[4];
    Thread threads[4];
    FakeModel f;
    Engine *e = NULL;
    EngineStats stats;
    Err err;
    (void)state;

    fake_init(&f, 24, 3, 100, 9);
    assert_int_equal(engine_new_with_runner(&e, &f.runner, clock_system(), &opt, NULL, &err), ST_OK);
    assert_int_equal(engine_start(e, &err), ST_OK);
    for (int i = 0; i < 4; i++) {
        clients[i] = (Client){.engine = e, .model = &f, .seed = i};
        assert_int_equal(thread_start(&threads[i], "client", run_client, &clients[i], &err), ST_OK);
    }
    for (int i = 0; i < 4; i++)
        thread_join(threads[i]);
    engine_stop(e, UINT64_C(60000000000));
    engine_stats(e, &stats);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(clients[i].answered, 40);
        assert_true(clients[i].notified > 40);
    }
    assert_int_equal(stats.requests, 160);
    assert_int_equal(stats.running + stats.waiting + stats.kv_blocks_used, 0);
    engine_free(e);
    fake_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules__never_change_an_answer),
        cmocka_unit_test(schedules__are_safe_under_threads),
    };
    const int failed = cmocka_run_group_tests_name("a step at a time", tests, NULL, NULL);
    fake_ahead = true;
    return failed + cmocka_run_group_tests_name("a step ahead", tests, NULL, NULL);
}
