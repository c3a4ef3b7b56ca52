/* stop.c - one Knuth-Morris-Pratt automaton a stop string, all fed byte by byte.
 *
 * Invariant: matched[k] is the length of the longest beginning of stop k that the text so far ends with; held is the
 * end of the text as long as the largest of them, and all text before it has been given out. */
#include "text/stop.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct StopString {
    char *text;     /* owned */
    uint32_t *back; /* back[i]: the longest proper border of text[0..i]; owned */
    size_t len, matched;
} StopString;

struct StopMatcher {
    StopString *stop;
    size_t n;
    Str held;
    const char *found;
};

static Status stop_string_init(StopString *s, const char *text, Err *err)
{
    s->len = strlen(text);
    s->text = malloc(s->len + 1);
    s->back = calloc(s->len + 1, sizeof *s->back);
    if (!s->text || !s->back)
        return err_set(err, ST_NOMEM, "out of memory for the stop strings");
    memcpy(s->text, text, s->len + 1);
    for (size_t i = 1, k = 0; i < s->len; i++) {
        while (k && text[i] != text[k])
            k = s->back[k - 1];
        k += text[i] == text[k];
        s->back[i] = (uint32_t)k;
    }
    return ST_OK;
}

Status stop_new(StopMatcher **out, const char *const *stops, size_t n, Err *err)
{
    Status st = ST_OK;
    StopMatcher *s = NULL;
    size_t total = 0;

    *out = NULL;
    if (n > STOP_MAX_STRINGS)
        return err_set(err, ST_INVALID, "stop: %zu strings; at most %d are possible", n, STOP_MAX_STRINGS);
    s = calloc(1, sizeof *s);
    if (s)
        s->stop = calloc(n + 1, sizeof *s->stop);
    if (!s || !s->stop)
        TRY(err_set(err, ST_NOMEM, "out of memory for the stop strings"));
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        if (!*stops[i])
            TRY(err_set(err, ST_INVALID, "stop: string %zu is empty, which would stop at once; leave it out", i));
        total += strlen(stops[i]);
        if (total > STOP_MAX_BYTES)
            TRY(err_set(err, ST_INVALID, "stop: the strings have over %d bytes together", STOP_MAX_BYTES));
        TRY(stop_string_init(&s->stop[i], stops[i], err));
    }
    *out = s;
    s = NULL;
done:
    stop_free(s);
    return st;
}

void stop_free(StopMatcher *s)
{
    if (!s)
        return;
    for (size_t i = 0; s->stop && i < s->n; i++) {
        free(s->stop[i].text);
        free(s->stop[i].back);
    }
    free(s->stop);
    str_release(&s->held);
    free(s);
}

/* Feeds one byte. Returns the longest stop that ends with it, or NULL; *open is the length that must stay held. */
static const StopString *feed(StopMatcher *s, char c, size_t *open)
{
    const StopString *done = NULL;
    *open = 0;
    for (size_t i = 0; i < s->n; i++) {
        StopString *p = &s->stop[i];
        while (p->matched && p->text[p->matched] != c)
            p->matched = p->back[p->matched - 1];
        p->matched += p->text[p->matched] == c;
        if (p->matched == p->len && (!done || p->len > done->len))
            done = p;
        if (p->matched > *open)
            *open = p->matched;
    }
    return done;
}

bool stop_add(StopMatcher *s, const char *text, size_t len, Str *out)
{
    if (s->found)
        return true;
    size_t given = 0; /* bytes of held that are out already */
    for (size_t i = 0; i < len; i++) {
        size_t open;
        str_addc(&s->held, text[i]);
        const StopString *done = feed(s, text[i], &open);
        if (!str_ok(&s->held)) {
            out->failed = true; /* the one way to say so; the caller checks out */
            return false;
        }
        size_t keep = done ? done->len : open;
        size_t safe = s->held.len - keep;
        if (safe > given) {
            str_add(out, s->held.p + given, safe - given);
            given = safe;
        }
        if (done) {
            s->found = done->text;
            str_clear(&s->held);
            return true;
        }
    }
    if (given) {
        memmove(s->held.p, s->held.p + given, s->held.len - given + 1);
        s->held.len -= given;
    }
    return false;
}

void stop_end(StopMatcher *s, Str *out)
{
    if (!s->found)
        str_add(out, s->held.p, s->held.len);
    str_clear(&s->held);
}

const char *stop_found(const StopMatcher *s)
{
    return s->found;
}
