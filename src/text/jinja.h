/* jinja.h - the Jinja2 template language, as far as chat templates use it.
 *
 * Owns: the parsed template. Borrows: nothing after parsing; rendering reads the caller's JSON and keeps none of it.
 * Thread: a parsed template is immutable; any number of threads may render it at once.
 *
 * Settings are those of Transformers: trim_blocks and lstrip_blocks on, autoescape off (and `safe` marks nothing),
 * lists and dictionaries cannot be changed in place, one newline at the end of the source is dropped.
 * Tags: for (with loop, else, if, break, continue), if, set (also of a namespace attribute, also as a block), macro,
 * call, filter, with, raw, generation (printed as if absent).
 * Functions: range, dict, namespace, raise_exception, strftime_now. Filters, tests and methods: jinja_filter.c,
 * jinja_test.c, jinja_method.c. Anything else is refused when the template is parsed, with
 * row and column; only an unknown filter or test inside an if waits until it is reached, as in Jinja.
 *
 * Every byte of the output knows whether it came from a variable marked `user`: strings keep that mark through
 * concatenation, slicing, filters and methods. */
#ifndef METRALE_TEXT_JINJA_H
#define METRALE_TEXT_JINJA_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json.h"
#include "core/status.h"
#include "core/str.h"
#include "text/spans.h"

typedef struct Jinja Jinja;

/* `name` is what messages call the template. ST_FORMAT with row and column when it does not parse. */
Status jinja_parse(Jinja **out, const char *source, size_t len, const char *name, Err *err);
void jinja_free(Jinja *t); /* NULL is fine */

typedef struct JinjaVar {
    const char *name;
    const json_t *value; /* NULL: not defined */
    bool user;           /* text in it is the user's */
} JinjaVar;

/* What a rendering may cost before it is stopped. 0: the default. */
typedef struct JinjaLimits {
    uint64_t steps; /* nodes evaluated, and a fraction for each byte handled; default 20 million */
    size_t bytes;   /* memory for values; default 512 MiB */
    size_t output;  /* bytes of text; default 64 MiB */
} JinjaLimits;

typedef struct JinjaEnv {
    const JinjaVar *vars; /* later ones hide earlier ones of the same name */
    size_t n_vars;
    bool has_time;  /* strftime_now exists only then */
    int64_t time_s; /* seconds since 1970 in the wanted time zone */
    JinjaLimits limits;
} JinjaEnv;

/* Appends the text to out, and to user (NULL is fine) the ranges of out that are the user's.
 * ST_INVALID when the template fails on these values or calls raise_exception, whose message then stands in err as it
 * is, after "NAME: row R, column C: ". ST_BUSY when a limit is exceeded. out is unchanged on failure. */
Status jinja_render(const Jinja *t, const JinjaEnv *env, Str *out, TextSpans *user, Err *err);
#endif
