/* json_write.c - see json_write.h. */
#include "server/json_write.h"
#include "core/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_write_string(Str *out, const char *s, size_t len)
{
    size_t from = 0, i = 0; /* s[from..i) needs no escape and is not out yet */

    str_addc(out, '"');
    while (i < len) {
        unsigned char c = (unsigned char)s[i];
        uint32_t cp;
        int n = c < 0x80 ? 1 : utf8_decode(s + i, len - i, &cp);

        if (n > 0 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            i += (size_t)n;
            continue;
        }
        str_add(out, s + from, i - from);
        if (n <= 0)
            str_adds(out, "\xef\xbf\xbd");
        else if (c == '"' || c == '\\')
            str_addf(out, "\\%c", c);
        else if (c == '\n')
            str_adds(out, "\\n");
        else if (c == '\t')
            str_adds(out, "\\t");
        else if (c == '\r')
            str_adds(out, "\\r");
        else
            str_addf(out, "\\u%04x", c);
        from = ++i;
    }
    str_add(out, s + from, len - from);
    str_addc(out, '"');
}

void json_write_text(Str *out, const char *s)
{
    if (s)
        json_write_string(out, s, strlen(s));
    else
        str_adds(out, "null");
}

void json_write_float(Str *out, float v)
{
    char text[32];

    if (!(v > -9999.0f))
        v = -9999.0f; /* also NaN */
    if (v > 9999.0f)
        v = 9999.0f;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v)
            break;
    }
    str_adds(out, text);
}

void json_write_bytes(Str *out, const char *s, size_t len)
{
    str_addc(out, '[');
    for (size_t i = 0; i < len; i++)
        str_addf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)s[i]);
    str_addc(out, ']');
}
