/* fault.h - what is wrong with a kernel tree, collected rather than stopped at.
 *
 * A fault names a file, a line, what is wrong there and what to do about it; it prints as `file:line: what: remedy`.
 * Owns: nothing; all memory comes from the arena given at the start.   Thread: none of its own. */
#ifndef METRALE_CLOSURE_FAULT_H
#define METRALE_CLOSURE_FAULT_H
#include "core/arena.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Fault {
    const char *file; /* from the tree's root */
    uint32_t line;    /* 1-based; 1 where the whole file is meant */
    const char *what, *remedy;
} Fault;

typedef struct Faults {
    Arena *arena; /* borrowed */
    Fault *items;
    size_t len, cap;
    bool failed; /* memory ran out: the list is not complete */
} Faults;

/* Adds a fault unless the same one is there already. Text that is NULL (a failed arena_printf) sets `failed`. */
void faults_add(Faults *f, const char *file, uint32_t line, const char *what, const char *remedy);
/* By file, then line, then text. */
void faults_sort(Faults *f);
#endif
