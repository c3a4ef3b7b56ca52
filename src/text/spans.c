/* spans.c - ascending byte ranges. Invariant: ranges are non-empty, sorted, and never touch each other. */
#include "text/spans.h"

#include <stdint.h>
#include <stdlib.h>

bool text_spans_add(TextSpans *s, size_t start, size_t end)
{
    if (start >= end)
        return true;
    if (s->n && s->span[s->n - 1].end == start) {
        s->span[s->n - 1].end = end;
        return true;
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        TextSpan *p = cap <= SIZE_MAX / sizeof *p ? realloc(s->span, cap * sizeof *p) : NULL;
        if (!p)
            return false;
        s->span = p;
        s->cap = cap;
    }
    s->span[s->n++] = (TextSpan){start, end};
    return true;
}

void text_spans_release(TextSpans *s)
{
    free(s->span);
    *s = TEXT_SPANS_INIT;
}

bool text_spans_touch(const TextSpans *s, size_t start, size_t end, size_t *hint)
{
    size_t i = *hint;
    while (i > 0 && s->span[i - 1].end > start)
        i--;
    while (i < s->n && s->span[i].end <= start)
        i++;
    *hint = i;
    return i < s->n && s->span[i].start < end;
}
