/* detokenizer.c - joins the bytes of tokens into whole characters.
 *
 * Invariant: held is a valid beginning of one character, or empty. */
#include "text/detokenizer.h"

#include <string.h>

#include "core/utf8.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

void detokenizer_init(Detokenizer *d, const Tokenizer *t, bool show_control)
{
    *d = (Detokenizer){.tokenizer = t, .show_control = show_control};
}

/* How many bytes from s on are a beginning of some character, given that the character itself is broken. */
static size_t broken_len(const char *s, size_t len)
{
    uint32_t cp;
    size_t n = 1;
    if (utf8_decode(s, 1, &cp) != -1)
        return 1;
    while (n + 1 < len && utf8_decode(s, n + 1, &cp) == -1)
        n++;
    return n;
}

/* Prints what is decided of s[0..len) and returns how many bytes that took. */
static size_t print_whole(const char *s, size_t len, Str *out)
{
    size_t i = 0;
    while (i < len) {
        uint32_t cp;
        int n = utf8_decode(s + i, len - i, &cp);
        if (n == -1)
            break;
        if (n > 0) {
            str_add(out, s + i, (size_t)n);
            i += (size_t)n;
        } else {
            str_adds(out, REPLACEMENT);
            i += broken_len(s + i, len - i);
        }
    }
    return i;
}

void detokenizer_add_bytes(Detokenizer *d, const char *bytes, size_t len, Str *out)
{
    /* While something is held, complete it byte by byte; it takes at most three more. */
    while (d->n_held && len) {
        d->held[d->n_held++] = *bytes++;
        len--;
        size_t used = print_whole(d->held, d->n_held, out);
        d->n_held -= used;
        memmove(d->held, d->held + used, d->n_held);
    }
    size_t used = print_whole(bytes, len, out);
    memcpy(d->held + d->n_held, bytes + used, len - used);
    d->n_held += len - used;
}

void detokenizer_add(Detokenizer *d, int32_t id, Str *out)
{
    size_t len;
    const char *bytes = tokenizer_token(d->tokenizer, id, &len);
    if (bytes && (d->show_control || !tokenizer_is_control(d->tokenizer, id)))
        detokenizer_add_bytes(d, bytes, len, out);
}

void detokenizer_end(Detokenizer *d, Str *out)
{
    if (d->n_held)
        str_adds(out, REPLACEMENT);
    d->n_held = 0;
}

void detokenize(const Tokenizer *t, const int32_t *ids, size_t n, bool show_control, Str *out)
{
    Detokenizer d;
    size_t start = out->len;
    detokenizer_init(&d, t, show_control);
    for (size_t i = 0; i < n; i++)
        detokenizer_add(&d, ids[i], out);
    detokenizer_end(&d, out);
    if (tokenizer_strips_space(t) && str_ok(out) && out->len > start && out->p[start] == ' ') {
        out->len--;
        memmove(out->p + start, out->p + start + 1, out->len - start + 1); /* with the NUL behind the text */
    }
}
