/* emit.c - the outputs: registry.c (what exists), libmetrale_kernels.a (the objects), registry.d (what was read).
 *
 * Everything is sorted, so that the same inputs give the same bytes, and a file is written only when its bytes change, so
 * that the build system relinks only for a reason. */
#include "compute/process.h"
#include "core/file.h"
#include "core/str.h"
#include "kbuild/build.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_OUTPUT = 1 << 30, MAX_TABLE = 8 << 20, MAX_DEPTH = 8 };

static Status no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "no memory for the kernel registry");
}

static Status write_if_changed(const char *path, const void *p, size_t len, Err *err)
{
    char *old = NULL;
    size_t old_len = 0;
    Err ignored;
    bool same = file_exists(path) && file_read(path, MAX_OUTPUT, &old, &old_len, &ignored) == ST_OK && old_len == len &&
                !memcmp(old, p, len);
    free(old);
    return same ? ST_OK : file_write(path, p, len, err);
}

/* ---- text of C ---- */

/* A string literal, one source line for each line of text. Octal escapes end by themselves; '?' is escaped, since two of
 * them could begin a trigraph. */
static void put_literal(Str *s, const char *text, size_t len)
{
    str_addc(s, '"');
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n')
            str_adds(s, i + 1 < len ? "\\n\"\n    \"" : "\\n");
        else if (c == '"' || c == '\\' || c == '?')
            str_addf(s, "\\%c", c);
        else if (c < 32 || c > 126)
            str_addf(s, "\\%03o", c);
        else
            str_addc(s, (char)c);
    }
    str_addc(s, '"');
}

/* NULL is a text that found no memory. */
static void put_string(Str *s, const char *text)
{
    if (text)
        put_literal(s, text, strlen(text));
    else
        s->failed = true;
}

static void put_name(Str *s, const char *text)
{
    if (text)
        str_adds(s, text);
    else
        s->failed = true;
}

static size_t artifact_index(const Build *b, const Artifact *a)
{
    size_t i = 0;
    while (b->artifacts[i] != a)
        i++;
    return i;
}

static void put_artifacts(const Build *b, Str *s, Arena *a)
{
    for (size_t i = 0; i < b->n_artifacts; i++) {
        const Artifact *art = b->artifacts[i];
        if (!art->compute->is_image) {
            for (size_t j = 0; j < art->entries.len; j++) {
                str_adds(s, "void ");
                put_name(s, art->compute->symbol(&art->unit, art->entries.items[j], a));
                str_adds(s, "(const KArg *a, const KBlock *b);\n");
            }
            continue;
        }
        str_addf(s, "static const _Alignas(16) uint8_t image_%zu_bytes[] = {", i);
        for (size_t j = 0; j < art->len; j++)
            str_addf(s, "%s%u,", j % 32 ? "" : "\n    ", (unsigned)(unsigned char)art->bytes[j]);
        str_addf(s, "\n};\nstatic const KernelImage image_%zu = {image_%zu_bytes, sizeof image_%zu_bytes};\n", i, i, i);
    }
}

static void put_target(const Build *b, size_t index, Str *s, Arena *a)
{
    const BuiltTarget *bt = &b->targets[index];
    const TreeTarget *t = bt->target;
    str_addf(s, "\nstatic const char *const layers_%zu[] = {", index);
    for (size_t i = 0; i < t->n_layers; i++) {
        str_adds(s, i ? ", " : "");
        put_string(s, arena_printf(a, "kernels/%s", t->layers[i]->path));
    }
    str_adds(s, "};\n");
    if (!bt->n_objects)
        return;
    str_addf(s, "static const KernelObject objects_%zu[] = {\n", index);
    for (size_t i = 0; i < bt->n_objects; i++) {
        const TreePoint *p = bt->objects[i].point;
        const Artifact *art = bt->objects[i].artifact;
        const char *symbol = art->compute->symbol(&art->unit, p->entry, a);
        const char *const texts[] = {p->entry, p->module, p->constants, symbol, art->key};
        str_adds(s, "    {");
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++) {
            put_string(s, texts[j]);
            str_adds(s, ", ");
        }
        if (art->compute->is_image) {
            str_addf(s, "NULL, &image_%zu},\n", artifact_index(b, art));
        } else {
            put_name(s, symbol);
            str_adds(s, ", NULL},\n");
        }
    }
    str_adds(s, "};\n");
}

static void put_targets(const Build *b, Str *s)
{
    if (!b->n_targets)
        return;
    str_adds(s, "\nstatic const KernelTarget targets[] = {\n");
    for (size_t i = 0; i < b->n_targets; i++) {
        const BuiltTarget *bt = &b->targets[i];
        const TreeTarget *t = bt->target;
        const char *const texts[] = {t->name, t->hw, t->model, t->quant, t->cls->arch, t->cls->vendor_name};
        str_adds(s, "    {");
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++) {
            put_string(s, texts[j]);
            str_adds(s, ", ");
        }
        str_addf(s, "layers_%zu, %zu, ", i, t->n_layers);
        if (bt->n_objects)
            str_addf(s, "objects_%zu, %zu, ", i, bt->n_objects);
        else
            str_adds(s, "NULL, 0, ");
        put_string(s, bt->hash);
        str_adds(s, "},\n");
    }
    str_adds(s, "};\n");
}

/* ---- embedded tables ---- */

typedef struct Table {
    const char *path; /* as the registry names it */
    const char *text;
    size_t len;
} Table;

typedef struct Tables {
    Table *items;
    size_t len, cap;
} Tables;

static Status table_add(Build *b, Tables *l, const char *path, const char *text, size_t len, Err *err)
{
    if (l->len == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        Table *items = ARENA_ARRAY(b->arena, Table, cap);
        if (!items)
            return no_memory(err);
        if (l->len)
            memcpy(items, l->items, l->len * sizeof *items);
        l->items = items;
        l->cap = cap;
    }
    if (!path || !text)
        return no_memory(err);
    l->items[l->len++] = (Table){path, text, len};
    return ST_OK;
}

/* Every *.toml under dir, named from `name`. */
static Status collect_circuits(Build *b, Tables *l, const char *dir, const char *name, int depth, Err *err)
{
    DirEntry *entries = NULL;
    size_t n = 0;
    Status st = dir_list(dir, b->arena, &entries, &n, err);
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        const char *path = arena_printf(b->arena, "%s/%s", dir, entries[i].name);
        const char *as = arena_printf(b->arena, "%s/%s", name, entries[i].name);
        if (!path || !as)
            return no_memory(err);
        if (entries[i].is_dir && !entries[i].is_link && depth < MAX_DEPTH) {
            st = collect_circuits(b, l, path, as, depth + 1, err);
        } else if (entries[i].is_file && !entries[i].is_link && str_ends(path, ".toml")) {
            char *text = NULL;
            size_t len = 0;
            st = file_read(path, MAX_TABLE, &text, &len, err);
            if (st == ST_OK)
                st = table_add(b, l, as, arena_strndup(b->arena, text, len), len, err);
            if (st == ST_OK && !name_list_add(&b->inputs, b->arena, path, strlen(path)))
                st = no_memory(err);
            free(text);
        }
    }
    return st;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const Table *)a)->path, ((const Table *)b)->path);
}

static Status put_files(Build *b, Str *s, size_t *n_files, Err *err)
{
    Tables l = {0};
    Status st = collect_circuits(b, &l, b->o->circuits, "circuits", 0, err);
    for (size_t i = 0; i < b->tree->n_files && st == ST_OK; i++) {
        const TreeFile *f = b->tree->files[i];
        if (f->is_table)
            st = table_add(b, &l, arena_printf(b->arena, "kernels/%s", f->path), f->text, f->len, err);
    }
    *n_files = l.len;
    if (st != ST_OK || !l.len)
        return st;
    qsort(l.items, l.len, sizeof *l.items, by_path);
    str_adds(s, "\nstatic const EmbeddedFile files[] = {\n");
    for (size_t i = 0; i < l.len; i++) {
        str_adds(s, "    {");
        put_string(s, l.items[i].path);
        str_adds(s, ",\n    ");
        put_literal(s, l.items[i].text, l.items[i].len);
        str_addf(s, ", %zu},\n", l.items[i].len);
    }
    str_adds(s, "};\n");
    return ST_OK;
}

/* ---- the outputs ---- */

static Status write_registry(Build *b, const char *path, Err *err)
{
    Str s = STR_INIT;
    size_t n_files = 0;
    str_adds(
        &s,
        "/* Written by metrale_kbuild from the kernel tree and the circuits; an edit is lost at the next build. */\n"
        "#include \"kernels/registry.h\"\n\n");
    put_artifacts(b, &s, b->arena);
    for (size_t i = 0; i < b->n_targets; i++)
        put_target(b, i, &s, b->arena);
    put_targets(b, &s);
    Status st = put_files(b, &s, &n_files, err);
    str_addf(&s, "\nconst KernelRegistry metrale_registry = {\n    %s, %zu, %s, %zu,\n    ",
             b->n_targets ? "targets" : "NULL", b->n_targets, n_files ? "files" : "NULL", n_files);
    if (b->left_out)
        put_string(&s, b->left_out);
    else
        str_adds(&s, "NULL");
    str_adds(&s, ",\n};\n");
    if (st == ST_OK && !str_ok(&s))
        st = no_memory(err);
    if (st == ST_OK)
        st = write_if_changed(path, s.p, s.len, err);
    str_release(&s);
    return st;
}

/* ar makes the archive under another name (D: no dates, no owners); an archive without members is its magic alone. */
static Status write_archive(Build *b, const char *path, Err *err)
{
    static const char magic[] = "!<arch>\n";
    Status st = ST_OK;
    Process p = {0};
    char *bytes = NULL;
    size_t len = 0;
    const char *tmp = arena_printf(b->arena, "%s.%ld", path, (long)getpid());
    ComputeArgs args = {.arena = b->arena};
    compute_args_add(&args, "ar");
    compute_args_add(&args, "rcsD");
    compute_args_add(&args, tmp);
    for (size_t i = 0; i < b->n_artifacts; i++)
        if (!b->artifacts[i]->compute->is_image)
            compute_args_add(&args, b->artifacts[i]->path);
    p.argv = compute_args_take(&args);
    if (!p.argv)
        return no_memory(err);
    if (args.len == 3)
        return write_if_changed(path, magic, sizeof magic - 1, err);
    unlink(tmp);
    TRY(process_run(&p, 1, 1, err));
    if (p.code != 0)
        TRY(err_set(err, ST_IO, "%s: ar failed: %s", path, str_c(&p.output)));
    TRY(file_read(tmp, MAX_OUTPUT, &bytes, &len, err));
    TRY(write_if_changed(path, bytes, len, err));
done:
    unlink(tmp);
    free(bytes);
    str_release(&p.output);
    return st;
}

/* A name as make and Ninja read it. */
static void put_dep(Str *s, const char *path)
{
    for (; *path; path++) {
        if (*path == ' ' || *path == '#' || *path == '\\')
            str_addc(s, '\\');
        if (*path == '$')
            str_addc(s, '$');
        str_addc(s, *path);
    }
}

static Status write_depfile(const Build *b, const char *path, const char *registry, const char *archive, Err *err)
{
    Str s = STR_INIT;
    put_dep(&s, registry);
    str_addc(&s, ' ');
    put_dep(&s, archive);
    str_addc(&s, ':');
    for (size_t i = 0; i < b->tree->n_files; i++) {
        str_adds(&s, " \\\n  ");
        put_dep(&s, b->tree->dir);
        str_addc(&s, '/');
        put_dep(&s, b->tree->files[i]->path);
    }
    for (size_t i = 0; i < b->inputs.len; i++) {
        str_adds(&s, " \\\n  ");
        put_dep(&s, b->inputs.items[i]);
    }
    str_addc(&s, '\n');
    Status st = str_ok(&s) ? write_if_changed(path, s.p, s.len, err) : no_memory(err);
    str_release(&s);
    return st;
}

Status build_emit(Build *b, Err *err)
{
    Status st = ST_OK;
    const char *registry = arena_printf(b->arena, "%s/registry.c", b->o->out);
    const char *archive = arena_printf(b->arena, "%s/libmetrale_kernels.a", b->o->out);
    const char *depfile = arena_printf(b->arena, "%s/registry.d", b->o->out);
    if (!registry || !archive || !depfile)
        return no_memory(err);
    TRY(dir_make(b->o->out, err));
    TRY(write_registry(b, registry, err));
    TRY(write_archive(b, archive, err));
    TRY(write_depfile(b, depfile, registry, archive, err));
done:
    return st;
}
