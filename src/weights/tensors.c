/* tensors.c - one sorted table per store, and reading through it.
 *
 * Names are found by binary search in a sorted array of pointers rather than in a hash table: a hostile header cannot
 * choose names that make it slow, duplicates fall out of the sort, and a lookup happens once per tensor and start.
 * Overlaps fall out of a second sort, by (source, offset). */
#include "weights/tensors.h"
#include "core/utf8.h"
#include <stdlib.h>
#include <string.h>

bool tensor_name_ok(const char *name, size_t len)
{
    if (len == 0 || len > TENSOR_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    return utf8_valid(name, len);
}

bool tensor_elements(const uint64_t *dims, uint32_t n_dims, uint64_t *out)
{
    uint64_t n = 1;

    /* A zero makes any product fit, so that it must not hide the overflow of the others. */
    for (uint32_t i = 0; i < n_dims; i++)
        if (dims[i] != 0 && __builtin_mul_overflow(n, dims[i], &n))
            return false;
    for (uint32_t i = 0; i < n_dims; i++)
        if (dims[i] == 0)
            n = 0;
    *out = n;
    return true;
}

void tensor_table_release(TensorTable *t)
{
    free(t->rows);
    free(t->by_name);
    *t = (TensorTable){0};
}

/* Room for one more in both arrays. */
static bool table_grow(TensorTable *t)
{
    size_t cap = t->cap ? t->cap * 2 : 64;
    Tensor **p;

    if (t->len < t->cap)
        return true;
    p = realloc(t->rows, cap * sizeof(Tensor *));
    if (p == NULL)
        return false;
    t->rows = p;
    p = realloc(t->by_name, cap * sizeof(Tensor *));
    if (p == NULL)
        return false;
    t->by_name = p;
    t->cap = cap;
    return true;
}

Status tensor_table_add(TensorTable *t, Tensor *x, Err *err)
{
    if (!table_grow(t))
        return err_set(err, ST_NOMEM, "%s: out of memory for the names of its tensors; free some memory", x->info.file);
    t->rows[t->len++] = x;
    return ST_OK;
}

static int order_by_name(const void *pa, const void *pb)
{
    const Tensor *a = *(Tensor *const *)pa, *b = *(Tensor *const *)pb;

    return strcmp(a->info.name, b->info.name);
}

static int order_by_place(const void *pa, const void *pb)
{
    const Tensor *a = *(Tensor *const *)pa, *b = *(Tensor *const *)pb;

    if (a->source != b->source)
        return (uintptr_t)a->source < (uintptr_t)b->source ? -1 : 1;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return a->info.bytes < b->info.bytes ? -1 : a->info.bytes > b->info.bytes;
}

static Status refuse_overlaps(const TensorTable *t, Err *err)
{
    Tensor **by_place = malloc(t->len * sizeof(Tensor *));
    Status st = ST_OK;

    if (by_place == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory for the names of its tensors; free some memory",
                       t->rows[0]->info.file);
    memcpy(by_place, t->rows, t->len * sizeof(Tensor *));
    qsort(by_place, t->len, sizeof(Tensor *), order_by_place);
    for (size_t i = 1; i < t->len && st == ST_OK; i++) {
        const Tensor *a = by_place[i - 1], *b = by_place[i];
        /* Empty tensors sort before the one that begins where they lie and share nothing. */
        if (a->source == b->source && a->info.bytes > b->offset - a->offset)
            st = err_set(err, ST_FORMAT,
                         "%s: tensors %s and %s share bytes of the file; convert or download the file again",
                         a->info.file, a->info.name, b->info.name);
    }
    free(by_place);
    return st;
}

Status tensor_table_seal(TensorTable *t, Err *err)
{
    if (t->len == 0)
        return ST_OK;
    memcpy(t->by_name, t->rows, t->len * sizeof(Tensor *));
    qsort(t->by_name, t->len, sizeof(Tensor *), order_by_name);
    for (size_t i = 1; i < t->len; i++) {
        const Tensor *a = t->by_name[i - 1], *b = t->by_name[i];
        if (strcmp(a->info.name, b->info.name) == 0)
            return err_set(err, ST_FORMAT, "%s: tensor %s is there twice; convert or download the file again",
                           a->info.file, a->info.name);
    }
    return refuse_overlaps(t, err);
}

/* The first place in by_name whose name is not below name. */
static size_t table_place(const TensorTable *t, const char *name)
{
    size_t lo = 0, hi = t->len;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(t->by_name[mid]->info.name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

Tensor *tensor_table_find(const TensorTable *t, const char *name)
{
    size_t at = table_place(t, name);

    return at < t->len && strcmp(t->by_name[at]->info.name, name) == 0 ? t->by_name[at] : NULL;
}

/* ---- the store over files ---- */

static void file_store_free(WeightStore *s)
{
    FileStore *fs = (FileStore *)s;

    tensor_table_release(&fs->table);
    for (size_t i = 0; i < fs->n_sources; i++)
        source_close(&fs->sources[i]);
    json_decref(fs->meta);
    arena_free(fs->arena);
    free(fs);
}

static size_t file_store_count(const WeightStore *s)
{
    return ((const FileStore *)s)->table.len;
}

static const TensorInfo *file_store_at(const WeightStore *s, size_t i)
{
    const FileStore *fs = (const FileStore *)s;

    return i < fs->table.len ? &fs->table.rows[i]->info : NULL;
}

static const TensorInfo *file_store_find(const WeightStore *s, const char *name)
{
    const Tensor *x = tensor_table_find(&((const FileStore *)s)->table, name);

    return x ? &x->info : NULL;
}

static Status file_store_read(WeightStore *s, const TensorInfo *t, uint64_t offset, void *dst, size_t len, Err *err)
{
    const Tensor *x = (const Tensor *)t;

    (void)s;
    if (offset > t->bytes || len > t->bytes - offset)
        return err_set(err, ST_INVALID,
                       "%s: tensor %s has %llu bytes, and byte %llu and the %zu behind it were asked for", t->file,
                       t->name, (unsigned long long)t->bytes, (unsigned long long)offset, len);
    return source_read(x->source, x->offset + offset, dst, len, err);
}

static const json_t *file_store_meta(const WeightStore *s)
{
    return ((const FileStore *)s)->meta;
}

static const WeightOps SAFETENSORS_OPS = {
    .name = "safetensors",
    .free = file_store_free,
    .count = file_store_count,
    .at = file_store_at,
    .find = file_store_find,
    .read = file_store_read,
    .meta = file_store_meta,
};
static const WeightOps GGUF_OPS = {
    .name = "gguf",
    .free = file_store_free,
    .count = file_store_count,
    .at = file_store_at,
    .find = file_store_find,
    .read = file_store_read,
    .meta = file_store_meta,
};

Status file_store_new(FileStore **out, StoreKind kind, const char *path, size_t n_sources, Err *err)
{
    FileStore *fs = calloc(1, sizeof *fs);

    if (fs == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory to open it; free some memory", path);
    fs->base = (WeightStore){.ops = kind == STORE_GGUF ? &GGUF_OPS : &SAFETENSORS_OPS, .kind = kind};
    fs->arena = arena_new();
    if (fs->arena != NULL) {
        fs->base.path = arena_strdup(fs->arena, path);
        fs->sources = ARENA_ARRAY(fs->arena, Source, n_sources);
    }
    if (fs->base.path == NULL || fs->sources == NULL) {
        file_store_free(&fs->base);
        return err_set(err, ST_NOMEM, "%s: out of memory to open it; free some memory", path);
    }
    for (size_t i = 0; i < n_sources; i++)
        fs->sources[i] = SOURCE_NONE;
    fs->n_sources = n_sources;
    *out = fs;
    return ST_OK;
}
