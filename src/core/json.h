/* json.h - jansson with bounded input and errors that name the file, line and column. */
#ifndef METRALE_CORE_JSON_H
#define METRALE_CORE_JSON_H
#include "core/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Parses len bytes as one JSON value with nothing after it but white space. Depth over 512, invalid UTF-8 and
 * duplicate keys are errors (Infinity is read as 1.79e308), and so is "\u0000", which a C string cannot hold. `name` is what the message calls the
 * input. Caller owns *out. */
Status json_parse(const char *text, size_t len, const char *name, json_t **out, Err *err);

/* The value at a dotted path ("a.b.c"; object keys only), or NULL. Borrowed. */
json_t *json_at(const json_t *root, const char *dotted);
#endif
