/* lower_fixture.h - instances and kernel targets made by hand, for the tests of families, lowering, buffers and plan.
 *
 * A Model holds an Instance whose blocks are built node by node. A Kernels holds a registry of TOML texts and one target
 * whose objects are whatever its FAMILIES.toml texts name, unless a test asks for fewer. */
#ifndef METRALE_TESTS_CIRCUIT_LOWER_FIXTURE_H
#define METRALE_TESTS_CIRCUIT_LOWER_FIXTURE_H
#include "circuit/plan.h"
#include "core/arena.h"
#include "core/toml_each.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

enum { FIX_NODES = 96, FIX_EDGES = 192, FIX_WEIGHTS = 96 };
typedef struct Block {
    InstanceNode nodes[FIX_NODES];
    InstanceEdge edges[FIX_EDGES];
    InstanceWeight weights[FIX_WEIGHTS];
    InstanceBinding bindings[FIX_WEIGHTS];
    InstanceState states[2];
    uint32_t n_nodes, n_edges, n_weights, n_states;
} Block;

static inline uint32_t fix_edge(Block *b, const char *name, uint32_t width)
{
    assert_true(b->n_edges < FIX_EDGES);
    b->edges[b->n_edges] = (InstanceEdge){.name = name, .width = width, .producer = -1};
    return b->n_edges++;
}

/* A node with its parameters at their defaults; in and out have the op's arity. */
static inline InstanceNode *fix_node(Block *b, const char *id, OpKind kind, const uint32_t *in, const uint32_t *out)
{
    const OpDef *op = op_def(kind);
    InstanceNode *node = &b->nodes[b->n_nodes];

    assert_true(b->n_nodes < FIX_NODES);
    *node = (InstanceNode){.id = id, .role = "", .op = op, .state = -1, .table = -1};
    for (uint32_t i = 0; i < op->n_in; i++)
        node->in[i] = in[i];
    for (uint32_t i = 0; i < op->n_out; i++) {
        node->out[i] = out[i];
        b->edges[out[i]].producer = (int32_t)b->n_nodes;
    }
    for (int i = 0; i < OP_MAX_WEIGHTS; i++)
        node->weight[i] = -1;
    for (uint32_t i = 0; i < op->n_params; i++)
        node->param[i] = op->params[i].default_value;
    b->n_nodes++;
    return node;
}

static inline void fix_param(InstanceNode *node, const char *name, double value)
{
    node->param[op_param(node->op, name)] = value;
}

/* A weight in the node's slot; the tensor is called as the weight. */
static inline void fix_weight(Block *b, InstanceNode *node, const char *slot, const char *name, uint64_t n, uint64_t k,
                              DType stored)
{
    int s = op_weight(node->op, slot);

    assert_true(b->n_weights < FIX_WEIGHTS && s >= 0);
    node->weight[s] = (int32_t)b->n_weights;
    b->weights[b->n_weights] =
        (InstanceWeight){.name = name, .n = n, .k = k, .vector = node->op->weights[s].vector, .stored = stored};
    b->bindings[b->n_weights].tensor = name;
    b->n_weights++;
}

static inline InstanceBlock fix_block(const Block *b, const char *name, uint32_t in, uint32_t out)
{
    return (InstanceBlock){.name = name,
                           .n_nodes = b->n_nodes,
                           .n_edges = b->n_edges,
                           .n_weights = b->n_weights,
                           .n_states = b->n_states,
                           .nodes = b->nodes,
                           .edges = b->edges,
                           .weights = b->weights,
                           .states = b->states,
                           .in_edge = in,
                           .out_edge = out};
}

/* ---- a small dense model ---------------------------------------------------------------------------------------- */

enum { HIDDEN = 64, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 16, FFN = 96, VOCAB = 320, LAYERS = 3 };

typedef struct Model {
    Instance in;
    Block stem, layer, head;
    InstanceBlock blocks[1];
    InstanceLayer layers[LAYERS];
    RopeSpec rope;
    InstanceDim dims[7];
} Model;

static inline uint32_t fix_linear(Block *b, const char *id, uint32_t in, uint32_t n, DType format)
{
    uint32_t out = fix_edge(b, id, n);
    InstanceNode *node = fix_node(b, id, OP_LINEAR, &in, &out);

    node->role = id;
    fix_weight(b, node, "weight", id, n, b->edges[in].width, format);
    return out;
}

static inline uint32_t fix_norm(Block *b, const char *id, uint32_t in)
{
    uint32_t out = fix_edge(b, id, b->edges[in].width);
    InstanceNode *node = fix_node(b, id, OP_RMS_NORM, &in, &out);

    fix_param(node, "eps", 1e-5);
    fix_weight(b, node, "weight", id, 1, b->edges[in].width, DT_F32);
    return out;
}

static inline uint32_t fix_add(Block *b, const char *id, uint32_t x, uint32_t y)
{
    uint32_t out = fix_edge(b, id, b->edges[x].width);

    fix_node(b, id, OP_RESIDUAL_ADD, (uint32_t[]){x, y}, &out);
    return out;
}

/* One dense layer with grouped-query attention and a gated MLP; every matrix in `format`, KV in `kv`. */
static inline InstanceBlock fix_layer(Block *b, DType format, DType kv)
{
    uint32_t x = fix_edge(b, "x", HIDDEN), h, q, k, v, q2, k2, a, x1, gate, up, act, out;
    InstanceNode *node;

    b->states[0] = (InstanceState){
        .name = "kv", .format = kv, .n_parts = 2, .parts = {{"k", KV_HEADS, HEAD_DIM}, {"v", KV_HEADS, HEAD_DIM}}};
    b->n_states = 1;
    h = fix_norm(b, "attn_norm", x);
    q = fix_linear(b, "q", h, HEADS * HEAD_DIM, format);
    k = fix_linear(b, "k", h, KV_HEADS * HEAD_DIM, format);
    v = fix_linear(b, "v", h, KV_HEADS * HEAD_DIM, format);
    q2 = fix_edge(b, "q.1", HEADS * HEAD_DIM);
    k2 = fix_edge(b, "k.1", KV_HEADS * HEAD_DIM);
    node = fix_node(b, "rope", OP_ROPE, (uint32_t[]){q, k}, (uint32_t[]){q2, k2});
    fix_param(node, "head_dim", HEAD_DIM);
    node->table = 0;
    node = fix_node(b, "kv", OP_KV_WRITE, (uint32_t[]){k2, v}, NULL);
    fix_param(node, "n_kv_heads", KV_HEADS);
    fix_param(node, "head_dim", HEAD_DIM);
    node->state = 0;
    a = fix_edge(b, "a", HEADS * HEAD_DIM);
    node = fix_node(b, "attn", OP_PAGED_ATTENTION, &q2, &a);
    fix_param(node, "scale", 0.25);
    fix_param(node, "n_heads", HEADS);
    fix_param(node, "n_kv_heads", KV_HEADS);
    fix_param(node, "head_dim", HEAD_DIM);
    node->state = 0;
    x1 = fix_add(b, "attn_add", x, fix_linear(b, "o", a, HIDDEN, format));
    h = fix_norm(b, "mlp_norm", x1);
    gate = fix_linear(b, "gate", h, FFN, format);
    up = fix_linear(b, "up", h, FFN, format);
    act = fix_edge(b, "act", FFN);
    fix_node(b, "act", OP_SILU_MUL, (uint32_t[]){gate, up}, &act);
    out = fix_add(b, "mlp_add", x1, fix_linear(b, "down", act, HIDDEN, format));
    return fix_block(b, "full", x, out);
}

static inline InstanceBlock fix_stem(Block *b, const char *tensor, DType format)
{
    uint32_t token = fix_edge(b, "token", 1), x = fix_edge(b, "x", HIDDEN);
    InstanceNode *node = fix_node(b, "embed", OP_EMBED, &token, &x);

    fix_weight(b, node, "weight", tensor, VOCAB, HIDDEN, format);
    return fix_block(b, "stem", token, x);
}

static inline InstanceBlock fix_head(Block *b, const char *tensor, DType format)
{
    uint32_t x = fix_edge(b, "x", HIDDEN), h = fix_norm(b, "final_norm", x), logits = fix_edge(b, "logits", VOCAB);
    InstanceNode *node = fix_node(b, "lm_head", OP_LM_HEAD, &h, &logits);

    fix_weight(b, node, "weight", tensor, VOCAB, HIDDEN, format);
    return fix_block(b, "head", x, logits);
}

/* Completes m around its stem, head and blocks[0]. */
static inline void fix_instance(Model *m)
{
    static const InstanceDim dims[] = {{"head_dim", HEAD_DIM}, {"hidden", HIDDEN},       {"ffn", FFN},
                                       {"n_heads", HEADS},     {"n_kv_heads", KV_HEADS}, {"n_layers", LAYERS},
                                       {"vocab", VOCAB}};

    memcpy(m->dims, dims, sizeof dims);
    m->rope = (RopeSpec){.dims = HEAD_DIM, .theta = 10000};
    m->in.arch = "small";
    m->in.model_type = "small";
    m->in.source = "small/config.json";
    m->in.dims = m->dims;
    m->in.n_dims = sizeof dims / sizeof *dims;
    m->in.blocks = m->blocks;
    m->in.n_blocks = 1;
    m->in.stem_bindings = m->stem.bindings;
    m->in.head_bindings = m->head.bindings;
    m->in.layers = m->layers;
    m->in.n_layers = LAYERS;
    m->in.ropes = &m->rope;
    m->in.n_ropes = 1;
    for (uint32_t i = 0; i < LAYERS; i++)
        m->layers[i] = (InstanceLayer){.block = 0, .bindings = m->layer.bindings, .state_base = i};
    m->in.n_states = LAYERS;
}

static inline Model *fix_model(DType format, DType kv)
{
    Model *m = calloc(1, sizeof *m);

    assert_non_null(m);
    m->in.stem = fix_stem(&m->stem, "embed", format);
    m->in.head = fix_head(&m->head, "embed", format);
    m->blocks[0] = fix_layer(&m->layer, format, kv);
    m->in.kv_format = kv;
    fix_instance(m);
    return m;
}

/* ---- kernel targets --------------------------------------------------------------------------------------------- */

#define HARDWARE_CPU                                                                                                   \
    "[hardware]\nname = \"cpu1\"\nvendor = \"cpu\"\narch = \"any\"\nbandwidth = 25\nactivation = \"f32\"\n"            \
    "launch_us = 1.0\n"

enum { FIX_OBJECTS = 1024, FIX_FILES = 16 };
typedef struct Kernels {
    KernelRegistry reg;
    KernelTarget target;
    EmbeddedFile files[FIX_FILES];
    KernelObject objects[FIX_OBJECTS];
    const char *layers[4];
    Arena *arena;
} Kernels;

static inline Kernels *fix_kernels(void)
{
    Kernels *k = calloc(1, sizeof *k);

    assert_non_null(k);
    k->arena = arena_new();
    assert_non_null(k->arena);
    k->target = (KernelTarget){.name = "cpu1/small/any",
                               .hw = "cpu1",
                               .model = "small",
                               .quant = "any",
                               .arch = "any",
                               .vendor = "cpu",
                               .layers = k->layers,
                               .objects = k->objects,
                               .hash = "00"};
    k->reg = (KernelRegistry){.targets = &k->target, .n_targets = 1, .files = k->files};
    return k;
}

static inline void fix_kernels_free(Kernels *k)
{
    arena_free(k->arena);
    free(k);
}

/* Adds a file, keeping the list sorted. */
static inline void fix_file(Kernels *k, const char *path, const char *text)
{
    size_t i = k->reg.n_files++;

    assert_true(i < FIX_FILES);
    for (; i > 0 && strcmp(k->files[i - 1].path, path) > 0; i--)
        k->files[i] = k->files[i - 1];
    k->files[i] = (EmbeddedFile){path, text, strlen(text)};
}

static inline int fix_by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* An object for each point of a FAMILIES.toml, as the build driver makes them. */
static inline void fix_objects(Kernels *k, const char *text)
{
    Toml *t = NULL;
    Err err = {{0}};
    const TomlNode *families, *points, *constants;

    if (toml_parse(text, strlen(text), "objects", &t, &err) != ST_OK || toml_each(t, &err) != ST_OK)
        fail_msg("%s", err.msg);
    families = toml_find(&t->root, "family");
    for (uint32_t i = 0; families != NULL && i < families->list.len; i++) {
        points = toml_find(&families->list.items[i], "point");
        for (uint32_t j = 0; points != NULL && j < points->list.len; j++) {
            const TomlNode *p = &points->list.items[j];
            const char *parts[16], *entry = toml_find(p, "entry")->str, *all = "";
            uint32_t n = 0;
            KernelObject *o = &k->objects[k->target.n_objects];
            constants = toml_find(p, "constants");
            for (; constants != NULL && n < constants->list.len; n++)
                parts[n] =
                    arena_printf(k->arena, "%s=%d", constants->list.items[n].key, (int)constants->list.items[n].i);
            qsort(parts, n, sizeof *parts, fix_by_text);
            for (uint32_t c = 0; c < n; c++)
                all = arena_printf(k->arena, "%s%s%s", all, c > 0 ? " " : "", parts[c]);
            if (target_object(&k->target, entry, all) != NULL)
                continue;
            assert_true(k->target.n_objects < FIX_OBJECTS);
            *o = (KernelObject){.entry = arena_strdup(k->arena, entry),
                                .module = arena_strdup(k->arena, toml_find(p, "module")->str),
                                .constants = all,
                                .hash = arena_printf(k->arena, "%032x", 7 * (unsigned)k->target.n_objects)};
            k->target.n_objects++;
        }
    }
    toml_free(t);
}

/* A layer with its tables; NULL leaves a table out. Objects come with it. First call is the uppermost layer. */
static inline void fix_layer_files(Kernels *k, const char *dir, const char *families, const char *rules)
{
    assert_true(k->target.n_layers < 4);
    k->layers[k->target.n_layers++] = dir;
    if (families != NULL) {
        fix_file(k, arena_printf(k->arena, "%s/FAMILIES.toml", dir), families);
        fix_objects(k, families);
    }
    if (rules != NULL)
        fix_file(k, arena_printf(k->arena, "%s/RULES.toml", dir), rules);
}

/* One common layer of a CPU class. */
static inline Kernels *fix_cpu(const char *families, const char *rules)
{
    Kernels *k = fix_kernels();

    fix_file(k, "kernels/cpu1/HARDWARE.toml", HARDWARE_CPU);
    fix_layer_files(k, "kernels/cpu1/common", families, rules);
    return k;
}

static inline FamilySet *fix_load(Kernels *k)
{
    FamilySet *fs = NULL;
    Err err = {{0}};

    if (families_load(&fs, &k->reg, &k->target, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return fs;
}

/* The message of a load that must fail. */
static inline void fix_load_fails(Kernels *k, const char *with)
{
    FamilySet *fs = NULL;
    Err err = {{0}};

    assert_int_not_equal(families_load(&fs, &k->reg, &k->target, &err), ST_OK);
    if (strstr(err.msg, with) == NULL)
        fail_msg("message '%s' does not say '%s'", err.msg, with);
    fix_kernels_free(k);
}

/* ---- families of a small CPU class ------------------------------------------------------------------------------ */

#define POINT(entry, rows, grid)                                                                                       \
    "[[family.point]]\nentry = \"" entry "\"\nmodule = \"m\"\nrows = " rows "\ngrid = [\"" grid                        \
    "\", \"1\", \"1\"]\nblock = 1\n"
#define FAMILY(id, op, more, args)                                                                                     \
    "[[family]]\nid = \"" id "\"\nop = \"" op "\"\n" more "args = [" args "]\nnumerics = \"f32\"\n"

#define F_EMBED                                                                                                        \
    FAMILY("embed_q", "embed", "formats = { weight = \"q4_1\" }\nlayout = \"n16\"\n",                                  \
           "\"y:out\", \"t:step.tokens\", \"w:weight\", \"rows\", \"hidden:out.width\", \"scale\"")                    \
    POINT("embed_1", "[1, 0]", "rows")
#define F_NORM(inplace)                                                                                                \
    FAMILY("norm_f", "rms_norm", inplace,                                                                              \
           "\"y:out\", \"x:in\", \"w:weight\", \"rows\", \"width:in.width\", \"eps\", \"offset\"")                     \
    POINT("norm_1", "[1, 0]", "rows")
#define F_ADD(inplace)                                                                                                 \
    FAMILY("add_f", "residual_add", inplace,                                                                           \
           "\"y:out\", \"a:in0\", \"b:in1\", \"rows\", \"width:in0.width\", \"scale\"")                                \
    POINT("add_1", "[1, 0]", "rows")
#define F_SILU                                                                                                         \
    FAMILY("silu_f", "silu_mul", "inplace = [\"out=in0\"]\n",                                                          \
           "\"y:out\", \"g:in0\", \"u:in1\", \"rows\", \"width:in0.width\"")                                           \
    POINT("silu_1", "[1, 0]", "rows")
#define F_QUANT                                                                                                        \
    FAMILY("quant_f", "act_quant", "formats = { out = \"i8/32\" }\n",                                                  \
           "\"y:out\", \"x:in\", \"rows\", \"width:in.width\"")                                                        \
    POINT("quant_1", "[1, 0]", "rows")
#define F_ROPE                                                                                                         \
    FAMILY("rope_f", "rope", "inplace = [\"out0=in0\", \"out1=in1\"]\n",                                               \
           "\"yq:out0\", \"yk:out1\", \"q:in0\", \"k:in1\", \"table\", \"pos:step.positions\", \"rows\", "             \
           "\"head_dim\", \"rotary:table.dims\", \"style\"")                                                           \
    POINT("rope_1", "[1, 0]", "rows")
#define F_KV                                                                                                           \
    FAMILY("kv_f", "kv_write", "formats = { state = \"f32\" }\n",                                                      \
           "\"k:in0\", \"v:in1\", \"kp:state.k\", \"vp:state.v\", \"slots:step.slots\", \"rows\", \"n_kv_heads\", "    \
           "\"head_dim\"")                                                                                             \
    POINT("kv_1", "[1, 0]", "rows")
#define F_ATTN                                                                                                         \
    FAMILY("attn_f", "paged_attention", "formats = { state = \"f32\" }\n",                                             \
           "\"y:out\", \"q:in\", \"kp:state.k\", \"vp:state.v\", \"bt:step.block_table\", \"sinks\", \"rows\", "       \
           "\"max_blocks\", \"scale\", \"window\", \"softcap\", \"scratch:workspace\"")                                \
    "[[family.point]]\nentry = \"attn_1\"\nmodule = \"m\"\nrows = [1, 0]\n"                                            \
    "grid = [\"rows\", \"n_kv_heads\", \"1\"]\nblock = 1\nsmem = \"4 * head_dim\"\n"                                   \
    "workspace = \"rows * n_heads * 8\"\n"
#define F_LINEAR                                                                                                       \
    FAMILY("linear_q", "linear", "formats = { weight = \"q4_1\", in = \"i8/32\" }\nlayout = \"n16\"\n",                \
           "\"y:out\", \"x:in\", \"w:weight\", \"b:bias\", \"rows\", \"n\", \"k\"")                                    \
    "[[family.point]]\nentry = \"linear_1\"\nmodule = \"m\"\nrows = [1, 1]\nconstants = { TILE = 16, ROWS = 1 }\n"     \
    "grid = [\"ceil(n, TILE)\", \"1\", \"1\"]\nblock = 1\n"                                                            \
    "[[family.point]]\nentry = \"linear_1\"\nmodule = \"m\"\nrows = [1, 0]\nconstants = { TILE = 16, ROWS = 8 }\n"     \
    "grid = [\"ceil(n, TILE)\", \"ceil(rows, ROWS)\", \"1\"]\nblock = 1\n"
#define F_HEAD                                                                                                         \
    FAMILY("head_q", "lm_head", "formats = { weight = \"q4_1\", in = \"i8/32\" }\nlayout = \"n16\"\n",                 \
           "\"y:out\", \"x:in\", \"w:weight\", \"src:step.out_rows\", \"outs\", \"n\", \"k\", \"scale\", \"softcap\"") \
    POINT("head_1", "[1, 0]", "ceil(n, 16)")

#define INPLACE "inplace = [\"out=in0\"]\n"
#define F_ALL   F_EMBED F_NORM("") F_ADD(INPLACE) F_SILU F_QUANT F_ROPE F_KV F_ATTN F_LINEAR F_HEAD

static inline LowerOptions fix_decode(uint32_t rows)
{
    return (LowerOptions){.shape = {.kind = SHAPE_DECODE,
                                    .min_rows = rows / 2 + 1,
                                    .max_rows = rows,
                                    .max_seqs = rows,
                                    .max_outs = rows,
                                    .max_len = 100}};
}

static inline LowerOptions fix_extend(uint32_t rows)
{
    return (LowerOptions){
        .shape = {.kind = SHAPE_EXTEND, .min_rows = 1, .max_rows = rows, .max_seqs = 4, .max_outs = 4, .max_len = 100}};
}

static inline Plan *fix_lower(const Instance *in, const FamilySet *fs, LowerOptions opt)
{
    Plan *p = NULL;
    Err err = {{0}};

    if (plan_lower(&p, in, fs, &opt, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return p;
}

static inline void fix_lower_fails(const Instance *in, const FamilySet *fs, LowerOptions opt, const char *with)
{
    Plan *p = NULL;
    Err err = {{0}};

    assert_int_not_equal(plan_lower(&p, in, fs, &opt, &err), ST_OK);
    if (strstr(err.msg, with) == NULL)
        fail_msg("message '%s' does not say '%s'", err.msg, with);
}

static inline const PlanArg *fix_arg(const PlanStep *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_args; i++)
        if (strcmp(s->args[i].name, name) == 0)
            return &s->args[i];
    fail_msg("family %s has no argument %s", s->family->id, name);
    return NULL;
}

/* The step that covers the node. */
static inline const PlanStep *fix_step(const PlanBlock *b, const char *node)
{
    for (uint32_t i = 0; i < b->n_steps; i++)
        for (uint32_t j = 0; j < b->steps[i].n_nodes; j++)
            if (strcmp(b->steps[i].nodes[j], node) == 0)
                return &b->steps[i];
    fail_msg("block %s: no step covers %s", b->name, node);
    return NULL;
}
#endif
