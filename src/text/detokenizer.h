/* detokenizer.h - token ids to text, piece by piece; what it gives out is valid UTF-8 at all times.
 * Owns: at most three held bytes. Does not own the tokenizer. Thread: one stream, one thread at a time. */
#ifndef METRALE_TEXT_DETOKENIZER_H
#define METRALE_TEXT_DETOKENIZER_H
#include "core/str.h"
#include "text/tokenizer.h"

typedef struct Detokenizer {
    const Tokenizer *tokenizer;
    bool show_control; /* print control tokens as their text; otherwise they print nothing */
    char held[4];      /* the beginning of a character whose end has not come yet */
    size_t n_held;
} Detokenizer;

void detokenizer_init(Detokenizer *d, const Tokenizer *t, bool show_control);

/* Appends to out the text that is complete with this token. Bytes that can never become a character are U+FFFD, one
 * for each maximal beginning (Unicode, section 3.9). Ids that do not exist print nothing. Check str_ok(out). */
void detokenizer_add(Detokenizer *d, int32_t id, Str *out);

/* The same for raw bytes. */
void detokenizer_add_bytes(Detokenizer *d, const char *bytes, size_t len, Str *out);

/* The end of the stream: a character that was cut becomes one U+FFFD. */
void detokenizer_end(Detokenizer *d, Str *out);

/* The whole text of n ids, without the space that encoding put in front (tokenizer_strips_space). A stream keeps it:
 * what is generated goes on from a prompt. */
void detokenize(const Tokenizer *t, const int32_t *ids, size_t n, bool show_control, Str *out);
#endif
