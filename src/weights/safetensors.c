/* safetensors.c - the format of Hugging Face checkpoints: one file, or shards named by an index.
 *
 *   byte 0        u64 LE  n                      length of the header
 *   byte 8        n bytes JSON object            {"__metadata__": {string: string}, NAME: {"dtype", "shape", "data_offsets": [begin, end]}, ...}
 *   byte 8 + n    the tensors' bytes             data_offsets count from here
 *
 * The header is never turned into one JSON tree: jansson reads one key and one small entry at a time from the text, so
 * that a hostile header costs its own text (which is in the file, hence bounded by what somebody stored) plus one
 * entry, instead of the 20-fold that a tree takes. All lengths are checked against the file before memory is taken.
 *
 * With an index (model.safetensors.index.json), the index is the list of tensors: each shard that it names must exist
 * and hold what the index puts there, and no other file is opened. Without one, model.safetensors is read, or the only
 * *.safetensors file if there is one.
 *
 * Types that this build does not compute with (F8_E5M2, U16, ...) are listed with DT_NONE: a checkpoint may carry side
 * tensors that nobody asks for. A type that the format does not have is refused at once. */
#include "core/file.h"
#include "core/str.h"
#include "weights/tensors.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The format's own limit is 100 MB. 72,000 tensors (experts with their scales, in one file) need 10 MB. */
#define HEADER_MAX ((uint64_t)32 << 20)
/* One tensor's entry; real ones are below 200 bytes. Bounds the tree that jansson builds of it. */
#define ENTRY_MAX  ((size_t)16 << 10)
#define KEY_MAX    ((size_t)8 << 10) /* a name of TENSOR_NAME_MAX bytes, each of them escaped as \uXXXX, and more */
#define INDEX_MAX  ((size_t)64 << 20)
#define CONFIG_MAX ((size_t)16 << 20)
#define INDEX_NAME "model.safetensors.index.json"

/* X(name in the file, bits per element, DType) */
#define SAFETENSORS_TYPES(X)                                                                                           \
    X("F32", 32, DT_F32)                                                                                               \
    X("F16", 16, DT_F16)                                                                                               \
    X("BF16", 16, DT_BF16)                                                                                             \
    X("I32", 32, DT_I32)                                                                                               \
    X("I64", 64, DT_I64)                                                                                               \
    X("BOOL", 8, DT_NONE)                                                                                              \
    X("U8", 8, DT_U8)                                                                                                  \
    X("I8", 8, DT_I8)                                                                                                  \
    X("U16", 16, DT_NONE)                                                                                              \
    X("I16", 16, DT_NONE)                                                                                              \
    X("U32", 32, DT_NONE)                                                                                              \
    X("U64", 64, DT_NONE)                                                                                              \
    X("F64", 64, DT_NONE)                                                                                              \
    X("C64", 64, DT_NONE)                                                                                              \
    X("F8_E4M3", 8, DT_E4M3)                                                                                           \
    X("F8_E5M2", 8, DT_NONE)                                                                                           \
    X("F8_E8M0", 8, DT_E8M0)                                                                                           \
    X("F8_E4M3FNUZ", 8, DT_NONE)                                                                                       \
    X("F8_E5M2FNUZ", 8, DT_NONE)                                                                                       \
    X("F6_E2M3", 6, DT_NONE)                                                                                           \
    X("F6_E3M2", 6, DT_NONE)                                                                                           \
    X("F4", 4, DT_NONE)

typedef struct FileType {
    const char *name;
    uint32_t bits;
    DType dtype;
} FileType;

static const FileType FILE_TYPES[] = {
#define X(name, bits, dtype) {name, bits, dtype},
    SAFETENSORS_TYPES(X)
#undef X
};

static const FileType *file_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof FILE_TYPES / sizeof FILE_TYPES[0]; i++)
        if (strcmp(FILE_TYPES[i].name, name) == 0)
            return &FILE_TYPES[i];
    return NULL;
}

/* ---- the header ---- */

typedef struct Header {
    const Source *src;
    const char *text;
    size_t len, at;
    uint64_t data; /* where the tensors' bytes begin in the file */
    OpenMode mode;
    Arena *arena;
} Header;

static void header_skip_space(Header *h)
{
    while (h->at < h->len && strchr(" \t\r\n", h->text[h->at]) != NULL && h->text[h->at] != '\0')
        h->at++;
}

/* Steps over c if it is the next character. */
static bool header_take(Header *h, char c)
{
    header_skip_space(h);
    if (h->at == h->len || h->text[h->at] != c)
        return false;
    h->at++;
    return true;
}

static Status header_malformed(const Header *h, const char *what, Err *err)
{
    return err_set(err, ST_FORMAT,
                   "%s: the header is not valid JSON at its byte %zu: %s; convert or download the file again",
                   h->src->name, h->at, what);
}

/* The next JSON value, of at most max bytes of text; the caller owns it. where is what the message calls it. */
static Status header_value(Header *h, size_t max, const char *where, json_t **out, Err *err)
{
    size_t window = h->len - h->at;
    json_error_t e;

    if (window > max)
        window = max;
    *out = json_loadb(h->text + h->at, window, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &e);
    if (*out == NULL && json_error_code(&e) == json_error_out_of_memory)
        return err_set(err, ST_NOMEM, "%s: out of memory to read its header; free some memory", h->src->name);
    if (*out == NULL)
        return err_set(err, ST_FORMAT,
                       "%s: the header is not valid JSON at its byte %zu (%s): %s; convert or download the file again",
                       h->src->name, h->at, where, e.text);
    h->at += (size_t)e.position; /* jansson counts the bytes that it took */
    return ST_OK;
}

/* A string and the colon behind it. */
static Status header_key(Header *h, json_t **key, Err *err)
{
    header_skip_space(h);
    if (h->at == h->len || h->text[h->at] != '"')
        return header_malformed(h, "expected a name in double quotes", err);
    *key = NULL;
    Status st = header_value(h, KEY_MAX, "a name", key, err);
    if (st == ST_OK && !header_take(h, ':')) {
        json_decref(*key);
        *key = NULL;
        st = header_malformed(h, "expected ':' behind a name", err);
    }
    return st;
}

/* __metadata__: strings by name, of any length; checked and dropped one by one. */
static Status header_skip_metadata(Header *h, Err *err)
{
    Status st = ST_OK;
    json_t *v = NULL;

    if (!header_take(h, '{'))
        return header_malformed(h, "__metadata__ must be an object of strings", err);
    if (header_take(h, '}'))
        return ST_OK;
    do {
        TRY(header_key(h, &v, err));
        json_decref(v);
        v = NULL;
        header_skip_space(h);
        if (h->at == h->len || h->text[h->at] != '"')
            return header_malformed(h, "__metadata__ must be an object of strings", err);
        TRY(header_value(h, h->len, "__metadata__", &v, err));
        json_decref(v);
        v = NULL;
    } while (header_take(h, ','));
    if (!header_take(h, '}'))
        return header_malformed(h, "expected ',' or '}' in __metadata__", err);
done:
    return st;
}

/* A list of integers >= 0. False when it is anything else. max bounds the length. */
static bool read_counts(const json_t *list, uint64_t *out, size_t max, size_t *n)
{
    size_t len = json_array_size(list); /* 0 for what is no array */

    if (!json_is_array(list) || len > max)
        return false;
    for (size_t i = 0; i < len; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return false;
        out[i] = (uint64_t)json_integer_value(v);
    }
    *n = len;
    return true;
}

/* One tensor from its entry. x->info.name is set. */
static Status read_entry(const Header *h, const json_t *entry, Tensor *x, Err *err)
{
    enum { RANK_MAX = 16 }; /* what is read; what is kept is TENSOR_MAX_DIMS */
    const char *file = h->src->name, *name = x->info.name,
               *type_name = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    uint64_t dims[RANK_MAX], span[2], elements, bits, data_bytes = h->src->size - h->data;
    size_t n_dims, n_span;
    const FileType *type;

    if (!json_is_object(entry) || type_name == NULL)
        return err_set(err, ST_FORMAT, "%s: tensor %s has no \"dtype\" in the header; convert the file again", file,
                       name);
    type = file_type_find(type_name);
    if (type == NULL)
        return err_set(err, ST_FORMAT,
                       "%s: tensor %s has dtype %.32s, which is not a safetensors type; convert the file again", file,
                       name, type_name);
    if (!read_counts(shape, dims, RANK_MAX, &n_dims))
        return err_set(err, ST_FORMAT,
                       "%s: tensor %s has a \"shape\" that is not a list of at most %d sizes; convert the file again",
                       file, name, RANK_MAX);
    if (!read_counts(json_object_get(entry, "data_offsets"), span, 2, &n_span) || n_span != 2)
        return err_set(err, ST_FORMAT,
                       "%s: tensor %s has \"data_offsets\" that are not [begin, end]; convert the file again", file,
                       name);
    if (!tensor_elements(dims, (uint32_t)n_dims, &elements) || __builtin_mul_overflow(elements, type->bits, &bits))
        return err_set(err, ST_FORMAT, "%s: the shape of tensor %s overflows 64 bits; convert the file again", file,
                       name);
    if (span[0] > span[1])
        return err_set(err, ST_FORMAT,
                       "%s: tensor %s begins at %" PRIu64 ", after its end at %" PRIu64 "; convert the file again",
                       file, name, span[0], span[1]);
    if (bits % 8 != 0 || bits / 8 != span[1] - span[0])
        return err_set(err, ST_FORMAT,
                       "%s: tensor %s needs %" PRIu64 " bytes by its shape and dtype %s, but its offsets give %" PRIu64
                       "; convert the file again",
                       file, name, bits / 8, type->name, span[1] - span[0]);
    if (h->mode == OPEN_WEIGHTS && span[1] > data_bytes)
        return err_set(err, ST_FORMAT,
                       "%s: tensor %s ends at byte %" PRIu64 " of the data, but the file has only %" PRIu64
                       " bytes of it (%" PRIu64 " in all); the file is cut off: download it again",
                       file, name, span[1], data_bytes, h->src->size);
    x->source = h->src;
    x->offset = h->data + span[0]; /* fits: JSON integers are below 2^63 and headers below HEADER_MAX */
    x->info.file = file;
    x->info.bytes = span[1] - span[0];
    x->info.stored = type->name;
    x->info.dtype = type->dtype;
    if (n_dims > TENSOR_MAX_DIMS) {
        /* Video towers have them; nothing here computes with one, and nobody may ask. */
        x->info.dtype = DT_NONE;
        x->info.stored = arena_printf(h->arena, "%s of %zu dimensions", type->name, n_dims);
        return x->info.stored ? ST_OK
                              : err_set(err, ST_NOMEM, "%s: out of memory to read its header; free some memory", file);
    }
    x->info.n_dims = (uint32_t)n_dims;
    memcpy(x->info.dims, dims, n_dims * sizeof dims[0]);
    return ST_OK;
}

/* NAME: {entry} into table. */
static Status header_tensor(Header *h, const json_t *key, TensorTable *table, Err *err)
{
    Status st = ST_OK;
    json_t *entry = NULL;
    Tensor *x = NULL;

    if (!tensor_name_ok(json_string_value(key), json_string_length(key)))
        return err_set(err, ST_FORMAT,
                       "%s: the name of tensor number %zu is not 1 to %d bytes of UTF-8 without control characters; "
                       "convert the file again",
                       h->src->name, table->len, TENSOR_NAME_MAX);
    x = ARENA_NEW(h->arena, Tensor);
    if (x != NULL)
        x->info.name = arena_strndup(h->arena, json_string_value(key), json_string_length(key));
    if (x == NULL || x->info.name == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory to read its header; free some memory", h->src->name);
    TRY(header_value(h, ENTRY_MAX, x->info.name, &entry, err));
    TRY(read_entry(h, entry, x, err));
    TRY(tensor_table_add(table, x, err));
done:
    json_decref(entry);
    return st;
}

static Status header_parse(Header *h, TensorTable *table, Err *err)
{
    Status st = ST_OK;
    json_t *key = NULL;

    if (!header_take(h, '{'))
        return err_set(err, ST_FORMAT,
                       "%s: the header is not a JSON object; is this a safetensors file? download it again",
                       h->src->name);
    if (!header_take(h, '}')) {
        do {
            json_decref(key);
            key = NULL;
            TRY(header_key(h, &key, err));
            if (strcmp(json_string_value(key), "__metadata__") == 0)
                TRY(header_skip_metadata(h, err));
            else
                TRY(header_tensor(h, key, table, err));
        } while (header_take(h, ','));
        if (!header_take(h, '}'))
            TRY(header_malformed(h, "expected ',' or '}' behind an entry", err));
    }
    header_skip_space(h); /* writers pad the header so that the data is aligned */
    if (h->at != h->len)
        TRY(header_malformed(h, "text behind the object", err));
done:
    json_decref(key);
    return st;
}

Status safetensors_read_header(FileStore *fs, const Source *src, OpenMode mode, TensorTable *table, Err *err)
{
    Status st = ST_OK;
    Header h = {.src = src, .mode = mode, .arena = fs->arena};
    uint8_t head[8];
    uint64_t len = 0;
    char *text = NULL;

    if (src->size < sizeof head)
        return err_set(err, ST_FORMAT,
                       "%s: has %" PRIu64
                       " bytes, too few for the header length of 8; the file is cut off: download it again",
                       src->name, src->size);
    TRY(source_read(src, 0, head, sizeof head, err));
    for (int i = 7; i >= 0; i--)
        len = len << 8 | head[i];
    if (len > src->size - sizeof head)
        return err_set(err, ST_FORMAT,
                       "%s: claims a header of %" PRIu64 " bytes, but the file has %" PRIu64
                       "; the file is cut off or is not safetensors: download it again",
                       src->name, len, src->size);
    if (len > HEADER_MAX)
        return err_set(err, ST_UNSUPPORTED,
                       "%s: its header of %" PRIu64 " bytes is above the limit of %" PRIu64
                       "; split the checkpoint into shards",
                       src->name, len, HEADER_MAX);
    text = malloc(len + 1);
    if (text == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory to read its header; free some memory", src->name);
    TRY(source_read(src, sizeof head, text, len, err));
    h.text = text;
    h.len = len;
    h.data = sizeof head + len;
    TRY(header_parse(&h, table, err));
done:
    free(text);
    return st;
}

Status store_safetensors_parse(WeightStore **out, const void *bytes, size_t len, const char *name, Err *err)
{
    Status st = ST_OK;
    FileStore *fs = NULL;

    TRY(file_store_new(&fs, STORE_SAFETENSORS, name, 1, err));
    source_memory(&fs->sources[0], bytes, len, fs->base.path);
    TRY(safetensors_read_header(fs, &fs->sources[0], OPEN_WEIGHTS, &fs->table, err));
    TRY(tensor_table_seal(&fs->table, err));
    fs->meta = json_object();
    if (fs->meta == NULL)
        TRY(err_set(err, ST_NOMEM, "%s: out of memory to open it; free some memory", name));
    *out = &fs->base;
    fs = NULL;
done:
    store_free(fs ? &fs->base : NULL);
    return st;
}

/* ---- the folder ---- */

/* A JSON object from a file of at most max bytes. */
static Status object_read(const char *path, size_t max, json_t **out, Err *err)
{
    Status st = ST_OK;
    char *text = NULL;
    size_t len;
    Err why;

    TRY(file_read(path, max, &text, &len, err));
    st = json_parse(text, len, path, out, &why);
    if (st != ST_OK) /* the sentence names file, line and column, and lacks what to do */
        TRY(err_set(err, st, "%.900s; download the file again", why.msg));
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        st = err_set(err, ST_FORMAT, "%s: is not a JSON object; download the file again", path);
    }
done:
    free(text);
    return st;
}

Status config_read(const char *path, json_t **out, Err *err)
{
    return object_read(path, CONFIG_MAX, out, err);
}

/* The list of files of a checkpoint, each with what the index puts there. */
typedef struct Shards {
    const char **paths; /* [n] in the arena, sorted by file name */
    const char **names;
    size_t n;
    json_t *index;      /* the index file, or NULL */
    json_t *weight_map; /* in index: tensor name -> shard name */
    const char *index_path;
} Shards;

static int order_by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Shards by the index: the distinct names in weight_map, each a plain file name inside the folder. */
static Status shards_by_index(Shards *s, const char *dir, Arena *a, Err *err)
{
    Status st = ST_OK;
    size_t n = 0, n_tensors;
    const char **all, *tensor;
    json_t *v;

    TRY(object_read(s->index_path, INDEX_MAX, &s->index, err));
    s->weight_map = json_object_get(s->index, "weight_map");
    n_tensors = json_object_size(s->weight_map);
    if (n_tensors == 0)
        TRY(err_set(err, ST_FORMAT, "%s: \"weight_map\" is missing or empty; download the file again", s->index_path));
    all = ARENA_ARRAY(a, const char *, n_tensors);
    s->names = all;
    if (all == NULL)
        TRY(err_set(err, ST_NOMEM, "%s: out of memory to read it; free some memory", s->index_path));
    json_object_foreach(s->weight_map, tensor, v)
    {
        const char *shard = json_string_value(v);
        if (shard == NULL || !tensor_name_ok(shard, strlen(shard)))
            TRY(err_set(err, ST_FORMAT, "%s: weight_map[\"%.256s\"] is not a file name; download the index again",
                        s->index_path, tensor));
        if (strchr(shard, '/') != NULL || !str_ends(shard, ".safetensors"))
            TRY(err_set(err, ST_FORMAT,
                        "%s: weight_map[\"%.256s\"] is \"%s\", which is not a *.safetensors file inside the folder; "
                        "download the index again",
                        s->index_path, tensor, shard));
        all[n++] = shard;
    }
    qsort(all, n, sizeof all[0], order_by_text);
    for (size_t i = 0; i < n; i++)
        if (s->n == 0 || strcmp(all[i], all[s->n - 1]) != 0)
            all[s->n++] = all[i];
    s->paths = ARENA_ARRAY(a, const char *, s->n);
    for (size_t i = 0; s->paths != NULL && i < s->n; i++)
        if ((s->paths[i] = arena_printf(a, "%s/%s", dir, s->names[i])) == NULL)
            s->paths = NULL;
    if (s->paths == NULL)
        TRY(err_set(err, ST_NOMEM, "%s: out of memory to read it; free some memory", s->index_path));
done:
    return st;
}

/* Without an index: model.safetensors, or the only *.safetensors file. None at all leaves n = 0. */
static Status shards_single(Shards *s, const char *dir, Arena *a, Err *err)
{
    static const char usual[] = "model.safetensors";
    Status st = ST_OK;
    const char *only = NULL;
    size_t n, n_files = 0;
    DirEntry *entries;

    TRY(dir_list(dir, a, &entries, &n, err));
    for (size_t i = 0; i < n; i++) {
        if (entries[i].is_dir || !str_ends(entries[i].name, ".safetensors"))
            continue;
        n_files++;
        if (only == NULL || strcmp(entries[i].name, usual) == 0)
            only = entries[i].name;
    }
    if (n_files == 0)
        return ST_OK;
    if (n_files > 1 && strcmp(only, usual) != 0)
        return err_set(err, ST_INVALID,
                       "%s: has %zu *.safetensors files and neither " INDEX_NAME
                       " nor %s to say which are the weights; download the index",
                       dir, n_files, usual);
    s->paths = ARENA_ARRAY(a, const char *, 1);
    if (s->paths == NULL || (s->paths[0] = arena_printf(a, "%s/%s", dir, only)) == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory to open it; free some memory", dir);
    s->n = 1;
done:
    return st;
}

/* Which files; *present says whether all are there. */
static Status shards_find(Shards *s, const char *dir, Arena *a, OpenMode mode, bool *present, Err *err)
{
    Status st = ST_OK;

    *present = false;
    s->index_path = arena_printf(a, "%s/%s", dir, INDEX_NAME);
    if (s->index_path == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory to open it; free some memory", dir);
    if (!file_exists(s->index_path)) {
        TRY(shards_single(s, dir, a, err));
        *present = s->n > 0;
        return ST_OK;
    }
    TRY(shards_by_index(s, dir, a, err));
    for (size_t i = 0; i < s->n; i++) {
        if (file_exists(s->paths[i]))
            continue;
        if (mode == OPEN_METADATA)
            return ST_OK;
        return err_set(err, ST_NOTFOUND, "%s: names the shard %s, which is not in the folder; download it",
                       s->index_path, s->names[i]);
    }
    *present = true;
done:
    return st;
}

/* Reads the header of shard i, and moves what the index puts there into the store's table. */
static Status shard_read(FileStore *fs, const Shards *s, size_t i, OpenMode mode, Err *err)
{
    Status st = ST_OK;
    TensorTable all = {0};

    TRY(source_open(&fs->sources[i], s->paths[i], err));
    TRY(safetensors_read_header(fs, &fs->sources[i], mode, &all, err));
    TRY(tensor_table_seal(&all, err));
    for (size_t k = 0; k < all.len; k++) {
        const char *shard = s->index ? json_string_value(json_object_get(s->weight_map, all.rows[k]->info.name)) : NULL;
        if (s->index == NULL || (shard != NULL && strcmp(shard, s->names[i]) == 0))
            TRY(tensor_table_add(&fs->table, all.rows[k], err));
    }
done:
    tensor_table_release(&all);
    return st;
}

/* ModelOpt writes its block into a file of its own, and not always into config.json, too. It goes where it would be. */
static Status read_hf_quant(const char *dir, Arena *a, json_t *meta, Err *err)
{
    Status st = ST_OK;
    const char *path = arena_printf(a, "%s/hf_quant_config.json", dir);
    json_t *file = NULL, *block;

    if (path == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory to open it; free some memory", dir);
    if (!file_exists(path) || json_is_object(json_object_get(meta, "quantization_config")))
        return ST_OK;
    TRY(config_read(path, &file, err));
    block = json_object_get(file, "quantization");
    if (!json_is_object(block))
        TRY(err_set(err, ST_FORMAT, "%s: has no object \"quantization\"; download the file again", path));
    if (json_object_set_new(block, "quant_method", json_string("modelopt")) != 0 ||
        json_object_set(meta, "quantization_config", block) != 0)
        TRY(err_set(err, ST_NOMEM, "%s: out of memory to open it; free some memory", dir));
done:
    json_decref(file);
    return st;
}

Status safetensors_open(WeightStore **out, const char *dir, OpenMode mode, Err *err)
{
    Status st = ST_OK;
    Shards shards = {0};
    FileStore *fs = NULL;
    Arena *a = arena_new();
    const char *config, *name;
    json_t *meta = NULL, *v;
    bool present;

    config = a ? arena_printf(a, "%s/config.json", dir) : NULL;
    if (config == NULL)
        TRY(err_set(err, ST_NOMEM, "%s: out of memory to open it; free some memory", dir));
    if (!file_exists(config))
        TRY(err_set(err, ST_NOTFOUND, "%s: has no config.json; name the folder of a checkpoint, or a .gguf file", dir));
    TRY(config_read(config, &meta, err));
    TRY(read_hf_quant(dir, a, meta, err));
    TRY(shards_find(&shards, dir, a, mode, &present, err));
    TRY(file_store_new(&fs, STORE_SAFETENSORS, dir, present ? shards.n : 0, err));
    fs->meta = meta;
    meta = NULL;
    for (size_t i = 0; i < fs->n_sources; i++) {
        /* The names go where the tensors that point at them go. */
        shards.paths[i] = arena_strdup(fs->arena, shards.paths[i]);
        if (shards.paths[i] == NULL)
            TRY(err_set(err, ST_NOMEM, "%s: out of memory to open it; free some memory", dir));
        TRY(shard_read(fs, &shards, i, mode, err));
    }
    TRY(tensor_table_seal(&fs->table, err));
    if (present && shards.index != NULL)
        json_object_foreach(shards.weight_map, name, v) if (tensor_table_find(&fs->table, name) == NULL)
            TRY(err_set(err, ST_FORMAT, "%s: puts tensor %.256s into %s, which lacks it; download both again",
                        shards.index_path, name, json_string_value(v)));
    *out = &fs->base;
    fs = NULL;
done:
    store_free(fs ? &fs->base : NULL);
    json_decref(meta);
    json_decref(shards.index);
    arena_free(a);
    return st;
}
