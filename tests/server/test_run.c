/* Tests of a server's whole life over real sockets and signals: each runs server_run over the scripted model in a child
 * process. */
#include "http_client.h"
#include "server/run.h"
#include "server_fixture.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#define TEXT        "/v1/completions"
#define LONG_STREAM "{\"prompt\":\"c>\",\"stream\":true,\"max_tokens\":400}"

typedef struct Child {
    pid_t pid;
    uint16_t port;
} Child;

static void tell_port(void *ctx, uint16_t port)
{
    if (write(*(int *)ctx, &port, sizeof port) != sizeof port)
        _exit(99);
}

/* What the child does; its exit status is 0 for ST_OK. */
static int child_main(int fd, unsigned grace_s, unsigned step_us)
{
    Fixture f;
    HttpOptions o;
    StopSignal *stop;
    Err err = {""};
    Status st = stop_signal_new(&stop, &err);

    if (st != ST_OK)
        return 98;
    fixture_init(&f, &(FixtureOptions){.max_len = 1000});
    for (int i = 0; i < 30; i++)
        fixture_say(&f, 'c', "and so on ");
    fixture_say(&f, 'q', "quick");
    f.step_us = step_us;
    http_defaults(&o);
    o.port = 0;
    st = server_run(&f.app, &o, grace_s, stop, tell_port, &fd, &err);
    stop_signal_free(stop);
    fixture_stop(&f);
    return st == ST_OK ? 0 : 97;
}

static Child serve(unsigned grace_s, unsigned step_us)
{
    Child c;
    int fd[2];

    assert_int_equal(pipe(fd), 0);
    fflush(NULL); /* or the child writes what this process has buffered */
    c.pid = fork();
    assert_true(c.pid >= 0);
    if (c.pid == 0) {
        close(fd[0]);
        alarm(60); /* outlives no test */
        exit(child_main(fd[1], grace_s, step_us));
    }
    close(fd[1]);
    assert_int_equal(read(fd[0], &c.port, sizeof c.port), sizeof c.port);
    close(fd[0]);
    return c;
}

static int child_wait(const Child *c)
{
    int status = 0;
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    return status;
}

static bool has(const Str *s, const char *text)
{
    return strstr(str_c(s), text) != NULL;
}

static int open_stream(const Child *c, Str *out)
{
    int fd = client_open(c->port);

    assert_true(fd >= 0);
    assert_true(client_request(fd, "POST", TEXT, "", LONG_STREAM, strlen(LONG_STREAM)));
    assert_true(client_read(fd, out, "\"text\":\"n\"", 5000));
    return fd;
}

static void run__answers_over_sockets(void **state)
{
    Child c = serve(5, 0);
    Str r;

    (void)state;
    r = client_call(c.port, "POST", TEXT, "{\"prompt\":\"q>\"}", 5000);
    assert_true(has(&r, "HTTP/1.1 200 OK") && has(&r, "\"text\":\"quick\""));
    str_release(&r);
    r = client_call(c.port, "POST", TEXT, "{\"prompt\":\"q>\",\"stream\":true}", 5000);
    assert_true(has(&r, "Content-Type: text/event-stream") && has(&r, "data: [DONE]\n\n"));
    str_release(&r);
    r = client_call(c.port, "HEAD", "/health", NULL, 5000);
    assert_true(has(&r, "HTTP/1.1 200 OK") && !has(&r, "ready"));
    str_release(&r);
    kill(c.pid, SIGINT);
    assert_int_equal(child_wait(&c), 0);
}

/* A stop that the program itself asks for, as when its device is lost. */
static void run__a_raised_stop_ends_it_like_a_signal(void **state)
{
    StopSignal *stop;
    Err err;
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        if (stop_signal_new(&stop, &err) != ST_OK)
            _exit(98);
        stop_signal_arm(stop);
        stop_signal_raise(stop);
        stop_signal_wait(stop);
        stop_signal_free(stop);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* C095 */
static void run__sigterm_finishes_open_streams(void **state)
{
    Child c = serve(20, 3000);
    Str one = STR_INIT, two = STR_INIT, r;
    int a, b;

    (void)state;
    a = open_stream(&c, &one);
    b = open_stream(&c, &two);
    kill(c.pid, SIGTERM);
    for (int i = 0;; i++) { /* the signal takes a moment to arrive */
        r = client_call(c.port, "GET", "/health", NULL, 2000);
        if (has(&r, "HTTP/1.1 503"))
            break;
        assert_true(i < 100);
        str_release(&r);
        usleep(2000);
    }
    assert_true(has(&r, "draining"));
    str_release(&r);
    r = client_call(c.port, "POST", TEXT, "{\"prompt\":\"q>\"}", 2000);
    assert_true(has(&r, "HTTP/1.1 503") && has(&r, "Retry-After: 1") && has(&r, "stopping"));
    str_release(&r);
    assert_true(client_read(a, &one, "data: [DONE]\n\n", 10000));
    assert_true(client_read(b, &two, "data: [DONE]\n\n", 10000));
    close(a);
    close(b);
    assert_int_equal(child_wait(&c), 0);
    str_release(&one);
    str_release(&two);
}

/* C095 */
static void run__no_grace_ends_streams_with_an_error(void **state)
{
    Child c = serve(0, 3000);
    Str one = STR_INIT;
    int a = open_stream(&c, &one);

    (void)state;
    kill(c.pid, SIGTERM);
    assert_true(client_read(a, &one, "data: {\"error\":", 5000));
    assert_true(client_read(a, &one, NULL, 5000));
    assert_true(has(&one, "the server is stopping") && !has(&one, "[DONE]"));
    close(a);
    assert_int_equal(child_wait(&c), 0);
    str_release(&one);
}

/* C095 */
static void run__second_sigterm_ends_at_once(void **state)
{
    Child c = serve(30, 50000);
    Str one = STR_INIT;
    int a = open_stream(&c, &one), status;
    uint64_t begin;

    (void)state;
    kill(c.pid, SIGTERM);
    usleep(200000);
    assert_int_equal(waitpid(c.pid, &status, WNOHANG), 0);
    begin = clock_ns(clock_system());
    kill(c.pid, SIGTERM);
    status = child_wait(&c);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_true(clock_ns(clock_system()) - begin < 1000000000u);
    close(a);
    str_release(&one);
}

/* C093 over sockets: five clients leave four seats; the sixth is answered at once. */
static void run__clients_that_leave_give_their_seats_back(void **state)
{
    Child c = serve(5, 20000); /* an answer takes eight seconds */
    uint64_t begin;
    Str r;

    (void)state;
    for (int i = 0; i < 5; i++) {
        int fd = client_open(c.port);
        assert_true(client_request(fd, "POST", TEXT, "", LONG_STREAM, strlen(LONG_STREAM)));
        usleep(50000);
        close(fd);
    }
    begin = clock_ns(clock_system());
    r = client_call(c.port, "POST", TEXT, "{\"prompt\":\"q>\"}", 5000);
    assert_true(has(&r, "\"text\":\"quick\""));
    assert_true(clock_ns(clock_system()) - begin < 2000000000u);
    str_release(&r);
    kill(c.pid, SIGTERM);
    assert_int_equal(child_wait(&c), 0);
}

/* Before a server is ready, a signal ends the process as if nobody had asked. */
static void run__signal_before_ready_is_fatal(void **state)
{
    Child c = {.pid = 0};
    int status;

    (void)state;
    fflush(NULL);
    c.pid = fork();
    if (c.pid == 0) {
        StopSignal *stop;
        Err err;
        alarm(20);
        if (stop_signal_new(&stop, &err) == ST_OK)
            kill(getpid(), SIGTERM);
        sleep(10);
        exit(0);
    }
    status = child_wait(&c);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static void run__port_in_use_is_an_error(void **state)
{
    Child c = serve(1, 0);
    Fixture f;
    HttpOptions o;
    Err err = {""};
    Status st;

    (void)state;
    fixture_init(&f, NULL);
    http_defaults(&o);
    o.port = c.port;
    st = server_run(&f.app, &o, 0, NULL, NULL, NULL, &err);
    assert_int_equal(st, ST_IO);
    assert_non_null(strstr(err.msg, "is in use"));
    fixture_stop(&f);
    kill(c.pid, SIGTERM);
    assert_int_equal(child_wait(&c), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run__answers_over_sockets),
        cmocka_unit_test(run__a_raised_stop_ends_it_like_a_signal),
        cmocka_unit_test(run__sigterm_finishes_open_streams),
        cmocka_unit_test(run__no_grace_ends_streams_with_an_error),
        cmocka_unit_test(run__second_sigterm_ends_at_once),
        cmocka_unit_test(run__clients_that_leave_give_their_seats_back),
        cmocka_unit_test(run__signal_before_ready_is_fatal),
        cmocka_unit_test(run__port_in_use_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
