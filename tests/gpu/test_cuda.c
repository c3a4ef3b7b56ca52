/* The cuda backend over a driver that this file plays: what it calls in which order, what it does with each error, and what a
 * recorded graph holds. No GPU and no libcuda are needed. */
#include "support/played_driver.h"

static const uint8_t image_bytes[] = {0x7f, 'E', 'L', 'F'};
static const KernelImage image = {image_bytes, sizeof image_bytes};
static const KernelObject first = {"first", "m", "", "first", "", NULL, &image};
static const KernelObject second = {"second", "m", "", "second", "", NULL, &image};
static const KernelObject of_cpu = {"third", "m", "", "third", "", NULL, NULL};

static GpuBackend *start(void)
{
    GpuBackend *b = NULL;
    Err e;

    d = (Driver){.major = 9, .minor = 0, .n_devices = 1};
    if (cuda_new_with(&b, &played, "class", "sm_90a", &e) != ST_OK)
        fail_msg("%s", e.msg);
    d.log[0] = '\0';
    return b;
}

static void stop(GpuBackend *b)
{
    gpu_free(b);
    assert_int_equal(d.live, 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void cuda__takes_the_device_of_its_arch(void **state)
{
    GpuBackend *b;
    GpuFacts f;
    GpuClocks clocks;
    CUdevice dev;
    Err e;

    (void)state;
    d = (Driver){.major = 12, .minor = 1, .n_devices = 3};
    assert_int_equal(cuda_find_device(&played, "sm_121a", &dev, &e), ST_OK);
    assert_int_equal(dev, 2);
    assert_int_equal(cuda_find_device(&played, "sm_90a", &dev, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "no GPU of compute capability 9.0"));
    assert_int_equal(cuda_find_device(&played, "gfx90a", &dev, &e), ST_INVALID);
    d.n_devices = 0;
    assert_int_equal(cuda_find_device(&played, "sm_121a", &dev, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "sees no GPU"));
    d.fail = "init";
    d.result = 999;
    assert_int_equal(cuda_find_device(&played, "sm_121a", &dev, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "cannot start: something is wrong"));

    b = start();
    gpu_facts(b, &f);
    assert_string_equal(f.class_name, "class");
    assert_string_equal(f.device, "Played GPU 0");
    assert_int_equal(f.units, 132);
    assert_int_equal(f.mem_free, 100);
    assert_false(f.host_memory);
    gpu_clocks(b, &clocks); /* those of now are the library's that comes with a driver, which need not be here */
    assert_int_equal(clocks.cores_max, 1980);
    assert_int_equal(clocks.memory_max, 3201);
    stop(b);
}

static void cuda__memory_and_copies_reach_the_driver(void **state)
{
    GpuBackend *b = start();
    GpuBuf buf = {0}, other = {0};
    int32_t out[2] = {0};
    void *pinned;
    Err e;

    (void)state;
    assert_int_equal(gpu_mem_alloc(b, 8, "x", &buf, &e), ST_OK);
    assert_int_equal(gpu_mem_alloc(b, 8, "y", &other, &e), ST_OK);
    assert_int_equal(gpu_host_alloc(b, 8, "z", &pinned, &e), ST_OK);
    memcpy(pinned, (int32_t[]){3, 4}, 8);
    assert_int_equal(gpu_upload(b, buf.ptr, pinned, 8, &e), ST_OK);
    assert_int_equal(gpu_copy(b, other.ptr, buf.ptr, 8, &e), ST_OK);
    assert_int_equal(gpu_mem_set(b, buf.ptr, 0, 8, &e), ST_OK);
    assert_int_equal(gpu_download(b, out, other.ptr, 8, &e), ST_OK);
    assert_int_equal(gpu_sync(b, &e), ST_OK);
    assert_int_equal(out[1], 4);
    assert_string_equal(d.log, "alloc alloc host_alloc up copy memset down sync ");
    gpu_host_free(b, pinned);
    gpu_mem_free(b, &buf);
    gpu_mem_free(b, &other);
    assert_null(buf.ptr);
    d.fail = "alloc";
    d.result = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(gpu_mem_alloc(b, 4096, "the cache", &buf, &e), ST_DEVMEM);
    assert_string_equal(e.msg, "the cache needs 4096 bytes; Played GPU 0 has 100 of 1000 free");
    assert_null(gpu_lost(b));
    stop(b);
}

static void cuda__loads_an_image_once_and_passes_arguments_by_address(void **state)
{
    GpuBackend *b = start();
    GpuKernel *k1, *k2, *again;
    KArg args[2] = {{.i64 = 77}, {.f32 = 1}};
    GpuLaunch l = {.grid = {2, 3, 4}, .block = {128, 1, 1}, .smem = 100, .n_args = 2, .args = args};
    Err e;

    (void)state;
    d.fixed_smem = 1024;
    assert_int_equal(gpu_kernel(b, &first, &k1, &e), ST_OK);
    assert_int_equal(gpu_kernel(b, &second, &k2, &e), ST_OK);
    assert_int_equal(gpu_kernel(b, &first, &again, &e), ST_OK);
    assert_ptr_equal(k1, again);
    assert_string_equal(d.log, "module function load function load ");
    assert_int_equal(gpu_kernel(b, &of_cpu, &again, &e), ST_INVALID);

    d.log[0] = '\0';
    assert_int_equal(gpu_launch(b, k1, &l, &e), ST_OK);
    assert_int_equal(d.launched.grid[1], 3);
    assert_int_equal(d.launched.block[0], 128);
    assert_int_equal(d.launched.smem, 100);
    assert_int_equal(d.first_arg, 77);
    assert_false(d.allowed_overlap);
    l.overlap = true;
    l.smem = 47 * 1024; /* with 1 KiB of its own: just what needs no asking */
    assert_int_equal(gpu_launch(b, k1, &l, &e), ST_OK);
    assert_true(d.allowed_overlap);
    l.smem = 47 * 1024 + 1;
    assert_int_equal(gpu_launch(b, k1, &l, &e), ST_OK);
    assert_int_equal(gpu_launch(b, k1, &l, &e), ST_OK); /* asked for once */
    assert_string_equal(d.log, "launch launch smem launch launch ");
    stop(b);
}

static void cuda__records_a_graph_and_refuses_the_rest_meanwhile(void **state)
{
    GpuBackend *b = start();
    GpuKernel *k;
    GpuGraph *g;
    GpuBuf buf;
    KArg arg = {.i64 = 1};
    GpuLaunch l = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .n_args = 1, .args = &arg};
    Err e;

    (void)state;
    assert_int_equal(gpu_kernel(b, &first, &k, &e), ST_OK);
    d.log[0] = '\0';
    assert_int_equal(gpu_graph_begin(b, &e), ST_OK);
    assert_int_equal(gpu_launch(b, k, &l, &e), ST_OK);
    assert_int_equal(gpu_sync(b, &e), ST_INVALID);
    assert_int_equal(gpu_mem_alloc(b, 8, "x", &buf, &e), ST_INVALID);
    assert_int_equal(gpu_graph_end(b, &g, &e), ST_OK);
    assert_int_equal(gpu_graph_launch(b, g, &e), ST_OK);
    assert_int_equal(gpu_sync(b, &e), ST_OK);
    gpu_graph_free(b, g);
    assert_string_equal(d.log,
                        "begin launch end instantiate graph_upload graph_destroy graph_launch sync exec_destroy ");
    assert_int_equal(gpu_graph_end(b, &g, &e), ST_INVALID);
    d.fail = "instantiate";
    d.result = 1;
    assert_int_equal(gpu_graph_begin(b, &e), ST_OK);
    assert_int_equal(gpu_graph_end(b, &g, &e), ST_DEVICE);
    assert_int_equal(gpu_sync(b, &e), ST_OK); /* recording is over */
    stop(b);
}

static void cuda__events_time_and_wait(void **state)
{
    GpuBackend *b = start();
    GpuEvent *from, *to;
    uint64_t ns = 0;
    Err e;

    (void)state;
    assert_int_equal(gpu_event_record(b, &from, &e), ST_OK);
    assert_int_equal(gpu_event_record(b, &to, &e), ST_OK);
    assert_int_equal(gpu_event_wait(b, to, &e), ST_OK);
    assert_int_equal(gpu_event_elapsed_ns(b, from, to, &ns, &e), ST_OK);
    assert_int_equal(ns, 1500000);
    gpu_event_free(b, from);
    d.fail = "record";
    d.result = 1;
    assert_int_equal(gpu_event_record(b, &from, &e), ST_DEVICE);
    gpu_event_free(b, to);
    stop(b);
}

static void cuda__an_error_that_passes_leaves_the_device_usable(void **state)
{
    GpuBackend *b = start();
    Err e;

    (void)state;
    d.fail = "sync";
    d.result = 1;
    assert_int_equal(gpu_sync(b, &e), ST_DEVICE);
    assert_string_equal(e.msg, "Played GPU 0: stream_sync failed: something is wrong (error 1)");
    d.fail = NULL;
    assert_int_equal(gpu_sync(b, &e), ST_OK);
    assert_null(gpu_lost(b));
    stop(b);
}

static void cuda__a_lost_device_fails_every_later_call_with_the_first_reason(void **state)
{
    GpuBackend *b = start();
    GpuBuf buf = {0};
    Err e;

    (void)state;
    assert_int_equal(gpu_mem_alloc(b, 8, "x", &buf, &e), ST_OK);
    d.fail = "sync";
    d.result = 700;
    assert_int_equal(gpu_sync(b, &e), ST_DEVICE);
    d.result = 719;
    d.log[0] = '\0';
    assert_int_equal(gpu_sync(b, &e), ST_DEVICE);
    assert_non_null(strstr(e.msg, "the device is lost: Played GPU 0: an illegal memory access"));
    assert_int_equal(gpu_mem_set(b, buf.ptr, 0, 8, &e), ST_DEVICE);
    assert_string_equal(d.log, ""); /* nothing reached the driver */
    assert_non_null(strstr(gpu_lost(b), "illegal memory access"));
    gpu_mem_free(b, &buf); /* what was given out is given back all the same */
    stop(b);
}

static void cuda__every_failure_at_start_is_clean(void **state)
{
    static const char *const calls[] = {"init", "count", "retain", "set", "stream"};
    GpuBackend *b = NULL;
    Err e;

    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        d = (Driver){.major = 9, .minor = 0, .n_devices = 1, .fail = calls[i], .result = 3};
        e.msg[0] = '\0';
        assert_int_not_equal(cuda_new_with(&b, &played, "class", "sm_90a", &e), ST_OK);
        assert_true(strlen(e.msg) > 10);
        assert_int_equal(d.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuda__takes_the_device_of_its_arch),
        cmocka_unit_test(cuda__memory_and_copies_reach_the_driver),
        cmocka_unit_test(cuda__loads_an_image_once_and_passes_arguments_by_address),
        cmocka_unit_test(cuda__records_a_graph_and_refuses_the_rest_meanwhile),
        cmocka_unit_test(cuda__events_time_and_wait),
        cmocka_unit_test(cuda__an_error_that_passes_leaves_the_device_usable),
        cmocka_unit_test(cuda__a_lost_device_fails_every_later_call_with_the_first_reason),
        cmocka_unit_test(cuda__every_failure_at_start_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
