/* Tests of the routes and of a request's life: models, health, wrong methods, full queues, clients that leave, a device
 * that fails, a server that stops. */
#include "server_fixture.h"

#define TEXT "/v1/completions"

/* A call on a thread of its own. */
typedef struct Call {
    Fixture *f;
    MockChannel m;
    const char *path, *body;
    pthread_t thread;
} Call;

static void *call_run(void *arg)
{
    Call *c = arg;
    HttpRequest req = {.method = "POST", .path = c->path, .body = c->body, .len = strlen(c->body)};

    openai_handle(&c->f->app, &req, &c->m.base);
    return NULL;
}

static void call_begin(Call *c, Fixture *f, const char *body)
{
    *c = (Call){.f = f, .path = TEXT, .body = body};
    mock_init(&c->m);
    pthread_create(&c->thread, NULL, call_run, c);
}

static void call_end(Call *c)
{
    pthread_join(c->thread, NULL);
}

#define WAIT_FOR(condition)                                                                                            \
    do {                                                                                                               \
        int tries_ = 0;                                                                                                \
        while (!(condition)) {                                                                                         \
            assert_true(tries_++ < 5000);                                                                              \
            usleep(1000);                                                                                              \
        }                                                                                                              \
    } while (0)

static EngineStats stats(Fixture *f)
{
    EngineStats s;
    engine_stats(f->engine, &s);
    return s;
}

static bool idle(Fixture *f)
{
    EngineStats s = stats(f);
    return s.running == 0 && s.waiting == 0 && s.kv_blocks_used == 0;
}

static void openai__models_and_health(void **state)
{
    Fixture f;
    int status;
    json_t *j;

    (void)state;
    fixture_start(&f, NULL);
    j = call_json(&f, "GET", "/v1/models", NULL, &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "object"), "list");
    assert_string_equal(text_at(json_array_get(json_object_get(j, "data"), 0), "id"), "scripted");
    json_decref(j);
    j = call_json(&f, "GET", "/v1/models/scripted", NULL, &status);
    assert_int_equal(status, 200);
    assert_int_equal(json_integer_value(json_object_get(j, "max_model_len")), 64);
    json_decref(j);
    json_decref(call_json(&f, "GET", "/v1/models/other", NULL, &status));
    assert_int_equal(status, 404);
    j = call_json(&f, "GET", "/health", NULL, &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "status"), "ready");
    json_decref(j);
    f.app.draining = true;
    j = call_json(&f, "GET", "/health", NULL, &status);
    assert_int_equal(status, 503);
    assert_string_equal(text_at(j, "status"), "draining");
    json_decref(j);
    expect_error(&f, TEXT, "{\"prompt\":\"c>\"}", 503, "", "stopping");
    fixture_stop(&f);
}

static void openai__unknown_routes_and_methods(void **state)
{
    Fixture f;
    MockChannel m;
    int status;

    (void)state;
    fixture_start(&f, NULL);
    json_decref(call_json(&f, "GET", "/", NULL, &status));
    assert_int_equal(status, 404);
    json_decref(call_json(&f, "POST", "/v1/completions/x", "{}", &status));
    assert_int_equal(status, 404);
    call(&f, &m, "GET", TEXT, "", 0);
    assert_int_equal(m.status, 405);
    assert_string_equal(m.headers, "Allow: POST\n");
    mock_release(&m);
    call(&f, &m, "DELETE", "/health", "", 0);
    assert_int_equal(m.status, 405);
    assert_string_equal(m.headers, "Allow: GET, HEAD\n");
    mock_release(&m);
    fixture_stop(&f);
}

static void openai__full_queue_is_429_with_retry_after(void **state)
{
    Fixture f;
    Call first, second;
    MockChannel m;

    (void)state;
    fixture_start(&f, &(FixtureOptions){.queue = 1});
    fixture_say(&f, 'c', "fine");
    f.hold = true; /* the first is in its step, the second fills the queue */
    call_begin(&first, &f, "{\"prompt\":\"c>\"}");
    WAIT_FOR(stats(&f).running == 1);
    call_begin(&second, &f, "{\"prompt\":\"c>\"}");
    WAIT_FOR(stats(&f).waiting == 1);
    call(&f, &m, "POST", TEXT, "{\"prompt\":\"c>\"}", 15);
    assert_int_equal(m.status, 429);
    assert_string_equal(m.headers, "Retry-After: 1\n");
    assert_non_null(strstr(m.body.p, "\"code\":\"queue_full\""));
    mock_release(&m);
    f.hold = false;
    call_end(&first);
    call_end(&second);
    assert_int_equal(first.m.status, 200);
    assert_int_equal(second.m.status, 200);
    mock_release(&first.m);
    mock_release(&second.m);
    fixture_stop(&f);
}

/* C093 */
static void openai__client_that_leaves_frees_all(void **state)
{
    static const char streamed[] = "{\"prompt\":\"c>\",\"stream\":true,\"max_tokens\":10000,\"ignore_eos\":true}";
    static const char whole[] = "{\"prompt\":\"c>\",\"max_tokens\":10000,\"ignore_eos\":true}";
    Fixture f;
    Call other, c[FIX_SEQS + 1];
    Said s = {.logprobs = NULL};
    unsigned steps;

    (void)state;
    fixture_start(&f, &(FixtureOptions){.max_len = 20000, .kv_blocks = 2000});
    fixture_say(&f, 'o', "a neighbour who is not disturbed");
    for (int i = 0; i < 50; i++)
        fixture_say(&f, 'c', "and so on ");
    f.step_us = 2000;

    call_begin(&other, &f, "{\"prompt\":\"o>\",\"stream\":true,\"max_tokens\":100}");
    /* After three deltas. */
    *c = (Call){.f = &f, .path = TEXT, .body = streamed};
    mock_init(&c[0].m);
    c[0].m.leave_after = 3;
    call_run(&c[0]);
    steps = f.steps;
    call_end(&other);
    assert_int_equal(c[0].m.writes, 3);
    mock_release(&c[0].m);
    WAIT_FOR(idle(&f));
    assert_true(f.steps - steps < 60); /* nothing went on but the neighbour */
    said_events(&s, str_c(&other.m.body));
    assert_string_equal(str_c(&s.text), "a neighbour who is not disturbed");
    assert_true(s.done);
    said_release(&s);
    mock_release(&other.m);

    /* In the middle of an answer that is not streamed. */
    call_begin(&c[0], &f, whole);
    WAIT_FOR(stats(&f).generated_tokens > 40);
    mock_leave(&c[0].m);
    steps = f.steps;
    call_end(&c[0]);
    WAIT_FOR(idle(&f));
    assert_true(f.steps - steps <= 2);
    assert_int_equal(c[0].m.status, 0); /* nobody to tell */
    mock_release(&c[0].m);

    /* While still queued: all seats are taken. */
    for (int i = 0; i <= FIX_SEQS; i++) {
        call_begin(&c[i], &f, whole);
        WAIT_FOR(stats(&f).running + stats(&f).waiting == (unsigned)i + 1);
    }
    WAIT_FOR(stats(&f).running == FIX_SEQS && stats(&f).waiting == 1 && mock_hooked(&c[FIX_SEQS].m));
    mock_leave(&c[FIX_SEQS].m);
    call_end(&c[FIX_SEQS]);
    WAIT_FOR(stats(&f).waiting == 0);
    assert_int_equal(stats(&f).running, FIX_SEQS);
    for (int i = 0; i < FIX_SEQS; i++)
        mock_leave(&c[i].m);
    for (int i = 0; i < FIX_SEQS; i++)
        call_end(&c[i]);
    WAIT_FOR(idle(&f));
    for (int i = 0; i <= FIX_SEQS; i++)
        mock_release(&c[i].m);
    fixture_stop(&f);
}

/* C093: during prefill, of which a step takes 32 tokens. */
static void openai__client_that_leaves_during_prefill_frees_all(void **state)
{
    Fixture f;
    Call c;
    Str body = STR_INIT;
    unsigned steps;

    (void)state;
    fixture_start(&f, &(FixtureOptions){.max_len = 20000, .kv_blocks = 2000});
    f.step_us = 2000;
    str_adds(&body, "{\"prompt\":\"");
    for (int i = 0; i < 16000; i++)
        str_addc(&body, 'p');
    str_adds(&body, "\"}");
    call_begin(&c, &f, body.p);
    WAIT_FOR(f.steps > 3 && mock_hooked(&c.m));
    mock_leave(&c.m);
    steps = f.steps;
    call_end(&c);
    WAIT_FOR(idle(&f));
    assert_true(f.steps - steps <= 2);
    mock_release(&c.m);
    str_release(&body);
    fixture_stop(&f);
}

static void openai__device_failure_is_a_500_and_an_error_event(void **state)
{
    Fixture f;
    Call c;
    Said s = {.logprobs = NULL};

    (void)state;
    fixture_start(&f, NULL);
    fixture_say(&f, 'c', "a rather long answer, so that it is interrupted");
    f.fail = true;
    expect_error(&f, TEXT, "{\"prompt\":\"c>\"}", 500, "", "device fell off");
    expect_error(&f, TEXT, "{\"prompt\":\"c>\",\"stream\":true}", 500, "", "device fell off");
    f.fail = false;
    f.step_us = 2000;
    call_begin(&c, &f, "{\"prompt\":\"c>\",\"stream\":true,\"max_tokens\":50}");
    WAIT_FOR(mock_writes(&c.m) >= 3);
    f.fail = true;
    call_end(&c);
    said_events(&s, str_c(&c.m.body));
    assert_non_null(strstr(s.error, "device fell off"));
    assert_false(s.done);
    said_release(&s);
    mock_release(&c.m);
    f.fail = false;
    expect_said(&f, TEXT, "{\"prompt\":\"c>\",\"max_tokens\":8}", "a rather", "length", 8);
    fixture_stop(&f);
}

/* C095 on the level of handlers: with grace all is finished, without it is cut with an error event. */
static void openai__stop_finishes_or_cuts_running_answers(void **state)
{
    (void)state;
    for (int grace = 0; grace < 2; grace++) {
        Fixture f;
        Call c[2];

        fixture_start(&f, NULL);
        fixture_say(&f, 'c', "twenty tokens or so");
        f.step_us = 2000;
        for (int i = 0; i < 2; i++)
            call_begin(&c[i], &f, "{\"prompt\":\"c>\",\"stream\":true,\"max_tokens\":50}");
        WAIT_FOR(mock_writes(&c[0].m) >= 3 && mock_writes(&c[1].m) >= 3);
        f.app.draining = true;
        engine_stop(f.engine, grace ? UINT64_C(10000000000) : 0);
        expect_error(&f, TEXT, "{\"prompt\":\"c>\"}", 503, "", "stopping");
        f.app.draining = false; /* the engine alone says so, too */
        expect_error(&f, TEXT, "{\"prompt\":\"c>\"}", 503, "", "stop");
        for (int i = 0; i < 2; i++) {
            Said s = {.logprobs = NULL};

            call_end(&c[i]);
            said_events(&s, str_c(&c[i].m.body));
            assert_int_equal(s.done, grace);
            if (grace)
                assert_string_equal(str_c(&s.text), "twenty tokens or so");
            else
                assert_non_null(strstr(s.error, "the server is stopping"));
            said_release(&s);
            mock_release(&c[i].m);
        }
        fixture_stop(&f);
    }
}

static void openai__refusals_of_the_socket_have_the_same_form(void **state)
{
    static const int statuses[] = {413, 429, 503};
    Fixture f;
    HttpHandler h;

    (void)state;
    fixture_start(&f, NULL);
    h = openai_handler(&f.app);
    for (int i = 0; i < 3; i++) {
        MockChannel m;
        json_t *j;

        mock_init(&m);
        h.refuse(h.ctx, statuses[i], &m.base);
        assert_int_equal(m.status, statuses[i]);
        j = parse_answer(m.body.p, m.body.len);
        assert_true(json_is_string(json_at(j, "error.message")) && json_is_string(json_at(j, "error.type")));
        json_decref(j);
        mock_release(&m);
    }
    assert_false(h.quick(h.ctx, "POST", TEXT));
    assert_true(h.quick(h.ctx, "GET", "/health"));
    assert_true(h.quick(h.ctx, "GET", TEXT));
    assert_true(h.quick(h.ctx, "POST", "/nowhere"));
    fixture_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(openai__models_and_health),
        cmocka_unit_test(openai__unknown_routes_and_methods),
        cmocka_unit_test(openai__full_queue_is_429_with_retry_after),
        cmocka_unit_test(openai__client_that_leaves_frees_all),
        cmocka_unit_test(openai__client_that_leaves_during_prefill_frees_all),
        cmocka_unit_test(openai__device_failure_is_a_500_and_an_error_event),
        cmocka_unit_test(openai__stop_finishes_or_cuts_running_answers),
        cmocka_unit_test(openai__refusals_of_the_socket_have_the_same_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
