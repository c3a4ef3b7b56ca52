/* point_case.h - one rule of a target on one shape: a block with exactly the rule's pattern, random inputs, weights laid out as
 * the family wants them, KV pools and step tables. point_reference.h has what the reference functions make of it. No kernel
 * has a name here: everything follows from the rule, so that a family added to FAMILIES.toml is tested without a line of C.
 *
 * Widths. Variables that an op ties to one width share it (union-find). Attention's operands have the heads' widths; what a
 * matrix or a block format reads along k is a multiple of the block, at least 32; the rest is odd on purpose.
 *
 * Owns: its arena.   Thread: one. */
#ifndef METRALE_TESTS_POINT_CASE_H
#define METRALE_TESTS_POINT_CASE_H
#include "circuit/lowering.h"
#include "core/numeric.h"
#include "model/rope_table.h"
#include "random_rows.h"
#include "weights/decode.h"
#include "weights/layout.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct PointShape {
    uint32_t rows, seqs, outs, n, k, head_dim, n_heads, n_kv, rotary, window, past;
    bool extras;                   /* biases and sinks are there */
    bool interleaved;              /* rope's style */
    double scale, offset, softcap; /* of whatever op has such a parameter */
} PointShape;

/* Rows 1..10, 17, 24, 70, 200; tails of n; k of 1 to 273 blocks; heads of 16, 64, 80, 96, 128, 256 in groups of 1 to 8; one to three
 * sequences; windows that begin inside a block and that hold all; long KV. */
static const PointShape point_shapes[] = {
    {1, 1, 1, 16, 32, 64, 3, 1, 64, 0, 0, false, false, 1, 0, 0},
    {1, 1, 1, 49, 96, 80, 8, 1, 80, 0, 37, true, false, 1, 0, 0},
    {1, 1, 1, 56, 1536, 128, 4, 4, 128, 21, 333, false, true, 0.5, 1, 0},
    {2, 2, 2, 33, 64, 16, 3, 1, 8, 5, 15, true, true, 1, 1, 30},
    {3, 1, 1, 15, 32, 64, 9, 3, 64, 0, 0, false, false, 1, 0, 0},
    {4, 4, 4, 130, 576, 64, 9, 3, 64, 0, 200, false, false, 1, 0, 0},
    {5, 2, 2, 64, 128, 80, 8, 1, 64, 3, 14, true, false, 0.25, 0, 0},
    {6, 1, 3, 97, 160, 128, 16, 2, 128, 0, 1, true, false, 1, 0, 0},
    {7, 3, 7, 17, 32, 16, 2, 2, 16, 40, 60, false, true, 1, 0, 5},
    {8, 8, 8, 47, 320, 64, 3, 1, 32, 0, 31, false, false, 1, 0, 0},
    {9, 1, 9, 113, 96, 64, 9, 3, 64, 0, 7, false, false, 1, 0, 0},
    {17, 2, 2, 80, 192, 80, 6, 2, 80, 16, 20, true, false, 1, 1, 0},
    {17, 1, 17, 31, 64, 64, 9, 3, 64, 9, 100, false, false, 1, 0, 0},
    {70, 3, 20, 65, 64, 64, 9, 3, 64, 0, 0, false, false, 1, 0, 0},
    {70, 1, 1, 96, 576, 128, 8, 1, 128, 33, 90, true, false, 1, 0, 0},
    {3, 2, 2, 24, 96, 96, 4, 2, 96, 0, 140, true, false, 1, 0, 0},
    {2, 1, 1, 40, 64, 256, 4, 2, 64, 0, 270, false, false, 1, 0, 0},
    {1, 1, 1, 17, 8736, 64, 2, 1, 64, 0, 3, false, false, 1, 0, 0},
    {3, 3, 3, 16, 8736, 64, 2, 1, 64, 0, 3, false, false, 1, 0, 0},
    {200, 2, 150, 72, 160, 64, 3, 1, 64, 0, 9, true, false, 1, 0, 0},
    {24, 2, 2, 24, 64, 128, 4, 1, 64, 0, 700, true, false, 1, 0, 0},
    {10, 1, 1, 24, 64, 64, 6, 2, 64, 450, 610, false, false, 1, 0, 20},
};
enum { POINT_SHAPES = sizeof point_shapes / sizeof *point_shapes, CASE_MAX_WEIGHTS = 4 * RULE_MAX_NODES };

typedef struct PointCase {
    const PointShape *shape;
    PointShape own;  /* shape, where the rule wants another one than was asked for */
    uint32_t number; /* of the shape that was asked for */
    const FamilySet *fs;
    const Rule *rule;
    Arena *arena;
    Instance in;
    InstanceBlock block;
    LowerBlock lb;
    InstanceNode nodes[RULE_MAX_NODES];
    InstanceEdge edges[RULE_MAX_VARS];
    InstanceWeight weights[CASE_MAX_WEIGHTS];
    InstanceState state;
    InstanceDim dims[8];
    RopeSpec rope;
    RuleVar vars[RULE_MAX_VARS];
    DType formats[RULE_MAX_VARS];
    uint64_t before[RULE_MAX_NODES], readers[RULE_MAX_VARS];
    uint32_t n_vars, max_blocks, n_blocks;
    bool writes_kv, computed;       /* computed: value[], kv and expected_pool hold what the reference made */
    double *value[RULE_MAX_VARS];   /* [rows][width]: an input, or what the reference made */
    uint8_t *input[RULE_MAX_VARS];  /* an input's bytes; NULL for what a node makes */
    uint8_t *raw[CASE_MAX_WEIGHTS]; /* as a checkpoint stores it */
    float *dense[CASE_MAX_WEIGHTS]; /* its values; of a matrix by case_matrices() */
    uint8_t *laid[CASE_MAX_WEIGHTS];
    size_t laid_bytes[CASE_MAX_WEIGHTS], rope_bytes;
    float *rope_rows;
    int32_t *asked; /* [rows]: tokens as the step has them, some still to be taken from picks */
    int32_t *tokens, *positions, *slots, *row_seq, *seq_start, *table, *out_rows, *state_slots;
    SampleRow *samples;        /* [outs] */
    SampleEdit *edits;         /* [n_edits] */
    SamplePick *picks;         /* [outs]: of the step before */
    SamplePick *expected_pick; /* [outs]: as the reference leaves them */
    uint32_t n_edits;
    double *kv[2]; /* [seq][tokens][row of the part], rounded to the pool's format; of a recurrent state [seq][row] */
    uint8_t *pool[2], *expected_pool[2];
    size_t pool_bytes;
} PointCase;

static uint64_t case_seed;

static double case_random(void) /* uniform in -1..1 */
{
    case_seed = case_seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(int32_t)(case_seed >> 32) / 2147483648.0;
}

static void *case_alloc(PointCase *c, size_t n, size_t size)
{
    void *p = arena_alloc(c->arena, n ? n : 1, size);
    assert_non_null(p);
    return p;
}

/* ---- widths ------------------------------------------------------------------------------------------------------ */

static uint32_t group_of(const uint32_t *parent, uint32_t v)
{
    while (parent[v] != v)
        v = parent[v];
    return v;
}

/* Experts: n_heads of them are chosen; where the rule chooses, there is room for them in half of the groups. */
static uint32_t case_experts(const PointCase *c)
{
    for (uint32_t i = 0; i < c->rule->n_nodes; i++)
        if (c->nodes[i].op->kind == OP_TOP_K)
            return 4 * c->shape->n_heads;
    return 2 * c->shape->n_heads;
}

/* Rows of a state that fill no register. */
static uint32_t case_odd(const PointShape *s)
{
    return s->rotary + (s->extras ? 5 : 0);
}

/* Lines of a state, which are no multiple of sixteen if odd. */
static uint32_t case_ssm_dim(const PointShape *s)
{
    return s->head_dim - (s->extras ? 5 : 0);
}

static uint32_t case_taps(const PointShape *s)
{
    return s->interleaved ? 2 : 4;
}

enum { MLA_NOPE = 24, MLA_V = 20 };
static uint32_t case_latent(const PointShape *s) /* the reference expands it for every row, head and token */
{
    uint32_t most = s->rows > 32 ? 32 : s->rows > 3 ? 96 : 192;
    return s->k < most ? s->k : most;
}

/* What rows along k are a multiple of: the largest block of the family's formats, at least 32. */
static uint32_t case_unit(const Family *f)
{
    uint32_t unit = 32;

    for (uint32_t i = 0; i < f->n_formats; i++)
        if (dtype_block(f->formats[i].dtype) > unit)
            unit = dtype_block(f->formats[i].dtype);
    return unit;
}

/* The shape's k in whole blocks of the family's formats. */
static uint32_t case_k(const PointCase *c)
{
    uint32_t unit = case_unit(c->rule->family);
    return unit == 32 ? c->shape->k : unit * (1 + c->shape->k / 512);
}

static void case_widths(PointCase *c)
{
    const PointShape *s = c->shape;
    uint32_t unit = case_unit(c->rule->family), k = case_k(c);
    uint32_t parent[RULE_MAX_VARS], width[RULE_MAX_VARS] = {0}, n_odd = 0, n_even = 0;
    bool even[RULE_MAX_VARS] = {false}, made[RULE_MAX_VARS] = {false};

    for (uint32_t v = 0; v < c->n_vars; v++)
        parent[v] = v;
    for (uint32_t i = 0; i < c->rule->n_nodes; i++) {
        const InstanceNode *n = &c->nodes[i];
        const uint32_t *in = n->in, *out = n->out;
        switch (n->op->kind) {
        case OP_RESIDUAL_ADD:
        case OP_SILU_MUL:
        case OP_GELU_TANH_MUL:
        case OP_SWIGLU_CLAMP:
            parent[group_of(parent, in[1])] = group_of(parent, in[0]);
            parent[group_of(parent, out[0])] = group_of(parent, in[0]);
            break;
        case OP_RMS_NORM:
        case OP_QK_NORM:
        case OP_ACT_QUANT:
        case OP_PAGED_ATTENTION:
            parent[group_of(parent, out[0])] = group_of(parent, in[0]);
            break;
        case OP_ROPE:
            parent[group_of(parent, out[0])] = group_of(parent, in[0]);
            parent[group_of(parent, out[1])] = group_of(parent, in[1]);
            break;
        case OP_KV_WRITE:
            parent[group_of(parent, in[1])] = group_of(parent, in[0]);
            break;
        case OP_SIGMOID_GATE_MUL:
        case OP_RELU2:
        case OP_L2_NORM:
        case OP_CONV1D_UPDATE:
            parent[group_of(parent, out[0])] = group_of(parent, in[0]);
            break;
        case OP_GATED_RMS_NORM:
            parent[group_of(parent, out[0])] = group_of(parent, in[0]);
            parent[group_of(parent, in[1])] = group_of(parent, in[0]);
            break;
        case OP_GDN_GATES:
            parent[group_of(parent, in[1])] = group_of(parent, in[0]);
            break;
        case OP_GDN_RECURRENCE:
            parent[group_of(parent, in[1])] = group_of(parent, in[0]);
            parent[group_of(parent, out[0])] = group_of(parent, in[2]);
            break;
        case OP_TOP_K:
            parent[group_of(parent, out[1])] = group_of(parent, out[0]);
            break;
        case OP_SAMPLE:
            parent[group_of(parent, out[0])] = group_of(parent, in[0]);
            break;
        default:
            break;
        }
    }
    for (uint32_t i = 0; i < c->rule->n_nodes; i++) {
        const InstanceNode *n = &c->nodes[i];
        uint32_t in = group_of(parent, n->in[0]);
        switch (n->op->kind) {
        case OP_QK_NORM:
        case OP_PAGED_ATTENTION:
            width[in] = s->n_heads * s->head_dim;
            break;
        case OP_ROPE:
            width[in] = s->n_heads * s->head_dim;
            width[group_of(parent, n->in[1])] = s->n_kv * s->head_dim;
            break;
        case OP_KV_WRITE:
            width[in] = s->n_kv * s->head_dim;
            break;
        case OP_EMBED:
            width[in] = 1;
            even[group_of(parent, n->out[0])] = true;
            break;
        case OP_LINEAR:
        case OP_LM_HEAD:
        case OP_ACT_QUANT:
            even[in] = true;
            break;
        case OP_SAMPLE: /* a vocabulary: once of a real size */
            width[in] = s->k * (s->rows == 1 ? 97 : 11) + s->n;
            break;
        case OP_SPLIT:
            width[in] = s->n_heads * (s->n + 8);
            width[group_of(parent, n->out[0])] = s->n_heads * s->n;
            width[group_of(parent, n->out[1])] = s->n_heads * 8;
            break;
        case OP_SIGMOID_GATE_MUL: /* one gate for the row, or one for each element of a head */
            width[in] = s->n_heads * s->head_dim;
            width[group_of(parent, n->in[1])] = s->extras ? 1 : s->n_heads * s->head_dim;
            break;
        case OP_TOP_K:
            width[in] = case_experts(c);
            width[group_of(parent, n->out[0])] = s->n_heads;
            break;
        case OP_EXPERT_LINEAR: /* one input for all experts of a row, or one for each */
            width[in] = k * (s->extras ? s->n_heads : 1);
            width[group_of(parent, n->in[1])] = s->n_heads;
            width[group_of(parent, n->out[0])] = s->n_heads * s->n;
            break;
        case OP_EXPERT_ACT_QUANT:
            width[in] = k * (s->extras ? s->n_heads : 1);
            width[group_of(parent, n->in[1])] = s->n_heads;
            width[group_of(parent, n->out[0])] = s->n_heads * k;
            break;
        case OP_CONCAT:
            width[in] = s->n_heads * s->n;
            width[group_of(parent, n->in[1])] = s->n_heads * 8;
            width[group_of(parent, n->out[0])] = s->n_heads * (s->n + 8);
            break;
        case OP_L2_NORM:
        case OP_GATED_RMS_NORM:
            width[in] = s->n_heads * s->head_dim;
            break;
        case OP_GDN_GATES:
            width[in] = s->n_heads;
            width[group_of(parent, n->out[0])] = 2 * s->n_heads;
            break;
        case OP_GDN_RECURRENCE:
            width[in] = s->n_kv * s->head_dim;
            width[group_of(parent, n->in[2])] = s->n_heads * case_odd(s);
            width[group_of(parent, n->in[3])] = 2 * s->n_heads;
            break;
        case OP_SSM_UPDATE:
            width[in] = s->n_heads * case_ssm_dim(s) + 2 * s->n_kv * case_odd(s);
            width[group_of(parent, n->in[1])] = s->n_heads;
            width[group_of(parent, n->out[0])] = s->n_heads * case_ssm_dim(s);
            break;
        case OP_LATENT_WRITE:
            width[in] = case_latent(s);
            width[group_of(parent, n->in[1])] = s->rotary;
            break;
        case OP_MLA_ATTENTION:
            width[in] = s->n_heads * MLA_NOPE;
            width[group_of(parent, n->in[1])] = s->n_heads * s->rotary;
            width[group_of(parent, n->out[0])] = s->n_heads * MLA_V;
            break;
        case OP_BLEND:
            width[in] = s->n_heads * s->n;
            width[group_of(parent, n->in[1])] = s->n_heads;
            width[group_of(parent, n->out[0])] = s->n;
            break;
        default:
            break;
        }
    }
    for (uint32_t i = 0; i < c->rule->n_nodes; i++)
        if (c->nodes[i].op->kind == OP_LINEAR)
            made[group_of(parent, c->nodes[i].out[0])] = true;
    for (uint32_t v = 0; v < c->n_vars; v++) /* what matrices make is no wider than 512, lest they be k by k */
        if (group_of(parent, v) == v && width[v] == 0)
            width[v] = even[v] ? (made[v] && k > 512 ? 512 : k) + unit * n_even++ : s->n + 7 * n_odd++;
    for (uint32_t v = 0; v < c->n_vars; v++)
        c->edges[v].width = width[group_of(parent, v)];
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* The format that the family's point rounds inputs to. */
static ActFormat case_to(const PointCase *c)
{
    const FamilyPoint *p = c->rule->family->points;

    for (uint32_t i = 0; i < p->n_where; i++)
        if (strcmp(p->where_names[i], "to") == 0)
            return (ActFormat)p->where_values[i];
    return ACT_NARROW;
}

static double case_param(const PointCase *c, const OpDef *op, const ParamDef *p)
{
    const PointShape *s = c->shape;
    const ActFormat to = case_to(c);
    const struct {
        const char *name;
        double value;
    } values[] = {{"eps", 1e-5},
                  {"offset", s->offset},
                  {"group", s->head_dim},
                  {"head_dim", op->kind == OP_SSM_UPDATE ? case_ssm_dim(s) : s->head_dim},
                  {"n_heads", s->n_heads},
                  {"n_kv_heads", s->n_kv},
                  {"style", s->interleaved},
                  {"softcap", s->softcap},
                  {"k", s->n_heads}, /* of case_experts() */
                  {"scores", s->interleaved},
                  {"renormalize", s->extras},
                  {"sum_eps", 1e-3},
                  {"n_group", s->interleaved ? 4 : 1},
                  {"topk_group", s->interleaved ? 2 : 1},
                  {"alpha", 1.702},
                  {"limit", 0.7},
                  {"first", s->n},
                  {"groups", s->n_heads},
                  {"taps", case_taps(s)},
                  {"gate", s->interleaved},
                  {"decay", s->interleaved},
                  {"share", s->interleaved},
                  {"k_heads", s->n_kv},
                  {"v_heads", s->n_heads},
                  {"k_dim", s->head_dim},
                  {"v_dim", op->kind == OP_MLA_ATTENTION ? MLA_V : case_odd(s)},
                  {"n_groups", s->n_kv},
                  {"state_dim", case_odd(s)},
                  {"latent_dim", case_latent(s)},
                  {"rope_dim", s->rotary},
                  {"nope_dim", MLA_NOPE},
                  {"to", to},
                  {"span", to == ACT_NARROW ? 0
                           : to == ACT_E2M1 ? 16
                           : s->interleaved ? case_k(c)
                                            : 128},
                  {"row", to == ACT_NARROW ? 0 : case_k(c)},
                  {"inverse", to != ACT_NARROW && s->n_kv > 1},
                  {"window", s->window},
                  {"scale", op->kind == OP_PAGED_ATTENTION ? 1 / sqrt(s->head_dim) : s->scale}};

    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strcmp(values[i].name, p->name) == 0)
            return values[i].value;
    fail_msg("op %s has a parameter %s that no test shape sets; add it to point_case.h", op->name, p->name);
    return 0;
}

static void case_nodes(PointCase *c)
{
    for (uint32_t i = 0; i < c->rule->n_nodes; i++) {
        const RuleNode *r = &c->rule->nodes[i];
        InstanceNode *n = &c->nodes[i];
        *n = (InstanceNode){.id = r->as ? r->as : "node", .role = "", .op = r->op, .state = -1, .table = -1};
        for (uint32_t j = 0; j < r->op->n_in; j++)
            n->in[j] = (uint32_t)rule_var_find(c->vars, c->n_vars, r->in[j]);
        for (uint32_t j = 0; j < r->op->n_out; j++)
            n->out[j] = (uint32_t)rule_var_find(c->vars, c->n_vars, r->out[j]);
        for (uint32_t j = 0; j < OP_MAX_WEIGHTS; j++)
            n->weight[j] = -1;
        for (uint32_t j = 0; j < r->op->n_params; j++)
            n->param[j] = case_param(c, r->op, &r->op->params[j]);
        for (uint32_t j = 0; j < c->rule->n_where; j++) { /* roles and numbers that the rule asks for */
            uint32_t at;
            const char *rest;
            if (rule_node(c->rule, c->rule->where_names[j], &at, &rest) && at == i) {
                int p = op_param(r->op, rest);
                if (strcmp(rest, "role") == 0)
                    n->role = c->rule->where_values[j];
                else if (p >= 0 && r->op->params[p].type != PARAM_ENUM)
                    n->param[p] = atof(c->rule->where_values[j]);
            }
        }
        if (r->op->reads_state || r->op->writes_state)
            n->state = 0;
        if (r->op->reads_table)
            n->table = 0;
        c->writes_kv |= r->op->writes_state;
    }
}

static void case_order(PointCase *c)
{
    for (uint32_t i = 0; i < c->rule->n_nodes; i++) {
        const InstanceNode *n = &c->nodes[i];
        for (uint32_t j = 0; j < n->op->n_out; j++)
            c->edges[n->out[j]].producer = (int32_t)i;
    }
    for (uint32_t i = 0; i < c->rule->n_nodes; i++) {
        const InstanceNode *n = &c->nodes[i];
        for (uint32_t j = 0; j < n->op->n_in; j++) {
            if (c->edges[n->in[j]].producer >= 0)
                c->before[i] |= UINT64_C(1) << c->edges[n->in[j]].producer;
            c->readers[n->in[j]] |= UINT64_C(1) << i;
        }
        for (uint32_t j = 0; j < i; j++)
            if (n->state >= 0 && c->nodes[j].state == n->state && (n->op->writes_state || c->nodes[j].op->writes_state))
                c->before[i] |= UINT64_C(1) << j;
    }
}

static void case_formats(PointCase *c)
{
    for (uint32_t v = 0; v < c->n_vars; v++) {
        DType f = family_format(c->rule->family, c->vars[v].name);
        int32_t maker = c->edges[v].producer;
        if (f == DT_NONE && maker >= 0 && c->nodes[maker].op->kind == OP_ACT_QUANT)
            f = DT_I8_32; /* an inner value that the family does not list */
        if (f == DT_NONE)
            f = maker >= 0 && (c->nodes[maker].op->f32_out & 1) ? DT_F32 : c->fs->facts.activation;
        for (uint32_t i = 0; i < c->rule->n_nodes; i++) {
            const InstanceNode *n = &c->nodes[i];
            if (n->op->kind == OP_EMBED && n->in[0] == v)
                f = DT_I32;
            if ((n->op->kind == OP_EXPERT_LINEAR || n->op->kind == OP_EXPERT_ACT_QUANT) && n->in[1] == v)
                f = DT_I32;
            for (uint32_t j = 0; j < n->op->n_out; j++)
                if (n->out[j] == v && (n->op->i32_out >> j & 1))
                    f = DT_I32;
        }
        c->formats[v] = f;
    }
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

static uint64_t case_row_bytes(const PointCase *c, uint32_t edge)
{
    uint64_t bytes = 0;
    assert_true(dtype_row_bytes(c->formats[edge], c->edges[edge].width, &bytes));
    return bytes;
}

/* One f32 row to the bytes of a format and to the values that these bytes mean. */
static void case_encode(DType f, const float *row, uint32_t width, uint8_t *bytes, double *values)
{
    if (f == DT_I32) {
        for (uint32_t i = 0; i < width; i++) {
            memcpy(bytes + 4 * i, &(int32_t){(int32_t)row[i]}, 4);
            values[i] = (double)(int32_t)row[i];
        }
        return;
    }
    if (f == DT_F32) {
        memcpy(bytes, row, sizeof(float) * width);
        for (uint32_t i = 0; i < width; i++)
            values[i] = (double)row[i];
        return;
    }
    if (f == DT_BF16) {
        for (uint32_t i = 0; i < width; i++) {
            uint16_t x = f32_to_bf16(row[i]);
            memcpy(bytes + 2 * i, &x, 2);
            values[i] = (double)bf16_to_f32(x);
        }
        return;
    }
    if (f != DT_I8_32)
        fail_msg("edges in %s are not known to point_case.h; add them to case_encode and case_decode", dtype_name(f));
    for (uint32_t b = 0; b < width; b += 32, bytes += 40) {
        float top = 0;
        int32_t sum = 0;
        for (uint32_t i = 0; i < 32; i++)
            top = fmaxf(top, fabsf(row[b + i]));
        float d = top / 127.0f, inv = top > 0 ? 127.0f / top : 0;
        for (uint32_t i = 0; i < 32; i++) {
            int8_t q = (int8_t)nearbyintf(row[b + i] * inv);
            bytes[i] = (uint8_t)q;
            sum += q;
            values[b + i] = (double)d * q;
        }
        memcpy(bytes + 32, &d, 4);
        memcpy(bytes + 36, &sum, 4);
    }
}

/* The values that a row's bytes mean. */
static void case_decode(DType f, const uint8_t *bytes, uint32_t width, double *values)
{
    for (uint32_t i = 0; i < width; i++) {
        float x;
        if (f == DT_F32) {
            memcpy(&x, bytes + 4 * i, 4);
            values[i] = (double)x;
        } else if (f == DT_I32) {
            int32_t id;
            memcpy(&id, bytes + 4 * i, 4);
            values[i] = id;
        } else if (f == DT_BF16 || f == DT_F16) {
            uint16_t h;
            memcpy(&h, bytes + 2 * i, 2);
            values[i] = (double)(f == DT_F16 ? f16_to_f32(h) : bf16_to_f32(h));
        } else {
            const uint8_t *block = bytes + i / 32 * 40;
            memcpy(&x, block + 32, 4);
            values[i] = (double)x * (int8_t)block[i % 32];
        }
    }
}

/* Is the value a table of the step, the tokens, and no buffer? */
static bool case_tokens(const PointCase *c, uint32_t v)
{
    for (uint32_t i = 0; i < c->rule->n_nodes; i++)
        if (c->nodes[i].op->kind == OP_EMBED && c->nodes[i].in[0] == v)
            return true;
    return false;
}

/* Rows of logits: flat, peaked, of many equal ones, some ruled out. */
static void case_logits(uint32_t r, float *row, uint32_t width)
{
    for (uint32_t e = 0; e < width; e++) {
        row[e] *= r % 4 == 1 ? 12.0f : r % 4 == 2 ? 1.0f : 5.0f;
        if (r % 4 == 2)
            row[e] = floorf(4 * row[e]) / 4;
        if (r % 4 == 3 && e % 5 != 0)
            row[e] = -INFINITY;
    }
}

/* Keys and gates of a recurrence as what makes them leaves them: a state that grows from row to row would turn every
 * rounding into a large one. */
static void case_tame(const PointCase *c, uint32_t v, uint32_t r, float *row, uint32_t width)
{
    for (uint32_t i = 0; i < c->rule->n_nodes; i++) {
        const InstanceNode *n = &c->nodes[i];
        if (n->op->kind == OP_SAMPLE)
            case_logits(r, row, width);
        for (uint32_t e = 0; n->op->kind == OP_GDN_RECURRENCE && e < width; e++) {
            if (n->in[1] == v)
                row[e] /= sqrtf(2 * (float)c->shape->head_dim);
            if (n->in[3] == v)
                row[e] = 0.5f + fabsf(row[e]) / 6;
        }
    }
}

static void case_inputs(PointCase *c)
{
    for (uint32_t v = 0; v < c->n_vars; v++) {
        uint32_t width = c->edges[v].width;
        c->value[v] = case_alloc(c, (size_t)c->shape->rows * width, sizeof(double));
        if (c->edges[v].producer >= 0 || case_tokens(c, v))
            continue;
        float *row = case_alloc(c, width, sizeof *row);
        c->input[v] = case_alloc(c, c->shape->rows, case_row_bytes(c, v));
        for (uint32_t r = 0; r < c->shape->rows; r++) {
            for (uint32_t i = 0; i < width; i++) /* a block of zeros now and then; ids of distinct experts, some rare */
                row[i] = c->formats[v] == DT_I32  ? (float)((r % 5 * 3 + i) % case_experts(c))
                         : (r + i / 32) % 13 == 5 ? 0.0f
                                                  : (float)(case_random() * (i % 9 == 4 ? 3 : 1));
            case_tame(c, v, r, row, width);
            case_encode(c->formats[v], row, width, c->input[v] + r * case_row_bytes(c, v),
                        c->value[v] + (size_t)r * width);
        }
    }
}

/* Random stored bytes that hold finite values of a weight's usual size: scales are small, the rest is any bits. */
static void random_stored(DType t, uint64_t elements, uint8_t *out)
{
    static const struct {
        DType t;
        uint32_t d, m; /* where a block has its f16 scale and minimum; the same where it has no minimum */
        float size;    /* of the scale, such that weights are below about 0.2 */
    } scales[] = {{DT_Q8_0, 0, 0, 0.01f},    {DT_Q4_0, 0, 0, 0.01f},      {DT_Q4_1, 0, 2, 0.01f},
                  {DT_Q5_0, 0, 0, 0.01f},    {DT_Q5_1, 0, 2, 0.01f},      {DT_IQ4_NL, 0, 0, 0.001f},
                  {DT_Q2_K, 80, 82, 0.002f}, {DT_Q3_K, 108, 108, 0.001f}, {DT_Q4_K, 0, 2, 2e-4f},
                  {DT_Q5_K, 0, 2, 1e-4f},    {DT_Q6_K, 208, 208, 5e-5f},  {DT_IQ4_XS, 0, 0, 5e-5f}};
    uint32_t block = dtype_block(t), bytes = dtype_block_bytes(t);

    for (uint64_t i = 0; i < elements / block; i++, out += bytes) {
        float x = (float)case_random() * 0.2f;
        for (uint32_t j = 0; block > 1 && j < bytes; j++) {
            if (j % 4 == 0)
                case_random();
            out[j] = (uint8_t)(case_seed >> (32 + j % 4 * 8));
        }
        if (t == DT_F32)
            memcpy(out, &x, 4);
        else if (t == DT_F16 || t == DT_BF16)
            memcpy(out, &(uint16_t){t == DT_F16 ? f32_to_f16(x) : f32_to_bf16(x)}, 2);
        else if (t == DT_MXFP4)
            out[0] = (uint8_t)(120 + (int)(case_random() * 2));
        for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++)
            if (scales[s].t == t) {
                float m = (float)case_random() * (block == 256 ? 0.003f : 0.1f);
                memcpy(out + scales[s].m, &(uint16_t){f32_to_f16(m)}, 2);
                memcpy(out + scales[s].d, &(uint16_t){f32_to_f16(x * 5 * scales[s].size)}, 2);
            }
    }
}

static void case_dense(PointCase *c, uint32_t at)
{
    const InstanceWeight *w = &c->weights[at];
    uint64_t row_bytes = 0;

    assert_true(dtype_row_bytes(w->stored, w->k, &row_bytes));
    c->dense[at] = case_alloc(c, w->n * w->k, sizeof(float));
    for (uint64_t r = 0; r < w->n; r++)
        assert_true(dtype_row_to_f32(w->stored, c->raw[at] + r * row_bytes, w->k, c->dense[at] + r * w->k));
}

/* The values of the matrices, which only the reference asks for. */
static void case_matrices(PointCase *c)
{
    for (uint32_t i = 0; i < c->block.n_weights; i++)
        if (c->dense[i] == NULL)
            case_dense(c, i);
}

static void case_weight(PointCase *c, InstanceNode *node, uint32_t slot, uint64_t n, uint64_t k, DType stored)
{
    uint32_t at = c->block.n_weights++;
    bool vector = node->op->weights[slot].vector;
    WeightLayout layout = LAYOUT_F32;
    uint64_t row_bytes = 0, laid = 0, rows;

    if (!vector)
        assert_true(layout_parse(c->rule->family->layout, &layout));
    c->weights[at] =
        (InstanceWeight){.name = node->op->weights[slot].name, .n = n, .k = k, .vector = vector, .stored = stored};
    node->weight[slot] = (int32_t)at;
    assert_true(dtype_row_bytes(stored, k, &row_bytes) && layout_bytes(layout, stored, n, k, &laid));
    /* Experts, one behind the other, each laid out for itself; a vector of theirs is one row. */
    const uint32_t experts = node->op->weights[slot].experts && !vector ? case_experts(c) : 1;
    c->raw[at] = case_alloc(c, experts * n, row_bytes);
    c->laid[at] = case_alloc(c, experts * laid, 1);
    c->laid_bytes[at] = experts * laid;
    rows = layout_rows(layout);
    for (uint32_t e = 0; e < experts; e++) {
        uint8_t *raw = c->raw[at] + e * n * row_bytes;
        if (!random_rows(stored, n, k, raw, case_random))
            random_stored(stored, n * k, raw);
        for (uint64_t r = 0; r < n; r += rows)
            layout_piece(layout, stored, k, (uint32_t)(n - r < rows ? n - r : rows), raw + r * row_bytes,
                         c->laid[at] + e * laid + laid / ((n + rows - 1) / rows) * (r / rows));
    }
    if (node->op->weights[slot].experts)
        c->weights[at].experts = case_experts(c);
    c->weights[at].n *= experts;
    if (vector)
        case_dense(c, at);
}

/* Static scales: positive, such that some inputs are beyond what the format holds and most are not. */
static void case_scales(PointCase *c, const InstanceNode *n, uint32_t len)
{
    const ActFormat to = case_to(c);
    float *dense = c->dense[n->weight[0]];

    for (uint32_t i = 0; i < len; i++) {
        float largest = to == ACT_E4M3 ? 448 : to == ACT_I8 ? 127 : 6 * 448, scale = (2.2f + dense[i]) / largest;
        dense[i] = n->param[op_param(n->op, "inverse")] != 0 ? 1 / scale : scale;
    }
    memcpy(c->laid[n->weight[0]], dense, sizeof(float) * len);
}

static void case_weights(PointCase *c)
{
    char name[128];

    for (uint32_t i = 0; i < c->rule->n_nodes; i++) {
        InstanceNode *n = &c->nodes[i];
        for (uint32_t w = 0; w < n->op->n_weights; w++) {
            const WeightDef *def = &n->op->weights[w];
            uint32_t in = c->edges[n->in[0]].width, out = c->edges[n->out[0]].width;
            if (def->optional && (!c->shape->extras || (n->op->kind == OP_ACT_QUANT && case_to(c) == ACT_NARROW)))
                continue;
            if (n->op->kind == OP_EXPERT_LINEAR) {
                out = c->shape->n;
                in = case_k(c);
            }
            if (!def->vector) {
                assert_true(rule_slot_name(c->rule, i, def->name, name, sizeof name));
                DType stored = family_format(c->rule->family, name);
                assert_true(stored != DT_NONE);
                if (n->op->kind == OP_MLA_ATTENTION) {
                    out = c->shape->n_heads * (MLA_NOPE + MLA_V);
                    in = case_latent(c->shape);
                }
                case_weight(c, n, w, n->op->kind == OP_EMBED ? c->shape->n : out, n->op->kind == OP_EMBED ? out : in,
                            stored);
            } else {
                uint32_t len = n->op->kind == OP_QK_NORM            ? c->shape->head_dim
                               : n->op->kind == OP_PAGED_ATTENTION  ? c->shape->n_heads
                               : n->op->kind == OP_GDN_GATES        ? c->shape->n_heads
                               : n->op->kind == OP_SSM_UPDATE       ? c->shape->n_heads
                               : n->op->kind == OP_GATED_RMS_NORM   ? (c->shape->extras ? in : c->shape->head_dim)
                               : n->op->kind == OP_CONV1D_UPDATE    ? (w == 0 ? in * case_taps(c->shape) : in)
                               : n->op->kind == OP_TOP_K            ? case_experts(c)
                               : n->op->kind == OP_ACT_QUANT        ? 1
                               : n->op->kind == OP_EXPERT_ACT_QUANT ? case_experts(c)
                               : n->op->kind == OP_EXPERT_LINEAR    ? case_experts(c) * out
                                                                    : out;
                case_weight(c, n, w, 1, len, DT_F32);
                if (n->op->kind == OP_ACT_QUANT || n->op->kind == OP_EXPERT_ACT_QUANT)
                    case_scales(c, n, len);
            }
        }
    }
}

/* ---- the step and its state --------------------------------------------------------------------------------------- */

static void case_step(PointCase *c)
{
    const PointShape *s = c->shape;
    uint32_t len = 0;

    c->tokens = case_alloc(c, s->rows, 4);
    c->asked = case_alloc(c, s->rows, 4);
    c->positions = case_alloc(c, s->rows, 4);
    c->slots = case_alloc(c, s->rows, 4);
    c->row_seq = case_alloc(c, s->rows, 4);
    c->seq_start = case_alloc(c, s->seqs + 1, 4);
    c->out_rows = case_alloc(c, s->outs, 4);
    c->state_slots = case_alloc(c, s->seqs, 4);
    for (uint32_t q = 0; q < s->seqs; q++) /* backwards, with one free slot below and one above */
        c->state_slots[q] = (int32_t)(s->seqs - q);
    for (uint32_t q = 0, r = 0; q < s->seqs; q++) {
        uint32_t n = s->rows / s->seqs + (q < s->rows % s->seqs), past = s->past + 13 * q;
        c->seq_start[q] = (int32_t)r;
        for (uint32_t i = 0; i < n; i++, r++) {
            c->tokens[r] = (int32_t)((r * 7 + 3) % s->n);
            c->positions[r] = (int32_t)(past + i);
            c->row_seq[r] = (int32_t)q;
        }
        len = past + n > len ? past + n : len;
    }
    c->seq_start[s->seqs] = (int32_t)s->rows;
    for (uint32_t o = 0; o < s->outs; o++)
        c->out_rows[o] = (int32_t)((o + 1) * s->rows / s->outs - 1);
    c->max_blocks = (len + 15) / 16 + 1; /* the last entry of each table is never used */
    c->n_blocks = s->seqs * c->max_blocks + 3;
    c->table = case_alloc(c, (size_t)s->seqs * c->max_blocks, 4);
    for (uint32_t i = 0; i < s->seqs * c->max_blocks; i++) /* scattered; what is unused leads far outside */
        c->table[i] = i % c->max_blocks == c->max_blocks - 1 ? INT32_MAX / 2 : (int32_t)((i * 5 + 2) % c->n_blocks);
    if (c->n_blocks % 5 == 0)
        for (uint32_t i = 0; i < s->seqs * c->max_blocks; i++)
            if (c->table[i] < INT32_MAX / 2)
                c->table[i] = (int32_t)(c->n_blocks - 1 - i);
    for (uint32_t r = 0; r < s->rows; r++)
        c->slots[r] = c->table[(uint32_t)c->row_seq[r] * c->max_blocks + (uint32_t)c->positions[r] / 16] * 16 +
                      c->positions[r] % 16;
}

/* What each output wants: all ways of cutting, alone and together, with and without edits, whose tokens are distinct in each list;
 * the row's own token is in one now and then. */
static void case_samples(PointCase *c, uint32_t vocab)
{
    const uint32_t outs = c->shape->outs;

    c->samples = case_alloc(c, outs, sizeof *c->samples);
    c->picks = case_alloc(c, outs, sizeof *c->picks);
    c->expected_pick = case_alloc(c, outs, sizeof *c->expected_pick);
    c->edits = case_alloc(c, outs * 40, sizeof *c->edits);
    for (uint32_t o = 0; o < outs; o++) {
        const uint32_t kind = o + c->number;
        SampleRow *s = &c->samples[o];
        *s = (SampleRow){.wants = o % 9 == 8 ? 0 : SAMPLE_TOKEN | (kind % 2 ? SAMPLE_TOTAL : 0),
                         .temperature = kind % 5 == 0   ? 0
                                        : kind % 5 == 4 ? 1e-3f
                                                        : 0.4f * (float)(kind % 5),
                         .top_p = kind % 3 == 1   ? 0xe6666666u
                                  : kind % 7 == 2 ? 1u
                                                  : 0,
                         .min_p = kind % 4 == 3 ? 0.03f : 0,
                         .top_k = kind % 6 == 2    ? 40
                                  : kind % 6 == 3  ? (int32_t)vocab - 3
                                  : kind % 11 == 4 ? 1
                                                   : 0,
                         .repetition_penalty = 1.3f,
                         .frequency_penalty = 0.3f,
                         .presence_penalty = 0.7f,
                         .random_low = (uint32_t)((case_random() + 1) * 2147483647.0),
                         .random_high = (uint32_t)((case_random() + 1) * 2147483647.0),
                         .first_edit = c->n_edits,
                         .n_bias = kind % 2 ? 9 : 0,
                         .n_seen = kind % 3 ? 31 : 0,
                         .penalties = kind % 3 > 0,
                         .in_prompt = kind % 4 == 0};
        c->picks[o] = (SamplePick){o % 3 ? c->tokens[c->out_rows[o]] : -7, 7, 7, 7};
        for (uint32_t i = 0; i < s->n_bias; i++, c->n_edits++) {
            const float bias = i == 4 ? -100.0f : (float)case_random() * 3;
            c->edits[c->n_edits].token = (int32_t)((i * (vocab / 9) + o) % vocab);
            memcpy(&c->edits[c->n_edits].value, &bias, sizeof bias);
        }
        for (uint32_t i = 0; i < s->n_seen; i++, c->n_edits++)
            c->edits[c->n_edits] =
                (SampleEdit){.token = (int32_t)(i == 30 && o % 2 ? (uint32_t)c->tokens[c->out_rows[o]]
                                                                 : vocab - 1 - i * (vocab / 64)),
                             .value = (i % 3) | (i % 4 == 0 || i % 3 == 0 ? SAMPLE_IN_PROMPT : 0)};
    }
}

/* The step's tokens; a run may put what it took from picks in their place. */
static const int32_t *case_asked(const PointCase *c)
{
    memcpy(c->asked, c->tokens, c->shape->rows * sizeof *c->asked);
    for (uint32_t o = 0; c->nodes[0].op->kind == OP_EMBED && o < c->shape->outs; o++)
        if (o % 3)
            c->asked[c->out_rows[o]] = -1 - (int32_t)o;
    return c->asked;
}

/* Where element d of head h of a slot is: [block][n_kv_heads][16][head_dim], but K on CPUs [block][n_kv_heads][head_dim][16]. */
static size_t pool_at(const PointCase *c, int part, int32_t slot, uint32_t h, uint32_t d)
{
    size_t head = ((size_t)(slot / 16) * c->shape->n_kv + h) * c->shape->head_dim * 16, t = (size_t)slot % 16;
    bool turned = part == 0 && strcmp(c->fs->target->vendor, "cpu") == 0;
    return head + (turned ? (size_t)d * 16 + t : t * c->shape->head_dim + d);
}

static void pool_put(const PointCase *c, uint8_t *pool, size_t at, float x)
{
    if (c->state.format == DT_F32)
        memcpy(pool + 4 * at, &x, 4);
    else
        memcpy(pool + 2 * at, &(uint16_t){c->state.format == DT_F16 ? f32_to_f16_saturated(x) : f32_to_bf16(x)}, 2);
}

/* What the pool keeps of x. */
static double pool_keeps(const PointCase *c, float x)
{
    switch (c->state.format) {
    case DT_F16:
        return (double)f16_to_f32(f32_to_f16_saturated(x));
    case DT_BF16:
        return (double)bf16_to_f32(f32_to_bf16(x));
    default:
        return (double)x;
    }
}

static void pool_put_row(const PointCase *c, uint8_t *pool, int part, int32_t slot, const double *row)
{
    for (uint32_t h = 0; h < c->shape->n_kv; h++)
        for (uint32_t d = 0; d < c->shape->head_dim; d++)
            pool_put(c, pool, pool_at(c, part, slot, h, d), (float)row[h * c->shape->head_dim + d]);
}

/* One slot for each sequence; whoever begins here finds NaN. */
static void case_recurrent(PointCase *c, const InstanceNode *n)
{
    const PointShape *s = c->shape;
    uint32_t heads = s->n_heads, width = (n->op->kind == OP_SSM_UPDATE ? case_ssm_dim(s) : s->head_dim) * case_odd(s);

    if (n->op->kind == OP_CONV1D_UPDATE) {
        heads = case_taps(s) - 1;
        width = c->edges[n->in[0]].width;
    }
    c->state = (InstanceState){.name = "state", .kind = STATE_RECURRENT, .format = DT_F32, .n_parts = 1};
    c->state.parts[0] = (InstanceStatePart){"s", heads, width};
    width *= heads;
    c->pool_bytes = (size_t)(s->seqs + 2) * width * sizeof(float);
    c->pool[0] = case_alloc(c, c->pool_bytes, 1);
    c->kv[0] = case_alloc(c, (size_t)s->seqs * width, sizeof(double));
    memset(c->pool[0], 0xff, c->pool_bytes);
    for (uint32_t q = 0; q < s->seqs; q++)
        for (uint32_t i = 0; c->positions[c->seq_start[q]] > 0 && i < width; i++) {
            float x = (float)case_random();
            c->kv[0][(size_t)q * width + i] = (double)x;
            memcpy(c->pool[0] + ((size_t)c->state_slots[q] * width + i) * sizeof x, &x, sizeof x);
        }
}

/* Latents: [block][16][row]. */
static void case_latents(PointCase *c, DType format)
{
    const PointShape *s = c->shape;
    uint32_t width = case_latent(s) + s->rotary, tokens = c->max_blocks * 16;

    c->state = (InstanceState){.name = "latent", .format = format, .n_parts = 1};
    c->state.parts[0] = (InstanceStatePart){"c", 1, width};
    c->pool_bytes = (size_t)c->n_blocks * 16 * width * dtype_block_bytes(format);
    c->pool[0] = case_alloc(c, c->pool_bytes, 1);
    c->expected_pool[0] = case_alloc(c, c->pool_bytes, 1);
    c->kv[0] = case_alloc(c, (size_t)s->seqs * tokens * width, sizeof(double));
    memset(c->pool[0], 0xff, c->pool_bytes);
    for (uint32_t q = 0; q < s->seqs; q++) {
        int32_t end = c->positions[c->seq_start[q + 1] - 1] + 1, known = c->positions[c->seq_start[q]];
        for (int32_t p = 0; p < (c->writes_kv ? known : end); p++)
            for (uint32_t i = 0; i < width; i++) {
                int32_t slot = c->table[q * c->max_blocks + (uint32_t)p / 16] * 16 + p % 16;
                float x = (float)case_random();
                pool_put(c, c->pool[0], (size_t)slot * width + i, x);
                c->kv[0][((size_t)q * tokens + (size_t)p) * width + i] = pool_keeps(c, x);
            }
    }
    memcpy(c->expected_pool[0], c->pool[0], c->pool_bytes);
}

/* All slots that no token owns are NaN; a block that writes KV finds only the past there. */
static void case_state(PointCase *c)
{
    const PointShape *s = c->shape;
    uint32_t width = s->n_kv * s->head_dim, tokens = c->max_blocks * 16;
    char name[128];
    uint32_t at = 0;

    while (at < c->rule->n_nodes && c->nodes[at].state < 0)
        at++;
    if (at == c->rule->n_nodes)
        return;
    assert_true(rule_slot_name(c->rule, at, "state", name, sizeof name));
    c->state = (InstanceState){.name = "kv", .format = family_format(c->rule->family, name), .n_parts = 2};
    assert_true(c->state.format == DT_F32 || c->state.format == DT_F16 || c->state.format == DT_BF16);
    c->block.n_states = 1;
    OpKind kind = c->nodes[at].op->kind;
    if (kind == OP_CONV1D_UPDATE || kind == OP_GDN_RECURRENCE || kind == OP_SSM_UPDATE) {
        case_recurrent(c, &c->nodes[at]);
        return;
    }
    if (kind == OP_LATENT_WRITE || kind == OP_MLA_ATTENTION) {
        case_latents(c, c->state.format);
        return;
    }
    c->pool_bytes = (size_t)c->n_blocks * 16 * width * dtype_block_bytes(c->state.format);
    for (int part = 0; part < 2; part++) {
        c->state.parts[part] = (InstanceStatePart){part ? "v" : "k", s->n_kv, s->head_dim};
        c->pool[part] = case_alloc(c, c->pool_bytes, 1);
        c->expected_pool[part] = case_alloc(c, c->pool_bytes, 1);
        c->kv[part] = case_alloc(c, (size_t)s->seqs * tokens * width, sizeof(double));
        memset(c->pool[part], 0xff, c->pool_bytes);
        for (uint32_t q = 0; q < s->seqs; q++) {
            int32_t end = c->positions[c->seq_start[q + 1] - 1] + 1, known = c->positions[c->seq_start[q]];
            for (int32_t p = 0; p < (c->writes_kv ? known : end); p++) {
                double *row = c->kv[part] + ((size_t)q * tokens + (size_t)p) * width;
                for (uint32_t i = 0; i < width; i++) {
                    float x = (float)case_random();
                    row[i] = pool_keeps(c, x);
                }
                pool_put_row(c, c->pool[part], part, c->table[q * c->max_blocks + (uint32_t)p / 16] * 16 + p % 16, row);
            }
        }
        memcpy(c->expected_pool[part], c->pool[part], c->pool_bytes);
    }
}

static void case_rope(PointCase *c)
{
    uint32_t len = c->max_blocks * 16;
    bool reads = false;
    Err err;

    c->rope = (RopeSpec){.kind = ROPE_DEFAULT, .dims = c->shape->rotary, .theta = 10000, .factor = 1};
    for (uint32_t i = 0; i < c->rule->n_nodes; i++)
        reads |= c->nodes[i].table >= 0;
    if (!reads)
        return;
    c->rope_rows = case_alloc(c, (size_t)len * c->rope.dims, sizeof(float));
    c->rope_bytes = (size_t)len * c->rope.dims * sizeof(float);
    if (rope_table_fill(&c->rope, NULL, len, c->rope_rows, &err) != ST_OK)
        fail_msg("%s", err.msg);
}

/* Has every edge whole rows in its format? Attention's operands have heads of any size, blocks have 32 elements. */
static bool case_fits(const PointCase *c)
{
    uint64_t bytes;

    for (uint32_t v = 0; v < c->n_vars; v++)
        if (!dtype_row_bytes(c->formats[v], c->edges[v].width, &bytes))
            return false;
    return true;
}

/* False: the shape does not fit the rule. To be freed in any case. */
static bool case_new(PointCase *c, const FamilySet *fs, const Rule *rule, const PointShape *shape)
{
    *c = (PointCase){.shape = shape, .fs = fs, .rule = rule, .arena = arena_new()};
    assert_non_null(c->arena);
    c->number = (uint32_t)(shape - point_shapes);
    case_seed = 1 + (uint64_t)c->number;
    if (rule->nodes[0].op->kind == OP_SAMPLE) { /* its input has a row for each output: let that be each row */
        c->own = *shape;
        c->own.outs = shape->rows;
        c->shape = &c->own;
    }
    c->n_vars = rule_vars(rule, c->vars);
    for (uint32_t v = 0; v < c->n_vars; v++)
        c->edges[v] = (InstanceEdge){.name = c->vars[v].name, .producer = -1};
    case_nodes(c);
    case_order(c);
    case_formats(c);
    case_widths(c);
    if (!case_fits(c))
        return false;
    case_inputs(c);
    case_weights(c);
    case_step(c);
    case_samples(c, rule->nodes[0].op->kind == OP_SAMPLE ? c->edges[c->nodes[0].in[0]].width : 100);
    case_state(c);
    case_rope(c);

    const InstanceDim dims[] = {
        {"head_dim", shape->head_dim}, {"n_heads", shape->n_heads}, {"n_kv_heads", shape->n_kv}};
    memcpy(c->dims, dims, sizeof dims);
    c->in = (Instance){.arch = "test", .source = "test", .dims = c->dims, .n_dims = 3, .ropes = &c->rope, .n_ropes = 1};
    c->block.name = "test";
    c->block.n_nodes = rule->n_nodes;
    c->block.n_edges = c->n_vars;
    c->block.nodes = c->nodes;
    c->block.edges = c->edges;
    c->block.weights = c->weights;
    c->block.states = &c->state;
    c->block.in_edge = c->block.out_edge = UINT32_MAX;
    c->lb = (LowerBlock){
        .block = &c->block, .role = BLOCK_LAYER, .formats = c->formats, .before = c->before, .readers = c->readers};
    for (uint32_t v = 0; v < c->n_vars; v++)
        if (case_tokens(c, v)) {
            c->lb.role = BLOCK_STEM;
            c->block.in_edge = v;
        }
    return true;
}

static void case_free(PointCase *c)
{
    arena_free(c->arena);
}

static uint32_t case_edge_rows(const PointCase *c, uint32_t edge)
{
    int32_t maker = c->edges[edge].producer;
    return maker >= 0 && c->nodes[maker].op->on_outputs ? c->shape->outs : c->shape->rows;
}
#endif
