/* tokenizer.c - encoding: added tokens cut the text, words between them go to BPE; and the questions one can ask.
 *
 * Matching added tokens is leftmost-longest over a byte trie. A control token counts as absent where the text is the
 * user's, so a shorter token may match there instead, and the rest is ordinary text. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/utf8.h"
#include "text/tokenizer_internal.h"

void tokenizer_free(Tokenizer *t)
{
    if (!t)
        return;
    str_release(&t->blob);
    free(t->token);
    free(t->rank);
    free(t->vocab.slot);
    idmap_release(&t->merges);
    free(t->added);
    idmap_release(&t->raw.edge);
    idmap_release(&t->raw.leaf);
    idmap_release(&t->normal.edge);
    idmap_release(&t->normal.leaf);
    normalizer_release(&t->normalizer);
    normalizer_release(&t->at_start);
    pretokenizer_release(&t->pre);
    free(t);
}

/* --- characters ------------------------------------------------------------------------------------------------- */

static bool is_space(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (cp >= 9 && cp <= 13) || cp == 0x85 || c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL ||
           c == UTF8PROC_CATEGORY_ZP;
}

/* \w of Unicode TS 18: letters, marks, decimal and letter digits, connectors, joiners. */
static bool is_word(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC || cp == 0x200c ||
           cp == 0x200d;
}

/* The start of the character that ends at `end` (> 0) in checked UTF-8. */
static size_t char_before(const char *s, size_t end)
{
    do
        end--;
    while (end > 0 && ((unsigned char)s[end] & 0xc0) == 0x80);
    return end;
}

static bool char_at_is(const char *s, size_t len, size_t at, bool (*is)(uint32_t))
{
    uint32_t cp;
    return at < len && utf8_decode(s + at, len - at, &cp) > 0 && is(cp);
}

/* --- one call --------------------------------------------------------------------------------------------------- */

typedef struct Encoder {
    const Tokenizer *t;
    const TextSpans *user; /* ranges of the original text; NULL: none */
    bool control;          /* false: control tokens match nowhere */
    size_t hint;           /* for text_spans_touch */
    PreScratch pre;
    BpeScratch bpe;
    PatternScratch *match;
    Str normal;
    TokenList *out;
    Err *err;
} Encoder;

/* A text being cut by one trie. */
typedef struct Cutter {
    const AddedTrie *trie;
    const char *text;
    size_t len;
    bool control; /* control tokens may match at all */
    bool mapped;  /* text is the original from `origin` on, so that user ranges apply */
    size_t origin;
} Cutter;

static bool allowed(Encoder *e, const Cutter *c, const AddedToken *a, size_t start, size_t end)
{
    if (a->control && !c->control)
        return false;
    if (a->control && c->mapped && e->user && text_spans_touch(e->user, c->origin + start, c->origin + end, &e->hint))
        return false;
    if (!a->single_word)
        return true;
    return !(start > 0 && char_at_is(c->text, c->len, char_before(c->text, start), is_word)) &&
           !char_at_is(c->text, c->len, end, is_word);
}

/* The longest allowed token that begins exactly at `at`. */
static const AddedToken *match_at(Encoder *e, const Cutter *c, size_t at, size_t *end)
{
    const AddedToken *best = NULL;
    uint64_t node = 0, index;
    for (size_t i = at; i < c->len; i++) {
        if (!idmap_get(&c->trie->edge, node << 8 | (unsigned char)c->text[i], &node))
            break;
        if (!idmap_get(&c->trie->leaf, node, &index))
            continue;
        const AddedToken *a = &e->t->added[index];
        if (allowed(e, c, a, at, i + 1)) {
            best = a;
            *end = i + 1;
        }
    }
    return best;
}

static Status encode_words(Encoder *e, const char *text, size_t len)
{
    Status st = pretokenizer_run(&e->t->pre, text, len, &e->pre, e->err);
    for (size_t i = 0; st == ST_OK && i < e->pre.n; i++) {
        const char *word = str_c(&e->pre.text) + e->pre.piece[i].off;
        st = (e->t->spm ? spm_word : bpe_word)(e->t, word, e->pre.piece[i].len, &e->bpe, e->out, e->err);
    }
    return st;
}

typedef Status (*RestFn)(Encoder *e, const Cutter *c, size_t start, size_t end);

/* Finds the tokens of c->trie in c->text; `rest` gets each stretch between them. */
static Status cut(Encoder *e, const Cutter *c, RestFn rest)
{
    Status st = ST_OK;
    size_t done = 0;
    for (size_t at = 0; at < c->len && c->trie->n;) {
        size_t end = 0;
        const AddedToken *a = c->trie->first[(unsigned char)c->text[at]] ? match_at(e, c, at, &end) : NULL;
        if (!a) {
            at++;
            continue;
        }
        size_t start = at;
        while (a->lstrip && start > done && char_at_is(c->text, c->len, char_before(c->text, start), is_space))
            start = char_before(c->text, start);
        while (a->rstrip && char_at_is(c->text, c->len, end, is_space)) {
            uint32_t cp;
            end += (size_t)utf8_decode(c->text + end, c->len - end, &cp);
        }
        if (start > done)
            TRY(rest(e, c, done, start));
        if (!token_list_add(e->out, a->id))
            TRY(err_set(e->err, ST_NOMEM, "out of memory while encoding text"));
        done = at = end;
    }
    if (done < c->len)
        TRY(rest(e, c, done, c->len));
done:
    return st;
}

static Status rest_words(Encoder *e, const Cutter *c, size_t start, size_t end)
{
    return encode_words(e, c->text + start, end - start);
}

/* Normalises one stretch of original text and cuts it by the second trie. */
static Status encode_normalised(Encoder *e, const char *text, size_t len, size_t origin, bool control)
{
    Status st = ST_OK;
    Cutter c = {.trie = &e->t->normal, .text = text, .len = len, .control = control, .mapped = true, .origin = origin};
    const Normalizer *nz = origin == 0 && e->t->at_start.n ? &e->t->at_start : &e->t->normalizer;
    if (nz->n) {
        TRY(normalizer_run(nz, e->match, text, len, &e->normal, e->err));
        if (e->normal.len > TOK_MAX_TEXT)
            TRY(err_set(e->err, ST_INVALID, "the normalised text is over 1 GiB; send less text"));
        c.text = str_c(&e->normal);
        c.len = e->normal.len;
        c.mapped = false;
    }
    TRY(cut(e, &c, rest_words));
done:
    return st;
}

/* A stretch between the tokens of the first trie. Normalising loses track of which bytes are the user's, so where a
 * control token could match afterwards, the stretch is cut at the borders of the user's ranges first. */
static Status rest_normalised(Encoder *e, const Cutter *c, size_t start, size_t end)
{
    Status st = ST_OK;
    if (!e->t->normalizer.n || !e->t->normal_has_control || !e->user || !c->control)
        return encode_normalised(e, c->text + start, end - start, start, c->control);
    while (start < end) {
        bool is_user = text_spans_touch(e->user, start, start + 1, &e->hint);
        size_t stop = end;
        if (e->hint < e->user->n) { /* hint: the range that holds start, or the next one */
            size_t border = is_user ? e->user->span[e->hint].end : e->user->span[e->hint].start;
            stop = border < end ? border : end;
        }
        TRY(encode_normalised(e, c->text + start, stop - start, start, !is_user));
        start = stop;
    }
done:
    return st;
}

/* Puts the tokens of the start in front of out[first..], unless the text began with them. */
static Status add_prefix(Encoder *e, size_t first)
{
    const Tokenizer *t = e->t;
    TokenList *out = e->out;
    if (t->n_prefix == 0 || (out->n > first && out->id[first] == t->prefix[0]))
        return ST_OK;
    for (size_t i = 0; i < t->n_prefix; i++)
        if (!token_list_add(out, t->prefix[i]))
            return err_set(e->err, ST_NOMEM, "out of memory while encoding text");
    memmove(out->id + first + t->n_prefix, out->id + first, (out->n - t->n_prefix - first) * sizeof *out->id);
    memcpy(out->id + first, t->prefix, t->n_prefix * sizeof *out->id);
    return ST_OK;
}

static Status encode(const Tokenizer *t, const char *text, size_t len, const TextSpans *user, bool control,
                     bool add_bos, TokenList *out, Err *err)
{
    Status st = ST_OK;
    size_t first = out->n;
    Encoder e = {.t = t, .user = user, .control = control, .out = out, .err = err};
    Cutter c = {.trie = &t->raw, .text = text, .len = len, .control = control, .mapped = true};

    if (len > TOK_MAX_TEXT)
        return err_set(err, ST_INVALID, "the text has %zu bytes; at most 1 GiB can be encoded at once", len);
    if (!utf8_valid(text, len))
        return err_set(err, ST_INVALID, "the text is not valid UTF-8; send UTF-8");
    e.match = pattern_scratch_new();
    if (!e.match)
        TRY(err_set(err, ST_NOMEM, "out of memory while encoding text"));
    e.pre.match = e.match;
    TRY(cut(&e, &c, rest_normalised));
    if (add_bos)
        TRY(add_prefix(&e, first));
done:
    if (st != ST_OK)
        out->n = first;
    pre_scratch_release(&e.pre);
    bpe_scratch_release(&e.bpe);
    pattern_scratch_free(e.match);
    str_release(&e.normal);
    return st;
}

Status tokenizer_encode(const Tokenizer *t, const char *text, size_t len, unsigned flags, TokenList *out, Err *err)
{
    return encode(t, text, len, NULL, (flags & TOK_PARSE_SPECIAL) != 0, (flags & TOK_ADD_BOS) != 0, out, err);
}

Status tokenizer_encode_spans(const Tokenizer *t, const char *text, size_t len, const TextSpans *user, unsigned flags,
                              TokenList *out, Err *err)
{
    return encode(t, text, len, user, true, (flags & TOK_ADD_BOS) != 0, out, err);
}

/* --- questions -------------------------------------------------------------------------------------------------- */

static bool has_token(const Tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->n_tokens && t->token[id].kind != TOKEN_MISSING;
}

const char *tokenizer_token(const Tokenizer *t, int32_t id, size_t *len)
{
    *len = 0;
    if (!has_token(t, id))
        return NULL;
    *len = t->token[id].len;
    return str_c(&t->blob) + t->token[id].off;
}

int32_t tokenizer_find(const Tokenizer *t, const char *bytes, size_t len)
{
    for (size_t i = 0; i < t->n_added; i++) {
        const AddedToken *a = &t->added[i];
        if (a->len == len && memcmp(t->blob.p + a->off, bytes, len) == 0)
            return a->id;
    }
    return len ? vocab_find(t, bytes, len) : -1;
}

size_t tokenizer_vocab_size(const Tokenizer *t)
{
    return t->n_tokens;
}

int32_t tokenizer_bos(const Tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const Tokenizer *t)
{
    return t->eos;
}

const int32_t *tokenizer_end_ids(const Tokenizer *t, size_t *n)
{
    *n = t->n_end_ids;
    return t->end_id;
}

bool tokenizer_is_end(const Tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_end_ids; i++)
        if (t->end_id[i] == id)
            return true;
    return false;
}

bool tokenizer_adds_bos(const Tokenizer *t)
{
    return t->n_prefix > 0;
}

bool tokenizer_strips_space(const Tokenizer *t)
{
    return t->strips_space;
}

bool tokenizer_is_control(const Tokenizer *t, int32_t id)
{
    return !has_token(t, id) || t->token[id].kind == TOKEN_CONTROL;
}

Status tokenizer_add_end_ids(Tokenizer *t, const json_t *eos_token_id, const char *source, Err *err)
{
    if (!eos_token_id || json_is_null(eos_token_id))
        return ST_OK;
    size_t n = json_is_array(eos_token_id) ? json_array_size(eos_token_id) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(eos_token_id) ? json_array_get(eos_token_id, i) : eos_token_id;
        if (!json_is_integer(id))
            return err_set(err, ST_FORMAT, "%s: eos_token_id must be an integer or a list of integers", source);
        if (!build_add_end_id(t, json_integer_value(id)))
            return err_set(err, ST_FORMAT,
                           "%s: eos_token_id %lld is not an id of this vocabulary of %zu, or is one of more than %d",
                           source, (long long)json_integer_value(id), t->n_tokens, TOK_MAX_END_IDS);
    }
    return ST_OK;
}
