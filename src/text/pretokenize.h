/* pretokenize.h - cuts text into the words that BPE works on.
 * Owns: the compiled patterns of its steps. Thread: immutable once built; scratch belongs to one call.
 *
 * Steps run one after the other, each on every piece that the steps before it left. */
#ifndef METRALE_TEXT_PRETOKENIZE_H
#define METRALE_TEXT_PRETOKENIZE_H
#include <stdbool.h>
#include <stddef.h>

#include "core/json.h"
#include "core/status.h"
#include "core/str.h"
#include "text/pattern.h"

/* What becomes of a match (the names of the tokenizers library). */
typedef enum {
    SPLIT_ISOLATED,    /* a piece of its own */
    SPLIT_REMOVED,     /* dropped */
    SPLIT_MERGED_PREV, /* joins the text before it */
    SPLIT_MERGED_NEXT, /* joins the text behind it */
    SPLIT_CONTIGUOUS,  /* neighbouring matches become one piece */
} SplitBehaviour;

typedef struct PreStep {
    Pattern *pattern; /* NULL: this step only adds the space */
    SplitBehaviour behaviour;
    bool invert;       /* what the pattern does not match counts as the match */
    bool prefix_space; /* first put a space in front of each piece that begins with none */
} PreStep;

typedef struct PreTokenizer {
    PreStep *step;
    size_t n, cap;
    bool byte_level; /* a ByteLevel step was declared: words are byte strings */
} PreTokenizer;

typedef struct Piece {
    size_t off, len;
} Piece;

/* The pieces of one text. pieces index into text. */
typedef struct PreScratch {
    Str text, text2;
    Piece *piece, *piece2;
    size_t n, n2, cap, cap2;
    PatternScratch *match; /* borrowed */
} PreScratch;
void pre_scratch_release(PreScratch *s);

void pretokenizer_release(PreTokenizer *p);

/* Appends the steps of a tokenizer.json "pre_tokenizer" value. Kinds that are not known here are ST_UNSUPPORTED, by
 * name. */
Status pretokenizer_add_json(PreTokenizer *p, const json_t *spec, Err *err);

/* Appends one step that isolates the matches of a pattern; `where` for messages. */
Status pretokenizer_add_pattern(PreTokenizer *p, const char *pattern, const char *where, Err *err);

/* What a GGUF file's "tokenizer.ggml.pre" name stands for. */
typedef struct PreType {
    bool ignore_merges, add_bos;
} PreType;
/* Appends the steps of that name; ST_UNSUPPORTED for a name that is not in the table (pretypes.def). */
Status pretokenizer_add_pretype(PreTokenizer *p, const char *name, PreType *type, Err *err);

/* Cuts text[0..len) (valid UTF-8). s->piece[0..s->n) then hold the non-empty pieces, in s->text. */
Status pretokenizer_run(const PreTokenizer *p, const char *text, size_t len, PreScratch *s, Err *err);
#endif
