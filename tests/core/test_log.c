/* log: levels, whole lines, no forged ones. */
#include "core/log.h"
#include "core/thread.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct Sink {
    char *text;
    size_t len;
    Log log;
} Sink;

static void sink_init(Sink *s, LogLevel min)
{
    *s = (Sink){0};
    s->log.out = open_memstream(&s->text, &s->len);
    s->log.min = min;
    assert_non_null(s->log.out);
}

static void sink_release(Sink *s)
{
    fclose(s->log.out);
    free(s->text);
}

static void log__writes_the_level_and_the_sentence(void **state)
{
    Sink s;
    (void)state;
    sink_init(&s, LOG_DEBUG);
    log_debug(&s.log, "d %d", 1);
    log_info(&s.log, "i");
    log_warn(&s.log, "%s", "w");
    log_error(&s.log, "e");
    assert_string_equal(s.text, "debug: d 1\ninfo: i\nwarning: w\nerror: e\n");
    sink_release(&s);
}

static int count(int *n)
{
    return ++*n;
}

static void log__below_the_level_nothing_is_even_evaluated(void **state)
{
    int n = 0;
    Sink s;
    (void)state;
    sink_init(&s, LOG_WARN);
    log_info(&s.log, "%d", count(&n));
    assert_int_equal(n, 0);
    log_line(&s.log, LOG_INFO, "dropped by the function too");
    log_warn(&s.log, "%d", count(&n));
    assert_string_equal(s.text, "warning: 1\n");
    sink_release(&s);
}

static void log__null_drops_everything(void **state)
{
    const Log *none = NULL;
    int n = 0;
    (void)state;
    log_error(none, "%d", count(&n));
    log_line(none, LOG_ERROR, "x");
    assert_int_equal(n, 0);
}

static void log__control_characters_cannot_forge_a_line(void **state)
{
    Sink s;
    (void)state;
    sink_init(&s, LOG_INFO);
    log_info(&s.log, "name is %s", "x\nerror: forged\x1b[2J\x7f \xc3\xa9");
    assert_string_equal(s.text, "info: name is x?error: forged?[2J? \xc3\xa9\n");
    sink_release(&s);
}

static void log__a_long_line_is_not_cut(void **state)
{
    Sink s;
    (void)state;
    sink_init(&s, LOG_INFO);
    log_info(&s.log, "%020000d", 0);
    assert_int_equal(s.len, strlen("info: ") + 20000 + 1);
    sink_release(&s);
}

static void *write_lines(void *arg)
{
    for (int i = 0; i < 500; i++)
        log_info((const Log *)arg, "%0100d", 0);
    return NULL;
}

static void log__lines_of_several_threads_do_not_mix(void **state)
{
    /* A file: a memory stream allocates under a lock of libc's that the thread sanitizer does not see. */
    Log log = {.out = fopen("lines.txt", "w+"), .min = LOG_INFO};
    char line[256];
    Thread t[3];
    int lines = 0;
    Err err;
    (void)state;
    assert_non_null(log.out);
    for (int i = 0; i < 3; i++)
        assert_int_equal(thread_start(&t[i], "log", write_lines, &log, &err), ST_OK);
    for (int i = 0; i < 3; i++)
        thread_join(t[i]);
    rewind(log.out);
    for (; fgets(line, sizeof line, log.out) != NULL; lines++)
        assert_int_equal(strlen(line), strlen("info: ") + 100 + 1);
    assert_int_equal(lines, 1500);
    fclose(log.out);
    remove("lines.txt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log__writes_the_level_and_the_sentence),
        cmocka_unit_test(log__below_the_level_nothing_is_even_evaluated),
        cmocka_unit_test(log__null_drops_everything),
        cmocka_unit_test(log__control_characters_cannot_forge_a_line),
        cmocka_unit_test(log__a_long_line_is_not_cut),
        cmocka_unit_test(log__lines_of_several_threads_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
