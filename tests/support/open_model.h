/* open_model.h - a checkpoint of tests/data opened through the real registry, circuits and stores; and its golden file.
 * Every failure fails the test. Test data is where the sources are, or, on a machine that has only the binaries, below the
 * working directory. */
#ifndef METRALE_TESTS_OPEN_MODEL_H
#define METRALE_TESTS_OPEN_MODEL_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "circuit/target.h"
#include "core/file.h"
#include "model/model.h"
#include "model/reference.h"
#include "model/solo.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *only_class; /* a test's argument: no other hardware class; NULL: all */

static inline const char *test_root(void)
{
    return access(METRALE_SOURCE_DIR "/tests/data", R_OK) == 0 ? METRALE_SOURCE_DIR : ".";
}

typedef struct OpenModel {
    WeightStore *store;
    CircuitLibrary *lib;
    Instance *in;
    const KernelTarget *target;
    FamilySet *fs;
    GpuBackend *gpu;
    Model *model;
} OpenModel;

static inline bool open_model_find(void *ctx, const char *name, TensorDesc *out)
{
    const TensorInfo *t = store_find(ctx, name);
    if (t == NULL)
        return false;
    *out = (TensorDesc){.dtype = t->dtype, .stored = t->stored, .n_dims = t->n_dims};
    memcpy(out->dims, t->dims, sizeof out->dims);
    return true;
}

static inline const char *open_model_at(void *ctx, size_t i)
{
    return i < store_count(ctx) ? store_at(ctx, i)->name : NULL;
}

/* The instance of a store, which is taken over. act_quant: inputs are rounded as the checkpoint asks. window: in place of
 * the checkpoint's sliding_window; 0: as it is. */
static inline OpenModel open_store_as(WeightStore *store, DType kv, bool act_quant, uint32_t window)
{
    json_t *meta = json_deep_copy(store_meta(store));
    OpenModel m = {.store = store};
    Err e;

    if (circuit_library_new(&m.lib, metrale_registry.files, metrale_registry.n_files, &e) != ST_OK)
        fail_msg("%s", e.msg);
    if (window > 0)
        json_object_set_new(meta, "sliding_window", json_integer(window));
    InstanceSource src = {.name = m.store->path,
                          .meta = meta,
                          .gguf = m.store->kind == STORE_GGUF,
                          .find = open_model_find,
                          .tensor_at = open_model_at,
                          .ctx = m.store,
                          .kv_format = kv,
                          .act_quant = act_quant};
    if (instance_new(&m.in, m.lib, &src, &e) != ST_OK)
        fail_msg("%s", e.msg);
    json_decref(meta);
    return m;
}

static inline OpenModel open_store_inputs(WeightStore *store, DType kv, bool act_quant)
{
    return open_store_as(store, kv, act_quant, 0);
}

static inline OpenModel open_store(WeightStore *store, DType kv)
{
    return open_store_inputs(store, kv, false);
}

/* A target of the class, or NULL when this binary has none. */
static inline const KernelTarget *class_target(const char *hw)
{
    for (size_t i = 0; i < metrale_registry.n_targets; i++)
        if (strcmp(metrale_registry.targets[i].hw, hw) == 0)
            return &metrale_registry.targets[i];
    return NULL;
}

static inline bool target_is_gpu(const KernelTarget *t)
{
    return strcmp(t->vendor, "cpu") != 0;
}

static inline Status open_backend(GpuBackend **out, const char *hw, Err *e)
{
    const KernelTarget *t = class_target(hw);
    return t && target_is_gpu(t) ? gpu_cuda_new(out, hw, t->arch, e) : gpu_cpu_new(out, hw, 2, e);
}

/* The GPU class behind `after` in the registry (NULL: the first) that runs here, or NULL. */
static inline const char *next_gpu_class(const char *after)
{
    const KernelRegistry *r = &metrale_registry;
    size_t i = 0;

    while (after && i < r->n_targets && strcmp(r->targets[i].hw, after) != 0)
        i++;
    while (after && i < r->n_targets && strcmp(r->targets[i].hw, after) == 0)
        i++;
    for (; i < r->n_targets; i++)
        if (target_is_gpu(&r->targets[i]) && (only_class == NULL || strcmp(only_class, r->targets[i].hw) == 0) &&
            gpu_cuda_can_run(r->targets[i].arch, NULL))
            return r->targets[i].hw;
    return NULL;
}

/* One line for each GPU class that cannot run here; for main(). */
static inline void say_skipped_gpu_classes(void)
{
    const KernelRegistry *r = &metrale_registry;
    Err e;

    for (size_t i = 0; i < r->n_targets; i++)
        if (target_is_gpu(&r->targets[i]) && (i == 0 || strcmp(r->targets[i].hw, r->targets[i - 1].hw) != 0) &&
            !gpu_cuda_can_run(r->targets[i].arch, &e))
            print_message("SKIP: class %s: %s\n", r->targets[i].hw, e.msg);
}

/* Store and instance only. path is below tests/data. */
static inline OpenModel open_instance_as(const char *path, DType kv, bool act_quant, uint32_t window)
{
    WeightStore *store = NULL;
    char full[1024];
    Err e;

    snprintf(full, sizeof full, "%s/tests/data/%s", test_root(), path);
    if (store_open(&store, full, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return open_store_as(store, kv, act_quant, window);
}

static inline OpenModel open_instance_inputs(const char *path, DType kv, bool act_quant)
{
    return open_instance_as(path, kv, act_quant, 0);
}

static inline OpenModel open_instance(const char *path, DType kv)
{
    return open_instance_inputs(path, kv, false);
}

/* From the instance to the whole model on a backend; gpu NULL: the class's own, a CPU with 2 threads. */
static inline void open_on(OpenModel *m, const char *hw, const ModelOptions *opt, GpuBackend *gpu)
{
    Err e;

    m->gpu = gpu;
    if ((gpu == NULL && open_backend(&m->gpu, hw, &e) != ST_OK) ||
        target_choose(&m->target, &metrale_registry, hw, m->in, NULL, &e) != ST_OK ||
        families_load(&m->fs, &metrale_registry, m->target, &e) != ST_OK ||
        model_new(&m->model, m->in, m->fs, m->store, m->gpu, opt, NULL, &e) != ST_OK)
        fail_msg("%s on %s: %s", m->store->path, hw, e.msg);
}

static inline OpenModel open_model_window(const char *path, const char *hw, DType kv, uint32_t window,
                                          const ModelOptions *opt, GpuBackend *gpu)
{
    OpenModel m = open_instance_as(path, kv, false, window);

    open_on(&m, hw, opt, gpu);
    return m;
}

static inline OpenModel open_model_inputs(const char *path, const char *hw, DType kv, bool act_quant,
                                          const ModelOptions *opt, GpuBackend *gpu)
{
    OpenModel m = open_instance_inputs(path, kv, act_quant);

    open_on(&m, hw, opt, gpu);
    return m;
}

static inline OpenModel open_model(const char *path, const char *hw, DType kv, const ModelOptions *opt, GpuBackend *gpu)
{
    return open_model_inputs(path, hw, kv, false, opt, gpu);
}

static inline void close_model(OpenModel *m)
{
    model_free(m->model);
    families_free(m->fs);
    gpu_free(m->gpu);
    instance_free(m->in);
    circuit_library_free(m->lib);
    store_free(m->store);
}

/* A class that this machine can run, or a printed line and false; quiet about one that the test is not for. */
static inline bool class_runs(const char *hw)
{
    if (only_class && strcmp(only_class, hw) != 0)
        return false;
    const KernelTarget *t = class_target(hw);
    if (t && target_is_gpu(t))
        return gpu_cuda_can_run(t->arch, NULL);
    if (gpu_cpu_can_run(hw))
        return true;
    print_message("SKIP: this CPU cannot run class %s\n", hw);
    return false;
}

typedef struct GoldenFile {
    int32_t *ids, *decode_ids;
    float *logits, *decode_logits;
    uint32_t n, n_decode, vocab;
} GoldenFile;

static inline void *golden_tensor(WeightStore *s, const char *name, uint64_t *n)
{
    Err e;
    const TensorInfo *t = store_find(s, name);
    if (t == NULL)
        fail_msg("%s is missing from the golden file", name);
    char *p = malloc(t->bytes);
    if (store_read(s, t, 0, p, t->bytes, &e) != ST_OK)
        fail_msg("%s", e.msg);
    *n = t->dims[0];
    if (t->dtype == DT_I64)
        for (uint64_t i = 0; i < *n; i++) {
            int64_t v;
            memcpy(&v, p + 8 * i, 8);
            ((int32_t *)(void *)p)[i] = (int32_t)v;
        }
    return p;
}

static inline GoldenFile golden_open(const char *dir)
{
    GoldenFile g = {0};
    WeightStore *s = NULL;
    char full[1024], *bytes;
    size_t len;
    uint64_t n, m;
    Err e;

    snprintf(full, sizeof full, "%s/tests/data/%s/golden.safetensors", test_root(), dir);
    if (file_read(full, 1 << 24, &bytes, &len, &e) != ST_OK ||
        store_safetensors_parse(&s, bytes, len, full, &e) != ST_OK)
        fail_msg("%s", e.msg);
    g.ids = golden_tensor(s, "input_ids", &n);
    g.decode_ids = golden_tensor(s, "decode_ids", &m);
    g.n = (uint32_t)n;
    g.n_decode = (uint32_t)m;
    g.logits = golden_tensor(s, "logits", &n);
    g.decode_logits = golden_tensor(s, "decode_logits", &n);
    g.vocab = (uint32_t)store_find(s, "logits")->dims[1];
    store_free(s);
    free(bytes);
    return g;
}

static inline void golden_close(GoldenFile *g)
{
    free(g->ids);
    free(g->decode_ids);
    free(g->logits);
    free(g->decode_logits);
}

/* Largest |difference| over the largest |wanted|; NaN is infinitely far. */
static inline double worst_error(const float *got, const float *want, size_t n)
{
    double top = 0, far = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        far = isnan(d) ? INFINITY : fmax(far, d);
        top = fmax(top, fabs((double)want[i]));
    }
    return far / top;
}
#endif
