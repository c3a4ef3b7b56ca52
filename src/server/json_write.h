/* json_write.h - JSON text, piece by piece. What comes out is valid UTF-8 whatever goes in.
 * Owns: nothing. Check str_ok(out) once at the end. */
#ifndef METRALE_SERVER_JSON_WRITE_H
#define METRALE_SERVER_JSON_WRITE_H
#include "core/str.h"

/* "..." with escapes; bytes that are no UTF-8 become U+FFFD, one for each. */
void json_write_string(Str *out, const char *s, size_t len);
void json_write_text(Str *out, const char *s); /* NUL-terminated; NULL: null */
/* The shortest form that reads back as the same float; JSON knows no infinities, so beyond +-9999 it is that. */
void json_write_float(Str *out, float v);
/* [1,2,...]: the values of bytes. */
void json_write_bytes(Str *out, const char *s, size_t len);
#endif
