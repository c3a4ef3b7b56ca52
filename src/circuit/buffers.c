/* buffers.c - where values live: liveness over the launches of a block, then offsets.
 *
 * The residual stream has one home, offset 0, through all layers: the value that enters a block is there, and so must
 * be the value that leaves it, since the next layer runs the same launches. In between the home belongs to whoever
 * fits. An output takes over the place of an input that dies in the same launch when the family says so (`inplace`);
 * such chains are one value for placement. All other values are placed largest first, each into the tightest gap
 * between the values that live at the same time (best fit), so that the peak stays near the lower bound.
 *
 * Invariant: two values whose lives share a launch never share a byte, unless one took the other's place over. */
#include "circuit/lowering.h"
#include <stdlib.h>
#include <string.h>

/* ---- placing ---------------------------------------------------------------------------------------------------- */

/* Values that share a place, as one. */
typedef struct Group {
    uint64_t bytes, offset;
    int32_t first, last;
    uint32_t value; /* the first of the chain */
    bool home;
} Group;

static bool live_together(const Group *a, const Group *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Home first, then the largest; ties by time and by index, so that the result is one. */
static int by_size(const void *a, const void *b)
{
    const Group *x = a, *y = b;

    if (x->home != y->home)
        return x->home ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

static int by_offset(const void *a, const void *b)
{
    const Group *x = *(const Group *const *)a, *y = *(const Group *const *)b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The tightest gap between the placed groups that live together with g; scratch has room for n. */
static void place(Group *groups, uint32_t n, Group *g, const Group **scratch)
{
    uint64_t end = 0, best = UINT64_MAX;
    uint32_t k = 0;

    for (uint32_t i = 0; i < n; i++)
        if (live_together(&groups[i], g))
            scratch[k++] = &groups[i];
    qsort(scratch, k, sizeof *scratch, by_offset);
    for (uint32_t i = 0; i < k; i++) {
        if (scratch[i]->offset > end && scratch[i]->offset - end >= g->bytes && scratch[i]->offset - end < best) {
            best = scratch[i]->offset - end;
            g->offset = end;
        }
        if (scratch[i]->offset + scratch[i]->bytes > end)
            end = scratch[i]->offset + scratch[i]->bytes;
    }
    if (best == UINT64_MAX)
        g->offset = end;
}

static bool round_up(uint64_t *bytes)
{
    if (*bytes > (UINT64_C(1) << 62))
        return false;
    *bytes = (*bytes + LOWER_ALIGN - 1) & ~(uint64_t)(LOWER_ALIGN - 1);
    return true;
}

Status buffers_place(BufferValue *values, uint32_t n, uint64_t home_bytes, uint64_t *bytes, Err *err)
{
    Group *groups = calloc(n + 1, sizeof *groups);
    const Group **scratch = calloc(n + 1, sizeof *scratch);
    uint32_t *root = calloc(n + 1, sizeof *root), n_groups = 0;
    Status st = ST_OK;

    if (groups == NULL || scratch == NULL || root == NULL)
        TRY(lower_no_memory(err));
    for (uint32_t i = 0; i < n; i++) {
        const BufferValue *v = &values[i];
        Group *g;
        root[i] = v->alias >= 0 ? root[v->alias] : i;
        g = &groups[root[i]];
        if (v->alias < 0)
            *g = (Group){.first = v->first, .last = v->last, .value = i};
        g->first = v->first < g->first ? v->first : g->first;
        g->last = v->last > g->last ? v->last : g->last;
        g->bytes = v->bytes > g->bytes ? v->bytes : g->bytes;
        g->home |= v->home;
    }
    for (uint32_t i = 0; i < n; i++)
        if (values[i].alias < 0)
            groups[n_groups++] = groups[i];
    qsort(groups, n_groups, sizeof *groups, by_size);
    *bytes = home_bytes;
    if (!round_up(bytes))
        TRY(err_set(err, ST_INVALID, "the step shape asks for more than 2^62 bytes of activations"));
    for (uint32_t i = 0; i < n_groups; i++) {
        Group *g = &groups[i];
        if (!round_up(&g->bytes))
            TRY(err_set(err, ST_INVALID, "the step shape asks for more than 2^62 bytes of activations"));
        if (!g->home)
            place(groups, i, g, scratch);
        for (uint32_t j = 0; g->home && j < i; j++)
            if (live_together(&groups[j], g))
                TRY(err_set(err, ST_UNSUPPORTED,
                            "the residual stream would be overwritten while its old value is still "
                            "read"));
        if (g->offset > (UINT64_C(1) << 62))
            TRY(err_set(err, ST_INVALID, "the step shape asks for more than 2^62 bytes of activations"));
        if (g->offset + g->bytes > *bytes)
            *bytes = g->offset + g->bytes;
    }
    for (uint32_t i = 0; i < n_groups; i++)
        values[groups[i].value].offset = groups[i].offset;
    for (uint32_t i = 0; i < n; i++)
        values[i].offset = values[root[i]].offset;
done:
    free(groups);
    free(scratch);
    free(root);
    return st;
}

/* ---- liveness of a block ---------------------------------------------------------------------------------------- */

typedef struct Liveness {
    const Lowering *l;
    const LowerBlock *b;
    const Match *const *steps;
    uint32_t n_steps;
    BufferValue *values; /* of edges in order of their making, then workspaces */
    uint32_t n_values;
    int32_t *value_of; /* [n_edges]; -1: no buffer */
} Liveness;

static const MatchVar *find_var(const Match *m, const char *name, size_t len)
{
    for (uint32_t i = 0; i < m->n_vars; i++)
        if (strlen(m->vars[i].name) == len && strncmp(m->vars[i].name, name, len) == 0)
            return &m->vars[i];
    return NULL;
}

static bool reads_edge_once(const Match *m, const LowerBlock *b, uint32_t edge)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->rule->n_nodes; i++) {
        const InstanceNode *node = &b->block->nodes[m->node[i]];
        for (uint32_t j = 0; j < node->op->n_in; j++)
            n += node->in[j] == edge;
    }
    return n == 1;
}

/* The input whose place output `out` of the step may take over: it dies here, has the same size, and the family says
 * so. NULL: none. */
static const MatchVar *dying_input(const Liveness *v, uint32_t step, const MatchVar *out)
{
    const Match *m = v->steps[step];
    const Family *f = m->rule->family;
    size_t len = strlen(out->name);

    for (uint32_t i = 0; i < f->n_inplace; i++) {
        const char *eq = strchr(f->inplace[i], '=');
        const MatchVar *in;
        if ((size_t)(eq - f->inplace[i]) != len || strncmp(f->inplace[i], out->name, len) != 0)
            continue;
        in = find_var(m, eq + 1, strlen(eq + 1));
        if (in != NULL && v->value_of[in->edge] >= 0 && v->value_of[out->edge] >= 0) {
            const BufferValue *from = &v->values[v->value_of[in->edge]], *to = &v->values[v->value_of[out->edge]];
            if (from->last == (int32_t)step && from->bytes == to->bytes && reads_edge_once(m, v->b, in->edge))
                return in;
        }
    }
    return NULL;
}

/* May a value that takes the home over stay there? Yes when it leaves before the block's result comes, or when the
 * result takes its place over in turn. */
static bool may_stay_home(const Liveness *v, uint32_t edge)
{
    const uint32_t out = v->b->block->out_edge;
    const BufferValue *value = &v->values[v->value_of[edge]], *result = &v->values[v->value_of[out]];

    if (edge == out || v->b->role == BLOCK_HEAD || value->last < result->first)
        return true;
    if (value->last >= (int32_t)v->n_steps)
        return false;
    for (uint32_t i = 0; i < v->steps[value->last]->n_vars; i++) {
        const MatchVar *next = &v->steps[value->last]->vars[i];
        const MatchVar *in;
        if (!next->made || next->inner)
            continue;
        in = dying_input(v, (uint32_t)value->last, next);
        if (in != NULL && in->edge == edge && may_stay_home(v, next->edge))
            return true;
    }
    return false;
}

static bool in_home_chain(const Liveness *v, int32_t value)
{
    for (; value >= 0; value = v->values[value].alias)
        if (v->values[value].home)
            return true;
    return false;
}

/* Lets outputs take over dying inputs. The result of a layer goes home: it takes over only what is there already, and
 * others leave the home alone unless they can stay. */
static void take_places(Liveness *v)
{
    for (uint32_t s = 0; s < v->n_steps; s++) {
        uint64_t taken = 0; /* inputs of this step whose place is gone, by variable */
        for (uint32_t i = 0; i < v->steps[s]->n_vars; i++) {
            const MatchVar *out = &v->steps[s]->vars[i], *in;
            BufferValue *value;
            int32_t from;
            if (!out->made || out->inner || v->value_of[out->edge] < 0 || (in = dying_input(v, s, out)) == NULL ||
                (taken >> (in - v->steps[s]->vars) & 1))
                continue;
            value = &v->values[v->value_of[out->edge]];
            from = v->value_of[in->edge];
            if (in_home_chain(v, from) ? !may_stay_home(v, out->edge) : value->home)
                continue;
            value->alias = from;
            taken |= UINT64_C(1) << (in - v->steps[s]->vars);
        }
    }
}

static Status add_value(Liveness *v, uint32_t edge, int32_t first, bool home, Err *err)
{
    const InstanceEdge *e = &v->b->block->edges[edge];
    BufferValue *value = &v->values[v->n_values];
    uint64_t row;

    *value = (BufferValue){.first = first, .last = first, .alias = -1, .home = home};
    if (!dtype_row_bytes(v->b->formats[edge], e->width, &row) ||
        __builtin_mul_overflow(row, lower_edge_rows(v->l, v->b, edge), &value->bytes))
        return err_set(err, ST_UNSUPPORTED, "block %s: value %s of %u elements has no whole rows in format %s",
                       v->b->block->name, e->name, e->width, dtype_name(v->b->formats[edge]));
    v->value_of[edge] = (int32_t)v->n_values++;
    return ST_OK;
}

static Status find_lives(Liveness *v, Err *err)
{
    const InstanceBlock *b = v->b->block;
    const int32_t end = (int32_t)v->n_steps;
    Status st = ST_OK;

    for (uint32_t e = 0; e < b->n_edges; e++)
        v->value_of[e] = -1;
    if (v->b->role != BLOCK_STEM)
        TRY(add_value(v, b->in_edge, -1, true, err));
    for (uint32_t s = 0; s < v->n_steps; s++)
        for (uint32_t i = 0; i < v->steps[s]->n_vars; i++) {
            const MatchVar *var = &v->steps[s]->vars[i];
            if (var->inner)
                continue;
            if (var->made)
                TRY(add_value(v, var->edge, (int32_t)s, v->b->role != BLOCK_HEAD && var->edge == b->out_edge, err));
            else if (v->value_of[var->edge] >= 0)
                v->values[v->value_of[var->edge]].last = (int32_t)s;
        }
    if (v->value_of[b->out_edge] < 0)
        return err_set(err, ST_FORMAT, "block %s: no node makes its result %s", b->name, b->edges[b->out_edge].name);
    v->values[v->value_of[b->out_edge]].last = end;
done:
    return st;
}

Status buffers_block(BlockBuffers *out, const Lowering *l, const LowerBlock *b, const Match *const *steps,
                     uint32_t n_steps, Err *err)
{
    const uint32_t n_edges = b->block->n_edges;
    Liveness v = {.l = l, .b = b, .steps = steps, .n_steps = n_steps};
    Err inner;
    Status st = ST_OK;

    v.values = ARENA_ARRAY(l->arena, BufferValue, (size_t)n_edges + n_steps);
    v.value_of = ARENA_ARRAY(l->arena, int32_t, n_edges);
    out->edge = ARENA_ARRAY(l->arena, uint64_t, n_edges);
    out->workspace = ARENA_ARRAY(l->arena, uint64_t, n_steps);
    if (v.values == NULL || v.value_of == NULL || out->edge == NULL || out->workspace == NULL)
        return lower_no_memory(err);
    TRY(find_lives(&v, err));
    take_places(&v);
    for (uint32_t s = 0; s < n_steps; s++) {
        BufferValue *value = &v.values[v.n_values];
        *value = (BufferValue){.first = (int32_t)s, .last = (int32_t)s, .alias = -1};
        TRY(bind_workspace(l, b, steps[s], &value->bytes, err));
        out->workspace[s] = UINT64_MAX;
        if (value->bytes > 0)
            out->workspace[s] = v.n_values++; /* its index, until offsets are known */
    }
    st = buffers_place(v.values, v.n_values, l->home_bytes, &out->bytes, &inner);
    if (st != ST_OK)
        return err_set(err, st, "block %s of class %s: %s; give the family of its last node inplace = [\"OUT=IN\"]",
                       b->block->name, l->fs->facts.name, inner.msg);
    for (uint32_t e = 0; e < n_edges; e++)
        out->edge[e] = v.value_of[e] < 0 ? UINT64_MAX : v.values[v.value_of[e]].offset;
    for (uint32_t s = 0; s < n_steps; s++)
        if (out->workspace[s] != UINT64_MAX)
            out->workspace[s] = v.values[out->workspace[s]].offset;
done:
    return st;
}
