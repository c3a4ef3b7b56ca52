/* Tests of http.c on real sockets of the loopback device, with a handler that this file scripts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/thread.h"
#include "http_client.h"
#include "server/http.h"
#include <stdatomic.h>

/* What the scripted handler has seen. */
typedef struct Seen {
    Http *http;
    atomic_int calls, lost, refused;
    atomic_bool release; /* lets /hold and /drip end */
    char last[256];      /* method path len of the latest call */
} Seen;

static void answer(Channel *ch, int status, const char *text)
{
    HttpHeader h = {"X-Test", "yes"};

    channel_start(ch, status, "text/plain", &h, 1, (long long)strlen(text));
    channel_write(ch, text, strlen(text));
}

static void on_lost(void *ctx)
{
    Seen *s = ctx;
    s->lost++;
}

/* /echo sends the body back; /stream four pieces; /hold waits for release or for the client to leave; /drip writes until
 * then; /flood writes 64 MiB; /silent says nothing. */
static void handle(void *ctx, const HttpRequest *req, Channel *ch)
{
    Seen *s = ctx;

    s->calls++;
    if (strcmp(req->path, "/echo") == 0) {
        channel_start(ch, 200, "text/plain", NULL, 0, (long long)req->len);
        channel_write(ch, req->body, req->len);
    } else if (strcmp(req->path, "/stream") == 0) {
        channel_start(ch, 200, "text/event-stream", NULL, 0, -1);
        for (int i = 0; i < 4; i++) {
            channel_write(ch, "piece\n", 6);
            usleep(1000);
        }
    } else if (strcmp(req->path, "/hold") == 0) {
        channel_on_gone(ch, on_lost, s);
        while (!channel_gone(ch) && !s->release)
            usleep(1000);
        channel_on_gone(ch, NULL, NULL);
        answer(ch, 200, "held");
    } else if (strcmp(req->path, "/drip") == 0) {
        channel_start(ch, 200, "text/event-stream", NULL, 0, -1);
        while (channel_write(ch, "drip\n", 5) && !s->release)
            usleep(1000);
        s->lost += channel_gone(ch);
    } else if (strcmp(req->path, "/flood") == 0) {
        static const char block[65536] = "x";
        channel_start(ch, 200, "text/event-stream", NULL, 0, -1);
        for (int i = 0; i < 1024 && channel_write(ch, block, sizeof block); i++)
            ;
        s->lost += channel_gone(ch);
    } else if (strcmp(req->path, "/silent") != 0) {
        snprintf(s->last, sizeof s->last, "%s %s %zu", req->method, req->path, req->len);
        answer(ch, 200, "ok\n");
    }
}

static void refuse(void *ctx, int status, Channel *ch)
{
    Seen *s = ctx;

    s->refused++;
    answer(ch, status, "refused");
}

static bool quick(void *ctx, const char *method, const char *path)
{
    (void)ctx;
    (void)path;
    return strcmp(method, "GET") == 0;
}

static void serve(Seen *s, void (*change)(HttpOptions *))
{
    Err err = {""};
    HttpOptions o;
    HttpHandler h = {handle, refuse, quick, s};

    *s = (Seen){.http = NULL};
    http_defaults(&o);
    o.port = 0;
    if (change)
        change(&o);
    if (http_start(&s->http, &o, &h, NULL, &err) != ST_OK)
        fail_msg("%s", err.msg);
    assert_true(http_port(s->http) > 0);
}

static bool has(const Str *s, const char *text)
{
    return strstr(str_c(s), text) != NULL;
}

static bool no_handlers(void *ctx)
{
    HttpStats st;
    http_stats(((Seen *)ctx)->http, &st);
    return st.handlers == 0;
}

static bool one_call(void *ctx)
{
    return ((Seen *)ctx)->calls >= 1;
}

static bool no_connections(void *ctx)
{
    HttpStats st;
    http_stats(((Seen *)ctx)->http, &st);
    return st.connections == 0;
}

static void http__answers_get_and_post(void **state)
{
    Seen s;
    Str r;

    (void)state;
    serve(&s, NULL);
    r = client_call(http_port(s.http), "GET", "/a%20b?q=1", NULL, 2000);
    assert_true(has(&r, "HTTP/1.1 200 OK\r\n") && has(&r, "Content-Length: 3\r\n") && has(&r, "X-Test: yes\r\n"));
    assert_true(str_ends(str_c(&r), "\r\n\r\nok\n"));
    assert_string_equal(s.last, "GET /a b 0");
    str_release(&r);
    r = client_call(http_port(s.http), "POST", "/echo", "four words go there", 2000);
    assert_true(str_ends(str_c(&r), "\r\n\r\nfour words go there"));
    str_release(&r);
    http_stop(s.http, 1000);
}

/* Decoded, the NUL would cut the path: "/a%00b" must not be answered as "/a". */
static void http__path_with_a_hidden_nul_is_not_a_shorter_path(void **state)
{
    Seen s;
    Str r;

    (void)state;
    serve(&s, NULL);
    r = client_call(http_port(s.http), "GET", "/a%00%62", NULL, 2000);
    assert_true(has(&r, "HTTP/1.1 200 OK\r\n"));
    assert_string_equal(s.last, "GET /a%00%62 0");
    str_release(&r);
    http_stop(s.http, 0);
}

static void http__head_has_no_body(void **state)
{
    Seen s;
    Str r;

    (void)state;
    serve(&s, NULL);
    r = client_call(http_port(s.http), "HEAD", "/x", NULL, 2000);
    assert_true(has(&r, "Content-Length: 3\r\n") && str_ends(str_c(&r), "\r\n\r\n"));
    assert_string_equal(s.last, "GET /x 0");
    str_release(&r);
    http_stop(s.http, 1000);
}

static void http__streams_in_chunks_and_keeps_the_connection(void **state)
{
    Seen s;
    Str r = STR_INIT;
    int fd;

    (void)state;
    serve(&s, NULL);
    fd = client_open(http_port(s.http));
    for (int i = 0; i < 3; i++) {
        size_t pieces = 0;
        str_clear(&r);
        assert_true(client_request(fd, "POST", "/stream", "", "x", 1));
        assert_true(client_read(fd, &r, "\r\n0\r\n\r\n", 2000));
        assert_true(has(&r, "Transfer-Encoding: chunked"));
        for (const char *p = r.p; (p = strstr(p, "piece\n")); p++)
            pieces++;
        assert_int_equal(pieces, 4);
    }
    close(fd);
    str_release(&r);
    http_stop(s.http, 1000);
}

static void http__handler_without_words_is_a_500(void **state)
{
    Seen s;
    Str r;

    (void)state;
    serve(&s, NULL);
    r = client_call(http_port(s.http), "POST", "/silent", "x", 2000);
    assert_true(has(&r, "HTTP/1.1 500"));
    str_release(&r);
    http_stop(s.http, 1000);
}

static void small_bodies(HttpOptions *o)
{
    o->max_body = 1000;
}

static void http__body_over_the_bound_is_refused_whole_and_chunked(void **state)
{
    Seen s;
    Str r, body = STR_INIT;
    int fd;

    (void)state;
    serve(&s, small_bodies);
    for (int i = 0; i < 1000; i++)
        str_addc(&body, 'b');
    r = client_call(http_port(s.http), "POST", "/echo", body.p, 2000);
    assert_true(has(&r, "HTTP/1.1 200"));
    str_release(&r);
    str_addc(&body, 'b');
    r = client_call(http_port(s.http), "POST", "/echo", body.p, 2000);
    assert_true(has(&r, "HTTP/1.1 413"));
    str_release(&r);

    fd = client_open(http_port(s.http));
    client_request(fd, "POST", "/echo", "Transfer-Encoding: chunked\r\n", NULL, 0);
    for (int i = 0; i < 101; i++)
        assert_true(client_send(fd, "a\r\n0123456789\r\n", 15));
    assert_true(client_send(fd, "0\r\n\r\n", 5));
    assert_true(client_read(fd, &r, "refused", 2000));
    assert_true(has(&r, "HTTP/1.1 413"));
    close(fd);
    str_release(&r);
    str_release(&body);
    assert_int_equal(s.refused, 2);
    http_stop(s.http, 1000);
}

static void one_handler(HttpOptions *o)
{
    o->max_handlers = 1;
}

static void http__more_requests_than_handlers_are_refused_and_quick_ones_served(void **state)
{
    Seen s;
    Str r = STR_INIT;
    int fd;

    (void)state;
    serve(&s, one_handler);
    fd = client_open(http_port(s.http));
    assert_true(client_request(fd, "POST", "/hold", "", "x", 1));
    assert_true(client_until(one_call, &s, 2000));
    r = client_call(http_port(s.http), "POST", "/echo", "x", 2000);
    assert_true(has(&r, "HTTP/1.1 429"));
    str_release(&r);
    r = client_call(http_port(s.http), "GET", "/", NULL, 2000);
    assert_true(has(&r, "HTTP/1.1 200"));
    str_clear(&r);
    s.release = true;
    assert_true(client_read(fd, &r, "held", 2000));
    close(fd);
    str_release(&r);
    http_stop(s.http, 1000);
}

/* C093: the handler learns at once, while it waits and while it writes. */
static void http__client_that_leaves_is_noticed(void **state)
{
    static const char *const paths[] = {"/hold", "/drip"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        Seen s;
        int fd;

        serve(&s, NULL);
        fd = client_open(http_port(s.http));
        assert_true(client_request(fd, "POST", paths[i], "", "x", 1));
        assert_true(client_until(one_call, &s, 2000));
        close(fd);
        assert_true(client_until(no_handlers, &s, 2000));
        assert_int_equal(s.lost, 1);
        assert_true(client_until(no_connections, &s, 2000));
        http_stop(s.http, 1000);
    }
}

static void http__normal_end_is_no_loss(void **state)
{
    Seen s;
    Str r;

    (void)state;
    serve(&s, NULL);
    s.release = true;
    r = client_call(http_port(s.http), "POST", "/hold", "x", 2000);
    assert_true(has(&r, "held"));
    str_release(&r);
    r = client_call(http_port(s.http), "POST", "/drip", "x", 2000);
    assert_true(has(&r, "drip"));
    str_release(&r);
    assert_true(client_until(no_connections, &s, 2000));
    assert_int_equal(s.lost, 0);
    http_stop(s.http, 1000);
}

static void short_stall(HttpOptions *o)
{
    o->stall_s = 1;
}

static void http__reader_that_takes_nothing_is_dropped(void **state)
{
    Seen s;
    int fd;

    (void)state;
    serve(&s, short_stall);
    fd = client_open(http_port(s.http));
    assert_true(client_request(fd, "POST", "/flood", "", "x", 1));
    assert_true(client_until(one_call, &s, 2000));
    assert_true(client_until(no_handlers, &s, 5000));
    assert_int_equal(s.lost, 1);
    close(fd);
    http_stop(s.http, 1000);
}

static void short_heads(HttpOptions *o)
{
    o->head_ms = 1500;
    o->body_ms = 1500;
}

/* C091: 200 connections send a byte of a head at a time, 50 never read their streams. */
static void http__slow_clients_hold_nobody_up(void **state)
{
    enum { SLOW = 200, DEAF = 50 };
    Seen s;
    int slow[SLOW], deaf[DEAF];
    uint64_t begin;

    (void)state;
    serve(&s, short_heads);
    for (int i = 0; i < SLOW; i++)
        assert_true((slow[i] = client_open(http_port(s.http))) >= 0);
    for (int i = 0; i < DEAF; i++) {
        assert_true((deaf[i] = client_open(http_port(s.http))) >= 0);
        assert_true(client_request(deaf[i], "POST", "/drip", "", "x", 1));
    }
    begin = clock_ns(clock_system());
    for (int round = 0; round < 4; round++) {
        uint64_t t = clock_ns(clock_system());
        Str r = client_call(http_port(s.http), "POST", "/echo", "hello", 1000);

        assert_true(has(&r, "hello"));
        assert_true(clock_ns(clock_system()) - t < 1000000000u);
        str_release(&r);
        for (int i = 0; i < SLOW; i++)
            client_send(slow[i], &"GET / HTTP/1.1"[round], 1);
        usleep(100000);
    }
    for (int i = 0; i < SLOW; i++) {
        Str r = STR_INIT;
        assert_true(client_read(slow[i], &r, NULL, 4000));
        str_release(&r);
        close(slow[i]);
    }
    assert_true(clock_ns(clock_system()) - begin < 6000000000u);
    s.release = true;
    for (int i = 0; i < DEAF; i++)
        close(deaf[i]);
    assert_true(client_until(no_connections, &s, 5000));
    http_stop(s.http, 1000);
}

static void http__late_body_is_cut(void **state)
{
    Seen s;
    Str r = STR_INIT;
    int fd;

    (void)state;
    serve(&s, short_heads);
    fd = client_open(http_port(s.http));
    client_send(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab", 53);
    assert_true(client_read(fd, &r, NULL, 4000));
    assert_int_equal(s.calls, 0);
    str_release(&r);
    close(fd);
    http_stop(s.http, 1000);
}

static void http__stop_lets_answers_out_and_then_cuts(void **state)
{
    Seen s;
    Str r = STR_INIT;
    int fd;

    (void)state;
    serve(&s, NULL);
    fd = client_open(http_port(s.http));
    assert_true(client_request(fd, "POST", "/stream", "", "x", 1));
    assert_true(client_until(one_call, &s, 2000));
    http_stop(s.http, 2000);
    assert_true(client_read(fd, &r, NULL, 2000));
    assert_true(has(&r, "\r\n0\r\n\r\n"));
    close(fd);

    serve(&s, NULL);
    fd = client_open(http_port(s.http));
    assert_true(client_request(fd, "POST", "/hold", "", "x", 1));
    assert_true(client_until(one_call, &s, 2000));
    http_stop(s.http, 50); /* would hang if the handler were not told */
    assert_int_equal(s.lost, 1);
    close(fd);
    str_release(&r);
}

static void http__address_faults_are_sentences(void **state)
{
    Seen s;
    Err err = {""};
    HttpOptions o;
    HttpHandler h = {handle, refuse, quick, &s};
    Http *second = NULL;

    (void)state;
    serve(&s, NULL);
    http_defaults(&o);
    o.port = http_port(s.http);
    assert_int_equal(http_start(&second, &o, &h, NULL, &err), ST_IO);
    assert_non_null(strstr(err.msg, "is in use"));
    assert_null(second);
    assert_int_equal(http_probe(&o, &err), ST_IO);
    o.port = 0;
    assert_int_equal(http_probe(&o, &err), ST_OK);
    o.host = "example.org";
    assert_int_equal(http_start(&second, &o, &h, NULL, &err), ST_INVALID);
    assert_non_null(strstr(err.msg, "\"example.org\" is no IPv4 or IPv6 address"));
    http_stop(s.http, 1000);
    http_stop(NULL, 0);
}

static void http__garbage_harms_nobody(void **state)
{
    static const char *const garbage[] = {"\r\n\r\n\r\n",
                                          "GET\r\n\r\n",
                                          "\xff\xfe\x00\x01",
                                          "GET / HTTP/9.9\r\n\r\n",
                                          "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
                                          "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
                                          "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"};
    Seen s;

    (void)state;
    serve(&s, NULL);
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        int fd = client_open(http_port(s.http));
        Str r;

        client_send(fd, garbage[i], strlen(garbage[i]));
        close(fd);
        r = client_call(http_port(s.http), "POST", "/echo", "fine", 2000);
        assert_true(has(&r, "fine"));
        str_release(&r);
    }
    http_stop(s.http, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(http__answers_get_and_post),
        cmocka_unit_test(http__path_with_a_hidden_nul_is_not_a_shorter_path),
        cmocka_unit_test(http__head_has_no_body),
        cmocka_unit_test(http__streams_in_chunks_and_keeps_the_connection),
        cmocka_unit_test(http__handler_without_words_is_a_500),
        cmocka_unit_test(http__body_over_the_bound_is_refused_whole_and_chunked),
        cmocka_unit_test(http__more_requests_than_handlers_are_refused_and_quick_ones_served),
        cmocka_unit_test(http__client_that_leaves_is_noticed),
        cmocka_unit_test(http__normal_end_is_no_loss),
        cmocka_unit_test(http__reader_that_takes_nothing_is_dropped),
        cmocka_unit_test(http__slow_clients_hold_nobody_up),
        cmocka_unit_test(http__late_body_is_cut),
        cmocka_unit_test(http__stop_lets_answers_out_and_then_cuts),
        cmocka_unit_test(http__address_faults_are_sentences),
        cmocka_unit_test(http__garbage_harms_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
