/* embedded.h - the TOML files of circuits/ or kernels/ as EmbeddedFile arrays, read from the source tree, so that tests
 * of pure rooms see what the build embeds. Also small helpers to break one file on purpose.
 *
 * Owns: the texts, until embedded_free.   Thread: one. */
#ifndef METRALE_TESTS_SUPPORT_EMBEDDED_H
#define METRALE_TESTS_SUPPORT_EMBEDDED_H
#include "core/file.h"
#include "core/str.h"
#include "kernels/registry.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EMBEDDED_MAX = 512, EMBEDDED_FILE_BYTES = 1 << 24 };

typedef struct Embedded {
    EmbeddedFile files[EMBEDDED_MAX]; /* paths relative to the repository, sorted within a directory */
    size_t n;
} Embedded;

/* Adds every *.toml below METRALE_SOURCE_DIR/dir ("circuits"). */
static inline Status embedded_add_dir(Embedded *e, const char *dir, Err *err)
{
    char path[1024];
    Arena *a = arena_new();
    DirEntry *entries = NULL;
    size_t n = 0;
    Status st = a != NULL ? ST_OK : ST_NOMEM;

    TRY(st);
    snprintf(path, sizeof path, "%s/%s", METRALE_SOURCE_DIR, dir);
    TRY(dir_list(path, a, &entries, &n, err));
    for (size_t i = 0; i < n; i++) {
        char rel[768], *text = NULL;
        size_t len = 0;

        snprintf(rel, sizeof rel, "%s/%s", dir, entries[i].name);
        if (entries[i].is_dir) {
            TRY(embedded_add_dir(e, rel, err));
            continue;
        }
        if (!str_ends(rel, ".toml"))
            continue;
        if (e->n == EMBEDDED_MAX)
            TRY(err_set(err, ST_BUSY, "more than %d files; raise EMBEDDED_MAX", EMBEDDED_MAX));
        snprintf(path, sizeof path, "%s/%s", METRALE_SOURCE_DIR, rel);
        TRY(file_read(path, EMBEDDED_FILE_BYTES, &text, &len, err));
        e->files[e->n++] = (EmbeddedFile){.path = strdup(rel), .text = text, .len = len};
    }
done:
    arena_free(a);
    return st;
}

static inline void embedded_free(Embedded *e)
{
    for (size_t i = 0; i < e->n; i++) {
        free((void *)(uintptr_t)e->files[i].path);
        free((void *)(uintptr_t)e->files[i].text);
    }
    e->n = 0;
}

static inline EmbeddedFile *embedded_find(Embedded *e, const char *path)
{
    for (size_t i = 0; i < e->n; i++)
        if (strcmp(e->files[i].path, path) == 0)
            return &e->files[i];
    return NULL;
}

/* Adds a file, or replaces the text of one. */
static inline void embedded_set(Embedded *e, const char *path, const char *text)
{
    EmbeddedFile *f = embedded_find(e, path);

    if (f == NULL) {
        f = &e->files[e->n++];
        f->path = strdup(path);
    } else {
        free((void *)(uintptr_t)f->text);
    }
    f->text = strdup(text);
    f->len = strlen(text);
}

/* Replaces the first `from` in the file by `to`; false when it is not there. */
static inline bool embedded_replace(Embedded *e, const char *path, const char *from, const char *to)
{
    EmbeddedFile *f = embedded_find(e, path);
    const char *at = f != NULL ? strstr(f->text, from) : NULL;
    Str s = STR_INIT;
    char *text;

    if (at == NULL)
        return false;
    str_add(&s, f->text, (size_t)(at - f->text));
    str_adds(&s, to);
    str_adds(&s, at + strlen(from));
    text = str_take(&s);
    if (text == NULL)
        return false;
    embedded_set(e, path, text);
    free(text);
    return true;
}
#endif
