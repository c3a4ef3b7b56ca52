/* build.c - one run of the build driver, step by step: check, choose, plan, compile, verify, emit.
 *
 * Planning and compiling are apart: the plan knows every artifact by its key before the first compiler starts, so what the
 * cache holds is known, and the rest is one flat list for the process pool. */
#include "kbuild/build.h"
#include "closure/hash.h"
#include "closure/report.h"
#include "compute/elf.h"
#include "compute/process.h"
#include "core/file.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ARTIFACT = 256 << 20 };

static Status no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "no memory for the kernel build");
}

/* ---- check ---- */

static Status check_tree(const Build *b, Err *err)
{
    Str text = STR_INIT;
    Status st = report_faults(b->tree, false, &text, err);
    if (st == ST_OK && b->tree->faults.len) {
        fputs(str_c(&text), b->o->log);
        st = err_set(err, ST_INVALID, "%s: %zu fault%s in the kernel tree, listed above: mend %s and build again",
                     b->tree->label, b->tree->faults.len, b->tree->faults.len == 1 ? "" : "s",
                     b->tree->faults.len == 1 ? "it" : "them");
    }
    str_release(&text);
    return st;
}

/* ---- choose ---- */

static bool matches(const char *glob, const char *name)
{
    return !glob || fnmatch(glob, name, 0) == 0;
}

static bool is_named(const BuildOptions *o, const char *class_name)
{
    return o->hw && !strpbrk(o->hw, "*?[") && !strcmp(o->hw, class_name);
}

/* What is known of a class's compiler. */
typedef struct Tool {
    const HwClass *cls;
    const ComputeTarget *compute; /* NULL: left out */
    const char *identity;
} Tool;

/* Asks each vendor's compiler once. A class without one is left out, or refused when it was named. */
static Status find_tool(Build *b, const Tool *known, size_t n_known, Tool *tool, Err *err)
{
    Err why;
    const ComputeTarget *c = NULL;
    Status st = compute_find(tool->cls->vendor_name, &c, &why);
    for (size_t i = 0; i < n_known && st == ST_OK; i++)
        if (known[i].compute == c) {
            tool->compute = c;
            tool->identity = known[i].identity;
            return ST_OK;
        }
    if (st == ST_OK)
        st = c->identify(&b->o->tools, b->arena, &tool->identity, &why);
    if (st == ST_OK) {
        tool->compute = c;
        return ST_OK;
    }
    if (st != ST_NOTFOUND && st != ST_UNSUPPORTED)
        return err_set(err, st, "%s", why.msg);
    if (is_named(b->o, tool->cls->name))
        return err_set(err, st, "the class '%s' was asked for and cannot be compiled: %s", tool->cls->name, why.msg);
    fprintf(b->o->log, "kernels: the class '%s' is left out: %s\n", tool->cls->name, why.msg);
    b->left_out = arena_printf(b->arena, "%s%s%s: %s",
                               b->left_out ? b->left_out : "left out at build time: ", b->left_out ? "; " : "",
                               tool->cls->name, why.msg);
    return b->left_out ? ST_OK : no_memory(err);
}

static Status no_match(const Build *b, Err *err)
{
    char names[512];
    size_t len = 0;
    names[0] = '\0';
    for (size_t i = 0; i < b->tree->n_targets && len < sizeof names - 1; i++) {
        int n = snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "", b->tree->targets[i].name);
        len += n > 0 ? (size_t)n : 0;
    }
    return err_set(err, ST_NOTFOUND, "no target of %s matches hw '%s', model '%s', quant '%s': there %s %s",
                   b->tree->label, b->o->hw ? b->o->hw : "*", b->o->model ? b->o->model : "*",
                   b->o->quant ? b->o->quant : "*", b->tree->n_targets ? "are" : "is",
                   b->tree->n_targets ? names : "none");
}

/* ---- plan ---- */

static Artifact *artifact_find(const Build *b, const char *key)
{
    for (size_t i = 0; i < b->n_artifacts; i++)
        if (!strcmp(b->artifacts[i]->key, key))
            return b->artifacts[i];
    return NULL;
}

static bool artifact_add(Build *b, Artifact *a)
{
    if (b->n_artifacts == b->cap_artifacts) {
        size_t cap = b->cap_artifacts ? b->cap_artifacts * 2 : 32;
        Artifact **items = ARENA_ARRAY(b->arena, Artifact *, cap);
        if (!items)
            return false;
        if (b->n_artifacts)
            memcpy(items, b->artifacts, b->n_artifacts * sizeof(Artifact *));
        b->artifacts = items;
        b->cap_artifacts = cap;
    }
    b->artifacts[b->n_artifacts++] = a;
    return true;
}

/* "A=1 B=2" as separate words. */
static bool split_words(Arena *a, const char *text, const char *const **out, size_t *n)
{
    NameList l = {0};
    for (size_t len; *text; text += len + (text[len] == ' ')) {
        len = strcspn(text, " ");
        if (!name_list_add(&l, a, text, len))
            return false;
    }
    *out = l.items;
    *n = l.len;
    return true;
}

/* Entries of the same source and constants whose points say why they spill. */
static bool may_spill(Arena *a, const TreeTarget *t, const TreePoint *p, const char *const **out, size_t *n)
{
    NameList l = {0};
    for (size_t i = 0; i < t->n_families; i++)
        for (size_t j = 0; j < t->families[i]->n_points; j++) {
            const TreePoint *q = &t->families[i]->points[j];
            if (q->spills && !strcmp(q->module, p->module) && !strcmp(q->constants, p->constants) &&
                !name_list_has(&l, q->entry) && !name_list_add(&l, a, q->entry, strlen(q->entry)))
                return false;
        }
    *out = l.items;
    *n = l.len;
    return true;
}

static Status plan_artifact(Build *b, const Tool *tool, const TreeTarget *t, const TreePoint *p, Artifact **out,
                            Err *err)
{
    Artifact *a = ARENA_NEW(b->arena, Artifact);
    if (!a)
        return no_memory(err);
    a->compute = tool->compute;
    a->target = t;
    a->source = target_module(t, p->module);
    if (!a->source)
        return err_set(err, ST_INVALID, "%s: the module '%s' has no source: add it", t->name, p->module);
    CompileUnit *u = &a->unit;
    a->defines_text = p->constants;
    u->label = arena_printf(b->arena, "%s/%s", b->tree->label, a->source->file->file->path);
    u->arch = t->cls->arch;
    u->flags = t->flags;
    u->n_flags = t->n_flags;
    if (!u->label || !split_words(b->arena, p->constants, &u->defines, &u->n_defines) ||
        !may_spill(b->arena, t, p, &u->may_spill, &u->n_may_spill))
        return no_memory(err);
    Status st = build_key(b, t, a->source, a->compute, tool->identity, u, a->key, err);
    if (st != ST_OK)
        return st;
    Artifact *same = artifact_find(b, a->key);
    if (!same) {
        u->instance = arena_printf(b->arena, "k%.16s", a->key);
        a->path = arena_printf(b->arena, "%s/%s%s", b->o->cache, a->key, a->compute->artifact_ext);
        if (!u->instance || !a->path || !artifact_add(b, a))
            return no_memory(err);
        a->cached = file_exists(a->path);
        same = a;
    }
    if (!name_list_has(&same->entries, p->entry) &&
        !name_list_add(&same->entries, b->arena, p->entry, strlen(p->entry)))
        return no_memory(err);
    *out = same;
    return ST_OK;
}

static int by_entry(const void *pa, const void *pb)
{
    const BuiltObject *a = pa, *b = pb;
    int c = strcmp(a->point->entry, b->point->entry);
    return c ? c : strcmp(a->point->constants, b->point->constants);
}

static Status plan_target(Build *b, const Tool *tool, const TreeTarget *t, Err *err)
{
    BuiltTarget *bt = &b->targets[b->n_targets];
    size_t n = 0;
    for (size_t i = 0; i < t->n_families; i++)
        n += t->families[i]->n_points;
    *bt = (BuiltTarget){.target = t, .objects = ARENA_ARRAY(b->arena, BuiltObject, n ? n : 1)};
    if (!bt->objects)
        return no_memory(err);
    Hash128 hash;
    Status st = target_hash(b->tree, t, &hash, err);
    if (st != ST_OK)
        return st;
    hash_hex(hash, bt->hash);
    for (size_t i = 0; i < t->n_families; i++)
        for (size_t j = 0; j < t->families[i]->n_points; j++) {
            const TreePoint *p = &t->families[i]->points[j];
            bool twice = false; /* two points may differ in geometry alone */
            for (size_t k = 0; k < bt->n_objects; k++)
                twice |= !strcmp(bt->objects[k].point->entry, p->entry) &&
                         !strcmp(bt->objects[k].point->constants, p->constants);
            if (twice || !target_has_module(t, p->module))
                continue;
            BuiltObject *obj = &bt->objects[bt->n_objects];
            obj->point = p;
            st = plan_artifact(b, tool, t, p, &obj->artifact, err);
            if (st != ST_OK)
                return st;
            bt->n_objects++;
        }
    if (bt->n_objects > 1)
        qsort(bt->objects, bt->n_objects, sizeof *bt->objects, by_entry);
    b->n_targets++;
    return ST_OK;
}

static Status plan(Build *b, Err *err)
{
    const BuildOptions *o = b->o;
    Tool *tools = ARENA_ARRAY(b->arena, Tool, b->tree->n_classes + 1);
    size_t n_tools = 0, chosen = 0;
    b->targets = ARENA_ARRAY(b->arena, BuiltTarget, b->tree->n_targets + 1);
    if (!tools || !b->targets)
        return no_memory(err);
    for (size_t i = 0; i < b->tree->n_targets; i++) {
        const TreeTarget *t = &b->tree->targets[i];
        if (!matches(o->hw, t->hw) || !matches(o->model, t->model) || !matches(o->quant, t->quant))
            continue;
        chosen++;
        size_t k = 0;
        while (k < n_tools && tools[k].cls != t->cls)
            k++;
        if (k == n_tools) {
            tools[k].cls = t->cls;
            Status st = find_tool(b, tools, n_tools, &tools[k], err);
            if (st != ST_OK)
                return st;
            n_tools++;
        }
        if (!tools[k].compute)
            continue;
        Status st = plan_target(b, &tools[k], t, err);
        if (st != ST_OK)
            return st;
    }
    return chosen || !(o->hw || o->model || o->quant) ? ST_OK : no_match(b, err);
}

/* ---- compile ---- */

/* A target that something is compiled for, and where its files were laid out. */
typedef struct View {
    const TreeTarget *target;
    const char *dir;
} View;

static Status view_of(Build *b, View *views, size_t *n_views, const TreeTarget *t, const char **dir, Err *err)
{
    for (size_t i = 0; i < *n_views; i++)
        if (views[i].target == t) {
            *dir = views[i].dir;
            return ST_OK;
        }
    *dir = arena_printf(b->arena, "%s/view.%ld.%zu", b->o->cache, (long)getpid(), *n_views);
    if (!*dir)
        return no_memory(err);
    views[(*n_views)++] = (View){t, *dir};
    return view_write(b, t, *dir, err);
}

static Status prepare(Build *b, Artifact *a, const char *view, Process *p, Err *err)
{
    const char **include_dirs = ARENA_ARRAY(b->arena, const char *, 2);
    CompileUnit *u = &a->unit;
    u->source = arena_printf(b->arena, "%s/%s", view, a->source->file->name);
    u->out = arena_printf(b->arena, "%s/%s.%ld%s", b->o->cache, a->key, (long)getpid(), a->compute->artifact_ext);
    if (!include_dirs || !u->source || !u->out)
        return no_memory(err);
    include_dirs[0] = view;
    include_dirs[1] = b->o->abi;
    u->include_dirs = include_dirs;
    u->n_include_dirs = 2;
    return a->compute->command(&b->o->tools, u, b->arena, &p->argv, err);
}

/* Moves what was compiled to its name in the cache, or shows why there is nothing to move. */
static Status settle(const Build *b, Artifact *a, const Process *p, Err *err)
{
    Status st = ST_OK;
    const char *constants = *a->defines_text ? a->defines_text : "no constants";
    if (!p->ran)
        return ST_OK; /* another one failed first */
    if (p->code != 0) {
        fprintf(b->o->log, "%s (%s, %s, %s):\n%s", a->unit.label, a->target->name, a->unit.arch, constants,
                str_c(&p->output));
        st = err_set(err, ST_INVALID, "%s does not compile for %s (%s): see the compiler's words above", a->unit.label,
                     a->target->name, constants);
    } else if (a->compute->accept) {
        st = a->compute->accept(&a->unit, str_c(&p->output), err);
    } else if (p->output.len) {
        fprintf(b->o->log, "%s:\n%s", a->unit.label, str_c(&p->output)); /* warnings */
    }
    if (st == ST_OK && rename(a->unit.out, a->path) != 0)
        st = err_set(err, ST_IO, "%s: the compiler left no artifact for %s: check the cache directory", a->path,
                     a->unit.label);
    if (st != ST_OK)
        unlink(a->unit.out);
    return st;
}

static Status compile(Build *b, BuildSummary *s, Err *err)
{
    Status st = ST_OK;
    Process *ps = ARENA_ARRAY(b->arena, Process, b->n_artifacts + 1);
    Artifact **todo = ARENA_ARRAY(b->arena, Artifact *, b->n_artifacts + 1);
    View *views = ARENA_ARRAY(b->arena, View, b->n_artifacts + 1);
    size_t n = 0, n_views = 0;
    if (!ps || !todo || !views)
        return no_memory(err);
    TRY(dir_make(b->o->cache, err));
    for (size_t i = 0; i < b->n_artifacts; i++) {
        Artifact *a = b->artifacts[i];
        const char *view;
        if (a->cached)
            continue;
        TRY(view_of(b, views, &n_views, a->target, &view, err));
        TRY(prepare(b, a, view, &ps[n], err));
        todo[n++] = a;
    }
    TRY(process_run(ps, n, b->o->jobs, err));
    for (size_t i = 0; i < n; i++) {
        Err later;
        Status one = settle(b, todo[i], &ps[i], st == ST_OK ? err : &later);
        st = st == ST_OK ? one : st;
    }
    s->n_compiled = n;
    s->n_cached = b->n_artifacts - n;
done:
    for (size_t i = 0; i < n; i++)
        str_release(&ps[i].output);
    for (size_t i = 0; i < n_views; i++)
        view_remove(views[i].dir);
    return st;
}

/* ---- verify ---- */

/* A point may name only what its artifact exports: found out here, with the point's line, rather than by a linker. */
static Status verify_target(const Build *b, const BuiltTarget *bt, Err *err)
{
    for (size_t i = 0; i < bt->n_objects; i++) {
        const Artifact *a = bt->objects[i].artifact;
        const TreePoint *p = bt->objects[i].point;
        const char *symbol = a->compute->symbol(&a->unit, p->entry, b->arena), *families = "FAMILIES.toml";
        bool has = false;
        if (!symbol)
            return no_memory(err);
        Status st = elf_has_function(a->bytes, a->len, a->path, symbol, &has, err);
        if (st != ST_OK)
            return st;
        for (size_t j = 0; j < bt->target->n_families; j++)
            if (p >= bt->target->families[j]->points &&
                p < bt->target->families[j]->points + bt->target->families[j]->n_points)
                families = bt->target->families[j]->path;
        if (!has)
            return err_set(err, ST_INVALID,
                           "%s/%s:%u: the point names the entry '%s', which %s does not export: define it there or "
                           "correct the name",
                           b->tree->label, families, p->line, p->entry, a->unit.label);
    }
    return ST_OK;
}

static Status verify(Build *b, Err *err)
{
    Status st = ST_OK;
    for (size_t i = 0; i < b->n_artifacts && st == ST_OK; i++)
        st = file_read(b->artifacts[i]->path, MAX_ARTIFACT, &b->artifacts[i]->bytes, &b->artifacts[i]->len, err);
    for (size_t i = 0; i < b->n_targets && st == ST_OK; i++)
        st = verify_target(b, &b->targets[i], err);
    return st;
}

Status build_run(const BuildOptions *o, BuildSummary *summary, Err *err)
{
    Status st = ST_OK;
    Build b = {.o = o, .arena = arena_new()};
    *summary = (BuildSummary){0};
    if (!b.arena)
        return no_memory(err);
    TRY(tree_read(&b.tree, o->tree, err));
    TRY(check_tree(&b, err));
    if (!o->skip) {
        TRY(plan(&b, err));
        TRY(compile(&b, summary, err));
        TRY(verify(&b, err));
    }
    TRY(build_emit(&b, err));
    summary->n_targets = b.n_targets;
    summary->n_artifacts = b.n_artifacts;
done:
    for (size_t i = 0; i < b.n_artifacts; i++)
        free(b.artifacts[i]->bytes);
    tree_free(b.tree);
    arena_free(b.arena);
    return st;
}
