/* cmd_circuit.c - `metrale circuit`: what a checkpoint's circuit is and how a class runs it, from its metadata alone.
 *
 *   show    dims, blocks, nodes, weights        plan    launches of one step shape
 *   memory  every byte that a start allocates   diff    two models, line by line      digest  32 hex digits
 *
 * No weight is read and no device is opened, so any class that is in the binary can be planned on any machine. */
#include "circuit/plan.h"
#include "circuit/target.h"
#include "cli/cli.h"
#include "cli/loader.h"
#include "model/memory.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_ROWS = 1000, KEY_SHAPE, KEY_JSON, MAX_PLANS = 24 };

typedef struct Args {
    const char *verb, *models[2];
    int n_models;
    long rows; /* 0: 1 for decode, the class's max_rows for extend */
    bool extend, json;
    Levers levers;
} Args;

static const struct argp_option options[] = {
    {"rows", KEY_ROWS, "N", 0, "plan: rows of the step (decode 1, extend max-rows)", 0},
    {"shape", KEY_SHAPE, "decode|extend", 0, "plan: kind of step (decode)", 0},
    {"json", KEY_JSON, NULL, 0, "print JSON", 0},
    {0},
};

static bool is_verb(const char *s)
{
    static const char *const verbs[] = {"show", "plan", "memory", "diff", "digest"};

    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verbs[i], s) == 0)
            return true;
    return false;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;
    char *end;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->levers;
        return 0;
    case KEY_ROWS:
        a->rows = strtol(arg, &end, 10);
        if (*arg == '\0' || *end != '\0' || a->rows < 1 || a->rows > 65536)
            argp_error(state, "--rows %s: a number from 1 to 65536, please", arg);
        return 0;
    case KEY_SHAPE:
        a->extend = strcmp(arg, "extend") == 0;
        if (!a->extend && strcmp(arg, "decode") != 0)
            argp_error(state, "--shape %s: decode or extend, please", arg);
        return 0;
    case KEY_JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->verb == NULL && !is_verb(arg))
            argp_error(state, "\"%s\" is none of show, plan, memory, diff and digest", arg);
        if (a->verb == NULL)
            a->verb = arg;
        else if (a->n_models < 2)
            a->models[a->n_models++] = arg;
        else
            argp_error(state, "\"%s\" is one MODEL too many", arg);
        return 0;
    case ARGP_KEY_END:
        if (a->verb == NULL)
            argp_error(state, "show, plan, memory, diff or digest?");
        else if (a->n_models != (strcmp(a->verb, "diff") == 0 ? 2 : 1))
            argp_error(state, strcmp(a->verb, "diff") == 0 ? "diff needs two MODELs" : "one MODEL, please");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static Status print_text(Str *s, Err *err)
{
    if (!str_ok(s))
        return err_set(err, ST_NOMEM, "out of memory for the report");
    fputs(str_c(s), stdout);
    return ST_OK;
}

/* Takes j over. */
static Status print_json(json_t *j, Err *err)
{
    if (j == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the report");
    json_dumpf(j, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(j);
    return ST_OK;
}

/* ---- verbs ------------------------------------------------------------------------------------------------------- */

static Status show(const Args *a, const Loaded *l, Err *err)
{
    Str s = STR_INIT;
    Status st;

    if (a->json)
        return print_json(instance_json(l->in), err);
    instance_show(l->in, &s);
    st = print_text(&s, err);
    str_release(&s);
    return st;
}

static Status digest(const Args *a, const Loaded *l, Err *err)
{
    char hex[33];
    Status st = instance_digest(l->in, hex, err);

    if (st != ST_OK)
        return st;
    if (a->json)
        return print_json(json_pack("{s:s, s:s}", "model", l->path, "digest", hex), err);
    printf("%s  %s\n", hex, l->path);
    return ST_OK;
}

static Status diff(const Args *a, const Loaded *l, Loaded *other, bool *differ, Err *err)
{
    Str s = STR_INIT;
    Status st;

    instance_diff(l->in, other->in, &s);
    *differ = s.len > 0;
    if (!a->json) {
        st = print_text(&s, err);
    } else {
        json_t *lines = json_array();
        char *text = str_take(&s), *rest = NULL;
        for (char *line = text == NULL ? NULL : strtok_r(text, "\n", &rest); line != NULL;
             line = strtok_r(NULL, "\n", &rest))
            json_array_append_new(lines, json_string(line));
        free(text);
        st = print_json(json_pack("{s:s, s:s, s:o}", "a", l->path, "b", other->path, "differences", lines), err);
    }
    str_release(&s);
    return st;
}

static uint32_t longest(const Loaded *l, const Levers *levers)
{
    int64_t len = lever_int(levers, LEVER_MAX_LEN), tokens = lever_int(levers, LEVER_KV_TOKENS), trained = 0;

    if (len == 0 && instance_dim(l->in, "max_position", &trained) && trained > 0)
        len = trained;
    return (uint32_t)(len == 0 || len > tokens ? tokens : len);
}

static StepShape shape_of(const Args *a, const Loaded *l, ShapeKind kind, uint32_t rows)
{
    uint32_t seqs = (uint32_t)lever_int(&a->levers, LEVER_MAX_SEQS);

    if (kind == SHAPE_DECODE)
        return (StepShape){SHAPE_DECODE, rows / 2 + 1, rows, rows, rows, longest(l, &a->levers)};
    return (StepShape){SHAPE_EXTEND, 1, rows, seqs, seqs < rows ? seqs : rows, longest(l, &a->levers)};
}

static Status lower(Plan **out, const Args *a, const Loaded *l, StepShape shape, Err *err)
{
    LowerOptions opt = {.shape = shape, .batch_invariant = lever_bool(&a->levers, LEVER_BATCH_INVARIANT)};

    return plan_lower(out, l->in, l->families, &opt, err);
}

static Status plan(const Args *a, const Loaded *l, Err *err)
{
    ShapeKind kind = a->extend ? SHAPE_EXTEND : SHAPE_DECODE;
    uint32_t rows = a->rows > 0 ? (uint32_t)a->rows : a->extend ? (uint32_t)lever_int(&a->levers, LEVER_MAX_ROWS) : 1;
    Plan *p = NULL;
    Str s = STR_INIT;
    Status st = ST_OK;

    TRY(lower(&p, a, l, shape_of(a, l, kind, rows), err));
    if (a->json) {
        TRY(print_json(plan_json(p), err));
    } else {
        plan_show(p, &s);
        TRY(print_text(&s, err));
    }
done:
    str_release(&s);
    plan_free(p);
    return st;
}

/* All the plans of a start, as model_new makes them: a decode rung for each power of two until one holds all sequences,
 * and one extend. */
static Status memory(const Args *a, const Loaded *l, Err *err)
{
    const uint32_t seqs = (uint32_t)lever_int(&a->levers, LEVER_MAX_SEQS),
                   rows = (uint32_t)lever_int(&a->levers, LEVER_MAX_ROWS),
                   blocks =
                       (uint32_t)((lever_int(&a->levers, LEVER_KV_TOKENS) + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
    Plan *plans[MAX_PLANS] = {0};
    size_t n = 0;
    MemoryPlan m;
    Status st = ST_OK;

    for (uint32_t rung = 1; n + 1 < MAX_PLANS; rung *= 2) {
        TRY(lower(&plans[n], a, l, shape_of(a, l, SHAPE_DECODE, rung), err));
        n++;
        if (rung >= seqs)
            break;
    }
    TRY(lower(&plans[n], a, l, shape_of(a, l, SHAPE_EXTEND, rows > seqs ? rows : seqs), err));
    n++;
    TRY(memory_predict(&m, (const Plan *const *)plans, n, blocks, err));
    if (a->json) {
        TRY(print_json(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "weights", (json_int_t)m.weights,
                                 "kv", (json_int_t)m.kv, "states", (json_int_t)m.states, "state_bytes",
                                 (json_int_t)m.state_bytes, "activations", (json_int_t)m.activations, "tables",
                                 (json_int_t)m.tables, "inputs", (json_int_t)m.inputs, "total", (json_int_t)m.total,
                                 "kv_block_bytes", (json_int_t)m.kv_block_bytes, "converted", (json_int_t)m.converted),
                       err));
        goto done;
    }
    printf("weights      %14" PRIu64 "  (%" PRIu64 " widened at load)\n", m.weights, m.converted);
    printf("kv cache     %14" PRIu64 "  %u blocks of %" PRIu64 "\n", m.kv, blocks, m.kv_block_bytes);
    printf("states       %14" PRIu64 "  %" PRIu64 " for each sequence\n", m.states, m.state_bytes);
    printf("activations  %14" PRIu64 "\n", m.activations);
    printf("rope tables  %14" PRIu64 "\n", m.tables);
    printf("step inputs  %14" PRIu64 "\n", m.inputs);
    printf("total        %14" PRIu64 "  bytes on class %s\n", m.total, l->hw);
done:
    for (size_t i = 0; i < n; i++)
        plan_free(plans[i]);
    return st;
}

static Status with_families(Loaded *l, Err *err)
{
    Status st = target_choose(&l->target, &metrale_registry, l->hw, l->in, NULL, err);

    return st == ST_OK ? families_load(&l->families, &metrale_registry, l->target, err) : st;
}

int cmd_circuit(int argc, char **argv)
{
    Args a = {0};
    struct argp_child children[2] = {{0}};
    const struct argp argp = {
        options,
        parse,
        "show|plan|memory|digest MODEL\ndiff MODEL MODEL",
        "What a checkpoint's circuit is and how a hardware class runs it. MODEL is a directory, a .gguf file, a bare "
        "config.json, or `default`. diff exits 1 when the circuits differ.",
        children,
        NULL,
        NULL};
    const LoadOptions opt = {.level = LOAD_CIRCUIT};
    Loaded l = {0}, other = {0};
    bool differ = false;
    Err err = {{0}};
    Status st = ST_OK;

    levers_init(&a.levers);
    children[0].argp = &a.levers.parser;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    TRY(loaded_open(&l, a.models[0], &a.levers, &opt, &err));
    if (strcmp(a.verb, "show") == 0) {
        TRY(show(&a, &l, &err));
    } else if (strcmp(a.verb, "digest") == 0) {
        TRY(digest(&a, &l, &err));
    } else if (strcmp(a.verb, "diff") == 0) {
        TRY(loaded_open(&other, a.models[1], &a.levers, &opt, &err));
        TRY(diff(&a, &l, &other, &differ, &err));
    } else {
        TRY(with_families(&l, &err));
        TRY(strcmp(a.verb, "plan") == 0 ? plan(&a, &l, &err) : memory(&a, &l, &err));
    }
done:
    loaded_close(&other);
    loaded_close(&l);
    levers_release(&a.levers);
    return st != ST_OK ? cli_fail(&err) : differ ? 1 : 0;
}
