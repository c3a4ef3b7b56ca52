/* played_driver.h - a CudaApi that this process plays: calls are written down as words, device memory is host memory, and a
 * test names the call that fails. No GPU and no libcuda are needed. */
#ifndef METRALE_TESTS_PLAYED_DRIVER_H
#define METRALE_TESTS_PLAYED_DRIVER_H
#include "gpu/cuda.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
    bool quiet; /* nothing is written down */
} Driver;
static Driver d;

static CUresult call(const char *name)
{
    size_t at = strlen(d.log);
    if (!d.quiet) {
        assert_true(at + strlen(name) + 2 < sizeof d.log);
        snprintf(d.log + at, sizeof d.log - at, "%s ", name);
    }
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
           : attribute == CU_DEVICE_ATTRIBUTE_CLOCK_RATE               ? 1980000
           : attribute == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE        ? 3201000
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? (dev == d.n_devices - 1 ? d.major : 7)
                                                                       : d.minor;
    return CUDA_SUCCESS;
}

static CUresult f_pci(char *out, int cap, CUdevice dev)
{
    snprintf(out, (size_t)cap, "0000:%02x:00.0", dev);
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

static CUresult f_func_load(CUfunction f)
{
    (void)f;
    return call("load");
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
    .device_pci = f_pci,
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
    .func_load = f_func_load,
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
#endif
