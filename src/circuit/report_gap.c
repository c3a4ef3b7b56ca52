/* report_gap.c - what of a model a class cannot run: the nodes that no match covers, in all shapes, grouped by op and
 * format. Lowering stops at the first such node; this report goes through all of them. */
#include "circuit/report_parts.h"
#include <string.h>

typedef struct Gap {
    json_t *items, *joint;
    uint32_t nodes; /* of all blocks in all shapes that were looked at */
} Gap;

static Status no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "out of memory for the report");
}

/* The entry of an op with these formats; made when there is none. NULL: out of memory. */
static json_t *entry_of(json_t *items, const char *op, const char *formats)
{
    size_t i;
    json_t *item;

    json_array_foreach(items, i, item)
    {
        if (strcmp(report_text(item, "op"), op) == 0 && strcmp(report_text(item, "formats"), formats) == 0)
            return item;
    }
    item = json_pack("{s:s, s:s, s:[], s:[], s:[]}", "op", op, "formats", formats, "rows", "shapes", "nodes");
    return json_array_append_new(items, item) == 0 ? item : NULL;
}

static bool say_shape(const LowerBlock *b, const InstanceNode *node, json_t *shapes)
{
    Str s = STR_INIT;
    bool ok;

    if (node->weight[0] >= 0) {
        const InstanceWeight *w = &b->block->weights[node->weight[0]];
        if (w->experts)
            str_addf(&s, "%u x %llu x %llu", w->experts, (unsigned long long)(w->n / w->experts),
                     (unsigned long long)w->k);
        else if (w->vector)
            str_addf(&s, "%llu", (unsigned long long)w->k);
        else
            str_addf(&s, "%llu x %llu", (unsigned long long)w->n, (unsigned long long)w->k);
    } else {
        str_addf(&s, "%u", b->block->edges[node->op->n_in ? node->in[0] : node->out[0]].width);
    }
    ok = str_ok(&s) && report_add_once(shapes, str_c(&s));
    str_release(&s);
    return ok;
}

static Status add_node(Gap *g, const Lowering *l, const LowerBlock *b, const InstanceNode *node, Err *err)
{
    Str text = STR_INIT;
    json_t *item;
    uint32_t lo, hi;
    bool ok;

    lower_say_formats(b, node, &text);
    item = str_ok(&text) ? entry_of(g->items, node->op->name, str_c(&text)) : NULL;
    str_clear(&text);
    lower_shape_rows(&l->opt->shape, node->op->on_outputs, &lo, &hi);
    str_addf(&text, lo == hi ? "%u" : "%u..%u", lo, hi);
    ok = item && str_ok(&text) && report_add_once(json_object_get(item, "rows"), str_c(&text)) &&
         say_shape(b, node, json_object_get(item, "shapes"));
    str_clear(&text);
    str_addf(&text, "%s.%s", b->block->name, node->id);
    ok = ok && str_ok(&text) && report_add_once(json_object_get(item, "nodes"), str_c(&text));
    str_release(&text);
    return ok ? ST_OK : no_memory(err);
}

/* The nodes that nothing covers; where each is covered by something, whether they are together. */
static Status visit(void *ctx, const Lowering *l, const LowerBlock *b, Match **matches, uint32_t n_matches, Err *err)
{
    Gap *g = ctx;
    const uint32_t n = b->block->n_nodes;
    const uint64_t full = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
    uint64_t covered = 0;
    Status st = ST_OK;

    g->nodes += n;
    for (uint32_t i = 0; i < n_matches; i++)
        covered |= matches[i]->mask;
    for (uint32_t i = 0; i < n; i++)
        if (!(covered >> i & 1))
            TRY(add_node(g, l, b, &b->block->nodes[i], err));
    if (covered == full) {
        const Match **steps;
        uint32_t n_steps;
        Err why;
        Status cover = cover_block(&steps, &n_steps, l, b, matches, n_matches, &why);
        if (cover == ST_UNSUPPORTED && !report_add_once(g->joint, why.msg))
            TRY(no_memory(err));
        if (cover != ST_OK && cover != ST_UNSUPPORTED)
            TRY(err_set(err, cover, "%s", why.msg));
    }
done:
    return st;
}

Status report_gap(json_t **out, bool *open, const Classes *c, const ReportClass *hw, const ReportNeed *need, Err *err)
{
    Gap g = {.items = json_array(), .joint = json_array()};
    FamilySet *fs = NULL;
    const KernelTarget *target = NULL;
    Str why = STR_INIT;
    Status st = ST_OK;

    if (g.items == NULL || g.joint == NULL)
        TRY(no_memory(err));
    TRY(report_families(&fs, &target, &why, c, hw, need->in, err));
    TRY(report_each_block(fs, need, visit, &g, err));
    *open = target == NULL || json_array_size(g.items) > 0 || json_array_size(g.joint) > 0;
    *out = json_pack("{s:s, s:s, s:s, s:s?, s:s?, s:b, s:I, s:O, s:O}", "model", need->in->source, "circuit",
                     need->in->arch, "class", hw->name, "target", target ? target->name : NULL, "no_target",
                     target ? NULL : str_c(&why), "built", hw->built, "nodes", (json_int_t)g.nodes, "missing", g.items,
                     "no_common_cover", g.joint);
    if (*out == NULL)
        TRY(no_memory(err));
done:
    str_release(&why);
    families_free(fs);
    json_decref(g.items);
    json_decref(g.joint);
    return st;
}

void report_gap_text(const json_t *r, Str *out)
{
    const json_t *missing = json_object_get(r, "missing"), *joint = json_object_get(r, "no_common_cover"), *item;
    const bool none = json_array_size(missing) == 0 && json_array_size(joint) == 0;
    size_t i;

    str_addf(out, "%s (%s) on class %s", report_text(r, "model"), report_text(r, "circuit"), report_text(r, "class"));
    if (*report_text(r, "target"))
        str_addf(out, ", target %s\n", report_text(r, "target"));
    else
        str_addf(out, ": %s; what its targets have in common:\n", report_text(r, "no_target"));
    if (!json_is_true(json_object_get(r, "built")))
        str_adds(out, "the kernels of this class are not in this binary; its families are read from their tables\n");
    if (none)
        str_adds(out, "every op has a family\n");
    else
        str_addf(out, "%-20s %-52s %-24s %-24s %s\n", "op", "formats", "rows", "shapes", "nodes");
    json_array_foreach(missing, i, item)
    {
        Str rows = STR_INIT, shapes = STR_INIT, nodes = STR_INIT;
        report_join(json_object_get(item, "rows"), " ", &rows);
        report_join(json_object_get(item, "shapes"), ", ", &shapes);
        report_join(json_object_get(item, "nodes"), " ", &nodes);
        str_addf(out, "%-20s %-52s %-24s %-24s %s\n", report_text(item, "op"), report_text(item, "formats"),
                 str_c(&rows), str_c(&shapes), str_c(&nodes));
        str_release(&rows);
        str_release(&shapes);
        str_release(&nodes);
    }
    json_array_foreach(joint, i, item) str_addf(out, "%s\n", json_string_value(item));
}
