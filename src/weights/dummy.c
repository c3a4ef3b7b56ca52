/* dummy.c - random weights of declared shapes, for benchmarks and tests without a checkpoint.
 *
 * Nothing is stored: every element is a function of (seed, tensor name, index), so that any byte range can be read in
 * any order, and the same on every machine (integers and exact float steps only, no libm).
 *
 *   bits(i)  = splitmix64 of key + i                       key = XXH3 of (seed, name)
 *   z(i)     = sum of the four 16-bit parts, centred       Irwin-Hall, n = 4: normal to within 2% of the density,
 *              and scaled to sigma 1                       and bounded by 3.47 sigma
 *   w(i)     = 0.02 z(i), plus 1 for tensors of rank 1 (norms)
 *
 * The bound lets block formats use one scale for the whole tensor, without a pass for the largest value. */
#include "core/arena.h"
#include "core/hash.h"
#include "core/numeric.h"
#include "weights/tensors.h"
#include <stdlib.h>
#include <string.h>

#define SIGMA     0.02f
#define BOUND     (SIGMA * 3.4642f) /* of |0.02 z|: 2 over the deviation 1/sqrt(3), rounded up */
#define CHUNK     32                /* elements made at once: a block, or as many floats */
#define CHUNK_MAX ((size_t)CHUNK * 4)

typedef struct DummyStore {
    WeightStore base; /* first */
    Arena *arena;
    json_t *meta;
    TensorTable table; /* Tensor.offset holds the key of the tensor */
    uint64_t seed;
} DummyStore;

/* Steele, Lea, Flood 2014: the finalizer of SplitMix64 over a Weyl sequence. */
static uint64_t splitmix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static float dummy_normal(uint64_t key, uint64_t i)
{
    uint64_t b = splitmix64(key + i * 0x9e3779b97f4a7c15u);
    int32_t sum = (int32_t)((b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48));

    /* The sum has mean 2 * 65535 and deviation 65536 / sqrt(3). */
    return (float)(sum - 2 * 65535) * (SIGMA * 1.7320508f / 65536.0f);
}

/* v / step to the nearest integer, kept in [lo, hi]. */
static int quantize(float v, float step, int lo, int hi)
{
    float x = v / step;
    int q = (int)(x < 0 ? x - 0.5f : x + 0.5f);

    return q < lo ? lo : q > hi ? hi : q;
}

static void store_f16(uint8_t *p, float v)
{
    uint16_t h = f32_to_f16(v);

    memcpy(p, &h, 2);
}

/* Elements [32c, 32c + 32) in their stored form; returns their bytes. */
static size_t dummy_chunk(const Tensor *x, uint64_t c, uint8_t *p)
{
    float v[CHUNK], mean = x->info.n_dims == 1 ? 1.0f : 0.0f;

    for (int i = 0; i < CHUNK; i++)
        v[i] = dummy_normal(x->offset, c * CHUNK + i) + mean;
    switch (x->info.dtype) {
    case DT_F32:
        memcpy(p, v, sizeof v);
        return sizeof v;
    case DT_F16:
        for (int i = 0; i < CHUNK; i++)
            store_f16(p + 2 * i, v[i]);
        return CHUNK * 2;
    case DT_BF16:
        for (int i = 0; i < CHUNK; i++) {
            uint16_t h = f32_to_bf16(v[i]);
            memcpy(p + 2 * i, &h, 2);
        }
        return CHUNK * 2;
    case DT_Q8_0: {
        float d = (mean + BOUND) / 127;
        store_f16(p, d);
        for (int i = 0; i < CHUNK; i++)
            p[2 + i] = (uint8_t)quantize(v[i], d, -127, 127);
        return 34;
    }
    case DT_Q4_0: {
        float d = (mean + BOUND) / 7;
        store_f16(p, d);
        for (int i = 0; i < 16; i++)
            p[2 + i] = (uint8_t)((quantize(v[i], d, -8, 7) + 8) | (quantize(v[i + 16], d, -8, 7) + 8) << 4);
        return 18;
    }
    default: { /* DT_Q4_1: declare lets nothing else in */
        float m = mean - BOUND, d = 2 * BOUND / 15;
        store_f16(p, d);
        store_f16(p + 2, m);
        for (int i = 0; i < 16; i++)
            p[4 + i] = (uint8_t)(quantize(v[i] - m, d, 0, 15) | quantize(v[i + 16] - m, d, 0, 15) << 4);
        return 20;
    }
    }
}

static Status dummy_read(WeightStore *s, const TensorInfo *t, uint64_t offset, void *dst, size_t len, Err *err)
{
    const Tensor *x = (const Tensor *)t;
    uint64_t chunk_bytes;
    uint8_t chunk[CHUNK_MAX], *to = dst;

    (void)s;
    if (offset > t->bytes || len > t->bytes - offset)
        return err_set(err, ST_INVALID,
                       "%s: tensor %s has %llu bytes, and byte %llu and the %zu behind it were asked for", t->file,
                       t->name, (unsigned long long)t->bytes, (unsigned long long)offset, len);
    if (!dtype_row_bytes(t->dtype, CHUNK, &chunk_bytes))
        return err_set(err, ST_INVALID, "%s: tensor %s has no dummy values", t->file, t->name);
    while (len > 0) {
        size_t skip = offset % chunk_bytes, n = chunk_bytes - skip;

        if (n > len)
            n = len;
        dummy_chunk(x, offset / chunk_bytes, chunk);
        memcpy(to, chunk + skip, n);
        to += n;
        offset += n;
        len -= n;
    }
    return ST_OK;
}

static void dummy_free(WeightStore *s)
{
    DummyStore *d = (DummyStore *)s;

    tensor_table_release(&d->table);
    json_decref(d->meta);
    arena_free(d->arena);
    free(d);
}

static size_t dummy_count(const WeightStore *s)
{
    return ((const DummyStore *)s)->table.len;
}

static const TensorInfo *dummy_at(const WeightStore *s, size_t i)
{
    const DummyStore *d = (const DummyStore *)s;

    return i < d->table.len ? &d->table.rows[i]->info : NULL;
}

static const TensorInfo *dummy_find(const WeightStore *s, const char *name)
{
    const Tensor *x = tensor_table_find(&((const DummyStore *)s)->table, name);

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
        return err_set(err, ST_NOMEM, "dummy weights: out of memory; free some memory");
    d->base = (WeightStore){.ops = &DUMMY_OPS, .kind = STORE_DUMMY, .path = "dummy weights"};
    d->seed = seed;
    d->arena = arena_new();
    d->meta = json_deep_copy(config);
    if (d->arena == NULL || d->meta == NULL) {
        dummy_free(&d->base);
        return err_set(err, ST_NOMEM, "dummy weights: out of memory; free some memory");
    }
    *out = &d->base;
    return ST_OK;
}

/* The key of a tensor: 64 bits of XXH3 over seed (little-endian) and name. */
static Status dummy_key(uint64_t seed, const char *name, uint64_t *key, Err *err)
{
    Hasher *h = hasher_new();

    if (h == NULL)
        return err_set(err, ST_NOMEM, "dummy weights: out of memory; free some memory");
    hasher_add_u64(h, seed);
    hasher_add_str(h, name);
    *key = hasher_value(h).lo;
    hasher_free(h);
    return ST_OK;
}

Status store_dummy_declare(WeightStore *s, const char *name, DType dtype, uint32_t n_dims, const uint64_t *dims,
                           Err *err)
{
    DummyStore *d = (DummyStore *)s;
    Status st = ST_OK;
    Tensor *x;
    uint64_t elements, row;

    if (s->kind != STORE_DUMMY)
        return err_set(err, ST_INVALID, "%s: only dummy weights can be declared", s->path);
    if (!tensor_name_ok(name, strlen(name)))
        return err_set(err, ST_INVALID, "dummy weights: a tensor name is not 1 to %d bytes of plain UTF-8",
                       TENSOR_NAME_MAX);
    if (tensor_table_find(&d->table, name) != NULL)
        return err_set(err, ST_INVALID, "dummy weights: tensor %s is declared twice", name);
    switch (dtype) {
    case DT_F32:
    case DT_F16:
    case DT_BF16:
    case DT_Q8_0:
    case DT_Q4_0:
    case DT_Q4_1:
        break;
    default:
        return err_set(err, ST_UNSUPPORTED, "dummy weights: tensor %s cannot be of format %s; use a weight format",
                       name, dtype_name(dtype));
    }
    if (n_dims == 0 || n_dims > TENSOR_MAX_DIMS || !tensor_elements(dims, n_dims, &elements) || elements == 0)
        return err_set(err, ST_INVALID,
                       "dummy weights: tensor %s needs 1 to %d sizes above 0 whose product fits 64 bits", name,
                       TENSOR_MAX_DIMS);
    x = ARENA_NEW(d->arena, Tensor);
    if (x != NULL)
        x->info.name = arena_strdup(d->arena, name);
    if (x == NULL || x->info.name == NULL)
        return err_set(err, ST_NOMEM, "dummy weights: out of memory; free some memory");
    x->info.dtype = dtype;
    x->info.stored = dtype_name(dtype);
    x->info.n_dims = n_dims;
    x->info.file = s->path;
    memcpy(x->info.dims, dims, n_dims * sizeof dims[0]);
    if (!dtype_row_bytes(dtype, dims[n_dims - 1], &row) ||
        __builtin_mul_overflow(elements / dims[n_dims - 1], row, &x->info.bytes))
        return err_set(err, ST_INVALID, "dummy weights: tensor %s has rows of %llu values, which %s cannot hold", name,
                       (unsigned long long)dims[n_dims - 1], dtype_name(dtype));
    TRY(dummy_key(d->seed, name, &x->offset, err));
    if (!tensor_table_insert(&d->table, x))
        TRY(err_set(err, ST_NOMEM, "dummy weights: out of memory; free some memory"));
done:
    return st;
}
