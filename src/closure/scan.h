/* scan.h - what a kernel source says about itself, found without a compiler.
 *
 * Owns: nothing; results live in the arena.   Thread: any. */
#ifndef METRALE_CLOSURE_SCAN_H
#define METRALE_CLOSURE_SCAN_H
#include "core/arena.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct NameList {
    const char **items;
    size_t len, cap;
} NameList;

/* Appends a copy; false when out of memory. */
bool name_list_add(NameList *l, Arena *a, const char *name, size_t len);
bool name_list_has(const NameList *l, const char *name);

/* Entry points that the text defines: the name behind `__global__`, and the first argument of an upper-case macro
 * called at file scope, which is how KERNEL(name) and macros built on it are used. Comments, strings and
 * preprocessor lines are skipped. A name made by token pasting is not seen: only the object file knows it. */
bool scan_entries(const char *text, size_t len, Arena *a, NameList *out);

/* Names in #include "..." and #include <...>, in order, each once. Conditions are not evaluated: too many names are harmless. */
bool scan_includes(const char *text, size_t len, Arena *a, NameList *out);
#endif
