/* report_precision.c - in which precision a plan computes with each kind of weight. A kind is a slot's name with all
 * that is said of it: layers that keep it alike share a line. */
#include "circuit/quant_config.h"
#include "circuit/report_parts.h"
#include <string.h>

static Status no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "out of memory for the report");
}

/* The step that covers a node. */
static const PlanStep *step_of(const PlanBlock *b, const char *node)
{
    for (uint32_t i = 0; i < b->n_steps; i++)
        for (uint32_t k = 0; k < b->steps[i].n_nodes; k++)
            if (strcmp(b->steps[i].nodes[k], node) == 0)
                return &b->steps[i];
    return NULL;
}

static json_t *same_kind(json_t *list, const json_t *kind)
{
    static const char *const keys[] = {"weight", "stored", "device", "layout", "asks", "activations", "accumulates"};
    size_t i;
    json_t *item;

    json_array_foreach(list, i, item)
    {
        bool same = true;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            same = same && strcmp(report_text(item, keys[k]), report_text(kind, keys[k])) == 0;
        if (same)
            return item;
    }
    return NULL;
}

static bool count(json_t *item, const char *key, uint64_t more)
{
    return json_object_set_new(item, key, json_integer(report_int(item, key) + (json_int_t)more)) == 0;
}

/* One slot of a block that `layers` layers have. */
static Status add_slot(json_t *list, const PlanBlock *b, const PlanWeight *weights, const InstanceNode *node,
                       uint32_t slot, uint32_t layers, ReportDeviceBytes device_bytes, Err *err)
{
    const InstanceWeight *w = &b->source->weights[node->weight[slot]];
    const char *layout = weights[node->weight[slot]].layout;
    const PlanStep *step = step_of(b, node->id);
    uint64_t row = 0, device = 0;
    json_t *kind, *item;
    Str asks = STR_INIT;

    if (step == NULL || !dtype_row_bytes(w->stored, w->k, &row) || !device_bytes(w, layout, &device))
        return err_set(err, ST_UNSUPPORTED, "weight %s of block %s has no place in the plan", w->name, b->name);
    quant_input_say(&w->input, &asks);
    kind = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "weight", w->name, "op", node->op->name, "stored",
                     dtype_name(w->stored), "device", w->vector ? "f32" : dtype_name(w->stored), "layout", layout,
                     "asks", str_c(&asks), "activations", node->op->n_in ? dtype_name(b->formats[node->in[0]]) : "none",
                     "accumulates", step->family->numerics);
    str_release(&asks);
    if (kind == NULL)
        return no_memory(err);
    item = same_kind(list, kind);
    if (item == NULL) {
        item = kind;
        json_array_append(list, kind);
    }
    bool ok = count(item, "count", layers) && count(item, "stored_bytes", w->n * row * layers) &&
              count(item, "device_bytes", device * layers);
    json_decref(kind);
    return ok ? ST_OK : no_memory(err);
}

static Status add_block(json_t *list, const PlanBlock *b, const PlanWeight *weights, uint32_t layers,
                        ReportDeviceBytes device_bytes, Err *err)
{
    Status st = ST_OK;

    for (uint32_t i = 0; i < b->source->n_nodes; i++)
        for (uint32_t s = 0; s < b->source->nodes[i].op->n_weights; s++)
            if (b->source->nodes[i].weight[s] >= 0)
                TRY(add_slot(list, b, weights, &b->source->nodes[i], s, layers, device_bytes, err));
done:
    return st;
}

Status report_precision(json_t **out, const Plan *p, ReportDeviceBytes device_bytes, Err *err)
{
    const Instance *in = p->instance;
    json_t *list = json_array();
    bool tied = false;
    Status st = ST_OK;

    if (list == NULL)
        return no_memory(err);
    TRY(add_block(list, &p->stem, p->stem_weights, 1, device_bytes, err));
    for (uint32_t b = 0; b < in->n_blocks; b++) {
        uint32_t layers = 0;
        for (uint32_t l = 0; l < in->n_layers; l++)
            layers += in->layers[l].block == b;
        TRY(add_block(list, &p->blocks[b], p->block_weights[b], layers, device_bytes, err));
    }
    TRY(add_block(list, &p->head, p->head_weights, 1, device_bytes, err));
    for (uint32_t i = 0; i < in->stem.n_weights; i++)
        for (uint32_t k = 0; k < in->head.n_weights; k++)
            tied |= strcmp(in->stem_bindings[i].tensor, in->head_bindings[k].tensor) == 0;
    *out = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:O}", "model", in->source, "circuit", in->arch, "target",
                     p->families->target->name, "activations", dtype_name(p->families->facts.activation), "kv",
                     dtype_name(in->kv_format), "act_quant", in->act_quant, "tied_head", tied, "weights", list);
    if (*out == NULL)
        TRY(no_memory(err));
done:
    json_decref(list);
    return st;
}

void report_precision_text(const json_t *r, Str *out)
{
    const json_t *item;
    size_t i;

    str_addf(out, "%s (%s), target %s: activations %s%s, KV %s%s\n", report_text(r, "model"), report_text(r, "circuit"),
             report_text(r, "target"), report_text(r, "activations"),
             json_is_true(json_object_get(r, "act_quant")) ? " rounded as asked" : "", report_text(r, "kv"),
             json_is_true(json_object_get(r, "tied_head")) ? ", the head is the embedding" : "");
    str_addf(out, "%-18s %5s %-8s %-12s %-11s %-12s %14s %14s  %s\n", "weight", "count", "stored", "device",
             "activations", "asked", "stored B", "device B", "accumulates");
    json_array_foreach(json_object_get(r, "weights"), i, item)
    {
        Str device = STR_INIT;
        str_addf(&device, "%s %s", report_text(item, "device"), report_text(item, "layout"));
        str_addf(out, "%-18s %5lld %-8s %-12s %-11s %-12s %14lld %14lld  %s\n", report_text(item, "weight"),
                 report_int(item, "count"), report_text(item, "stored"), str_c(&device),
                 report_text(item, "activations"), report_text(item, "asks"), report_int(item, "stored_bytes"),
                 report_int(item, "device_bytes"), report_text(item, "accumulates"));
        str_release(&device);
    }
}
