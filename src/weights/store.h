/* store.h - a checkpoint as named tensors plus its metadata, whatever its file format.
 * Implementations: safetensors (one file, or shards by index), gguf, dummy (seeded, shapes on demand).
 *
 * Owns: the open files and the directory of names. Not: the bytes handed out, not the device.
 * Thread: once it is opened (a dummy: once all is declared) any number may read, find and count; the rest one caller. */
#ifndef METRALE_WEIGHTS_STORE_H
#define METRALE_WEIGHTS_STORE_H
#include "core/dtype.h"
#include "core/json.h"
#include "core/quant.h"
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct WeightStore WeightStore;

enum { TENSOR_MAX_DIMS = 4 };
typedef struct TensorInfo {
    const char *name;   /* belongs to the store */
    DType dtype;        /* DT_NONE: known to the file's format, but nothing here computes with it; `stored` names it */
    const char *stored; /* the type as the file itself names it, for messages: "BF16", "Q4_1", "F8_E4M3" */
    uint32_t n_dims;
    uint64_t dims[TENSOR_MAX_DIMS]; /* row-major, slowest first: a linear weight is {n, k}. GGUF's reversed order is
                                       turned */
    uint64_t bytes;
    const char *file; /* for messages */
} TensorInfo;

typedef enum { STORE_SAFETENSORS, STORE_GGUF, STORE_DUMMY } StoreKind;

typedef struct WeightOps {
    const char *name;
    void (*free)(WeightStore *s);
    size_t (*count)(const WeightStore *s);
    const TensorInfo *(*at)(const WeightStore *s, size_t i);
    const TensorInfo *(*find)(const WeightStore *s, const char *name); /* NULL when absent */
    /* Reads bytes [offset, offset+len) of the tensor's stored form into dst. Any thread. */
    Status (*read)(WeightStore *s, const TensorInfo *t, uint64_t offset, void *dst, size_t len, Err *err);
    /* Metadata: config.json's object for safetensors and dummy; for GGUF an object of all metadata keys
     * (arrays become JSON arrays; tokenizer arrays included). Borrowed. */
    const json_t *(*meta)(const WeightStore *s);
} WeightOps;

struct WeightStore {
    const WeightOps *ops;
    StoreKind kind;
    const char *path; /* as opened; for messages */
};

/* path: a directory with config.json and *.safetensors, or a .gguf file. A directory without weights is an error here;
 * a bare config.json is opened by store_open_config for planning (count is 0). */
Status store_open(WeightStore **out, const char *path, Err *err);
/* path: a directory, a .gguf or a config.json; only metadata need exist, and no tensor byte is read. */
Status store_open_config(WeightStore **out, const char *path, Err *err);
/* What a dummy tensor holds; z is normal with sigma 1 and cut at 3.46. */
typedef enum {
    DUMMY_NORMAL, /* mean + sigma * z, in float formats, e4m3 and i8; block formats have mean 0 and sigma 0.02 */
    DUMMY_E2M1,   /* u8 of two codes each: the nearest of mean + sigma * z */
    DUMMY_FIELDS  /* u8, i8 and i32 of whole numbers of `bits` (4 or 8) each: the nearest of mean + sigma * z */
} DummyKind;
typedef struct DummyFill {
    DummyKind kind;
    uint32_t bits;
    float mean, sigma;
} DummyFill;

/* Random weights for any (name, dtype, dims) that is declared: normal, sigma 0.02, norms (rank 1) near 1, seeded by
 * (seed, name). find() answers only declared tensors. config is deep-copied. */
Status store_dummy_new(WeightStore **out, const json_t *config, uint64_t seed, Err *err);
Status store_dummy_declare(WeightStore *s, const char *name, DType dtype, uint32_t n_dims, const uint64_t *dims,
                           Err *err);
/* The same with other values, or with given ones (copied). */
Status store_dummy_declare_as(WeightStore *s, const char *name, DType dtype, uint32_t n_dims, const uint64_t *dims,
                              const DummyFill *fill, Err *err);
Status store_dummy_declare_bytes(WeightStore *s, const char *name, DType dtype, uint32_t n_dims, const uint64_t *dims,
                                 const void *bytes, Err *err);
/* Every tensor of a quantised matrix {n, k}, with scales such that it is normal with sigma 0.02 again when it is
 * dequantised. experts: how many lie in one tensor, 0 for a plain matrix. A module that is declared stays as it is. */
Status store_dummy_declare_quant(WeightStore *s, const QuantScheme *scheme, const char *module, uint32_t experts,
                                 uint64_t n, uint64_t k, Err *err);
/* A GGUF from bytes already in memory, for fuzzing and tests; bytes are borrowed. Same for one safetensors file. */
Status store_gguf_parse(WeightStore **out, const void *bytes, size_t len, const char *name, Err *err);
Status store_safetensors_parse(WeightStore **out, const void *bytes, size_t len, const char *name, Err *err);

/* The tensor of that name in a format that can be computed with: absent is ST_NOTFOUND, DT_NONE is ST_UNSUPPORTED; both
 * sentences name the tensor and the checkpoint. */
Status store_need(const WeightStore *s, const char *name, const TensorInfo **out, Err *err);

static inline void store_free(WeightStore *s)
{
    if (s)
        s->ops->free(s);
}
static inline size_t store_count(const WeightStore *s)
{
    return s->ops->count(s);
}
static inline const TensorInfo *store_at(const WeightStore *s, size_t i)
{
    return s->ops->at(s, i);
}
static inline const TensorInfo *store_find(const WeightStore *s, const char *name)
{
    return s->ops->find(s, name);
}
static inline Status store_read(WeightStore *s, const TensorInfo *t, uint64_t off, void *dst, size_t len, Err *err)
{
    return s->ops->read(s, t, off, dst, len, err);
}
static inline const json_t *store_meta(const WeightStore *s)
{
    return s->ops->meta(s);
}
#endif
