/* mock.c - the GpuBackend of tests: it remembers what it was asked to launch, runs none of it, and fails on demand.
 *
 * Memory is real and zeroed, so copies work and sanitizers see every overrun. Every call that can fail passes
 * mock_call() first: the one place that counts calls for gpu_mock_fail_at and refuses what a real device refuses
 * while a graph is recorded. A test of error paths sets fail_at to 1, 2, 3 ... until its request succeeds. */
#include "gpu/gpu.h"
#include "gpu/host.h"
#include "gpu/kernel_table.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_CAP = 32, NS_PER_LAUNCH = 1000 };

/* What facts reports and mem_alloc enforces: large enough for any plan, small enough to run out of. */
#define MOCK_MEMORY (UINT64_C(1) << 40)

typedef struct LaunchList {
    GpuMockLaunch *v;
    size_t n, cap;
} LaunchList;

struct GpuGraph {
    LaunchList launches;
};

struct GpuEvent {
    uint64_t ns;
};

typedef struct GpuMock {
    GpuBackend base;
    KernelTable kernels;
    LaunchList launches;
    GpuGraph *recording; /* NULL outside of graph_begin .. graph_end */
    uint64_t bytes;
    uint64_t n_run; /* launches ever recorded: the clock of events */
    uint32_t n_calls, fail_at;
    char class_name[NAME_CAP];
} GpuMock;

static const GpuOps mock_ops;

static GpuMock *mock_of(GpuBackend *b)
{
    assert(b->ops == &mock_ops);
    return (GpuMock *)b;
}

static const GpuMock *mock_of_const(const GpuBackend *b)
{
    assert(b->ops == &mock_ops);
    return (const GpuMock *)b;
}

/* Counts a call that can fail; `recorded` says whether it may be made while a graph is recorded. */
static Status mock_call(GpuMock *m, const char *op, bool recorded, Err *err)
{
    if (m->n_calls < UINT32_MAX)
        m->n_calls++;
    if (m->fail_at && m->n_calls >= m->fail_at)
        return err_set(err, ST_DEVICE, "The mock device fails %s, call %" PRIu32 ", as the test asked for.", op,
                       m->n_calls);
    if (m->recording && !recorded)
        return err_set(err, ST_INVALID, "%s is called while a graph is recorded: end the graph first.", op);
    return ST_OK;
}

/* Appends n launches; all or nothing. */
static Status list_add(LaunchList *l, const GpuMockLaunch *v, size_t n, Err *err)
{
    if (n > l->cap - l->n) {
        size_t cap = l->cap ? l->cap * 2 : 16;
        while (cap - l->n < n)
            cap *= 2;
        GpuMockLaunch *grown = reallocarray(l->v, cap, sizeof *grown);
        if (!grown)
            return err_set(err, ST_NOMEM, "Out of host memory for the launches that the mock device recorded.");
        l->v = grown;
        l->cap = cap;
    }
    if (n)
        memcpy(l->v + l->n, v, n * sizeof *v);
    l->n += n;
    return ST_OK;
}

static void graph_release(GpuGraph *g)
{
    if (!g)
        return;
    free(g->launches.v);
    free(g);
}

static void mock_free(GpuBackend *b)
{
    GpuMock *m = mock_of(b);
    graph_release(m->recording);
    free(m->launches.v);
    kernel_table_release(&m->kernels);
    free(m);
}

static void mock_facts(GpuBackend *b, GpuFacts *out)
{
    GpuMock *m = mock_of(b);
    *out = (GpuFacts){
        .class_name = m->class_name,
        .device = "mock",
        .units = 1,
        .mem_total = MOCK_MEMORY,
        .mem_free = MOCK_MEMORY - m->bytes,
        .host_memory = true,
    };
}

static Status mock_mem_alloc(GpuBackend *b, size_t bytes, const char *what, GpuBuf *out, Err *err)
{
    GpuMock *m = mock_of(b);
    Status st = mock_call(m, "mem_alloc", false, err);
    if (st != ST_OK)
        return st;

    void *p = bytes <= MOCK_MEMORY - m->bytes ? host_alloc(bytes) : NULL;
    if (!p)
        return err_set(err, ST_DEVMEM, "%s needs %zu bytes, more than the mock device has left.", what, bytes);
    if (bytes < HOST_HUGE) /* larger blocks are fresh pages: zero, and not worth touching */
        memset(p, 0, bytes);
    m->bytes += bytes;
    *out = (GpuBuf){.ptr = p, .bytes = bytes};
    return ST_OK;
}

static void mock_mem_free(GpuBackend *b, GpuBuf *buf)
{
    GpuMock *m = mock_of(b);
    assert(m->bytes >= buf->bytes);
    m->bytes -= buf->bytes;
    host_free(buf->ptr, buf->bytes);
    *buf = (GpuBuf){0};
}

static Status mock_mem_set(GpuBackend *b, void *dst, int byte, size_t bytes, Err *err)
{
    Status st = mock_call(mock_of(b), "mem_set", false, err);
    if (st == ST_OK)
        memset(dst, byte, bytes);
    return st;
}

static Status mock_move(GpuBackend *b, const char *op, void *dst, const void *src, size_t bytes, Err *err)
{
    Status st = mock_call(mock_of(b), op, false, err);
    if (st == ST_OK)
        memmove(dst, src, bytes);
    return st;
}

static Status mock_upload(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err)
{
    return mock_move(b, "upload", dst, src, bytes, err);
}

static Status mock_download(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err)
{
    return mock_move(b, "download", dst, src, bytes, err);
}

static Status mock_copy(GpuBackend *b, void *dst, const void *src, size_t bytes, Err *err)
{
    return mock_move(b, "copy", dst, src, bytes, err);
}

static Status mock_kernel(GpuBackend *b, const KernelObject *obj, GpuKernel **out, Err *err)
{
    GpuMock *m = mock_of(b);
    Status st = mock_call(m, "kernel", false, err);
    return st == ST_OK ? kernel_table_get(&m->kernels, obj, out, err) : st;
}

static Status mock_launch(GpuBackend *b, GpuKernel *k, const GpuLaunch *l, Err *err)
{
    GpuMock *m = mock_of(b);
    GpuMockLaunch rec = {
        .kernel = k->obj,
        .grid = l->grid,
        .block = l->block,
        .smem = l->smem,
        .n_args = l->n_args,
        .overlap = l->overlap,
    };
    Status st = mock_call(m, "launch", true, err);
    if (st != ST_OK)
        return st;

    if (l->n_args)
        memcpy(rec.args, l->args, l->n_args * sizeof *l->args);
    st = list_add(m->recording ? &m->recording->launches : &m->launches, &rec, 1, err);
    if (st == ST_OK && !m->recording)
        m->n_run++;
    return st;
}

static Status mock_sync(GpuBackend *b, Err *err)
{
    return mock_call(mock_of(b), "sync", false, err);
}

static Status mock_event_record(GpuBackend *b, GpuEvent **out, Err *err)
{
    GpuMock *m = mock_of(b);
    Status st = mock_call(m, "event_record", false, err);
    if (st != ST_OK)
        return st;

    GpuEvent *e = malloc(sizeof *e);
    if (!e)
        return err_set(err, ST_NOMEM, "Out of host memory for an event.");
    e->ns = m->n_run * NS_PER_LAUNCH;
    *out = e;
    return ST_OK;
}

static Status mock_event_elapsed_ns(GpuBackend *b, GpuEvent *from, GpuEvent *to, uint64_t *ns, Err *err)
{
    Status st = mock_call(mock_of(b), "event_elapsed_ns", false, err);
    if (st == ST_OK)
        *ns = to->ns - from->ns;
    return st;
}

static void mock_event_free(GpuBackend *b, GpuEvent *e)
{
    (void)b;
    free(e);
}

static Status mock_graph_begin(GpuBackend *b, Err *err)
{
    GpuMock *m = mock_of(b);
    Status st = mock_call(m, "graph_begin", false, err);
    if (st != ST_OK)
        return st;
    m->recording = calloc(1, sizeof *m->recording);
    return m->recording ? ST_OK : err_set(err, ST_NOMEM, "Out of host memory for a graph of the mock device.");
}

static Status mock_graph_end(GpuBackend *b, GpuGraph **out, Err *err)
{
    GpuMock *m = mock_of(b);
    GpuGraph *g = m->recording;
    Status st = mock_call(m, "graph_end", true, err);

    m->recording = NULL;
    if (st == ST_OK && !g)
        st = err_set(err, ST_INVALID, "graph_end is called but no graph is recorded: begin one first.");
    if (st != ST_OK) {
        graph_release(g);
        return st;
    }
    *out = g;
    return ST_OK;
}

static Status mock_graph_launch(GpuBackend *b, GpuGraph *g, Err *err)
{
    GpuMock *m = mock_of(b);
    Status st = mock_call(m, "graph_launch", false, err);
    if (st == ST_OK)
        st = list_add(&m->launches, g->launches.v, g->launches.n, err);
    if (st == ST_OK)
        m->n_run += g->launches.n;
    return st;
}

static void mock_graph_free(GpuBackend *b, GpuGraph *g)
{
    (void)b;
    graph_release(g);
}

static const GpuOps mock_ops = {
    .name = "mock",
    .free = mock_free,
    .facts = mock_facts,
    .mem_alloc = mock_mem_alloc,
    .mem_free = mock_mem_free,
    .mem_set = mock_mem_set,
    .upload = mock_upload,
    .download = mock_download,
    .copy = mock_copy,
    .kernel = mock_kernel,
    .launch = mock_launch,
    .sync = mock_sync,
    .event_record = mock_event_record,
    .event_elapsed_ns = mock_event_elapsed_ns,
    .event_free = mock_event_free,
    .graph_begin = mock_graph_begin,
    .graph_end = mock_graph_end,
    .graph_launch = mock_graph_launch,
    .graph_free = mock_graph_free,
};

Status gpu_mock_new(GpuBackend **out, const char *class_name, Err *err)
{
    size_t name_len = strlen(class_name);

    if (name_len >= NAME_CAP)
        return err_set(err, ST_INVALID, "The hardware class name %s is longer than %d bytes.", class_name,
                       NAME_CAP - 1);
    GpuMock *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(err, ST_NOMEM, "Out of host memory for the mock backend.");
    m->base.ops = &mock_ops;
    memcpy(m->class_name, class_name, name_len + 1);
    *out = &m->base;
    return ST_OK;
}

const GpuMockLaunch *gpu_mock_launches(const GpuBackend *b, size_t *n)
{
    const GpuMock *m = mock_of_const(b);
    *n = m->launches.n;
    return m->launches.v;
}

void gpu_mock_clear(GpuBackend *b)
{
    mock_of(b)->launches.n = 0;
}

void gpu_mock_fail_at(GpuBackend *b, uint32_t call)
{
    GpuMock *m = mock_of(b);
    m->n_calls = 0;
    m->fail_at = call;
}

uint64_t gpu_mock_bytes(const GpuBackend *b)
{
    return mock_of_const(b)->bytes;
}
