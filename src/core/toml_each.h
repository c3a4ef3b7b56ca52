/* toml_each.h - one table for many: `each` in an array of tables.
 *
 *   [[family]]
 *   each = { f = ["q4_0", "q4_1"], d = ["8 levels below", "a minimum above"] }
 *   id   = "linear_{f}"
 *
 * stands for as many tables as the lists are long (all equally long): in table i every "{name}" in a string or key is element i of the list
 * `name`. Braces that name no list stay. Positions are those of the written table.   Thread: the document's. */
#ifndef METRALE_CORE_TOML_EACH_H
#define METRALE_CORE_TOML_EACH_H
#include "core/toml.h"

/* Expands every table with a key `each` in the arrays of tables directly below the root. ST_FORMAT with file:line for lists that are empty, of different
 * lengths or not of strings. */
Status toml_each(Toml *t, Err *err);
#endif
