/* check.c - what must hold in a resolved tree, one function for each rule.
 *
 * Sharing is worth something only while every exception is named. So each file that hides another is declared with a reason,
 * each declaration hides something, no copy pretends to be a difference, and no shadow drops an entry point that a family
 * still names. Checks run over all targets, whatever the build chooses, since a layer's faults show only where it is read. */
#include "closure/check.h"
#include "closure/manifest.h"
#include <string.h>

static bool same_bytes(const TreeFile *a, const TreeFile *b)
{
    return a->len == b->len && a->hash.hi == b->hash.hi && a->hash.lo == b->hash.lo &&
           !memcmp(a->text, b->text, a->len);
}

static ShadowDecl *declaration(TreeLayer *l, const char *name)
{
    for (size_t i = 0; i < l->n_shadows; i++)
        if (!strcmp(l->shadows[i].name, name))
            return &l->shadows[i];
    return NULL;
}

/* Where f came into its layer: the file itself, or the line of [sources] use. */
typedef struct Place {
    const char *file;
    uint32_t line;
} Place;

static Place place_of(const TreeLayer *l, const LayerFile *f)
{
    return f->use_line ? (Place){l->kernel_toml, f->use_line} : (Place){f->file->path, 1};
}

/* The winner f must define what families ask of its module and the hidden file had. */
static void check_entries(Tree *t, const TreeTarget *g, Place at, const LayerFile *f, const LayerFile *hidden)
{
    for (size_t i = 0; i < g->n_families; i++)
        for (size_t j = 0; j < g->families[i]->n_points; j++) {
            const TreePoint *p = &g->families[i]->points[j];
            size_t n = strlen(p->module);
            if (strncmp(f->name, p->module, n) || strcmp(f->name + n, g->cls->vendor->source_ext))
                continue;
            if (name_list_has(&hidden->file->entries, p->entry) && !name_list_has(&f->file->entries, p->entry))
                faults_add(&t->faults, at.file, at.line,
                           tree_say(t, "entry point '%s' is lost: %s defines it and %s, its shadow, does not", p->entry,
                                    hidden->file->path, f->file->path),
                           tree_say(t, "define it here, or override family '%s' without it", g->families[i]->id));
        }
}

/* f of layer l hides `hidden` of the layer `below`. */
static void check_shadow(Tree *t, TreeLayer *l, const LayerFile *f, const LayerFile *hidden, const TreeLayer *below)
{
    ShadowDecl *d = declaration(l, f->name);
    Place at = place_of(l, f);
    if (d)
        d->met = true;
    if (f->file == hidden->file) {
        /* Only [sources] use can put one file into two layers; the line to remove is the one that did. */
        const TreeLayer *who = f->use_line ? l : below;
        faults_add(&t->faults, who->kernel_toml, f->use_line ? f->use_line : hidden->use_line,
                   tree_say(t, "'%s' is a shadow of itself: the layers %s and %s both hold %s", f->name, l->path,
                            below->path, f->file->path),
                   "remove it from [sources] use: the lower layer brings it already");
    } else if (same_bytes(f->file, hidden->file)) {
        faults_add(&t->faults, at.file, at.line,
                   tree_say(t, "the shadow is byte-identical to %s, which it hides", hidden->file->path),
                   d ? tree_say(t, "remove this file and line %u of %s", d->line, l->kernel_toml) : "remove this file");
    } else if (!d) {
        faults_add(
            &t->faults, at.file, at.line, tree_say(t, "undeclared shadow of %s", hidden->file->path),
            tree_say(t, "add \"%s\" = \"the reason, with its measurement\" under [shadow] in %s, or remove this file",
                     f->name, l->kernel_toml));
    }
}

static void check_shadows(Tree *t)
{
    for (size_t i = 0; i < t->n_targets; i++) {
        const TreeTarget *g = &t->targets[i];
        for (size_t j = 0; j < g->n_layers; j++)
            for (size_t k = 0; k < g->layers[j]->n_files; k++) {
                const LayerFile *f = &g->layers[j]->files[k];
                const TreeLayer *below;
                const LayerFile *hidden = target_below(g, g->layers[j], f->name, &below);
                if (!hidden)
                    continue;
                check_shadow(t, g->layers[j], f, hidden, below);
                if (target_file(g, f->name)->file == f)
                    for (; hidden; hidden = target_below(g, below, f->name, &below))
                        check_entries(t, g, place_of(g->layers[j], f), f, hidden);
            }
    }
}

static void check_declarations(Tree *t, const TreeLayer *l)
{
    for (size_t i = 0; i < l->n_shadows; i++)
        if (!l->shadows[i].met)
            faults_add(
                &t->faults, l->kernel_toml, l->shadows[i].line,
                tree_say(t, "[shadow] '%s' shadows nothing in any target that reads the layer", l->shadows[i].name),
                "remove the declaration");
}

static void check_all_declarations(Tree *t)
{
    for (size_t i = 0; i < t->n_classes; i++) {
        const HwClass *c = &t->classes[i];
        if (!c->vendor || (c->inherits && !c->parent))
            continue; /* its targets are not known: that fault comes first */
        if (c->common)
            check_declarations(t, c->common);
        for (size_t j = 0; j < c->n_models; j++)
            for (size_t k = 0; k < c->models[j].n_quants; k++)
                check_declarations(t, c->models[j].quants[k].layer);
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Whether some target sees one of the two hide the other: then the pair is reported as a shadow. */
static bool is_shadow_pair(const Tree *t, const TreeFile *a, const TreeFile *b)
{
    for (size_t i = 0; i < t->n_targets; i++) {
        const TreeTarget *g = &t->targets[i];
        const char *in_a = NULL, *in_b = NULL;
        for (size_t j = 0; j < g->n_layers; j++)
            for (size_t k = 0; k < g->layers[j]->n_files; k++) {
                const LayerFile *f = &g->layers[j]->files[k];
                in_a = f->file == a ? f->name : in_a;
                in_b = f->file == b ? f->name : in_b;
            }
        if (in_a && in_b && !strcmp(in_a, in_b))
            return true;
    }
    return false;
}

static void check_copies(Tree *t)
{
    for (size_t i = 0; i < t->n_files; i++)
        for (size_t j = i + 1; j < t->n_files; j++) {
            const TreeFile *a = t->files[i], *b = t->files[j];
            if (a->is_table || b->is_table || !same_bytes(a, b) || strcmp(base_name(a->path), base_name(b->path)) ||
                is_shadow_pair(t, a, b))
                continue;
            if (strcmp(a->path, b->path) > 0) {
                const TreeFile *swap = a;
                a = b;
                b = swap;
            }
            faults_add(&t->faults, b->path, 1, tree_say(t, "same name and same bytes as %s", a->path),
                       "remove one of the two and name the other in [sources] use");
        }
}

static void check_points(Tree *t, const TreeTarget *g)
{
    for (size_t i = 0; i < g->n_families; i++) {
        const TreeFamily *fam = g->families[i];
        for (size_t j = 0; j < fam->n_points; j++) {
            const TreePoint *p = &fam->points[j];
            if (target_has_module(g, p->module) && !target_module(g, p->module))
                faults_add(&t->faults, fam->path, p->line,
                           tree_say(t, "point '%s' of family '%s' names the module '%s', which has no source", p->entry,
                                    fam->id, p->module),
                           tree_say(t, "add %s%s to a layer of %s, or correct the name", p->module,
                                    g->cls->vendor->source_ext, g->name));
            for (size_t k = 0; k < i; k++)
                for (size_t l = 0; l < g->families[k]->n_points; l++)
                    if (!strcmp(g->families[k]->points[l].entry, p->entry))
                        faults_add(&t->faults, fam->path, p->line,
                                   tree_say(t, "entry '%s' belongs to two families, '%s' (%s:%u) and '%s'", p->entry,
                                            g->families[k]->id, g->families[k]->path, g->families[k]->points[l].line,
                                            fam->id),
                                   "keep it in one of them");
        }
    }
}

static void check_rules(Tree *t, const TreeTarget *g)
{
    for (size_t i = 0; i < g->n_rules; i++) {
        bool known = false;
        for (size_t j = 0; j < g->n_families; j++)
            known |= !strcmp(g->families[j]->id, g->rules[i]->family);
        if (!known)
            faults_add(&t->faults, g->rules[i]->path, g->rules[i]->line,
                       tree_say(t, "a rule names the unknown family '%s'", g->rules[i]->family),
                       "name a family of a FAMILIES.toml that the target reads");
    }
}

static void check_modules(Tree *t, const TreeTarget *g)
{
    for (size_t i = 0; i < g->n_layers; i++) {
        const TreeLayer *l = g->layers[i];
        if (!g->modules || g->modules != l->modules)
            continue;
        for (size_t j = 0; j < l->n_modules; j++)
            if (!target_module(g, l->modules[j]))
                faults_add(&t->faults, l->kernel_toml, l->module_lines[j],
                           tree_say(t, "[build] modules names '%s', which has no source", l->modules[j]),
                           tree_say(t, "add the source to a layer of %s, or remove the name", g->name));
    }
}

void tree_check(Tree *t)
{
    check_shadows(t);
    check_all_declarations(t);
    check_copies(t);
    for (size_t i = 0; i < t->n_targets; i++) {
        check_points(t, &t->targets[i]);
        check_rules(t, &t->targets[i]);
        check_modules(t, &t->targets[i]);
    }
}
