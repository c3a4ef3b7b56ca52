/* test_mock.c - the mock records what it is asked to launch, runs nothing, and fails where it is told to. */
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

static GpuBackend *make(void)
{
    GpuBackend *b = NULL;
    Err err;
    must(gpu_mock_new(&b, "avx2", &err), &err);
    return b;
}

static void crash(const KArg *a, const KBlock *b)
{
    (void)a, (void)b;
    fail_msg("the mock ran a kernel");
}
static const KernelObject first_obj = {.entry = "first", .constants = "", .fn = crash};
static const KernelObject second_obj = {.entry = "second", .constants = ""}; /* no code: the mock needs none */

static void launch(GpuBackend *b, GpuKernel *k, uint32_t nx, int32_t arg)
{
    KArg args[2] = {{.ptr = b}, {.i32 = arg}};
    GpuLaunch l = {
        .grid = {nx, 2, 3}, .block = {4, 5, 6}, .smem = 7, .n_args = 2, .args = args, .overlap = nx % 2 == 1};
    Err err;
    must(gpu_launch(b, k, &l, &err), &err);
    memset(args, 0xff, sizeof args); /* the mock has its own copy */
}

static GpuKernel *get(GpuBackend *b, const KernelObject *obj)
{
    GpuKernel *k = NULL;
    Err err;
    must(gpu_kernel(b, obj, &k, &err), &err);
    return k;
}

static void mock__records_launches_and_runs_none(void **state)
{
    size_t n = 99;
    (void)state;
    GpuBackend *b = make();
    GpuKernel *first = get(b, &first_obj), *second = get(b, &second_obj);
    gpu_mock_launches(b, &n);
    assert_int_equal(n, 0);
    for (uint32_t i = 0; i < 100; i++)
        launch(b, i % 2 ? second : first, i + 1, (int32_t)i * 10);
    const GpuMockLaunch *l = gpu_mock_launches(b, &n);
    assert_int_equal(n, 100);
    for (uint32_t i = 0; i < 100; i++) {
        assert_ptr_equal(l[i].kernel, i % 2 ? &second_obj : &first_obj);
        assert_true(l[i].grid.x == i + 1 && l[i].grid.y == 2 && l[i].grid.z == 3);
        assert_true(l[i].block.x == 4 && l[i].block.y == 5 && l[i].block.z == 6);
        assert_true(l[i].smem == 7 && l[i].n_args == 2 && l[i].overlap == ((i + 1) % 2 == 1));
        assert_ptr_equal(l[i].args[0].ptr, b);
        assert_int_equal(l[i].args[1].i32, i * 10);
    }
    gpu_mock_clear(b);
    gpu_mock_launches(b, &n);
    assert_int_equal(n, 0);
    gpu_free(b);
}

static void mock__memory_is_zeroed_aligned_and_counted(void **state)
{
    static const size_t sizes[] = {1, 300, 9 << 20};
    GpuFacts f;
    Err err;
    (void)state;
    GpuBackend *b = make();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        GpuBuf x = {0};
        uint8_t in = 5, out = 0;
        must(gpu_mem_alloc(b, sizes[i], "x", &x, &err), &err);
        assert_int_equal((uintptr_t)x.ptr % 256, 0);
        assert_int_equal(gpu_mock_bytes(b), sizes[i]);
        for (size_t j = 0; j < sizes[i]; j++)
            if (((uint8_t *)x.ptr)[j])
                fail_msg("byte %zu of %zu is not zero", j, sizes[i]);
        must(gpu_upload(b, x.ptr, &in, 1, &err), &err);
        must(gpu_download(b, &out, x.ptr, 1, &err), &err);
        assert_int_equal(out, 5);
        must(gpu_mem_set(b, x.ptr, 0, sizes[i], &err), &err);
        must(gpu_copy(b, &out, x.ptr, 1, &err), &err);
        assert_int_equal(out, 0);
        gpu_facts(b, &f);
        assert_int_equal(f.mem_total - f.mem_free, sizes[i]);
        gpu_mem_free(b, &x);
        assert_int_equal(gpu_mock_bytes(b), 0);
    }
    GpuBuf x = {.bytes = 42};
    assert_int_equal(gpu_mem_alloc(b, SIZE_MAX, "the sky", &x, &err), ST_DEVMEM);
    assert_non_null(strstr(err.msg, "the sky"));
    assert_int_equal(x.bytes, 42);
    assert_string_equal(f.class_name, "avx2");
    gpu_free(b);
}

static void mock__graph_replays_its_launches(void **state)
{
    GpuGraph *g = NULL;
    GpuEvent *from, *to;
    uint64_t ns;
    size_t n;
    Err err;
    (void)state;
    GpuBackend *b = make();
    GpuKernel *first = get(b, &first_obj), *second = get(b, &second_obj);
    assert_true(gpu_has_graphs(b));

    launch(b, first, 1, 1);
    must(gpu_graph_begin(b, &err), &err);
    launch(b, first, 2, 2);
    launch(b, second, 3, 3);
    gpu_mock_launches(b, &n);
    assert_int_equal(n, 1); /* the two were recorded, not made */
    must(gpu_graph_end(b, &g, &err), &err);

    must(gpu_event_record(b, &from, &err), &err);
    must(gpu_graph_launch(b, g, &err), &err);
    must(gpu_graph_launch(b, g, &err), &err);
    must(gpu_event_record(b, &to, &err), &err);
    const GpuMockLaunch *l = gpu_mock_launches(b, &n);
    assert_int_equal(n, 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(l[i].args[1].i32, ((int[]){1, 2, 3, 2, 3})[i]);
    assert_ptr_equal(l[4].kernel, &second_obj);
    must(gpu_event_elapsed_ns(b, from, to, &ns, &err), &err);
    assert_int_equal(ns, 4000); /* four launches of a microsecond */
    gpu_event_free(b, from);
    gpu_event_free(b, to);
    gpu_graph_free(b, g);
    gpu_free(b);
}

static void mock__refuses_what_a_device_refuses_while_recording(void **state)
{
    GpuGraph *g = NULL;
    GpuBuf buf = {0};
    GpuKernel *k;
    GpuEvent *e;
    char byte = 0;
    Err err;
    (void)state;
    GpuBackend *b = make();
    assert_int_equal(gpu_graph_end(b, &g, &err), ST_INVALID);
    assert_non_null(strstr(err.msg, "no graph"));
    must(gpu_graph_begin(b, &err), &err);
    assert_int_equal(gpu_graph_begin(b, &err), ST_INVALID);
    assert_int_equal(gpu_sync(b, &err), ST_INVALID);
    assert_non_null(strstr(err.msg, "sync"));
    assert_int_equal(gpu_mem_alloc(b, 1, "x", &buf, &err), ST_INVALID);
    assert_int_equal(gpu_upload(b, &byte, &byte, 1, &err), ST_INVALID);
    assert_int_equal(gpu_event_record(b, &e, &err), ST_INVALID);
    assert_int_equal(gpu_kernel(b, &first_obj, &k, &err), ST_INVALID);
    must(gpu_graph_end(b, &g, &err), &err);
    must(gpu_sync(b, &err), &err);
    gpu_graph_free(b, g);

    must(gpu_graph_begin(b, &err), &err); /* freed in the middle of it: nothing leaks */
    gpu_free(b);
}

/* One request that makes every fallible call, with the cleanup that callers write. */
static Status request(GpuBackend *b, Err *err)
{
    Status st = ST_OK;
    GpuBuf x = {0}, y = {0};
    GpuKernel *k = NULL;
    GpuGraph *g = NULL;
    GpuEvent *from = NULL, *to = NULL;
    uint64_t ns;
    char in[8] = "abcdefg", out[8];

    TRY(gpu_mem_alloc(b, 8, "x", &x, err));
    TRY(gpu_mem_alloc(b, 8, "y", &y, err));
    TRY(gpu_mem_set(b, x.ptr, 0, 8, err));
    TRY(gpu_upload(b, x.ptr, in, 8, err));
    TRY(gpu_copy(b, y.ptr, x.ptr, 8, err));
    TRY(gpu_kernel(b, &first_obj, &k, err));
    TRY(gpu_event_record(b, &from, err));
    GpuLaunch l = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
    TRY(gpu_launch(b, k, &l, err));
    TRY(gpu_graph_begin(b, err));
    st = gpu_launch(b, k, &l, err);
    if (st != ST_OK) { /* the recording must be ended in any case; its own failure adds nothing */
        GpuGraph *half = NULL;
        if (gpu_graph_end(b, &half, NULL) == ST_OK)
            gpu_graph_free(b, half);
        goto done;
    }
    TRY(gpu_graph_end(b, &g, err));
    TRY(gpu_graph_launch(b, g, err));
    TRY(gpu_event_record(b, &to, err));
    TRY(gpu_download(b, out, y.ptr, 8, err));
    TRY(gpu_sync(b, err));
    TRY(gpu_event_elapsed_ns(b, from, to, &ns, err));
    assert_string_equal(out, "abcdefg");
done:
    gpu_event_free(b, from);
    gpu_event_free(b, to);
    gpu_graph_free(b, g);
    gpu_mem_free(b, &x);
    gpu_mem_free(b, &y);
    return st;
}

static void mock__fails_at_every_call_in_turn_without_leaks(void **state)
{
    enum { CALLS = 16 };
    Err err;
    (void)state;
    GpuBackend *b = make();
    uint32_t at = 1;
    for (;; at++) {
        assert_true(at <= CALLS + 1);
        gpu_mock_fail_at(b, at);
        Status st = request(b, &err);
        assert_int_equal(gpu_mock_bytes(b), 0);
        gpu_mock_fail_at(b, 0);
        must(request(b, &err), &err); /* the next one works */
        gpu_mock_fail_at(b, at);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_DEVICE);
        /* Not only the one call fails, but all after it. */
        for (uint32_t i = 1; i < at; i++)
            must(gpu_sync(b, &err), &err);
        assert_int_equal(gpu_sync(b, &err), ST_DEVICE);
        assert_int_equal(gpu_sync(b, &err), ST_DEVICE);
        assert_non_null(strstr(err.msg, "sync"));
    }
    assert_int_equal(at, CALLS + 1); /* each of the calls has failed once */
    gpu_free(b);
}

static void mock__bad_construction_is_refused(void **state)
{
    GpuBackend *b = NULL;
    Err err;
    (void)state;
    assert_int_equal(gpu_mock_new(&b, "a-class-name-that-is-far-too-long-to-be-one", &err), ST_INVALID);
    assert_null(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mock__records_launches_and_runs_none),
        cmocka_unit_test(mock__memory_is_zeroed_aligned_and_counted),
        cmocka_unit_test(mock__graph_replays_its_launches),
        cmocka_unit_test(mock__refuses_what_a_device_refuses_while_recording),
        cmocka_unit_test(mock__fails_at_every_call_in_turn_without_leaks),
        cmocka_unit_test(mock__bad_construction_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
