/* rules.c - reads [[rule]] tables, derives the rule of a one-op family, and resolves the names that both use.
 *
 * Invariants of a rule that was read: each variable is made at most once and before it is read, aliases are unique,
 * keep lists only values that the pattern makes and reads itself, and each name of the family resolves. */
#include "circuit/rules.h"
#include "circuit/plan.h"
#include <stdio.h>
#include <string.h>

static Status no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "out of memory while reading kernel families");
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

static bool is_kept(const Rule *r, const char *name)
{
    for (uint32_t i = 0; i < r->n_keep; i++)
        if (strcmp(r->keep[i], name) == 0)
            return true;
    return false;
}

int rule_var_find(const RuleVar *vars, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(vars[i].name, name) == 0)
            return (int)i;
    return -1;
}

static RuleVar *var_at(RuleVar *vars, uint32_t *n, const char *name, uint32_t node, uint32_t slot)
{
    int i = rule_var_find(vars, *n, name);

    if (i < 0) {
        i = (int)(*n)++;
        vars[i] = (RuleVar){.name = name, .node = node, .slot = slot};
    }
    return &vars[i];
}

uint32_t rule_vars(const Rule *r, RuleVar out[RULE_MAX_VARS])
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < r->n_nodes; i++) {
        const RuleNode *node = &r->nodes[i];
        for (uint32_t j = 0; j < node->op->n_in; j++)
            var_at(out, &n, node->in[j], i, j)->read = true;
        for (uint32_t j = 0; j < node->op->n_out; j++)
            var_at(out, &n, node->out[j], i, j)->made = true;
    }
    for (uint32_t i = 0; i < n; i++)
        out[i].inner = out[i].made && out[i].read && !is_kept(r, out[i].name);
    return n;
}

bool rule_node(const Rule *r, const char *text, uint32_t *node, const char **rest)
{
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        size_t len = strlen(r->nodes[i].as);
        if (len == 0 || (strncmp(text, r->nodes[i].as, len) == 0 && text[len] == '.')) {
            *node = i;
            *rest = len == 0 ? text : text + len + 1;
            return true;
        }
    }
    return false;
}

bool rule_slot_name(const Rule *r, uint32_t node, const char *slot, char *out, size_t size)
{
    const char *as = r->nodes[node].as;
    int n = *as ? snprintf(out, size, "%s.%s", as, slot) : snprintf(out, size, "%s", slot);

    return n >= 0 && (size_t)n < size;
}

DType family_format(const Family *f, const char *name)
{
    for (uint32_t i = 0; i < f->n_formats; i++)
        if (strcmp(f->formats[i].name, name) == 0)
            return f->formats[i].dtype;
    return DT_NONE;
}

/* ---- bindings --------------------------------------------------------------------------------------------------- */

static bool step_table_find(const char *name, uint32_t *out)
{
    for (int t = 0; t < STEP_TABLES; t++)
        if (strcmp(step_table_name((StepTable)t), name) == 0) {
            *out = (uint32_t)t;
            return true;
        }
    return false;
}

/* Something of one node: a weight, a state's part, the table or a parameter; false when rest is none of them. */
static bool bind_node_part(Binding *b, const OpDef *op, uint32_t node, const char *rest)
{
    int i = op_weight(op, rest);

    b->node = node;
    if (i >= 0) {
        b->kind = BIND_WEIGHT;
        b->index = (uint32_t)i;
        return true;
    }
    if (strncmp(rest, "state.", 6) == 0 && (op->reads_state || op->writes_state)) {
        b->kind = BIND_STATE;
        b->part = rest + 6;
        return true;
    }
    if (strcmp(rest, "table") == 0 && op->reads_table) {
        b->kind = BIND_TABLE;
        return true;
    }
    i = op_param(op, rest);
    if (i < 0)
        return false;
    b->kind = BIND_PARAM;
    b->index = (uint32_t)i;
    return true;
}

typedef struct NameCheck {
    const Rule *rule;
    const RuleVar *vars;
    uint32_t n_vars;
    const char *unknown;
} NameCheck;

static bool is_node_value(const OpDef *op, const char *rest)
{
    return strcmp(rest, "n") == 0 || strcmp(rest, "k") == 0 || op_param(op, rest) >= 0 ||
           (op->reads_table && strcmp(rest, "table.dims") == 0);
}

/* Dims are known only with an instance, so a plain word passes here; a dotted one must name a node or a variable. */
static void check_expr_name(void *ctx, const char *name)
{
    NameCheck *c = ctx;
    const char *dot = strrchr(name, '.'), *rest;
    uint32_t node;
    char var[64];

    if (dot == NULL || c->unknown != NULL)
        return;
    if (strcmp(dot, ".width") == 0 && (size_t)(dot - name) < sizeof var) {
        memcpy(var, name, (size_t)(dot - name));
        var[dot - name] = '\0';
        if (rule_var_find(c->vars, c->n_vars, var) >= 0)
            return;
    }
    if (!rule_node(c->rule, name, &node, &rest) || !is_node_value(c->rule->nodes[node].op, rest))
        c->unknown = name;
}

static Status check_expr(const Rule *r, const Expr *e, const char *what, Err *err)
{
    RuleVar vars[RULE_MAX_VARS];
    NameCheck c = {.rule = r, .vars = vars, .n_vars = rule_vars(r, vars)};

    expr_names(e, check_expr_name, &c);
    if (c.unknown != NULL)
        return err_set(err, ST_FORMAT,
                       "%s '%s' names '%s', which is neither a value of a node nor the width of a "
                       "variable of rule %s",
                       what, expr_text(e), c.unknown, r->id);
    return ST_OK;
}

Status binding_parse(Binding *out, const Rule *r, const char *text, Arena *a, Err *err)
{
    RuleVar vars[RULE_MAX_VARS];
    uint32_t n_vars = rule_vars(r, vars), node;
    int var = rule_var_find(vars, n_vars, text);
    const char *rest;
    Err inner;
    Status st;

    *out = (Binding){.kind = BIND_EXPR};
    if (var >= 0) {
        if (vars[var].inner)
            return err_set(err, ST_FORMAT,
                           "the argument is bound to '%s', which stays inside rule %s; list it under "
                           "'keep' or drop the argument",
                           text, r->id);
        out->kind = BIND_VAR;
        out->index = (uint32_t)var;
        return ST_OK;
    }
    if (strcmp(text, "workspace") == 0) {
        out->kind = BIND_WORKSPACE;
        return ST_OK;
    }
    if (strncmp(text, "step.", 5) == 0) {
        out->kind = BIND_STEP;
        if (!step_table_find(text + 5, &out->index))
            return err_set(err, ST_FORMAT,
                           "'%s' is no table of a step; they are tokens, positions, slots, row_seq, "
                           "seq_start, block_table, out_rows, state_slots, samples, edits and picks",
                           text);
        return ST_OK;
    }
    if (rule_node(r, text, &node, &rest) && bind_node_part(out, r->nodes[node].op, node, rest))
        return ST_OK;
    *out = (Binding){.kind = BIND_EXPR};
    st = expr_parse(text, a, &out->expr, &inner);
    if (st != ST_OK)
        return err_set(err, st,
                       "the binding '%s' is neither a variable, weight, state, table or parameter of rule %s "
                       "nor an expression: %s",
                       text, r->id, inner.msg);
    return check_expr(r, out->expr, "the binding", err);
}

/* ---- checks ----------------------------------------------------------------------------------------------------- */

/* Does FAMILIES.toml's format name mean a variable, a weight slot or a state of the pattern? Vectors are always f32. */
static Status check_format(const Rule *r, const FamilyFormat *f, const RuleVar *vars, uint32_t n_vars, Err *err)
{
    const char *rest;
    uint32_t node;
    int w;

    if (rule_var_find(vars, n_vars, f->name) >= 0)
        return ST_OK;
    if (rule_node(r, f->name, &node, &rest)) {
        const OpDef *op = r->nodes[node].op;
        if (strcmp(rest, "state") == 0 && (op->reads_state || op->writes_state))
            return ST_OK;
        w = op_weight(op, rest);
        if (w >= 0 && op->weights[w].vector && f->dtype != DT_F32)
            return err_set(err, ST_FORMAT, "format of '%s' is %s, but vectors reach kernels as f32", f->name,
                           dtype_name(f->dtype));
        if (w >= 0)
            return ST_OK;
    }
    return err_set(err, ST_FORMAT,
                   "'formats' lists '%s', which is neither a variable, a weight nor the state of rule %s", f->name,
                   r->id);
}

static Status check_formats_given(const Rule *r, Err *err)
{
    char name[128];

    for (uint32_t i = 0; i < r->n_nodes; i++) {
        const OpDef *op = r->nodes[i].op;
        for (uint32_t w = 0; w < op->n_weights; w++)
            if (!op->weights[w].vector && (!rule_slot_name(r, i, op->weights[w].name, name, sizeof name) ||
                                           family_format(r->family, name) == DT_NONE))
                return err_set(err, ST_FORMAT, "'formats' gives no format for the matrix '%s' of op %s; add it",
                               op->weights[w].name, op->name);
        if ((op->reads_state || op->writes_state) &&
            (!rule_slot_name(r, i, "state", name, sizeof name) || family_format(r->family, name) == DT_NONE))
            return err_set(err, ST_FORMAT, "'formats' gives no format for the state of op %s; add state = \"...\"",
                           op->name);
    }
    return ST_OK;
}

/* "out=in": a made and a read variable, both with memory. */
static Status check_inplace(const Rule *r, const char *text, const RuleVar *vars, uint32_t n_vars, Err *err)
{
    const char *eq = strchr(text, '=');
    char out[64];
    int o = -1, i = -1;

    if (eq != NULL && (size_t)(eq - text) < sizeof out) {
        memcpy(out, text, (size_t)(eq - text));
        out[eq - text] = '\0';
        o = rule_var_find(vars, n_vars, out);
        i = rule_var_find(vars, n_vars, eq + 1);
    }
    if (o < 0 || i < 0 || !vars[o].made || vars[o].inner || vars[i].made)
        return err_set(err, ST_FORMAT, "'inplace' has '%s'; write \"OUT=IN\" with an output and an input of rule %s",
                       text, r->id);
    return ST_OK;
}

static Status check_points(const Rule *r, Err *err)
{
    Status st = ST_OK;

    for (uint32_t i = 0; st == ST_OK && i < r->family->n_points; i++) {
        const FamilyPoint *p = &r->family->points[i];
        for (int d = 0; st == ST_OK && d < 3; d++)
            st = check_expr(r, p->grid[d], "'grid'", err);
        if (st == ST_OK)
            st = check_expr(r, p->smem, "'smem'", err);
        if (st == ST_OK)
            st = check_expr(r, p->workspace, "'workspace'", err);
    }
    return st;
}

Status rule_check(const Rule *r, Arena *a, Err *err)
{
    RuleVar vars[RULE_MAX_VARS];
    uint32_t n_vars = rule_vars(r, vars);
    const Family *f = r->family;
    Binding b;
    Status st = ST_OK;

    for (uint32_t i = 0; st == ST_OK && i < f->n_formats; i++)
        st = check_format(r, &f->formats[i], vars, n_vars, err);
    if (st == ST_OK)
        st = check_formats_given(r, err);
    for (uint32_t i = 0; st == ST_OK && i < f->n_inplace; i++)
        st = check_inplace(r, f->inplace[i], vars, n_vars, err);
    for (uint32_t i = 0; st == ST_OK && i < f->n_args; i++) {
        st = binding_parse(&b, r, f->args[i].binding, a, err);
        if (st != ST_OK)
            err_wrap(err, st, "argument '%s': ", f->args[i].name);
    }
    if (st == ST_OK)
        st = check_points(r, err);
    return st;
}

/* ---- the rule of a one-op family -------------------------------------------------------------------------------- */

Status rule_imply(Rule *out, const Family *f, Arena *a, Err *err)
{
    RuleNode *node = &out->nodes[0];

    *out = (Rule){.id = f->id, .family = f, .n_nodes = 1, .numerics = NUMERICS_REFERENCE};
    *node = (RuleNode){.op = f->op, .as = ""};
    for (uint32_t i = 0; i < f->op->n_in; i++) {
        node->in[i] = f->op->n_in == 1 ? "in" : arena_printf(a, "in%u", i);
        if (node->in[i] == NULL)
            return no_memory(err);
    }
    for (uint32_t i = 0; i < f->op->n_out; i++) {
        node->out[i] = f->op->n_out == 1 ? "out" : arena_printf(a, "out%u", i);
        if (node->out[i] == NULL)
            return no_memory(err);
    }
    return ST_OK;
}

/* ---- RULES.toml ------------------------------------------------------------------------------------------------- */

/* Names of one side of a pattern node; as many as the op has. */
static Status read_vars(const char **out, uint32_t want, const Toml *t, const TomlNode *table, const char *key,
                        Arena *a, Err *err)
{
    const TomlNode *list;
    Status st = toml_array(t, table, key, &list, err);

    if (st != ST_OK)
        return st;
    if ((list == NULL ? 0 : list->list.len) != want)
        return toml_err(t, list == NULL ? table : list, err, ST_FORMAT, "'%s' must list %u variables, as the op has",
                        key, want);
    for (uint32_t i = 0; i < want; i++) {
        const TomlNode *v = &list->list.items[i];
        if (v->kind != TOML_STRING || v->str[0] == '\0' || strchr(v->str, '.') != NULL)
            return toml_err(t, v, err, ST_FORMAT, "a variable is a word without dots");
        out[i] = arena_strdup(a, v->str);
        if (out[i] == NULL)
            return no_memory(err);
    }
    return ST_OK;
}

static Status read_pattern_node(RuleNode *out, const Toml *t, const TomlNode *table, Arena *a, Err *err)
{
    static const char *const keys[] = {"op", "as", "in", "out", NULL};
    const char *op = NULL, *as;
    Status st = ST_OK;

    TRY(toml_only(t, table, keys, err));
    TRY(toml_need_str(t, table, "op", &op, err));
    out->op = op_find(op);
    if (out->op == NULL)
        return toml_err(t, table, err, ST_FORMAT, "there is no op '%s'", op);
    as = op;
    TRY(toml_str(t, table, "as", &as, err));
    if (as[0] == '\0' || strchr(as, '.') != NULL)
        return toml_err(t, table, err, ST_FORMAT, "'as' must be a word without dots");
    out->as = arena_strdup(a, as);
    if (out->as == NULL)
        return no_memory(err);
    TRY(read_vars(out->in, out->op->n_in, t, table, "in", a, err));
    TRY(read_vars(out->out, out->op->n_out, t, table, "out", a, err));
done:
    return st;
}

static Status read_pattern(Rule *out, const Toml *t, const TomlNode *table, Arena *a, Err *err)
{
    const TomlNode *list;
    RuleVar vars[RULE_MAX_VARS];
    Status st = ST_OK;

    TRY(toml_array(t, table, "pattern", &list, err));
    if (list == NULL || list->list.len == 0 || list->list.len > RULE_MAX_NODES)
        return toml_err(t, list == NULL ? table : list, err, ST_FORMAT, "'pattern' must list 1 to %d ops",
                        RULE_MAX_NODES);
    for (uint32_t i = 0; i < list->list.len; i++) {
        const TomlNode *item = &list->list.items[i];
        RuleNode *node = &out->nodes[i];
        TRY(read_pattern_node(node, t, item, a, err));
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(out->nodes[j].as, node->as) == 0)
                return toml_err(t, item, err, ST_FORMAT,
                                "two ops of the pattern are called '%s'; tell them apart with "
                                "as = \"...\"",
                                node->as);
        /* SSA: what this op makes has not been made or read before it. */
        for (uint32_t j = 0; j < node->op->n_out; j++) {
            if (rule_var_find(vars, rule_vars(out, vars), node->out[j]) >= 0)
                return toml_err(t, item, err, ST_FORMAT, "variable '%s' is made by this op but was used before it",
                                node->out[j]);
            for (uint32_t k = 0; k < node->op->n_in; k++)
                if (strcmp(node->in[k], node->out[j]) == 0)
                    return toml_err(t, item, err, ST_FORMAT, "variable '%s' is both input and output of one op",
                                    node->in[k]);
        }
        out->n_nodes = i + 1;
    }
done:
    return st;
}

/* [rule.where]: values are kept as text, since roles are words and the rest are integers. */
static Status read_where(Rule *out, const Toml *t, const TomlNode *table, Arena *a, Err *err)
{
    const TomlNode *where;
    const char **names, **values, *rest;
    uint32_t node;
    Status st = toml_table(t, table, "where", &where, err);

    if (st != ST_OK || where == NULL)
        return st;
    names = ARENA_ARRAY(a, const char *, where->list.len);
    values = ARENA_ARRAY(a, const char *, where->list.len);
    if (names == NULL || values == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < where->list.len; i++) {
        const TomlNode *v = &where->list.items[i];
        if (v->kind != TOML_STRING && v->kind != TOML_INT)
            return toml_err(t, v, err, ST_FORMAT, "'where' compares with a word or an integer");
        if (strchr(v->key, '.') != NULL && !rule_node(out, v->key, &node, &rest))
            return toml_err(t, v, err, ST_FORMAT, "'where' names '%s', but no op of the pattern is called so", v->key);
        names[i] = arena_strdup(a, v->key);
        values[i] = v->kind == TOML_STRING ? arena_strdup(a, v->str) : arena_printf(a, "%lld", (long long)v->i);
        if (names[i] == NULL || values[i] == NULL)
            return no_memory(err);
    }
    out->n_where = where->list.len;
    out->where_names = names;
    out->where_values = values;
    return ST_OK;
}

static Status read_keep(Rule *out, const Toml *t, const TomlNode *table, Arena *a, Err *err)
{
    const TomlNode *list;
    RuleVar vars[RULE_MAX_VARS];
    uint32_t n = rule_vars(out, vars);
    const char **keep;
    Status st = toml_array(t, table, "keep", &list, err);

    if (st != ST_OK || list == NULL)
        return st;
    keep = ARENA_ARRAY(a, const char *, list->list.len);
    if (keep == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < list->list.len; i++) {
        const TomlNode *v = &list->list.items[i];
        int var = v->kind == TOML_STRING ? rule_var_find(vars, n, v->str) : -1;
        if (var < 0 || !vars[var].inner)
            return toml_err(t, v, err, ST_FORMAT, "'keep' lists variables that the pattern both makes and reads");
        keep[i] = arena_strdup(a, v->str);
        if (keep[i] == NULL)
            return no_memory(err);
    }
    out->n_keep = list->list.len;
    out->keep = keep;
    return ST_OK;
}

static Status read_numerics(Rule *out, const Toml *t, const TomlNode *table, Arena *a, Err *err)
{
    static const char *const keys[] = {"kind", "proof", "lever", NULL};
    const TomlNode *num;
    const char *kind = NULL, *proof = NULL, *lever = NULL;
    Status st = ST_OK;

    TRY(toml_table(t, table, "numerics", &num, err));
    if (num == NULL)
        return toml_err(t, table, err, ST_FORMAT,
                        "'numerics' is missing; add numerics = { kind = \"reference\" }, "
                        "\"bit_identical\" with its proof or \"differs\" with its lever");
    TRY(toml_only(t, num, keys, err));
    TRY(toml_need_str(t, num, "kind", &kind, err));
    TRY(toml_str(t, num, "proof", &proof, err));
    TRY(toml_str(t, num, "lever", &lever, err));
    if (strcmp(kind, "reference") == 0 && proof == NULL && lever == NULL) {
        out->numerics = NUMERICS_REFERENCE;
    } else if (strcmp(kind, "bit_identical") == 0 && proof != NULL && lever == NULL) {
        out->numerics = NUMERICS_BIT_IDENTICAL;
    } else if (strcmp(kind, "differs") == 0 && lever != NULL && proof == NULL) {
        out->numerics = NUMERICS_DIFFERS;
        out->lever = arena_strdup(a, lever);
        if (out->lever == NULL)
            return no_memory(err);
    } else {
        return toml_err(t, num, err, ST_FORMAT,
                        "'numerics' is kind = \"reference\", or \"bit_identical\" with a proof, "
                        "or \"differs\" with a lever");
    }
done:
    return st;
}

Status rule_read(Rule *out, const Toml *t, const TomlNode *table, const Family *families, uint32_t n_families, Arena *a,
                 Err *err)
{
    static const char *const keys[] = {"id", "family", "pattern", "where", "keep", "numerics", NULL};
    const char *id = NULL, *family = NULL;
    Err inner;
    Status st = ST_OK;

    *out = (Rule){0};
    TRY(toml_only(t, table, keys, err));
    TRY(toml_need_str(t, table, "id", &id, err));
    TRY(toml_need_str(t, table, "family", &family, err));
    out->id = arena_strdup(a, id);
    if (out->id == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < n_families; i++)
        if (strcmp(families[i].id, family) == 0)
            out->family = &families[i];
    if (out->family == NULL)
        return toml_err(t, table, err, ST_FORMAT,
                        "rule %s asks for family '%s', which no FAMILIES.toml of this target "
                        "has",
                        id, family);
    if (out->family->op != NULL)
        return toml_err(t, table, err, ST_FORMAT,
                        "rule %s asks for family '%s', which has an op and so a rule of its own", id, family);
    TRY(read_pattern(out, t, table, a, err));
    TRY(read_where(out, t, table, a, err));
    TRY(read_keep(out, t, table, a, err));
    TRY(read_numerics(out, t, table, a, err));
    st = rule_check(out, a, &inner);
    if (st != ST_OK)
        return toml_err(t, table, err, st, "rule %s, family %s (%s:%u): %s", id, out->family->id, out->family->file,
                        out->family->line, inner.msg);
done:
    return st;
}
