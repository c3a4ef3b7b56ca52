/* report.c - the reports of `metrale kernels`, built twice from one walk: a text for people, a JSON value for programs.
 *
 * Text and JSON are written side by side in each function, so that neither can know more than the other. */
#include "closure/report.h"
#include "closure/hash.h"
#include "core/json.h"
#include <stdlib.h>
#include <string.h>

/* Takes root over. */
static Status put_json(json_t *root, Str *out, Err *err)
{
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text)
        return err_set(err, ST_NOMEM, "no memory for the report");
    str_adds(out, text);
    str_addc(out, '\n');
    free(text);
    return str_ok(out) ? ST_OK : err_set(err, ST_NOMEM, "no memory for the report");
}

static Status put_text(const Str *out, Err *err)
{
    return str_ok(out) ? ST_OK : err_set(err, ST_NOMEM, "no memory for the report");
}

static Status hash_text(const Tree *t, const TreeTarget *g, char hex[33], Err *err)
{
    Hash128 h;
    Status st = target_hash(t, g, &h, err);
    if (st == ST_OK)
        hash_hex(h, hex);
    return st;
}

static size_t count_points(const TreeTarget *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_families; i++)
        n += g->families[i]->n_points;
    return n;
}

Status report_list(const Tree *t, bool json, Str *out, Err *err)
{
    json_t *root = json ? json_array() : NULL;
    for (size_t i = 0; i < t->n_targets; i++) {
        const TreeTarget *g = &t->targets[i];
        char hex[33];
        Status st = hash_text(t, g, hex, err);
        if (st != ST_OK) {
            json_decref(root);
            return st;
        }
        if (json)
            json_array_append_new(root, json_pack("{ss ss ss sI ss}", "target", g->name, "vendor", g->cls->vendor_name,
                                                  "arch", g->cls->arch ? g->cls->arch : "", "points",
                                                  (json_int_t)count_points(g), "hash", hex));
        else
            str_addf(out, "%-32s %-10s %3zu points  %s\n", g->name, g->cls->arch ? g->cls->arch : "?", count_points(g),
                     hex);
    }
    return json ? put_json(root, out, err) : put_text(out, err);
}

/* What the file at f in layer l hides, from the top down, as a JSON array or as lines. */
static json_t *put_hidden(const Tree *t, const TreeTarget *g, const TreeLayer *l, const char *name, bool json, Str *out)
{
    json_t *list = json ? json_array() : NULL;
    const TreeLayer *winner = l, *below;
    for (const LayerFile *h; (h = target_below(g, l, name, &below)); l = below) {
        const ShadowDecl *d = layer_shadow(l, name);
        const char *reason = d ? d->reason : "(not declared)";
        if (json)
            json_array_append_new(
                list, json_pack("{ss ss ss}", "file", h->file->path, "layer", below->path, "reason", reason));
        else
            str_addf(out, "    %s %s/%s\n      because %s\n", l == winner ? "hides" : "which hides", t->label,
                     h->file->path, reason);
    }
    return list;
}

static void put_file(const Tree *t, const TreeTarget *g, const TargetFile *f, bool json, json_t *list, Str *out)
{
    if (!json)
        str_addf(out, "  %-28s %s/%s%s\n", f->file->name, t->label, f->file->file->path,
                 f->file->use_line ? "  (by [sources] use)" : "");
    json_t *hidden = put_hidden(t, g, f->layer, f->file->name, json, out);
    if (json)
        json_array_append_new(list, json_pack("{ss ss ss sb so}", "name", f->file->name, "file", f->file->file->path,
                                              "layer", f->layer->path, "use", f->file->use_line != 0, "hides", hidden));
}

Status report_target(const Tree *t, const TreeTarget *g, bool json, Str *out, Err *err)
{
    char hex[33];
    Status st = hash_text(t, g, hex, err);
    if (st != ST_OK)
        return st;
    json_t *layers = json ? json_array() : NULL, *files = json ? json_array() : NULL;
    json_t *points = json ? json_array() : NULL, *flags = json ? json_array() : NULL;
    const char *arch = g->cls->arch ? g->cls->arch : "";
    if (!json)
        str_addf(out, "%s  %s %s  %s\nlayers, first wins\n", g->name, g->cls->vendor_name, arch, hex);
    for (size_t i = 0; i < g->n_layers; i++) {
        if (json)
            json_array_append_new(layers, json_string(g->layers[i]->path));
        else
            str_addf(out, "  %s/%s\n", t->label, g->layers[i]->path);
    }
    if (!json)
        str_addf(out, "model\n  %s/%s\nflags\n ", t->label, g->model_toml);
    for (size_t i = 0; i < g->n_flags; i++) {
        if (json)
            json_array_append_new(flags, json_string(g->flags[i]));
        else
            str_addf(out, " %s", g->flags[i]);
    }
    if (!json)
        str_adds(out, "\nfiles\n");
    for (size_t i = 0; i < g->n_files; i++)
        put_file(t, g, &g->files[i], json, files, out);
    if (!json)
        str_adds(out, "points\n");
    for (size_t i = 0; i < g->n_families; i++)
        for (size_t j = 0; j < g->families[i]->n_points; j++) {
            const TreePoint *p = &g->families[i]->points[j];
            bool built = target_has_module(g, p->module);
            if (json)
                json_array_append_new(points,
                                      json_pack("{ss ss ss ss sb}", "family", g->families[i]->id, "entry", p->entry,
                                                "module", p->module, "constants", p->constants, "built", built));
            else
                str_addf(out, "  %-20s %-28s %s%s%s\n", g->families[i]->id, p->entry, p->module,
                         *p->constants ? "  " : "", p->constants);
        }
    if (!json)
        return put_text(out, err);
    return put_json(json_pack("{ss ss ss ss ss so so so so}", "target", g->name, "vendor", g->cls->vendor_name, "arch",
                              arch, "hash", hex, "model_toml", g->model_toml, "layers", layers, "flags", flags, "files",
                              files, "points", points),
                    out, err);
}

void report_fault_line(const Tree *t, const Fault *f, Str *out)
{
    str_addf(out, "%s/%s:%u: %s: %s\n", t->label, f->file, f->line, f->what, f->remedy);
}

Status report_faults(const Tree *t, bool json, Str *out, Err *err)
{
    json_t *root = json ? json_array() : NULL;
    for (size_t i = 0; i < t->faults.len; i++) {
        const Fault *f = &t->faults.items[i];
        if (!json)
            report_fault_line(t, f, out);
        else
            json_array_append_new(root, json_pack("{so sI ss ss}", "file", json_sprintf("%s/%s", t->label, f->file),
                                                  "line", (json_int_t)f->line, "what", f->what, "remedy", f->remedy));
    }
    return json ? put_json(root, out, err) : put_text(out, err);
}

Status report_why(const Tree *t, const TreeTarget *g, const char *name, bool json, Str *out, Err *err)
{
    json_t *root = json ? json_array() : NULL;
    size_t n = 0;
    for (size_t i = 0; i < g->n_files; i++) {
        const TargetFile *f = &g->files[i];
        const char *dot = strrchr(f->file->name, '.');
        size_t stem = dot ? (size_t)(dot - f->file->name) : strlen(f->file->name);
        bool named = !strcmp(f->file->name, name) || (stem == strlen(name) && !memcmp(f->file->name, name, stem));
        if (!named)
            continue;
        n++;
        if (!json)
            str_addf(out, "%s: %s comes from the layer %s/%s\n", g->name, f->file->name, t->label, f->layer->path);
        put_file(t, g, f, json, root, out);
    }
    if (!n) {
        json_decref(root);
        return err_set(err, ST_NOTFOUND, "no layer of %s holds a file named '%s': `metrale kernels show %s` lists them",
                       g->name, name, g->name);
    }
    return json ? put_json(root, out, err) : put_text(out, err);
}
