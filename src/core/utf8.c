/* utf8.c - one strict decoder (RFC 3629, section 4), everything else on top of it.
 *
 * The lead byte fixes the length and the allowed range of the second byte; that range is what keeps out overlong
 * forms (E0, F0), surrogates (ED) and values above U+10FFFF (F4). All later bytes are 80..BF. Checking the range
 * as soon as the second byte is there lets a stream reject bad input without waiting for the rest. */
#include "core/utf8.h"

int utf8_decode(const char *s, size_t len, uint32_t *cp)
{
    const unsigned char *b = (const unsigned char *)s;
    unsigned lo = 0x80, hi = 0xbf;
    uint32_t c;
    int need;

    if (len == 0)
        return -1;
    c = b[0];
    if (c < 0x80) {
        *cp = c;
        return 1;
    }
    if (c >= 0xc2 && c <= 0xdf) {
        need = 2;
        c &= 0x1f;
    } else if (c >= 0xe0 && c <= 0xef) {
        need = 3;
        lo = c == 0xe0 ? 0xa0 : 0x80;
        hi = c == 0xed ? 0x9f : 0xbf;
        c &= 0x0f;
    } else if (c >= 0xf0 && c <= 0xf4) {
        need = 4;
        lo = c == 0xf0 ? 0x90 : 0x80;
        hi = c == 0xf4 ? 0x8f : 0xbf;
        c &= 0x07;
    } else {
        return 0;
    }
    for (int i = 1; i < need; i++) {
        if ((size_t)i == len)
            return -1;
        if (b[i] < lo || b[i] > hi)
            return 0;
        c = c << 6 | (b[i] & 0x3f);
        lo = 0x80;
        hi = 0xbf;
    }
    *cp = c;
    return need;
}

int utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

bool utf8_valid(const char *s, size_t len)
{
    uint32_t cp;

    while (len > 0) {
        int n = utf8_decode(s, len, &cp);
        if (n <= 0)
            return false;
        s += n;
        len -= (size_t)n;
    }
    return true;
}

size_t utf8_whole(const char *s, size_t len)
{
    uint32_t cp;

    /* A beginning is at most three bytes long; the first lead byte from the end decides. */
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char b = (unsigned char)s[len - back];
        if ((b & 0xc0) == 0x80)
            continue;
        return utf8_decode(s + len - back, back, &cp) == -1 ? len - back : len;
    }
    return len;
}
