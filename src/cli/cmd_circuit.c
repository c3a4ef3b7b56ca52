/* cmd_circuit.c - `metrale circuit`: what a checkpoint's circuit is and how a class runs it, from its metadata alone.
 *
 *   show       dims, blocks, nodes, weights         plan    launches of one step shape
 *   memory     every byte that a start allocates    diff    two models, line by line      digest  32 hex digits
 *   precision  formats of each kind of weight       gap     what a class has no family for
 *   venn       families that classes share          lkb     the blueprint of all families
 *
 * No weight is read and no device is opened. What needs kernels (plan, memory, precision) speaks of any class in this
 * binary, on any machine; gap, venn and lkb speak of every class of the kernel tree. */
#include "circuit/plan.h"
#include "circuit/report.h"
#include "circuit/target.h"
#include "cli/cli.h"
#include "cli/loader.h"
#include "cli/plans.h"
#include "closure/layout.h"
#include "core/file.h"
#include "model/load.h"
#include "model/memory.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEY_ROWS = 1000, KEY_SHAPE, KEY_JSON, KEY_TREE, MAX_CLASSES = 16 };

typedef struct Args {
    const char *verb, *models[2], *tree; /* models: of venn two classes, or one model */
    int n_models;
    long rows; /* 0: 1 for decode, the class's max_rows for extend */
    bool extend, json;
    Levers levers;
} Args;

static const struct argp_option options[] = {
    {"rows", KEY_ROWS, "N", 0, "plan: rows of the step (decode 1, extend max-rows)", 0},
    {"shape", KEY_SHAPE, "decode|extend", 0, "plan: kind of step (decode)", 0},
    {"tree", KEY_TREE, "DIR", 0, "lkb: the kernel tree whose lines are counted; ./kernels when it is there", 0},
    {"json", KEY_JSON, NULL, 0, "print JSON", 0},
    {0},
};

/* The verbs, and how many MODELs each takes. */
static const struct {
    const char *name;
    int least, most;
} verbs[] = {{"show", 1, 1},      {"plan", 1, 1}, {"memory", 1, 1}, {"diff", 2, 2}, {"digest", 1, 1},
             {"precision", 1, 1}, {"gap", 1, 1},  {"venn", 1, 2},   {"lkb", 0, 0}};
enum { N_VERBS = sizeof verbs / sizeof *verbs };
#define VERBS "show, plan, memory, diff, digest, precision, gap, venn, lkb"

static int verb_index(const char *s)
{
    for (int i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i].name, s) == 0)
            return i;
    return -1;
}

static bool is(const Args *a, const char *verb)
{
    return strcmp(a->verb, verb) == 0;
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
    case KEY_TREE:
        a->tree = arg;
        return 0;
    case KEY_JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->verb == NULL && verb_index(arg) < 0)
            argp_error(state, "\"%s\" is none of " VERBS, arg);
        if (a->verb == NULL)
            a->verb = arg;
        else if (a->n_models < 2)
            a->models[a->n_models++] = arg;
        else
            argp_error(state, "\"%s\" is one MODEL too many", arg);
        return 0;
    case ARGP_KEY_END:
        if (a->verb == NULL)
            argp_error(state, "one of " VERBS ", please");
        else if (a->n_models < verbs[verb_index(a->verb)].least || a->n_models > verbs[verb_index(a->verb)].most)
            argp_error(state, is(a, "diff")   ? "diff needs two MODELs"
                              : is(a, "venn") ? "venn needs a MODEL or two classes"
                              : is(a, "lkb")  ? "lkb takes no MODEL"
                                              : "one MODEL, please");
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

/* ---- what a class in this binary does ---------------------------------------------------------------------------- */

static Status options_of(const Args *a, const Loaded *l, ModelOptions *out, Err *err)
{
    const LoadOptions none = {.level = LOAD_CIRCUIT};

    return loader_model_options(out, l->in, &a->levers, &none, err);
}

static Status lower_one(Plan **out, const Args *a, const Loaded *l, Err *err)
{
    ModelOptions mo;
    Status st = options_of(a, l, &mo, err);
    uint32_t rows = a->rows > 0 ? (uint32_t)a->rows : a->extend ? mo.max_rows : 1;
    LowerOptions opt = {.shape = {SHAPE_DECODE, rows / 2 + 1, rows, rows, rows, mo.max_len},
                        .batch_invariant = mo.batch_invariant,
                        .levers = mo.levers};

    if (a->extend)
        opt.shape =
            (StepShape){SHAPE_EXTEND, 1, rows, mo.max_seqs, mo.max_outs < rows ? mo.max_outs : rows, mo.max_len};
    return st == ST_OK ? plan_lower(out, l->in, l->families, &opt, err) : st;
}

static Status plan(const Args *a, const Loaded *l, Err *err)
{
    Plan *p = NULL;
    Str s = STR_INIT;
    Status st = ST_OK;

    TRY(lower_one(&p, a, l, err));
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

static json_t *kv_groups_json(const MemoryPlan *m)
{
    json_t *list = json_array();

    for (uint32_t g = 0; g < m->n_groups; g++)
        json_array_append_new(list,
                              json_pack("{s:I, s:I, s:I}", "window", (json_int_t)m->groups[g].window, "blocks",
                                        (json_int_t)m->groups[g].blocks, "block_bytes", (json_int_t)m->group_bytes[g]));
    return list;
}

/* A line for the cache; with a window a line for each group, too. */
static void print_kv(const MemoryPlan *m)
{
    if (m->n_groups == 1 && m->groups[0].window == 0) {
        printf("kv cache     %14" PRIu64 "  %u blocks of %" PRIu64 "\n", m->kv, m->groups[0].blocks, m->group_bytes[0]);
        return;
    }
    printf("kv cache     %14" PRIu64 "\n", m->kv);
    for (uint32_t g = 0; g < m->n_groups; g++) {
        char what[32] = "all tokens";
        if (m->groups[g].window > 0)
            snprintf(what, sizeof what, "last %u", m->groups[g].window);
        printf("  %-15s %9u blocks of %" PRIu64 "\n", what, m->groups[g].blocks, m->group_bytes[g]);
    }
}

/* All the plans of a start, as model_new makes them. */
static Status memory(const Args *a, const Loaded *l, Err *err)
{
    PlanSet set = {.n = 0};
    ModelOptions mo;
    MemoryPlan m;
    Status st = ST_OK;

    TRY(options_of(a, l, &mo, err));
    TRY(plan_set_lower(&set, l->in, l->families, &mo, err));
    TRY(plan_set_memory(&m, &set, &mo, err));
    if (a->json) {
        TRY(print_json(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I}", "weights",
                                 (json_int_t)m.weights, "kv", (json_int_t)m.kv, "states", (json_int_t)m.states,
                                 "state_bytes", (json_int_t)m.state_bytes, "activations", (json_int_t)m.activations,
                                 "tables", (json_int_t)m.tables, "inputs", (json_int_t)m.inputs, "total",
                                 (json_int_t)m.total, "kv_block_bytes", (json_int_t)m.kv_block_bytes, "kv_groups",
                                 kv_groups_json(&m), "converted", (json_int_t)m.converted),
                       err));
        goto done;
    }
    printf("weights      %14" PRIu64 "  (%" PRIu64 " widened at load)\n", m.weights, m.converted);
    print_kv(&m);
    printf("states       %14" PRIu64 "  %" PRIu64 " for each sequence\n", m.states, m.state_bytes);
    printf("activations  %14" PRIu64 "\n", m.activations);
    printf("rope tables  %14" PRIu64 "\n", m.tables);
    printf("step inputs  %14" PRIu64 "\n", m.inputs);
    printf("total        %14" PRIu64 "  bytes on class %s\n", m.total, l->hw);
done:
    plan_set_release(&set);
    return st;
}

/* Takes j over; text writes it for people. */
static Status put(const Args *a, json_t *j, void (*text)(const json_t *, Str *), Err *err)
{
    Str s = STR_INIT;
    Status st;

    if (a->json)
        return print_json(j, err);
    text(j, &s);
    json_decref(j);
    st = print_text(&s, err);
    str_release(&s);
    return st;
}

static bool device_bytes(const InstanceWeight *w, const char *layout, uint64_t *bytes)
{
    WeightLayout l;

    return layout_parse(layout, &l) && load_bytes(l, w, bytes);
}

static Status precision(const Args *a, const Loaded *l, Err *err)
{
    Plan *p = NULL;
    json_t *j = NULL;
    Status st = ST_OK;

    TRY(lower_one(&p, a, l, err));
    TRY(report_precision(&j, p, device_bytes, err));
    TRY(put(a, j, report_precision_text, err));
done:
    plan_free(p);
    return st;
}

/* ---- what the classes of the tree have --------------------------------------------------------------------------- */

/* The class of --hardware or METRALE_HARDWARE, also one that this binary has no kernels for; NULL: not given. */
static Status named_class(const Args *a, const Classes *c, const ReportClass **out, Err *err)
{
    const char *name = lever_text(&a->levers, LEVER_HARDWARE);

    *out = NULL;
    return *name ? classes_find(c, name, out, err) : ST_OK;
}

/* Opens the model by the class's settings. */
static Status open_need(Args *a, Loaded *l, const char *model, ModelOptions *mo, StepShape *shapes, ReportNeed *need,
                        Err *err)
{
    const LoadOptions opt = {.level = LOAD_CIRCUIT, .any_class = true};
    Status st = loaded_open(l, model, &a->levers, &opt, err);

    if (st == ST_OK)
        st = options_of(a, l, mo, err);
    if (st != ST_OK)
        return st;
    *need = (ReportNeed){.in = l->in,
                         .shapes = shapes,
                         .n_shapes = model_shapes(mo, shapes, MODEL_MAX_PLANS),
                         .batch_invariant = mo->batch_invariant};
    return ST_OK;
}

static Status gap(Args *a, const Classes *c, Loaded *l, bool *open, Err *err)
{
    StepShape shapes[MODEL_MAX_PLANS];
    const ReportClass *hw;
    ModelOptions mo;
    ReportNeed need;
    json_t *j = NULL;
    Status st = ST_OK;

    TRY(named_class(a, c, &hw, err));
    TRY(open_need(a, l, a->models[0], &mo, shapes, &need, err));
    if (hw == NULL)
        TRY(classes_find(c, l->hw, &hw, err));
    TRY(report_gap(&j, open, c, hw, &need, err));
    TRY(put(a, j, report_gap_text, err));
done:
    return st;
}

static Status venn(Args *a, const Classes *c, Loaded *l, Err *err)
{
    StepShape shapes[MODEL_MAX_PLANS];
    const ReportClass *hw[MAX_CLASSES];
    size_t n = 0;
    ModelOptions mo;
    ReportNeed need;
    json_t *j = NULL;
    Status st = ST_OK;

    if (a->n_models == 2) {
        for (; n < 2; n++)
            TRY(classes_find(c, a->models[n], &hw[n], err));
        TRY(report_venn(&j, c, hw, n, NULL, err));
    } else {
        TRY(open_need(a, l, a->models[0], &mo, shapes, &need, err));
        for (; n < c->n_classes && n < MAX_CLASSES; n++)
            hw[n] = &c->classes[n];
        TRY(report_venn(&j, c, hw, n, &need, err));
    }
    TRY(put(a, j, report_venn_text, err));
done:
    return st;
}

static void count_layer(const TreeLayer *layer, uint64_t *lines)
{
    for (size_t i = 0; layer && i < layer->n_files; i++)
        if (layer_shadow(layer, layer->files[i].name))
            for (const char *p = layer->files[i].file->text; (p = strchr(p, '\n')) != NULL; p++)
                ++*lines;
}

/* The lines of the files that shadow others, for each class of a tree. *out is malloc'd; tree keeps the names. */
static Status count_lines(const char *dir, Tree **tree, ReportLines **out, size_t *n, Err *err)
{
    Status st = tree_read(tree, dir, err);

    if (st != ST_OK)
        return st;
    *out = calloc((*tree)->n_classes + 1, sizeof **out);
    if (*out == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the report");
    for (size_t i = 0; i < (*tree)->n_classes; i++) {
        const HwClass *hw = &(*tree)->classes[i];
        (*out)[i].hw = hw->name;
        count_layer(hw->common, &(*out)[i].lines);
        for (size_t m = 0; m < hw->n_models; m++)
            for (size_t q = 0; q < hw->models[m].n_quants; q++)
                count_layer(hw->models[m].quants[q].layer, &(*out)[i].lines);
    }
    *n = (*tree)->n_classes;
    return ST_OK;
}

static Status lkb(const Args *a, const Classes *c, Err *err)
{
    const char *dir = a->tree ? a->tree : dir_exists("kernels") ? "kernels" : NULL;
    const ReportClass *hw;
    ReportLines *lines = NULL;
    size_t n = 0;
    Tree *tree = NULL;
    json_t *j = NULL;
    Status st = ST_OK;

    TRY(named_class(a, c, &hw, err));
    if (dir)
        TRY(count_lines(dir, &tree, &lines, &n, err));
    TRY(report_lkb(&j, c, hw, lines, n, err));
    TRY(put(a, j, report_lkb_text, err));
done:
    free(lines);
    tree_free(tree);
    return st;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static Status with_families(Loaded *l, Err *err)
{
    Status st = target_choose(&l->target, &metrale_registry, l->hw, l->in, NULL, err);

    return st == ST_OK ? families_load(&l->families, &metrale_registry, l->target, err) : st;
}

static Status one_model(Args *a, Loaded *l, Loaded *other, bool *differ, Err *err)
{
    const LoadOptions opt = {.level = LOAD_CIRCUIT};
    Status st = ST_OK;

    TRY(loaded_open(l, a->models[0], &a->levers, &opt, err));
    if (is(a, "show")) {
        TRY(show(a, l, err));
    } else if (is(a, "digest")) {
        TRY(digest(a, l, err));
    } else if (is(a, "diff")) {
        TRY(loaded_open(other, a->models[1], &a->levers, &opt, err));
        TRY(diff(a, l, other, differ, err));
    } else {
        TRY(with_families(l, err));
        TRY(is(a, "plan") ? plan(a, l, err) : is(a, "memory") ? memory(a, l, err) : precision(a, l, err));
    }
done:
    return st;
}

static Status classes_verb(Args *a, Loaded *l, bool *open, Err *err)
{
    Classes *c = NULL;
    Status st = ST_OK;

    TRY(levers_environment(&a->levers, environ, err));
    TRY(classes_new(&c, &metrale_registry, err));
    TRY(is(a, "gap") ? gap(a, c, l, open, err) : is(a, "venn") ? venn(a, c, l, err) : lkb(a, c, err));
done:
    classes_free(c);
    return st;
}

int cmd_circuit(int argc, char **argv)
{
    Args a = {0};
    struct argp_child children[2] = {{0}};
    const struct argp argp = {
        options,
        parse,
        "show|plan|memory|digest|precision|gap MODEL\ndiff MODEL MODEL\nvenn MODEL\nvenn CLASS CLASS\nlkb",
        "What a checkpoint's circuit is and how a hardware class runs it. MODEL is a directory, a .gguf file, a bare "
        "config.json, or `default`.\v"
        "  show MODEL         dims, blocks, nodes, weights\n"
        "  plan MODEL         the launches of one step shape, with their arguments\n"
        "  memory MODEL       every byte that a start allocates\n"
        "  digest MODEL       32 hex digits over structure, formats, parameters\n"
        "  diff MODEL MODEL   where two circuits differ; exit status 1 when they do\n"
        "  precision MODEL    each kind of weight: formats on file and device, what meets\n"
        "                     it, how sums are made, bytes\n"
        "  gap MODEL          every op, format and shape that no family of --hardware\n"
        "                     covers; exit status 1 when there is one\n"
        "  venn CLASS CLASS   the families that both classes have, and those of one; with\n"
        "                     a MODEL, of all classes, those that can cover some of it\n"
        "  lkb                the blueprint: all families, of --hardware or of all classes\n",
        children,
        NULL,
        NULL};
    Loaded l = {0}, other = {0};
    bool fault = false;
    Err err = {{0}};
    Status st;

    levers_init(&a.levers);
    children[0].argp = &a.levers.parser;
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    st = is(&a, "gap") || is(&a, "venn") || is(&a, "lkb") ? classes_verb(&a, &l, &fault, &err)
                                                          : one_model(&a, &l, &other, &fault, &err);
    loaded_close(&other);
    loaded_close(&l);
    levers_release(&a.levers);
    return st != ST_OK ? cli_fail(&err) : fault;
}
