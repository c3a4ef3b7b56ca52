/* cmd_kernels.c - `metrale kernels`: what was built in, and what a kernel tree says.
 *
 * Without a tree, list and show speak of the registry in this binary. With one (--tree DIR, or ./kernels for show, check and
 * why) they speak of the files: which layer each came from and why. Nothing here needs a compiler. */
#include "cli/cli.h"
#include "closure/report.h"
#include "core/file.h"
#include "core/json.h"
#include "kernels/registry.h"
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct KernelsArgs {
    const char *tree; /* NULL: not given */
    bool json;
    const char *verb, *target, *stem;
} KernelsArgs;

static const struct {
    const char *verb;
    unsigned n_args;
} verbs[] = {{"list", 0}, {"show", 1}, {"check", 0}, {"why", 2}};

static unsigned args_of(const char *verb)
{
    for (size_t i = 0; verb && i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(verbs[i].verb, verb))
            return verbs[i].n_args + 1;
    return 0; /* no such verb */
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    KernelsArgs *a = state->input;
    const char **const positions[] = {&a->verb, &a->target, &a->stem};
    switch (key) {
    case 't':
        a->tree = arg;
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num >= sizeof positions / sizeof *positions)
            argp_error(state, "'%s' is one argument too many", arg);
        else
            *positions[state->arg_num] = arg;
        return 0;
    case ARGP_KEY_END:
        if (!args_of(a->verb) || state->arg_num != args_of(a->verb))
            argp_error(state, "write list, show TARGET, check, or why TARGET STEM");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the registry ---- */

static json_t *object_json(const KernelObject *o)
{
    return json_pack("{ss ss ss ss}", "entry", o->entry, "module", o->module, "constants", o->constants, "hash",
                     o->hash);
}

static json_t *target_json(const KernelTarget *t)
{
    return json_pack("{ss ss ss sI ss}", "target", t->name, "vendor", t->vendor, "arch", t->arch, "points",
                     (json_int_t)t->n_objects, "hash", t->hash);
}

static Status put_json(json_t *root, Str *out, Err *err)
{
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text)
        return err_set(err, ST_NOMEM, "no memory for the report");
    str_addf(out, "%s\n", text);
    free(text);
    return ST_OK;
}

static Status registry_list(const KernelRegistry *r, bool json, Str *out, Err *err)
{
    json_t *root = json ? json_array() : NULL;
    for (size_t i = 0; i < r->n_targets; i++) {
        const KernelTarget *t = &r->targets[i];
        if (json)
            json_array_append_new(root, target_json(t));
        else
            str_addf(out, "%-32s %-10s %3zu points  %s\n", t->name, t->arch, t->n_objects, t->hash);
    }
    if (json)
        return put_json(root, out, err);
    if (!r->n_targets)
        str_adds(out, "No kernel is built into this binary.\n");
    if (r->left_out)
        str_addf(out, "%s\n", r->left_out);
    return ST_OK;
}

static Status registry_show(const KernelTarget *t, bool json, Str *out, Err *err)
{
    json_t *root = json ? target_json(t) : NULL, *layers = json ? json_array() : NULL,
           *points = json ? json_array() : NULL;
    if (!json)
        str_addf(out, "%s  %s %s  %s\nlayers, first wins\n", t->name, t->vendor, t->arch, t->hash);
    for (size_t i = 0; i < t->n_layers; i++) {
        if (json)
            json_array_append_new(layers, json_string(t->layers[i]));
        else
            str_addf(out, "  %s\n", t->layers[i]);
    }
    if (!json)
        str_adds(out, "points\n");
    for (size_t i = 0; i < t->n_objects; i++) {
        const KernelObject *o = &t->objects[i];
        if (json)
            json_array_append_new(points, object_json(o));
        else
            str_addf(out, "  %-28s %s%s%s\n", o->entry, o->module, *o->constants ? "  " : "", o->constants);
    }
    if (!json)
        return ST_OK;
    json_object_set_new(root, "layers", layers);
    json_object_set_new(root, "points", points);
    return put_json(root, out, err);
}

/* ---- a tree ---- */

static Status tree_report(const KernelsArgs *a, const Tree *t, Str *out, Err *err)
{
    if (!strcmp(a->verb, "list"))
        return report_list(t, a->json, out, err);
    if (!strcmp(a->verb, "check"))
        return report_faults(t, a->json, out, err);
    const TreeTarget *g = tree_target(t, a->target);
    if (!g)
        return err_set(err, ST_NOTFOUND, "%s has no target '%s': `metrale kernels list --tree %s` lists them", t->label,
                       a->target, t->label);
    return !strcmp(a->verb, "show") ? report_target(t, g, a->json, out, err)
                                    : report_why(t, g, a->stem, a->json, out, err);
}

static Status report(const KernelsArgs *a, Str *out, bool *faults, Err *err)
{
    const char *dir = a->tree;
    Tree *t = NULL;
    if (!dir && strcmp(a->verb, "list") && dir_exists("kernels"))
        dir = "kernels";
    if (!dir && !strcmp(a->verb, "list"))
        return registry_list(&metrale_registry, a->json, out, err);
    if (!dir && !strcmp(a->verb, "show")) {
        const KernelTarget *k = registry_target(&metrale_registry, a->target);
        return k ? registry_show(k, a->json, out, err)
                 : err_set(err, ST_NOTFOUND,
                           "no target '%s' is built into this binary: `metrale kernels list` lists those that are",
                           a->target);
    }
    if (!dir)
        return err_set(err, ST_INVALID,
                       "`metrale kernels %s` reads a kernel tree and there is no ./kernels: name one with --tree DIR",
                       a->verb);
    Status st = tree_read(&t, dir, err);
    if (st == ST_OK && t->n_classes == 0 && t->faults.len == 0)
        st = err_set(err, ST_NOTFOUND, "%s: is no kernel tree, since no directory in it is a hardware class; name one",
                     dir);
    if (st == ST_OK)
        st = tree_report(a, t, out, err);
    if (st == ST_OK && !strcmp(a->verb, "check")) {
        *faults = t->faults.len > 0;
        if (!*faults && !a->json)
            str_addf(out, "%s: %zu targets in %zu classes, no faults\n", t->label, t->n_targets, t->n_classes);
    }
    tree_free(t);
    return st;
}

int cmd_kernels(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"tree", 't', "DIR", 0, "the kernel tree to read; show, check and why take ./kernels when it is there", 0},
        {"json", 'j', 0, 0, "print JSON", 0},
        {0},
    };
    static const struct argp parser = {
        options,
        parse,
        "list\nshow TARGET\ncheck\nwhy TARGET STEM",
        "Kernel targets: what this binary holds, and what a kernel tree says. A TARGET is hw/model/quant.\v"
        "  list             the targets; without --tree, those in this binary\n"
        "  show TARGET      its layers, the file of each name, shadows, points, hash\n"
        "  check            one line a fault (file:line: what: remedy), exit status 1;\n"
        "                   needs no compiler\n"
        "  why TARGET STEM  whose file answers to STEM, what it hides, and why\n",
        NULL,
        NULL,
        NULL,
    };
    KernelsArgs a = {0};
    Str out = STR_INIT;
    Err err;
    bool faults = false;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    Status st = report(&a, &out, &faults, &err);
    if (st == ST_OK && !str_ok(&out))
        st = err_set(&err, ST_NOMEM, "no memory for the report");
    if (st == ST_OK)
        fputs(str_c(&out), stdout);
    str_release(&out);
    return st != ST_OK ? cli_fail(&err) : faults;
}
