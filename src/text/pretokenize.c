/* pretokenize.c - the pre-tokeniser steps: every kind is a pattern, a behaviour and perhaps a space in front.
 *
 * Invariant: pieces are non-empty, ascending and inside the scratch text; a piece is matched as a text of its own, so
 * that look-around never sees its neighbours. A step costs time linear in the text, apart from its pattern. */
#include "text/pretokenize.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"

enum { MAX_STEPS = 64, MAX_NESTING = 16 };

/* The pattern of ByteLevel with use_regex; published with the 2019 byte-level BPE. */
static const char BYTE_LEVEL_PATTERN[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
/* Unicode punctuation and the ASCII symbols that count as such. */
static const char PUNCTUATION_PATTERN[] = "[\\p{P}\\x21-\\x2f\\x3a-\\x40\\x5b-\\x60\\x7b-\\x7e]";

void pre_scratch_release(PreScratch *s)
{
    str_release(&s->text);
    str_release(&s->text2);
    free(s->piece);
    free(s->piece2);
    *s = (PreScratch){0};
}

void pretokenizer_release(PreTokenizer *p)
{
    for (size_t i = 0; i < p->n; i++)
        pattern_free(p->step[i].pattern);
    free(p->step);
    *p = (PreTokenizer){0};
}

/* Takes step.pattern, also on failure. */
static Status add_step(PreTokenizer *p, PreStep step, Err *err)
{
    if (p->n == MAX_STEPS) {
        pattern_free(step.pattern);
        return err_set(err, ST_UNSUPPORTED, "pre_tokenizer: more than %d steps", MAX_STEPS);
    }
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 4;
        PreStep *grown = realloc(p->step, cap * sizeof *grown);
        if (!grown) {
            pattern_free(step.pattern);
            return err_set(err, ST_NOMEM, "pre_tokenizer: out of memory");
        }
        p->step = grown;
        p->cap = cap;
    }
    p->step[p->n++] = step;
    return ST_OK;
}

static Status add_split(PreTokenizer *p, const char *pattern, size_t len, bool literal, PreStep step, const char *where,
                        Err *err)
{
    Status st = pattern_new(&step.pattern, pattern, len, literal, where, err);
    return st == ST_OK ? add_step(p, step, err) : st;
}

Status pretokenizer_add_pattern(PreTokenizer *p, const char *pattern, const char *where, Err *err)
{
    return add_split(p, pattern, strlen(pattern), false, (PreStep){0}, where, err);
}

/* --- tokenizer.json ------------------------------------------------------------------------------------------ */

static bool flag(const json_t *spec, const char *key, bool otherwise)
{
    const json_t *v = json_object_get(spec, key);
    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

static Status read_behaviour(const json_t *spec, SplitBehaviour otherwise, SplitBehaviour *out, Err *err)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const json_t *v = json_object_get(spec, "behavior");
    *out = otherwise;
    if (!v)
        return ST_OK;
    for (int i = 0; i < 5; i++)
        if (json_is_string(v) && strcmp(json_string_value(v), names[i]) == 0) {
            *out = (SplitBehaviour)i;
            return ST_OK;
        }
    return err_set(err, ST_FORMAT,
                   "pre_tokenizer: \"behavior\" must be Isolated, Removed, MergedWithPrevious, MergedWithNext or "
                   "Contiguous");
}

static Status add_json(PreTokenizer *p, const json_t *spec, int depth, Err *err);

static Status add_sequence(PreTokenizer *p, const json_t *spec, int depth, Err *err)
{
    const json_t *list = json_object_get(spec, "pretokenizers");
    if (!json_is_array(list))
        return err_set(err, ST_FORMAT, "pre_tokenizer: a Sequence needs the list \"pretokenizers\"");
    if (depth >= MAX_NESTING)
        return err_set(err, ST_UNSUPPORTED, "pre_tokenizer: Sequences nested deeper than %d", MAX_NESTING);
    for (size_t i = 0; i < json_array_size(list); i++) {
        Status st = add_json(p, json_array_get(list, i), depth + 1, err);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

static Status add_split_json(PreTokenizer *p, const json_t *spec, Err *err)
{
    const json_t *pattern = json_object_get(spec, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex"), *literal = json_object_get(pattern, "String");
    const json_t *text = regex ? regex : literal;
    PreStep step = {.invert = flag(spec, "invert", false)};
    if (!json_is_string(text))
        return err_set(err, ST_FORMAT,
                       "pre_tokenizer: the \"pattern\" of Split must be {\"Regex\": text} or "
                       "{\"String\": text}");
    Status st = read_behaviour(spec, SPLIT_ISOLATED, &step.behaviour, err);
    if (st != ST_OK)
        return st;
    return add_split(p, json_string_value(text), json_string_length(text), !regex, step, "pre_tokenizer Split", err);
}

static Status add_json(PreTokenizer *p, const json_t *spec, int depth, Err *err)
{
    const json_t *type = json_object_get(spec, "type");
    if (!json_is_string(type))
        return err_set(err, ST_FORMAT, "pre_tokenizer: every step must be an object with a string \"type\"");
    const char *name = json_string_value(type);
    PreStep step = {0};
    if (strcmp(name, "Sequence") == 0)
        return add_sequence(p, spec, depth, err);
    if (strcmp(name, "Split") == 0)
        return add_split_json(p, spec, err);
    if (strcmp(name, "ByteLevel") == 0) {
        p->byte_level = true;
        step.prefix_space = flag(spec, "add_prefix_space", true);
        if (flag(spec, "use_regex", true))
            return add_split(p, BYTE_LEVEL_PATTERN, strlen(BYTE_LEVEL_PATTERN), false, step, "ByteLevel", err);
        return step.prefix_space ? add_step(p, step, err) : ST_OK;
    }
    if (strcmp(name, "Digits") == 0) {
        const char *pattern = flag(spec, "individual_digits", false) ? "\\p{N}" : "\\p{N}+";
        return add_split(p, pattern, strlen(pattern), false, step, "Digits", err);
    }
    if (strcmp(name, "Punctuation") == 0) {
        Status st = read_behaviour(spec, SPLIT_ISOLATED, &step.behaviour, err);
        return st != ST_OK ? st
                           : add_split(p, PUNCTUATION_PATTERN, strlen(PUNCTUATION_PATTERN), false, step, name, err);
    }
    if (strcmp(name, "Whitespace") == 0) {
        step = (PreStep){.behaviour = SPLIT_REMOVED, .invert = true};
        return add_split(p, "\\w+|[^\\w\\s]+", strlen("\\w+|[^\\w\\s]+"), false, step, name, err);
    }
    if (strcmp(name, "WhitespaceSplit") == 0) {
        step.behaviour = SPLIT_REMOVED;
        return add_split(p, "\\s", 2, false, step, name, err);
    }
    if (strcmp(name, "CharDelimiterSplit") == 0) {
        const json_t *c = json_object_get(spec, "delimiter");
        step.behaviour = SPLIT_REMOVED;
        if (!json_is_string(c))
            return err_set(err, ST_FORMAT, "pre_tokenizer: CharDelimiterSplit needs a \"delimiter\"");
        return add_split(p, json_string_value(c), json_string_length(c), true, step, name, err);
    }
    return err_set(err, ST_UNSUPPORTED,
                   "pre_tokenizer: the kind \"%s\" is not supported; byte-level BPE uses Sequence, Split, ByteLevel, "
                   "Digits, Punctuation and Whitespace",
                   name);
}

Status pretokenizer_add_json(PreTokenizer *p, const json_t *spec, Err *err)
{
    return add_json(p, spec, 0, err);
}

/* --- GGUF names ---------------------------------------------------------------------------------------------- */

typedef struct PreTypeRow {
    const char *names; /* separated by | */
    bool ignore_merges, add_bos;
    const char *pattern[6];
} PreTypeRow;

#define PRETYPE(names, ignore_merges, add_bos, ...) {names, ignore_merges, add_bos, {__VA_ARGS__}},
static const PreTypeRow PRETYPES[] = {
#include "text/pretypes.def"
};
#undef PRETYPE

static bool row_has(const PreTypeRow *row, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = row->names; len;) {
        const char *bar = strchr(p, '|');
        size_t n = bar ? (size_t)(bar - p) : strlen(p);
        if (n == len && memcmp(p, name, n) == 0)
            return true;
        if (!bar)
            return false;
        p = bar + 1;
    }
    return false;
}

Status pretokenizer_add_pretype(PreTokenizer *p, const char *name, PreType *type, Err *err)
{
    for (size_t i = 0; i < sizeof PRETYPES / sizeof *PRETYPES; i++) {
        const PreTypeRow *row = &PRETYPES[i];
        if (!row_has(row, name))
            continue;
        for (size_t k = 0; k < sizeof row->pattern / sizeof *row->pattern && row->pattern[k]; k++) {
            Status st = pretokenizer_add_pattern(p, row->pattern[k], name, err);
            if (st != ST_OK)
                return st;
        }
        *type = (PreType){row->ignore_merges, row->add_bos};
        p->byte_level = true;
        return ST_OK;
    }
    return err_set(err, ST_UNSUPPORTED,
                   "tokenizer.ggml.pre: the pre-tokenizer \"%s\" is not known here; use the model's safetensors form "
                   "with its tokenizer.json, or add a row to pretypes.def",
                   name);
}

/* --- running ------------------------------------------------------------------------------------------------- */

static Status push(Piece **piece, size_t *n, size_t *cap, size_t off, size_t len, Err *err)
{
    if (len == 0)
        return ST_OK;
    if (*n == *cap) {
        size_t grown = *cap ? *cap * 2 : 64;
        Piece *p = grown <= SIZE_MAX / sizeof *p ? realloc(*piece, grown * sizeof *p) : NULL;
        if (!p)
            return err_set(err, ST_NOMEM, "out of memory while splitting text into words");
        *piece = p;
        *cap = grown;
    }
    (*piece)[(*n)++] = (Piece){off, len};
    return ST_OK;
}

/* The state of one split: the piece that is still open and what the last segment was. */
typedef struct Splitter {
    PreScratch *s;
    SplitBehaviour behaviour;
    bool invert, last_matched, any;
    size_t open_off, open_len; /* grows until it is known that nothing joins it any more */
    Err *err;
} Splitter;

static Status splitter_close(Splitter *sp)
{
    Status st = push(&sp->s->piece2, &sp->s->n2, &sp->s->cap2, sp->open_off, sp->open_len, sp->err);
    sp->open_len = 0;
    return st;
}

/* Takes the next segment; segments are contiguous. Decides whether it joins the open piece. */
static Status splitter_take(Splitter *sp, size_t off, size_t len, bool matched)
{
    if (len == 0 && !matched)
        return ST_OK; /* no text between two matches */
    matched ^= sp->invert;
    bool join = false;
    switch (sp->behaviour) {
    case SPLIT_ISOLATED:
        break;
    case SPLIT_REMOVED:
        break;
    case SPLIT_MERGED_PREV: /* only the first of several matches joins the text before it */
        join = matched && !sp->last_matched && sp->any;
        break;
    case SPLIT_MERGED_NEXT: /* only the last of several matches joins the text behind it */
        join = !matched && sp->last_matched && sp->any;
        break;
    case SPLIT_CONTIGUOUS:
        join = matched == sp->last_matched && sp->any;
        break;
    }
    bool drop = sp->behaviour == SPLIT_REMOVED && matched;
    sp->last_matched = matched;
    sp->any = true;
    if (join) {
        sp->open_len += len;
        return ST_OK;
    }
    Status st = splitter_close(sp);
    sp->open_off = off;
    sp->open_len = drop ? 0 : len;
    return st;
}

static Status split_piece(const PreStep *step, PreScratch *s, Piece piece, Err *err)
{
    const char *text = str_c(&s->text) + piece.off;
    Splitter sp = {.s = s, .behaviour = step->behaviour, .invert = step->invert, .open_off = piece.off, .err = err};
    Status st = ST_OK;
    size_t done = 0, from = 0;
    while (from <= piece.len) {
        bool found;
        size_t start, end;
        TRY(pattern_next(step->pattern, s->match, text, piece.len, from, &found, &start, &end, err));
        if (!found)
            break;
        if (start < done)
            start = done;
        if (end < start)
            end = start;
        TRY(splitter_take(&sp, piece.off + done, start - done, false));
        TRY(splitter_take(&sp, piece.off + start, end - start, true));
        done = end;
        from = end;
        if (start == end) { /* an empty match cuts here; look on behind the next character */
            uint32_t cp;
            int n = from < piece.len ? utf8_decode(text + from, piece.len - from, &cp) : 1;
            from += n > 0 ? (size_t)n : 1;
        }
    }
    TRY(splitter_take(&sp, piece.off + done, piece.len - done, false));
    TRY(splitter_close(&sp));
done:
    return st;
}

/* Rewrites the text so that every piece begins with a space. */
static Status add_spaces(PreScratch *s, Err *err)
{
    str_clear(&s->text2);
    for (size_t i = 0; i < s->n; i++) {
        Piece *p = &s->piece[i];
        const char *from = str_c(&s->text) + p->off;
        size_t off = s->text2.len;
        if (*from != ' ')
            str_addc(&s->text2, ' ');
        str_add(&s->text2, from, p->len);
        *p = (Piece){off, s->text2.len - off};
    }
    if (!str_ok(&s->text2))
        return err_set(err, ST_NOMEM, "out of memory while splitting text into words");
    Str swap = s->text;
    s->text = s->text2;
    s->text2 = swap;
    return ST_OK;
}

Status pretokenizer_run(const PreTokenizer *p, const char *text, size_t len, PreScratch *s, Err *err)
{
    Status st = ST_OK;
    str_clear(&s->text);
    str_add(&s->text, text, len);
    if (!str_ok(&s->text))
        return err_set(err, ST_NOMEM, "out of memory while splitting text into words");
    s->n = 0;
    TRY(push(&s->piece, &s->n, &s->cap, 0, len, err));
    for (size_t i = 0; i < p->n; i++) {
        const PreStep *step = &p->step[i];
        if (step->prefix_space)
            TRY(add_spaces(s, err));
        if (!step->pattern)
            continue;
        s->n2 = 0;
        for (size_t k = 0; k < s->n; k++)
            TRY(split_piece(step, s, s->piece[k], err));
        Piece *piece = s->piece;
        size_t cap = s->cap;
        s->piece = s->piece2;
        s->cap = s->cap2;
        s->n = s->n2;
        s->piece2 = piece;
        s->cap2 = cap;
    }
done:
    return st;
}
