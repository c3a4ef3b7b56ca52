/* str.c - amortized growth by doubling; one place that can fail (str_room), one flag that remembers it. */
#include "core/str.h"
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STR_FIRST_BYTES ((size_t)64)

/* Makes room for extra bytes and the NUL behind them. */
static bool str_room(Str *s, size_t extra)
{
    size_t need, cap;
    char *p;

    if (s->failed)
        return false;
    if (extra >= SIZE_MAX - s->len)
        goto fail;
    need = s->len + extra + 1;
    if (need <= s->cap)
        return true;
    cap = s->cap > SIZE_MAX / 2 ? SIZE_MAX : s->cap * 2;
    if (cap < STR_FIRST_BYTES)
        cap = STR_FIRST_BYTES;
    if (cap < need)
        cap = need;
    p = realloc(s->p, cap);
    if (p == NULL)
        goto fail;
    s->p = p;
    s->cap = cap;
    return true;
fail:
    s->failed = true;
    return false;
}

void str_release(Str *s)
{
    free(s->p);
    *s = STR_INIT;
}

void str_clear(Str *s)
{
    s->len = 0;
    s->failed = false;
    if (s->p != NULL)
        s->p[0] = '\0';
}

void str_add(Str *s, const void *bytes, size_t len)
{
    if (!str_room(s, len))
        return;
    if (len > 0)
        memcpy(s->p + s->len, bytes, len);
    s->len += len;
    s->p[s->len] = '\0';
}

void str_adds(Str *s, const char *text)
{
    str_add(s, text, strlen(text));
}

void str_addc(Str *s, char c)
{
    str_add(s, &c, 1);
}

void str_addf(Str *s, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        s->failed = true;
        return;
    }
    if (!str_room(s, (size_t)n))
        return;
    va_start(ap, fmt);
    vsnprintf(s->p + s->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    s->len += (size_t)n;
}

const char *str_c(const Str *s)
{
    return s->p != NULL ? s->p : "";
}

bool str_ok(const Str *s)
{
    return !s->failed;
}

char *str_take(Str *s)
{
    char *p = NULL;

    if (str_room(s, 0)) { /* an empty string gets its memory here */
        s->p[s->len] = '\0';
        p = s->p;
        s->p = NULL;
    }
    str_release(s);
    return p;
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);

    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}
