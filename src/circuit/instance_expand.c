/* instance_expand.c - one kind of layer made concrete: nodes whose switch is on, in SSA form, with every parameter a
 * number and every width checked.
 *
 * Blocks follow each other; the names inside of one are its own, only the name that it reads comes in. A name that is
 * bound again becomes a new edge ("x", "x.1", ...). Widths flow forward: each op says what its inputs must be and what
 * its outputs are, so that a wrong shape in a block file is found at the node that it breaks. */
#include "circuit/circuit_parts.h"
#include "circuit/quant_config.h"
#include <math.h>
#include <string.h>

typedef struct Binding {
    const char *name;
    uint32_t edge;
} Binding;

typedef struct Expand {
    const ExpandInput *in;
    Arena *arena;
    Err *err;
    InstanceNode *nodes;
    InstanceEdge *edges;
    InstanceState *states;
    Binding *bound; /* names of the block at hand */
    uint32_t n_nodes, n_edges, n_states, n_bound;
    const CircuitBlock *block;
    Scope scope;
    uint32_t first_state; /* of the block at hand */
} Expand;

Scope kind_scope(const Circuit *c, const CircuitKind *kind, const CircuitBlock *block, const ConfigValues *config)
{
    return (Scope){.sets = {&kind->set, &c->set, &config->values, &block->defaults}, .n = 4};
}

Status node_active(const CircuitNode *n, const Scope *scope, const char *file, bool *active, Err *err)
{
    Scope s = *scope;
    int64_t v = 1;
    Err inner;
    Status st = n->when != NULL ? expr_eval(n->when, scope_lookup, &s, &v, &inner) : ST_OK;

    *active = v != 0;
    return st == ST_OK ? ST_OK : err_set(err, st, "%s: node %s: %s", file, n->id, inner.msg);
}

static Status bad_node(const Expand *x, const CircuitNode *n, const char *what)
{
    return err_set(x->err, ST_FORMAT, "%s: node %s (%s:%u): %s", x->in->file, n->id, x->block->toml->name, n->at->line,
                   what);
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */
static Status eval_int(Expand *x, const CircuitNode *n, const Expr *e, int64_t min, int64_t *out)
{
    Err inner;
    Status st = expr_eval(e, scope_lookup, &x->scope, out, &inner);

    if (st != ST_OK)
        return bad_node(x, n, inner.msg);
    if (*out < min || *out > INT32_MAX)
        return err_set(x->err, ST_FORMAT, "%s: node %s (%s:%u): %s is %lld; it must be from %lld to 2147483647",
                       x->in->file, n->id, x->block->toml->name, n->at->line, expr_text(e), (long long)*out,
                       (long long)min);
    return ST_OK;
}

static Status param_value(Expand *x, const CircuitNode *n, const ParamDef *def, const CircuitParam *p, double *out)
{
    const Value *v = scope_find(&x->scope, p->name);

    if (v != NULL && v->type == VALUE_INT && def->type != PARAM_ENUM) {
        *out = (double)v->i;
        return ST_OK;
    }
    if (v != NULL && v->type == VALUE_FLOAT && def->type == PARAM_FLOAT) {
        *out = v->f;
        return ST_OK;
    }
    for (uint32_t i = 0; v != NULL && v->type == VALUE_TEXT && def->type == PARAM_ENUM && def->names[i] != NULL; i++)
        if (strcmp(def->names[i], v->text) == 0) {
            *out = i;
            return ST_OK;
        }
    return err_set(x->err, ST_FORMAT, "%s: node %s (%s:%u): value '%s' does not suit parameter %s", x->in->file, n->id,
                   x->block->toml->name, p->at->line, p->name, def->name);
}

static Status set_params(Expand *x, const CircuitNode *n, InstanceNode *out)
{
    Status st = ST_OK;

    for (uint32_t i = 0; i < n->op->n_params; i++) {
        const CircuitParam *p = &n->param[i];
        int64_t v;

        switch (p->form) {
        case PARAM_ABSENT:
            out->param[i] = n->op->params[i].default_value;
            break;
        case PARAM_LITERAL:
            out->param[i] = p->literal;
            break;
        case PARAM_VALUE:
            TRY(param_value(x, n, &n->op->params[i], p, &out->param[i]));
            break;
        case PARAM_EXPR:
            TRY(eval_int(x, n, p->expr, 0, &v));
            out->param[i] = (double)v;
            break;
        }
        if (!isfinite(out->param[i]))
            return bad_node(x, n, "a parameter is not finite");
    }
done:
    return st;
}

/* The instance owns its texts: it may outlive the library. */
static Status keep(const Expand *x, const char *text, const char **out)
{
    *out = arena_strdup(x->arena, text);
    return *out != NULL ? ST_OK : err_set(x->err, ST_NOMEM, "%s: out of memory", x->in->file);
}

/* ---- edges ------------------------------------------------------------------------------------------------------- */
static const InstanceEdge *edge_of(const Expand *x, uint32_t e)
{
    return &x->edges[e];
}

/* A new edge for name; earlier edges of that name anywhere in the kind give it a number. */
static Status bind(Expand *x, const char *name, uint32_t width, int32_t producer, uint32_t *out)
{
    uint32_t same = 0;
    Binding *b = NULL;
    const char *edge;

    for (uint32_t i = 0; i < x->n_edges; i++) {
        size_t n = strlen(name);

        same += strncmp(x->edges[i].name, name, n) == 0 && (x->edges[i].name[n] == '\0' || x->edges[i].name[n] == '.');
    }
    edge = same ? arena_printf(x->arena, "%s.%u", name, same) : arena_strdup(x->arena, name);
    if (edge == NULL)
        return err_set(x->err, ST_NOMEM, "%s: out of memory", x->in->file);
    x->edges[x->n_edges] = (InstanceEdge){.name = edge, .width = width, .producer = producer};
    for (uint32_t i = 0; i < x->n_bound; i++)
        if (strcmp(x->bound[i].name, name) == 0)
            b = &x->bound[i];
    if (b == NULL)
        b = &x->bound[x->n_bound++];
    *b = (Binding){.name = name, .edge = x->n_edges};
    *out = x->n_edges++;
    return ST_OK;
}

static const Binding *find_bound(const Expand *x, const char *name)
{
    for (uint32_t i = 0; i < x->n_bound; i++)
        if (strcmp(x->bound[i].name, name) == 0)
            return &x->bound[i];
    return NULL;
}

/* ---- widths ------------------------------------------------------------------------------------------------------ */
static Status want(const Expand *x, const CircuitNode *n, const char *what, uint64_t got, uint64_t expected)
{
    if (got == expected)
        return ST_OK;
    return err_set(x->err, ST_FORMAT, "%s: node %s (%s:%u): %s is %llu elements wide, but must be %llu", x->in->file,
                   n->id, x->block->toml->name, n->at->line, what, (unsigned long long)got,
                   (unsigned long long)expected);
}

static uint64_t int_param(const InstanceNode *n, const char *name)
{
    return (uint64_t)n->param[op_param(n->op, name)];
}

/* Groups of `group` elements fill the width. */
static Status want_groups(const Expand *x, const CircuitNode *n, const char *what, uint64_t width, uint64_t group)
{
    if (group > 0 && width % group == 0)
        return ST_OK;
    return err_set(x->err, ST_FORMAT, "%s: node %s (%s:%u): %s is %llu elements wide, which is no multiple of %llu",
                   x->in->file, n->id, x->block->toml->name, n->at->line, what, (unsigned long long)width,
                   (unsigned long long)group);
}

/* Enough experts to choose from, also when whole groups fall away. */
static Status infer_top_k(const Expand *x, const CircuitNode *n, const InstanceNode *o, uint64_t experts,
                          const InstanceWeight *bias)
{
    uint64_t k = int_param(o, "k"), groups = int_param(o, "n_group"), kept = int_param(o, "topk_group");
    Status st = ST_OK;

    TRY(want_groups(x, n, "the row of experts", experts, groups));
    if (k == 0 || kept == 0 || kept > groups || k > experts / groups * kept)
        return bad_node(x, n, "k experts cannot be chosen from the groups that are kept");
    if (bias != NULL)
        TRY(want(x, n, "its bias", bias->k, experts));
done:
    return st;
}

/* The one part of a recurrent state. */
static Status want_state(const Expand *x, const CircuitNode *n, const InstanceState *s, uint64_t heads, uint64_t width)
{
    if (s->kind != STATE_RECURRENT || s->n_parts != 1)
        return bad_node(x, n, "its state must be of kind \"recurrent\", with one part");
    if (s->parts[0].heads != heads)
        return want(x, n, "the row of heads of its state", s->parts[0].heads, heads);
    return want(x, n, "a head of its state", s->parts[0].width, width);
}

static Status infer_recurrent(const Expand *x, const CircuitNode *n, const InstanceNode *o, const uint64_t *in,
                              const InstanceWeight *const *w, const InstanceState *state, uint32_t *out)
{
    uint64_t heads, groups, dim, size;
    Status st = ST_OK;

    *out = (uint32_t)in[0];
    switch (n->op->kind) {
    case OP_CONV1D_UPDATE:
        size = int_param(o, "taps");
        if (size < 2)
            return bad_node(x, n, "a convolution over one row needs no state; it has 2 taps or more");
        TRY(want(x, n, "its weight", w[0]->k, in[0] * size));
        if (w[1] != NULL)
            TRY(want(x, n, "its bias", w[1]->k, in[0]));
        return want_state(x, n, state, size - 1, in[0]);
    case OP_GDN_GATES:
        TRY(want(x, n, "its second input", in[1], in[0]));
        TRY(want(x, n, "a_log", w[0]->k, in[0]));
        TRY(want(x, n, "dt_bias", w[1]->k, in[0]));
        *out = (uint32_t)(2 * in[0]);
        return ST_OK;
    case OP_GDN_RECURRENCE:
        heads = int_param(o, "v_heads");
        groups = int_param(o, "k_heads");
        dim = int_param(o, "v_dim");
        size = int_param(o, "k_dim");
        TRY(want_groups(x, n, "the row of value heads", heads, groups));
        TRY(want(x, n, "q", in[0], groups * size));
        TRY(want(x, n, "k", in[1], groups * size));
        TRY(want(x, n, "v", in[2], heads * dim));
        TRY(want(x, n, "the row of gates", in[3], 2 * heads));
        *out = (uint32_t)in[2];
        return want_state(x, n, state, heads, size * dim);
    default: /* ssm_update */
        heads = int_param(o, "n_heads");
        groups = int_param(o, "n_groups");
        dim = int_param(o, "head_dim");
        size = int_param(o, "state_dim");
        TRY(want_groups(x, n, "the row of heads", heads, groups));
        TRY(want(x, n, "its first input", in[0], heads * dim + 2 * groups * size));
        TRY(want(x, n, "dt", in[1], heads));
        for (uint32_t i = 0; i < 3; i++)
            TRY(want(x, n, n->op->weights[i].name, w[i]->k, heads));
        *out = (uint32_t)(heads * dim);
        return want_state(x, n, state, heads, dim * size);
    }
done:
    return st;
}

static Status infer_latent(const Expand *x, const CircuitNode *n, const InstanceNode *o, const uint64_t *in,
                           const InstanceWeight *const *w, const InstanceState *state, uint32_t *out)
{
    uint64_t latent = int_param(o, "latent_dim"), rope = int_param(o, "rope_dim"), heads, nope, v_dim;
    Status st = ST_OK;

    if (state->kind != STATE_PAGED || state->n_parts != 1 || state->parts[0].heads != 1)
        return bad_node(x, n, "its state must be paged, with one part of one head");
    if (state->window != 0)
        return bad_node(x, n, "it looks at all tokens, so its state must have no window");
    TRY(want(x, n, "the part of its state", state->parts[0].width, latent + rope));
    if (n->op->kind == OP_LATENT_WRITE) {
        TRY(want(x, n, "the latent", in[0], latent));
        return want(x, n, "the rope part", in[1], rope);
    }
    heads = int_param(o, "n_heads");
    nope = int_param(o, "nope_dim");
    v_dim = int_param(o, "v_dim");
    TRY(want(x, n, "its first input", in[0], heads * nope));
    TRY(want(x, n, "its second input", in[1], heads * rope));
    TRY(want(x, n, "a row of kv_b", w[0]->k, latent));
    TRY(want(x, n, "the column of kv_b", w[0]->n, heads * (nope + v_dim)));
    *out = (uint32_t)(heads * v_dim);
done:
    return st;
}

/* What each op asks of its inputs, weights and state, and how wide it makes its outputs. */
static Status infer(const Expand *x, const CircuitNode *n, const InstanceNode *o, uint32_t out[OP_MAX_OUT])
{
    uint64_t in[OP_MAX_IN] = {0};
    const InstanceWeight *w[OP_MAX_WEIGHTS] = {0};
    const InstanceState *state = o->state >= 0 ? &x->states[o->state] : NULL;
    uint64_t heads, kv_heads, head_dim;
    Status st = ST_OK;

    for (uint32_t i = 0; i < o->op->n_in; i++)
        in[i] = edge_of(x, o->in[i])->width;
    for (uint32_t i = 0; i < o->op->n_weights; i++)
        w[i] = o->weight[i] >= 0 ? &x->in->weights[o->weight[i]] : NULL;
    switch (o->op->kind) {
    case OP_EMBED:
        out[0] = (uint32_t)w[0]->k;
        break;
    case OP_RMS_NORM:
        TRY(want(x, n, "its weight", w[0]->k, in[0]));
        out[0] = (uint32_t)in[0];
        break;
    case OP_QK_NORM:
        TRY(want_groups(x, n, "its input", in[0], int_param(o, "group")));
        TRY(want(x, n, "its weight", w[0]->k, int_param(o, "group")));
        out[0] = (uint32_t)in[0];
        break;
    case OP_RESIDUAL_ADD:
    case OP_SILU_MUL:
    case OP_GELU_TANH_MUL:
    case OP_SWIGLU_CLAMP:
        TRY(want(x, n, "its second input", in[1], in[0]));
        out[0] = (uint32_t)in[0];
        break;
    case OP_LINEAR:
    case OP_LM_HEAD:
        TRY(want(x, n, "its input", in[0], w[0]->k));
        out[0] = (uint32_t)w[0]->n;
        if (w[1] != NULL)
            TRY(want(x, n, "its bias", w[1]->k, w[0]->n));
        break;
    case OP_SAMPLE:
        out[0] = (uint32_t)in[0];
        break;
    case OP_ACT_QUANT:
    case OP_EXPERT_ACT_QUANT:
        if (int_param(o, "to") == ACT_NARROW || int_param(o, "span") == 0 || int_param(o, "row") == 0)
            return bad_node(x, n, "a format other than narrow, a span and a row must be given");
        if (o->op->kind == OP_ACT_QUANT) {
            TRY(want_groups(x, n, "its input", in[0], int_param(o, "row")));
            out[0] = (uint32_t)in[0];
            break;
        }
        if (in[0] != int_param(o, "row"))
            TRY(want(x, n, "its first input, with a part for each expert of a row,", in[0],
                     in[1] * int_param(o, "row")));
        if (in[1] * int_param(o, "row") > INT32_MAX)
            return bad_node(x, n, "the inputs of a row's experts are more than 2147483647 elements");
        out[0] = (uint32_t)(in[1] * int_param(o, "row"));
        break;
    case OP_ROPE:
        head_dim = int_param(o, "head_dim");
        TRY(want_groups(x, n, "q", in[0], head_dim));
        TRY(want_groups(x, n, "k", in[1], head_dim));
        if (x->in->config->ropes[o->table].dims > head_dim)
            return bad_node(x, n, "its table turns more elements than a head has");
        out[0] = (uint32_t)in[0];
        out[1] = (uint32_t)in[1];
        break;
    case OP_KV_WRITE:
        kv_heads = int_param(o, "n_kv_heads");
        head_dim = int_param(o, "head_dim");
        TRY(want(x, n, "k", in[0], kv_heads * head_dim));
        TRY(want(x, n, "v", in[1], kv_heads * head_dim));
        if (state->kind != STATE_PAGED || state->n_parts != 2)
            return bad_node(x, n, "its state must be paged, with the two parts k and v");
        for (uint32_t i = 0; i < 2; i++)
            TRY(want(x, n, "a part of its state", (uint64_t)state->parts[i].heads * state->parts[i].width, in[i]));
        break;
    case OP_PAGED_ATTENTION:
        heads = int_param(o, "n_heads");
        kv_heads = int_param(o, "n_kv_heads");
        head_dim = int_param(o, "head_dim");
        TRY(want(x, n, "q", in[0], heads * head_dim));
        TRY(want_groups(x, n, "the row of query heads", heads, kv_heads));
        if (state->n_parts != 2 || state->parts[0].heads != kv_heads || state->parts[0].width != head_dim)
            return bad_node(x, n, "its state does not hold n_kv_heads keys of head_dim elements");
        if (state->window != 0 && (int_param(o, "window") == 0 || int_param(o, "window") > state->window))
            return bad_node(x, n, "it looks further back than its state's window");
        if (w[0] != NULL)
            TRY(want(x, n, "the vector of sinks", w[0]->k, heads));
        out[0] = (uint32_t)(heads * state->parts[1].width);
        break;
    case OP_SPLIT:
        heads = int_param(o, "groups");
        head_dim = int_param(o, "first");
        TRY(want_groups(x, n, "its input", in[0], heads));
        if (head_dim == 0 || head_dim >= in[0] / heads)
            return bad_node(x, n, "its first part leaves nothing of a group, or takes nothing");
        out[0] = (uint32_t)(heads * head_dim);
        out[1] = (uint32_t)(in[0] - heads * head_dim);
        break;
    case OP_SIGMOID_GATE_MUL:
        TRY(want_groups(x, n, "its first input", in[0], in[1]));
        out[0] = (uint32_t)in[0];
        break;
    case OP_TOP_K:
        TRY(infer_top_k(x, n, o, in[0], w[0]));
        out[0] = out[1] = (uint32_t)int_param(o, "k");
        break;
    case OP_EXPERT_LINEAR:
        if (w[0]->experts == 0 || (w[1] != NULL && w[1]->experts != w[0]->experts))
            return bad_node(x, n, "its weight must be one for each expert");
        if (in[0] != w[0]->k)
            TRY(want(x, n, "its first input, with a part for each expert of a row,", in[0], in[1] * w[0]->k));
        if (w[1] != NULL)
            TRY(want(x, n, "its bias, over all experts,", w[1]->k, w[0]->n));
        if (in[1] * (w[0]->n / w[0]->experts) > INT32_MAX)
            return bad_node(x, n, "the results of a row's experts are more than 2147483647 elements");
        out[0] = (uint32_t)(in[1] * (w[0]->n / w[0]->experts));
        break;
    case OP_BLEND:
        TRY(want_groups(x, n, "the results of a row's experts", in[0], in[1]));
        out[0] = (uint32_t)(in[0] / in[1]);
        break;
    case OP_CONCAT:
        TRY(want_groups(x, n, "its first input", in[0], int_param(o, "groups")));
        TRY(want_groups(x, n, "its second input", in[1], int_param(o, "groups")));
        out[0] = (uint32_t)(in[0] + in[1]);
        break;
    case OP_RELU2:
        out[0] = (uint32_t)in[0];
        break;
    case OP_L2_NORM:
        TRY(want_groups(x, n, "its input", in[0], int_param(o, "group")));
        out[0] = (uint32_t)in[0];
        break;
    case OP_GATED_RMS_NORM:
        TRY(want(x, n, "its second input", in[1], in[0]));
        TRY(want_groups(x, n, "its input", in[0], int_param(o, "group")));
        if (w[0]->k != in[0])
            TRY(want(x, n, "its weight", w[0]->k, int_param(o, "group")));
        out[0] = (uint32_t)in[0];
        break;
    case OP_CONV1D_UPDATE:
    case OP_GDN_GATES:
    case OP_GDN_RECURRENCE:
    case OP_SSM_UPDATE:
        TRY(infer_recurrent(x, n, o, in, w, state, &out[0]));
        break;
    case OP_LATENT_WRITE:
    case OP_MLA_ATTENTION:
        TRY(infer_latent(x, n, o, in, w, state, &out[0]));
        break;
    case OP_COUNT:
        break;
    }
done:
    return st;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */
static Status set_table(Expand *x, const CircuitNode *n, InstanceNode *out)
{
    const char *name = n->table;

    if (name != NULL && name[0] == '$') {
        const Value *v = scope_find(&x->scope, name + 1);

        name = v != NULL && v->type == VALUE_TEXT ? v->text : "";
    }
    for (uint32_t i = 0; name != NULL && i < x->in->config->n_ropes; i++)
        if (strcmp(x->in->config->rope_names[i], name) == 0)
            out->table = (int32_t)x->in->config->rope_of[i];
    if (name != NULL && out->table < 0)
        return bad_node(x, n, "the config map has no rope of the name that 'table' gives");
    return ST_OK;
}

static void set_weights(const Expand *x, const CircuitNode *n, InstanceNode *out)
{
    for (uint32_t i = 0; i < OP_MAX_WEIGHTS; i++) {
        out->weight[i] = -1;
        for (uint32_t k = 0; n->weight[i] != NULL && k < x->in->n_weights; k++)
            if (strcmp(x->in->weights[k].name, n->weight[i]) == 0)
                out->weight[i] = (int32_t)k;
    }
}

/* Do two act_quant nodes make the same of the same value? */
static bool same_quant(const InstanceNode *a, const InstanceNode *b)
{
    bool same = a->op == b->op && a->in[0] == b->in[0] && a->weight[0] == b->weight[0];

    for (uint32_t i = 0; same && i < a->op->n_params; i++)
        same = a->param[i] == b->param[i];
    return same;
}

/* The act_quant node that a linear wants in front of it: its first input is then what that node makes. Linears that
 * read one edge by the same rule share the node; static scales belong to one weight. */
static Status quantize_input(Expand *x, const CircuitNode *n, InstanceNode *linear)
{
    const int32_t at = linear->weight[0];
    const InstanceWeight *w = at >= 0 ? &x->in->weights[at] : NULL;
    const bool multiplies = n->op->kind == OP_LINEAR || n->op->kind == OP_LM_HEAD || n->op->kind == OP_EXPERT_LINEAR;
    InstanceNode q = {.role = "", .in = {linear->in[0], linear->in[1]}, .state = -1, .table = -1};
    Str name = STR_INIT;
    uint32_t widths[OP_MAX_OUT] = {0};
    Status st = ST_OK;

    if (!x->in->act_quant || !multiplies || w == NULL || w->input.to == ACT_NARROW)
        return ST_OK;
    q.op = op_def(w->experts && w->input.scaled ? OP_EXPERT_ACT_QUANT : OP_ACT_QUANT);
    for (uint32_t i = 0; i < OP_MAX_WEIGHTS; i++)
        q.weight[i] = -1;
    if (w->input.scaled) /* instance_new put them behind the weight */
        q.weight[0] = at + 1;
    q.param[op_param(q.op, "to")] = w->input.to;
    q.param[op_param(q.op, "span")] = w->input.span > 0 ? w->input.span : (double)w->k;
    q.param[op_param(q.op, "row")] = (double)w->k;
    q.param[op_param(q.op, "inverse")] = w->input.scaled && x->in->bindings[at].quant->global_divides;
    for (uint32_t i = 0; i < x->n_nodes; i++)
        if (same_quant(&x->nodes[i], &q)) {
            linear->in[0] = x->nodes[i].out[0];
            return ST_OK;
        }
    str_addf(&name, "%s:", edge_of(x, q.in[0])->name);
    quant_input_say(&w->input, &name);
    if (w->input.scaled)
        str_addf(&name, ":%s", w->name);
    q.id = str_ok(&name) ? arena_strdup(x->arena, str_c(&name)) : NULL;
    str_release(&name);
    if (q.id == NULL)
        return err_set(x->err, ST_NOMEM, "%s: out of memory", x->in->file);
    TRY(infer(x, n, &q, widths));
    q.out[0] = x->n_edges;
    x->edges[x->n_edges++] = (InstanceEdge){.name = q.id, .width = widths[0], .producer = (int32_t)x->n_nodes};
    linear->in[0] = q.out[0];
    x->nodes[x->n_nodes++] = q;
done:
    return st;
}

static Status expand_node(Expand *x, const CircuitNode *n)
{
    InstanceNode node, *out = &node;
    uint32_t widths[OP_MAX_OUT] = {0};
    Status st = ST_OK;

    *out = (InstanceNode){.op = n->op, .state = -1, .table = -1};
    TRY(keep(x, n->id, &out->id));
    TRY(keep(x, n->role, &out->role));
    for (uint32_t i = 0; i < n->op->n_in; i++) {
        const Binding *b = find_bound(x, n->in[i]);

        if (b == NULL)
            return bad_node(x, n, "it reads a name whose node is switched off");
        out->in[i] = b->edge;
    }
    for (uint32_t i = 0; n->state != NULL && i < x->block->n_states; i++)
        if (strcmp(x->block->states[i].name, n->state) == 0)
            out->state = (int32_t)(x->first_state + i);
    set_weights(x, n, out);
    TRY(set_params(x, n, out));
    TRY(set_table(x, n, out));
    TRY(quantize_input(x, n, out));
    TRY(infer(x, n, out, widths));
    for (uint32_t i = 0; i < n->op->n_out; i++)
        TRY(bind(x, n->out[i], widths[i], (int32_t)x->n_nodes, &out->out[i]));
    x->nodes[x->n_nodes++] = node;
done:
    return st;
}

static Status expand_states(Expand *x)
{
    Status st = ST_OK;

    x->first_state = x->n_states;
    for (uint32_t i = 0; i < x->block->n_states; i++) {
        const CircuitState *from = &x->block->states[i];
        InstanceState *s = &x->states[x->n_states++];

        TRY(keep(x, from->name, &s->name));
        s->kind = from->kind;
        s->format = from->kind == STATE_PAGED ? x->in->kv_format : DT_F32;
        if (from->window != NULL) {
            int64_t window;
            TRY(eval_int(x, &x->block->nodes[0], from->window, 0, &window));
            s->window = (uint32_t)window;
        }
        s->n_parts = from->n_parts;
        for (uint32_t k = 0; k < from->n_parts; k++) {
            int64_t heads, width;

            TRY(eval_int(x, &x->block->nodes[0], from->heads[k], 1, &heads));
            TRY(eval_int(x, &x->block->nodes[0], from->widths[k], 1, &width));
            s->parts[k] = (InstanceStatePart){.heads = (uint32_t)heads, .width = (uint32_t)width};
            TRY(keep(x, from->part_names[k], &s->parts[k].name));
        }
    }
done:
    return st;
}

/* The edge that leaves one block comes into the next; nothing else does. */
static Status expand_block(Expand *x, const CircuitBlock *b, uint32_t *edge)
{
    Status st = ST_OK;

    x->block = b;
    x->scope = kind_scope(x->in->circuit, x->in->kind, b, x->in->config);
    x->n_bound = 1;
    x->bound[0] = (Binding){.name = b->in, .edge = *edge};
    for (uint32_t i = 0; i < b->n_checks; i++)
        TRY(check_run(&b->checks[i], &x->scope, x->in->file, x->err));
    TRY(expand_states(x));
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        bool active;

        TRY(node_active(&b->nodes[i], &x->scope, x->in->file, &active, x->err));
        if (active)
            TRY(expand_node(x, &b->nodes[i]));
    }
    if (find_bound(x, b->out) == NULL)
        return err_set(x->err, ST_FORMAT, "%s: every node that binds '%s' is switched off in %s", x->in->file, b->out,
                       b->toml->name);
    *edge = find_bound(x, b->out)->edge;
done:
    return st;
}

/* A value that nothing reads is a mistake in the block: work whose result is lost. */
static Status check_read_edges(const Expand *x, uint32_t out_edge)
{
    for (uint32_t e = 1; e < x->n_edges; e++) {
        bool read = e == out_edge;

        for (uint32_t i = 0; i < x->n_nodes; i++)
            for (uint32_t k = 0; k < x->nodes[i].op->n_in; k++)
                read |= x->nodes[i].in[k] == e;
        if (!read)
            return err_set(x->err, ST_FORMAT, "%s: in kind %s nothing reads '%s', which node %s makes", x->in->file,
                           x->in->kind->name, x->edges[e].name, x->nodes[x->edges[e].producer].id);
    }
    return ST_OK;
}

Status kind_expand(const ExpandInput *in, Arena *a, InstanceBlock *out, Err *err)
{
    Expand x = {.in = in, .arena = a, .err = err};
    const char *in_name, *name;
    uint32_t n_nodes = 0, n_states = 0, edge = 0;
    Status st = ST_OK;

    TRY(keep(&x, in->kind->name, &name));
    TRY(keep(&x, in->kind->blocks[0]->in, &in_name));
    for (uint32_t i = 0; i < in->kind->n_blocks; i++) {
        n_nodes += in->kind->blocks[i]->n_nodes;
        n_states += in->kind->blocks[i]->n_states;
    }
    x.nodes = ARENA_ARRAY(a, InstanceNode, 2 * n_nodes); /* each may have its act_quant */
    x.edges = ARENA_ARRAY(a, InstanceEdge, n_nodes * (OP_MAX_OUT + 1) + 1);
    x.bound = ARENA_ARRAY(a, Binding, n_nodes * OP_MAX_OUT + 1);
    x.states = ARENA_ARRAY(a, InstanceState, n_states);
    if (x.nodes == NULL || x.edges == NULL || x.bound == NULL || x.states == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory", in->file);
    x.edges[x.n_edges++] = (InstanceEdge){.name = in_name, .width = in->in_width, .producer = -1};
    for (uint32_t i = 0; i < in->kind->n_blocks; i++)
        TRY(expand_block(&x, in->kind->blocks[i], &edge));
    TRY(check_read_edges(&x, edge));
    *out = (InstanceBlock){.name = name,
                           .n_nodes = x.n_nodes,
                           .n_edges = x.n_edges,
                           .n_weights = in->n_weights,
                           .n_states = x.n_states,
                           .nodes = x.nodes,
                           .edges = x.edges,
                           .weights = in->weights,
                           .states = x.states,
                           .in_edge = 0,
                           .out_edge = edge};
done:
    return st;
}

/* ---- distinct layers --------------------------------------------------------------------------------------------- */
static bool node_equal(const InstanceNode *a, const InstanceNode *b)
{
    bool same = a->op == b->op && a->state == b->state && a->table == b->table && strcmp(a->id, b->id) == 0 &&
                strcmp(a->role, b->role) == 0;

    for (uint32_t i = 0; same && i < a->op->n_in; i++)
        same = a->in[i] == b->in[i];
    for (uint32_t i = 0; same && i < a->op->n_out; i++)
        same = a->out[i] == b->out[i];
    for (uint32_t i = 0; same && i < a->op->n_weights; i++)
        same = a->weight[i] == b->weight[i];
    for (uint32_t i = 0; same && i < a->op->n_params; i++)
        same = a->op->params[i].type == PARAM_FLOAT ? (float)a->param[i] == (float)b->param[i]
                                                    : a->param[i] == b->param[i];
    return same;
}

static bool state_equal(const InstanceState *a, const InstanceState *b)
{
    bool same = a->kind == b->kind && a->format == b->format && a->window == b->window && a->n_parts == b->n_parts &&
                strcmp(a->name, b->name) == 0;

    for (uint32_t i = 0; same && i < a->n_parts; i++)
        same = a->parts[i].heads == b->parts[i].heads && a->parts[i].width == b->parts[i].width;
    return same;
}

bool input_equal(const QuantInput *a, const QuantInput *b)
{
    return a->to == b->to && a->span == b->span && a->scaled == b->scaled;
}

bool block_equal(const InstanceBlock *a, const InstanceBlock *b)
{
    bool same = a->n_nodes == b->n_nodes && a->n_edges == b->n_edges && a->n_weights == b->n_weights &&
                a->n_states == b->n_states && a->out_edge == b->out_edge;

    for (uint32_t i = 0; same && i < a->n_nodes; i++)
        same = node_equal(&a->nodes[i], &b->nodes[i]);
    for (uint32_t i = 0; same && i < a->n_edges; i++)
        same = a->edges[i].width == b->edges[i].width;
    for (uint32_t i = 0; same && i < a->n_weights; i++)
        same = a->weights[i].n == b->weights[i].n && a->weights[i].k == b->weights[i].k &&
               a->weights[i].experts == b->weights[i].experts && a->weights[i].stored == b->weights[i].stored &&
               input_equal(&a->weights[i].input, &b->weights[i].input);
    for (uint32_t i = 0; same && i < a->n_states; i++)
        same = state_equal(&a->states[i], &b->states[i]);
    return same;
}
