/* bind.c - turns a chosen match into a launch: arguments bound to buffers, weights, states and numbers, and the scope
 * of names that its expressions need.
 *
 * Everything that does not depend on the step's rows, outs or seqs becomes a number here, so that plan_eval() has a
 * handful of names to look through. All geometry is evaluated once at the shape's maxima: an expression that cannot be
 * evaluated is an error of lowering, not of serving. */
#include "circuit/lowering.h"
#include <string.h>

static bool is_dynamic(const char *name)
{
    return strcmp(name, "rows") == 0 || strcmp(name, "outs") == 0 || strcmp(name, "seqs") == 0;
}

typedef struct Scope {
    const Lowering *l;
    const LowerBlock *b;
    const Match *m;
} Scope;

/* For sizes: the dynamic names at the shape's maxima. */
static bool lookup_max(void *ctx, const char *name, int64_t *out)
{
    const Scope *s = ctx;
    const StepShape *shape = &s->l->opt->shape;

    if (is_dynamic(name)) {
        *out = name[0] == 'r' ? shape->max_rows : name[0] == 'o' ? shape->max_outs : shape->max_seqs;
        return true;
    }
    return match_value(s->l, s->b, s->m, s->m->point, name, out);
}

static Status eval_max(Scope *s, const Expr *e, const char *what, int64_t lo, int64_t hi, int64_t *out, Err *err)
{
    const Family *f = s->m->rule->family;
    Err inner;
    Status st = expr_eval(e, lookup_max, s, out, &inner);

    if (st != ST_OK)
        return err_set(err, st, "%s:%u: family %s, entry %s, %s: %s", f->file, f->line, f->id, s->m->point->entry, what,
                       inner.msg);
    if (*out < lo || *out > hi)
        return err_set(err, ST_INVALID,
                       "%s:%u: family %s, entry %s: %s '%s' is %lld at the most rows; it must be %lld to "
                       "%lld",
                       f->file, f->line, f->id, s->m->point->entry, what, expr_text(e), (long long)*out, (long long)lo,
                       (long long)hi);
    return ST_OK;
}

Status bind_workspace(const Lowering *l, const LowerBlock *b, const Match *m, uint64_t *bytes, Err *err)
{
    Scope s = {l, b, m};
    int64_t v;
    Status st = eval_max(&s, m->point->workspace, "workspace", 0, INT64_MAX / 4, &v, err);

    if (st == ST_OK)
        *bytes = (uint64_t)v;
    return st;
}

/* ---- the scope of a step ---------------------------------------------------------------------------------------- */

typedef struct NameList {
    const char **names;
    uint32_t n, cap;
} NameList;

static void count_name(void *ctx, const char *name)
{
    NameList *list = ctx;

    (void)name;
    list->cap++;
}

static void collect_name(void *ctx, const char *name)
{
    NameList *list = ctx;

    if (is_dynamic(name))
        return;
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->names[i], name) == 0)
            return;
    list->names[list->n++] = name;
}

static void each_name(const PlanStep *step, void (*seen)(void *ctx, const char *name), NameList *list)
{
    for (int d = 0; d < 3; d++)
        expr_names(step->point->grid[d], seen, list);
    expr_names(step->point->smem, seen, list);
    expr_names(step->point->workspace, seen, list);
    for (uint32_t i = 0; i < step->n_args; i++)
        if (step->args[i].kind == ARG_EXPR)
            expr_names(step->args[i].expr, seen, list);
}

static Status bind_scope(PlanStep *step, Scope *s, Err *err)
{
    PlanScope *scope = ARENA_NEW(s->l->arena, PlanScope);
    NameList list = {0};
    int64_t *values;

    each_name(step, count_name, &list);
    list.names = ARENA_ARRAY(s->l->arena, const char *, list.cap);
    values = ARENA_ARRAY(s->l->arena, int64_t, list.cap);
    if (scope == NULL || list.names == NULL || values == NULL)
        return lower_no_memory(err);
    each_name(step, collect_name, &list);
    for (uint32_t i = 0; i < list.n; i++)
        if (!match_value(s->l, s->b, s->m, s->m->point, list.names[i], &values[i]))
            return err_set(err, ST_NOTFOUND,
                           "%s:%u: family %s, entry %s: the name '%s' is neither a dim of %s nor a value "
                           "of the op",
                           step->family->file, step->family->line, step->family->id, step->point->entry, list.names[i],
                           s->l->in->arch);
    *scope = (PlanScope){.n = list.n, .names = list.names, .values = values};
    step->scope = scope;
    return ST_OK;
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static void see_dynamic(void *ctx, const char *name)
{
    *(bool *)ctx |= is_dynamic(name);
}

static Status bind_expr(PlanArg *out, Scope *s, const Expr *e, Err *err)
{
    bool dynamic = false;
    int64_t v;
    Status st = eval_max(s, e, "argument", INT32_MIN, INT32_MAX, &v, err);

    if (st != ST_OK)
        return st;
    expr_names(e, see_dynamic, &dynamic);
    out->kind = dynamic ? ARG_EXPR : ARG_I32;
    if (dynamic)
        out->expr = e;
    else
        out->value = (int32_t)v;
    return ST_OK;
}

static Status bind_state(PlanArg *out, Scope *s, const InstanceNode *node, const char *part, Err *err)
{
    const InstanceState *state;

    if (node->state < 0)
        return err_set(err, ST_FORMAT, "block %s: node %s has no state", s->b->block->name, node->id);
    state = &s->b->block->states[node->state];
    for (uint32_t i = 0; i < state->n_parts; i++)
        if (strcmp(state->parts[i].name, part) == 0) {
            out->kind = ARG_STATE;
            out->index = (uint32_t)node->state;
            out->part = i;
            return ST_OK;
        }
    return err_set(err, ST_FORMAT, "state %s of block %s has no part '%s'", state->name, s->b->block->name, part);
}

static Status bind_param(PlanArg *out, const InstanceNode *node, uint32_t index, Err *err)
{
    const ParamDef *def = &node->op->params[index];
    double v = node->param[index];

    if (def->type == PARAM_FLOAT) {
        out->kind = ARG_F32;
        out->fvalue = (float)v;
        return ST_OK;
    }
    if (v < INT32_MIN || v > INT32_MAX)
        return err_set(err, ST_UNSUPPORTED, "node %s: parameter %s is %.0f, which no kernel argument holds", node->id,
                       def->name, v);
    out->kind = ARG_I32;
    out->value = (int32_t)v;
    return ST_OK;
}

static void bind_buffer(PlanArg *out, uint64_t offset)
{
    out->kind = offset == UINT64_MAX ? ARG_NULL : ARG_BUFFER;
    out->offset = offset == UINT64_MAX ? 0 : offset;
}

/* slots and block_table are those of the group that the step's states belong to. */
static Status bind_step_table(PlanArg *out, Scope *s, uint32_t table, const char *binding, Err *err)
{
    const InstanceBlock *b = s->b->block;
    int64_t group = -1;

    out->kind = ARG_STEP;
    out->index = table;
    if (!step_table_grouped(table))
        return ST_OK;
    for (uint32_t i = 0; i < s->m->rule->n_nodes; i++) {
        const InstanceNode *node = &b->nodes[s->m->node[i]];
        const InstanceState *state = node->state >= 0 ? &b->states[node->state] : NULL;

        if (state == NULL || state->kind != STATE_PAGED)
            continue;
        if (group >= 0 && group != instance_kv_group(s->l->in, state))
            return err_set(err, ST_UNSUPPORTED,
                           "block %s: family %s binds %s, but node %s and one before it have states with different "
                           "windows",
                           b->name, s->m->rule->family->id, binding, node->id);
        group = instance_kv_group(s->l->in, state);
    }
    if (group < 0)
        return err_set(err, ST_FORMAT, "block %s: family %s binds %s, but none of its ops has a paged state", b->name,
                       s->m->rule->family->id, binding);
    out->part = (uint32_t)group;
    return ST_OK;
}

static Status bind_arg(PlanArg *out, Scope *s, const FamilyArg *arg, const BlockBuffers *buffers, uint32_t step,
                       Err *err)
{
    const InstanceBlock *b = s->b->block;
    const InstanceNode *node;
    Binding binding;
    Status st = binding_parse(&binding, s->m->rule, arg->binding, s->l->arena, err);

    if (st != ST_OK)
        return st;
    *out = (PlanArg){.name = arg->name};
    node = &b->nodes[s->m->node[binding.node]];
    switch (binding.kind) {
    case BIND_VAR:
        if (s->b->role == BLOCK_STEM && s->m->vars[binding.index].edge == b->in_edge) {
            out->kind = ARG_STEP;
            out->index = STEP_TOKENS;
        } else {
            bind_buffer(out, buffers->edge[s->m->vars[binding.index].edge]);
        }
        return ST_OK;
    case BIND_WORKSPACE:
        bind_buffer(out, buffers->workspace[step]);
        return ST_OK;
    case BIND_WEIGHT:
        out->kind = node->weight[binding.index] < 0 ? ARG_NULL : ARG_WEIGHT;
        out->index = node->weight[binding.index] < 0 ? 0 : (uint32_t)node->weight[binding.index];
        return ST_OK;
    case BIND_STATE:
        return bind_state(out, s, node, binding.part, err);
    case BIND_TABLE:
        if (node->table < 0)
            return err_set(err, ST_FORMAT, "block %s: node %s has no rope table", b->name, node->id);
        out->kind = ARG_ROPE;
        out->index = (uint32_t)node->table;
        return ST_OK;
    case BIND_STEP:
        return bind_step_table(out, s, binding.index, arg->binding, err);
    case BIND_PARAM:
        return bind_param(out, node, binding.index, err);
    case BIND_EXPR:
        return bind_expr(out, s, binding.expr, err);
    }
    return err_set(err, ST_INVALID, "argument '%s' has an unknown kind of binding", arg->name);
}

static Status check_geometry(Scope *s, Err *err)
{
    static const int64_t grid_max[3] = {INT32_MAX, 65535,
                                        65535}; /* CUDA's limits; the CPU backend has none below them */
    static const char *const grid_name[3] = {"grid x", "grid y", "grid z"};
    int64_t v;
    Status st = ST_OK;

    for (int d = 0; d < 3; d++)
        TRY(eval_max(s, s->m->point->grid[d], grid_name[d], 1, grid_max[d], &v, err));
    TRY(eval_max(s, s->m->point->smem, "smem", 0, UINT32_MAX, &v, err));
done:
    return st;
}

Status bind_step(PlanStep *out, const Lowering *l, const LowerBlock *b, const Match *m, const BlockBuffers *buffers,
                 uint32_t step, Err *err)
{
    const Family *f = m->rule->family;
    Scope s = {l, b, m};
    PlanArg *args = ARENA_ARRAY(l->arena, PlanArg, f->n_args);
    const char **nodes = ARENA_ARRAY(l->arena, const char *, m->rule->n_nodes);
    Status st = ST_OK;

    if (args == NULL || nodes == NULL)
        return lower_no_memory(err);
    for (uint32_t i = 0; i < m->rule->n_nodes; i++)
        nodes[i] = b->block->nodes[m->node[i]].id;
    *out = (PlanStep){.family = f,
                      .point = m->point,
                      .kernel = target_object(l->fs->target, m->point->entry, m->point->constants),
                      .rule = m->rule,
                      .n_args = f->n_args,
                      .args = args,
                      .n_nodes = m->rule->n_nodes,
                      .nodes = nodes,
                      .on_outputs = m->on_outputs,
                      .weight_bytes = m->weight_bytes,
                      .edge_bytes_per_row = m->row_bytes};
    if (out->kernel == NULL)
        return err_set(err, ST_NOTFOUND, "target %s has no kernel %s[%s]", l->fs->target->name, m->point->entry,
                       m->point->constants);
    for (uint32_t i = 0; i < f->n_args; i++)
        TRY(bind_arg(&args[i], &s, &f->args[i], buffers, step, err));
    TRY(check_geometry(&s, err));
    TRY(bind_scope(out, &s, err));
done:
    return st;
}
