/* test_process.c - children run in parallel, with their output and their fate. */
#include "compute/process.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SH(script)                                                                                                     \
    {                                                                                                                  \
        "/bin/sh", "-c", script, NULL                                                                                  \
    }

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void process__captures_both_streams_and_the_exit_status(void **state)
{
    const char *const argv[] = SH("echo out; echo err >&2; exit 3");
    Process p = {.argv = argv};
    Err err;
    (void)state;
    assert_int_equal(process_run(&p, 1, 4, &err), ST_OK);
    assert_true(p.ran);
    assert_int_equal(p.code, 3);
    assert_string_equal(str_c(&p.output), "out\nerr\n");
    str_release(&p.output);
}

static void process__runs_as_many_at_a_time_as_asked(void **state)
{
    const char *const argv[] = SH("sleep 0.4");
    Process p[4] = {{.argv = argv}, {.argv = argv}, {.argv = argv}, {.argv = argv}};
    Err err;
    (void)state;
    double from = now();
    assert_int_equal(process_run(p, 4, 4, &err), ST_OK);
    assert_true(now() - from < 1.5); /* one after the other takes 1.6 s */
    from = now();
    assert_int_equal(process_run(p, 4, 2, &err), ST_OK);
    assert_true(now() - from >= 0.75); /* two rounds */
}

static void process__starts_nothing_after_a_failure(void **state)
{
    const char *const bad[] = SH("exit 1"), *const good[] = SH("echo ran");
    Process p[3] = {{.argv = good}, {.argv = bad}, {.argv = good}};
    Err err;
    (void)state;
    assert_int_equal(process_run(p, 3, 1, &err), ST_OK);
    assert_int_equal(p[0].code, 0);
    assert_int_equal(p[1].code, 1);
    assert_false(p[2].ran);
    for (int i = 0; i < 3; i++)
        str_release(&p[i].output);
}

static void process__program_that_is_not_there_is_status_127(void **state)
{
    const char *const argv[] = {"metrale-no-such-program", NULL};
    Process p = {.argv = argv};
    Err err;
    (void)state;
    assert_int_equal(process_run(&p, 1, 1, &err), ST_OK);
    assert_int_equal(p.code, 127);
    str_release(&p.output);
}

static void process__end_by_a_signal_is_told(void **state)
{
    const char *const argv[] = SH("kill -9 $$");
    Process p = {.argv = argv};
    Err err;
    (void)state;
    assert_int_equal(process_run(&p, 1, 1, &err), ST_OK);
    assert_int_equal(p.code, 128 + 9);
    str_release(&p.output);
}

static void process__long_output_does_not_block_the_child(void **state)
{
    const char *const argv[] = SH("i=0; while [ $i -lt 20000 ]; do echo 0123456789012345678; i=$((i+1)); done");
    Process p = {.argv = argv};
    Err err;
    (void)state;
    assert_int_equal(process_run(&p, 1, 1, &err), ST_OK);
    assert_int_equal(p.output.len, 400000);
    str_release(&p.output);
}

static void process__leaves_children_of_others_alone(void **state)
{
    const char *const argv[] = SH("sleep 0.2");
    Process p = {.argv = argv};
    Err err;
    int status;
    (void)state;
    pid_t other = fork();
    if (other == 0)
        _exit(7);
    assert_int_equal(process_run(&p, 1, 1, &err), ST_OK);
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(WEXITSTATUS(status), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process__captures_both_streams_and_the_exit_status),
        cmocka_unit_test(process__runs_as_many_at_a_time_as_asked),
        cmocka_unit_test(process__starts_nothing_after_a_failure),
        cmocka_unit_test(process__program_that_is_not_there_is_status_127),
        cmocka_unit_test(process__end_by_a_signal_is_told),
        cmocka_unit_test(process__long_output_does_not_block_the_child),
        cmocka_unit_test(process__leaves_children_of_others_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
