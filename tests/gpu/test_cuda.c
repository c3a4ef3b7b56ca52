/* The cuda backend over a driver that this file plays: what it calls in which order, what it does with each error, and what a
 * recorded graph holds. No GPU and no libcuda are needed. */
#include "gpu/cuda.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the driver -------------------------------------------------------------------------------------------------- */

/* Calls are written down as words; device memory is host memory. */
typedef struct Driver {
    char log[16384];
    const char *fail; /* the call that fails with `result` */
    CUresult result;
    int major, minor, n_devices;
    int live; /* allocations, streams, events, modules and graphs that were not given back */
    int fixed_smem;
    CUlaunchConfig launched;
    bool allowed_overlap;
    uint64_t first_arg;
} Driver;
static Driver d;

static CUresult call(const char *name)
{
    size_t at = strlen(d.log);
    assert_true(at + strlen(name) + 2 < sizeof d.log);
    snprintf(d.log + at, sizeof d.log - at, "%s ", name);
    return d.fail && strcmp(d.fail, name) == 0 ? d.result : CUDA_SUCCESS;
}

static CUresult made(const char *name)
{
    CUresult r = call(name);
    d.live += r == CUDA_SUCCESS;
    return r;
}

/* A handle is given out only by a call that succeeds. */
static CUresult made_as(const char *name, void **out, void *handle)
{
    CUresult r = made(name);
    if (r == CUDA_SUCCESS)
        *out = handle;
    return r;
}

static CUresult gone(const char *name)
{
    d.live--;
    return call(name);
}

static CUresult f_init(unsigned flags)
{
    (void)flags;
    return call("init");
}

static CUresult f_count(int *n)
{
    *n = d.n_devices;
    return call("count");
}

static CUresult f_get(CUdevice *out, int ordinal)
{
    *out = ordinal;
    return CUDA_SUCCESS;
}

static CUresult f_name(char *out, int cap, CUdevice dev)
{
    snprintf(out, (size_t)cap, "Played GPU %d", dev);
    return CUDA_SUCCESS;
}

static CUresult f_attribute(int *out, int attribute, CUdevice dev)
{
    *out = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT       ? 132
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? (dev == d.n_devices - 1 ? d.major : 7)
                                                                       : d.minor;
    return CUDA_SUCCESS;
}

static CUresult f_retain(CUcontext *out, CUdevice dev)
{
    (void)dev;
    return made_as("retain", (void **)out, &d);
}

static CUresult f_release(CUdevice dev)
{
    (void)dev;
    return gone("release");
}

static CUresult f_set(CUcontext c)
{
    (void)c;
    return call("set");
}

static CUresult f_alloc(CUdeviceptr *out, size_t bytes)
{
    CUresult r = made("alloc");
    if (r == CUDA_SUCCESS)
        *out = (CUdeviceptr)(uintptr_t)malloc(bytes);
    return r;
}

static CUresult f_free(CUdeviceptr p)
{
    free((void *)(uintptr_t)p);
    return gone("free");
}

static CUresult f_info(size_t *free_bytes, size_t *total)
{
    *free_bytes = 100;
    *total = 1000;
    return CUDA_SUCCESS;
}

static CUresult f_memset(CUdeviceptr dst, unsigned char byte, size_t n, CUstream s)
{
    (void)s;
    memset((void *)(uintptr_t)dst, byte, n);
    return call("memset");
}

static CUresult f_up(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
    (void)s;
    memcpy((void *)(uintptr_t)dst, src, n);
    return call("up");
}

static CUresult f_down(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
    (void)s;
    memcpy(dst, (const void *)(uintptr_t)src, n);
    return call("down");
}

static CUresult f_copy(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
    (void)s;
    memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, n);
    return call("copy");
}

static CUresult f_host_alloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    CUresult r = made("host_alloc");
    if (r == CUDA_SUCCESS)
        *out = malloc(bytes);
    return r;
}

static CUresult f_host_free(void *p)
{
    free(p);
    return gone("host_free");
}

static CUresult f_stream(CUstream *out, unsigned flags)
{
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    return made_as("stream", (void **)out, &d.live);
}

static CUresult f_sync(CUstream s)
{
    (void)s;
    return call("sync");
}

static CUresult f_stream_destroy(CUstream s)
{
    (void)s;
    return gone("stream_destroy");
}

static CUresult f_event(CUevent *out, unsigned flags)
{
    (void)flags;
    return made_as("event", (void **)out, &d.log);
}

static CUresult f_record(CUevent e, CUstream s)
{
    (void)e;
    (void)s;
    return call("record");
}

static CUresult f_event_sync(CUevent e)
{
    (void)e;
    return call("event_sync");
}

static CUresult f_elapsed(float *ms, CUevent from, CUevent to)
{
    (void)from;
    (void)to;
    *ms = 1.5f;
    return call("elapsed");
}

static CUresult f_event_destroy(CUevent e)
{
    (void)e;
    return gone("event_destroy");
}

static CUresult f_module(CUmodule *out, const void *image)
{
    assert_int_equal(*(const uint8_t *)image, 0x7f);
    return made_as("module", (void **)out, &d.fail);
}

static CUresult f_unload(CUmodule m)
{
    (void)m;
    return gone("unload");
}

static CUresult f_function(CUfunction *out, CUmodule m, const char *name)
{
    (void)m;
    (void)name;
    *out = (CUfunction)(void *)&d.result;
    return call("function");
}

static CUresult f_func_get(int *out, int attribute, CUfunction f)
{
    (void)f;
    assert_int_equal(attribute, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    *out = d.fixed_smem;
    return CUDA_SUCCESS;
}

static CUresult f_func_set(CUfunction f, int attribute, int value)
{
    (void)f;
    (void)value;
    assert_int_equal(attribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    return call("smem");
}

static CUresult f_launch(const CUlaunchConfig *config, CUfunction f, void **args, void **extra)
{
    (void)f;
    assert_null(extra);
    d.launched = *config;
    d.allowed_overlap = config->n_attrs == 1 &&
                        config->attrs[0].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                        config->attrs[0].value.programmatic_stream_serialization_allowed == 1;
    memcpy(&d.first_arg, args[0], sizeof d.first_arg);
    return call("launch");
}

static CUresult f_begin(CUstream s, int mode)
{
    (void)s;
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return call("begin");
}

static CUresult f_end(CUstream s, CUgraph *out)
{
    (void)s;
    return made_as("end", (void **)out, &d.major);
}

static CUresult f_instantiate(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
    (void)g;
    (void)flags;
    return made_as("instantiate", (void **)out, &d.minor);
}

static CUresult f_graph_upload(CUgraphExec g, CUstream s)
{
    (void)g;
    (void)s;
    return call("graph_upload");
}

static CUresult f_graph_launch(CUgraphExec g, CUstream s)
{
    (void)g;
    (void)s;
    return call("graph_launch");
}

static CUresult f_graph_destroy(CUgraph g)
{
    (void)g;
    return gone("graph_destroy");
}

static CUresult f_exec_destroy(CUgraphExec g)
{
    (void)g;
    return gone("exec_destroy");
}

static CUresult f_text(CUresult r, const char **out)
{
    *out = r == 700 ? "an illegal memory access was encountered" : "something is wrong";
    return CUDA_SUCCESS;
}

static const CudaApi played = {
    .init = f_init,
    .device_count = f_count,
    .device_get = f_get,
    .device_name = f_name,
    .device_attribute = f_attribute,
    .ctx_retain = f_retain,
    .ctx_release = f_release,
    .ctx_set = f_set,
    .mem_alloc = f_alloc,
    .mem_free = f_free,
    .mem_info = f_info,
    .mem_set = f_memset,
    .upload = f_up,
    .download = f_down,
    .copy = f_copy,
    .host_alloc = f_host_alloc,
    .host_free = f_host_free,
    .stream_create = f_stream,
    .stream_sync = f_sync,
    .stream_destroy = f_stream_destroy,
    .event_create = f_event,
    .event_record = f_record,
    .event_sync = f_event_sync,
    .event_elapsed = f_elapsed,
    .event_destroy = f_event_destroy,
    .module_load = f_module,
    .module_unload = f_unload,
    .module_function = f_function,
    .func_get = f_func_get,
    .func_set = f_func_set,
    .launch = f_launch,
    .capture_begin = f_begin,
    .capture_end = f_end,
    .graph_instantiate = f_instantiate,
    .graph_upload = f_graph_upload,
    .graph_launch = f_graph_launch,
    .graph_destroy = f_graph_destroy,
    .graph_exec_destroy = f_exec_destroy,
    .error_string = f_text,
};

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
    assert_string_equal(d.log, "module function function ");
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
    free(buf.ptr);
    gpu_mem_free(b, &buf);
    gpu_free(b);
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
