/* circuit_fixture.h - the real circuits and checkpoints without bytes, for the tests of this room.
 * A checkpoint is a JSON object {meta, tensors: {name: [format, shape]}} from tests/data/circuit. */
#ifndef METRALE_TESTS_CIRCUIT_FIXTURE_H
#define METRALE_TESTS_CIRCUIT_FIXTURE_H
#include "circuit/instance.h"
#include "circuit/plan.h"
#include "support/embedded.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static inline json_t *fixture_load(const char *name)
{
    char path[1024], *text = NULL;
    size_t len = 0;
    json_t *j = NULL;
    Err err = {{0}};

    snprintf(path, sizeof path, "%s/tests/data/circuit/%s.json", METRALE_SOURCE_DIR, name);
    if (file_read(path, EMBEDDED_FILE_BYTES, &text, &len, &err) != ST_OK ||
        json_parse(text, len, path, &j, &err) != ST_OK)
        fail_msg("%s", err.msg);
    free(text);
    return j;
}

/* A JSON value with ' for ", for short literals. */
static inline json_t *json_literal(const char *text)
{
    char *copy = strdup(text);
    json_t *j;

    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    j = json_loads(copy, JSON_DECODE_ANY, NULL);
    if (j == NULL)
        fail_msg("test text is no JSON: %s", copy);
    free(copy);
    return j;
}

static inline bool fixture_find(void *ctx, const char *tensor, TensorDesc *out)
{
    const json_t *t = json_object_get(ctx, tensor), *dims = json_array_get(t, 1);

    if (t == NULL)
        return false;
    *out = (TensorDesc){.stored = json_string_value(json_array_get(t, 0)), .n_dims = (uint32_t)json_array_size(dims)};
    if (!dtype_parse(out->stored, &out->dtype))
        out->dtype = DT_NONE;
    for (uint32_t i = 0; i < out->n_dims && i < 4; i++)
        out->dims[i] = (uint64_t)json_integer_value(json_array_get(dims, i));
    return true;
}

static inline const char *fixture_tensor_at(void *ctx, size_t i)
{
    void *it = json_object_iter(ctx);

    while (it != NULL && i-- > 0)
        it = json_object_iter_next(ctx, it);
    return it != NULL ? json_object_iter_key(it) : NULL;
}

/* The circuits of the source tree. */
static inline CircuitLibrary *fixture_library(void)
{
    static Embedded e; /* too large for the stack; empty again when this returns */
    CircuitLibrary *lib = NULL;
    Err err = {{0}};

    if (embedded_add_dir(&e, "circuits", &err) != ST_OK || circuit_library_new(&lib, e.files, e.n, &err) != ST_OK)
        fail_msg("%s", err.msg);
    embedded_free(&e);
    return lib;
}

static inline Status fixture_try(const CircuitLibrary *lib, const json_t *checkpoint, bool gguf, Instance **out,
                                 Err *err)
{
    json_t *tensors = json_object_get(checkpoint, "tensors");
    InstanceSource src = {.name = gguf ? "model.gguf" : "config.json",
                          .meta = json_object_get(checkpoint, "meta"),
                          .gguf = gguf,
                          .find = tensors ? fixture_find : NULL,
                          .tensor_at = tensors ? fixture_tensor_at : NULL,
                          .ctx = tensors,
                          .kv_format = DT_BF16,
                          .fallback = DT_NONE};

    return instance_new(out, lib, &src, err);
}

static inline Instance *fixture_instance(const CircuitLibrary *lib, const json_t *checkpoint, bool gguf)
{
    Instance *in = NULL;
    Err err = {{0}};

    if (fixture_try(lib, checkpoint, gguf, &in, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return in;
}

/* Loads a checkpoint by name; ".gguf" at the end says that it is one. */
static inline Instance *fixture_open(const CircuitLibrary *lib, const char *name)
{
    json_t *j = fixture_load(name);
    Instance *in = fixture_instance(lib, j, str_ends(name, ".gguf"));

    json_decref(j);
    return in;
}

/* The checkpoint is refused with this status, and the sentence has every text of the list. */
static inline void assert_refused(const CircuitLibrary *lib, const json_t *checkpoint, bool gguf, Status want,
                                  const char *const *texts)
{
    Instance *in = NULL;
    Err err = {{0}};
    Status st = fixture_try(lib, checkpoint, gguf, &in, &err);

    instance_free(in);
    if (st != want)
        fail_msg("status is \"%s\", not \"%s\": %s", status_text(st), status_text(want), err.msg);
    for (; *texts != NULL; texts++)
        if (strstr(err.msg, *texts) == NULL)
            fail_msg("\"%s\" is not in: %s", *texts, err.msg);
}
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline int64_t dim_of(const Instance *in, const char *name)
{
    int64_t v = -1;

    if (!instance_dim(in, name, &v))
        fail_msg("there is no dim %s", name);
    return v;
}

static inline const InstanceNode *node_of(const InstanceBlock *b, const char *id)
{
    for (uint32_t i = 0; i < b->n_nodes; i++)
        if (strcmp(b->nodes[i].id, id) == 0)
            return &b->nodes[i];
    return NULL;
}

static inline double param_of(const InstanceBlock *b, const char *id, const char *name)
{
    const InstanceNode *n = node_of(b, id);

    assert_non_null(n);
    assert_true(op_param(n->op, name) >= 0);
    return n->param[op_param(n->op, name)];
}

static inline double layer_window(const Instance *in, uint32_t layer)
{
    return param_of(&in->blocks[in->layers[layer].block], "attn", "window");
}

/* Ids of a block's nodes, separated by blanks. */
static inline void assert_nodes(const InstanceBlock *b, const char *want)
{
    Str s = STR_INIT;

    for (uint32_t i = 0; i < b->n_nodes; i++)
        str_addf(&s, "%s%s", i ? " " : "", b->nodes[i].id);
    assert_string_equal(str_c(&s), want);
    str_release(&s);
}

/* The index of a weight slot, or -1. */
static inline int weight_of(const InstanceBlock *b, const char *slot)
{
    for (uint32_t i = 0; i < b->n_weights; i++)
        if (strcmp(b->weights[i].name, slot) == 0)
            return (int)i;
    return -1;
}
#endif
