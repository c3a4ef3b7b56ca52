/* match.c - finds every place in a block where a rule fits.
 *
 * A rule fits when its ops map to distinct nodes with its variables unified, every format agrees (edges that stay
 * inside are free), no value that stays inside is read by others, the family binds whatever the nodes have (a bias
 * that a family does not read would be lost in silence), and one of the family's points holds the step shape. */
#include "circuit/lowering.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Matcher {
    const Lowering *l;
    const LowerBlock *b;
    const Rule *rule;
    RuleVar vars[RULE_MAX_VARS];
    uint32_t n_vars;
    int64_t edge[RULE_MAX_VARS]; /* -1: not unified yet */
    uint32_t node[RULE_MAX_NODES];
    uint64_t mask;
    Match **out;
    uint32_t n, cap;
} Matcher;

/* ---- values by name --------------------------------------------------------------------------------------------- */

static bool var_width(const LowerBlock *b, const Match *m, const char *name, int64_t *out)
{
    size_t len = strlen(name);

    if (len <= 6 || strcmp(name + len - 6, ".width") != 0)
        return false;
    for (uint32_t i = 0; i < m->n_vars; i++)
        if (strlen(m->vars[i].name) == len - 6 && strncmp(m->vars[i].name, name, len - 6) == 0) {
            *out = b->block->edges[m->vars[i].edge].width;
            return true;
        }
    return false;
}

static bool node_value(const Lowering *l, const LowerBlock *b, const InstanceNode *node, const char *rest, int64_t *out)
{
    const InstanceWeight *w = node->weight[0] >= 0 ? &b->block->weights[node->weight[0]] : NULL;
    int p;

    if (w != NULL && (strcmp(rest, "n") == 0 || strcmp(rest, "k") == 0)) {
        *out = (int64_t)(rest[0] == 'n' ? w->n / (w->experts ? w->experts : 1) : w->k);
        return true;
    }
    if (w != NULL && strcmp(rest, "experts") == 0) {
        *out = w->experts;
        return true;
    }
    if (node->table >= 0 && strcmp(rest, "table.dims") == 0) {
        *out = l->in->ropes[node->table].dims;
        return true;
    }
    p = op_param(node->op, rest);
    if (p < 0 || node->op->params[p].type == PARAM_FLOAT)
        return false;
    *out = (int64_t)node->param[p];
    return true;
}

bool match_value(const Lowering *l, const LowerBlock *b, const Match *m, const FamilyPoint *point, const char *name,
                 int64_t *out)
{
    const char *rest;
    uint32_t node;

    for (uint32_t i = 0; point != NULL && i < point->n_constants; i++)
        if (strcmp(point->constant_names[i], name) == 0) {
            *out = point->constant_values[i];
            return true;
        }
    if (strcmp(name, "block_tokens") == 0) {
        *out = KV_BLOCK_TOKENS;
        return true;
    }
    if (strcmp(name, "max_blocks") == 0) {
        *out = ((int64_t)l->opt->shape.max_len + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
        return true;
    }
    if (var_width(b, m, name, out))
        return true;
    if (rule_node(m->rule, name, &node, &rest) && node_value(l, b, &b->block->nodes[m->node[node]], rest, out))
        return true;
    return instance_dim(l->in, name, out);
}

/* ---- does a candidate hold? ------------------------------------------------------------------------------------- */

/* A where of the rule: role or enum by word, anything else by number. */
static bool where_holds(const Matcher *x, const Match *m, const char *name, const char *value)
{
    const char *rest;
    uint32_t i;
    int64_t v;
    char text[32];

    if (rule_node(x->rule, name, &i, &rest)) {
        const InstanceNode *node = &x->b->block->nodes[m->node[i]];
        int p = op_param(node->op, rest);
        if (strcmp(rest, "role") == 0)
            return strcmp(node->role, value) == 0;
        if (p >= 0 && node->op->params[p].type == PARAM_ENUM &&
            strcmp(node->op->params[p].names[(int)node->param[p]], value) == 0)
            return true;
    }
    if (!match_value(x->l, x->b, m, NULL, name, &v))
        return false;
    snprintf(text, sizeof text, "%lld", (long long)v);
    return strcmp(text, value) == 0;
}

/* Values inside a group may be read by the group only, unless kept; the block's result is read by the next block. */
static bool inner_values_stay(const LowerBlock *b, const Match *m)
{
    for (uint32_t i = 0; i < m->n_vars; i++)
        if (m->vars[i].inner &&
            ((b->readers[m->vars[i].edge] & ~m->mask) != 0 || m->vars[i].edge == b->block->out_edge))
            return false;
    return true;
}

static bool edge_formats_agree(const Matcher *x, const Match *m)
{
    for (uint32_t i = 0; i < m->n_vars; i++) {
        DType f = family_format(x->rule->family, m->vars[i].name), edge = x->b->formats[m->vars[i].edge];
        if (f == DT_NONE) /* the token edge is a table of the step; all else is in the class's format */
            f = edge == DT_I32 ? DT_I32 : x->l->fs->facts.activation;
        if (!m->vars[i].inner && f != edge)
            return false;
    }
    return true;
}

static bool slot_formats_agree(const Matcher *x, const Match *m)
{
    char name[128];

    for (uint32_t i = 0; i < x->rule->n_nodes; i++) {
        const InstanceNode *node = &x->b->block->nodes[m->node[i]];
        for (uint32_t w = 0; w < node->op->n_weights; w++)
            if (!node->op->weights[w].vector && node->weight[w] >= 0 &&
                (!rule_slot_name(x->rule, i, node->op->weights[w].name, name, sizeof name) ||
                 family_format(x->rule->family, name) != x->b->block->weights[node->weight[w]].stored))
                return false;
        if (node->state >= 0 && (!rule_slot_name(x->rule, i, "state", name, sizeof name) ||
                                 family_format(x->rule->family, name) != x->b->block->states[node->state].format))
            return false;
    }
    return true;
}

typedef struct NameSeen {
    const char *want;
    bool seen;
} NameSeen;

static void see_name(void *ctx, const char *name)
{
    NameSeen *s = ctx;

    s->seen |= strcmp(s->want, name) == 0;
}

/* Does the rule or its family speak of this weight or parameter anywhere? */
static bool family_uses(const Rule *r, const char *name)
{
    const Family *f = r->family;
    NameSeen s = {.want = name};

    for (uint32_t i = 0; i < f->n_args; i++)
        if (strcmp(f->args[i].binding, name) == 0)
            return true;
    for (uint32_t i = 0; i < r->n_where; i++)
        if (strcmp(r->where_names[i], name) == 0)
            return true;
    for (uint32_t i = 0; i < f->n_points; i++) {
        const FamilyPoint *p = &f->points[i];
        for (uint32_t w = 0; w < p->n_where; w++)
            if (strcmp(p->where_names[w], name) == 0)
                return true;
        for (int d = 0; d < 3; d++)
            expr_names(p->grid[d], see_name, &s);
    }
    return s.seen;
}

/* What a node has beyond the op's bare form must reach the kernel: optional weights that are there, and optional
 * parameters off their default. */
static bool extras_are_used(const Matcher *x, const Match *m)
{
    char name[128];

    for (uint32_t i = 0; i < x->rule->n_nodes; i++) {
        const InstanceNode *node = &x->b->block->nodes[m->node[i]];
        for (uint32_t w = 0; w < node->op->n_weights; w++)
            if (node->weight[w] >= 0 && (!rule_slot_name(x->rule, i, node->op->weights[w].name, name, sizeof name) ||
                                         !family_uses(x->rule, name)))
                return false;
        for (uint32_t p = 0; p < node->op->n_params; p++)
            if (!node->op->params[p].required && node->param[p] != node->op->params[p].default_value &&
                (!rule_slot_name(x->rule, i, node->op->params[p].name, name, sizeof name) ||
                 !family_uses(x->rule, name)))
                return false;
    }
    return true;
}

static const FamilyPoint *choose_point(const Matcher *x, const Match *m)
{
    const Family *f = x->rule->family;

    for (uint32_t i = 0; i < f->n_points; i++) {
        const FamilyPoint *p = &f->points[i];
        bool holds = lower_point_holds(p, &x->l->opt->shape, m->on_outputs);
        for (uint32_t w = 0; holds && w < p->n_where; w++) {
            int64_t v;
            holds = match_value(x->l, x->b, m, p, p->where_names[w], &v) && v == p->where_values[w];
        }
        if (holds)
            return p;
    }
    return NULL;
}

/* ---- traffic ---------------------------------------------------------------------------------------------------- */

static uint64_t state_row_bytes(const InstanceState *s)
{
    uint64_t bytes = 0, part;

    for (uint32_t i = 0; i < s->n_parts; i++)
        if (dtype_row_bytes(s->format, (uint64_t)s->parts[i].heads * s->parts[i].width, &part))
            bytes += part;
    return bytes;
}

/* Bytes that a launch of `rows` rows reads of a weight: all of it, or of experts as many as the rows can choose. */
static uint64_t weight_traffic(const Matcher *x, const InstanceNode *node, const InstanceWeight *w, uint32_t rows)
{
    uint64_t bytes = lower_weight_bytes(w), chosen;

    if (w->experts == 0)
        return bytes;
    chosen = (uint64_t)x->b->block->edges[node->in[1]].width * rows;
    return chosen < w->experts ? bytes / w->experts * chosen : bytes;
}

/* Bytes that a launch moves: whole weights, and for each row its edges, its state and, of an embedding, its row. What
 * attention reads depends on how long the sequences are and is the same for every cover. */
static void count_traffic(const Matcher *x, Match *m)
{
    const InstanceBlock *b = x->b->block;
    uint64_t bytes;
    uint32_t lo, hi;

    lower_shape_rows(&x->l->opt->shape, m->on_outputs, &lo, &hi);
    for (uint32_t i = 0; i < m->n_vars; i++)
        if (!m->vars[i].inner &&
            dtype_row_bytes(x->b->formats[m->vars[i].edge], b->edges[m->vars[i].edge].width, &bytes))
            m->row_bytes += bytes;
    for (uint32_t i = 0; i < x->rule->n_nodes; i++) {
        const InstanceNode *node = &b->nodes[m->node[i]];
        for (uint32_t w = 0; w < node->op->n_weights; w++) {
            if (node->weight[w] < 0)
                continue;
            if (node->op->kind != OP_EMBED)
                m->weight_bytes += weight_traffic(x, node, &b->weights[node->weight[w]], hi);
            else if (dtype_row_bytes(b->weights[node->weight[w]].stored, b->weights[node->weight[w]].k, &bytes))
                m->row_bytes += bytes;
        }
        if (node->state >= 0 && node->op->writes_state)
            m->row_bytes += state_row_bytes(&b->states[node->state]);
    }
    m->moved = m->weight_bytes + m->row_bytes * hi;
}

/* ---- the search ------------------------------------------------------------------------------------------------- */

static Status add_match(Matcher *x, Err *err)
{
    Match *m = ARENA_NEW(x->l->arena, Match);

    if (m == NULL)
        return lower_no_memory(err);
    m->rule = x->rule;
    m->mask = x->mask;
    m->n_vars = x->n_vars;
    m->vars = ARENA_ARRAY(x->l->arena, MatchVar, x->n_vars);
    if (m->vars == NULL)
        return lower_no_memory(err);
    for (uint32_t i = 0; i < x->n_vars; i++)
        m->vars[i] = (MatchVar){.name = x->vars[i].name,
                                .edge = (uint32_t)x->edge[i],
                                .made = x->vars[i].made,
                                .read = x->vars[i].read,
                                .inner = x->vars[i].inner};
    for (uint32_t i = 0; i < x->rule->n_nodes; i++) {
        m->node[i] = x->node[i];
        m->before |= x->b->before[x->node[i]];
        m->on_outputs |= x->b->block->nodes[x->node[i]].op->on_outputs;
    }
    m->before &= ~m->mask;
    if (!inner_values_stay(x->b, m) || !edge_formats_agree(x, m) || !slot_formats_agree(x, m) || !extras_are_used(x, m))
        return ST_OK;
    for (uint32_t i = 0; i < x->rule->n_where; i++)
        if (!where_holds(x, m, x->rule->where_names[i], x->rule->where_values[i]))
            return ST_OK;
    m->point = choose_point(x, m);
    if (m->point == NULL)
        return ST_OK;
    count_traffic(x, m);
    if (x->n == x->cap) {
        uint32_t cap = x->cap == 0 ? 64 : 2 * x->cap;
        Match **p = realloc(x->out, cap * sizeof(*p));
        if (p == NULL)
            return lower_no_memory(err);
        x->out = p;
        x->cap = cap;
    }
    x->out[x->n++] = m;
    return ST_OK;
}

/* Unifies a variable with an edge, noting in *undo that it was free; false when it is another edge already. */
static bool unify(Matcher *x, const char *name, uint32_t edge, uint64_t *undo)
{
    int v = rule_var_find(x->vars, x->n_vars, name);

    if (x->edge[v] < 0) {
        x->edge[v] = edge;
        *undo |= UINT64_C(1) << v;
        return true;
    }
    return x->edge[v] == edge;
}

/* a + 1 * b is b + 1 * a to the bit, so a fused rule may name them in either order. */
static bool commutes(const Rule *r, const InstanceNode *node)
{
    return r->n_nodes > 1 && node->op->kind == OP_RESIDUAL_ADD && node->param[op_param(node->op, "scale")] == 1;
}

static Status match_from(Matcher *x, uint32_t depth, Err *err);

static Status try_node(Matcher *x, uint32_t depth, uint32_t i, bool swapped, Err *err)
{
    const RuleNode *p = &x->rule->nodes[depth];
    const InstanceNode *node = &x->b->block->nodes[i];
    uint64_t undo = 0;
    bool fits = true;
    Status st = ST_OK;

    for (uint32_t j = 0; fits && j < node->op->n_in; j++)
        fits = unify(x, p->in[j], node->in[swapped ? 1 - j : j], &undo);
    for (uint32_t j = 0; fits && j < node->op->n_out; j++)
        fits = unify(x, p->out[j], node->out[j], &undo);
    if (fits) {
        x->node[depth] = i;
        x->mask |= UINT64_C(1) << i;
        st = match_from(x, depth + 1, err);
        x->mask &= ~(UINT64_C(1) << i);
    }
    for (uint32_t v = 0; v < x->n_vars; v++)
        if (undo >> v & 1)
            x->edge[v] = -1;
    return st;
}

static Status match_from(Matcher *x, uint32_t depth, Err *err)
{
    Status st = ST_OK;

    if (depth == x->rule->n_nodes)
        return add_match(x, err);
    for (uint32_t i = 0; st == ST_OK && i < x->b->block->n_nodes; i++) {
        const InstanceNode *node = &x->b->block->nodes[i];
        if (node->op != x->rule->nodes[depth].op || (x->mask >> i & 1))
            continue;
        st = try_node(x, depth, i, false, err);
        if (st == ST_OK && commutes(x->rule, node))
            st = try_node(x, depth, i, true, err);
    }
    return st;
}

static bool rule_allowed(const LowerOptions *opt, const Rule *r)
{
    if (r->numerics != NUMERICS_DIFFERS)
        return true;
    if (opt->batch_invariant)
        return false;
    if (strcmp(r->lever, "batch_invariant") == 0) /* only the order of sums differs: off is opting in */
        return true;
    if (opt->levers == NULL)
        return false;
    for (const char *const *lever = opt->levers; *lever != NULL; lever++)
        if (strcmp(*lever, r->lever) == 0)
            return true;
    return false;
}

static const Rule *match_rule(const void *m)
{
    return (*(Match *const *)m)->rule;
}

/* By lowest node, then by the rules' order, then as found (the masks of one rule at one node). */
static int by_node(const void *a, const void *b)
{
    const Match *ma = *(Match *const *)a, *mb = *(Match *const *)b;
    int na = __builtin_ctzll(ma->mask), nb = __builtin_ctzll(mb->mask);

    if (na != nb)
        return na < nb ? -1 : 1;
    if (match_rule(a) != match_rule(b))
        return match_rule(a) < match_rule(b) ? -1 : 1;
    if (ma->mask != mb->mask)
        return ma->mask < mb->mask ? -1 : 1;
    return memcmp(ma->node, mb->node, sizeof ma->node);
}

Status match_all(Match ***out, uint32_t *n, const Lowering *l, const LowerBlock *b, Err *err)
{
    Matcher x = {.l = l, .b = b};
    Status st = ST_OK;

    for (uint32_t i = 0; st == ST_OK && i < l->fs->n_rules; i++) {
        x.rule = &l->fs->rules[i];
        if (!rule_allowed(l->opt, x.rule))
            continue;
        x.n_vars = rule_vars(x.rule, x.vars);
        for (uint32_t v = 0; v < x.n_vars; v++)
            x.edge[v] = -1;
        st = match_from(&x, 0, err);
    }
    if (st != ST_OK) {
        free(x.out);
        return st;
    }
    if (x.n > 0)
        qsort(x.out, x.n, sizeof(*x.out), by_node);
    *out = x.out;
    *n = x.n;
    return ST_OK;
}
