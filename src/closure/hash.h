/* hash.h - one number for everything that a target is made of. Thread: any. */
#ifndef METRALE_CLOSURE_HASH_H
#define METRALE_CLOSURE_HASH_H
#include "closure/layout.h"

/* Over the names and contents of all files of the target's layers, hidden ones too, and of all tables that it reads:
 * HARDWARE.toml (its own and its parent's), MODEL.toml, KERNEL.toml, FAMILIES.toml, RULES.toml. Paths do not count, so
 * that moving a tree changes nothing. ST_NOMEM is the only failure. */
Status target_hash(const Tree *tree, const TreeTarget *t, Hash128 *out, Err *err);
#endif
