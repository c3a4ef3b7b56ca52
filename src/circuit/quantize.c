/* quantize.c - puts act_quant nodes into a copy of a block, and gives every edge its format.
 *
 * Two kinds of nodes have this op. What a checkpoint asks for is in the block already and is kept: it says what is
 * computed. What this pass adds is narrow: it says how this class computes it.
 *
 * A linear (also the head's and the experts') whose weight format is read by a family that wants its input narrower than the class's activations gets an
 * act_quant node in front of it; linears that read one edge in one format share the node. After this pass the format
 * of every edge is fixed, and matching only compares. */
#include "circuit/lowering.h"
#include <string.h>

/* Ops whose first input meets a matrix. */
static bool op_multiplies(const OpDef *op)
{
    return op->kind == OP_LINEAR || op->kind == OP_LM_HEAD || op->kind == OP_EXPERT_LINEAR;
}

/* The format in which the first family that fits reads the input of a linear, or the class's when none says otherwise.
 */
static DType wanted_input(const Lowering *l, const InstanceBlock *src, const InstanceNode *node)
{
    DType activation = l->fs->facts.activation;

    if (!op_multiplies(node->op) || node->weight[0] < 0)
        return activation;
    for (uint32_t i = 0; i < l->fs->n_families; i++) {
        const Family *f = &l->fs->families[i];
        DType in;
        uint64_t bytes;
        bool holds = false;
        if (f->op != node->op || family_format(f, "weight") != src->weights[node->weight[0]].stored)
            continue;
        for (uint32_t p = 0; p < f->n_points && !holds; p++)
            holds = lower_point_holds(&f->points[p], &l->opt->shape, node->op->on_outputs);
        in = family_format(f, node->op->n_in == 1 ? "in" : "in0");
        if (in == DT_NONE)
            in = activation;
        if (holds && dtype_row_bytes(in, src->weights[node->weight[0]].k, &bytes))
            return in;
    }
    return activation;
}

/* The format that the op which makes the edge leaves it in, or `otherwise`. */
static DType made_as(const InstanceBlock *src, uint32_t edge, DType otherwise)
{
    int32_t maker = src->edges[edge].producer;
    const InstanceNode *n = maker >= 0 ? &src->nodes[maker] : NULL;

    for (uint32_t i = 0; n != NULL && i < n->op->n_out; i++)
        if (n->out[i] == edge && (n->op->i32_out >> i & 1))
            return DT_I32;
        else if (n->out[i] == edge && (n->op->f32_out >> i & 1))
            return DT_F32;
    return otherwise;
}

static DType plain_format(const Lowering *l, const InstanceBlock *src, BlockRole role, uint32_t edge)
{
    if (role == BLOCK_STEM && edge == src->in_edge)
        return DT_I32;
    if (role == BLOCK_HEAD && edge == src->out_edge)
        return DT_F32;
    return made_as(src, edge, l->fs->facts.activation);
}

static ActFormat act_format(const InstanceNode *node)
{
    return (ActFormat)node->param[op_param(node->op, "to")];
}

/* int8 codes under a scale for whole blocks of 32 are i8/32 as they are, when all that read them want that. */
static bool made_narrow(const Lowering *l, const InstanceBlock *src, uint32_t edge)
{
    const int32_t at = src->edges[edge].producer;
    const InstanceNode *maker = at >= 0 ? &src->nodes[at] : NULL;
    uint64_t span, row;

    if (maker == NULL || maker->op->kind != OP_ACT_QUANT || act_format(maker) != ACT_I8)
        return false;
    span = (uint64_t)maker->param[op_param(maker->op, "span")];
    row = (uint64_t)maker->param[op_param(maker->op, "row")];
    if (row % 32 != 0 || (span < row && span % 32 != 0))
        return false;
    for (uint32_t i = 0; i < src->n_nodes; i++)
        for (uint32_t k = 0; k < src->nodes[i].op->n_in; k++)
            if (src->nodes[i].in[k] == edge && (k > 0 || wanted_input(l, src, &src->nodes[i]) != DT_I8_32))
                return false;
    return true;
}

/* The edge that holds `edge` in `format`, when an earlier linear asked for it; -1 otherwise. */
static int32_t quantized_edge(const InstanceBlock *b, const DType *formats, uint32_t n_nodes, uint32_t edge,
                              DType format)
{
    for (uint32_t i = 0; i < n_nodes; i++)
        if (b->nodes[i].op->kind == OP_ACT_QUANT && act_format(&b->nodes[i]) == ACT_NARROW &&
            b->nodes[i].in[0] == edge && formats[b->nodes[i].out[0]] == format)
            return (int32_t)b->nodes[i].out[0];
    return -1;
}

/* Which nodes must come before each node: the makers of its inputs, and for states every earlier writer (and, for a
 * writer, every earlier reader). */
static void order_nodes(LowerBlock *out)
{
    const InstanceBlock *b = out->block;

    for (uint32_t i = 0; i < b->n_nodes; i++) {
        const InstanceNode *node = &b->nodes[i];
        for (uint32_t j = 0; j < node->op->n_in; j++) {
            int32_t maker = b->edges[node->in[j]].producer;
            if (maker >= 0)
                out->before[i] |= UINT64_C(1) << maker;
            out->readers[node->in[j]] |= UINT64_C(1) << i;
        }
        for (uint32_t j = 0; node->state >= 0 && j < i; j++)
            if (b->nodes[j].state == node->state && (node->op->writes_state || b->nodes[j].op->writes_state))
                out->before[i] |= UINT64_C(1) << j;
    }
}

Status quantize_block(LowerBlock *out, const Lowering *l, const InstanceBlock *src, BlockRole role, Err *err)
{
    const size_t max_nodes = 2 * (size_t)src->n_nodes, max_edges = (size_t)src->n_edges + src->n_nodes;
    InstanceBlock *b = ARENA_NEW(l->arena, InstanceBlock);
    InstanceNode *nodes = ARENA_ARRAY(l->arena, InstanceNode, max_nodes);
    InstanceEdge *edges = ARENA_ARRAY(l->arena, InstanceEdge, max_edges);
    uint32_t n = 0;

    *out = (LowerBlock){.block = b,
                        .role = role,
                        .formats = ARENA_ARRAY(l->arena, DType, max_edges),
                        .before = ARENA_ARRAY(l->arena, uint64_t, max_nodes),
                        .readers = ARENA_ARRAY(l->arena, uint64_t, max_edges)};
    if (b == NULL || nodes == NULL || edges == NULL || out->formats == NULL || out->before == NULL ||
        out->readers == NULL)
        return lower_no_memory(err);
    *b = *src;
    b->nodes = nodes;
    b->edges = edges;
    for (uint32_t e = 0; e < src->n_edges; e++) {
        edges[e] = src->edges[e];
        out->formats[e] = made_narrow(l, src, e) ? DT_I8_32 : plain_format(l, src, role, e);
    }
    for (uint32_t i = 0; i < src->n_nodes; i++) {
        InstanceNode node = src->nodes[i];
        DType in = wanted_input(l, src, &node);
        if (in != out->formats[node.in[0]] && in != l->fs->facts.activation) {
            int32_t e = quantized_edge(b, out->formats, n, node.in[0], in);
            if (e < 0) {
                e = (int32_t)b->n_edges++;
                edges[e] =
                    (InstanceEdge){.name = arena_printf(l->arena, "%s:%s", edges[node.in[0]].name, dtype_name(in)),
                                   .width = edges[node.in[0]].width,
                                   .producer = (int32_t)n};
                out->formats[e] = in;
                nodes[n] = (InstanceNode){.id = edges[e].name, .role = "", .op = op_def(OP_ACT_QUANT)};
                nodes[n].in[0] = node.in[0];
                nodes[n].out[0] = (uint32_t)e;
                nodes[n].state = nodes[n].table = -1;
                for (int w = 0; w < OP_MAX_WEIGHTS; w++)
                    nodes[n].weight[w] = -1;
                if (nodes[n++].id == NULL)
                    return lower_no_memory(err);
            }
            node.in[0] = (uint32_t)e;
        }
        for (uint32_t j = 0; j < node.op->n_out; j++)
            edges[node.out[j]].producer = (int32_t)n;
        nodes[n++] = node;
    }
    b->n_nodes = n;
    if (n > LOWER_MAX_NODES)
        return err_set(err, ST_UNSUPPORTED,
                       "block %s has %u nodes with its act_quant ones; at most %d can be covered; "
                       "split the block in the circuit",
                       b->name, n, LOWER_MAX_NODES);
    order_nodes(out);
    return ST_OK;
}
