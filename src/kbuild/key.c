/* key.c - what an artifact depends on, as one number.
 *
 * Includes are followed as the compiler will follow them in the view: next to the file that asks, then at the view's top,
 * then in the directory of kernel_abi.h. A name that is in none of them is the compiler's own header, for which its version
 * stands. Conditions are not evaluated, so the key may depend on a little too much, and never on too little. */
#include "core/file.h"
#include "core/hash.h"
#include "kbuild/build.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_ABI_FILE = 1 << 20, MAX_PATH_WORDS = 64 };

typedef struct Walk {
    Build *b;
    const TreeTarget *target;
    Hasher *hasher;
    NameList seen;
} Walk;

static Status no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "no memory to hash the sources");
}

/* dir/name with "." and ".." taken out; NULL when it leaves the top or memory ran out. */
static const char *normal_path(Arena *a, const char *dir, const char *name)
{
    char *path = *dir ? arena_printf(a, "%s/%s", dir, name) : arena_strdup(a, name);
    char *words[MAX_PATH_WORDS], *save = NULL;
    size_t n = 0;
    if (!path || *name == '/')
        return NULL;
    for (char *w = strtok_r(path, "/", &save); w; w = strtok_r(NULL, "/", &save)) {
        if (!strcmp(w, "."))
            continue;
        if (!strcmp(w, "..")) {
            if (n-- == 0)
                return NULL;
        } else if (n == MAX_PATH_WORDS) {
            return NULL;
        } else {
            words[n++] = w;
        }
    }
    const char *out = "";
    for (size_t i = 0; i < n && out; i++)
        out = arena_printf(a, "%s%s%s", out, i ? "/" : "", words[i]);
    return out;
}

static Status walk_text(Walk *w, const char *name, const char *text, size_t len, Err *err);

/* A file of the view. *found false: there is none of that name. */
static Status walk_view(Walk *w, const char *name, bool *found, Err *err)
{
    const TargetFile *f = name ? target_file(w->target, name) : NULL;
    *found = f != NULL;
    return f ? walk_text(w, f->file->name, f->file->file->text, f->file->file->len, err) : ST_OK;
}

static Status walk_abi(Walk *w, const char *name, Err *err)
{
    char *text = NULL;
    size_t len = 0;
    const char *path = arena_printf(w->b->arena, "%s/%s", w->b->o->abi, name);
    if (!path)
        return no_memory(err);
    if (*name == '/' || !file_exists(path))
        return ST_OK;
    Status st = file_read(path, MAX_ABI_FILE, &text, &len, err);
    if (st == ST_OK && !name_list_has(&w->b->inputs, path) &&
        !name_list_add(&w->b->inputs, w->b->arena, path, strlen(path)))
        st = no_memory(err);
    if (st == ST_OK)
        st = walk_text(w, path, text, len, err);
    free(text);
    return st;
}

static Status walk_text(Walk *w, const char *name, const char *text, size_t len, Err *err)
{
    Arena *a = w->b->arena;
    NameList includes = {0};
    const char *slash = strrchr(name, '/');
    const char *dir = slash ? arena_strndup(a, name, (size_t)(slash - name)) : "";
    if (name_list_has(&w->seen, name))
        return ST_OK;
    if (!dir || !name_list_add(&w->seen, a, name, strlen(name)) || !scan_includes(text, len, a, &includes))
        return no_memory(err);
    hasher_add_u64(w->hasher, len);
    hasher_add(w->hasher, text, len);
    for (size_t i = 0; i < includes.len; i++) {
        bool found;
        Status st = walk_view(w, normal_path(a, dir, includes.items[i]), &found, err);
        if (st == ST_OK && !found)
            st = walk_view(w, normal_path(a, "", includes.items[i]), &found, err);
        if (st == ST_OK && !found)
            st = walk_abi(w, includes.items[i], err);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

Status build_key(Build *b, const TreeTarget *t, const TargetFile *source, const ComputeTarget *compute,
                 const char *identity, const CompileUnit *u, char key[33], Err *err)
{
    Walk w = {.b = b, .target = t, .hasher = hasher_new()};
    if (!w.hasher)
        return no_memory(err);
    hasher_add_str(w.hasher, "metrale kernel artifact 1");
    hasher_add_str(w.hasher, compute->vendor);
    hasher_add_str(w.hasher, identity);
    if (compute->is_image) /* elsewhere the arch is a matter of flags, and two classes with equal flags share */
        hasher_add_str(w.hasher, u->arch);
    const struct {
        const char *const *items;
        size_t n;
    } lists[] = {{u->flags, u->n_flags}, {u->defines, u->n_defines}, {u->may_spill, u->n_may_spill}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        hasher_add_u64(w.hasher, lists[i].n);
        for (size_t j = 0; j < lists[i].n; j++)
            hasher_add_str(w.hasher, lists[i].items[j]);
    }
    Status st = walk_text(&w, source->file->name, source->file->file->text, source->file->file->len, err);
    if (st == ST_OK)
        hash_hex(hasher_value(w.hasher), key);
    hasher_free(w.hasher);
    return st;
}
