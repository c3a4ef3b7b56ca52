/* test_trace.c - the trace passes calls through, with their results, and writes one line for each. */
#include "gpu/gpu.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above */
#include <cmocka.h>

static void must(Status st, const Err *err)
{
    if (st != ST_OK)
        fail_msg("%s", err->msg);
}

typedef struct Traced {
    GpuBackend *inner, *b;
    FILE *out;
    char *text;
    size_t len;
} Traced;

static void start(Traced *t, GpuBackend *inner)
{
    Err err;
    *t = (Traced){.inner = inner};
    t->out = open_memstream(&t->text, &t->len);
    assert_non_null(t->out);
    must(gpu_trace_new(&t->b, inner, t->out, &err), &err);
}

static void stop(Traced *t)
{
    gpu_free(t->b); /* and the inner one with it: the leak checker watches */
    fclose(t->out);
}

/* The line number i of text as its own string, in a static buffer. */
static const char *line(const char *text, int i)
{
    static char buf[512];
    for (; i > 0 && text; i--)
        text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL;
    snprintf(buf, sizeof buf, "%.*s", text ? (int)strcspn(text, "\n") : 0, text ? text : "");
    return buf;
}

static int n_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void expect(const char *got, const char *begin, const char *end)
{
    if (strncmp(got, begin, strlen(begin)) != 0 || !strstr(got, " ns=") || strlen(got) < strlen(end) ||
        strcmp(got + strlen(got) - strlen(end), end) != 0)
        fail_msg("line \"%s\" is not \"%s ns=... %s\"", got, begin, end);
}

static void add(const KArg *a, const KBlock *b)
{
    int32_t *y = a[0].ptr;
    y[b->x] += a[1].i32;
}
static const KernelObject add_obj = {.entry = "add", .constants = "N=4", .fn = add};

static void trace__writes_one_line_a_call_and_runs_it(void **state)
{
    Traced t;
    GpuBackend *cpu = NULL;
    GpuBuf buf = {0};
    GpuKernel *k = NULL;
    GpuFacts f;
    GpuEvent *from, *to;
    uint64_t ns;
    Err err;
    int32_t host[4] = {1, 2, 3, 4};
    (void)state;
    must(gpu_cpu_new(&cpu, "avx2", 2, &err), &err);
    start(&t, cpu);
    assert_false(gpu_has_graphs(t.b)); /* cpu has none */

    gpu_facts(t.b, &f);
    assert_string_equal(f.class_name, "avx2");
    must(gpu_mem_alloc(t.b, 16, "the sums", &buf, &err), &err);
    must(gpu_upload(t.b, buf.ptr, host, 16, &err), &err);
    must(gpu_kernel(t.b, &add_obj, &k, &err), &err);
    KArg args[] = {{.ptr = buf.ptr}, {.i32 = 10}};
    GpuLaunch l = {.grid = {4, 1, 1}, .block = {32, 1, 1}, .smem = 64, .n_args = 2, .args = args};
    must(gpu_event_record(t.b, &from, &err), &err);
    must(gpu_launch(t.b, k, &l, &err), &err);
    must(gpu_event_record(t.b, &to, &err), &err);
    must(gpu_event_elapsed_ns(t.b, from, to, &ns, &err), &err);
    gpu_event_free(t.b, from);
    gpu_event_free(t.b, to);
    must(gpu_download(t.b, host, buf.ptr, 16, &err), &err);
    must(gpu_copy(t.b, buf.ptr, host, 8, &err), &err);
    must(gpu_mem_set(t.b, buf.ptr, 0, 4, &err), &err);
    must(gpu_sync(t.b, &err), &err);
    gpu_mem_free(t.b, &buf);
    assert_null(buf.ptr);
    stop(&t);

    for (int i = 0; i < 4; i++)
        assert_int_equal(host[i], i + 11);
    static const char *const begins[] = {
        "facts",
        "mem_alloc \"the sums\" bytes=16",
        "upload bytes=16",
        "kernel add \"N=4\"",
        "event_record",
        "launch add \"N=4\" grid=4,1,1 block=32,1,1 smem=64 args=2",
        "event_record",
        "event_elapsed_ns",
        "event_free",
        "event_free",
        "download bytes=16",
        "copy bytes=8",
        "mem_set bytes=4",
        "sync",
        "mem_free bytes=16",
        "free",
    };
    int n = (int)(sizeof begins / sizeof *begins);
    for (int i = 0; i < n; i++)
        expect(line(t.text, i), begins[i], " ok");
    assert_int_equal(n_lines(t.text), n);
    free(t.text);
}

static void trace__passes_failures_through_and_says_so(void **state)
{
    Traced t;
    GpuBackend *mock = NULL;
    GpuKernel *k = NULL;
    GpuBuf buf = {.bytes = 42};
    Err err;
    (void)state;
    must(gpu_mock_new(&mock, "avx2", &err), &err);
    start(&t, mock);
    must(gpu_kernel(t.b, &add_obj, &k, &err), &err);
    gpu_mock_fail_at(mock, 1);
    GpuLaunch l = {.grid = {4, 1, 1}, .block = {1, 1, 1}};
    assert_int_equal(gpu_launch(t.b, k, &l, &err), ST_DEVICE);
    assert_non_null(strstr(err.msg, "launch"));
    assert_int_equal(gpu_mem_alloc(t.b, 16, "x", &buf, &err), ST_DEVICE);
    assert_int_equal(buf.bytes, 42);
    k = NULL;
    assert_int_equal(gpu_kernel(t.b, &add_obj, &k, &err), ST_DEVICE);
    assert_null(k);
    stop(&t);
    expect(line(t.text, 1), "launch add", "device call failed");
    expect(line(t.text, 2), "mem_alloc \"x\" bytes=16", "device call failed");
    expect(line(t.text, 3), "kernel add", "device call failed");
    free(t.text);
}

static void trace__has_graphs_when_the_inner_backend_has(void **state)
{
    Traced t;
    GpuBackend *mock = NULL;
    GpuKernel *k = NULL;
    GpuGraph *g = NULL;
    size_t n;
    Err err;
    (void)state;
    must(gpu_mock_new(&mock, "avx2", &err), &err);
    start(&t, mock);
    assert_true(gpu_has_graphs(t.b));
    must(gpu_kernel(t.b, &add_obj, &k, &err), &err);
    must(gpu_graph_begin(t.b, &err), &err);
    GpuLaunch l = {.grid = {4, 1, 1}, .block = {1, 1, 1}};
    must(gpu_launch(t.b, k, &l, &err), &err);
    must(gpu_graph_end(t.b, &g, &err), &err);
    must(gpu_graph_launch(t.b, g, &err), &err);
    must(gpu_graph_launch(t.b, g, &err), &err);
    const GpuMockLaunch *made = gpu_mock_launches(mock, &n);
    assert_int_equal(n, 2);
    assert_ptr_equal(made[1].kernel, &add_obj);
    gpu_graph_free(t.b, g);
    stop(&t);
    static const char *const begins[] = {"kernel add",   "graph_begin",  "launch add", "graph_end",
                                         "graph_launch", "graph_launch", "graph_free", "free"};
    for (int i = 0; i < 8; i++)
        expect(line(t.text, i), begins[i], " ok");
    free(t.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace__writes_one_line_a_call_and_runs_it),
        cmocka_unit_test(trace__passes_failures_through_and_says_so),
        cmocka_unit_test(trace__has_graphs_when_the_inner_backend_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
