/* spans.h - which bytes of a text came from a user.
 * Owns: the array of ranges. Thread: none of its own.
 *
 * A rendered prompt is template text with values put in. Only template text may spell a control token, so the
 * renderer reports the byte ranges that came from request values and the tokenizer refuses control tokens there. */
#ifndef METRALE_TEXT_SPANS_H
#define METRALE_TEXT_SPANS_H
#include <stdbool.h>
#include <stddef.h>

typedef struct TextSpan {
    size_t start, end; /* bytes, end exclusive */
} TextSpan;

/* Ascending and disjoint. */
typedef struct TextSpans {
    TextSpan *span;
    size_t n, cap;
} TextSpans;
#define TEXT_SPANS_INIT ((TextSpans){0})

/* Appends a range that starts at or behind the last one's end; neighbours that touch become one. Empty ranges are
 * dropped. False when out of memory. */
bool text_spans_add(TextSpans *s, size_t start, size_t end);
void text_spans_release(TextSpans *s);

/* True when [start, end) shares a byte with a range of s. *hint remembers where the last question ended up, so that
 * rising questions cost O(1) each; start it at 0. */
bool text_spans_touch(const TextSpans *s, size_t start, size_t end, size_t *hint);
#endif
