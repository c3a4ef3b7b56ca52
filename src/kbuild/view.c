/* view.c - a target's files under one roof.
 *
 * A compiler looks for a quoted include first beside the file that asks for it. Compiled in place, a source of common/ would
 * thus take common's header even where an upper layer shadows it. So a target is compiled from a directory that holds exactly
 * its winners, each under its name. A #line in front keeps the compiler's messages at the file that a person edits. */
#include "core/file.h"
#include "core/str.h"
#include "kbuild/build.h"
#include <string.h>
#include <unistd.h>

static Status write_one(const Build *b, const TargetFile *f, const char *dir, Err *err)
{
    Status st = ST_OK;
    Str path = STR_INIT, text = STR_INIT;
    str_addf(&path, "%s/%s", dir, f->file->name);
    if (!strpbrk(f->file->file->path, "\"\\"))
        str_addf(&text, "#line 1 \"%s/%s\"\n", b->tree->label, f->file->file->path);
    str_add(&text, f->file->file->text, f->file->file->len);
    if (!str_ok(&path) || !str_ok(&text))
        TRY(err_set(err, ST_NOMEM, "no memory to lay out %s", f->file->file->path));
    char *slash = strrchr(path.p, '/');
    *slash = '\0';
    TRY(dir_make(path.p, err));
    *slash = '/';
    TRY(file_write(path.p, text.p, text.len, err));
done:
    str_release(&path);
    str_release(&text);
    return st;
}

Status view_write(const Build *b, const TreeTarget *t, const char *dir, Err *err)
{
    Status st = dir_make(dir, err);
    for (size_t i = 0; st == ST_OK && i < t->n_files; i++)
        st = write_one(b, &t->files[i], dir, err);
    return st;
}

static void remove_tree(const char *dir, Arena *a)
{
    DirEntry *entries = NULL;
    size_t n = 0;
    Err ignored;
    if (dir_list(dir, a, &entries, &n, &ignored) != ST_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        const char *path = arena_printf(a, "%s/%s", dir, entries[i].name);
        if (path && entries[i].is_dir && !entries[i].is_link)
            remove_tree(path, a);
        else if (path)
            unlink(path);
    }
    rmdir(dir);
}

/* What cannot be removed stays: the next run makes a directory of another name. */
void view_remove(const char *dir)
{
    Arena *a = arena_new();
    if (a)
        remove_tree(dir, a);
    arena_free(a);
}
