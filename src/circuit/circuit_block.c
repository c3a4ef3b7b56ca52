/* circuit_block.c - reads circuits/blocks/NAME.toml and circuits/ARCH.toml.
 *
 * A block is straight-line code over names: a node reads names and (re)binds names. Everything that can be known
 * without a checkpoint is checked here: ops and their arity, slots, states, parameters and their types, that each name
 * is bound before it is read. What a block needs to be given (values without a default) is checked in circuit.c, where
 * the architecture is known. */
#include "circuit/circuit_parts.h"
#include <string.h>

/* ---- nodes ------------------------------------------------------------------------------------------------------- */
static const char *const node_keys[] = {"id", "op", "role", "in", "out", "when", "state", "table", NULL};

static Status read_edges(const Reader *r, const TomlNode *node, const char *key, uint32_t want, const char *op,
                         const char **out)
{
    const char *const *names = NULL;
    uint32_t n;
    Status st = read_strings(r, node, key, false, &names, &n);

    if (st != ST_OK)
        return st;
    if (n != want) {
        const TomlNode *at = toml_find(node, key);

        return read_err(r, at ? at : node, "op %s has %u in '%s', but %u are given", op, want, key, n);
    }
    for (uint32_t i = 0; i < n; i++)
        out[i] = names[i];
    return ST_OK;
}

static Status read_enum(const Reader *r, const TomlNode *v, const ParamDef *def, CircuitParam *out)
{
    for (uint32_t i = 0; def->names[i] != NULL; i++)
        if (strcmp(def->names[i], v->str) == 0) {
            out->form = PARAM_LITERAL;
            out->literal = i;
            return ST_OK;
        }
    return read_err(r, v, "'%s' cannot be \"%s\"; write one of its names (the first is \"%s\") or \"$value\"",
                    def->name, v->str, def->names[0]);
}

static Status read_param(const Reader *r, const TomlNode *v, const ParamDef *def, CircuitParam *out)
{
    out->at = v;
    if (v->kind == TOML_STRING && v->str[0] == '$') {
        out->form = PARAM_VALUE;
        out->name = v->str + 1;
        return ST_OK;
    }
    if (v->kind == TOML_STRING && def->type == PARAM_ENUM)
        return read_enum(r, v, def, out);
    if (v->kind == TOML_STRING && def->type == PARAM_INT) {
        out->form = PARAM_EXPR;
        return read_expr_text(r, v, v->str, &out->expr);
    }
    if (v->kind == TOML_INT && def->type != PARAM_ENUM) {
        out->form = PARAM_LITERAL;
        out->literal = (double)v->i;
        return ST_OK;
    }
    if (v->kind == TOML_FLOAT && def->type == PARAM_FLOAT) {
        out->form = PARAM_LITERAL;
        out->literal = v->f;
        return ST_OK;
    }
    return read_err(r, v, "'%s' of this op is %s; write %s", def->name,
                    def->type == PARAM_INT     ? "an integer"
                    : def->type == PARAM_FLOAT ? "a number"
                                               : "a name",
                    def->type == PARAM_INT     ? "an integer, an expression or \"$value\""
                    : def->type == PARAM_FLOAT ? "a number or \"$value\""
                                               : "a name or \"$value\"");
}

/* Keys beyond node_keys are weight slots and parameters of the op. */
static Status read_op_keys(const Reader *r, const TomlNode *node, CircuitNode *n)
{
    Status st = ST_OK;

    for (uint32_t i = 0; i < node->list.len; i++) {
        const TomlNode *v = &node->list.items[i];
        bool common = false;
        int at;

        for (const char *const *k = node_keys; *k != NULL; k++)
            common |= strcmp(*k, v->key) == 0;
        if (common)
            continue;
        at = op_weight(n->op, v->key);
        if (at >= 0) {
            TRY(read_kind(r, v, TOML_STRING, v->key));
            n->weight[at] = v->str;
            continue;
        }
        at = op_param(n->op, v->key);
        if (at < 0)
            return read_err(r, v, "op %s has no weight and no parameter '%s'", n->op->name, v->key);
        TRY(read_param(r, v, &n->op->params[at], &n->param[at]));
    }
    for (uint32_t i = 0; i < n->op->n_weights; i++)
        if (!n->op->weights[i].optional && n->weight[i] == NULL)
            return read_err(r, node, "node %s needs %s = \"SLOT\" for op %s", n->id, n->op->weights[i].name,
                            n->op->name);
    for (uint32_t i = 0; i < n->op->n_params; i++)
        if (n->op->params[i].required && n->param[i].form == PARAM_ABSENT)
            return read_err(r, node, "node %s needs parameter %s for op %s", n->id, n->op->params[i].name, n->op->name);
done:
    return st;
}

static const CircuitSlot *find_slot(const CircuitBlock *b, const char *name)
{
    for (uint32_t i = 0; i < b->n_slots; i++)
        if (strcmp(b->slots[i].name, name) == 0)
            return &b->slots[i];
    return NULL;
}

static Status check_slots(const Reader *r, const CircuitBlock *b, const CircuitNode *n)
{
    for (uint32_t i = 0; i < n->op->n_weights; i++) {
        const WeightDef *def = &n->op->weights[i];
        const CircuitSlot *slot;
        const TomlNode *at;

        if (n->weight[i] == NULL)
            continue;
        at = toml_find(n->at, def->name);
        slot = find_slot(b, n->weight[i]);
        if (slot == NULL)
            return read_err(r, at, "slot '%s' is not in [weights]; give its shape there", n->weight[i]);
        if (def->vector != (slot->n == NULL))
            return read_err(r, at, "op %s takes a %s as %s, but slot '%s' is a %s", n->op->name,
                            def->vector ? "vector" : "matrix", def->name, slot->name,
                            def->vector ? "matrix" : "vector");
        if (def->experts != (slot->experts != NULL))
            return read_err(r, at, "op %s takes one %s %s, so slot '%s' %s", n->op->name, def->name,
                            def->experts ? "for each expert" : "for all", slot->name,
                            def->experts ? "needs { experts = ..., shape = [...] }" : "cannot have experts");
    }
    return ST_OK;
}

static Status check_state_and_table(const Reader *r, const CircuitBlock *b, const CircuitNode *n)
{
    bool state = n->op->reads_state || n->op->writes_state;
    bool known = false;

    if (state != (n->state != NULL))
        return read_err(r, n->at, "op %s %s", n->op->name,
                        state ? "works on a state; add state = \"ID\"" : "has no state; delete 'state'");
    for (uint32_t i = 0; n->state != NULL && i < b->n_states; i++)
        known |= strcmp(b->states[i].name, n->state) == 0;
    if (n->state != NULL && !known)
        return read_err(r, toml_find(n->at, "state"), "state '%s' is not declared; add a [[state]] with that id",
                        n->state);
    if (n->op->reads_table != (n->table != NULL))
        return read_err(r, n->at, "op %s %s", n->op->name,
                        n->op->reads_table ? "reads a rope table; add table = \"NAME\""
                                           : "has no table; delete 'table'");
    return ST_OK;
}

static Status read_node(const Reader *r, const TomlNode *node, const CircuitBlock *b, CircuitNode *n)
{
    const char *op = NULL;
    Status st = ST_OK;

    n->at = node;
    n->role = "";
    TRY(read_need_str(r, node, "id", &n->id));
    TRY(read_need_str(r, node, "op", &op));
    n->op = op_find(op);
    if (n->op == NULL)
        return read_err(r, toml_find(node, "op"), "there is no op '%s'; the ops are listed in src/circuit/signature.h",
                        op);
    TRY(read_edges(r, node, "in", n->op->n_in, op, n->in));
    TRY(read_edges(r, node, "out", n->op->n_out, op, n->out));
    TRY(read_str(r, node, "role", &n->role));
    TRY(read_expr(r, node, "when", &n->when));
    TRY(read_str(r, node, "state", &n->state));
    TRY(read_str(r, node, "table", &n->table));
    TRY(read_op_keys(r, node, n));
    TRY(check_slots(r, b, n));
    TRY(check_state_and_table(r, b, n));
done:
    return st;
}

/* Each name is bound before it is read, by a node that may be switched off: that one is found out by kind_expand. The
 * last binding of `out` is what the block yields. */
static Status check_names(const Reader *r, const CircuitBlock *b)
{
    const char **bound = ARENA_ARRAY(r->arena, const char *, b->n_nodes *OP_MAX_OUT + 1);
    uint32_t n_bound = 0;
    bool yields = false;

    if (bound == NULL)
        return read_nomem(r);
    bound[n_bound++] = b->in;
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        const CircuitNode *n = &b->nodes[i];

        for (uint32_t j = 0; j < i; j++)
            if (strcmp(b->nodes[j].id, n->id) == 0)
                return read_err(r, n->at, "a second node has the id '%s'", n->id);
        for (uint32_t j = 0; j < n->op->n_in; j++) {
            bool known = false;

            for (uint32_t k = 0; k < n_bound; k++)
                known |= strcmp(bound[k], n->in[j]) == 0;
            if (!known)
                return read_err(r, toml_find(n->at, "in"), "node %s reads '%s', which no node above it binds", n->id,
                                n->in[j]);
        }
        for (uint32_t j = 0; j < n->op->n_out; j++) {
            yields |= strcmp(n->out[j], b->out) == 0;
            bound[n_bound++] = n->out[j];
        }
    }
    if (!yields)
        return read_err(r, toml_find(&r->toml->root, "out"), "no node binds '%s', the block's out", b->out);
    return ST_OK;
}

/* ---- the rest of a block ----------------------------------------------------------------------------------------- */
static Status read_slots(const Reader *r, const TomlNode *root, CircuitBlock *b)
{
    static const char *const expert_keys[] = {"experts", "shape", NULL};
    const TomlNode *t;
    Status st = read_list(r, root, "weights", TOML_TABLE, &t);
    CircuitSlot *slots;

    if (st != ST_OK || t == NULL)
        return st;
    slots = ARENA_ARRAY(r->arena, CircuitSlot, t->list.len);
    if (slots == NULL)
        return read_nomem(r);
    for (uint32_t i = 0; i < t->list.len; i++) {
        const TomlNode *v = &t->list.items[i], *shape = v;
        const char *const *dims = NULL;
        uint32_t n = 0;

        if (v->kind == TOML_TABLE) {
            TRY(read_only(r, v, expert_keys));
            TRY(read_expr(r, v, "experts", &slots[i].experts));
            shape = toml_find(v, "shape");
            if (slots[i].experts == NULL || shape == NULL)
                return read_err(r, v, "'%s' needs experts = \"HOW MANY\" and shape = [...] of one", v->key);
            TRY(read_strings(r, v, "shape", false, &dims, &n));
        } else {
            TRY(read_strings(r, t, v->key, false, &dims, &n));
        }
        if (n < 1 || n > 2)
            return read_err(r, v, "the shape of '%s' has %u dims; write [k] for a vector, [n, k] for a matrix", v->key,
                            n);
        slots[i].name = v->key;
        slots[i].at = v;
        if (n == 2)
            TRY(read_expr_text(r, &shape->list.items[0], dims[0], &slots[i].n));
        TRY(read_expr_text(r, &shape->list.items[n - 1], dims[n - 1], &slots[i].k));
    }
    b->slots = slots;
    b->n_slots = t->list.len;
done:
    return st;
}

static Status read_state(const Reader *r, const TomlNode *node, CircuitState *s)
{
    static const char *const keys[] = {"id", "kind", "window", "parts", NULL};
    static const char *const part_keys[] = {"name", "heads", "width", NULL};
    const char *kind = "paged";
    const TomlNode *parts;
    Status st = ST_OK;

    TRY(read_only(r, node, keys));
    TRY(read_need_str(r, node, "id", &s->name));
    TRY(read_str(r, node, "kind", &kind));
    if (strcmp(kind, "paged") != 0 && strcmp(kind, "recurrent") != 0)
        return read_err(r, toml_find(node, "kind"),
                        "a state is \"paged\" (something for each token) or \"recurrent\" (one for each sequence)");
    s->kind = kind[0] == 'p' ? STATE_PAGED : STATE_RECURRENT;
    TRY(read_expr(r, node, "window", &s->window));
    if (s->window != NULL && s->kind != STATE_PAGED)
        return read_err(r, toml_find(node, "window"),
                        "only a paged state has a window; a recurrent one keeps no single token");
    TRY(read_list(r, node, "parts", TOML_ARRAY, &parts));
    if (parts == NULL || parts->list.len < 1 || parts->list.len > 4)
        return read_err(r, parts ? parts : node, "state '%s' needs 1 to 4 parts", s->name);
    s->n_parts = parts->list.len;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        const TomlNode *p = &parts->list.items[i];

        TRY(read_kind(r, p, TOML_TABLE, "a part"));
        TRY(read_only(r, p, part_keys));
        TRY(read_need_str(r, p, "name", &s->part_names[i]));
        TRY(read_expr(r, p, "heads", &s->heads[i]));
        TRY(read_expr(r, p, "width", &s->widths[i]));
        if (s->heads[i] == NULL || s->widths[i] == NULL)
            return read_err(r, p, "part '%s' needs heads and width", s->part_names[i]);
    }
done:
    return st;
}

Status check_read(const Reader *r, const TomlNode *table, const CircuitCheck **out, uint32_t *n)
{
    static const char *const keys[] = {"that", "else", "when", NULL};
    const TomlNode *list;
    Status st = read_list(r, table, "check", TOML_ARRAY, &list);
    CircuitCheck *checks;

    *n = 0;
    if (st != ST_OK || list == NULL)
        return st;
    checks = ARENA_ARRAY(r->arena, CircuitCheck, list->list.len);
    if (checks == NULL)
        return read_nomem(r);
    for (uint32_t i = 0; i < list->list.len; i++) {
        const TomlNode *c = &list->list.items[i];

        TRY(read_kind(r, c, TOML_TABLE, "a check"));
        TRY(read_only(r, c, keys));
        TRY(read_need_str(r, c, "else", &checks[i].otherwise));
        TRY(read_expr(r, c, "that", &checks[i].that));
        TRY(read_expr(r, c, "when", &checks[i].when));
        if (checks[i].that == NULL)
            return read_err(r, c, "a check needs that = \"CONDITION\"");
        checks[i].at = c;
    }
    *out = checks;
    *n = list->list.len;
done:
    return st;
}

Status block_read(const Reader *r, const char *name, CircuitBlock *b)
{
    static const char *const keys[] = {"in", "out", "defaults", "weights", "state", "check", "node", NULL};
    const TomlNode *root = &r->toml->root, *list;
    const char *const *in = NULL;
    CircuitState *states;
    CircuitNode *nodes;
    uint32_t n = 0;
    Status st = ST_OK;

    b->name = name;
    b->toml = r->toml;
    TRY(read_only(r, root, keys));
    TRY(read_strings(r, root, "in", false, &in, &n));
    if (n != 1)
        return read_err(r, root, "a block reads one name; write in = [\"x\"]");
    b->in = in[0];
    TRY(read_need_str(r, root, "out", &b->out));
    TRY(read_values(r, root, "defaults", &b->defaults));
    TRY(read_slots(r, root, b));
    TRY(check_read(r, root, &b->checks, &b->n_checks));

    TRY(read_list(r, root, "state", TOML_ARRAY, &list));
    b->n_states = list == NULL ? 0 : list->list.len;
    states = ARENA_ARRAY(r->arena, CircuitState, b->n_states);
    if (states == NULL)
        return read_nomem(r);
    for (uint32_t i = 0; i < b->n_states; i++) {
        TRY(read_kind(r, &list->list.items[i], TOML_TABLE, "a state"));
        TRY(read_state(r, &list->list.items[i], &states[i]));
    }
    b->states = states;

    TRY(read_list(r, root, "node", TOML_ARRAY, &list));
    if (list == NULL || list->list.len == 0)
        return read_err(r, root, "a block needs at least one [[node]]");
    b->n_nodes = list->list.len;
    nodes = ARENA_ARRAY(r->arena, CircuitNode, b->n_nodes);
    if (nodes == NULL)
        return read_nomem(r);
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        TRY(read_kind(r, &list->list.items[i], TOML_TABLE, "a node"));
        TRY(read_node(r, &list->list.items[i], b, &nodes[i]));
    }
    b->nodes = nodes;
    TRY(check_names(r, b));
done:
    return st;
}

/* ---- an architecture --------------------------------------------------------------------------------------------- */
/* Blocks in sequence: what one yields the next one reads. */
static Status read_sequence(const Reader *r, const TomlNode *table, const char *key, const CircuitBlock *blocks,
                            uint32_t n_blocks, CircuitKind *kind)
{
    const char *const *names = NULL;
    const TomlNode *at = toml_find(table, key);
    Status st = read_strings(r, table, key, false, &names, &kind->n_blocks);

    if (st != ST_OK)
        return st;
    if (kind->n_blocks == 0)
        return read_err(r, at ? at : table, "'%s' needs the names of blocks in circuits/blocks", key);
    kind->blocks = ARENA_ARRAY(r->arena, const CircuitBlock *, kind->n_blocks);
    if (kind->blocks == NULL)
        return read_nomem(r);
    for (uint32_t i = 0; i < kind->n_blocks; i++) {
        for (uint32_t j = 0; j < n_blocks; j++)
            if (strcmp(blocks[j].name, names[i]) == 0)
                kind->blocks[i] = &blocks[j];
        if (kind->blocks[i] == NULL)
            return read_err(r, &at->list.items[i], "there is no circuits/blocks/%s.toml", names[i]);
        if (i > 0 && strcmp(kind->blocks[i]->in, kind->blocks[i - 1]->out) != 0)
            return read_err(r, &at->list.items[i], "block %s reads '%s', but %s before it yields '%s'", names[i],
                            kind->blocks[i]->in, names[i - 1], kind->blocks[i - 1]->out);
    }
    return ST_OK;
}

static Status find_kind(const Reader *r, const TomlNode *at, const Circuit *c, const char *name, uint32_t *out)
{
    for (uint32_t i = 0; i < c->n_kinds; i++)
        if (strcmp(c->kinds[i].name, name) == 0) {
            *out = i;
            return ST_OK;
        }
    return read_err(r, at, "there is no kind '%s'; add a [[kind]] of that name", name);
}

static Status read_layout(const Reader *r, const TomlNode *root, Circuit *c)
{
    static const char *const keys[] = {"layers", "kind", "kinds", "names", NULL};
    const TomlNode *t, *names;
    const char *const *lists = NULL;
    CircuitLayout *l = &c->layout;
    const char **from;
    uint32_t *to;
    Status st = ST_OK;

    TRY(read_list(r, root, "layout", TOML_TABLE, &t));
    if (t == NULL)
        return read_err(r, root, "[layout] is missing: it says how many layers there are and of which kind");
    TRY(read_only(r, t, keys));
    TRY(read_need_str(r, t, "layers", &l->layers));
    TRY(read_str(r, t, "kind", &l->kind));
    TRY(read_strings(r, t, "kinds", true, &lists, &l->n_kinds));
    if ((l->kind == NULL) == (l->n_kinds == 0))
        return read_err(r, t, "[layout] needs either kind = \"NAME\" or kinds = \"$list\"");
    if (l->n_kinds > sizeof l->kinds / sizeof l->kinds[0])
        return read_err(r, toml_find(t, "kinds"), "'kinds' takes at most 3 lists");
    if (l->kind != NULL)
        return find_kind(r, toml_find(t, "kind"), c, l->kind, &l->uniform);
    for (uint32_t i = 0; i < l->n_kinds; i++) {
        if (lists[i][0] != '$')
            return read_err(r, toml_find(t, "kinds"), "'kinds' names a list of the config map: write \"$%s\"",
                            lists[i]);
        l->kinds[i] = lists[i] + 1;
    }
    TRY(read_list(r, t, "names", TOML_TABLE, &names));
    if (names == NULL || names->list.len == 0)
        return read_err(r, t, "[layout] with 'kinds' needs names = { ITEM = \"KIND\" }");
    from = ARENA_ARRAY(r->arena, const char *, names->list.len);
    to = ARENA_ARRAY(r->arena, uint32_t, names->list.len);
    if (from == NULL || to == NULL)
        return read_nomem(r);
    for (uint32_t i = 0; i < names->list.len; i++) {
        const TomlNode *v = &names->list.items[i];

        TRY(read_kind(r, v, TOML_STRING, v->key));
        TRY(find_kind(r, v, c, v->str, &to[i]));
        from[i] = v->key;
    }
    l->from = from;
    l->to = to;
    l->n_names = names->list.len;
done:
    return st;
}

Status circuit_read(const Reader *r, const char *arch, const CircuitBlock *blocks, uint32_t n_blocks, Circuit *c)
{
    static const char *const keys[] = {"stem", "head", "set", "kind", "layout", NULL};
    static const char *const kind_keys[] = {"name", "blocks", "set", NULL};
    const TomlNode *root = &r->toml->root, *list;
    CircuitKind *kinds;
    Status st = ST_OK;

    c->arch = arch;
    c->toml = r->toml;
    c->stem.name = "stem";
    c->head.name = "head";
    TRY(read_only(r, root, keys));
    TRY(read_values(r, root, "set", &c->set));
    TRY(read_sequence(r, root, "stem", blocks, n_blocks, &c->stem));
    TRY(read_sequence(r, root, "head", blocks, n_blocks, &c->head));
    TRY(read_list(r, root, "kind", TOML_ARRAY, &list));
    if (list == NULL || list->list.len == 0)
        return read_err(r, root, "an architecture needs at least one [[kind]] of layer");
    c->n_kinds = list->list.len;
    kinds = ARENA_ARRAY(r->arena, CircuitKind, c->n_kinds);
    if (kinds == NULL)
        return read_nomem(r);
    for (uint32_t i = 0; i < c->n_kinds; i++) {
        const TomlNode *k = &list->list.items[i];

        TRY(read_kind(r, k, TOML_TABLE, "a kind"));
        TRY(read_only(r, k, kind_keys));
        TRY(read_need_str(r, k, "name", &kinds[i].name));
        TRY(read_sequence(r, k, "blocks", blocks, n_blocks, &kinds[i]));
        TRY(read_values(r, k, "set", &kinds[i].set));
        if (strcmp(kinds[i].blocks[0]->in, kinds[i].blocks[kinds[i].n_blocks - 1]->out) != 0)
            return read_err(r, k, "a layer must yield the name that it reads, so that layers can follow each other");
    }
    c->kinds = kinds;
    TRY(read_layout(r, root, c));
done:
    return st;
}
