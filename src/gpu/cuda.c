/* cuda.c - an NVIDIA GPU as a GpuBackend: one context, one stream, modules out of the registry's cubins.
 *
 * Every call of the driver goes through the table of cuda_api.h, and every fallible slot begins with enter(): it makes the
 * context current in a thread that is new here, refuses what may not happen while a graph is recorded, and fails at once
 * when the device is lost. Lost means that the driver reported an error after which the context can do nothing more (a bad
 * address in a kernel, a hardware fault): the first reason is kept and given to everyone who asks later. What is given back
 * goes to the driver even then, whose answer no longer matters.
 *
 * Launches are queued. An error of a kernel therefore surfaces at a later call, mostly at sync. */
#include "gpu/cuda.h"
#include "gpu/kernel_table.h"
#include "gpu/nvml.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_CAP = 96, SMEM_WITHOUT_ASKING = 48 * 1024 };

struct GpuGraph {
    CUgraphExec exec;
};

struct GpuEvent {
    CUevent event;
};

/* An image is loaded once, whatever number of entries it has. */
typedef struct CudaModule {
    const KernelImage *image;
    CUmodule module;
    struct CudaModule *next;
} CudaModule;

typedef struct GpuCuda {
    GpuBackend base;
    CudaApi api;
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CudaModule *modules;
    KernelTable kernels;
    pthread_t thread; /* where the context is current, when has_thread */
    bool has_thread, recording, lost;
    uint32_t units;
    char class_name[NAME_CAP], device_name[NAME_CAP], reason[512];
} GpuCuda;

static const GpuOps cuda_ops;

static GpuCuda *cuda_of(GpuBackend *b)
{
    assert(b->ops == &cuda_ops);
    return (GpuCuda *)b;
}

static CUdeviceptr address(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

/* ---- errors ----------------------------------------------------------------------------------------------------- */

static const char *error_text(const CudaApi *api, CUresult r)
{
    const char *text = NULL;
    return api->error_string(r, &text) == CUDA_SUCCESS && text ? text : "unknown error";
}

/* After these the context is unusable (CUDA Driver API reference, CUresult: "the process must be terminated and
 * relaunched"), or the hardware is. */
static bool is_sticky(CUresult r)
{
    static const CUresult sticky[] = {
        214 /* ecc uncorrectable */,
        220 /* nvlink uncorrectable */,
        226 /* contained */,
        700 /* illegal address */,
        702 /* launch timeout */,
        709 /* context is destroyed */,
        710 /* assert */,
        714 /* hardware stack error */,
        715 /* illegal instruction */,
        716 /* misaligned address */,
        717 /* invalid address space */,
        718 /* invalid pc */,
        719 /* launch failed */,
        721 /* tensor memory leak */,
    };
    for (size_t i = 0; i < sizeof sticky / sizeof *sticky; i++)
        if (sticky[i] == r)
            return true;
    return false;
}

static Status check(GpuCuda *c, const char *call, CUresult r, Err *err)
{
    if (r == CUDA_SUCCESS)
        return ST_OK;
    if (is_sticky(r) && !c->lost) {
        c->lost = true;
        snprintf(c->reason, sizeof c->reason, "%s: %s (error %d of %s)", c->device_name, error_text(&c->api, r), r,
                 call);
    }
    if (c->lost)
        return err_set(err, ST_DEVICE, "the device is lost: %s", c->reason);
    return err_set(err, r == CUDA_ERROR_OUT_OF_MEMORY ? ST_DEVMEM : ST_DEVICE, "%s: %s failed: %s (error %d)",
                   c->device_name, call, error_text(&c->api, r), r);
}

#define CALL(c, function, ...) check(c, #function, (c)->api.function(__VA_ARGS__), err)

static Status make_current(GpuCuda *c, Err *err)
{
    if (c->has_thread && pthread_equal(c->thread, pthread_self()))
        return ST_OK;
    Status st = CALL(c, ctx_set, c->context);
    c->thread = pthread_self();
    c->has_thread = st == ST_OK;
    return st;
}

/* `recorded`: may the call be made while a graph is recorded? */
static Status enter(GpuCuda *c, const char *op, bool recorded, Err *err)
{
    if (c->lost)
        return err_set(err, ST_DEVICE, "the device is lost: %s", c->reason);
    if (c->recording && !recorded)
        return err_set(err, ST_INVALID, "%s is called while a graph is recorded: end the graph first.", op);
    return make_current(c, err);
}

static const char *cuda_lost(GpuBackend *b)
{
    GpuCuda *c = cuda_of(b);
    return c->lost ? c->reason : NULL;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static void cuda_facts(GpuBackend *b, GpuFacts *out)
{
    GpuCuda *c = cuda_of(b);
    size_t free_bytes = 0, total = 0;

    if (enter(c, "facts", false, NULL) == ST_OK)
        check(c, "mem_info", c->api.mem_info(&free_bytes, &total), NULL);
    *out = (GpuFacts){
        .class_name = c->class_name,
        .device = c->device_name,
        .units = c->units,
        .mem_total = total,
        .mem_free = free_bytes,
        .host_memory = false,
        .runs_ahead = true,
    };
}

static uint32_t clock_max(GpuCuda *c, int attribute)
{
    int khz = 0;
    return c->api.device_attribute(&khz, attribute, c->device) == CUDA_SUCCESS && khz > 0 ? (uint32_t)khz / 1000 : 0;
}

static void cuda_clocks(GpuBackend *b, GpuClocks *out)
{
    GpuCuda *c = cuda_of(b);
    char pci[32] = "";

    out->cores_max = clock_max(c, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    out->memory_max = clock_max(c, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    if (c->api.device_pci(pci, sizeof pci, c->device) == CUDA_SUCCESS)
        nvml_clocks(pci, &out->cores, &out->memory);
}

static Status cuda_mem_alloc(GpuBackend *b, size_t bytes, const char *what, GpuBuf *out, Err *err)
{
    GpuCuda *c = cuda_of(b);
    CUdeviceptr p = 0;
    size_t free_bytes = 0, total = 0;
    Status st = enter(c, "mem_alloc", false, err);

    if (st == ST_OK)
        st = CALL(c, mem_alloc, &p, bytes);
    if (st == ST_DEVMEM && c->api.mem_info(&free_bytes, &total) == CUDA_SUCCESS)
        return err_set(err, st, "%s needs %zu bytes; %s has %zu of %zu free", what, bytes, c->device_name, free_bytes,
                       total);
    if (st == ST_OK)
        *out = (GpuBuf){.ptr = (void *)(uintptr_t)p, .bytes = bytes};
    return st;
}

static void cuda_mem_free(GpuBackend *b, GpuBuf *buf)
{
    GpuCuda *c = cuda_of(b);
    if (make_current(c, NULL) == ST_OK)
        check(c, "mem_free", c->api.mem_free(address(buf->ptr)), NULL);
    *buf = (GpuBuf){0};
}

static Status cuda_host_alloc(GpuBackend *b, size_t bytes, const char *what, void **out, Err *err)
{
    GpuCuda *c = cuda_of(b);
    Status st = enter(c, "host_alloc", false, err);

    if (st == ST_OK)
        st = CALL(c, host_alloc, out, bytes, 0);
    return st == ST_DEVMEM ? err_set(err, ST_NOMEM, "%s: no %zu bytes of pinned host memory", what, bytes) : st;
}

static void cuda_host_free(GpuBackend *b, void *p)
{
    GpuCuda *c = cuda_of(b);
    if (make_current(c, NULL) == ST_OK)
        check(c, "host_free", c->api.host_free(p), NULL);
}

static Status cuda_mem_set(GpuBackend *b, void *dst, int byte, size_t bytes, Err *err)
{
    GpuCuda *c = cuda_of(b);
    Status st = enter(c, "mem_set", false, err);
    return st == ST_OK ? CALL(c, mem_set, address(dst), (unsigned char)byte, bytes, c->stream) : st;
}

/* Out of pageable memory the driver has read all of src when it returns; out of pinned memory the copy is queued
 * (CUDA Driver API reference, "API synchronization behavior"). */
static Status cuda_upload(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err)
{
    GpuCuda *c = cuda_of(b);
    Status st = enter(c, "upload", false, err);
    return st == ST_OK ? CALL(c, upload, address(dst), src, bytes, c->stream) : st;
}

static Status cuda_download(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err)
{
    GpuCuda *c = cuda_of(b);
    Status st = enter(c, "download", false, err);
    return st == ST_OK ? CALL(c, download, dst, address(src), bytes, c->stream) : st;
}

static Status cuda_copy(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err)
{
    GpuCuda *c = cuda_of(b);
    Status st = enter(c, "copy", false, err);
    return st == ST_OK ? CALL(c, copy, address(dst), address(src), bytes, c->stream) : st;
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

static Status load_image(GpuCuda *c, const KernelObject *obj, CUmodule *out, Err *err)
{
    Status st = ST_OK;
    CudaModule *m = c->modules;

    while (m && m->image != obj->image)
        m = m->next;
    if (m == NULL) {
        m = calloc(1, sizeof *m);
        if (m == NULL)
            return err_set(err, ST_NOMEM, "out of memory for the image of kernel %s", obj->entry);
        m->image = obj->image;
        st = CALL(c, module_load, &m->module, obj->image->bytes);
        if (st != ST_OK) {
            free(m);
            return err_wrap(err, st, "kernel %s[%s]: ", obj->entry, obj->constants);
        }
        m->next = c->modules;
        c->modules = m;
    }
    *out = m->module;
    return st;
}

static Status cuda_kernel(GpuBackend *b, const KernelObject *obj, GpuKernel **out, Err *err)
{
    GpuCuda *c = cuda_of(b);
    GpuKernel *k = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL;
    int fixed = 0;
    Status st = ST_OK;

    TRY(enter(c, "kernel", false, err));
    if (obj->image == NULL)
        return err_set(err, ST_INVALID, "kernel %s has no GPU image: it is of another class", obj->entry);
    TRY(kernel_table_get(&c->kernels, obj, &k, err));
    if (k->function == NULL) {
        TRY(load_image(c, obj, &module, err));
        st = CALL(c, module_function, &function, module, obj->symbol);
        if (st != ST_OK)
            return err_wrap(err, st, "kernel %s: ", obj->symbol);
        TRY(CALL(c, func_load, function)); /* now, not at the first launch, which may be recorded */
        TRY(CALL(c, func_get, &fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function));
        k->smem_limit = fixed < SMEM_WITHOUT_ASKING ? (uint32_t)(SMEM_WITHOUT_ASKING - fixed) : 0;
        k->function = function;
    }
    *out = k;
done:
    return st;
}

static Status cuda_launch(GpuBackend *b, GpuKernel *k, const GpuLaunch *l, Err *err)
{
    GpuCuda *c = cuda_of(b);
    CUlaunchAttribute overlap = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                 .value.programmatic_stream_serialization_allowed = 1};
    CUlaunchConfig config = {.grid = {l->grid.x, l->grid.y, l->grid.z},
                             .block = {l->block.x, l->block.y, l->block.z},
                             .smem = l->smem,
                             .stream = c->stream,
                             .attrs = l->overlap ? &overlap : NULL,
                             .n_attrs = l->overlap ? 1 : 0};
    void *args[GPU_MAX_ARGS];
    Status st = ST_OK;

    TRY(enter(c, "launch", true, err));
    if (l->smem > k->smem_limit) {
        TRY(CALL(c, func_set, k->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)l->smem));
        k->smem_limit = l->smem;
    }
    for (uint32_t i = 0; i < l->n_args; i++) /* the driver reads them before it returns */
        args[i] = (void *)(uintptr_t)&l->args[i];
    st = CALL(c, launch, &config, k->function, args, NULL);
done:
    return st == ST_OK ? st : err_wrap(err, st, "kernel %s[%s]: ", k->obj->entry, k->obj->constants);
}

static Status cuda_sync(GpuBackend *b, Err *err)
{
    GpuCuda *c = cuda_of(b);
    Status st = enter(c, "sync", false, err);
    return st == ST_OK ? CALL(c, stream_sync, c->stream) : st;
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static Status cuda_event_record(GpuBackend *b, GpuEvent **out, Err *err)
{
    GpuCuda *c = cuda_of(b);
    GpuEvent *e = NULL;
    Status st = ST_OK;

    TRY(enter(c, "event_record", false, err));
    e = calloc(1, sizeof *e);
    if (e == NULL)
        return err_set(err, ST_NOMEM, "out of memory for an event");
    TRY(CALL(c, event_create, &e->event, 0));
    TRY(CALL(c, event_record, e->event, c->stream));
    *out = e;
    e = NULL;
done:
    if (e && e->event)
        c->api.event_destroy(e->event);
    free(e);
    return st;
}

static Status cuda_event_wait(GpuBackend *b, GpuEvent *e, Err *err)
{
    GpuCuda *c = cuda_of(b);
    Status st = enter(c, "event_wait", false, err);
    return st == ST_OK ? CALL(c, event_sync, e->event) : st;
}

static Status cuda_event_elapsed_ns(GpuBackend *b, GpuEvent *from, GpuEvent *to, uint64_t *ns, Err *err)
{
    GpuCuda *c = cuda_of(b);
    float ms = 0;
    Status st = enter(c, "event_elapsed_ns", false, err);

    if (st == ST_OK)
        st = CALL(c, event_elapsed, &ms, from->event, to->event);
    if (st == ST_OK)
        *ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return st;
}

static void cuda_event_free(GpuBackend *b, GpuEvent *e)
{
    GpuCuda *c = cuda_of(b);
    if (make_current(c, NULL) == ST_OK)
        check(c, "event_destroy", c->api.event_destroy(e->event), NULL);
    free(e);
}

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

static Status cuda_graph_begin(GpuBackend *b, Err *err)
{
    GpuCuda *c = cuda_of(b);
    Status st = enter(c, "graph_begin", false, err);

    if (st == ST_OK)
        st = CALL(c, capture_begin, c->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    c->recording = st == ST_OK;
    return st;
}

static Status cuda_graph_end(GpuBackend *b, GpuGraph **out, Err *err)
{
    GpuCuda *c = cuda_of(b);
    CUgraph recorded = NULL;
    GpuGraph *g = NULL;
    Status st = ST_OK;
    bool was_recording = c->recording;

    c->recording = false;
    TRY(enter(c, "graph_end", true, err));
    if (!was_recording)
        return err_set(err, ST_INVALID, "graph_end is called but no graph is recorded: begin one first.");
    TRY(CALL(c, capture_end, c->stream, &recorded));
    g = calloc(1, sizeof *g);
    if (g == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for a graph"));
    TRY(CALL(c, graph_instantiate, &g->exec, recorded, 0));
    TRY(CALL(c, graph_upload, g->exec, c->stream)); /* now, not at the first launch */
    *out = g;
    g = NULL;
done:
    if (recorded)
        c->api.graph_destroy(recorded);
    if (g && g->exec)
        c->api.graph_exec_destroy(g->exec);
    free(g);
    return st;
}

static Status cuda_graph_launch(GpuBackend *b, GpuGraph *g, Err *err)
{
    GpuCuda *c = cuda_of(b);
    Status st = enter(c, "graph_launch", false, err);
    return st == ST_OK ? CALL(c, graph_launch, g->exec, c->stream) : st;
}

static void cuda_graph_free(GpuBackend *b, GpuGraph *g)
{
    GpuCuda *c = cuda_of(b);
    if (make_current(c, NULL) == ST_OK)
        check(c, "graph_exec_destroy", c->api.graph_exec_destroy(g->exec), NULL);
    free(g);
}

/* ---- start and end ---------------------------------------------------------------------------------------------- */

static void cuda_free(GpuBackend *b)
{
    GpuCuda *c = cuda_of(b);

    c->recording = false;
    if (c->context && make_current(c, NULL) == ST_OK) {
        if (c->stream) {
            c->api.stream_sync(c->stream);
            c->api.stream_destroy(c->stream);
        }
        for (CudaModule *m = c->modules; m; m = m->next)
            c->api.module_unload(m->module);
    }
    while (c->modules) {
        CudaModule *m = c->modules;
        c->modules = m->next;
        free(m);
    }
    if (c->context)
        c->api.ctx_release(c->device);
    kernel_table_release(&c->kernels);
    free(c);
}

static const GpuOps cuda_ops = {
    .name = "cuda",
    .free = cuda_free,
    .facts = cuda_facts,
    .lost = cuda_lost,
    .clocks = cuda_clocks,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .mem_set = cuda_mem_set,
    .upload = cuda_upload,
    .download = cuda_download,
    .copy = cuda_copy,
    .kernel = cuda_kernel,
    .launch = cuda_launch,
    .sync = cuda_sync,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_elapsed_ns = cuda_event_elapsed_ns,
    .event_free = cuda_event_free,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
};

/* "sm_90a" is 9.0, "sm_121a" 12.1: the last digit is the minor. */
static Status parse_arch(const char *arch, int *major, int *minor, Err *err)
{
    char *end;
    long v = strncmp(arch, "sm_", 3) == 0 ? strtol(arch + 3, &end, 10) : 0;

    if (v < 10 || v > 9999)
        return err_set(err, ST_INVALID, "arch \"%s\" of the class is no NVIDIA arch such as sm_90a", arch);
    *major = (int)(v / 10);
    *minor = (int)(v % 10);
    return ST_OK;
}

Status cuda_find_device(const CudaApi *api, const char *arch, CUdevice *out, Err *err)
{
    int major = 0, minor = 0, n = 0, has_major = 0, has_minor = 0;
    Status st = parse_arch(arch, &major, &minor, err);
    if (st != ST_OK)
        return st;

    CUresult r = api->init(0);
    if (r == CUDA_SUCCESS)
        r = api->device_count(&n);
    if (r == CUDA_ERROR_NO_DEVICE || (r == CUDA_SUCCESS && n == 0))
        return err_set(err, ST_UNSUPPORTED, "the NVIDIA driver is here but sees no GPU");
    if (r != CUDA_SUCCESS)
        return err_set(err, ST_UNSUPPORTED, "the NVIDIA driver cannot start: %s (error %d)", error_text(api, r), r);
    for (int i = 0; i < n; i++) {
        if (api->device_get(out, i) != CUDA_SUCCESS ||
            api->device_attribute(&has_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, *out) != CUDA_SUCCESS ||
            api->device_attribute(&has_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, *out) != CUDA_SUCCESS)
            return err_set(err, ST_UNSUPPORTED, "the NVIDIA driver does not say what GPU %d is", i);
        if (has_major == major && has_minor == minor)
            return ST_OK;
    }
    return err_set(err, ST_UNSUPPORTED,
                   "no GPU of compute capability %d.%d is here, which code for %s needs; the last of %d has %d.%d",
                   major, minor, arch, n, has_major, has_minor);
}

Status cuda_new_with(GpuBackend **out, const CudaApi *api, const char *class_name, const char *arch, Err *err)
{
    Status st = ST_OK;
    int units = 0;
    GpuCuda *c = NULL;

    if (strlen(class_name) >= NAME_CAP)
        return err_set(err, ST_INVALID, "The hardware class name %s is longer than %d bytes.", class_name,
                       NAME_CAP - 1);
    c = calloc(1, sizeof *c);
    if (c == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the cuda backend");
    c->base.ops = &cuda_ops;
    c->api = *api;
    snprintf(c->class_name, sizeof c->class_name, "%s", class_name);
    snprintf(c->device_name, sizeof c->device_name, "GPU");
    TRY(cuda_find_device(api, arch, &c->device, err));
    TRY(CALL(c, device_name, c->device_name, NAME_CAP, c->device));
    TRY(CALL(c, device_attribute, &units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, c->device));
    c->units = (uint32_t)units;
    TRY(CALL(c, ctx_retain, &c->context, c->device));
    TRY(enter(c, "start", false, err));
    TRY(CALL(c, stream_create, &c->stream, CU_STREAM_NON_BLOCKING));
    *out = &c->base;
    c = NULL;
done:
    if (c)
        cuda_free(&c->base);
    return st;
}

bool gpu_cuda_can_run(const char *arch, Err *err)
{
    CudaApi api;
    CUdevice device;
    return cuda_api_load(&api, err) == ST_OK && cuda_find_device(&api, arch, &device, err) == ST_OK;
}

Status gpu_cuda_new(GpuBackend **out, const char *class_name, const char *arch, Err *err)
{
    CudaApi api;
    Status st = cuda_api_load(&api, err);
    return st == ST_OK ? cuda_new_with(out, &api, class_name, arch, err) : st;
}
