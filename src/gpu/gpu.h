/* gpu.h - the device as an interface. Backends: cpu (runs launches on a worker pool), mock (records, runs nothing),
 * trace (wraps any), cuda (NVIDIA GPUs by the driver's library).
 *
 * Owns: device memory, modules, graphs that it hands out until they are given back.
 * Thread: one caller at a time for each backend (the engine thread). A backend may have workers of its own.
 * Order: work queued on the backend's one stream runs in order; gpu_sync waits for all of it. */
#ifndef METRALE_GPU_GPU_H
#define METRALE_GPU_GPU_H
#include "core/status.h"
#include "kernels/registry.h"
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct GpuBackend GpuBackend;
typedef struct GpuKernel GpuKernel; /* a resolved function; belongs to the backend */
typedef struct GpuGraph GpuGraph;
typedef struct GpuEvent GpuEvent;

typedef struct GpuBuf {
    void *ptr; /* device address; on cpu a host address. 256-byte aligned */
    size_t bytes;
} GpuBuf;

typedef struct GpuDim {
    uint32_t x, y, z;
} GpuDim;

enum { GPU_MAX_ARGS = 32 };
typedef struct GpuLaunch {
    GpuDim grid, block;
    uint32_t smem; /* bytes of block-local scratch */
    uint32_t n_args;
    const KArg *args; /* copied before the call returns */
    bool overlap;     /* programmatic dependent launch; ignored where the backend has none */
} GpuLaunch;

typedef struct GpuFacts {
    const char *class_name;       /* the hardware class it runs: "avx2" */
    const char *device;           /* "AMD EPYC ..." */
    uint32_t units;               /* worker threads or SMs */
    uint64_t mem_total, mem_free; /* bytes */
    bool host_memory;             /* device pointers may be read by the host */
    bool runs_ahead;              /* launches return before they have run */
} GpuFacts;

/* MHz; 0 where the device does not say. */
typedef struct GpuClocks {
    uint32_t cores, memory;         /* now */
    uint32_t cores_max, memory_max; /* at most */
} GpuClocks;

typedef struct GpuOps {
    const char *name;
    void (*free)(GpuBackend *b);
    void (*facts)(GpuBackend *b, GpuFacts *out);
    /* Optional. NULL while the device works; after it is lost for good, the reason, and every call fails with it. */
    const char *(*lost)(GpuBackend *b);
    /* Optional: what the device is clocked at, while it works or right behind it. */
    void (*clocks)(GpuBackend *b, GpuClocks *out);
    /* Contents undefined. ST_DEVMEM leaves *out alone. what names the use in messages. */
    Status (*mem_alloc)(GpuBackend *b, size_t bytes, const char *what, GpuBuf *out, Err *err);
    void (*mem_free)(GpuBackend *b, GpuBuf *buf); /* zeroed buf is fine; zeroes it */
    Status (*mem_set)(GpuBackend *b, void *dst, int byte, size_t bytes, Err *err);
    /* Optional: host memory that the device reads and writes by itself, for what is copied often. */
    Status (*host_alloc)(GpuBackend *b, size_t bytes, const char *what, void **out, Err *err);
    void (*host_free)(GpuBackend *b, void *p);
    /* Queued copies. src of an upload may be written again when the call returns, unless it is host_alloc's: that, and
     * dst of a download, must stay until gpu_sync or an event behind the copy. */
    Status (*upload)(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err);
    Status (*download)(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err);
    Status (*copy)(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err);
    /* The handle of a registry object, loading its image when needed. Lives as long as the backend. */
    Status (*kernel)(GpuBackend *b, const KernelObject *obj, GpuKernel **out, Err *err);
    /* Queues and returns (cpu may run it at once). Errors may surface at sync. */
    Status (*launch)(GpuBackend *b, GpuKernel *k, const GpuLaunch *l, Err *err);
    Status (*sync)(GpuBackend *b, Err *err);
    Status (*event_record)(GpuBackend *b, GpuEvent **out, Err *err);
    Status (*event_wait)(GpuBackend *b, GpuEvent *e,
                         Err *err); /* optional where every call has finished when it returns */
    Status (*event_elapsed_ns)(GpuBackend *b, GpuEvent *from, GpuEvent *to, uint64_t *ns, Err *err);
    void (*event_free)(GpuBackend *b, GpuEvent *e);
    /* Optional: NULL means that the executor launches step by step. Between begin and end launches are recorded, not
     * run. */
    Status (*graph_begin)(GpuBackend *b, Err *err);
    Status (*graph_end)(GpuBackend *b, GpuGraph **out, Err *err);
    Status (*graph_launch)(GpuBackend *b, GpuGraph *g, Err *err);
    void (*graph_free)(GpuBackend *b, GpuGraph *g);
} GpuOps;

struct GpuBackend {
    const GpuOps *ops;
};

/* Constructors, one for each implementation. */
/* n_threads 0: one worker for each CPU that the process may use. class_name is what facts reports (copied); whether
 * this CPU can run the class is gpu_cpu_can_run's answer, not checked here. Launches have finished when gpu_launch
 * returns. */
Status gpu_cpu_new(GpuBackend **out, const char *class_name, unsigned n_threads, Err *err);
/* Best CPU class that CPUID allows among those in names (NULL-terminated, best first); NULL when none. */
const char *gpu_cpu_best_class(const char *const *names);
bool gpu_cpu_can_run(const char *class_name); /* by CPUID; false for a class that is no CPU class */

/* cuda: the first NVIDIA GPU whose compute capability is that of arch ("sm_90a": 9.0), by libcuda.so.1, which is loaded
 * now; class_name is what facts reports. ST_UNSUPPORTED with the reason where that cannot be. */
Status gpu_cuda_new(GpuBackend **out, const char *class_name, const char *arch, Err *err);
bool gpu_cuda_can_run(const char *arch, Err *err); /* false: err says why not */

/* mock: memory is real, zeroed host memory; launches are recorded, not run. Has graphs: a launch between begin and end
 * goes into the graph, gpu_graph_launch records all of a graph's launches. Any other call between begin and end is
 * refused. An event's time is the number of launches recorded before it, in microseconds. */
typedef struct GpuMockLaunch {
    const KernelObject *kernel;
    GpuDim grid, block;
    uint32_t smem, n_args;
    KArg args[GPU_MAX_ARGS];
    bool overlap;
} GpuMockLaunch;
Status gpu_mock_new(GpuBackend **out, const char *class_name, Err *err);
/* The functions below take the mock itself, never a trace around it. */
const GpuMockLaunch *gpu_mock_launches(const GpuBackend *b, size_t *n); /* until the next call on b */
void gpu_mock_clear(GpuBackend *b);                                     /* forgets the launches */
/* Counting fallible ops from here on: call number `call` (1-based) and all after it fail with ST_DEVICE. 0: none. */
void gpu_mock_fail_at(GpuBackend *b, uint32_t call);
uint64_t gpu_mock_bytes(const GpuBackend *b); /* allocated now */

/* trace: passes each call on, then writes one line about it to file (a FILE *, borrowed): name, kernel, grid, bytes,
 * ns. On success the trace owns inner and frees it; on failure inner stays the caller's. */
Status gpu_trace_new(GpuBackend **out, GpuBackend *inner, void *file, Err *err);

/* Checked wrappers: the only callers of the slots. */
static inline void gpu_free(GpuBackend *b)
{
    if (b)
        b->ops->free(b);
}
static inline void gpu_facts(GpuBackend *b, GpuFacts *f)
{
    b->ops->facts(b, f);
}
static inline const char *gpu_lost(GpuBackend *b)
{
    return b->ops->lost ? b->ops->lost(b) : NULL;
}
static inline void gpu_clocks(GpuBackend *b, GpuClocks *out)
{
    *out = (GpuClocks){0};
    if (b->ops->clocks)
        b->ops->clocks(b, out);
}
/* 0 bytes give a zeroed buffer and never reach the backend. */
static inline Status gpu_mem_alloc(GpuBackend *b, size_t bytes, const char *what, GpuBuf *out, Err *err)
{
    if (bytes == 0) {
        *out = (GpuBuf){0};
        return ST_OK;
    }
    return b->ops->mem_alloc(b, bytes, what, out, err);
}
static inline void gpu_mem_free(GpuBackend *b, GpuBuf *buf)
{
    if (b && buf->ptr)
        b->ops->mem_free(b, buf);
}
/* Zeroed by nobody; plain memory where the backend has none of its own. */
static inline Status gpu_host_alloc(GpuBackend *b, size_t bytes, const char *what, void **out, Err *err)
{
    if (b->ops->host_alloc)
        return b->ops->host_alloc(b, bytes ? bytes : 1, what, out, err);
    *out = malloc(bytes ? bytes : 1);
    return *out ? ST_OK : err_set(err, ST_NOMEM, "%s: no %zu bytes of host memory", what, bytes);
}
static inline void gpu_host_free(GpuBackend *b, void *p)
{
    if (b && p && b->ops->host_free)
        b->ops->host_free(b, p);
    else
        free(p);
}
/* Of 0 bytes, these four do nothing. */
static inline Status gpu_mem_set(GpuBackend *b, void *dst, int byte, size_t n, Err *err)
{
    assert(dst || n == 0);
    return n ? b->ops->mem_set(b, dst, byte, n, err) : ST_OK;
}
static inline Status gpu_upload(GpuBackend *b, void *dst, const void *src, size_t n, Err *err)
{
    assert((dst && src) || n == 0);
    return n ? b->ops->upload(b, dst, src, n, err) : ST_OK;
}
static inline Status gpu_download(GpuBackend *b, void *dst, const void *src, size_t n, Err *err)
{
    assert((dst && src) || n == 0);
    return n ? b->ops->download(b, dst, src, n, err) : ST_OK;
}
static inline Status gpu_copy(GpuBackend *b, void *dst, const void *src, size_t n, Err *err)
{
    assert((dst && src) || n == 0);
    return n ? b->ops->copy(b, dst, src, n, err) : ST_OK;
}
static inline Status gpu_kernel(GpuBackend *b, const KernelObject *o, GpuKernel **out, Err *err)
{
    assert(o);
    return b->ops->kernel(b, o, out, err);
}
static inline Status gpu_launch(GpuBackend *b, GpuKernel *k, const GpuLaunch *l, Err *err)
{
    assert(k && l->n_args <= GPU_MAX_ARGS && (l->args || l->n_args == 0));
    assert(l->grid.x && l->grid.y && l->grid.z);
    return b->ops->launch(b, k, l, err);
}
static inline Status gpu_sync(GpuBackend *b, Err *err)
{
    return b->ops->sync(b, err);
}
static inline Status gpu_event_record(GpuBackend *b, GpuEvent **out, Err *err)
{
    return b->ops->event_record(b, out, err);
}
/* Until all that was queued before the event has happened. */
static inline Status gpu_event_wait(GpuBackend *b, GpuEvent *e, Err *err)
{
    assert(e);
    return b->ops->event_wait ? b->ops->event_wait(b, e, err) : ST_OK;
}
/* Both events must have happened (gpu_sync); `to` was recorded after `from`. */
static inline Status gpu_event_elapsed_ns(GpuBackend *b, GpuEvent *from, GpuEvent *to, uint64_t *ns, Err *err)
{
    assert(from && to);
    return b->ops->event_elapsed_ns(b, from, to, ns, err);
}
static inline void gpu_event_free(GpuBackend *b, GpuEvent *e)
{
    if (b && e)
        b->ops->event_free(b, e);
}
/* Where false, the four graph calls must not be made. */
static inline bool gpu_has_graphs(const GpuBackend *b)
{
    return b->ops->graph_begin != NULL;
}
static inline Status gpu_graph_begin(GpuBackend *b, Err *err)
{
    assert(gpu_has_graphs(b));
    return b->ops->graph_begin(b, err);
}
/* Recording is over, also on failure. */
static inline Status gpu_graph_end(GpuBackend *b, GpuGraph **out, Err *err)
{
    assert(gpu_has_graphs(b));
    return b->ops->graph_end(b, out, err);
}
static inline Status gpu_graph_launch(GpuBackend *b, GpuGraph *g, Err *err)
{
    assert(gpu_has_graphs(b) && g);
    return b->ops->graph_launch(b, g, err);
}
static inline void gpu_graph_free(GpuBackend *b, GpuGraph *g)
{
    if (b && g)
        b->ops->graph_free(b, g);
}
#endif
