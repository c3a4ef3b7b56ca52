/* tokenizer_spm.c - SentencePiece BPE: words of characters, a visible sign for the space, bytes as the last resort.
 *
 * It differs from byte-level BPE in three ways. A word starts as one symbol a character. The vocabulary writes a space
 * as U+2581; tokens and words are kept here with the space that it stands for, so decoding needs no step of its own
 * (and U+2581 in a text is a space, as it is for SentencePiece). A character that no merge brought into the vocabulary
 * becomes the tokens of its UTF-8 bytes, spelled <0x00> to <0xFF>.
 *
 * What merges first is either said by a list of merges (tokenizer.json), or by scores (GGUF): then every neighbouring
 * pair whose bytes together are a token may merge, the one with the highest score first, the leftmost among equals.
 * Source: the SentencePiece paper (Kudo and Richardson, 2018), its model format, and the GGUF specification.
 *
 * A symbol is named by the offset of its first byte; next[] gives the symbol behind it and so its end. Invariant, as in
 * tokenizer_bpe.c: rank[i] is the rank of the pair that begins at symbol i now, or NO_RANK. Two pairs may have one rank
 * here, so an entry of the heap may be answered by a younger pair of the same rank and place: it would come next. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "text/tokenizer_internal.h"

#define SPACE_SIGN "\xe2\x96\x81" /* U+2581 */
enum { SPACE_SIGN_LEN = 3 };
#define NO_POS  UINT32_MAX
#define NO_RANK UINT32_MAX

/* --- tokens ----------------------------------------------------------------------------------------------------- */

void spm_add_spaced(Str *out, const char *text, size_t len)
{
    size_t done = 0;
    for (size_t i = 0; i + SPACE_SIGN_LEN <= len;) {
        const char *hit = memchr(text + i, SPACE_SIGN[0], len - i);
        if (!hit)
            break;
        i = (size_t)(hit - text);
        if (i + SPACE_SIGN_LEN > len || memcmp(hit, SPACE_SIGN, SPACE_SIGN_LEN) != 0) {
            i++;
            continue;
        }
        str_add(out, text + done, i - done);
        str_addc(out, ' ');
        done = i += SPACE_SIGN_LEN;
    }
    str_add(out, text + done, len - done);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int spm_byte(const char *text, size_t len)
{
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Status spm_read_scores(Tokenizer *t, const json_t *scores, Err *err)
{
    if (!json_is_array(scores) || json_array_size(scores) != t->n_tokens)
        return err_set(err, ST_FORMAT, "tokenizer.ggml.scores: must be a list of %zu numbers, one a token",
                       t->n_tokens);
    t->rank = malloc(t->n_tokens * sizeof *t->rank);
    if (!t->rank)
        return err_set(err, ST_NOMEM, "out of memory while loading the tokenizer");
    for (size_t i = 0; i < t->n_tokens; i++) {
        const json_t *v = json_array_get(scores, i);
        float score = (float)json_number_value(v);
        uint32_t bits;
        if (!json_is_number(v) || !isfinite(score))
            return err_set(err, ST_FORMAT, "tokenizer.ggml.scores: entry %zu is not a finite number", i);
        score += 0.0f; /* one zero, not two */
        memcpy(&bits, &score, sizeof bits);
        /* The bits of floats rise with their value once the sign is undone; a rank falls with it. */
        t->rank[i] = bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
    }
    return ST_OK;
}

/* --- tokenizer.json --------------------------------------------------------------------------------------------- */

/* How the space is put in front of a text: by the decoder's or the pre-tokeniser's Metaspace. Files from before
 * prepend_scheme say add_prefix_space. */
static const char *metaspace_scheme(const json_t *spec)
{
    const json_t *scheme = json_object_get(spec, "prepend_scheme");
    if (json_is_string(scheme))
        return json_string_value(scheme);
    return json_is_false(json_object_get(spec, "add_prefix_space")) ? "never" : "always";
}

/* The two halves of Metaspace as normaliser steps: spaces become the sign, and a text that does not begin with one
 * gets one. */
static Status add_metaspace_steps(Normalizer *nz, bool prepend, Err *err)
{
    Status st = ST_OK;
    json_t *replace =
               json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ", "content", SPACE_SIGN),
           *front = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "Regex", "\\A(?!" SPACE_SIGN ")",
                              "content", SPACE_SIGN);
    if (!replace || !front)
        TRY(err_set(err, ST_NOMEM, "out of memory while loading the tokenizer"));
    TRY(normalizer_add_json(nz, replace, err));
    if (prepend)
        TRY(normalizer_add_json(nz, front, err));
done:
    json_decref(replace);
    json_decref(front);
    return st;
}

static Status read_metaspace(Tokenizer *t, const json_t *spec, const json_t *normalizer, Err *err)
{
    Status st = ST_OK;
    const json_t *sign = json_object_get(spec, "replacement");
    const char *scheme = metaspace_scheme(spec);
    json_t *split = NULL;
    bool always = strcmp(scheme, "always") == 0, first = strcmp(scheme, "first") == 0;

    if (json_is_string(sign) && strcmp(json_string_value(sign), SPACE_SIGN) != 0)
        TRY(err_set(err, ST_UNSUPPORTED, "tokenizer.json: pre_tokenizer: Metaspace with another sign than U+2581"));
    if (!always && !first && strcmp(scheme, "never") != 0)
        TRY(err_set(err, ST_UNSUPPORTED, "tokenizer.json: pre_tokenizer: prepend_scheme \"%.40s\" is not supported",
                    scheme));
    TRY(add_metaspace_steps(&t->normalizer, always, err));
    if (first) {
        if (normalizer && !json_is_null(normalizer))
            TRY(normalizer_add_json(&t->at_start, normalizer, err));
        TRY(add_metaspace_steps(&t->at_start, true, err));
    }
    if (!json_is_false(json_object_get(spec, "split"))) {
        split = json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern", "String", SPACE_SIGN, "behavior",
                          "MergedWithNext");
        if (!split)
            TRY(err_set(err, ST_NOMEM, "out of memory while loading the tokenizer"));
        TRY(pretokenizer_add_json(&t->pre, split, err));
    }
done:
    json_decref(split);
    return st;
}

/* True when decoding a whole text takes one space off its front. */
static bool decoder_strips(const json_t *spec)
{
    const json_t *type = json_object_get(spec, "type"), *v;
    size_t i;
    if (!json_is_string(type))
        return false;
    if (strcmp(json_string_value(type), "Metaspace") == 0)
        return strcmp(metaspace_scheme(spec), "never") != 0;
    if (strcmp(json_string_value(type), "Strip") == 0)
        return json_integer_value(json_object_get(spec, "start")) > 0;
    json_array_foreach(json_object_get(spec, "decoders"), i, v)
    {
        const json_t *inner = json_object_get(v, "type");
        bool is_list = json_is_string(inner) && strcmp(json_string_value(inner), "Sequence") == 0;
        if (!is_list && decoder_strips(v)) /* lists in lists are not written by anyone */
            return true;
    }
    return false;
}

Status spm_read_json(Tokenizer *t, const json_t *root, Err *err)
{
    const json_t *pre = json_object_get(root, "pre_tokenizer"), *type = json_object_get(pre, "type");
    t->fuse_unk = json_is_true(json_object_get(json_object_get(root, "model"), "fuse_unk"));
    t->strips_space = decoder_strips(json_object_get(root, "decoder"));
    if (!pre || json_is_null(pre))
        return ST_OK;
    if (json_is_string(type) && strcmp(json_string_value(type), "Metaspace") == 0)
        return read_metaspace(t, pre, json_object_get(root, "normalizer"), err);
    return pretokenizer_add_json(&t->pre, pre, err);
}

/* --- one word --------------------------------------------------------------------------------------------------- */

/* A plain token with these bytes that text may become; -1: none. */
static int32_t find_piece(const Tokenizer *t, const char *bytes, size_t len)
{
    int32_t id = len <= t->longest ? vocab_find(t, bytes, len) : -1;
    return id >= 0 && t->token[id].kind != TOKEN_CONTROL ? id : -1;
}

/* One word in the scratch. */
typedef struct Word {
    const Tokenizer *t;
    BpeScratch *s;
    const char *text;
    size_t len;
} Word;

static size_t symbol_end(const Word *w, uint32_t pos)
{
    return w->s->next[pos] == NO_POS ? w->len : w->s->next[pos];
}

/* What the symbols at pos and right, its neighbour, merge to: the id, or -1; and the rank of that merge. */
static int32_t pair_merge(const Word *w, uint32_t pos, uint32_t right, uint32_t *rank)
{
    const Tokenizer *t = w->t;
    uint64_t merge;
    if (t->rank) {
        int32_t id = find_piece(t, w->text + pos, symbol_end(w, right) - pos);
        *rank = id >= 0 ? t->rank[id] : NO_RANK;
        return id;
    }
    if (w->s->id[pos] < 0 || w->s->id[right] < 0 ||
        !idmap_get(&t->merges, pair_key(w->s->id[pos], w->s->id[right]), &merge))
        return -1;
    *rank = (uint32_t)(merge >> 32);
    return (int32_t)(uint32_t)merge;
}

static void queue_pair(const Word *w, uint32_t pos)
{
    BpeScratch *s = w->s;
    uint32_t right = s->next[pos], rank;
    s->rank[pos] = NO_RANK;
    if (right == NO_POS || pair_merge(w, pos, right, &rank) < 0)
        return;
    s->rank[pos] = rank;
    bpe_heap_push(s, (uint64_t)rank << 32 | pos);
}

static void symbols_init(const Word *w)
{
    BpeScratch *s = w->s;
    uint32_t before = NO_POS;
    for (size_t i = 0; i < w->len;) {
        uint32_t cp, pos = (uint32_t)i;
        int n = utf8_decode(w->text + i, w->len - i, &cp);
        i += n > 0 ? (size_t)n : 1;
        s->id[pos] = find_piece(w->t, w->text + pos, i - pos);
        s->prev[pos] = before;
        s->next[pos] = i < w->len ? (uint32_t)i : NO_POS;
        before = pos;
    }
}

/* A character without a token: its bytes if all of them have one, or else the unknown token if there is one. */
static bool add_unknown(const Word *w, uint32_t pos, bool *in_unknown, TokenList *out)
{
    const Tokenizer *t = w->t;
    size_t end = symbol_end(w, pos), i = pos;
    while (i < end && t->byte_id[(unsigned char)w->text[i]] >= 0)
        i++;
    if (i < end) {
        bool skip = t->unk < 0 || (*in_unknown && t->fuse_unk);
        *in_unknown = true;
        return skip || token_list_add(out, t->unk);
    }
    *in_unknown = false;
    for (i = pos; i < end; i++)
        if (!token_list_add(out, t->byte_id[(unsigned char)w->text[i]]))
            return false;
    return true;
}

static bool add_symbols(const Word *w, TokenList *out)
{
    bool in_unknown = false;
    for (uint32_t pos = 0; pos != NO_POS; pos = w->s->next[pos]) {
        if (w->s->id[pos] < 0) {
            if (!add_unknown(w, pos, &in_unknown, out))
                return false;
            continue;
        }
        in_unknown = false;
        if (!token_list_add(out, w->s->id[pos]))
            return false;
    }
    return true;
}

Status spm_word(const Tokenizer *t, const char *word, size_t len, BpeScratch *s, TokenList *out, Err *err)
{
    str_clear(&s->text);
    spm_add_spaced(&s->text, word, len);
    Word w = {.t = t, .s = s, .text = str_c(&s->text), .len = s->text.len};
    if (!str_ok(&s->text) || !bpe_scratch_reserve(s, w.len))
        return err_set(err, ST_NOMEM, "out of memory while encoding text");
    int32_t whole = t->ignore_merges ? find_piece(t, w.text, w.len) : -1;
    if (whole >= 0)
        return token_list_add(out, whole) ? ST_OK : err_set(err, ST_NOMEM, "out of memory while encoding text");

    symbols_init(&w);
    s->n_heap = 0;
    for (uint32_t pos = 0; pos != NO_POS; pos = s->next[pos])
        queue_pair(&w, pos);
    while (s->n_heap) {
        uint64_t entry = bpe_heap_pop(s);
        uint32_t pos = (uint32_t)entry, rank = (uint32_t)(entry >> 32), right = s->next[pos];
        if (s->rank[pos] != rank)
            continue; /* stale */
        s->id[pos] = pair_merge(&w, pos, right, &rank);
        s->rank[right] = NO_RANK;
        s->next[pos] = s->next[right];
        if (s->next[pos] != NO_POS)
            s->prev[s->next[pos]] = pos;
        queue_pair(&w, pos);
        if (s->prev[pos] != NO_POS)
            queue_pair(&w, s->prev[pos]);
    }
    return add_symbols(&w, out) ? ST_OK : err_set(err, ST_NOMEM, "out of memory while encoding text");
}
