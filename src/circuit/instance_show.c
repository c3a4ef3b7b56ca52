/* instance_show.c - an instance as text for people and as JSON for tools. Each distinct layer once, then which layer is
 * which. */
#include "circuit/plan.h"
#include "circuit/quant_config.h"
#include <string.h>

static const char *const rope_kinds[] = {
    [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn"};

/* ---- sizes ------------------------------------------------------------------------------------------------------- */
typedef struct Size {
    uint64_t params, bytes;
} Size;

static void add_weights(Size *s, const InstanceBlock *b)
{
    for (uint32_t i = 0; i < b->n_weights; i++) {
        uint64_t row = 0;

        if (!dtype_row_bytes(b->weights[i].stored, b->weights[i].k, &row))
            continue; /* instance_new refuses such a weight */
        s->params += b->weights[i].n * b->weights[i].k;
        s->bytes += b->weights[i].n * row;
    }
}

/* As stored; a tensor that both stem and head read counts once. */
static Size weight_size(const Instance *in)
{
    Size s = {0};

    add_weights(&s, &in->stem);
    add_weights(&s, &in->head);
    for (uint32_t i = 0; i < in->n_layers; i++)
        add_weights(&s, &in->blocks[in->layers[i].block]);
    for (uint32_t i = 0; i < in->stem.n_weights; i++)
        for (uint32_t k = 0; k < in->head.n_weights; k++)
            if (strcmp(in->stem_bindings[i].tensor, in->head_bindings[k].tensor) == 0) {
                InstanceBlock twice = {.weights = &in->head.weights[k], .n_weights = 1};
                Size t = {0};

                add_weights(&t, &twice);
                s.params -= t.params;
                s.bytes -= t.bytes;
            }
    return s;
}

static bool asks_inputs(const Instance *in)
{
    bool asks = false;

    for (uint32_t i = 0; i < in->n_blocks; i++)
        for (uint32_t k = 0; k < in->blocks[i].n_weights; k++)
            asks |= in->blocks[i].weights[k].input.to != ACT_NARROW;
    for (uint32_t k = 0; k < in->head.n_weights; k++)
        asks |= in->head.weights[k].input.to != ACT_NARROW;
    return asks;
}

/* Of states of a kind and window: what one token takes, or one sequence. */
static uint64_t state_bytes(const Instance *in, StateKind kind, uint32_t window)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < in->n_layers; i++) {
        const InstanceBlock *b = &in->blocks[in->layers[i].block];

        for (uint32_t s = 0; s < b->n_states; s++)
            for (uint32_t p = 0; b->states[s].kind == kind && b->states[s].window == window && p < b->states[s].n_parts;
                 p++)
                bytes += (uint64_t)b->states[s].parts[p].heads * b->states[s].parts[p].width *
                         dtype_block_bytes(b->states[s].format);
    }
    return bytes;
}

static uint64_t kv_bytes(const Instance *in)
{
    uint64_t bytes = 0;

    for (uint32_t g = 0; g < in->n_kv_groups; g++)
        bytes += state_bytes(in, STATE_PAGED, in->kv_windows[g]);
    return bytes;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */
static void show_shape(const InstanceWeight *w, Str *out)
{
    uint32_t experts = w->experts ? w->experts : 1;

    if (w->experts)
        str_addf(out, "%u x ", w->experts);
    if (w->vector)
        str_addf(out, "[%llu] %s", (unsigned long long)(w->k / experts), dtype_name(w->stored));
    else
        str_addf(out, "[%llu, %llu] %s", (unsigned long long)(w->n / experts), (unsigned long long)w->k,
                 dtype_name(w->stored));
    if (w->input.to != ACT_NARROW) {
        str_adds(out, ", inputs ");
        quant_input_say(&w->input, out);
    }
}

static void show_param(const InstanceNode *n, uint32_t i, Str *out)
{
    const ParamDef *p = &n->op->params[i];

    if (p->type == PARAM_ENUM)
        str_addf(out, "  %s=%s", p->name, p->names[(int)n->param[i]]);
    else
        str_addf(out, "  %s=%.7g", p->name, n->param[i]);
}

static void show_node(const InstanceBlock *b, const InstanceNode *n, Str *out)
{
    Str edges = STR_INIT;

    for (uint32_t i = 0; i < n->op->n_in; i++)
        str_addf(&edges, "%s%s", i ? ", " : "", b->edges[n->in[i]].name);
    str_adds(&edges, " ->");
    for (uint32_t i = 0; i < n->op->n_out; i++)
        str_addf(&edges, " %s[%u]", b->edges[n->out[i]].name, b->edges[n->out[i]].width);
    if (n->op->n_out == 0)
        str_adds(&edges, " state");
    str_addf(out, "  %-14s %-15s %-28s", n->id, n->op->name, str_c(&edges));
    for (uint32_t i = 0; i < n->op->n_weights; i++) {
        if (n->weight[i] < 0)
            continue;
        str_addf(out, "  %s=%s", n->op->weights[i].name, b->weights[n->weight[i]].name);
        show_shape(&b->weights[n->weight[i]], out);
    }
    for (uint32_t i = 0; i < n->op->n_params; i++)
        if (n->op->params[i].required || n->param[i] != n->op->params[i].default_value)
            show_param(n, i, out);
    if (n->table >= 0)
        str_addf(out, "  table=%d", n->table);
    while (out->len > 0 && out->p[out->len - 1] == ' ')
        out->p[--out->len] = '\0';
    str_addc(out, '\n');
    str_release(&edges);
}

static void show_block(const InstanceBlock *b, Str *out)
{
    for (uint32_t i = 0; i < b->n_nodes; i++)
        show_node(b, &b->nodes[i], out);
}

/* The layers that are this block, as "0-3, 8". */
static void show_layers(const Instance *in, uint32_t block, Str *out)
{
    bool any = false;

    for (uint32_t i = 0; i < in->n_layers; i++) {
        uint32_t to = i;

        if (in->layers[i].block != block)
            continue;
        while (to + 1 < in->n_layers && in->layers[to + 1].block == block)
            to++;
        str_addf(out, to > i ? "%s%u-%u" : "%s%u", any ? ", " : "", i, to);
        any = true;
        i = to;
    }
}

void instance_show(const Instance *in, Str *out)
{
    Size size = weight_size(in);

    str_addf(out, "%s: circuit %s\n", in->source, in->arch);
    str_adds(out, "  dims      ");
    for (uint32_t i = 0; i < in->n_dims; i++)
        str_addf(out, "%s%s %lld", i ? ", " : "", in->dims[i].name, (long long)in->dims[i].value);
    str_addf(out, "\n  weights   %llu parameters, %llu bytes as stored\n", (unsigned long long)size.params,
             (unsigned long long)size.bytes);
    if (asks_inputs(in))
        str_addf(out, "  inputs    %s\n",
                 in->act_quant ? "rounded as the configuration asks"
                               : "as they are; the configuration asks for rounding (--act-quant config)");
    str_addf(out, "  kv        %s, %llu bytes a token", dtype_name(in->kv_format), (unsigned long long)kv_bytes(in));
    for (uint32_t g = 0; g < in->n_kv_groups; g++)
        if (in->kv_windows[g] != 0)
            str_addf(out, ", %llu of them for the last %u tokens only",
                     (unsigned long long)state_bytes(in, STATE_PAGED, in->kv_windows[g]), in->kv_windows[g]);
    str_addc(out, '\n');
    if (state_bytes(in, STATE_RECURRENT, 0) > 0)
        str_addf(out, "  states    f32, %llu bytes a sequence\n",
                 (unsigned long long)state_bytes(in, STATE_RECURRENT, 0));
    for (uint32_t i = 0; i < in->n_ropes; i++)
        str_addf(out, "  rope %-4u %s, %u elements of a head, theta %.9g%s%s\n", i, rope_kinds[in->ropes[i].kind],
                 in->ropes[i].dims, in->ropes[i].theta, in->ropes[i].factors_tensor ? ", divided by " : "",
                 in->ropes[i].factors_tensor ? in->ropes[i].factors_tensor : "");
    if (in->n_eos > 0) {
        str_adds(out, "  ends at   ");
        for (uint32_t i = 0; i < in->n_eos; i++)
            str_addf(out, "%s%lld", i ? ", " : "", (long long)in->eos_ids[i]);
        str_addc(out, '\n');
    }
    for (uint32_t i = 0; i < in->n_unread; i++)
        str_addf(out, "  not read  %u tensors: %s\n", in->unread[i].tensors, in->unread[i].because);
    str_adds(out, "\nstem\n");
    show_block(&in->stem, out);
    for (uint32_t i = 0; i < in->n_blocks; i++) {
        str_addf(out, "\n%s: layers ", in->blocks[i].name);
        show_layers(in, i, out);
        str_addc(out, '\n');
        show_block(&in->blocks[i], out);
    }
    str_adds(out, "\nhead\n");
    show_block(&in->head, out);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */
/* jansson takes over the value even on failure, and json_dumps of what is there stays valid: a report that ran out of
 * memory is short, never broken. */
static void put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static json_t *json_node(const InstanceBlock *b, const InstanceNode *n)
{
    json_t *o = json_object(), *in = json_array(), *res = json_array(), *weights = json_object(),
           *params = json_object();

    put(o, "id", json_string(n->id));
    put(o, "op", json_string(n->op->name));
    if (n->role[0])
        put(o, "role", json_string(n->role));
    for (uint32_t i = 0; i < n->op->n_in; i++)
        json_array_append_new(in, json_string(b->edges[n->in[i]].name));
    for (uint32_t i = 0; i < n->op->n_out; i++)
        json_array_append_new(res, json_string(b->edges[n->out[i]].name));
    for (uint32_t i = 0; i < n->op->n_weights; i++)
        if (n->weight[i] >= 0)
            put(weights, n->op->weights[i].name, json_string(b->weights[n->weight[i]].name));
    for (uint32_t i = 0; i < n->op->n_params; i++) {
        const ParamDef *p = &n->op->params[i];

        put(params, p->name,
            p->type == PARAM_ENUM    ? json_string(p->names[(int)n->param[i]])
            : p->type == PARAM_FLOAT ? json_real(n->param[i])
                                     : json_integer((json_int_t)n->param[i]));
    }
    put(o, "in", in);
    put(o, "out", res);
    put(o, "weights", weights);
    put(o, "params", params);
    if (n->state >= 0)
        put(o, "state", json_string(b->states[n->state].name));
    if (n->table >= 0)
        put(o, "table", json_integer(n->table));
    return o;
}

static json_t *json_input(const QuantInput *q)
{
    Str s = STR_INIT;
    json_t *out;

    quant_input_say(q, &s);
    out = json_string(str_c(&s));
    str_release(&s);
    return out;
}

static json_t *json_block(const InstanceBlock *b)
{
    json_t *o = json_object(), *nodes = json_array(), *edges = json_object(), *weights = json_object(),
           *states = json_array();

    for (uint32_t i = 0; i < b->n_nodes; i++)
        json_array_append_new(nodes, json_node(b, &b->nodes[i]));
    for (uint32_t i = 0; i < b->n_edges; i++)
        put(edges, b->edges[i].name, json_integer(b->edges[i].width));
    for (uint32_t i = 0; i < b->n_weights; i++) {
        const InstanceWeight *w = &b->weights[i];
        json_t *shape = json_array(), *one = json_object();

        if (w->experts)
            json_array_append_new(shape, json_integer(w->experts));
        if (!w->vector)
            json_array_append_new(shape, json_integer((json_int_t)(w->n / (w->experts ? w->experts : 1))));
        json_array_append_new(shape, json_integer((json_int_t)(w->vector && w->experts ? w->k / w->experts : w->k)));
        put(one, "shape", shape);
        put(one, "format", json_string(dtype_name(w->stored)));
        if (w->input.to != ACT_NARROW)
            put(one, "inputs", json_input(&w->input));
        put(weights, w->name, one);
    }
    for (uint32_t i = 0; i < b->n_states; i++) {
        json_t *one = json_object(), *parts = json_array();

        put(one, "name", json_string(b->states[i].name));
        put(one, "kind", json_string(b->states[i].kind == STATE_PAGED ? "paged" : "recurrent"));
        put(one, "format", json_string(dtype_name(b->states[i].format)));
        if (b->states[i].window != 0)
            put(one, "window", json_integer((json_int_t)b->states[i].window));
        for (uint32_t p = 0; p < b->states[i].n_parts; p++)
            json_array_append_new(parts, json_pack("{s:s, s:i, s:i}", "name", b->states[i].parts[p].name, "heads",
                                                   (int)b->states[i].parts[p].heads, "width",
                                                   (int)b->states[i].parts[p].width));
        put(one, "parts", parts);
        json_array_append_new(states, one);
    }
    put(o, "name", json_string(b->name));
    put(o, "nodes", nodes);
    put(o, "edges", edges);
    put(o, "weights", weights);
    put(o, "states", states);
    return o;
}

static json_t *json_rope(const RopeSpec *r)
{
    json_t *o = json_object();

    put(o, "kind", json_string(rope_kinds[r->kind]));
    put(o, "dims", json_integer(r->dims));
    put(o, "theta", json_real(r->theta));
    if (r->kind != ROPE_DEFAULT)
        put(o, "factor", json_real(r->factor));
    if (r->kind == ROPE_LLAMA3) {
        put(o, "low_freq_factor", json_real(r->low_freq_factor));
        put(o, "high_freq_factor", json_real(r->high_freq_factor));
    }
    if (r->kind == ROPE_LLAMA3 || r->kind == ROPE_YARN)
        put(o, "original_max_position", json_real(r->original_max_position));
    if (r->kind == ROPE_YARN) {
        put(o, "beta_fast", json_real(r->beta_fast));
        put(o, "beta_slow", json_real(r->beta_slow));
        put(o, "attention_factor", json_real(r->attention_factor));
        put(o, "truncate", json_boolean(r->truncate));
    }
    if (r->factors_tensor != NULL)
        put(o, "factors_tensor", json_string(r->factors_tensor));
    return o;
}

static json_t *json_unread(const Instance *in)
{
    json_t *o = json_object();

    for (uint32_t i = 0; i < in->n_unread; i++)
        put(o, in->unread[i].because, json_integer(in->unread[i].tensors));
    return o;
}

json_t *instance_json(const Instance *in)
{
    json_t *o = json_object(), *dims = json_object(), *ropes = json_array(), *blocks = json_array(),
           *layers = json_array(), *eos = json_array();
    Size size = weight_size(in);
    char digest[33];

    put(o, "source", json_string(in->source));
    put(o, "arch", json_string(in->arch));
    put(o, "model_type", json_string(in->model_type));
    if (instance_digest(in, digest, NULL) == ST_OK)
        put(o, "digest", json_string(digest));
    for (uint32_t i = 0; i < in->n_dims; i++)
        put(dims, in->dims[i].name, json_integer(in->dims[i].value));
    put(o, "dims", dims);
    put(o, "parameters", json_integer((json_int_t)size.params));
    put(o, "weight_bytes", json_integer((json_int_t)size.bytes));
    put(o, "kv_format", json_string(dtype_name(in->kv_format)));
    put(o, "kv_bytes_per_token", json_integer((json_int_t)kv_bytes(in)));
    put(o, "state_bytes_per_sequence", json_integer((json_int_t)state_bytes(in, STATE_RECURRENT, 0)));
    put(o, "act_quant", json_string(!asks_inputs(in) ? "none" : in->act_quant ? "config" : "off"));
    put(o, "not_read", json_unread(in));
    for (uint32_t i = 0; i < in->n_ropes; i++)
        json_array_append_new(ropes, json_rope(&in->ropes[i]));
    put(o, "ropes", ropes);
    put(o, "bos_id", in->bos_id >= 0 ? json_integer(in->bos_id) : json_null());
    for (uint32_t i = 0; i < in->n_eos; i++)
        json_array_append_new(eos, json_integer(in->eos_ids[i]));
    put(o, "eos_ids", eos);
    put(o, "stem", json_block(&in->stem));
    for (uint32_t i = 0; i < in->n_blocks; i++)
        json_array_append_new(blocks, json_block(&in->blocks[i]));
    put(o, "blocks", blocks);
    for (uint32_t i = 0; i < in->n_layers; i++)
        json_array_append_new(layers, json_integer(in->layers[i].block));
    put(o, "layers", layers);
    put(o, "head", json_block(&in->head));
    return o;
}
