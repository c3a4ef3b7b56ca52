/* tokenizer.h - BPE, byte-level or SentencePiece: UTF-8 text to token ids, and ids back to bytes.
 *
 * Owns: the vocabulary, the merge table, the added-token trie and the compiled patterns.
 * Does not own: files. It is built from parsed JSON, either GGUF metadata or a Hugging Face tokenizer.json.
 * Thread: immutable once loaded (after the last tokenizer_add_end_ids); any number of threads may encode at once.
 *
 * How text becomes ids (the order is the one of the Hugging Face `tokenizers` library):
 *   1. added tokens that are matched before normalisation cut the text; the rest is normalised;
 *   2. added tokens that are matched after normalisation cut what is left;
 *   3. each piece between them goes through the pre-tokeniser steps and every resulting word through BPE (SentencePiece
 *      has one word a piece, as a rule; the space that it puts in front comes from the normalisation).
 * A *control token* (`special` in tokenizer.json, type control or unknown in GGUF) is matched only in text that the
 * caller trusts; no merge and no vocabulary look-up can produce one. Other added tokens are matched everywhere. */
#ifndef METRALE_TEXT_TOKENIZER_H
#define METRALE_TEXT_TOKENIZER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json.h"
#include "core/status.h"
#include "text/spans.h"

typedef struct Tokenizer Tokenizer;

/* A growing list of token ids in caller storage. */
typedef struct TokenList {
    int32_t *id;
    size_t n, cap;
} TokenList;
#define TOKEN_LIST_INIT ((TokenList){0})
void token_list_release(TokenList *l);
bool token_list_add(TokenList *l, int32_t id); /* false when out of memory; the list is then unchanged */

enum tokenizer_flags {
    TOK_PARSE_SPECIAL = 1, /* spellings of control tokens become control tokens */
    TOK_ADD_BOS = 2,       /* begin with BOS where the model wants one (tokenizer_adds_bos) and the text has none yet */
};

/* meta: an object with the GGUF keys as they are ("tokenizer.ggml.tokens": [...], ...). Arrays are JSON arrays.
 * ST_FORMAT for broken data, ST_UNSUPPORTED for another algorithm; the message names the key. Borrows nothing. */
Status tokenizer_from_gguf(Tokenizer **out, const json_t *meta, Err *err);

/* tokenizer_json: the parsed file; tokenizer_config: the parsed tokenizer_config.json, or NULL. */
Status tokenizer_from_hf(Tokenizer **out, const json_t *tokenizer_json, const json_t *tokenizer_config, Err *err);
void tokenizer_free(Tokenizer *t); /* NULL is fine */

/* Adds end-of-generation ids: eos_token_id of config.json or generation_config.json, an integer or a list of them
 * (NULL and null add none). `source` names the file in the message. Call before the tokenizer is shared. */
Status tokenizer_add_end_ids(Tokenizer *t, const json_t *eos_token_id, const char *source, Err *err);

/* Appends the ids of text[0..len) to out, which keeps what it already holds also on failure.
 * A byte that has no token becomes the unknown token, or nothing when the model has none.
 * TOK_ADD_BOS never yields two: with TOK_PARSE_SPECIAL, text that already begins with the spelling of BOS keeps
 * that one alone. ST_INVALID when the text is not UTF-8, is over 1 GiB, or a pattern exceeds its match limit. */
Status tokenizer_encode(const Tokenizer *t, const char *text, size_t len, unsigned flags, TokenList *out, Err *err);

/* Like tokenizer_encode with TOK_PARSE_SPECIAL, but no control token may share a byte with the ranges in user. */
Status tokenizer_encode_spans(const Tokenizer *t, const char *text, size_t len, const TextSpans *user, unsigned flags,
                              TokenList *out, Err *err);

/* The bytes that the token stands for; for added tokens their text. NULL and length 0 for an id that does not
 * exist. Not NUL-terminated. One token may hold part of a UTF-8 character. */
const char *tokenizer_token(const Tokenizer *t, int32_t id, size_t *len);
/* The id of an added token or of a plain token with exactly these bytes; -1 when there is none. */
int32_t tokenizer_find(const Tokenizer *t, const char *bytes, size_t len);

size_t tokenizer_vocab_size(const Tokenizer *t); /* one above the highest id; ids between may be missing */
int32_t tokenizer_bos(const Tokenizer *t);       /* -1: none */
int32_t tokenizer_eos(const Tokenizer *t);       /* the main end token, for templates; -1: none */
const int32_t *tokenizer_end_ids(const Tokenizer *t, size_t *n); /* every id that ends a generation */
bool tokenizer_is_end(const Tokenizer *t, int32_t id);
bool tokenizer_adds_bos(const Tokenizer *t);
/* True when encoding puts a space in front of the text, which decoding a whole text takes off again. */
bool tokenizer_strips_space(const Tokenizer *t);
bool tokenizer_is_control(const Tokenizer *t, int32_t id); /* true also for ids that do not exist */
#endif
