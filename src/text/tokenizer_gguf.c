/* tokenizer_gguf.c - a Tokenizer from the metadata of a GGUF file.
 *
 * Source of the keys and token types: the GGUF specification ("tokenizer.ggml.*"; 1 normal, 2 unknown, 3 control,
 * 4 user-defined, 5 unused, 6 byte). unknown_token_id is read for SentencePiece only: byte-level BPE has no use for it,
 * and files name an end token there, which text must not produce. A file without token types gets its control tokens from the bos, eos,
 * eot and eom keys. */
#include <string.h>

#include "text/tokenizer_internal.h"

enum { GGUF_NORMAL = 1, GGUF_UNKNOWN = 2, GGUF_CONTROL = 3, GGUF_USER = 4, GGUF_UNUSED = 5, GGUF_BYTE = 6 };

static const json_t *get(const json_t *meta, const char *name)
{
    char key[64] = "tokenizer.ggml.";
    strncat(key, name, sizeof key - strlen(key) - 1);
    return json_object_get(meta, key);
}

/* The id under `name`, or -1 when the key is missing. */
static Status get_id(const json_t *meta, const char *name, size_t n_tokens, int32_t *out, Err *err)
{
    const json_t *v = get(meta, name);
    *out = -1;
    if (!v)
        return ST_OK;
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    if (id == 0xffffffff) /* how some writers say "none" */
        return ST_OK;
    if (id < 0 || (uint64_t)id >= n_tokens)
        return err_set(err, ST_FORMAT, "tokenizer.ggml.%s: must be an id below %zu, the number of tokens", name,
                       n_tokens);
    *out = (int32_t)id;
    return ST_OK;
}

/* What the keys say before any token is read. */
typedef struct Ids {
    int32_t bos, eos, eot, eom;
} Ids;

static Status add_tokens(Tokenizer *t, const json_t *tokens, const json_t *types, const Ids *ids, Err *err)
{
    for (size_t i = 0; i < t->n_tokens; i++) {
        const json_t *v = json_array_get(tokens, i);
        if (!json_is_string(v))
            return err_set(err, ST_FORMAT, "tokenizer.ggml.tokens: entry %zu is not text", i);
        const char *text = json_string_value(v);
        size_t len = json_string_length(v);
        int32_t id = (int32_t)i;
        json_int_t type = GGUF_NORMAL;
        if (types) {
            const json_t *ty = json_array_get(types, i);
            type = json_is_integer(ty) ? json_integer_value(ty) : 0;
            if (type < GGUF_NORMAL || type > GGUF_BYTE)
                return err_set(err, ST_FORMAT, "tokenizer.ggml.token_type: entry %zu must be an integer from 1 to 6",
                               i);
        } else if (id == ids->bos || id == ids->eos || id == ids->eot || id == ids->eom) {
            type = GGUF_CONTROL;
        }
        bool control = type == GGUF_CONTROL || type == GGUF_UNKNOWN;
        bool added = (control || type == GGUF_USER) && len;
        Status st = ST_OK;
        if (t->spm && type == GGUF_BYTE)
            st = build_byte(t, id, text, len, err);
        else if (!added || (t->spm && !control)) /* scores may lead to a user's token, too */
            st = build_plain(t, id, text, len, err);
        if (st == ST_OK && added)
            st = build_added(t, (AddedToken){.id = id, .control = control}, text, len, err);
        if (st != ST_OK)
            return err_wrap(err, st, "tokenizer.ggml.tokens: entry %zu: ", i);
        if (type == GGUF_UNUSED)
            build_hide(t, id);
    }
    return ST_OK;
}

static void add_endings(Tokenizer *t)
{
#define ENDING(text) {text, sizeof text - 1},
    static const struct {
        const char *text;
        size_t len;
    } endings[] = {
#include "text/endings.def"
    };
#undef ENDING
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        int32_t id = tokenizer_find(t, endings[i].text, endings[i].len);
        if (id >= 0 && tokenizer_is_control(t, id))
            build_add_end_id(t, id);
    }
}

/* Byte-level BPE: words by the named pre-tokeniser, merges from a list. */
static Status read_gpt2(Tokenizer *t, const json_t *meta, bool *adds_bos, Err *err)
{
    const json_t *pre = get(meta, "pre");
    PreType pretype;
    if (pre && !json_is_string(pre))
        return err_set(err, ST_FORMAT, "tokenizer.ggml.pre: must be text");
    Status st = pretokenizer_add_pretype(&t->pre, pre ? json_string_value(pre) : "default", &pretype, err);
    if (st != ST_OK)
        return st;
    *adds_bos = pretype.add_bos;
    t->ignore_merges = pretype.ignore_merges;
    if (json_is_true(get(meta, "add_space_prefix"))) {
        if (t->pre.n == 0 || t->pre.step[0].prefix_space)
            return err_set(err, ST_UNSUPPORTED,
                           "tokenizer.ggml.add_space_prefix: not possible with this pre-tokenizer");
        t->pre.step[0].prefix_space = true;
    }
    return ST_OK;
}

/* SentencePiece BPE: the text between added tokens is one word, with a space in front; merges by score. The space and
 * BOS are there unless the file says otherwise. */
static Status read_spm(Tokenizer *t, const json_t *meta, bool *adds_bos, Err *err)
{
    Status st = ST_OK;
    json_t *front = NULL;
    *adds_bos = true;
    if (json_is_true(get(meta, "remove_extra_whitespaces")))
        TRY(err_set(err, ST_UNSUPPORTED, "tokenizer.ggml.remove_extra_whitespaces: not supported; only false is"));
    if (!json_is_false(get(meta, "add_space_prefix"))) {
        front = json_pack("{s:s, s:s}", "type", "Prepend", "prepend", " ");
        if (!front)
            TRY(err_set(err, ST_NOMEM, "out of memory while loading the tokenizer"));
        TRY(normalizer_add_json(&t->normalizer, front, err));
        t->strips_space = true;
    }
    TRY(get_id(meta, "unknown_token_id", t->n_tokens, &t->unk, err));
    TRY(spm_read_scores(t, get(meta, "scores"), err));
done:
    json_decref(front);
    return st;
}

static Status load(Tokenizer *t, const json_t *meta, const json_t *tokens, Err *err)
{
    Status st = ST_OK;
    const json_t *types = get(meta, "token_type"), *add_bos = get(meta, "add_bos_token");
    bool adds_bos = false;
    Ids ids;

    TRY(t->spm ? read_spm(t, meta, &adds_bos, err) : read_gpt2(t, meta, &adds_bos, err));
    if (types && (!json_is_array(types) || json_array_size(types) != t->n_tokens))
        TRY(err_set(err, ST_FORMAT, "tokenizer.ggml.token_type: must be a list of %zu integers, one a token",
                    t->n_tokens));

    TRY(get_id(meta, "bos_token_id", t->n_tokens, &ids.bos, err));
    TRY(get_id(meta, "eos_token_id", t->n_tokens, &ids.eos, err));
    TRY(get_id(meta, "eot_token_id", t->n_tokens, &ids.eot, err));
    TRY(get_id(meta, "eom_token_id", t->n_tokens, &ids.eom, err));
    TRY(add_tokens(t, tokens, types, &ids, err));
    if (!t->spm)
        TRY(build_merges(t, get(meta, "merges"), "tokenizer.ggml.merges", err));
    TRY(build_finish(t, err));

    t->bos = ids.bos;
    t->eos = ids.eos;
    if (ids.eos >= 0)
        build_add_end_id(t, ids.eos);
    if (ids.eot >= 0)
        build_add_end_id(t, ids.eot);
    if (ids.eom >= 0)
        build_add_end_id(t, ids.eom);
    add_endings(t);
    if (t->bos >= 0 && (json_is_boolean(add_bos) ? json_is_true(add_bos) : adds_bos))
        t->prefix[t->n_prefix++] = t->bos;
done:
    return st;
}

typedef struct Algorithm {
    const char *name;
    bool spm;
} Algorithm;

static const Algorithm algorithms[] = {
#define ALGORITHM(name, spm) {name, spm},
#include "text/algorithms.def"
#undef ALGORITHM
};

static const Algorithm *algorithm_find(const char *name)
{
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++)
        if (strcmp(algorithms[i].name, name) == 0)
            return &algorithms[i];
    return NULL;
}

Status tokenizer_from_gguf(Tokenizer **out, const json_t *meta, Err *err)
{
    Status st = ST_OK;
    Tokenizer *t = NULL;
    const json_t *model = get(meta, "model"), *tokens = get(meta, "tokens");

    *out = NULL;
    if (!json_is_string(model))
        TRY(err_set(err, ST_FORMAT, "tokenizer.ggml.model: missing; the file carries no tokenizer"));
    const Algorithm *a = algorithm_find(json_string_value(model));
    if (a == NULL)
        TRY(err_set(err, ST_UNSUPPORTED,
                    "tokenizer.ggml.model: the algorithm \"%s\" is not supported; byte-level BPE (\"%s\") and "
                    "SentencePiece BPE (\"%s\") are",
                    json_string_value(model), algorithms[0].name, algorithms[1].name));
    if (!json_is_array(tokens))
        TRY(err_set(err, ST_FORMAT, "tokenizer.ggml.tokens: missing or not a list"));
    TRY(build_new(&t, json_array_size(tokens), json_array_size(tokens), err));
    t->spm = a->spm;
    TRY(load(t, meta, tokens, err));
    *out = t;
    t = NULL;
done:
    tokenizer_free(t);
    return st;
}
