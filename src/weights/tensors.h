/* tensors.h - the directory of tensors behind every store, and the store that reads them from files.
 * Owns: the rows of the table (their Tensors live in the store's arena), open sources, metadata.
 * Thread: store.h's. */
#ifndef METRALE_WEIGHTS_TENSORS_H
#define METRALE_WEIGHTS_TENSORS_H
#include "core/arena.h"
#include "weights/source.h"
#include "weights/store.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TENSOR_NAME_MAX = 256 };

typedef struct Tensor {
    TensorInfo info; /* first: every TensorInfo that a file store hands out is one of these */
    uint64_t offset; /* of its first byte in source */
    const Source *source;
} Tensor;

typedef struct TensorTable {
    Tensor **rows;    /* [len] in file order */
    Tensor **by_name; /* [len] sorted by seal */
    size_t len, cap;
} TensorTable;

/* 1 to TENSOR_NAME_MAX bytes of UTF-8 without control characters: safe in a message and as a C string. */
bool tensor_name_ok(const char *name, size_t len);
/* The product of dims; false on overflow. 1 for n_dims 0. */
bool tensor_elements(const uint64_t *dims, uint32_t n_dims, uint64_t *out);

void tensor_table_release(TensorTable *t);
/* Appends; finding works only after seal. */
Status tensor_table_add(TensorTable *t, Tensor *x, Err *err);
/* Sorts; refuses two tensors of one name and two that share bytes of one source. */
Status tensor_table_seal(TensorTable *t, Err *err);
Tensor *tensor_table_find(const TensorTable *t, const char *name);

/* A store over sources: what a parser fills in. */
typedef struct FileStore {
    WeightStore base; /* first */
    Arena *arena;
    json_t *meta;    /* an object once opened */
    Source *sources; /* [n_sources] in the arena; fixed, tensors point at them */
    size_t n_sources;
    TensorTable table;
} FileStore;

/* How a file is opened. */
typedef enum {
    OPEN_WEIGHTS, /* every tensor must be readable: whole, and for GGUF in a format that this build computes with */
    OPEN_METADATA /* tensors are listed as the header has them; their bytes need not be there */
} OpenMode;

/* n_sources closed sources, empty table, no metadata. path is copied. Freed by store_free. */
Status file_store_new(FileStore **out, StoreKind kind, const char *path, size_t n_sources, Err *err);

/* The parsers. Each reads the header of fs->sources[i] and appends to table (the caller seals it). */
Status gguf_read_header(FileStore *fs, const Source *src, OpenMode mode,
                        Err *err); /* sets meta; fills and seals table */
Status safetensors_read_header(FileStore *fs, const Source *src, OpenMode mode, TensorTable *table, Err *err);

/* What store_open dispatches to. */
Status gguf_open(WeightStore **out, const char *path, OpenMode mode, Err *err);
Status safetensors_open(WeightStore **out, const char *dir, OpenMode mode, Err *err);
/* config.json's object in fs->meta. */
Status config_read(const char *path, json_t **out, Err *err);
#endif
