/* ahead: an engine whose device runs a step ahead of what the host knows. That answers stay what they are is shown by
 * test_schedules.c and test_families.c; here, what is launched when, and what happens to the row too many. */
#include "engine/fake_model.h"
#include <math.h>

typedef struct Ahead {
    FakeModel f;
    ClockFake clock;
    Engine *e;
} Ahead;

static void ahead_init(Ahead *a)
{
    Err err;

    fake_ahead = true;
    fake_init(&a->f, 32, 4, 128, 32);
    clock_fake_init(&a->clock);
    assert_int_equal(
        engine_new_with_runner(&a->e, &a->f.runner, &a->clock.base, &(EngineOptions){.queue_len = 8}, NULL, &err),
        ST_OK);
}

static void ahead_release(Ahead *a)
{
    engine_free(a->e);
    fake_release(&a->f);
}

static const int32_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6};

static GenRequest request(uint32_t n_prompt, uint32_t max_tokens)
{
    GenRequest r = {.prompt = prompt, .n_prompt = n_prompt, .max_tokens = max_tokens};

    sampling_defaults(&r.sampling);
    r.sampling.seed = n_prompt;
    return r;
}

static Stream *submit(Ahead *a, const GenRequest *r)
{
    Stream *s = NULL;
    Err err;

    assert_int_equal(engine_submit(a->e, r, &s, &err), ST_OK);
    return s;
}

static Status step(Ahead *a)
{
    bool worked;
    return engine_step(a->e, &worked, NULL);
}

/* Events that are there: tokens, at most 64, and how it ended. */
static uint32_t read_all(Stream *s, int32_t *tokens, FinishReason *finish)
{
    TokenEvent e;
    uint32_t n = 0;

    *finish = FINISH_NONE;
    while (stream_next(s, &e, 0)) {
        if (e.token >= 0)
            tokens[n++] = e.token;
        *finish = e.finish;
    }
    return n;
}

static void expect_nothing_held(Ahead *a)
{
    EngineStats s;

    engine_stats(a->e, &s);
    assert_int_equal(s.kv_blocks_used, 0);
    assert_int_equal(s.running, 0);
}

static void ahead__launches_a_step_before_it_knows_the_token_in_front(void **state)
{
    Ahead a;
    GenRequest r = request(5, 3);
    int32_t want[128], got[64];
    FinishReason ends, finish;
    (void)state;

    ahead_init(&a);
    assert_int_equal(fake_answer(&a.f, &r, want, &ends), 3);
    Stream *s = submit(&a, &r);
    assert_int_equal(step(&a), ST_OK); /* the prompt */
    assert_int_equal(a.f.steps, 1);
    assert_int_equal(read_all(s, got, &finish), 0);
    assert_int_equal(step(&a), ST_OK);
    assert_int_equal(a.f.steps, 2);
    assert_int_equal(read_all(s, got, &finish), 1);
    assert_int_equal(got[0], want[0]);
    assert_int_equal(step(&a), ST_OK);
    assert_int_equal(a.f.steps, 3);
    assert_int_equal(read_all(s, got, &finish), 1);
    assert_int_equal(got[0], want[1]);
    assert_int_equal(step(&a), ST_OK); /* its length was known: no row too many */
    assert_int_equal(a.f.steps, 3);
    assert_int_equal(read_all(s, got, &finish), 1);
    assert_int_equal(got[0], want[2]);
    assert_int_equal(finish, FINISH_LENGTH);
    expect_nothing_held(&a);
    stream_free(s);
    ahead_release(&a);
}

static void ahead__drops_the_row_behind_an_end_and_frees_its_blocks_at_once(void **state)
{
    Ahead a;
    GenRequest r = request(5, 20), other = request(8, 20);
    int32_t want[128], want_other[128], got[64], got_other[64];
    FinishReason ends, finish;
    uint32_t n;
    (void)state;

    ahead_init(&a);
    fake_answer(&a.f, &r, want, &ends);
    r.stop_ids = &want[6];
    r.n_stop_ids = 1;
    n = fake_answer(&a.f, &r, want, &ends);
    assert_int_equal(ends, FINISH_STOP);
    assert_int_equal(fake_answer(&a.f, &other, want_other, &ends), 20);
    Stream *s = submit(&a, &r);
    for (uint32_t i = 0; i < n + 1; i++)
        assert_int_equal(step(&a), ST_OK);
    assert_int_equal(a.f.steps, n + 1);
    assert_int_equal(read_all(s, got, &finish), n);
    assert_memory_equal(got, want, n * sizeof *got);
    assert_int_equal(finish, FINISH_STOP);
    expect_nothing_held(&a);
    Stream *t = submit(&a, &other); /* takes the blocks that the row too many still writes to */
    for (uint32_t i = 0; i < 22; i++)
        assert_int_equal(step(&a), ST_OK);
    assert_int_equal(read_all(t, got_other, &finish), 20);
    assert_memory_equal(got_other, want_other, sizeof(int32_t) * 20);
    assert_false(stream_next(s, &(TokenEvent){0}, 0));
    stream_free(s);
    stream_free(t);
    ahead_release(&a);
}

static void ahead__a_step_that_fails_ends_its_requests_and_keeps_earlier_tokens(void **state)
{
    Ahead a;
    GenRequest r = request(5, 20), later = request(8, 4);
    int32_t want[128], got[64];
    FinishReason ends, finish;
    (void)state;

    ahead_init(&a);
    fake_answer(&a.f, &r, want, &ends);
    a.f.fail_at = 3;
    Stream *s = submit(&a, &r);
    for (int i = 0; i < 3; i++)
        assert_int_equal(step(&a), ST_OK);
    assert_int_equal(step(&a), ST_DEVICE); /* with a fourth under way, which has nobody left */
    assert_int_equal(read_all(s, got, &finish), 2);
    assert_memory_equal(got, want, 2 * sizeof *got);
    assert_int_equal(finish, FINISH_ERROR);
    assert_non_null(strstr(stream_error(s), "step 3"));
    expect_nothing_held(&a);
    Stream *t = submit(&a, &later);
    const uint32_t n = fake_answer(&a.f, &later, want, &ends);
    for (int i = 0; i < 8; i++)
        assert_int_equal(step(&a), ST_OK);
    assert_int_equal(read_all(t, got, &finish), n);
    assert_memory_equal(got, want, n * sizeof *got);
    assert_int_equal(finish, FINISH_LENGTH);
    stream_free(s);
    stream_free(t);
    ahead_release(&a);
}

static void ahead__broken_logits_end_a_request_though_its_next_row_is_under_way(void **state)
{
    Ahead a;
    GenRequest r = request(5, 20);
    int32_t got[64];
    FinishReason finish;
    (void)state;

    ahead_init(&a);
    a.f.broken_logit = NAN;
    Stream *s = submit(&a, &r);
    assert_int_equal(step(&a), ST_OK);
    a.f.broken_logit = 0;
    assert_int_equal(step(&a), ST_OK);
    assert_int_equal(read_all(s, got, &finish), 0);
    assert_int_equal(finish, FINISH_ERROR);
    assert_non_null(strstr(stream_error(s), "token 0"));
    expect_nothing_held(&a);
    stream_free(s);
    ahead_release(&a);
}

static void ahead__a_request_may_leave_while_its_token_is_under_way(void **state)
{
    Ahead a;
    GenRequest r = request(5, 20), stays = request(7, 6);
    int32_t want[128], got[64];
    FinishReason ends, finish;
    (void)state;

    ahead_init(&a);
    const uint32_t n = fake_answer(&a.f, &stays, want, &ends);
    Stream *s = submit(&a, &r), *t = submit(&a, &stays);
    assert_int_equal(step(&a), ST_OK);
    assert_int_equal(step(&a), ST_OK);
    stream_cancel(s);
    assert_int_equal(step(&a), ST_OK);
    assert_int_equal(read_all(s, got, &finish), 1);
    assert_int_equal(finish, FINISH_CANCELLED);
    for (int i = 0; i < 6; i++)
        assert_int_equal(step(&a), ST_OK);
    assert_int_equal(read_all(t, got, &finish), n);
    assert_memory_equal(got, want, n * sizeof *got);
    expect_nothing_held(&a);
    stream_free(s);
    stream_free(t);
    ahead_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ahead__launches_a_step_before_it_knows_the_token_in_front),
        cmocka_unit_test(ahead__drops_the_row_behind_an_end_and_frees_its_blocks_at_once),
        cmocka_unit_test(ahead__a_step_that_fails_ends_its_requests_and_keeps_earlier_tokens),
        cmocka_unit_test(ahead__broken_logits_end_a_request_though_its_next_row_is_under_way),
        cmocka_unit_test(ahead__a_request_may_leave_while_its_token_is_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
