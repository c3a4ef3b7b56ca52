/* utf8.h - checked UTF-8. Rejects overlong forms, surrogates and values above U+10FFFF (RFC 3629). */
#ifndef METRALE_CORE_UTF8_H
#define METRALE_CORE_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes one character from s[0..len). Returns its length in bytes (1..4), 0 when the bytes are invalid,
 * -1 when they are a valid beginning that needs more bytes. */
int utf8_decode(const char *s, size_t len, uint32_t *cp);
int utf8_encode(uint32_t cp, char out[4]); /* length; cp must be valid */
bool utf8_valid(const char *s, size_t len);
/* Length of the longest prefix that is whole characters, when the rest is a valid beginning of one more; otherwise len.
 */
size_t utf8_whole(const char *s, size_t len);
#endif
