/* trace.c - a GpuBackend around another one that writes down every call.
 *
 * One line a call, words first, then key=value, so that grep and awk do the rest:
 *     launch ENTRY "A=1 B=2" grid=4,1,1 block=1,1,1 smem=0 args=5 ns=1834 ok
 *     upload bytes=4096 ns=310 ok
 * ns is the time inside the wrapped call; on an asynchronous backend that is queueing, not running. Results pass
 * through untouched, and a trace that cannot be written loses lines, never calls.
 *
 * Only the kernel handles are wrapped (their names are needed); events, graphs and memory are the inner backend's. */
#include "core/clock.h"
#include "gpu/gpu.h"
#include "gpu/kernel_table.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct GpuTrace {
    GpuBackend base;
    GpuBackend *inner;
    KernelTable kernels;
    FILE *out;
} GpuTrace;

static GpuTrace *trace_of(GpuBackend *b)
{
    return (GpuTrace *)b;
}

static uint64_t now_ns(void)
{
    return clock_ns(clock_system());
}

/* The end of every line. */
static void trace_end(GpuTrace *t, uint64_t start, uint64_t end, Status st)
{
    fprintf(t->out, " ns=%" PRIu64 " %s\n", end - start, status_text(st));
}

static void trace_line(GpuTrace *t, const char *name, uint64_t start, Status st)
{
    uint64_t end = now_ns(); /* before the write, which is slower than most calls */
    fputs(name, t->out);
    trace_end(t, start, end, st);
}

static void trace_bytes(GpuTrace *t, const char *name, size_t bytes, uint64_t start, Status st)
{
    uint64_t end = now_ns();
    fprintf(t->out, "%s bytes=%zu", name, bytes);
    trace_end(t, start, end, st);
}

static void trace_free(GpuBackend *b)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();

    gpu_free(t->inner);
    trace_line(t, "free", start, ST_OK);
    fflush(t->out);
    kernel_table_release(&t->kernels);
    free(t);
}

static void trace_facts(GpuBackend *b, GpuFacts *out)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    gpu_facts(t->inner, out);
    trace_line(t, "facts", start, ST_OK);
}

static const char *trace_lost(GpuBackend *b)
{
    return gpu_lost(trace_of(b)->inner);
}

static void trace_clocks(GpuBackend *b, GpuClocks *out)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    gpu_clocks(t->inner, out);
    trace_line(t, "clocks", start, ST_OK);
}

static Status trace_host_alloc(GpuBackend *b, size_t bytes, const char *what, void **out, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_host_alloc(t->inner, bytes, what, out, err);
    trace_bytes(t, "host_alloc", bytes, start, st);
    return st;
}

static void trace_host_free(GpuBackend *b, void *p)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    gpu_host_free(t->inner, p);
    trace_line(t, "host_free", start, ST_OK);
}

static Status trace_mem_alloc(GpuBackend *b, size_t bytes, const char *what, GpuBuf *out, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_mem_alloc(t->inner, bytes, what, out, err);
    uint64_t end = now_ns();
    fprintf(t->out, "mem_alloc \"%s\" bytes=%zu", what, bytes);
    trace_end(t, start, end, st);
    return st;
}

static void trace_mem_free(GpuBackend *b, GpuBuf *buf)
{
    GpuTrace *t = trace_of(b);
    size_t bytes = buf->bytes;
    uint64_t start = now_ns();
    gpu_mem_free(t->inner, buf);
    trace_bytes(t, "mem_free", bytes, start, ST_OK);
}

static Status trace_mem_set(GpuBackend *b, void *dst, int byte, size_t bytes, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_mem_set(t->inner, dst, byte, bytes, err);
    trace_bytes(t, "mem_set", bytes, start, st);
    return st;
}

static Status trace_upload(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_upload(t->inner, dst, src, bytes, err);
    trace_bytes(t, "upload", bytes, start, st);
    return st;
}

static Status trace_download(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_download(t->inner, dst, src, bytes, err);
    trace_bytes(t, "download", bytes, start, st);
    return st;
}

static Status trace_copy(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_copy(t->inner, dst, src, bytes, err);
    trace_bytes(t, "copy", bytes, start, st);
    return st;
}

static Status trace_kernel(GpuBackend *b, const KernelObject *obj, GpuKernel **out, Err *err)
{
    GpuTrace *t = trace_of(b);
    GpuKernel *inner = NULL, *k = NULL;
    uint64_t start = now_ns();
    Status st = gpu_kernel(t->inner, obj, &inner, err);
    uint64_t end = now_ns();

    if (st == ST_OK)
        st = kernel_table_get(&t->kernels, obj, &k, err);
    fprintf(t->out, "kernel %s \"%s\"", obj->entry, obj->constants ? obj->constants : "");
    trace_end(t, start, end, st);
    if (st == ST_OK) {
        k->inner = inner;
        *out = k;
    }
    return st;
}

static Status trace_launch(GpuBackend *b, GpuKernel *k, const GpuLaunch *l, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_launch(t->inner, k->inner, l, err);
    uint64_t end = now_ns();

    fprintf(t->out, "launch %s \"%s\" grid=%u,%u,%u block=%u,%u,%u smem=%u args=%u", k->obj->entry,
            k->obj->constants ? k->obj->constants : "", l->grid.x, l->grid.y, l->grid.z, l->block.x, l->block.y,
            l->block.z, l->smem, l->n_args);
    trace_end(t, start, end, st);
    return st;
}

static Status trace_sync(GpuBackend *b, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_sync(t->inner, err);
    trace_line(t, "sync", start, st);
    return st;
}

static Status trace_event_record(GpuBackend *b, GpuEvent **out, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_event_record(t->inner, out, err);
    trace_line(t, "event_record", start, st);
    return st;
}

static Status trace_event_wait(GpuBackend *b, GpuEvent *e, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_event_wait(t->inner, e, err);
    trace_line(t, "event_wait", start, st);
    return st;
}

static Status trace_event_elapsed_ns(GpuBackend *b, GpuEvent *from, GpuEvent *to, uint64_t *ns, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_event_elapsed_ns(t->inner, from, to, ns, err);
    trace_line(t, "event_elapsed_ns", start, st);
    return st;
}

static void trace_event_free(GpuBackend *b, GpuEvent *e)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    gpu_event_free(t->inner, e);
    trace_line(t, "event_free", start, ST_OK);
}

static Status trace_graph_begin(GpuBackend *b, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_graph_begin(t->inner, err);
    trace_line(t, "graph_begin", start, st);
    return st;
}

static Status trace_graph_end(GpuBackend *b, GpuGraph **out, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_graph_end(t->inner, out, err);
    trace_line(t, "graph_end", start, st);
    return st;
}

static Status trace_graph_launch(GpuBackend *b, GpuGraph *g, Err *err)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    Status st = gpu_graph_launch(t->inner, g, err);
    trace_line(t, "graph_launch", start, st);
    return st;
}

static void trace_graph_free(GpuBackend *b, GpuGraph *g)
{
    GpuTrace *t = trace_of(b);
    uint64_t start = now_ns();
    gpu_graph_free(t->inner, g);
    trace_line(t, "graph_free", start, ST_OK);
}

#define TRACE_OPS                                                                                                      \
    .name = "trace", .free = trace_free, .facts = trace_facts, .lost = trace_lost, .clocks = trace_clocks,             \
    .mem_alloc = trace_mem_alloc, .host_alloc = trace_host_alloc, .host_free = trace_host_free,                        \
    .mem_free = trace_mem_free, .mem_set = trace_mem_set, .upload = trace_upload, .download = trace_download,          \
    .copy = trace_copy, .kernel = trace_kernel, .launch = trace_launch, .sync = trace_sync,                            \
    .event_record = trace_event_record, .event_wait = trace_event_wait, .event_elapsed_ns = trace_event_elapsed_ns,    \
    .event_free = trace_event_free

/* A capability is a slot that is not NULL, so the trace has graphs exactly when the backend inside has. */
static const GpuOps trace_ops = {TRACE_OPS};
static const GpuOps trace_ops_graphs = {
    TRACE_OPS,
    .graph_begin = trace_graph_begin,
    .graph_end = trace_graph_end,
    .graph_launch = trace_graph_launch,
    .graph_free = trace_graph_free,
};

Status gpu_trace_new(GpuBackend **out, GpuBackend *inner, void *file, Err *err)
{
    GpuTrace *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(err, ST_NOMEM, "Out of host memory for the trace backend.");
    t->base.ops = gpu_has_graphs(inner) ? &trace_ops_graphs : &trace_ops;
    t->inner = inner;
    t->out = file;
    *out = &t->base;
    return ST_OK;
}
