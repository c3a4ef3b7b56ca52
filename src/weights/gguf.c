/* gguf.c - GGUF, versions 2 and 3, little-endian.
 *
 *   char magic[4] = "GGUF" | u32 version | u64 n_tensors | u64 n_keys
 *   n_keys times:     string key | u32 type | value
 *   n_tensors times:  string name | u32 n_dims | u64 dims[n_dims], fastest first | u32 ggml type | u64 offset
 *   padding to a multiple of general.alignment (32 if absent), then the data; offsets count from there
 *   string = u64 length | bytes;   array = u32 element type | u64 count | values
 *
 * One pass over a window of the file, so that a header of any size costs its JSON object and 64 KiB. Every count is
 * compared with what is left of the file before anything is done with it, hence a lie costs nothing; what is really
 * there is bounded by ARRAY_TOTAL_MAX.
 *
 * Metadata becomes one JSON object, keys as they are. JSON cannot hold two things: a NaN or infinity becomes null, and
 * a u64 above 2^63 - 1 becomes a real. Strings must be UTF-8 without NUL, since everything above reads C strings;
 * one that is not is an error that names its key.
 *
 * Tensors: dims are turned to row-major order. In OPEN_WEIGHTS each must lie in the file, in a type that this build
 * computes with. In OPEN_METADATA other types are listed with DT_NONE and nothing is asked of the data's end. */
#include "core/utf8.h"
#include "weights/ggml_type.h"
#include "weights/tensors.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES    ((size_t)64 << 10)
#define KEY_BYTES_MAX   ((uint64_t)1024)
#define STRING_MAX      ((uint64_t)32 << 20) /* a whole tokenizer.json may be one value */
#define ARRAY_TOTAL_MAX ((uint64_t)4 << 20)  /* array elements in all; a vocabulary of 262,144 takes 1.3 million */
#define ARRAY_DEPTH_MAX 4
#define KEYS_MAX        ((uint64_t)1 << 16)
#define TENSORS_MAX     ((uint64_t)1 << 20)
#define ALIGNMENT_MAX   ((uint64_t)1 << 20)
#define ALIGNMENT_KEY   "general.alignment"

enum { V_U8, V_I8, V_U16, V_I16, V_U32, V_I32, V_F32, V_BOOL, V_STRING, V_ARRAY, V_U64, V_I64, V_F64, V_COUNT };

/* The fewest bytes that one value of a type takes: what a count must fit into. */
static const uint8_t VALUE_BYTES[V_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

typedef struct Gguf {
    const Source *src;
    FileStore *fs;
    uint64_t at;          /* next byte of the file */
    uint8_t *window;      /* of a file; memory is read in place */
    size_t cap;           /* of window */
    uint64_t start, stop; /* the bytes of the file that are in window */
    uint64_t n_elements;  /* of arrays so far */
    uint64_t alignment;
    char key[KEY_BYTES_MAX + 1]; /* being read, for messages */
} Gguf;

static Status gguf_nomem(const Gguf *g, Err *err)
{
    return err_set(err, ST_NOMEM, "%s: out of memory to read its header; free some memory", g->src->name);
}

/* The next n bytes, valid until the next call. where is what is being read, for the message. */
static Status gguf_take(Gguf *g, uint64_t n, const char *where, const uint8_t **p, Err *err)
{
    Status st = ST_OK;
    uint64_t left = g->src->size - g->at;

    if (n > left)
        return err_set(err, ST_FORMAT,
                       "%s: ends in the middle of %.300s (%" PRIu64 " bytes wanted at byte %" PRIu64 ", %" PRIu64
                       " left); the file is cut off or damaged: download it again",
                       g->src->name, where, n, g->at, left);
    if (g->src->bytes != NULL) {
        *p = g->src->bytes + g->at;
        g->at += n;
        return ST_OK;
    }
    if (g->at < g->start || g->at + n > g->stop) {
        size_t fill = n > WINDOW_BYTES ? (size_t)n : WINDOW_BYTES;
        if (fill > left)
            fill = (size_t)left;
        if (fill > g->cap) {
            free(g->window);
            g->start = g->stop = g->cap = 0;
            g->window = malloc(fill);
            if (g->window == NULL)
                return gguf_nomem(g, err);
            g->cap = fill;
        }
        g->stop = 0;
        TRY(source_read(g->src, g->at, g->window, fill, err));
        g->start = g->at;
        g->stop = g->at + fill;
    }
    *p = g->window + (g->at - g->start);
    g->at += n;
done:
    return st;
}

/* Little-endian, whatever the machine is. */
static uint64_t little(const uint8_t *p, int bytes)
{
    uint64_t v = 0;

    while (bytes-- > 0)
        v = v << 8 | p[bytes];
    return v;
}

static Status gguf_u32(Gguf *g, const char *where, uint32_t *out, Err *err)
{
    const uint8_t *p;
    Status st = gguf_take(g, 4, where, &p, err);

    if (st == ST_OK)
        *out = (uint32_t)little(p, 4);
    return st;
}

static Status gguf_u64(Gguf *g, const char *where, uint64_t *out, Err *err)
{
    const uint8_t *p;
    Status st = gguf_take(g, 8, where, &p, err);

    if (st == ST_OK)
        *out = little(p, 8);
    return st;
}

/* A string; *s is valid until the next take. */
static Status gguf_string(Gguf *g, const char *where, uint64_t max, const char **s, size_t *len, Err *err)
{
    Status st = ST_OK;
    const uint8_t *p;
    uint64_t n, left;

    TRY(gguf_u64(g, where, &n, err));
    left = g->src->size - g->at;
    if (n > left)
        return err_set(err, ST_FORMAT,
                       "%s: a string of %" PRIu64 " bytes is claimed for %.300s, but only %" PRIu64
                       " bytes of the file are left; the file is damaged: download it again",
                       g->src->name, n, where, left);
    if (n > max)
        return err_set(err, ST_FORMAT,
                       "%s: %.300s has %" PRIu64 " bytes, above the limit of %" PRIu64 "; convert the file again",
                       g->src->name, where, n, max);
    TRY(gguf_take(g, n, where, &p, err));
    *s = (const char *)p;
    *len = (size_t)n;
done:
    return st;
}

/* ---- metadata ---- */

static Status gguf_integer(Gguf *g, const uint8_t *p, uint32_t type, json_t **out, Err *err)
{
    uint64_t u = little(p, VALUE_BYTES[type]);

    switch (type) {
    case V_I8:
        *out = json_integer((int8_t)u);
        break;
    case V_I16:
        *out = json_integer((int16_t)u);
        break;
    case V_I32:
        *out = json_integer((int32_t)u);
        break;
    case V_U64:
        *out = u > INT64_MAX ? json_real((double)u) : json_integer((json_int_t)u);
        break;
    default: /* V_I64 keeps its bits; the unsigned ones fit */
        *out = json_integer((json_int_t)u);
    }
    return *out ? ST_OK : gguf_nomem(g, err);
}

static Status gguf_real(Gguf *g, const uint8_t *p, uint32_t type, json_t **out, Err *err)
{
    uint64_t u = little(p, VALUE_BYTES[type]);
    double d;

    if (type == V_F32) {
        uint32_t u32 = (uint32_t)u;
        float f;
        memcpy(&f, &u32, sizeof f);
        d = f;
    } else {
        memcpy(&d, &u, sizeof d);
    }
    *out = isfinite(d) ? json_real(d) : json_null();
    return *out ? ST_OK : gguf_nomem(g, err);
}

static Status gguf_value(Gguf *g, uint32_t type, int depth, json_t **out, Err *err);

/* g->key names it; index is the element's, or -1. */
static Status gguf_text(Gguf *g, int64_t index, json_t **out, Err *err)
{
    Status st = ST_OK;
    const char *s;
    size_t len;

    TRY(gguf_string(g, g->key, STRING_MAX, &s, &len, err));
    if (memchr(s, 0, len) != NULL || !utf8_valid(s, len)) {
        if (index >= 0)
            return err_set(err, ST_FORMAT,
                           "%s: %.300s[%" PRId64
                           "] is not UTF-8 text without NUL; convert the file again with a current "
                           "converter",
                           g->src->name, g->key, index);
        return err_set(err, ST_FORMAT,
                       "%s: the value of %.300s is not UTF-8 text without NUL; convert the file again with a current "
                       "converter",
                       g->src->name, g->key);
    }
    *out = json_stringn_nocheck(s, len);
    if (*out == NULL)
        st = gguf_nomem(g, err);
done:
    return st;
}

static Status gguf_array(Gguf *g, int depth, json_t **out, Err *err)
{
    Status st = ST_OK;
    json_t *list = NULL, *v = NULL;
    uint32_t type;
    uint64_t n;

    TRY(gguf_u32(g, g->key, &type, err));
    TRY(gguf_u64(g, g->key, &n, err));
    if (type >= V_COUNT)
        TRY(err_set(err, ST_FORMAT,
                    "%s: the array %.300s has elements of type %" PRIu32
                    ", which GGUF does not have; convert the file again",
                    g->src->name, g->key, type));
    if (depth == ARRAY_DEPTH_MAX)
        TRY(err_set(err, ST_UNSUPPORTED, "%s: the arrays of %.300s are nested deeper than %d; convert the file again",
                    g->src->name, g->key, ARRAY_DEPTH_MAX));
    if (n > (g->src->size - g->at) / VALUE_BYTES[type])
        TRY(err_set(err, ST_FORMAT,
                    "%s: the array %.300s claims %" PRIu64 " elements, but only %" PRIu64
                    " bytes of the file are left; the file is damaged: download it again",
                    g->src->name, g->key, n, g->src->size - g->at));
    if (n > ARRAY_TOTAL_MAX - g->n_elements)
        TRY(err_set(err, ST_UNSUPPORTED,
                    "%s: with the array %.300s the metadata has more than %" PRIu64
                    " array elements, which is the limit; convert the file with less metadata",
                    g->src->name, g->key, ARRAY_TOTAL_MAX));
    g->n_elements += n;
    list = json_array();
    if (list == NULL)
        TRY(gguf_nomem(g, err));
    for (uint64_t i = 0; i < n; i++) {
        if (type == V_STRING)
            TRY(gguf_text(g, (int64_t)i, &v, err));
        else
            TRY(gguf_value(g, type, depth + 1, &v, err));
        if (json_array_append_new(list, v) != 0) /* takes v, also when it fails */
            TRY(gguf_nomem(g, err));
    }
    *out = list;
    list = NULL;
done:
    json_decref(list);
    return st;
}

static Status gguf_value(Gguf *g, uint32_t type, int depth, json_t **out, Err *err)
{
    Status st = ST_OK;
    const uint8_t *p;

    if (type == V_STRING)
        return gguf_text(g, -1, out, err);
    if (type == V_ARRAY)
        return gguf_array(g, depth, out, err);
    TRY(gguf_take(g, VALUE_BYTES[type], g->key, &p, err));
    if (type == V_F32 || type == V_F64)
        return gguf_real(g, p, type, out, err);
    if (type != V_BOOL)
        return gguf_integer(g, p, type, out, err);
    if (*p > 1)
        return err_set(err, ST_FORMAT, "%s: %.300s is a bool of value %d, not 0 or 1; convert the file again",
                       g->src->name, g->key, *p);
    *out = json_boolean(*p);
done:
    return st;
}

static Status gguf_metadata(Gguf *g, uint64_t n_keys, Err *err)
{
    Status st = ST_OK;
    json_t *meta = g->fs->meta, *v;

    for (uint64_t i = 0; i < n_keys; i++) {
        char where[64];
        const char *s;
        size_t len;
        uint32_t type;

        snprintf(where, sizeof where, "metadata key %" PRIu64 " of %" PRIu64, i + 1, n_keys);
        TRY(gguf_string(g, where, KEY_BYTES_MAX, &s, &len, err));
        if (len == 0 || memchr(s, 0, len) != NULL || !utf8_valid(s, len))
            TRY(err_set(err, ST_FORMAT, "%s: %s is empty or not UTF-8; convert the file again", g->src->name, where));
        memcpy(g->key, s, len);
        g->key[len] = '\0';
        TRY(gguf_u32(g, g->key, &type, err));
        if (type >= V_COUNT)
            TRY(err_set(err, ST_FORMAT,
                        "%s: %.300s has value type %" PRIu32 ", which GGUF does not have; convert the file again",
                        g->src->name, g->key, type));
        if (json_object_get(meta, g->key) != NULL)
            TRY(err_set(err, ST_FORMAT, "%s: the key %.300s is there twice; convert the file again", g->src->name,
                        g->key));
        TRY(gguf_value(g, type, 0, &v, err));
        if (json_object_set_new_nocheck(meta, g->key, v) != 0)
            TRY(gguf_nomem(g, err));
    }
done:
    return st;
}

static Status gguf_alignment(Gguf *g, Err *err)
{
    const json_t *v = json_object_get(g->fs->meta, ALIGNMENT_KEY);
    json_int_t a = json_integer_value(v);

    g->alignment = 32;
    if (v == NULL)
        return ST_OK;
    if (!json_is_integer(v) || a <= 0 || (uint64_t)a > ALIGNMENT_MAX || (a & (a - 1)) != 0)
        return err_set(err, ST_FORMAT,
                       "%s: " ALIGNMENT_KEY " is %" JSON_INTEGER_FORMAT ", not a power of two up to %" PRIu64
                       "; convert the file again",
                       g->src->name, a, ALIGNMENT_MAX);
    g->alignment = (uint64_t)a;
    return ST_OK;
}

/* ---- tensors ---- */

/* n_dims and dims of x, turned to row-major order. */
static Status gguf_dims(Gguf *g, Tensor *x, uint64_t *elements, Err *err)
{
    Status st = ST_OK;
    const char *file = g->src->name, *name = x->info.name;
    uint32_t n;

    TRY(gguf_u32(g, name, &n, err));
    if (n > TENSOR_MAX_DIMS)
        TRY(err_set(err, ST_FORMAT,
                    "%s: tensor %s has %" PRIu32 " dimensions, above the format's %d; convert the file again", file,
                    name, n, TENSOR_MAX_DIMS));
    x->info.n_dims = n;
    for (uint32_t i = n; i-- > 0;) {
        TRY(gguf_u64(g, name, &x->info.dims[i], err));
        if (x->info.dims[i] == 0 || x->info.dims[i] > INT64_MAX)
            TRY(err_set(err, ST_FORMAT, "%s: tensor %s has a dimension of %" PRId64 "; convert the file again", file,
                        name, (int64_t)x->info.dims[i]));
    }
    if (!tensor_elements(x->info.dims, n, elements) || *elements > INT64_MAX)
        TRY(err_set(err, ST_FORMAT, "%s: the dimensions of tensor %s multiply past 63 bits; convert the file again",
                    file, name));
done:
    return st;
}

static Status gguf_tensor(Gguf *g, uint64_t number, OpenMode mode, Err *err)
{
    Status st = ST_OK;
    const char *file = g->src->name, *s;
    const GgmlType *type;
    Tensor *x = NULL;
    uint64_t elements, row;
    uint32_t id;
    size_t len;
    char where[64];

    snprintf(where, sizeof where, "the name of tensor %" PRIu64, number);
    TRY(gguf_string(g, where, TENSOR_NAME_MAX, &s, &len, err));
    if (!tensor_name_ok(s, len))
        return err_set(err, ST_FORMAT,
                       "%s: %s is not 1 to %d bytes of UTF-8 without control characters; "
                       "convert the file again",
                       file, where, TENSOR_NAME_MAX);
    x = ARENA_NEW(g->fs->arena, Tensor);
    if (x != NULL)
        x->info.name = arena_strndup(g->fs->arena, s, len);
    if (x == NULL || x->info.name == NULL)
        return gguf_nomem(g, err);
    x->source = g->src;
    x->info.file = file;
    TRY(gguf_dims(g, x, &elements, err));
    TRY(gguf_u32(g, x->info.name, &id, err));
    TRY(gguf_u64(g, x->info.name, &x->offset, err)); /* from the start of the data, for now */
    type = ggml_type_find(id);
    if (type == NULL)
        return err_set(err, ST_FORMAT,
                       "%s: tensor %s has type %" PRIu32
                       ", which GGUF does not have; use a file from a current converter",
                       file, x->info.name, id);
    if (type->dtype == DT_NONE && mode == OPEN_WEIGHTS)
        return err_set(err, ST_UNSUPPORTED,
                       "%s: tensor %s is %s, which this build does not read; use a file with " GGML_TYPES_READ, file,
                       x->info.name, type->name);
    x->info.stored = type->name;
    x->info.dtype = type->dtype;
    row = x->info.n_dims > 0 ? x->info.dims[x->info.n_dims - 1] : 1;
    if (type->block > 0 && row % type->block != 0)
        return err_set(err, ST_FORMAT,
                       "%s: tensor %s has rows of %" PRIu64 " values, not a multiple of the %" PRIu32
                       " of a %s block; convert the file again",
                       file, x->info.name, row, type->block, type->name);
    if (type->block > 0 && __builtin_mul_overflow(elements / type->block, (uint64_t)type->bytes, &x->info.bytes))
        return err_set(err, ST_FORMAT,
                       "%s: the dimensions of tensor %s take more than 64 bits of bytes; "
                       "convert the file again",
                       file, x->info.name);
    if (x->offset % g->alignment != 0)
        return err_set(err, ST_FORMAT,
                       "%s: tensor %s lies at offset %" PRIu64 ", not a multiple of the alignment %" PRIu64
                       "; convert the file again",
                       file, x->info.name, x->offset, g->alignment);
    TRY(tensor_table_add(&g->fs->table, x, err));
done:
    return st;
}

/* Offsets from the start of the data become offsets in the file. */
static Status gguf_place(Gguf *g, OpenMode mode, Err *err)
{
    uint64_t size = g->src->size, data = (g->at + g->alignment - 1) / g->alignment * g->alignment;
    uint64_t have = data < size ? size - data : 0;

    for (size_t i = 0; i < g->fs->table.len; i++) {
        Tensor *x = g->fs->table.rows[i];

        if (x->offset > INT64_MAX - data || x->info.bytes > INT64_MAX - data - x->offset)
            return err_set(err, ST_FORMAT,
                           "%s: tensor %s lies at offset %" PRIu64 ", past any file; convert the file again",
                           x->info.file, x->info.name, x->offset);
        if (mode == OPEN_WEIGHTS && (x->offset > have || x->info.bytes > have - x->offset))
            return err_set(err, ST_FORMAT,
                           "%s: tensor %s needs bytes %" PRIu64 " to %" PRIu64 ", but the file has %" PRIu64
                           "; the file is cut off or damaged: download it again",
                           x->info.file, x->info.name, data + x->offset, data + x->offset + x->info.bytes, size);
        x->offset += data;
    }
    return ST_OK;
}

static Status gguf_head(Gguf *g, uint64_t *n_tensors, uint64_t *n_keys, Err *err)
{
    Status st = ST_OK;
    const char *file = g->src->name;
    const uint8_t *p;
    uint32_t version;

    TRY(gguf_take(g, 4, "the magic", &p, err));
    if (memcmp(p, "GGUF", 4) != 0)
        TRY(err_set(err, ST_FORMAT,
                    "%s: does not begin with \"GGUF\"; it is another format or damaged: download it again", file));
    TRY(gguf_u32(g, "the version", &version, err));
    if (version != 2 && version != 3) {
        if (__builtin_bswap32(version) <= 3)
            TRY(err_set(err, ST_UNSUPPORTED, "%s: is a big-endian GGUF; use the little-endian file", file));
        TRY(err_set(err, ST_UNSUPPORTED,
                    "%s: is GGUF version %" PRIu32 ", and 2 and 3 are read; use a file from a current converter", file,
                    version));
    }
    TRY(gguf_u64(g, "the tensor count", n_tensors, err));
    TRY(gguf_u64(g, "the key count", n_keys, err));
    /* The shortest tensor entry is 8 + 1 + 4 + 4 + 8 bytes, the shortest key 8 + 1 + 4 + 1. */
    if (*n_tensors > TENSORS_MAX || *n_tensors > (g->src->size - g->at) / 25)
        TRY(err_set(err, ST_FORMAT,
                    "%s: claims %" PRIu64 " tensors, more than its %" PRIu64
                    " bytes or this build can hold; the file is damaged: download it again",
                    file, *n_tensors, g->src->size));
    if (*n_keys > KEYS_MAX || *n_keys > (g->src->size - g->at) / 14)
        TRY(err_set(err, ST_FORMAT,
                    "%s: claims %" PRIu64 " metadata keys, more than its %" PRIu64
                    " bytes or this build can hold; the file is damaged: download it again",
                    file, *n_keys, g->src->size));
done:
    return st;
}

Status gguf_read_header(FileStore *fs, const Source *src, OpenMode mode, Err *err)
{
    Status st = ST_OK;
    Gguf g = {.src = src, .fs = fs};
    uint64_t n_tensors, n_keys;

    fs->meta = json_object();
    if (fs->meta == NULL)
        TRY(gguf_nomem(&g, err));
    TRY(gguf_head(&g, &n_tensors, &n_keys, err));
    TRY(gguf_metadata(&g, n_keys, err));
    TRY(gguf_alignment(&g, err));
    for (uint64_t i = 0; i < n_tensors; i++)
        TRY(gguf_tensor(&g, i + 1, mode, err));
    TRY(gguf_place(&g, mode, err));
    TRY(tensor_table_seal(&fs->table, err));
done:
    free(g.window);
    return st;
}

Status store_gguf_parse(WeightStore **out, const void *bytes, size_t len, const char *name, Err *err)
{
    Status st = ST_OK;
    FileStore *fs = NULL;

    TRY(file_store_new(&fs, STORE_GGUF, name, 1, err));
    source_memory(&fs->sources[0], bytes, len, fs->base.path);
    TRY(gguf_read_header(fs, &fs->sources[0], OPEN_WEIGHTS, err));
    *out = &fs->base;
    fs = NULL;
done:
    store_free(fs ? &fs->base : NULL);
    return st;
}

Status gguf_open(WeightStore **out, const char *path, OpenMode mode, Err *err)
{
    Status st = ST_OK;
    FileStore *fs = NULL;

    TRY(file_store_new(&fs, STORE_GGUF, path, 1, err));
    TRY(source_open(&fs->sources[0], fs->base.path, err));
    TRY(gguf_read_header(fs, &fs->sources[0], mode, err));
    *out = &fs->base;
    fs = NULL;
done:
    store_free(fs ? &fs->base : NULL);
    return st;
}
