/* test_load.c - loading by several threads, in place and through uploads: the bytes are those that one row after the other
 * gives, and the first failure is the one that is told. */
#include "model/binding.h"
#include "model/load.h"
#include "weights/quant.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const QuantScheme FP8 = {
    QUANT_FP8, 8, 128, 128, .name = "fp8", .main = ".weight", .sides = {[SIDE_SCALE] = ".weight_scale_inv"}};
static const QuantScheme NVFP4 = {QUANT_NVFP4,
                                  4,
                                  16,
                                  1,
                                  .name = "nvfp4",
                                  .main = ".weight",
                                  .sides = {[SIDE_SCALE] = ".weight_scale", [SIDE_GLOBAL] = ".weight_scale_2"}};
static const QuantScheme MXFP4 = {
    QUANT_MXFP4, 4, 32, 1, .name = "mxfp4", .main = "_blocks", .sides = {[SIDE_SCALE] = "_scales"}};
static const QuantScheme AWQ = {QUANT_AWQ,
                                4,
                                128,
                                1,
                                .name = "awq",
                                .main = ".qweight",
                                .sides = {[SIDE_SCALE] = ".scales", [SIDE_ZERO] = ".qzeros"}};
static const char *const EXPERTS[] = {"e0", "e1", "e2"};

/* Matrices of more than a slice (32 MiB) and with a last piece that is not full; every way in which rows can lie. */
static const struct {
    InstanceWeight w;
    InstanceBinding b;
    WeightLayout layout;
} PLACES[] = {
    {{"norm", 1, 1000, 0, true, DT_BF16, {0}}, {.tensor = "norm"}, LAYOUT_F32},
    {{"large", 20003, 1024, 0, false, DT_BF16, {0}}, {.tensor = "large"}, LAYOUT_N16},
    {{"q", 512, 2048, 0, false, DT_BF16, {0}},
     {.tensor = "q", .order = ROWS_ROPE_INTERLEAVED, .head_dim = 64},
     LAYOUT_N16},
    {{"part", 100, 512, 0, false, DT_BF16, {0}}, {.tensor = "fused", .row = 30, .of = 150}, LAYOUT_ROW},
    {{"turned", 2 * 48, 64, 2, false, DT_BF16, {0}},
     {.tensor = "turned", .of = 96, .row = 1, .step = 2, .columns = true},
     LAYOUT_N16},
    {{"fp8", 40007, 256, 0, false, DT_FP8_128, {0}}, {.tensor = "fp8", .quant = &FP8}, LAYOUT_N16},
    {{"nvfp4", 120001, 512, 0, false, DT_NVFP4, {0}}, {.tensor = "nvfp4", .quant = &NVFP4}, LAYOUT_N16},
    {{"experts", 3 * 200, 256, 3, false, DT_NVFP4, {0}},
     {.tensor = "e0", .tensors = EXPERTS, .quant = &NVFP4},
     LAYOUT_N16},
    {{"together", 4 * 160, 512, 4, false, DT_MXFP4, {0}},
     {.tensor = "together", .row = 1, .step = 2, .of = 320, .quant = &MXFP4},
     LAYOUT_N16},
    {{"awq", 512, 1024, 0, false, DT_W4_128, {0}}, {.tensor = "awq", .quant = &AWQ}, LAYOUT_N16},
};
enum { N_PLACES = sizeof PLACES / sizeof PLACES[0] };

typedef struct Fixture {
    WeightStore *store;
    LoadPlace places[N_PLACES];
    LoadPlan plan;
    uint8_t *want;
} Fixture;

static void must(Status st, const Err *err)
{
    if (st != ST_OK)
        fail_msg("%s", err->msg);
}

static void declare(WeightStore *s, size_t i)
{
    const InstanceWeight *w = &PLACES[i].w;
    const InstanceBinding *b = &PLACES[i].b;
    const uint64_t rows = b->of ? b->of : weight_rows(w);
    uint64_t dims[3] = {w->experts, b->columns ? w->k : rows, b->columns ? rows : w->k};
    Err err = {{0}};

    for (uint32_t e = 0; e < (b->tensors ? w->experts : 1) && b->quant; e++)
        must(store_dummy_declare_quant(s, b->quant, b->tensors ? b->tensors[e] : b->tensor, b->tensors ? 0 : w->experts,
                                       rows, w->k, &err),
             &err);
    if (b->quant == NULL)
        must(store_dummy_declare(s, b->tensor, w->stored,
                                 w->vector    ? 1
                                 : w->experts ? 3
                                              : 2,
                                 w->vector || w->experts ? dims + w->vector : dims + 1, &err),
             &err);
}

/* Row r of expert e as its stored format has it, by itself. */
static void one_row(WeightStore *s, size_t i, QuantReader *q, uint32_t e, uint64_t r, uint8_t *out)
{
    const InstanceWeight *w = &PLACES[i].w;
    const InstanceBinding *b = &PLACES[i].b;
    const uint64_t of = b->of ? b->of : weight_rows(w), row = binding_row(b, r), base = b->tensors ? 0 : e * of;
    uint64_t bytes = 0;
    Err err = {{0}};

    dtype_row_bytes(w->stored, w->k, &bytes);
    if (q)
        must(quant_read(q, base + row, 1, out, &err), &err);
    else if (b->columns)
        for (uint64_t k = 0; k < w->k; k++)
            must(store_read(s, store_find(s, b->tensor), ((base * w->k) + k * of + row) * 2, out + 2 * k, 2, &err),
                 &err);
    else
        must(store_read(s, store_find(s, b->tensor), (base + row) * bytes, out, bytes, &err), &err);
}

static void expect_place(Fixture *f, size_t i)
{
    const InstanceWeight *w = &PLACES[i].w;
    const InstanceBinding *b = &PLACES[i].b;
    const uint64_t rows = w->vector ? 1 : weight_rows(w), step = layout_rows(PLACES[i].layout);
    uint64_t row_bytes = 0, piece = 0;
    uint8_t *dst = f->want + f->places[i].offset, *src;
    Err err = {{0}};

    assert_true(dtype_row_bytes(w->stored, w->k, &row_bytes));
    assert_true(layout_bytes(PLACES[i].layout, w->stored, step, w->k, &piece));
    src = malloc(step * row_bytes);
    for (uint32_t e = 0; e < weight_experts(w); e++) {
        QuantReader *q = NULL;

        if (b->quant)
            must(quant_open(&q, f->store, b->quant, b->tensors ? b->tensors[e] : b->tensor,
                            (b->of ? b->of : rows) * (b->tensors ? 1 : weight_experts(w)), w->k, w->stored, &err),
                 &err);
        for (uint64_t first = 0; first < rows; first += step, dst += piece) {
            uint32_t n = (uint32_t)(rows - first < step ? rows - first : step);
            for (uint32_t r = 0; r < n; r++)
                one_row(f->store, i, q, e, first + r, src + r * row_bytes);
            layout_piece(PLACES[i].layout, w->stored, w->k, n, src, dst);
        }
        quant_close(q);
    }
    free(src);
}

static int setup(void **state)
{
    Fixture *f = calloc(1, sizeof *f);
    json_t *config = json_object();
    Err err = {{0}};

    must(store_dummy_new(&f->store, config, 1, &err), &err);
    json_decref(config);
    for (size_t i = 0; i < N_PLACES; i++) {
        LoadPlace *p = &f->places[i];
        declare(f->store, i);
        *p = (LoadPlace){&PLACES[i].b, &PLACES[i].w, PLACES[i].layout, f->plan.bytes, 0};
        assert_true(load_bytes(p->layout, p->weight, &p->bytes));
        f->plan.bytes += (p->bytes + 255) / 256 * 256;
    }
    f->plan.places = f->places;
    f->plan.n_places = N_PLACES;
    f->want = calloc(1, f->plan.bytes);
    for (size_t i = 0; i < N_PLACES; i++)
        expect_place(f, i);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;

    store_free(f->store);
    free(f->want);
    free(f);
    return 0;
}

/* ---- a device whose memory the host may or may not write: what is queued is copied when an event is waited for ---- */
enum { MAX_QUEUED = 256 };
typedef struct Device {
    GpuBackend base;
    bool host;
    bool busy; /* a call is running: only one may */
    uint32_t uploads, fail_at;
    struct {
        void *dst;
        const void *src;
        size_t n;
    } queue[MAX_QUEUED];
    uint32_t queued;
} Device;

static void device_facts(GpuBackend *b, GpuFacts *out)
{
    *out = (GpuFacts){.class_name = "test", .device = "test", .units = 3, .host_memory = ((Device *)b)->host};
}

static Status device_upload(GpuBackend *b, void *dst, const void *src, size_t n, Err *err)
{
    Device *d = (Device *)b;

    if (d->busy || d->host || d->queued == MAX_QUEUED)
        return err_set(err, ST_INVALID, "the device is used as it may not be");
    d->busy = true;
    if (++d->uploads == d->fail_at) {
        d->busy = false;
        return err_set(err, ST_DEVICE, "the device is gone");
    }
    d->queue[d->queued].dst = dst;
    d->queue[d->queued].src = src;
    d->queue[d->queued++].n = n;
    d->busy = false;
    return ST_OK;
}

static Status device_sync(GpuBackend *b, Err *err)
{
    Device *d = (Device *)b;

    if (d->busy)
        return err_set(err, ST_INVALID, "the device is used as it may not be");
    while (d->queued > 0) {
        d->queued--;
        memcpy(d->queue[d->queued].dst, d->queue[d->queued].src, d->queue[d->queued].n);
    }
    return ST_OK;
}

static Status device_host_alloc(GpuBackend *b, size_t bytes, const char *what, void **out, Err *err)
{
    (void)b;
    *out = malloc(bytes);
    return *out ? ST_OK : err_set(err, ST_NOMEM, "no memory for %s", what);
}

static void device_host_free(GpuBackend *b, void *p)
{
    (void)b;
    free(p);
}

static Status device_event_record(GpuBackend *b, GpuEvent **out, Err *err)
{
    (void)err;
    *out = (GpuEvent *)(void *)b;
    return ST_OK;
}

static Status device_event_wait(GpuBackend *b, GpuEvent *e, Err *err)
{
    (void)e;
    return device_sync(b, err);
}

static void device_event_free(GpuBackend *b, GpuEvent *e)
{
    (void)b;
    (void)e;
}

static const GpuOps DEVICE_OPS = {.name = "test",
                                  .facts = device_facts,
                                  .upload = device_upload,
                                  .sync = device_sync,
                                  .host_alloc = device_host_alloc,
                                  .host_free = device_host_free,
                                  .event_record = device_event_record,
                                  .event_wait = device_event_wait,
                                  .event_free = device_event_free};

static Status load(Fixture *f, WeightStore *store, bool host, uint32_t fail_at, uint8_t *out, Err *err)
{
    Device d = {.base = {.ops = &DEVICE_OPS}, .host = host, .fail_at = fail_at};

    return load_run(&f->plan, store, &d.base, (GpuBuf){out, f->plan.bytes}, err);
}

static void load__bytes_are_those_of_row_after_row(void **state)
{
    Fixture *f = *state;
    uint8_t *got = malloc(f->plan.bytes);
    Err err = {{0}};

    for (int host = 0; host < 2; host++) {
        memset(got, 0, f->plan.bytes);
        must(load(f, f->store, host, 0, got, &err), &err);
        for (size_t p = 0; p < N_PLACES; p++)
            if (memcmp(got + f->places[p].offset, f->want + f->places[p].offset, f->places[p].bytes) != 0)
                fail_msg("%s: other bytes %s", PLACES[p].w.name, host ? "in place" : "by uploads");
    }
    free(got);
}

/* ---- a store with damaged tensors ---- */
typedef struct Damaged {
    WeightStore base;
    WeightStore *inner;
    const char *names[2];
} Damaged;

static const TensorInfo *damaged_find(const WeightStore *s, const char *name)
{
    return store_find(((const Damaged *)s)->inner, name);
}

static Status damaged_read(WeightStore *s, const TensorInfo *t, uint64_t offset, void *dst, size_t len, Err *err)
{
    Damaged *d = (Damaged *)s;
    Status st = store_read(d->inner, t, offset, dst, len, err);

    for (int i = 0; i < 2; i++) /* the last elements are NaN */
        if (strcmp(t->name, d->names[i]) == 0 && offset + len == t->bytes)
            memset((uint8_t *)dst + len - 2, 0xff, 2);
    return st;
}

static const WeightOps DAMAGED_OPS = {.name = "damaged", .find = damaged_find, .read = damaged_read};

static void load__tells_the_first_failure(void **state)
{
    Fixture *f = *state;
    Damaged d = {.base = {.ops = &DAMAGED_OPS, .path = "damaged"}, .inner = f->store, .names = {"fp8.weight", "large"}};
    uint8_t *got = malloc(f->plan.bytes);
    Err err = {{0}};

    for (int i = 0; i < 8; i++) {
        assert_int_equal(load(f, &d.base, i % 2, 0, got, &err), ST_FORMAT);
        assert_non_null(strstr(err.msg, "tensor large holds a value that is not finite at row 20002, element 1023"));
    }
    assert_int_equal(load_run(&f->plan, &d.base, NULL, (GpuBuf){0}, &err), ST_FORMAT); /* read to be checked */
    assert_non_null(strstr(err.msg, "tensor large"));
    d.names[1] = "";
    assert_int_equal(load(f, &d.base, false, 0, got, &err), ST_FORMAT);
    assert_non_null(strstr(err.msg, "fp8.weight"));
    free(got);
}

static void load__a_device_that_fails_ends_it(void **state)
{
    Fixture *f = *state;
    uint8_t *got = malloc(f->plan.bytes);
    Err err = {{0}};

    for (uint32_t at = 1; at < 12; at++) {
        assert_int_equal(load(f, f->store, false, at, got, &err), ST_DEVICE);
        assert_string_equal(err.msg, "the device is gone");
    }
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load__bytes_are_those_of_row_after_row),
        cmocka_unit_test(load__tells_the_first_failure),
        cmocka_unit_test(load__a_device_that_fails_ends_it),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
