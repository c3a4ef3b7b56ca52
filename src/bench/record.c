/* record.c - see record.h. A record that came from a file is not trusted: whatever has not the type that it should have is
 * taken as absent. */
#include "bench/record.h"
#include "core/hash.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FORMAT = 1 };

static Status no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "out of memory for the record");
}

/* ---- what is known before a run ---------------------------------------------------------------------------------- */

/* The plans of a model: decode rungs, then extend. */
static const Plan *plan_at(const Model *m, uint32_t i)
{
    const uint32_t most = model_options(m)->max_seqs;
    const Plan *p = i < 31 && (i == 0 || (1u << (i - 1)) < most) ? model_plan(m, 1u << i) : NULL;
    return p;
}

static void shape_name(const Plan *p, char *out, size_t size)
{
    snprintf(out, size, "%s %u", p->shape.kind == SHAPE_DECODE ? "decode" : "extend", p->shape.max_rows);
}

static Status add_plan(json_t *plans, const Plan *p)
{
    char name[40];

    shape_name(p, name, sizeof name);
    return json_array_append_new(plans, json_pack("{s:s, s:s}", "name", name, "digest", p->digest)) == 0 ? ST_OK
                                                                                                         : ST_NOMEM;
}

typedef struct Names {
    const char **v;
    size_t n;
} Names;

static void add_objects(Names *names, const PlanBlock *b)
{
    for (uint32_t i = 0; i < b->n_steps; i++)
        names->v[names->n++] = b->steps[i].kernel->hash;
}

static size_t block_launches(const Plan *p)
{
    size_t n = p->stem.n_steps + p->head.n_steps;
    for (uint32_t b = 0; b < p->instance->n_blocks; b++)
        n += p->blocks[b].n_steps;
    return n;
}

static void add_plan_objects(Names *names, const Plan *p)
{
    add_objects(names, &p->stem);
    for (uint32_t b = 0; b < p->instance->n_blocks; b++)
        add_objects(names, &p->blocks[b]);
    add_objects(names, &p->head);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Over the hashes of the objects that the plans launch: each once, in the order of their digits. */
static Status kernels_digest(const Model *m, char out[33], Err *err)
{
    size_t cap = block_launches(model_plan(m, 0));
    Names names = {0};
    Hasher *h = hasher_new();
    Status st = ST_OK;

    for (uint32_t i = 0; plan_at(m, i); i++)
        cap += block_launches(plan_at(m, i));
    names.v = calloc(cap + 1, sizeof *names.v);
    if (h == NULL || names.v == NULL)
        TRY(no_memory(err));
    for (uint32_t i = 0; plan_at(m, i); i++)
        add_plan_objects(&names, plan_at(m, i));
    add_plan_objects(&names, model_plan(m, 0));
    qsort(names.v, names.n, sizeof *names.v, by_text);
    for (size_t i = 0; i < names.n; i++)
        if (i == 0 || strcmp(names.v[i], names.v[i - 1]) != 0)
            hasher_add_str(h, names.v[i]);
    hash_hex(hasher_value(h), out);
done:
    hasher_free(h);
    free(names.v);
    return st;
}

/* A text as the record has it: what is not UTF-8 (of a command line) is left out. */
static json_t *text(const char *s)
{
    json_t *j = json_string(s ? s : "");
    return j ? j : json_string("(not UTF-8)");
}

/* One line that a shell would take: words that need it in quotes. */
static json_t *command_line(int argc, char **argv)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,=:@%+ ";
    Str s = STR_INIT;
    json_t *j;

    for (int i = 0; i < argc; i++) {
        const bool quote =
            argv[i][0] == '\0' || argv[i][strspn(argv[i], plain)] != '\0' || (i > 0 && strchr(argv[i], ' '));
        str_adds(&s, i ? " " : "");
        str_adds(&s, quote ? "'" : "");
        for (const char *c = argv[i]; *c; c++)
            if (*c == '\'')
                str_adds(&s, "'\\''");
            else
                str_addc(&s, *c);
        str_adds(&s, quote ? "'" : "");
    }
    j = text(str_c(&s));
    str_release(&s);
    return j;
}

static json_t *date(int64_t unix_s)
{
    char out[32] = "";
    struct tm tm;
    time_t t = (time_t)unix_s;

    if (gmtime_r(&t, &tm))
        strftime(out, sizeof out, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_string(out);
}

static json_t *clocks_json(const GpuClocks *c)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "cores_mhz", (json_int_t)c->cores, "memory_mhz", (json_int_t)c->memory,
                     "cores_max_mhz", (json_int_t)c->cores_max, "memory_max_mhz", (json_int_t)c->memory_max);
}

static json_t *start_json(const RecordFacts *f, const Model *m)
{
    const ModelTimes *t = model_times(m);
    const double load = (double)t->load_ns * 1e-9, bytes = (double)model_memory(m)->weights;

    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "ready_s", f->ready_s, "load_s", load, "load_bytes", bytes,
                     "load_gb_s", load > 0 ? bytes / load * 1e-9 : 0, "rest_s", f->ready_s - load, "plan_s",
                     (double)t->plan_ns * 1e-9, "bind_s", (double)t->bind_ns * 1e-9);
}

Status record_new(json_t **out, const RecordFacts *f, const Model *m, Err *err)
{
    const ModelOptions *o = model_options(m);
    json_t *r = NULL, *plans = json_array();
    char kernels[33];
    Status st = ST_OK;

    if (plans == NULL)
        return no_memory(err);
    for (uint32_t i = 0; plan_at(m, i); i++)
        if (add_plan(plans, plan_at(m, i)) != ST_OK)
            TRY(no_memory(err));
    if (add_plan(plans, model_plan(m, 0)) != ST_OK)
        TRY(no_memory(err));
    TRY(kernels_digest(m, kernels, err));
    r = json_pack(
        "{s:i, s:o, s:o, s:s, s:s, s:s, s:s, s:{s:s, s:o, s:I, s:I, s:o}, s:o, s:{s:o, s:o, s:I, s:I, s:I, s:I, s:I}, "
        "s:s, s:O, s:f, s:o, s:[], s:[]}",
        "record", FORMAT, "date", date(f->unix_s), "command", command_line(f->argc, f->argv), "version", f->version,
        "commit", f->commit, "target", f->target->name, "target_hash", f->target->hash, "device", "class",
        f->device->class_name, "name", text(f->device->device), "units", (json_int_t)f->device->units, "memory",
        (json_int_t)f->device->mem_total, "clocks", clocks_json(&f->clocks), "host", text(f->host), "model", "path",
        text(f->model), "dummy", f->dummy ? text(f->dummy) : json_null(), "weights",
        (json_int_t)model_memory(m)->weights, "max_seqs", (json_int_t)o->max_seqs, "max_rows", (json_int_t)o->max_rows,
        "max_len", (json_int_t)o->max_len, "kv_blocks", (json_int_t)o->kv_blocks, "kernels", kernels, "plans", plans,
        "copy_gb_s", f->copy_gb_s, "start", start_json(f, m), "rows", "launches");
    if (r == NULL)
        TRY(no_memory(err));
    *out = r;
done:
    json_decref(plans);
    return st;
}

/* ---- what a run adds --------------------------------------------------------------------------------------------- */

static json_t *figure(BenchFigure f)
{
    return json_pack("{s:f, s:f, s:f}", "median", f.median, "least", f.least, "most", f.most);
}

/* Takes row over. */
static Status append(json_t *record, const char *list, json_t *row, Err *err)
{
    return json_array_append_new(json_object_get(record, list), row) == 0 ? ST_OK : no_memory(err);
}

Status record_add_row(json_t *record, const BenchWork *w, const BenchResult *r, const GpuClocks *clocks, Err *err)
{
    char name[64], hash[20];

    snprintf(name, sizeof name, "%u+%u x %u", w->prompt, w->gen, w->concurrency);
    snprintf(hash, sizeof hash, "%016" PRIx64, r->tokens_hash);
    return append(record, "rows",
                  json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:I, s:s}", "name", name,
                            "prompt", (json_int_t)w->prompt, "gen", (json_int_t)w->gen, "concurrency",
                            (json_int_t)w->concurrency, "repeat", (json_int_t)w->repeat, "prefill_tok_s",
                            figure(r->prefill_tok_s), "decode_tok_s", figure(r->decode_tok_s), "ttft_ms",
                            figure(r->ttft_ms), "step_p50_ms", figure(r->step_p50_ms), "step_p99_ms",
                            figure(r->step_p99_ms), "bytes_step", r->bytes_step, "bytes_token", r->bytes_token,
                            "share_of_copy", r->share, "cores_mhz", (json_int_t)clocks->cores, "tokens_hash", hash),
                  err);
}

/* The nodes of a launch, as "attn_norm+q", and their ops, as "rms_norm+linear". */
static void describe(const PlanBlock *b, const PlanStep *s, Str *nodes, Str *ops)
{
    str_clear(nodes);
    str_clear(ops);
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        str_addf(nodes, "%s%s", i ? "+" : "", s->nodes[i]);
        for (uint32_t k = 0; k < b->source->n_nodes; k++)
            if (strcmp(b->source->nodes[k].id, s->nodes[i]) == 0)
                str_addf(ops, "%s%s", i ? "+" : "", b->source->nodes[k].op->name);
    }
}

/* What a line of launches is of. */
typedef struct LaunchName {
    const char *at, *block, *nodes, *op, *family, *entry;
} LaunchName;

static json_t *launch_json(const LaunchName *n, const BenchFigure us, uint32_t launches, double step_us,
                           const Traffic *t, double copy_gb_s)
{
    const double bytes = t->weights + t->states + t->edges, seconds = us.median * 1e-6;
    char name[256];

    snprintf(name, sizeof name, "%s: %s %s", n->at, n->block, n->nodes);
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:f, s:f, s:f, s:f, s:f}", "name", text(name), "at",
                     n->at, "block", n->block, "nodes", n->nodes, "op", n->op, "family", n->family, "entry", n->entry,
                     "launches", (json_int_t)launches, "us", figure(us), "share_of_step",
                     step_us > 0 ? us.median * launches / step_us : 0, "mb", bytes * 1e-6, "gb_s",
                     seconds > 0 ? bytes / seconds * 1e-9 : 0, "share_of_copy",
                     seconds > 0 && copy_gb_s > 0 ? bytes / seconds / (copy_gb_s * 1e9) : 0, "tflops",
                     seconds > 0 ? t->flops / seconds * 1e-12 : 0);
}

static void add(Traffic *sum, const Traffic *t, double times)
{
    sum->weights += t->weights * times;
    sum->states += t->states * times;
    sum->edges += t->edges * times;
    sum->flops += t->flops * times;
}

/* All launches of a family, or of all of them (NULL), as if they ran one behind the other. */
static Status add_sum(json_t *record, const LaunchName *n, const StepTimes *t, const StepLoad *load, const Family *f,
                      double copy_gb_s, Err *err)
{
    BenchFigure us = {0};
    Traffic sum = {0};
    uint32_t launches = 0;

    for (uint32_t k = 0; k < t->n; k++) {
        const LaunchTime *l = &t->launch[k];
        if (f != NULL && l->step->family != f)
            continue;
        const Traffic one = traffic_of_launch(t->plan, l->block, l->step, load);
        add(&sum, &one, l->launches);
        us.median += l->us * l->launches;
        us.least += l->us_min * l->launches;
        us.most += l->us_max * l->launches;
        launches += l->launches;
    }
    /* a mean launch, so that the line reads as the others do */
    us = (BenchFigure){us.median / launches, us.least / launches, us.most / launches};
    sum = (Traffic){sum.weights / launches, sum.states / launches, sum.edges / launches, sum.flops / launches};
    return append(record, "launches", launch_json(n, us, launches, t->step_us, &sum, copy_gb_s), err);
}

static bool first_of_family(const StepTimes *t, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (t->launch[k].step->family == t->launch[i].step->family)
            return false;
    return true;
}

Status record_add_steps(json_t *record, const StepTimes *t, const StepLoad *load, double copy_gb_s, Err *err)
{
    const Traffic all = traffic_of_step(t->plan, load);
    const BenchFigure whole = {t->step_us, t->step_us_min, t->step_us_max};
    Str nodes = STR_INIT, ops = STR_INIT;
    char at[80];
    Status st = ST_OK;

    snprintf(at, sizeof at, "%u x %u rows behind %u", load->seqs, load->rows / load->seqs, load->first);
    const LaunchName step = {at, "all", "step", "", "", ""}, sum = {at, "all", "launches", "", "", ""};
    TRY(append(record, "launches", launch_json(&step, whole, 1, t->step_us, &all, copy_gb_s), err));
    TRY(add_sum(record, &sum, t, load, NULL, copy_gb_s, err));
    for (uint32_t i = 0; i < t->n; i++) {
        const char *id = t->launch[i].step->family->id;
        const LaunchName family = {at, "all", id, "", id, ""};
        if (first_of_family(t, i))
            TRY(add_sum(record, &family, t, load, t->launch[i].step->family, copy_gb_s, err));
    }
    for (uint32_t i = 0; i < t->n; i++) {
        const LaunchTime *l = &t->launch[i];
        const Traffic one = traffic_of_launch(t->plan, l->block, l->step, load);
        describe(l->block, l->step, &nodes, &ops);
        if (!str_ok(&nodes) || !str_ok(&ops))
            TRY(no_memory(err));
        const LaunchName n = {at,          l->block->name,      str_c(&nodes),
                              str_c(&ops), l->step->family->id, l->step->point->entry};
        TRY(append(
            record, "launches",
            launch_json(&n, (BenchFigure){l->us, l->us_min, l->us_max}, l->launches, t->step_us, &one, copy_gb_s),
            err));
    }
done:
    str_release(&nodes);
    str_release(&ops);
    return st;
}

Status record_parse(json_t **out, const char *body, size_t len, const char *name, Err *err)
{
    json_t *j = NULL;
    Status st = json_parse(body, len, name, &j, err);

    if (st != ST_OK)
        return st;
    if (json_integer_value(json_object_get(j, "record")) != FORMAT || !json_is_array(json_object_get(j, "rows"))) {
        json_decref(j);
        return err_set(err, ST_FORMAT, "%s: is no record of `metrale bench --json` (record %d)", name, FORMAT);
    }
    *out = j;
    return ST_OK;
}

/* ---- JSON, a member a line ---------------------------------------------------------------------------------------- */

static void dump(const json_t *j, Str *out)
{
    char *s = json_dumps(j, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    str_adds(out, s ? s : "null");
    free(s);
}

void record_print(const json_t *record, Str *out)
{
    const char *key;
    json_t *value, *item;
    size_t i;
    bool more = false;

    str_adds(out, "{");
    json_object_foreach((json_t *)(uintptr_t)record, key, value)
    {
        str_addf(out, "%s\n\"%s\": ", more ? "," : "", key);
        more = true;
        if (!json_is_array(value) || json_array_size(value) == 0) {
            dump(value, out);
            continue;
        }
        json_array_foreach(value, i, item)
        {
            str_adds(out, i ? ",\n " : "[\n ");
            dump(item, out);
        }
        str_adds(out, "]");
    }
    str_adds(out, "\n}\n");
}
