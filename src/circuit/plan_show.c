/* plan_show.c - a plan as a table for people and as JSON for tools. Each distinct layer once, with the layers
 * that share it.
 *
 * Predicted time is the cost model's: bytes moved at the most rows over the class's bandwidth, and a launch. What
 * attention reads of the KV cache is not in it, since it depends on how long the sequences are. */
#include "circuit/lowering.h"
#include <inttypes.h>

static double step_us(const Plan *p, const PlanStep *s)
{
    uint32_t lo, hi;

    lower_shape_rows(&p->shape, s->on_outputs, &lo, &hi);
    return 1e6 * ((double)(s->weight_bytes + s->edge_bytes_per_row * hi) / p->families->facts.bandwidth +
                  p->families->facts.launch_s);
}

/* The grid at the most rows, as X x Y x Z, and the scratch bytes. A plan was evaluated there already, so that it cannot
 * fail; "?" stands for what should not happen. */
static void say_geometry(const Plan *p, const PlanStep *s, Str *grid, Str *smem)
{
    int64_t v;

    for (int d = 0; d < 3; d++) {
        if (d > 0)
            str_addc(grid, 'x');
        if (plan_eval(s, s->point->grid[d], p->shape.max_rows, p->shape.max_outs, p->shape.max_seqs, &v, NULL) == ST_OK)
            str_addf(grid, "%" PRId64, v);
        else
            str_addc(grid, '?');
    }
    if (plan_eval(s, s->point->smem, p->shape.max_rows, p->shape.max_outs, p->shape.max_seqs, &v, NULL) == ST_OK)
        str_addf(smem, "%" PRId64, v);
    else
        str_addc(smem, '?');
}

static const char *shape_name(ShapeKind kind)
{
    return kind == SHAPE_DECODE ? "decode" : "extend";
}

/* What an argument is, without its name: "@4096", "w:q", "kv.k", "576", "rows". */
static void say_value(const PlanBlock *b, const PlanArg *a, Str *out)
{
    switch (a->kind) {
    case ARG_NULL:
        str_adds(out, "null");
        break;
    case ARG_BUFFER:
        str_addf(out, "@%" PRIu64, a->offset);
        break;
    case ARG_WEIGHT:
        str_addf(out, "w:%s", b->source->weights[a->index].name);
        break;
    case ARG_STATE:
        str_addf(out, "%s.%s", b->source->states[a->index].name, b->source->states[a->index].parts[a->part].name);
        break;
    case ARG_ROPE:
        str_addf(out, "rope:%u", a->index);
        break;
    case ARG_STEP:
        str_addf(out, "step.%s", step_table_name((StepTable)a->index));
        if (a->part > 0)
            str_addf(out, ":%u", a->part);
        break;
    case ARG_I32:
        str_addf(out, "%d", a->value);
        break;
    case ARG_F32:
        str_addf(out, "%g", (double)a->fvalue);
        break;
    case ARG_EXPR:
        str_adds(out, expr_text(a->expr));
        break;
    }
}

static void say_args(const PlanBlock *b, const PlanStep *s, Str *out)
{
    for (uint32_t i = 0; i < s->n_args; i++) {
        str_addf(out, "%s%s=", i > 0 ? " " : "", s->args[i].name);
        say_value(b, &s->args[i], out);
    }
}

static void say_nodes(const PlanStep *s, Str *out)
{
    for (uint32_t i = 0; i < s->n_nodes; i++)
        str_addf(out, "%s%s", i > 0 ? "+" : "", s->nodes[i]);
}

static void say_entry(const PlanStep *s, Str *out)
{
    str_adds(out, s->point->entry);
    if (s->point->constants[0] != '\0')
        str_addf(out, "[%s]", s->point->constants);
}

static void show_block(const Plan *p, const PlanBlock *b, const char *title, Str *out)
{
    str_addf(out, "\n%s: %u launches, %.1f us\n", title, b->n_steps, 1e6 * b->cost_s);
    str_addf(out, "  %3s  %-28s %-22s %-40s %-14s %8s %12s %9s %9s\n", "#", "nodes", "family", "entry", "grid", "smem",
             "weight B", "B/row", "us");
    for (uint32_t i = 0; i < b->n_steps; i++) {
        const PlanStep *s = &b->steps[i];
        Str nodes = STR_INIT, entry = STR_INIT, grid = STR_INIT, smem = STR_INIT;
        say_nodes(s, &nodes);
        say_entry(s, &entry);
        say_geometry(p, s, &grid, &smem);
        str_addf(out, "  %3u  %-28s %-22s %-40s %-14s %8s %12" PRIu64 " %9" PRIu64 " %9.2f\n", i, str_c(&nodes),
                 s->family->id, str_c(&entry), str_c(&grid), str_c(&smem), s->weight_bytes, s->edge_bytes_per_row,
                 step_us(p, s));
        str_adds(out, "         ");
        say_args(b, s, out);
        str_adds(out, s->point->overlap ? " overlap\n" : "\n");
        str_release(&nodes);
        str_release(&entry);
        str_release(&grid);
        str_release(&smem);
    }
}

static double plan_us(const Plan *p)
{
    double s = p->stem.cost_s + p->head.cost_s;

    for (uint32_t i = 0; i < p->instance->n_layers; i++)
        s += p->blocks[p->instance->layers[i].block].cost_s;
    return 1e6 * s;
}

/* "full 0..3 5 7..9" */
static void show_layers(const Plan *p, uint32_t block, Str *out)
{
    const Instance *in = p->instance;

    for (uint32_t i = 0; i < in->n_layers; i++) {
        uint32_t end = i;
        if (in->layers[i].block != block)
            continue;
        while (end + 1 < in->n_layers && in->layers[end + 1].block == block)
            end++;
        if (end > i)
            str_addf(out, " %u..%u", i, end);
        else
            str_addf(out, " %u", i);
        i = end;
    }
}

void plan_show(const Plan *p, Str *out)
{
    const Instance *in = p->instance;

    str_addf(out, "plan %s\n", p->digest);
    str_addf(out, "  model    %s (%s)\n", in->source, in->arch);
    str_addf(out, "  target   %s, activations %s\n", p->families->target->name,
             dtype_name(p->families->facts.activation));
    str_addf(out, "  shape    %s, rows %u..%u, %u sequences, %u outputs, %u tokens\n", shape_name(p->shape.kind),
             p->shape.min_rows, p->shape.max_rows, p->shape.max_seqs, p->shape.max_outs, p->shape.max_len);
    str_addf(out, "  arena    %" PRIu64 " bytes, logits at @%" PRIu64 "\n", p->arena_bytes, p->logits_offset);
    str_addf(out, "  cost     %.1f us without attention's reads\n", plan_us(p));
    show_block(p, &p->stem, "stem", out);
    for (uint32_t i = 0; i < in->n_blocks; i++) {
        Str title = STR_INIT;
        str_addf(&title, "layers %s:", p->blocks[i].name);
        show_layers(p, i, &title);
        show_block(p, &p->blocks[i], str_c(&title), out);
        str_release(&title);
    }
    show_block(p, &p->head, "head", out);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* Text of a Str as a JSON string; releases it. */
static json_t *json_text(Str *s)
{
    json_t *j = json_string(str_c(s));

    str_release(s);
    return j;
}

static json_t *step_json(const Plan *p, const PlanBlock *b, const PlanStep *s)
{
    json_t *nodes = json_array(), *args = json_object();
    Str grid = STR_INIT, smem = STR_INIT;

    say_geometry(p, s, &grid, &smem);
    for (uint32_t i = 0; i < s->n_nodes; i++)
        json_array_append_new(nodes, json_string(s->nodes[i]));
    for (uint32_t i = 0; i < s->n_args; i++) {
        Str value = STR_INIT;
        say_value(b, &s->args[i], &value);
        json_object_set_new(args, s->args[i].name, json_text(&value));
    }
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:o, s:o, s:i, s:b, s:o, s:I, s:I, s:f}", "nodes", nodes, "family",
                     s->family->id, "rule", s->rule->id, "entry", s->point->entry, "constants", s->point->constants,
                     "grid", json_text(&grid), "smem", json_text(&smem), "block", (int)s->point->block, "overlap",
                     s->point->overlap, "args", args, "weight_bytes", (json_int_t)s->weight_bytes, "row_bytes",
                     (json_int_t)s->edge_bytes_per_row, "us", step_us(p, s));
}

static json_t *block_json(const Plan *p, const PlanBlock *b, const PlanWeight *weights)
{
    json_t *steps = json_array(), *slots = json_array();

    for (uint32_t i = 0; i < b->n_steps; i++)
        json_array_append_new(steps, step_json(p, b, &b->steps[i]));
    for (uint32_t i = 0; i < b->source->n_weights; i++)
        json_array_append_new(slots, json_pack("{s:s, s:s, s:s}", "name", b->source->weights[i].name, "stored",
                                               dtype_name(b->source->weights[i].stored), "layout", weights[i].layout));
    return json_pack("{s:s, s:f, s:o, s:o}", "name", b->name, "us", 1e6 * b->cost_s, "steps", steps, "weights", slots);
}

json_t *plan_json(const Plan *p)
{
    const Instance *in = p->instance;
    json_t *blocks = json_array(), *layers = json_array();

    for (uint32_t i = 0; i < in->n_blocks; i++)
        json_array_append_new(blocks, block_json(p, &p->blocks[i], p->block_weights[i]));
    for (uint32_t i = 0; i < in->n_layers; i++)
        json_array_append_new(layers, json_integer(in->layers[i].block));
    return json_pack("{s:s, s:s, s:s, s:s, s:{s:s, s:I, s:I, s:I, s:I, s:I}, s:I, s:I, s:f, s:o, s:o, s:o, s:o}",
                     "digest", p->digest, "model", in->source, "arch", in->arch, "target", p->families->target->name,
                     "shape", "kind", shape_name(p->shape.kind), "min_rows", (json_int_t)p->shape.min_rows, "max_rows",
                     (json_int_t)p->shape.max_rows, "max_seqs", (json_int_t)p->shape.max_seqs, "max_outs",
                     (json_int_t)p->shape.max_outs, "max_len", (json_int_t)p->shape.max_len, "arena_bytes",
                     (json_int_t)p->arena_bytes, "logits_offset", (json_int_t)p->logits_offset, "us", plan_us(p),
                     "stem", block_json(p, &p->stem, p->stem_weights), "blocks", blocks, "head",
                     block_json(p, &p->head, p->head_weights), "layers", layers);
}
