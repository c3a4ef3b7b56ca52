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
 * The bound lets block formats use one scale for the whole tensor, without a pass for the largest value: 4 bits and more
 * span it, 2 and 3 bits take the steps that keep sigma. Vectors are floats, as they are in every checkpoint.
 *
 * Chunks are made at once: 32 floats or a block; where scales lie in front of a row's codes, the row. */
#include "core/arena.h"
#include "core/hash.h"
#include "core/numeric.h"
#include "weights/block.h"
#include "weights/tensors.h"
#include <stdlib.h>
#include <string.h>

#define SIGMA     0.02f
#define BOUND     (SIGMA * 3.4642f) /* of |0.02 z|: 2 over the deviation 1/sqrt(3), rounded up */
#define CHUNK     256               /* elements made at once, at most: a block, or 32 floats */
#define CHUNK_MAX ((size_t)CHUNK)   /* their bytes: less than one an element in all but 32 floats or a block of 34 */

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

/* codes: the nearest of low, low + step, .., low + max * step. */
static void codes_nearest(const float *v, int n, float low, float step, int max, uint8_t *codes)
{
    for (int i = 0; i < n; i++)
        codes[i] = (uint8_t)quantize(v[i] - low, step, 0, max);
}

/* codes: the nearest of scale * values[0..15]; of equal ones, the first. */
static void codes_of_values(const float *v, int n, float scale, const int8_t *values, uint8_t *codes)
{
    for (int i = 0; i < n; i++) {
        float x = v[i] / scale, best = 1e30f;
        for (int c = 0; c < 16; c++) {
            float far = (float)values[c] < x ? x - (float)values[c] : (float)values[c] - x;
            if (far < best) {
                best = far;
                codes[i] = (uint8_t)c;
            }
        }
    }
}

/* Bits of codes to the places that decode.c reads them from; p is zero before. */
static void put_nibbles32(uint8_t *p, const uint8_t *codes)
{
    for (int i = 0; i < 16; i++)
        p[i] = (uint8_t)((codes[i] & 15) | codes[i + 16] << 4);
}

static void put_plane1(uint8_t *p, const uint8_t *codes, int bit)
{
    for (int i = 0; i < 256; i++)
        p[i % 32] = (uint8_t)(p[i % 32] | (codes[i] >> bit & 1) << i / 32);
}

static void put_plane2(uint8_t *p, const uint8_t *codes, int bit)
{
    for (int i = 0; i < 256; i++)
        p[32 * (i / 128) + i % 32] =
            (uint8_t)(p[32 * (i / 128) + i % 32] | (codes[i] >> bit & 3) << 2 * (i % 128 / 32));
}

static void put_plane4(uint8_t *p, const uint8_t *codes)
{
    for (int i = 0; i < 256; i++)
        p[32 * (i / 64) + i % 32] = (uint8_t)(p[32 * (i / 64) + i % 32] | (codes[i] & 15) << 4 * (i % 64 / 32));
}

static void put_high32(uint8_t *p, const uint8_t *codes)
{
    uint32_t h = 0;

    for (int i = 0; i < 32; i++)
        h |= (uint32_t)(codes[i] >> 4) << i;
    memcpy(p, &h, 4);
}

static void dummy_block32(DType t, const float *v, uint8_t *p)
{
    static const int8_t e2m1_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    float d, m = -BOUND;
    uint8_t codes[32];

    switch (t) {
    case DT_Q8_0:
        d = BOUND / 127;
        store_f16(p, d);
        for (int i = 0; i < 32; i++)
            p[2 + i] = (uint8_t)quantize(v[i], d, -127, 127);
        break;
    case DT_Q4_0:
        d = BOUND / 7;
        store_f16(p, d);
        codes_nearest(v, 32, -8 * d, d, 15, codes);
        put_nibbles32(p + 2, codes);
        break;
    case DT_Q4_1:
        d = 2 * BOUND / 15;
        store_f16(p, d);
        store_f16(p + 2, m);
        codes_nearest(v, 32, m, d, 15, codes);
        put_nibbles32(p + 4, codes);
        break;
    case DT_Q5_0:
        d = BOUND / 15;
        store_f16(p, d);
        codes_nearest(v, 32, -16 * d, d, 31, codes);
        put_high32(p + 2, codes);
        put_nibbles32(p + 6, codes);
        break;
    case DT_Q5_1:
        d = 2 * BOUND / 31;
        store_f16(p, d);
        store_f16(p + 2, m);
        codes_nearest(v, 32, m, d, 31, codes);
        put_high32(p + 4, codes);
        put_nibbles32(p + 8, codes);
        break;
    case DT_IQ4_NL:
        d = BOUND / 113;
        store_f16(p, d);
        codes_of_values(v, 32, d, IQ4_VALUES, codes);
        put_nibbles32(p + 2, codes);
        break;
    default: /* DT_MXFP4: 6 * 2^-6 is just above the bound */
        p[0] = 127 - 6;
        codes_of_values(v, 32, 0x1p-7f, e2m1_twice, codes);
        put_nibbles32(p + 1, codes);
        break;
    }
}

/* Scales and minima of all sub-blocks are equal, with only top bits set, so that packing them is a matter of whole bytes:
 * 8 of 4 bits, 32 of 6 bits, 48 - 32 of 6 bits with an offset. */
static void dummy_block256(DType t, const float *v, uint8_t *p)
{
    float step;
    uint8_t codes[256];

    switch (t) {
    case DT_Q2_K:
        step = 1.16f * SIGMA; /* four levels at -1.5, -0.5, 0.5, 1.5 steps: their deviation is sigma again */
        memset(p, 0x88, 16);
        store_f16(p + 80, step / 8);
        store_f16(p + 82, 1.5f * step / 8);
        codes_nearest(v, 256, -1.5f * step, step, 3, codes);
        put_plane2(p + 16, codes, 0);
        break;
    case DT_Q3_K:
        step = 0.7f * SIGMA; /* -4..3 steps: all but 1% are inside */
        memset(p + 104, 0xff, 4);
        store_f16(p + 108, step / 16);
        codes_nearest(v, 256, -4 * step, step, 7, codes);
        put_plane1(p, codes, 2);
        put_plane2(p + 32, codes, 0);
        break;
    case DT_Q4_K:
    case DT_Q5_K:
        step = 2 * BOUND / (t == DT_Q4_K ? 15 : 31);
        store_f16(p, step / 32);
        store_f16(p + 2, BOUND / 32);
        memset(p + 4, 0xa0, 8);
        codes_nearest(v, 256, -BOUND, step, t == DT_Q4_K ? 15 : 31, codes);
        if (t == DT_Q5_K)
            put_plane1(p + 16, codes, 4);
        put_plane4(p + (t == DT_Q4_K ? 16 : 48), codes);
        break;
    case DT_Q6_K:
        step = BOUND / 31;
        memset(p + 192, 32, 16);
        store_f16(p + 208, step / 32);
        codes_nearest(v, 256, -32 * step, step, 63, codes);
        for (int i = 0; i < 256; i++)
            p[64 * (i / 128) + i % 64] = (uint8_t)(p[64 * (i / 128) + i % 64] | (codes[i] & 15) << 4 * (i % 128 / 64));
        put_plane2(p + 128, codes, 4);
        break;
    default: /* DT_IQ4_XS */
        step = BOUND / 113;
        store_f16(p, step / 16);
        memset(p + 2, 0xff, 2);
        codes_of_values(v, 256, step, IQ4_VALUES, codes);
        for (int i = 0; i < 8; i++)
            put_nibbles32(p + 8 + 16 * i, codes + 32 * i);
        break;
    }
}

/* Elements of a chunk: a block, or 32 floats. */
static uint32_t dummy_chunk_elements(DType t)
{
    return dtype_block(t) == 1 ? 32 : dtype_block(t);
}

/* Chunk c in its stored form. */
static void dummy_chunk(const Tensor *x, uint64_t c, uint8_t *p)
{
    float v[CHUNK], mean = x->info.n_dims == 1 ? 1.0f : 0.0f;
    DType t = x->info.dtype;
    uint32_t n = dummy_chunk_elements(t);

    for (uint32_t i = 0; i < n; i++)
        v[i] = dummy_normal(x->offset, c * n + i) + mean;
    if (t == DT_F32)
        memcpy(p, v, n * sizeof v[0]);
    else if (t == DT_F16)
        for (uint32_t i = 0; i < n; i++)
            store_f16(p + 2 * i, v[i]);
    else if (t == DT_BF16)
        for (uint32_t i = 0; i < n; i++) {
            uint16_t h = f32_to_bf16(v[i]);
            memcpy(p + 2 * i, &h, 2);
        }
    else {
        memset(p, 0, dtype_block_bytes(t));
        if (n == 32)
            dummy_block32(t, v, p);
        else
            dummy_block256(t, v, p);
    }
}

/* The nearest e4m3 value's code; v is within its range, or cut there. */
static uint8_t e4m3_nearest(float v)
{
    uint32_t u, sign, code;
    float x = v < 0 ? -v : v;

    memcpy(&u, &v, 4);
    sign = u >> 31 << 7;
    if (x < 1.0f / 64) /* below the normal values: steps of 2^-9 */
        return (uint8_t)(sign | (uint32_t)(x * 512 + 0.5f));
    memcpy(&u, &x, 4);
    code = (u + 0x7ffff + (u >> 20 & 1) - (120u << 23)) >> 20; /* 3 bits of 23 stay; the bias is 7, not 127 */
    return (uint8_t)(sign | (code < 0x7e ? code : 0x7e));
}

/* The nearest e2m1 code of v in units of half: 0, 1, 2, 3, 4, 6, 8, 12. */
static uint8_t e2m1_nearest(float v)
{
    float x = v < 0 ? -v : v;

    return (uint8_t)((v < 0 ? 8 : 0) + (x > 0.5f) + (x > 1.5f) + (x > 2.5f) + (x > 3.5f) + (x > 5) + (x > 7) +
                     (x > 10));
}

static bool dummy_is_rowed(DType t)
{
    return t == DT_FP8_128 || t == DT_NVFP4;
}

/* Row r in its stored form (dtype.h): one scale everywhere. */
static void dummy_row(const Tensor *x, uint64_t r, uint64_t k, uint8_t *p)
{
    const uint64_t first = r * k;
    const float scale = x->info.dtype == DT_FP8_128 ? BOUND / 448 : BOUND / 6;

    if (x->info.dtype == DT_FP8_128) {
        for (uint64_t s = 0; s < (k + 127) / 128; s++, p += 4)
            memcpy(p, &scale, 4);
        for (uint64_t i = 0; i < k; i++)
            p[i] = e4m3_nearest(dummy_normal(x->offset, first + i) * (448 / BOUND));
        return;
    }
    memcpy(p, &scale, 4);
    p += 4;
    for (uint64_t b = 0; b < k; b += 16, p += 9) {
        p[0] = 0x38; /* 1.0 as e4m3 */
        for (uint64_t i = 0; i < 16; i += 2)
            p[1 + i / 2] = (uint8_t)(e2m1_nearest(dummy_normal(x->offset, first + b + i) * (12 / BOUND)) |
                                     e2m1_nearest(dummy_normal(x->offset, first + b + i + 1) * (12 / BOUND)) << 4);
    }
}

static Status dummy_read_rows(const Tensor *x, uint64_t offset, uint8_t *to, size_t len, Err *err)
{
    const uint64_t k = x->info.dims[x->info.n_dims - 1];
    uint64_t row_bytes = 1;
    uint8_t *row = NULL;

    dtype_row_bytes(x->info.dtype, k, &row_bytes); /* held when the tensor was declared */
    while (len > 0) {
        const uint64_t r = offset / row_bytes, skip = offset % row_bytes;
        const size_t n = row_bytes - skip < len ? row_bytes - skip : len;
        if (n == row_bytes) {
            dummy_row(x, r, k, to);
        } else {
            if (row == NULL && (row = malloc(row_bytes)) == NULL)
                return err_set(err, ST_NOMEM, "dummy weights: out of memory for a row of %s", x->info.name);
            dummy_row(x, r, k, row);
            memcpy(to, row + skip, n);
        }
        to += n;
        offset += n;
        len -= n;
    }
    free(row);
    return ST_OK;
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
    if (dummy_is_rowed(t->dtype))
        return dummy_read_rows(x, offset, dst, len, err);
    if (!dtype_row_bytes(t->dtype, dummy_chunk_elements(t->dtype), &chunk_bytes))
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
    const DTypeRow beside = dtype_row(dtype);
    if (dtype == DT_I32 || dtype == DT_I64 || ((beside.span || beside.head) && !dummy_is_rowed(dtype)) ||
        dtype == DT_I8_32 || dtype_block(dtype) == 0 || (n_dims == 1 && dtype_block(dtype) > 1))
        return err_set(err, ST_UNSUPPORTED,
                       "dummy weights: tensor %s of %u dimensions cannot be of format %s; use a weight format for "
                       "matrices, and f32, f16 or bf16 for vectors",
                       name, n_dims, dtype_name(dtype));
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
