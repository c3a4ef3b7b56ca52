/* gguf_writer.h - a GGUF file made of a safetensors checkpoint by rules that are data (tests/data/gguf_maps/README.md): names,
 * metadata, and for each tensor what a converter does to it. It shares nothing with the code that reads such files. Every
 * failure fails the test. */
#ifndef METRALE_TESTS_GGUF_WRITER_H
#define METRALE_TESTS_GGUF_WRITER_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/numeric.h"
#include "core/str.h"
#include "core/toml.h"
#include "weights/decode.h"
#include "weights/store.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ggml's ids of tensor types, GGUF's of metadata values. */
typedef enum { WRITE_F32 = 0, WRITE_F16 = 1, WRITE_Q8_0 = 8 } WriteType;
enum { META_U32 = 4, META_I32 = 5, META_F32 = 6, META_BOOL = 7, META_STRING = 8, META_ARRAY = 9 };
enum { ND_DIMS = 5, WRITE_TENSORS = 512, WRITE_VOCAB = 256 };

/* ---- arrays ------------------------------------------------------------------------------------------------------ */
typedef struct Nd {
    float *v;
    uint64_t dims[ND_DIMS]; /* slowest first */
    uint32_t n;
} Nd;

static inline uint64_t nd_size(const Nd *a)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < a->n; i++)
        n *= a->dims[i];
    return n;
}

static inline float *nd_alloc(uint64_t n)
{
    float *v = malloc(sizeof(float) * (n ? n : 1));

    assert_non_null(v);
    return v;
}

/* Element i of the result is the one at `from` plus its index in each dim times that dim's stride. */
static inline void nd_gather(Nd *a, const uint64_t *dims, uint32_t n, const uint64_t *strides, uint64_t from)
{
    Nd to = {.n = n};
    uint64_t size;

    memcpy(to.dims, dims, n * sizeof *dims);
    size = nd_size(&to);
    to.v = nd_alloc(size);
    for (uint64_t i = 0; i < size; i++) {
        uint64_t at = from, rest = i;

        for (uint32_t d = n; d-- > 0; rest /= dims[d])
            at += rest % dims[d] * strides[d];
        to.v[i] = a->v[at];
    }
    free(a->v);
    *a = to;
}

/* One step of a rule: "view D D ..", "slice AXIS FROM COUNT", "axes A A ..", "add X", "negexp". */
static inline void nd_step(Nd *a, const char *step)
{
    uint64_t arg[ND_DIMS] = {0}, strides[ND_DIMS], dims[ND_DIMS], stride = 1;
    const char *p = step + strcspn(step, " ");
    uint32_t n = 0;
    char *end;

    for (uint32_t d = a->n; d-- > 0; stride *= a->dims[d])
        strides[d] = stride;
    if (strncmp(step, "add ", 4) == 0 || strcmp(step, "negexp") == 0) {
        float x = strtof(p, NULL);

        for (uint64_t i = 0; i < nd_size(a); i++)
            a->v[i] = *step == 'a' ? a->v[i] + x : -expf(a->v[i]);
        return;
    }
    for (; *p != '\0' && n < ND_DIMS; p = end) {
        arg[n++] = strtoull(p, &end, 10);
        assert_true(end != p);
    }
    if (strncmp(step, "view ", 5) == 0) {
        Nd to = {.v = a->v, .n = n};

        memcpy(to.dims, arg, sizeof arg);
        if (nd_size(&to) != nd_size(a))
            fail_msg("'%s' of %llu elements", step, (unsigned long long)nd_size(a));
        *a = to;
    } else if (strncmp(step, "slice ", 6) == 0) {
        assert_true(n == 3 && arg[0] < a->n && arg[1] + arg[2] <= a->dims[arg[0]]);
        memcpy(dims, a->dims, sizeof dims);
        dims[arg[0]] = arg[2];
        nd_gather(a, dims, a->n, strides, arg[1] * strides[arg[0]]);
    } else {
        uint64_t turned[ND_DIMS];

        assert_true(strncmp(step, "axes ", 5) == 0 && n == a->n);
        for (uint32_t d = 0; d < n; d++) {
            assert_true(arg[d] < n);
            dims[d] = a->dims[arg[d]];
            turned[d] = strides[arg[d]];
        }
        nd_gather(a, dims, n, turned, 0);
    }
}

/* b behind a along the first axis; takes b. */
static inline void nd_append(Nd *a, Nd *b)
{
    uint64_t n = a->v != NULL ? nd_size(a) : 0, m = nd_size(b);
    float *v = nd_alloc(n + m);

    if (a->v == NULL) {
        memcpy(a->dims, b->dims, sizeof a->dims);
        a->n = b->n;
        a->dims[0] = 0;
    }
    if (n > 0)
        memcpy(v, a->v, n * sizeof *v);
    memcpy(v + n, b->v, m * sizeof *v);
    a->dims[0] += b->dims[0];
    assert_true(a->n == b->n && nd_size(a) == n + m);
    free(a->v);
    free(b->v);
    a->v = v;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */
typedef struct GgufWriter {
    const Toml *rules;
    const char *arch;
    WeightStore *from;
    WriteType type;
    Str infos, data;
    uint32_t n_tensors;
    bool *used; /* tensors of the checkpoint */
} GgufWriter;

static inline void write_le(Str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(s, (char)(v >> 8 * i));
}

static inline void write_text(Str *s, const char *text)
{
    write_le(s, strlen(text), 8);
    str_adds(s, text);
}

static inline void write_f32(Str *s, float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    write_le(s, u, 4);
}

/* Matrices that are multiplied with, of whole blocks, are stored as asked; what else there is as f32. */
static inline WriteType write_type(const GgufWriter *w, const char *name, const Nd *a)
{
    static const char *const floats[] = {"norm", "ssm_conv1d", "ffn_gate_inp", "ssm_a", "ssm_d"};
    size_t len = strlen(name);

    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (strstr(name, floats[i]) != NULL && strstr(name, "ssm_alpha") == NULL)
            return WRITE_F32;
    if (a->n < 2 || len < 7 || strcmp(name + len - 7, ".weight") != 0 || a->dims[a->n - 1] % 32 != 0)
        return WRITE_F32;
    return w->type;
}

static inline void write_values(Str *s, const Nd *a, WriteType type)
{
    uint64_t size = nd_size(a);

    for (uint64_t i = 0; i < size && type != WRITE_Q8_0; i++)
        if (type == WRITE_F16)
            write_le(s, f32_to_f16(a->v[i]), 2);
        else
            write_f32(s, a->v[i]);
    for (uint64_t i = 0; i < size && type == WRITE_Q8_0; i += 32) {
        float top = 0;

        for (uint64_t k = i; k < i + 32; k++)
            top = fmaxf(top, fabsf(a->v[k]));
        write_le(s, f32_to_f16(top / 127), 2);
        for (uint64_t k = i; k < i + 32; k++)
            str_addc(s, (char)(int8_t)(top > 0 ? roundf(a->v[k] * 127 / top) : 0));
    }
}

static inline void write_tensor(GgufWriter *w, const char *name, const Nd *a)
{
    WriteType type = write_type(w, name, a);

    while (w->data.len % 32 != 0)
        str_addc(&w->data, '\0');
    write_text(&w->infos, name);
    write_le(&w->infos, a->n, 4);
    for (uint32_t d = a->n; d-- > 0;) /* fastest first */
        write_le(&w->infos, a->dims[d], 8);
    write_le(&w->infos, type, 4);
    write_le(&w->infos, w->data.len, 8);
    write_values(&w->data, a, type);
    w->n_tensors++;
}

/* pattern with {l} and {e} filled in. */
static inline void write_name(char *out, size_t size, const char *pattern, uint32_t layer, uint32_t expert)
{
    Str s = STR_INIT;

    for (const char *p = pattern; *p != '\0'; p++)
        if (strncmp(p, "{l}", 3) == 0 || strncmp(p, "{e}", 3) == 0) {
            str_addf(&s, "%u", p[1] == 'l' ? layer : expert);
            p += 2;
        } else {
            str_addc(&s, *p);
        }
    assert_true(str_ok(&s) && s.len < size);
    memcpy(out, str_c(&s), s.len + 1);
    str_release(&s);
}

/* The tensor of the checkpoint as floats; false when there is none of the name. */
static inline bool write_source(GgufWriter *w, const char *name, Nd *out)
{
    const TensorInfo *t = store_find(w->from, name);
    uint8_t *bytes;
    Err e;

    if (t == NULL)
        return false;
    *out = (Nd){.n = t->n_dims};
    memcpy(out->dims, t->dims, t->n_dims * sizeof *t->dims);
    out->v = nd_alloc(nd_size(out));
    bytes = malloc(t->bytes);
    assert_non_null(bytes);
    assert_int_equal(store_read(w->from, t, 0, bytes, t->bytes, &e), ST_OK);
    assert_true(dtype_row_to_f32(t->dtype, bytes, nd_size(out), out->v));
    free(bytes);
    for (size_t i = 0; i < store_count(w->from); i++)
        w->used[i] |= store_at(w->from, i) == t;
    return true;
}

/* make: a list of steps, or a list of such lists, whose results lie one behind the other. NULL: the tensor as it is. */
static inline void write_made(GgufWriter *w, const char *name, Nd *a, const TomlNode *make)
{
    Nd all = {0};
    bool parts = make != NULL && make->list.len > 0 && make->list.items[0].kind == TOML_ARRAY;

    for (uint32_t i = 0; i < (parts ? make->list.len : 1); i++) {
        const TomlNode *steps = parts ? &make->list.items[i] : make;
        Nd one = *a;

        one.v = nd_alloc(nd_size(a));
        memcpy(one.v, a->v, sizeof(float) * nd_size(a));
        for (uint32_t k = 0; steps != NULL && k < steps->list.len; k++)
            nd_step(&one, steps->list.items[k].str);
        nd_append(&all, &one);
    }
    write_tensor(w, name, &all);
    free(all.v);
}

/* One rule for every layer that has its tensor. A rule of experts stacks them. */
static inline void write_rule(GgufWriter *w, const char *from, const char *to, const TomlNode *make)
{
    bool layers = strstr(from, "{l}") != NULL, experts = strstr(from, "{e}") != NULL, any = false;
    char name[256];

    for (uint32_t l = 0; l < (layers ? 16 : 1); l++) {
        Nd a = {0}, one;

        for (uint32_t e = 0; e < (experts ? 64 : 1); e++) {
            write_name(name, sizeof name, from, l, e);
            if (!write_source(w, name, &one))
                break;
            if (experts) {
                memmove(one.dims + 1, one.dims, one.n * sizeof *one.dims);
                one.dims[0] = 1;
                one.n++;
            }
            nd_append(&a, &one);
        }
        if (a.v == NULL)
            continue;
        any = true;
        write_name(name, sizeof name, to, l, 0);
        write_made(w, name, &a, make);
        free(a.v);
    }
    if (!any)
        fail_msg("%s: the checkpoint has no %s", w->rules->name, from);
}

static inline void write_meta_value(Str *s, const TomlNode *v)
{
    switch (v->kind) {
    case TOML_INT:
        write_le(s, META_U32, 4);
        write_le(s, (uint64_t)v->i, 4);
        break;
    case TOML_FLOAT:
        write_le(s, META_F32, 4);
        write_f32(s, (float)v->f);
        break;
    case TOML_BOOL:
        write_le(s, META_BOOL, 4);
        write_le(s, v->b, 1);
        break;
    case TOML_STRING:
        write_le(s, META_STRING, 4);
        write_text(s, v->str);
        break;
    case TOML_ARRAY: /* of integers */
        write_le(s, META_ARRAY, 4);
        write_le(s, META_I32, 4);
        write_le(s, v->list.len, 8);
        for (uint32_t i = 0; i < v->list.len; i++)
            write_le(s, (uint64_t)v->list.items[i].i, 4);
        break;
    case TOML_TABLE:
        fail_msg("%s is a table", v->key);
    }
}

static inline const TomlNode *rules_find(const Toml *rules, const char *key)
{
    const TomlNode *v = toml_find(&rules->root, key);

    if (v == NULL)
        fail_msg("%s has no %s", rules->name, key);
    return v;
}

/* Keys but for `drop`, and one more where `add` is given: both behind the architecture's name. NULL: none. */
static inline uint32_t write_meta(GgufWriter *w, Str *s, const char *drop, const char *add)
{
    const TomlNode *meta = rules_find(w->rules, "meta");
    uint32_t n = 3;

    write_text(s, "general.architecture");
    write_le(s, META_STRING, 4);
    write_text(s, w->arch);
    write_text(s, "tokenizer.ggml.model");
    write_le(s, META_STRING, 4);
    write_text(s, "gpt2");
    write_text(s, "tokenizer.ggml.tokens");
    write_le(s, META_ARRAY, 4);
    write_le(s, META_STRING, 4);
    write_le(s, WRITE_VOCAB, 8);
    for (int i = 0; i < WRITE_VOCAB; i++)
        write_text(s, "t");
    for (uint32_t i = 0; i <= meta->list.len; i++) {
        const TomlNode one = {.kind = TOML_INT, .key = add, .i = 1};
        const TomlNode *v = i < meta->list.len ? &meta->list.items[i] : &one;
        char key[256];

        if (v->key == NULL || (drop != NULL && strcmp(v->key, drop) == 0))
            continue;
        snprintf(key, sizeof key, "%s.%s", w->arch, v->key);
        write_text(s, key);
        write_meta_value(s, v);
        n++;
    }
    return n;
}

/* The bytes of a file, in a Str that the caller releases. */
static inline Str gguf_write(const Toml *rules, const char *arch, WeightStore *from, WriteType type, const char *drop,
                             const char *add)
{
    GgufWriter w = {.rules = rules, .arch = arch, .from = from, .type = type, .infos = STR_INIT, .data = STR_INIT};
    const TomlNode *rename = rules_find(rules, "rename"), *tensors = toml_find(&rules->root, "tensor");
    Str out = STR_INIT, meta = STR_INIT;
    uint32_t n_keys = write_meta(&w, &meta, drop, add);

    w.used = calloc(store_count(from) + 1, sizeof *w.used);
    assert_non_null(w.used);
    for (uint32_t i = 0; i < rename->list.len; i++)
        write_rule(&w, rename->list.items[i].key, rename->list.items[i].str, NULL);
    for (uint32_t i = 0; tensors != NULL && i < tensors->list.len; i++) {
        const TomlNode *t = &tensors->list.items[i];

        write_rule(&w, toml_find(t, "from")->str, toml_find(t, "to")->str, toml_find(t, "make"));
    }
    for (size_t i = 0; i < store_count(from); i++)
        if (!w.used[i])
            fail_msg("%s: no rule writes %s", rules->name, store_at(from, i)->name);
    str_adds(&out, "GGUF");
    write_le(&out, 3, 4);
    write_le(&out, w.n_tensors, 8);
    write_le(&out, n_keys, 8);
    str_add(&out, str_c(&meta), meta.len);
    str_add(&out, str_c(&w.infos), w.infos.len);
    while (out.len % 32 != 0)
        str_addc(&out, '\0');
    str_add(&out, str_c(&w.data), w.data.len);
    assert_true(str_ok(&out) && str_ok(&meta) && str_ok(&w.infos) && str_ok(&w.data));
    str_release(&meta);
    str_release(&w.infos);
    str_release(&w.data);
    free(w.used);
    return out;
}
#endif
