/* stream: events in order, waiting, notification, and who frees what. */
#include "core/thread.h"
#include "engine/stream.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static Stream *make(uint32_t room, uint32_t n_top, void (*notify)(void *ctx), void *ctx)
{
    Stream *s = NULL;
    Err err;
    assert_int_equal(stream_new(&s, room, n_top, notify, ctx, &err), ST_OK);
    return s;
}

static void push(Stream *s, int32_t token, FinishReason finish)
{
    stream_push(s, &(TokenEvent){.token = token, .finish = finish, .at_ns = (uint64_t)token * 10}, "");
}

static void stream__gives_events_in_order_and_then_no_more(void **state)
{
    Stream *s = make(3, 0, NULL, NULL);
    TokenEvent e;
    (void)state;

    assert_false(stream_next(s, &e, 0));
    push(s, 5, FINISH_NONE);
    push(s, 6, FINISH_NONE);
    assert_true(stream_next(s, &e, 0));
    assert_int_equal(e.token, 5);
    assert_int_equal(e.at_ns, 50);
    push(s, 7, FINISH_STOP);
    assert_true(stream_next(s, &e, UINT64_MAX));
    assert_int_equal(e.token, 6);
    assert_int_equal(e.finish, FINISH_NONE);
    assert_true(stream_next(s, &e, UINT64_MAX));
    assert_int_equal(e.token, 7);
    assert_int_equal(e.finish, FINISH_STOP);
    assert_false(stream_next(s, &e, UINT64_MAX)); /* does not wait for what cannot come */
    stream_release(s);
    stream_free(s);
}

static void stream__keeps_top_logprobs_with_their_event(void **state)
{
    Stream *s = make(2, 2, NULL, NULL);
    TokenEvent in = {.token = 1, .logprob = -0.5f, .n_top = 2, .top = {{1, -0.5f}, {4, -2}}}, out;
    (void)state;

    stream_push(s, &in, "");
    in.n_top = 1;
    in.top[0] = (TokenLogprob){9, -3};
    in.finish = FINISH_LENGTH;
    stream_push(s, &in, "");
    assert_true(stream_next(s, &out, 0));
    assert_int_equal(out.n_top, 2);
    assert_true(out.logprob == -0.5f);
    assert_int_equal(out.top[1].token, 4);
    assert_true(out.top[1].logprob == -2);
    assert_true(stream_next(s, &out, 0));
    assert_int_equal(out.n_top, 1);
    assert_int_equal(out.top[0].token, 9);
    stream_release(s);
    stream_free(s);
}

static void stream__has_its_sentence_after_the_end(void **state)
{
    Stream *s = make(2, 0, NULL, NULL);
    (void)state;
    push(s, 1, FINISH_NONE);
    assert_string_equal(stream_error(s), "");
    stream_push(s, &(TokenEvent){.token = -1, .finish = FINISH_ERROR}, "the device is gone");
    assert_string_equal(stream_error(s), "the device is gone");
    stream_release(s);
    stream_free(s);
}

static void count(void *ctx)
{
    ++*(int *)ctx;
}

static void stream__notifies_after_each_event_until_it_is_freed(void **state)
{
    int calls = 0;
    Stream *s = make(3, 0, count, &calls);
    (void)state;
    push(s, 1, FINISH_NONE);
    push(s, 2, FINISH_NONE);
    assert_int_equal(calls, 2);
    assert_false(stream_cancelled(s));
    stream_free(s);
    assert_true(stream_cancelled(s)); /* the engine still has its end */
    push(s, 3, FINISH_CANCELLED);
    assert_int_equal(calls, 2);
    stream_release(s);
}

typedef struct Reading {
    Stream *s;
    TokenEvent last;
    int n;
} Reading;

static void read_all(void *ctx)
{
    Reading *r = ctx;
    while (stream_next(r->s, &r->last, 0))
        r->n++;
}

static void stream__may_be_read_by_its_notify(void **state)
{
    Reading r = {0};
    (void)state;
    r.s = make(2, 0, read_all, &r);
    push(r.s, 1, FINISH_NONE);
    push(r.s, 2, FINISH_STOP);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.last.token, 2);
    stream_release(r.s);
    stream_free(r.s);
}

static void *push_ten(void *arg)
{
    for (int32_t i = 0; i < 10; i++)
        push(arg, i, i == 9 ? FINISH_LENGTH : FINISH_NONE);
    stream_release(arg);
    return NULL;
}

static void stream__wakes_a_waiting_reader(void **state)
{
    Stream *s = make(10, 0, NULL, NULL);
    TokenEvent e = {0};
    Thread t;
    Err err;
    (void)state;

    assert_false(stream_next(s, &e, 1000)); /* a microsecond, in vain */
    assert_int_equal(thread_start(&t, "writer", push_ten, s, &err), ST_OK);
    for (int32_t i = 0; i < 10;)
        if (stream_next(s, &e, UINT64_C(60000000000)))
            assert_int_equal(e.token, i++);
    assert_int_equal(e.finish, FINISH_LENGTH);
    thread_join(t);
    stream_free(s);
    stream_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream__gives_events_in_order_and_then_no_more),
        cmocka_unit_test(stream__keeps_top_logprobs_with_their_event),
        cmocka_unit_test(stream__has_its_sentence_after_the_end),
        cmocka_unit_test(stream__notifies_after_each_event_until_it_is_freed),
        cmocka_unit_test(stream__may_be_read_by_its_notify),
        cmocka_unit_test(stream__wakes_a_waiting_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
