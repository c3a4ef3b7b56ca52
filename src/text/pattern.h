/* pattern.h - a compiled regular expression (PCRE2, UTF and UCP, JIT where there is one) with bounded matching.
 * Owns: the compiled code. Thread: a Pattern is immutable; every thread needs its own PatternScratch. */
#ifndef METRALE_TEXT_PATTERN_H
#define METRALE_TEXT_PATTERN_H
#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

typedef struct Pattern Pattern;
typedef struct PatternScratch PatternScratch;

/* literal: the text stands for itself. `where` names the place in the message. ST_FORMAT when it does not compile. */
Status pattern_new(Pattern **out, const char *text, size_t len, bool literal, const char *where, Err *err);
void pattern_free(Pattern *p); /* NULL is fine */

PatternScratch *pattern_scratch_new(void); /* NULL when out of memory */
void pattern_scratch_free(PatternScratch *s);

/* The first match in s[from..len) (valid UTF-8; look-behind sees s[0..from)). *found false when there is none. An empty
 * match is reported with start == end. ST_INVALID when matching takes more than its limit of steps or memory. */
Status pattern_next(const Pattern *p, PatternScratch *scratch, const char *s, size_t len, size_t from, bool *found,
                    size_t *start, size_t *end, Err *err);
#endif
