/* text_fixture.h - the small tokenizer that the tests of this room share: a real vocabulary cut down to its first 1200
 * merges (tests/data/text/trimmed_tokenizer.json), and variations of it. */
#ifndef METRALE_TESTS_TEXT_FIXTURE_H
#define METRALE_TESTS_TEXT_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/json.h"
#include "text/tokenizer.h"

static inline json_t *fixture_load(const char *name)
{
    char path[512];
    json_error_t e;
    snprintf(path, sizeof path, "%s/tests/data/text/%s", METRALE_SOURCE_DIR, name);
    json_t *root = json_load_file(path, 0, &e);
    if (!root)
        fail_msg("%s:%d: %s", path, e.line, e.text);
    return root;
}

/* Fresh copy of the trimmed tokenizer.json; the caller changes and releases it. */
static inline json_t *fixture_tokenizer_json(void)
{
    return fixture_load("trimmed_tokenizer.json");
}

static inline Tokenizer *fixture_from_json(const json_t *root, const json_t *config)
{
    Err err = {""};
    Tokenizer *t = NULL;
    if (tokenizer_from_hf(&t, root, config, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return t;
}

static inline Tokenizer *fixture_tokenizer(void)
{
    json_t *root = fixture_tokenizer_json();
    Tokenizer *t = fixture_from_json(root, NULL);
    json_decref(root);
    return t;
}

/* Adds an added token under the next free id and returns the id. flags: names separated by spaces. */
static inline int32_t fixture_add_token(json_t *root, const char *content, const char *flags)
{
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    json_t *added = json_object_get(root, "added_tokens"), *a = json_object();
    static const char *const known[] = {"special", "lstrip", "rstrip", "single_word", "normalized"};
    int id = (int)json_object_size(vocab);
    size_t i;
    json_t *v;
    json_array_foreach(added, i, v) if (json_integer_value(json_object_get(v, "id")) >= id) id =
        (int)json_integer_value(json_object_get(v, "id")) + 1;
    json_object_set_new(a, "id", json_integer(id));
    json_object_set_new(a, "content", json_string(content));
    for (i = 0; i < 5; i++)
        json_object_set_new(a, known[i], json_boolean(strstr(flags, known[i]) != NULL));
    json_array_append_new(added, a);
    return id;
}

static inline TokenList fixture_encode(const Tokenizer *t, const char *text, unsigned flags)
{
    Err err = {""};
    TokenList l = TOKEN_LIST_INIT;
    if (tokenizer_encode(t, text, strlen(text), flags, &l, &err) != ST_OK)
        fail_msg("\"%s\": %s", text, err.msg);
    return l;
}

/* The tokens as "[a][b]", each with its bytes. */
static inline void fixture_pieces(const Tokenizer *t, const char *text, unsigned flags, char *out, size_t cap)
{
    TokenList l = fixture_encode(t, text, flags);
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < l.n; i++) {
        size_t len;
        const char *p = tokenizer_token(t, l.id[i], &len);
        at += (size_t)snprintf(out + at, cap - at, "[%.*s]", (int)len, p);
    }
    token_list_release(&l);
}

#define assert_pieces(t, text, flags, want)                                                                            \
    do {                                                                                                               \
        char got_[4096];                                                                                               \
        fixture_pieces((t), (text), (flags), got_, sizeof got_);                                                       \
        assert_string_equal(got_, (want));                                                                             \
    } while (0)

static inline size_t fixture_count_control(const Tokenizer *t, const TokenList *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        n += tokenizer_is_control(t, l->id[i]);
    return n;
}
#endif
