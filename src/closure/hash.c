/* hash.c - the content hash of a target: what, when it changes, makes the target another one.
 *
 * Layers are hashed in order and files within one by name, so the number depends on what is where in the layering and on
 * nothing else: not on the tree's place, nor on files that the target does not read. */
#include "closure/hash.h"
#include <string.h>

static void add_table(Hasher *h, const Tree *tree, const char *dir, const char *name)
{
    char path[4096];
    size_t n = strlen(dir), m = strlen(name);
    const TreeFile *f = NULL;
    if (n + m + 2 <= sizeof path) {
        memcpy(path, dir, n);
        path[n] = '/';
        memcpy(path + n + 1, name, m + 1);
        f = tree_file(tree, path);
    }
    hasher_add_str(h, name);
    hasher_add_u64(h, f ? f->hash.hi : 0);
    hasher_add_u64(h, f ? f->hash.lo : 0);
}

Status target_hash(const Tree *tree, const TreeTarget *t, Hash128 *out, Err *err)
{
    Hasher *h = hasher_new();
    if (!h)
        return err_set(err, ST_NOMEM, "no memory to hash the target %s", t->name);
    hasher_add_str(h, t->name);
    for (const HwClass *c = t->cls; c; c = c->parent)
        add_table(h, tree, c->name, "HARDWARE.toml");
    const TreeFile *model = tree_file(tree, t->model_toml);
    hasher_add_u64(h, model ? model->hash.hi : 0);
    hasher_add_u64(h, model ? model->hash.lo : 0);
    for (size_t i = 0; i < t->n_layers; i++) {
        const TreeLayer *l = t->layers[i];
        hasher_add_u64(h, l->n_files);
        for (size_t j = 0; j < l->n_files; j++) {
            hasher_add_str(h, l->files[j].name);
            hasher_add_u64(h, l->files[j].file->hash.hi);
            hasher_add_u64(h, l->files[j].file->hash.lo);
        }
        add_table(h, tree, l->path, "KERNEL.toml");
        add_table(h, tree, l->path, "FAMILIES.toml");
        add_table(h, tree, l->path, "RULES.toml");
    }
    *out = hasher_value(h);
    hasher_free(h);
    return ST_OK;
}
