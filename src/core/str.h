/* str.h - a growing byte string. Always NUL-terminated behind len; may hold NUL bytes inside.
 * A failed growth is sticky: later appends do nothing and str_ok() is false, so that a writer checks once. */
#ifndef METRALE_CORE_STR_H
#define METRALE_CORE_STR_H
#include <stdbool.h>
#include <stddef.h>

typedef struct Str {
    char *p; /* never NULL after the first append that succeeds; use str_c() to read */
    size_t len, cap;
    bool failed;
} Str;
#define STR_INIT ((Str){0})

void str_release(Str *s);
void str_clear(Str *s); /* empty and ok again; keeps the memory */
void str_add(Str *s, const void *bytes, size_t len);
void str_adds(Str *s, const char *text);
void str_addc(Str *s, char c);
void str_addf(Str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *str_c(const Str *s); /* "" when empty */
bool str_ok(const Str *s);
char *str_take(Str *s); /* malloc'd text moves to the caller; NULL when failed */

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
#endif
