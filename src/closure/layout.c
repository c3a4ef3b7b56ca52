/* layout.c - from directories to targets: parents, kernel_source, layers, winners, merged tables.
 *
 * read.c has the directories, check.c judges the result; here is only the rule of what a target reads, top down:
 *
 *     own leaf > own common > parent's leaf > parent's common
 *
 * A class inherits one level, so that "where does this file come from" has four possible answers and no more. */
#include "closure/layout.h"
#include "closure/check.h"
#include "closure/manifest.h"
#include "closure/read.h"
#include <stdlib.h>
#include <string.h>

/* ---- look-ups ---- */

static HwClass *class_find(const Tree *t, const char *name)
{
    for (size_t i = 0; i < t->n_classes; i++)
        if (!strcmp(t->classes[i].name, name))
            return &t->classes[i];
    return NULL;
}

const HwClass *tree_class(const Tree *t, const char *name)
{
    return class_find(t, name);
}

const TreeTarget *tree_target(const Tree *t, const char *name)
{
    for (size_t i = 0; i < t->n_targets; i++)
        if (!strcmp(t->targets[i].name, name))
            return &t->targets[i];
    return NULL;
}

const TreeFile *tree_file(const Tree *t, const char *path)
{
    for (size_t i = 0; i < t->n_files; i++)
        if (!strcmp(t->files[i]->path, path))
            return t->files[i];
    return NULL;
}

const ShadowDecl *layer_shadow(const TreeLayer *l, const char *name)
{
    for (size_t i = 0; i < l->n_shadows; i++)
        if (!strcmp(l->shadows[i].name, name))
            return &l->shadows[i];
    return NULL;
}

const TargetFile *target_file(const TreeTarget *t, const char *name)
{
    for (size_t i = 0; i < t->n_files; i++)
        if (!strcmp(t->files[i].file->name, name))
            return &t->files[i];
    return NULL;
}

const TargetFile *target_module(const TreeTarget *t, const char *module)
{
    size_t n = strlen(module);
    for (size_t i = 0; i < t->n_files; i++) {
        const LayerFile *f = t->files[i].file;
        if (f->kind == TREE_SOURCE && !strncmp(f->name, module, n) && !strcmp(f->name + n, t->cls->vendor->source_ext))
            return &t->files[i];
    }
    return NULL;
}

bool target_has_module(const TreeTarget *t, const char *module)
{
    for (size_t i = 0; i < t->n_modules; i++)
        if (!strcmp(t->modules[i], module))
            return true;
    return t->modules == NULL;
}

const LayerFile *target_below(const TreeTarget *t, const TreeLayer *above, const char *name, const TreeLayer **layer)
{
    bool below = above == NULL;
    for (size_t i = 0; i < t->n_layers; i++) {
        const TreeLayer *l = t->layers[i];
        for (size_t j = 0; below && j < l->n_files; j++)
            if (!strcmp(l->files[j].name, name)) {
                *layer = l;
                return &l->files[j];
            }
        below |= l == above;
    }
    return NULL;
}

/* ---- resolution ---- */

static void resolve_parents(Tree *t)
{
    for (size_t i = 0; i < t->n_classes; i++) {
        HwClass *c = &t->classes[i];
        if (!c->inherits)
            continue;
        HwClass *p = class_find(t, c->inherits);
        const char *what, *remedy;
        if (!p) {
            what = tree_say(t, "unknown parent '%s' in inherits", c->inherits);
            remedy = "name the directory of a class of this tree";
        } else if (p == c) {
            what = tree_say(t, "the class '%s' inherits itself", c->name);
            remedy = "remove inherits";
        } else if (p->inherits) {
            what = tree_say(t, "chained inherits: the parent '%s' inherits '%s'", p->name, p->inherits);
            remedy = tree_say(t, "inherit '%s', or make '%s' a class without a parent", p->inherits, p->name);
        } else if (p->vendor && c->vendor && p->vendor != c->vendor) {
            what = tree_say(t, "the parent '%s' is of vendor '%s', this class of '%s'", p->name, p->vendor_name,
                            c->vendor_name);
            remedy = "inherit a class whose sources the same compiler reads";
        } else {
            c->parent = p;
            continue;
        }
        faults_add(&t->faults, c->toml, c->inherits_line, what, remedy);
    }
}

static const TreeModel *model_find(const HwClass *c, const char *name)
{
    for (size_t i = 0; c && i < c->n_models; i++)
        if (!strcmp(c->models[i].name, name))
            return &c->models[i];
    return NULL;
}

static TreeLayer *leaf_find(const TreeModel *m, const char *quant)
{
    for (size_t i = 0; m && i < m->n_quants; i++)
        if (!strcmp(m->quants[i].name, quant))
            return m->quants[i].layer;
    return NULL;
}

/* The model of a class or of its parent whose MODEL.toml holds; NULL: neither has one. */
static const TreeModel *model_manifest(const HwClass *c, const char *name)
{
    const TreeModel *own = model_find(c, name), *up = model_find(c->parent, name);
    return own && own->has_toml ? own : up && up->has_toml ? up : NULL;
}

/* The name of the directory that holds the model's leaves; NULL: kernel_source is at fault. */
static const char *leaf_owner(Tree *t, const HwClass *c, const TreeModel *m)
{
    const char *s = m->kernel_source, *what = NULL, *remedy = "name a sibling directory that has kernels of its own";
    if (!s)
        return m->name;
    const TreeModel *sibling = model_manifest(c, s);
    const TreeModel *own = model_find(c, m->name), *up = model_find(c->parent, m->name);
    if (!strcmp(s, m->name))
        what = tree_say(t, "kernel_source of '%s' names the model itself", m->name);
    else if (!sibling)
        what = tree_say(t, "kernel_source names no model '%s'", s);
    else if (sibling->kernel_source)
        what = tree_say(t, "chained kernel_source: '%s' points on to '%s'", s, sibling->kernel_source);
    else if ((own && own->n_quants) || (up && up->n_quants)) {
        what = tree_say(t, "kernel_source points at '%s', but '%s' has leaves of its own", s, m->name);
        remedy = "remove kernel_source or the quantization directories";
    }
    if (!what)
        return s;
    faults_add(&t->faults, m->toml, m->kernel_source_line, what, remedy);
    return NULL;
}

static int by_file_name(const void *a, const void *b)
{
    return strcmp(((const TargetFile *)a)->file->name, ((const TargetFile *)b)->file->name);
}

static void pick_files(Tree *t, TreeTarget *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_layers; i++)
        n += g->layers[i]->n_files;
    g->files = tree_alloc(t, n, sizeof *g->files);
    for (size_t i = 0; g->files && i < g->n_layers; i++)
        for (size_t j = 0; j < g->layers[i]->n_files; j++) {
            const LayerFile *f = &g->layers[i]->files[j];
            if (!target_file(g, f->name))
                g->files[g->n_files++] = (TargetFile){f, g->layers[i]};
        }
    if (g->n_files > 1)
        qsort(g->files, g->n_files, sizeof *g->files, by_file_name);
}

static void merge_tables(Tree *t, TreeTarget *g)
{
    size_t nf = 0, nr = 0;
    for (size_t i = 0; i < g->n_layers; i++) {
        nf += g->layers[i]->n_families;
        nr += g->layers[i]->n_rules;
    }
    g->families = tree_alloc(t, nf, sizeof *g->families);
    g->rules = tree_alloc(t, nr, sizeof *g->rules);
    for (size_t i = 0; g->families && g->rules && i < g->n_layers; i++) {
        const TreeLayer *l = g->layers[i];
        for (size_t j = 0; j < l->n_families; j++) {
            bool hidden = false;
            for (size_t k = 0; k < g->n_families; k++)
                hidden |= !strcmp(g->families[k]->id, l->families[j].id);
            if (!hidden)
                g->families[g->n_families++] = &l->families[j];
        }
        for (size_t j = 0; j < l->n_rules; j++) {
            bool hidden = false;
            for (size_t k = 0; k < g->n_rules; k++)
                hidden |= l->rules[j].id && g->rules[k]->id && !strcmp(g->rules[k]->id, l->rules[j].id);
            if (!hidden)
                g->rules[g->n_rules++] = &l->rules[j];
        }
    }
}

static void collect_flags(Tree *t, TreeTarget *g)
{
    const HwClass *c = g->cls->has_flags || !g->cls->parent ? g->cls : g->cls->parent;
    size_t n = c->n_flags;
    for (size_t i = 0; i < g->n_layers; i++)
        n += g->layers[i]->n_flags;
    g->flags = tree_alloc(t, n, sizeof *g->flags);
    for (size_t i = 0; g->flags && i < c->n_flags; i++)
        g->flags[g->n_flags++] = c->flags[i];
    for (size_t i = g->n_layers; g->flags && i-- > 0;)
        for (size_t j = 0; j < g->layers[i]->n_flags; j++)
            g->flags[g->n_flags++] = g->layers[i]->flags[j];
}

static void add_layer(TreeTarget *g, TreeLayer *l)
{
    if (l)
        g->layers[g->n_layers++] = l;
}

static void target_resolve(Tree *t, const HwClass *c, const TreeModel *m, const char *owner, const char *quant)
{
    TreeTarget *g = &t->targets[t->n_targets++];
    *g = (TreeTarget){.hw = c->name, .model = m->name, .quant = quant, .cls = c, .model_toml = m->toml};
    g->name = tree_say(t, "%s/%s/%s", c->name, m->name, quant);
    add_layer(g, leaf_find(model_find(c, owner), quant));
    add_layer(g, c->common);
    if (c->parent) {
        add_layer(g, leaf_find(model_find(c->parent, owner), quant));
        add_layer(g, c->parent->common);
    }
    for (size_t i = 0; i < g->n_layers && !g->modules; i++)
        if (g->layers[i]->has_modules) {
            g->modules = g->layers[i]->modules;
            g->n_modules = g->layers[i]->n_modules;
        }
    pick_files(t, g);
    merge_tables(t, g);
    collect_flags(t, g);
}

/* All quantizations of one model in one class: its own leaves', then those that only the parent has. */
static void resolve_model(Tree *t, const HwClass *c, const TreeModel *named)
{
    const TreeModel *m = model_manifest(c, named->name);
    if (!m) {
        faults_add(&t->faults, named->toml, 1, "a model directory without MODEL.toml",
                   "add MODEL.toml or remove the directory");
        return;
    }
    const char *owner = leaf_owner(t, c, m);
    if (!owner)
        return;
    const TreeModel *own = model_find(c, owner), *up = model_find(c->parent, owner);
    size_t before = t->n_targets;
    for (size_t i = 0; own && i < own->n_quants; i++)
        target_resolve(t, c, m, owner, own->quants[i].name);
    for (size_t i = 0; up && i < up->n_quants; i++)
        if (!leaf_find(own, up->quants[i].name))
            target_resolve(t, c, m, owner, up->quants[i].name);
    if (t->n_targets == before)
        faults_add(&t->faults, m->toml, 1, tree_say(t, "the model '%s' has no quantization directory", m->name),
                   "add one with a KERNEL.toml, or point kernel_source at a sibling");
}

/* A bound on the number of targets: every model of a class and of its parent with every quantization directory of both. */
static size_t count_targets(const Tree *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_classes; i++) {
        size_t models = 0, quants = 0;
        for (const HwClass *c = &t->classes[i]; c; c = c->parent) {
            models += c->n_models;
            for (size_t j = 0; j < c->n_models; j++)
                quants += c->models[j].n_quants;
        }
        n += models * quants;
    }
    return n;
}

static int by_target_name(const void *a, const void *b)
{
    return strcmp(((const TreeTarget *)a)->name, ((const TreeTarget *)b)->name);
}

static void resolve_targets(Tree *t)
{
    t->targets = tree_alloc(t, count_targets(t), sizeof *t->targets);
    for (size_t i = 0; t->targets && i < t->n_classes; i++) {
        const HwClass *c = &t->classes[i], *p = c->parent;
        if (!c->vendor)
            continue;
        for (size_t j = 0; j < c->n_models; j++)
            resolve_model(t, c, &c->models[j]);
        for (size_t j = 0; p && j < p->n_models; j++)
            if (!model_find(c, p->models[j].name))
                resolve_model(t, c, &p->models[j]);
    }
    if (t->targets && t->n_targets > 1 && !t->faults.failed)
        qsort(t->targets, t->n_targets, sizeof *t->targets, by_target_name);
}

static int by_path(const void *a, const void *b)
{
    return strcmp((*(TreeFile *const *)a)->path, (*(TreeFile *const *)b)->path);
}

Status tree_read(Tree **out, const char *dir, Err *err)
{
    Status st = ST_OK;
    Arena *arena = arena_new();
    Tree *t = arena ? ARENA_NEW(arena, Tree) : NULL;
    size_t len = strlen(dir);
    if (!t) {
        arena_free(arena);
        return err_set(err, ST_NOMEM, "no memory to read the kernel tree %s", dir);
    }
    t->arena = arena;
    t->faults.arena = arena;
    while (len > 1 && dir[len - 1] == '/')
        len--;
    t->dir = t->label = arena_strndup(arena, dir, len);
    if (!t->dir)
        t->faults.failed = true;
    else
        TRY(tree_walk(t, err));
    /* Each step stands on whole structures, so the first that runs out of memory is the last. */
    void (*const steps[])(Tree *) = {tree_use, resolve_parents, resolve_targets, tree_check};
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !t->faults.failed; i++)
        steps[i](t);
    if (t->faults.failed)
        TRY(err_set(err, ST_NOMEM, "no memory to read the kernel tree %s", dir));
    if (t->n_files > 1)
        qsort(t->files, t->n_files, sizeof(TreeFile *), by_path);
    faults_sort(&t->faults);
    *out = t;
    t = NULL;
done:
    tree_free(t);
    return st;
}

void tree_free(Tree *t)
{
    if (t)
        arena_free(t->arena);
}
