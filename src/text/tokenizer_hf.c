/* tokenizer_hf.c - a Tokenizer from a Hugging Face tokenizer.json, with tokenizer_config.json beside it.
 *
 * Source of the format: the files that the `tokenizers` library writes (version "1.0"). The ids in the two
 * vocabularies may overlap: an added token replaces the plain token of its id. */
#include <string.h>

#include "text/tokenizer_internal.h"

static bool present(const json_t *v)
{
    return v && !json_is_null(v);
}

static bool flag(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* Refuses what would change the ids without being done here. */
static Status check_model(const json_t *model, Err *err)
{
    const json_t *type = json_object_get(model, "type");
    const char *unwanted[] = {"continuing_subword_prefix", "end_of_word_suffix"};

    if (!json_is_object(model) || !json_is_object(json_object_get(model, "vocab")))
        return err_set(err, ST_FORMAT, "tokenizer.json: \"model\" must be an object with an object \"vocab\"");
    if (type && !(json_is_string(type) && strcmp(json_string_value(type), "BPE") == 0))
        return err_set(err, ST_UNSUPPORTED, "tokenizer.json: model.type \"%s\" is not supported; BPE is",
                       json_is_string(type) ? json_string_value(type) : "?");
    for (int i = 0; i < 2; i++) {
        const json_t *v = json_object_get(model, unwanted[i]);
        if (json_is_string(v) && json_string_length(v))
            return err_set(err, ST_UNSUPPORTED, "tokenizer.json: model.%s is not supported", unwanted[i]);
    }
    if (present(json_object_get(model, "dropout")) && json_number_value(json_object_get(model, "dropout")) != 0)
        return err_set(err, ST_UNSUPPORTED, "tokenizer.json: model.dropout is for training; set it to null");
    return ST_OK;
}

/* One above the highest id of both vocabularies. */
static Status count_ids(const json_t *vocab, const json_t *added, size_t *out, Err *err)
{
    const char *key;
    json_t *v;
    size_t i;
    json_int_t top = -1;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= TOK_MAX_IDS)
            return err_set(err, ST_FORMAT, "tokenizer.json: model.vocab: the id of \"%.60s\" must be 0 to %d", key,
                           TOK_MAX_IDS - 1);
        if (json_integer_value(v) > top)
            top = json_integer_value(v);
    }
    json_array_foreach(added, i, v)
    {
        const json_t *id = json_object_get(v, "id");
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= TOK_MAX_IDS)
            return err_set(err, ST_FORMAT, "tokenizer.json: added_tokens[%zu]: \"id\" must be 0 to %d", i,
                           TOK_MAX_IDS - 1);
        if (json_integer_value(id) > top)
            top = json_integer_value(id);
    }
    *out = (size_t)(top + 1);
    return ST_OK;
}

static Status add_tokens(Tokenizer *t, const json_t *vocab, const json_t *added, Err *err)
{
    Status st = ST_OK;
    const char *key;
    json_t *v;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, v)
    {
        st = t->spm && spm_byte(key, strlen(key)) >= 0 ? build_byte(t, json_integer_value(v), key, strlen(key), err)
                                                       : build_plain(t, json_integer_value(v), key, strlen(key), err);
        if (st != ST_OK)
            return err_wrap(err, st, "tokenizer.json: model.vocab: ");
    }
    json_array_foreach(added, i, v)
    {
        const json_t *text = json_object_get(v, "content");
        AddedToken a = {
            .id = (int32_t)json_integer_value(json_object_get(v, "id")),
            .control = flag(v, "special"),
            .lstrip = flag(v, "lstrip"),
            .rstrip = flag(v, "rstrip"),
            .single_word = flag(v, "single_word"),
            .normalized = flag(v, "normalized"),
        };
        if (!json_is_string(text))
            return err_set(err, ST_FORMAT, "tokenizer.json: added_tokens[%zu]: \"content\" must be text", i);
        st = build_added(t, a, json_string_value(text), json_string_length(text), err);
        if (st != ST_OK)
            return err_wrap(err, st, "tokenizer.json: added_tokens[%zu]: ", i);
    }
    return ST_OK;
}

/* Appends the ids that TemplateProcessing puts in front of the text. What it puts behind is left out: a prompt is
 * continued, so it never ends in an end token. */
static Status add_template_prefix(Tokenizer *t, const json_t *spec, Err *err)
{
    const json_t *single = json_object_get(spec, "single"), *specials = json_object_get(spec, "special_tokens");
    const json_t *piece;
    size_t i, k;
    if (!json_is_array(single))
        return err_set(err, ST_FORMAT, "tokenizer.json: post_processor: TemplateProcessing needs the list \"single\"");
    json_array_foreach(single, i, piece)
    {
        const json_t *special = json_object_get(piece, "SpecialToken");
        if (!special)
            break; /* the text itself */
        const json_t *name = json_object_get(special, "id");
        const json_t *ids =
            json_object_get(json_object_get(specials, json_is_string(name) ? json_string_value(name) : ""), "ids");
        if (!json_is_array(ids))
            return err_set(err, ST_FORMAT, "tokenizer.json: post_processor: single[%zu] names an unknown special token",
                           i);
        for (k = 0; k < json_array_size(ids); k++) {
            const json_t *id = json_array_get(ids, k);
            if (!json_is_integer(id) || json_integer_value(id) < 0 || (uint64_t)json_integer_value(id) >= t->n_tokens ||
                t->n_prefix == TOK_MAX_PREFIX)
                return err_set(
                    err, ST_FORMAT,
                    "tokenizer.json: post_processor: the ids in front must be ids of the vocabulary, at most %d",
                    TOK_MAX_PREFIX);
            t->prefix[t->n_prefix++] = (int32_t)json_integer_value(id);
        }
    }
    return ST_OK;
}

static Status read_post_processor(Tokenizer *t, const json_t *spec, int depth, Err *err)
{
    const json_t *type = json_object_get(spec, "type"), *list = json_object_get(spec, "processors");
    const char *name = json_is_string(type) ? json_string_value(type) : "";
    if (strcmp(name, "ByteLevel") == 0) /* it only trims offsets */
        return ST_OK;
    if (strcmp(name, "TemplateProcessing") == 0)
        return add_template_prefix(t, spec, err);
    if (strcmp(name, "Sequence") == 0 && json_is_array(list) && depth < 8) {
        for (size_t i = 0; i < json_array_size(list); i++) {
            Status st = read_post_processor(t, json_array_get(list, i), depth + 1, err);
            if (st != ST_OK)
                return st;
        }
        return ST_OK;
    }
    return err_set(err, ST_UNSUPPORTED,
                   "tokenizer.json: post_processor \"%s\" is not supported; ByteLevel, TemplateProcessing and lists of "
                   "them are",
                   name);
}

/* The id of tokenizer_config's `key`: text, or an object with the text as "content". -1: none. */
static Status config_token(const Tokenizer *t, const json_t *config, const char *key, int32_t *out, Err *err)
{
    const json_t *v = json_object_get(config, key);
    *out = -1;
    if (json_is_object(v))
        v = json_object_get(v, "content");
    if (!present(v))
        return ST_OK;
    if (!json_is_string(v))
        return err_set(err, ST_FORMAT, "tokenizer_config.json: %s must be text or an object with \"content\"", key);
    *out = tokenizer_find(t, json_string_value(v), json_string_length(v));
    if (*out < 0)
        return err_set(err, ST_FORMAT, "tokenizer_config.json: %s is \"%.80s\", which the vocabulary lacks", key,
                       json_string_value(v));
    return ST_OK;
}

/* bos, eos and whether BOS is added. An explicit add_bos_token outranks the post-processor, as in Transformers. */
static Status read_config(Tokenizer *t, const json_t *config, Err *err)
{
    Status st = ST_OK;
    const json_t *add_bos = json_object_get(config, "add_bos_token");
    TRY(config_token(t, config, "bos_token", &t->bos, err));
    TRY(config_token(t, config, "eos_token", &t->eos, err));
    if (json_is_false(add_bos))
        t->n_prefix = 0;
    if (json_is_true(add_bos) && t->n_prefix == 0 && t->bos >= 0)
        t->prefix[t->n_prefix++] = t->bos;
    if (t->bos < 0 && t->n_prefix)
        t->bos = t->prefix[0];
    if (t->eos >= 0)
        build_add_end_id(t, t->eos);
done:
    return st;
}

static Status load(Tokenizer *t, const json_t *root, const json_t *config, Err *err)
{
    Status st = ST_OK;
    const json_t *model = json_object_get(root, "model");
    const json_t *normalizer = json_object_get(root, "normalizer"), *pre = json_object_get(root, "pre_tokenizer");
    const json_t *post = json_object_get(root, "post_processor"), *unk = json_object_get(model, "unk_token");

    if (present(normalizer))
        TRY(normalizer_add_json(&t->normalizer, normalizer, err));
    t->spm = flag(model, "byte_fallback");
    if (t->spm)
        TRY(spm_read_json(t, root, err));
    else if (present(pre))
        TRY(pretokenizer_add_json(&t->pre, pre, err));
    if (t->spm == t->pre.byte_level)
        TRY(err_set(err, ST_UNSUPPORTED,
                    "tokenizer.json: pre_tokenizer needs a ByteLevel step (byte-level BPE), or else "
                    "model.byte_fallback must be on (SentencePiece BPE), and not both"));
    TRY(add_tokens(t, json_object_get(model, "vocab"), json_object_get(root, "added_tokens"), err));
    TRY(build_merges(t, json_object_get(model, "merges"), "tokenizer.json: model.merges", err));
    TRY(build_finish(t, err));
    t->ignore_merges = flag(model, "ignore_merges");
    if (json_is_string(unk)) {
        t->unk = tokenizer_find(t, json_string_value(unk), json_string_length(unk));
        if (t->unk < 0 && json_string_length(unk))
            TRY(err_set(err, ST_FORMAT, "tokenizer.json: model.unk_token \"%.80s\" is not in the vocabulary",
                        json_string_value(unk)));
    }
    if (present(post))
        TRY(read_post_processor(t, post, 0, err));
    TRY(read_config(t, config, err));
done:
    return st;
}

Status tokenizer_from_hf(Tokenizer **out, const json_t *tokenizer_json, const json_t *tokenizer_config, Err *err)
{
    Status st = ST_OK;
    Tokenizer *t = NULL;
    const json_t *model = json_object_get(tokenizer_json, "model");
    const json_t *added = json_object_get(tokenizer_json, "added_tokens");
    size_t n_ids = 0;

    *out = NULL;
    TRY(check_model(model, err));
    if (present(added) && !json_is_array(added))
        TRY(err_set(err, ST_FORMAT, "tokenizer.json: \"added_tokens\" must be a list"));
    TRY(count_ids(json_object_get(model, "vocab"), added, &n_ids, err));
    TRY(build_new(&t, n_ids, json_object_size(json_object_get(model, "vocab")), err));
    TRY(load(t, tokenizer_json, tokenizer_config, err));
    *out = t;
    t = NULL;
done:
    tokenizer_free(t);
    return st;
}
