/* stop.h - finds stop strings in text that arrives in pieces.
 * Owns: copies of the stop strings and the text held back. Thread: one stream, one thread at a time.
 *
 * The stop whose last byte comes first wins; of several that end there, the longest. So the answer does not depend on
 * how the text was cut into pieces. Text that may be the beginning of a stop is held back until that is decided. */
#ifndef METRALE_TEXT_STOP_H
#define METRALE_TEXT_STOP_H
#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"
#include "core/str.h"

typedef struct StopMatcher StopMatcher;

enum { STOP_MAX_STRINGS = 64, STOP_MAX_BYTES = 64 << 10 /* of all together */ };

/* stops: n NUL-terminated UTF-8 texts. ST_INVALID for an empty one, or too many. n == 0 is fine: nothing stops. */
Status stop_new(StopMatcher **out, const char *const *stops, size_t n, Err *err);
void stop_free(StopMatcher *s); /* NULL is fine */

/* Takes the next piece of text (whole characters) and appends to out what may be shown. True when a stop is complete:
 * the stop and everything behind it is dropped, and later calls append nothing. Check str_ok(out). */
bool stop_add(StopMatcher *s, const char *text, size_t len, Str *out);

/* The end of the stream: appends what was held back, unless a stop was found. */
void stop_end(StopMatcher *s, Str *out);

/* The stop that was found, or NULL. Borrowed from s. */
const char *stop_found(const StopMatcher *s);
#endif
