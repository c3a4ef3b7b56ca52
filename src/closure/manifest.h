/* manifest.h - the five kinds of TOML file of a kernel tree, read into the structures of layout.h.
 *
 * Internal to the room. Each reader adds a fault for every key that is unknown, missing or of the wrong kind, and fills what
 * is left, so that one run shows all that is wrong. Strings are copied into the tree's arena.   Thread: the tree's. */
#ifndef METRALE_CLOSURE_MANIFEST_H
#define METRALE_CLOSURE_MANIFEST_H
#include "closure/layout.h"

void hardware_toml_read(Tree *t, const TreeFile *f, HwClass *c);
void model_toml_read(Tree *t, const TreeFile *f, TreeModel *m);
void kernel_toml_read(Tree *t, const TreeFile *f, TreeLayer *l);
void families_toml_read(Tree *t, const TreeFile *f, TreeLayer *l);
void rules_toml_read(Tree *t, const TreeFile *f, TreeLayer *l);

/* Formats into the tree's arena; NULL when out of memory, which faults_add takes. */
const char *tree_say(Tree *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* arena_alloc that remembers a failure in tree->faults.failed. */
void *tree_alloc(Tree *t, size_t n, size_t size);
#endif
