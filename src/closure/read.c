/* read.c - walks a kernel tree once and keeps every file in memory.
 *
 * The shape is fixed: class / common, class / model / quant. A directory that does not fit is a fault, as is a symbolic link
 * anywhere: the tree must mean the same in every checkout, and `use` is how one layer takes another's file.
 * Names that begin with a dot and *.md files are nobody's business here. */
#include "closure/read.h"
#include "closure/manifest.h"
#include "core/file.h"
#include "core/str.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILE = 8 << 20, MAX_DEPTH = 8 };

static const char *full_path(Tree *t, const char *path)
{
    return *path ? tree_say(t, "%s/%s", t->dir, path) : t->dir;
}

static const char *join(Tree *t, const char *dir, const char *name)
{
    return *dir ? tree_say(t, "%s/%s", dir, name) : tree_say(t, "%s", name);
}

static const char *extension(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot : "";
}

static bool ignored(const char *name)
{
    return name[0] == '.' || !strcmp(extension(name), ".md");
}

/* Sorted entries that are files or directories; links and special files are faults. */
static size_t list(Tree *t, const char *dir, DirEntry **out)
{
    size_t n = 0, kept = 0;
    Err err;
    const char *full = full_path(t, dir);
    if (!full)
        return 0;
    if (dir_list(full, t->arena, out, &n, &err) != ST_OK) {
        faults_add(&t->faults, dir, 1, tree_say(t, "cannot be listed: %s", err.msg), "make the directory readable");
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        const DirEntry *e = &(*out)[i];
        if (e->is_link)
            faults_add(&t->faults, join(t, dir, e->name), 1, "a symbolic link in the kernel tree",
                       "replace it by the file, or name its target in [sources] use");
        else if (!ignored(e->name) && (e->is_dir || e->is_file))
            (*out)[kept++] = *e;
    }
    return kept;
}

/* The file at path, read on the first call. NULL: reported. */
static const TreeFile *load(Tree *t, const char *path)
{
    if (!path)
        return NULL;
    for (size_t i = 0; i < t->n_files; i++)
        if (!strcmp(t->files[i]->path, path))
            return t->files[i];
    if (t->n_files == t->cap_files) {
        size_t cap = t->cap_files ? t->cap_files * 2 : 64;
        TreeFile **files = tree_alloc(t, cap, sizeof(TreeFile *));
        if (!files)
            return NULL;
        if (t->n_files)
            memcpy(files, t->files, t->n_files * sizeof(TreeFile *));
        t->files = files;
        t->cap_files = cap;
    }
    char *text = NULL;
    size_t len = 0;
    Err err;
    const char *full = full_path(t, path);
    if (!full)
        return NULL;
    if (file_read(full, MAX_FILE, &text, &len, &err) != ST_OK) {
        faults_add(&t->faults, path, 1, tree_say(t, "cannot be read: %s", err.msg),
                   "make it a readable file under 8 MiB");
        return NULL;
    }
    TreeFile *f = tree_alloc(t, 1, sizeof *f);
    if (f) {
        f->path = path;
        f->is_table = !strcmp(extension(path), ".toml");
        f->text = arena_strndup(t->arena, text, len);
        f->len = len;
        f->hash = hash_bytes(text, len);
        if (!f->text || (!f->is_table && !scan_entries(text, len, t->arena, &f->entries))) {
            t->faults.failed = true;
            f = NULL;
        } else {
            t->files[t->n_files++] = f;
        }
    }
    free(text);
    return f;
}

static LayerFile *layer_find(TreeLayer *l, const char *name)
{
    for (size_t i = 0; i < l->n_files; i++)
        if (!strcmp(l->files[i].name, name))
            return &l->files[i];
    return NULL;
}

static bool same_stem(const char *a, const char *b)
{
    size_t n = (size_t)(extension(a) - a);
    return n && n == (size_t)(extension(b) - b) && !memcmp(a, b, n);
}

/* Two files that would answer to one name, or two sources that would be one module. */
static const LayerFile *collision(TreeLayer *l, const char *name, LayerKind kind)
{
    for (size_t i = 0; i < l->n_files; i++) {
        const LayerFile *f = &l->files[i];
        if (!strcmp(f->name, name) || (kind == TREE_SOURCE && f->kind == TREE_SOURCE && same_stem(f->name, name)))
            return f;
    }
    return NULL;
}

static void layer_add(Tree *t, TreeLayer *l, const char *name, LayerKind kind, const TreeFile *f, uint32_t use_line)
{
    if (!name || !f)
        return;
    const LayerFile *other = collision(l, name, kind);
    if (other) {
        const char *where = use_line ? l->kernel_toml : f->path;
        bool same = other->file == f;
        faults_add(&t->faults, where, use_line ? use_line : 1,
                   same ? tree_say(t, "name collision in the layer: [sources] use brings '%s' twice", f->path)
                        : tree_say(t, "name collision in the layer %s: '%s' and '%s' are both '%s'", l->path,
                                   other->file->path, f->path, name),
                   same ? "name it once" : "rename one of them or remove it from [sources] use");
        return;
    }
    if (l->n_files == l->cap_files) {
        size_t cap = l->cap_files ? l->cap_files * 2 : 16;
        LayerFile *files = tree_alloc(t, cap, sizeof *files);
        if (!files)
            return;
        if (l->n_files)
            memcpy(files, l->files, l->n_files * sizeof *files);
        l->files = files;
        l->cap_files = cap;
    }
    l->files[l->n_files++] = (LayerFile){name, kind, f, use_line};
}

/* What a file of a layer is; false: nothing reads it, which is reported. */
static bool classify(Tree *t, const Vendor *vendor, const char *path, const char *name, bool top, LayerKind *kind)
{
    const char *ext = extension(name);
    if (!strcmp(ext, ".h") || !strcmp(ext, ".cuh") || !strcmp(ext, ".inc") || (!top && strcmp(ext, ".toml"))) {
        *kind = TREE_HEADER;
        return true;
    }
    if (vendor && !strcmp(ext, vendor->source_ext)) {
        *kind = TREE_SOURCE;
        return true;
    }
    if (vendor) /* with an unknown vendor nothing can be said */
        faults_add(
            &t->faults, path, 1, tree_say(t, "no part of a layer of vendor '%s' is named like this", vendor->name),
            tree_say(t, "use a source (*%s), a header (*.h, *.cuh, *.inc), KERNEL.toml, FAMILIES.toml or RULES.toml",
                     vendor->source_ext));
    return false;
}

/* Adds the files under dir, named from there behind prefix. */
static void layer_walk(Tree *t, TreeLayer *l, const Vendor *vendor, const char *dir, const char *prefix,
                       uint32_t use_line, int depth)
{
    DirEntry *entries = NULL;
    size_t n = list(t, dir, &entries);
    for (size_t i = 0; i < n; i++) {
        const char *name = join(t, prefix, entries[i].name), *path = join(t, dir, entries[i].name);
        LayerKind kind;
        if (!name || !path)
            return;
        bool top = !*prefix;
        bool table =
            top && (!strcmp(name, "KERNEL.toml") || !strcmp(name, "FAMILIES.toml") || !strcmp(name, "RULES.toml"));
        if (entries[i].is_dir && depth == MAX_DEPTH)
            faults_add(&t->faults, path, 1, "sub-directories are too deep", "move its files up");
        else if (entries[i].is_dir)
            layer_walk(t, l, vendor, path, name, use_line, depth + 1);
        else if (!table && classify(t, vendor, path, name, top, &kind))
            layer_add(t, l, name, kind, load(t, path), use_line);
    }
}

static TreeLayer *layer_read(Tree *t, const HwClass *c, const char *path)
{
    TreeLayer *l = tree_alloc(t, 1, sizeof *l);
    if (!l || !path)
        return NULL;
    l->path = path;
    l->kernel_toml = join(t, path, "KERNEL.toml");
    DirEntry *entries = NULL;
    size_t n = list(t, path, &entries);
    for (size_t i = 0; i < n; i++) {
        void (*read)(Tree *, const TreeFile *, TreeLayer *) = !strcmp(entries[i].name, "KERNEL.toml") ? kernel_toml_read
                                                              : !strcmp(entries[i].name, "FAMILIES.toml")
                                                                  ? families_toml_read
                                                              : !strcmp(entries[i].name, "RULES.toml") ? rules_toml_read
                                                                                                       : NULL;
        if (!read || !entries[i].is_file)
            continue;
        const TreeFile *f = load(t, join(t, path, entries[i].name));
        if (f)
            read(t, f, l);
        l->has_kernel_toml |= read == kernel_toml_read;
    }
    layer_walk(t, l, c->vendor, path, "", 0, 0);
    return l;
}

static void stray(Tree *t, const char *path, const char *allowed)
{
    faults_add(&t->faults, path, 1, "nothing reads this file",
               tree_say(t, "move it to where it belongs: here is %s", allowed));
}

static void model_read(Tree *t, const HwClass *c, const char *dir, TreeModel *m)
{
    DirEntry *entries = NULL;
    size_t n = list(t, dir, &entries);
    m->toml = join(t, dir, "MODEL.toml");
    m->quants = tree_alloc(t, n, sizeof *m->quants);
    for (size_t i = 0; m->quants && i < n; i++) {
        const char *path = join(t, dir, entries[i].name);
        if (entries[i].is_dir) {
            TreeLayer *l = layer_read(t, c, path);
            if (!l)
                return;
            if (!l->has_kernel_toml)
                faults_add(&t->faults, path, 1, "a quantization directory without KERNEL.toml",
                           "add KERNEL.toml (a comment is enough) or remove the directory");
            m->quants[m->n_quants++] = (TreeQuant){entries[i].name, l};
        } else if (!strcmp(entries[i].name, "MODEL.toml")) {
            const TreeFile *f = load(t, path);
            m->has_toml = true;
            if (f)
                model_toml_read(t, f, m);
        } else {
            stray(t, path, "MODEL.toml and one directory for each quantization");
        }
    }
}

static void class_read(Tree *t, HwClass *c)
{
    DirEntry *entries = NULL;
    size_t n = list(t, c->name, &entries);
    bool has_toml = false;
    c->toml = join(t, c->name, "HARDWARE.toml");
    for (size_t i = 0; i < n; i++) {
        if (!entries[i].is_file)
            continue;
        const char *path = join(t, c->name, entries[i].name);
        if (strcmp(entries[i].name, "HARDWARE.toml")) {
            stray(t, path, "HARDWARE.toml, common/ and one directory for each model");
            continue;
        }
        const TreeFile *f = load(t, path);
        has_toml = true;
        if (f)
            hardware_toml_read(t, f, c);
    }
    if (!has_toml)
        faults_add(&t->faults, c->name, 1, "a hardware class without HARDWARE.toml",
                   "add HARDWARE.toml or remove the directory");
    c->models = tree_alloc(t, n, sizeof *c->models);
    for (size_t i = 0; c->models && i < n; i++) {
        const char *path = join(t, c->name, entries[i].name);
        if (!entries[i].is_dir)
            continue;
        if (!strcmp(entries[i].name, "common")) {
            c->common = layer_read(t, c, path);
        } else {
            TreeModel *m = &c->models[c->n_models++];
            m->name = entries[i].name;
            model_read(t, c, path, m);
        }
    }
}

Status tree_walk(Tree *t, Err *err)
{
    DirEntry *entries = NULL;
    size_t n = 0;
    if (!dir_exists(t->dir))
        return err_set(err, ST_NOTFOUND, "%s is no directory: name a kernel tree", t->dir);
    Status st = dir_list(t->dir, t->arena, &entries, &n, err);
    if (st != ST_OK)
        return st;
    n = list(t, "", &entries);
    t->classes = tree_alloc(t, n, sizeof *t->classes);
    for (size_t i = 0; t->classes && i < n; i++) {
        if (entries[i].is_dir) {
            HwClass *c = &t->classes[t->n_classes++];
            c->name = entries[i].name;
            class_read(t, c);
        } else {
            stray(t, entries[i].name, "one directory for each hardware class");
        }
    }
    return ST_OK;
}

/* Checks the words of a path that [sources] use names. NULL: fine; otherwise what is wrong, with the remedy in *remedy. */
static const char *use_fault(Tree *t, const char *use, const char **remedy, struct stat *sb)
{
    *remedy = "name a file or a directory of this tree, from its root";
    size_t len = strlen(use);
    for (size_t from = 0; from <= len;) {
        size_t n = strcspn(use + from, "/");
        if (n == 0 || (n == 2 && !memcmp(use + from, "..", 2)) || (n == 1 && use[from] == '.'))
            return tree_say(t, "[sources] use '%s' leads outside the tree", use);
        const char *full = tree_say(t, "%s/%.*s", t->dir, (int)(from + n), use);
        if (!full)
            return NULL;
        if (lstat(full, sb) != 0)
            return tree_say(t, "[sources] use '%s' names a missing file", use);
        if (S_ISLNK(sb->st_mode)) {
            *remedy = "name the file that the link points at";
            return tree_say(t, "[sources] use '%s' goes through a symbolic link", use);
        }
        from += n + 1;
    }
    return NULL;
}

static void layer_use(Tree *t, const HwClass *c, TreeLayer *l)
{
    for (size_t i = 0; i < l->n_uses; i++) {
        const char *use = l->uses[i], *remedy, *base = strrchr(use, '/');
        struct stat sb = {0};
        const char *what = use_fault(t, use, &remedy, &sb);
        LayerKind kind;
        base = base ? base + 1 : use;
        if (what) {
            faults_add(&t->faults, l->kernel_toml, l->use_lines[i], what, remedy);
        } else if (S_ISDIR(sb.st_mode)) {
            layer_walk(t, l, c->vendor, use, "", l->use_lines[i], 0);
        } else if (!strcmp(extension(base), ".toml")) {
            faults_add(&t->faults, l->kernel_toml, l->use_lines[i],
                       tree_say(t, "[sources] use '%s' names a table", use),
                       "use sources and headers; tables come from the layers alone");
        } else if (classify(t, c->vendor, use, base, true, &kind)) {
            layer_add(t, l, base, kind, load(t, use), l->use_lines[i]);
        }
    }
}

static int by_layer_name(const void *a, const void *b)
{
    return strcmp(((const LayerFile *)a)->name, ((const LayerFile *)b)->name);
}

static void layer_finish(Tree *t, const HwClass *c, TreeLayer *l)
{
    layer_use(t, c, l);
    if (l->n_files > 1)
        qsort(l->files, l->n_files, sizeof *l->files, by_layer_name);
    for (size_t i = 0; i < l->n_shadows; i++)
        if (!layer_find(l, l->shadows[i].name)) {
            l->shadows[i].met = true; /* one fault is enough */
            faults_add(&t->faults, l->kernel_toml, l->shadows[i].line,
                       tree_say(t, "[shadow] '%s' shadows nothing: the layer %s has no such file", l->shadows[i].name,
                                l->path),
                       "remove the declaration or add the file");
        }
}

void tree_use(Tree *t)
{
    for (size_t i = 0; i < t->n_classes; i++) {
        HwClass *c = &t->classes[i];
        if (c->common)
            layer_finish(t, c, c->common);
        for (size_t j = 0; j < c->n_models; j++)
            for (size_t k = 0; k < c->models[j].n_quants; k++)
                layer_finish(t, c, c->models[j].quants[k].layer);
    }
}
