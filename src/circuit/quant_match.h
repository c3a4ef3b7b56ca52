/* quant_match.h - does a module's name match one entry of a quantiser's list of modules? Lists come from configurations
 * that other programs wrote, hence three spellings: a name or a part of one, a name with *, and re: with a pattern.
 * Pure; no entry can make it slow. */
#ifndef METRALE_CIRCUIT_QUANT_MATCH_H
#define METRALE_CIRCUIT_QUANT_MATCH_H
#include "core/status.h"
#include <stdbool.h>

enum { MODULE_NAME_MAX = 400 }; /* longer names match nothing */

/* Whole components of the name, from anywhere: "mlp.gate" matches "model.layers.0.mlp.gate" and what is below it, but not
 * "model.layers.0.mlp.gate_proj"; * stands for any text. "re:PATTERN" matches from the start of the name, as Python's
 * re.match does. */
bool quant_match(const char *entry, const char *module);
/* A re: pattern may have . \. \d \w \s [abc] [^a-z] (a|b) (?:a) ^ $ * + ? and {m}; others are refused by name. */
Status quant_match_check(const char *entry, Err *err);
#endif
