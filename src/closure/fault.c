/* fault.c - the list of faults of a tree.
 *
 * Most checks run once for each target, and targets share layers, so the same fault is found many times:
 * the list drops repeats, which keeps the checks free of book-keeping. */
#include "closure/fault.h"
#include <stdlib.h>
#include <string.h>

void faults_add(Faults *f, const char *file, uint32_t line, const char *what, const char *remedy)
{
    if (!file || !what || !remedy) {
        f->failed = true;
        return;
    }
    for (size_t i = 0; i < f->len; i++)
        if (f->items[i].line == line && !strcmp(f->items[i].file, file) && !strcmp(f->items[i].what, what))
            return;
    if (f->len == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 16;
        Fault *items = ARENA_ARRAY(f->arena, Fault, cap);
        if (!items) {
            f->failed = true;
            return;
        }
        if (f->len)
            memcpy(items, f->items, f->len * sizeof *items);
        f->items = items;
        f->cap = cap;
    }
    f->items[f->len++] = (Fault){file, line, what, remedy};
}

static int fault_order(const void *pa, const void *pb)
{
    const Fault *a = pa, *b = pb;
    int c = strcmp(a->file, b->file);
    if (c)
        return c;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return strcmp(a->what, b->what);
}

void faults_sort(Faults *f)
{
    if (f->len > 1)
        qsort(f->items, f->len, sizeof *f->items, fault_order);
}
