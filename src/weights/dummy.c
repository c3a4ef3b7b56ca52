/* dummy.c - random weights of declared shapes, for benchmarks and tests without a checkpoint.
 *
 * Nothing is stored: every byte is a function of (seed, tensor name, offset), so that any range can be read in any order
 * and by any thread, and the same on every machine. dummy_pool.h says where the bytes come from.
 *
 * Names are found through a table of hashes: 80B of weights in experts are 300,000 tensors, and each is looked for before
 * it is declared. */
#include "core/arena.h"
#include "core/hash.h"
#include "weights/dummy_pool.h"
#include "weights/tensors.h"
#include <stdlib.h>
#include <string.h>

typedef struct DummyTensor {
    TensorInfo info; /* first: every TensorInfo that this store hands out is one of these */
    uint64_t hash;   /* of the name */
    const DummyPool *pool;
    const uint8_t *bytes; /* instead of the pool */
} DummyTensor;

typedef struct DummyStore {
    WeightStore base; /* first */
    Arena *arena;
    json_t *meta;
    DummyPool *pools;
    DummyTensor **rows;  /* [len] as declared */
    DummyTensor **slots; /* [n_slots] by hash, with gaps; n_slots is 0 or a power of two above 2 * len */
    size_t len, cap, n_slots;
    uint64_t seed;
} DummyStore;

static Status dummy_nomem(Err *err)
{
    return err_set(err, ST_NOMEM, "dummy weights: out of memory; free some memory");
}

/* ---- names -------------------------------------------------------------------------------------------------------- */
/* The slot that has the name, or the gap where it belongs. */
static DummyTensor **name_slot(DummyTensor **slots, size_t n_slots, uint64_t hash, const char *name)
{
    size_t i = hash & (n_slots - 1);

    while (slots[i] != NULL && (slots[i]->hash != hash || strcmp(slots[i]->info.name, name) != 0))
        i = (i + 1) & (n_slots - 1);
    return &slots[i];
}

static DummyTensor *name_find(const DummyStore *d, const char *name)
{
    return d->n_slots ? *name_slot(d->slots, d->n_slots, hash_bytes(name, strlen(name)).lo, name) : NULL;
}

static bool name_insert(DummyStore *d, DummyTensor *x)
{
    if (d->len == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 64;
        DummyTensor **rows = realloc(d->rows, cap * sizeof(DummyTensor *)),
                    **slots = calloc(4 * cap, sizeof(DummyTensor *));

        d->rows = rows ? rows : d->rows;
        if (rows == NULL || slots == NULL) {
            free(slots);
            return false;
        }
        for (size_t i = 0; i < d->len; i++)
            *name_slot(slots, 4 * cap, rows[i]->hash, rows[i]->info.name) = rows[i];
        free(d->slots);
        d->slots = slots;
        d->n_slots = 4 * cap;
        d->cap = cap;
    }
    *name_slot(d->slots, d->n_slots, x->hash, x->info.name) = x;
    d->rows[d->len++] = x;
    return true;
}

/* ---- the store ---------------------------------------------------------------------------------------------------- */
static Status dummy_read(WeightStore *s, const TensorInfo *t, uint64_t offset, void *dst, size_t len, Err *err)
{
    const DummyTensor *x = (const DummyTensor *)t;
    const DummyStore *d = (const DummyStore *)s;

    if (offset > t->bytes || len > t->bytes - offset)
        return err_set(err, ST_INVALID,
                       "%s: tensor %s has %llu bytes, and byte %llu and the %zu behind it were asked for", t->file,
                       t->name, (unsigned long long)t->bytes, (unsigned long long)offset, len);
    if (x->bytes == NULL)
        dummy_pool_read(x->pool, dummy_mix(d->seed ^ x->hash), offset, dst, len);
    else if (len > 0)
        memcpy(dst, x->bytes + offset, len);
    return ST_OK;
}

static void dummy_free(WeightStore *s)
{
    DummyStore *d = (DummyStore *)s;

    dummy_pool_free(d->pools);
    free(d->rows);
    free(d->slots);
    json_decref(d->meta);
    arena_free(d->arena);
    free(d);
}

static size_t dummy_count(const WeightStore *s)
{
    return ((const DummyStore *)s)->len;
}

static const TensorInfo *dummy_at(const WeightStore *s, size_t i)
{
    const DummyStore *d = (const DummyStore *)s;

    return i < d->len ? &d->rows[i]->info : NULL;
}

static const TensorInfo *dummy_find(const WeightStore *s, const char *name)
{
    const DummyTensor *x = name_find((const DummyStore *)s, name);

    return x ? &x->info : NULL;
}

static const json_t *dummy_meta(const WeightStore *s)
{
    return ((const DummyStore *)s)->meta;
}

static const WeightOps DUMMY_OPS = {
    .name = "dummy",
    .free = dummy_free,
    .count = dummy_count,
    .at = dummy_at,
    .find = dummy_find,
    .read = dummy_read,
    .meta = dummy_meta,
};

Status store_dummy_new(WeightStore **out, const json_t *config, uint64_t seed, Err *err)
{
    DummyStore *d = calloc(1, sizeof *d);

    if (d == NULL)
        return dummy_nomem(err);
    d->base = (WeightStore){.ops = &DUMMY_OPS, .kind = STORE_DUMMY, .path = "dummy weights"};
    d->seed = seed;
    d->arena = arena_new();
    d->meta = json_deep_copy(config);
    if (d->arena == NULL || d->meta == NULL) {
        dummy_free(&d->base);
        return dummy_nomem(err);
    }
    *out = &d->base;
    return ST_OK;
}

/* ---- declaring ---------------------------------------------------------------------------------------------------- */
/* A tensor with everything but its values. */
static Status dummy_shape(DummyStore *d, DummyTensor **out, const char *name, DType dtype, uint32_t n_dims,
                          const uint64_t *dims, Err *err)
{
    DummyTensor *x;
    uint64_t elements, row;

    if (d->base.kind != STORE_DUMMY)
        return err_set(err, ST_INVALID, "%s: only dummy weights can be declared", d->base.path);
    if (!tensor_name_ok(name, strlen(name)))
        return err_set(err, ST_INVALID, "dummy weights: a tensor name is not 1 to %d bytes of plain UTF-8",
                       TENSOR_NAME_MAX);
    if (name_find(d, name) != NULL)
        return err_set(err, ST_INVALID, "dummy weights: tensor %s is declared twice", name);
    if (n_dims == 0 || n_dims > TENSOR_MAX_DIMS || !tensor_elements(dims, n_dims, &elements) || elements == 0)
        return err_set(err, ST_INVALID,
                       "dummy weights: tensor %s needs 1 to %d sizes above 0 whose product fits 64 bits", name,
                       TENSOR_MAX_DIMS);
    x = ARENA_NEW(d->arena, DummyTensor);
    if (x == NULL || (x->info.name = arena_strdup(d->arena, name)) == NULL)
        return dummy_nomem(err);
    x->info.dtype = dtype;
    x->info.stored = dtype_name(dtype);
    x->info.n_dims = n_dims;
    x->info.file = d->base.path;
    memcpy(x->info.dims, dims, n_dims * sizeof dims[0]);
    if (!dtype_row_bytes(dtype, dims[n_dims - 1], &row) ||
        __builtin_mul_overflow(elements / dims[n_dims - 1], row, &x->info.bytes))
        return err_set(err, ST_INVALID, "dummy weights: tensor %s has rows of %llu values, which %s cannot hold", name,
                       (unsigned long long)dims[n_dims - 1], dtype_name(dtype));
    x->hash = hash_bytes(name, strlen(name)).lo;
    *out = x;
    return ST_OK;
}

Status store_dummy_declare_as(WeightStore *s, const char *name, DType dtype, uint32_t n_dims, const uint64_t *dims,
                              const DummyFill *fill, Err *err)
{
    DummyStore *d = (DummyStore *)s;
    Status st = ST_OK;
    DummyTensor *x;

    if (s->kind == STORE_DUMMY && (!dummy_pool_takes(dtype, fill) || (n_dims == 1 && dtype_block(dtype) > 1)))
        return err_set(err, ST_UNSUPPORTED,
                       "dummy weights: tensor %s of %u dimensions cannot be of format %s; use a weight format for "
                       "matrices, and f32, f16 or bf16 for vectors",
                       name, n_dims, dtype_name(dtype));
    TRY(dummy_shape(d, &x, name, dtype, n_dims, dims, err));
    TRY(dummy_pool_find(&d->pools, &x->pool, dtype, fill, d->seed, err));
    if (!name_insert(d, x))
        TRY(dummy_nomem(err));
done:
    return st;
}

Status store_dummy_declare(WeightStore *s, const char *name, DType dtype, uint32_t n_dims, const uint64_t *dims,
                           Err *err)
{
    const DummyFill fill = {.mean = n_dims == 1 ? 1.0f : 0.0f, .sigma = 0.02f};

    return store_dummy_declare_as(s, name, dtype, n_dims, dims, &fill, err);
}

Status store_dummy_declare_bytes(WeightStore *s, const char *name, DType dtype, uint32_t n_dims, const uint64_t *dims,
                                 const void *bytes, Err *err)
{
    DummyStore *d = (DummyStore *)s;
    Status st = ST_OK;
    DummyTensor *x;
    uint8_t *own;

    TRY(dummy_shape(d, &x, name, dtype, n_dims, dims, err));
    own = arena_alloc(d->arena, x->info.bytes, 1);
    if (own == NULL)
        TRY(dummy_nomem(err));
    memcpy(own, bytes, x->info.bytes);
    x->bytes = own;
    if (!name_insert(d, x))
        TRY(dummy_nomem(err));
done:
    return st;
}
