/* test_tokenizer_spm.c - SentencePiece BPE. tests/data/text/spm_cases.json holds a vocabulary of 640 pieces that
 * `sentencepiece` 0.2.3 trained on this project's documents (BPE, byte fallback, identity normalisation), the merges
 * that follow from its scores, and ids recorded from that library and from `tokenizers` 0.23.3. */
#include <time.h>

#include "text/chat.h"
#include "text/detokenizer.h"
#include "text_fixture.h"

/* The vocabulary as GGUF metadata. */
static json_t *spm_meta(const json_t *data)
{
    json_t *meta = json_object();
    json_object_set_new(meta, "tokenizer.ggml.model", json_string("llama"));
    json_object_set(meta, "tokenizer.ggml.tokens", json_object_get(data, "tokens"));
    json_object_set(meta, "tokenizer.ggml.scores", json_object_get(data, "scores"));
    json_object_set(meta, "tokenizer.ggml.token_type", json_object_get(data, "types"));
    json_object_set_new(meta, "tokenizer.ggml.unknown_token_id", json_integer(0));
    json_object_set_new(meta, "tokenizer.ggml.bos_token_id", json_integer(1));
    json_object_set_new(meta, "tokenizer.ggml.eos_token_id", json_integer(2));
    json_object_set_new(meta, "tokenizer.ggml.add_space_prefix", json_false());
    return meta;
}

static Tokenizer *from_gguf(const json_t *meta)
{
    Err err = {""};
    Tokenizer *t = NULL;
    if (tokenizer_from_gguf(&t, meta, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return t;
}

/* The same as a tokenizer.json; c->json: normalizer, pre_tokenizer and decoder of the case. */
static json_t *spm_json(const json_t *data, const json_t *c)
{
    json_t *vocab = json_object(), *added = json_array(), *v;
    const json_t *types = json_object_get(data, "types"), *parts = json_object_get(c, "json");
    bool without_bytes = json_is_true(json_object_get(c, "without_bytes"));
    size_t i;
    json_array_foreach(json_object_get(data, "tokens"), i, v)
    {
        json_int_t type = json_integer_value(json_array_get(types, i));
        if (type == 6 && without_bytes)
            continue;
        json_object_set_new(vocab, json_string_value(v), json_integer((json_int_t)i));
        if (type >= 2 && type <= 4)
            json_array_append_new(
                added, json_pack("{s:i, s:O, s:b}", "id", (int)i, "content", v, "special", type == 2 || type == 3));
    }
    json_t *fuse = json_object_get(parts, "fuse_unk");
    json_t *model =
        json_pack("{s:s, s:b, s:b, s:s, s:o, s:O}", "type", "BPE", "byte_fallback", 1, "fuse_unk", !json_is_false(fuse),
                  "unk_token", "<unk>", "vocab", vocab, "merges", json_object_get(data, "merges"));
    json_t *root = json_pack("{s:o, s:o}", "model", model, "added_tokens", added);
    json_object_set(root, "normalizer", json_object_get(parts, "normalizer"));
    json_object_set(root, "pre_tokenizer", json_object_get(parts, "pre_tokenizer"));
    json_object_set(root, "decoder", json_object_get(parts, "decoder"));
    return root;
}

static size_t check_recorded(const Tokenizer *t, const char *name, const json_t *texts, unsigned flags)
{
    size_t i;
    json_t *entry;
    json_array_foreach(texts, i, entry)
    {
        const char *text = json_string_value(json_object_get(entry, "text"));
        const json_t *ids = json_object_get(entry, "ids"), *decoded = json_object_get(entry, "decoded");
        TokenList l = fixture_encode(t, text, flags);
        Str back = STR_INIT;
        bool same = l.n == json_array_size(ids);
        for (size_t k = 0; same && k < l.n; k++)
            same = l.id[k] == json_integer_value(json_array_get(ids, k));
        if (!same) {
            char got[4096];
            fixture_pieces(t, text, flags, got, sizeof got);
            fail_msg("%s: \"%s\" became %s", name, text, got);
        }
        detokenize(t, l.id, l.n, true, &back);
        if (decoded && strcmp(str_c(&back), json_string_value(decoded)) != 0)
            fail_msg("%s: \"%s\" came back as \"%s\"", name, text, str_c(&back));
        str_release(&back);
        token_list_release(&l);
    }
    return i;
}

static void spm__scores_give_the_ids_of_sentencepiece(void **state)
{
    (void)state;
    json_t *data = fixture_load("spm_cases.json"), *meta = spm_meta(data), *c;
    size_t i, checked = 0;
    json_array_foreach(json_object_get(data, "cases"), i, c)
    {
        if (json_object_get(c, "json"))
            continue;
        json_object_set(meta, "tokenizer.ggml.add_space_prefix", json_object_get(c, "add_space_prefix"));
        Tokenizer *t = from_gguf(meta);
        checked += check_recorded(t, json_string_value(json_object_get(c, "name")), json_object_get(c, "texts"), 0);
        tokenizer_free(t);
    }
    assert_true(checked > 40);
    json_decref(meta);
    json_decref(data);
}

static void spm__merges_give_the_ids_and_texts_of_tokenizers(void **state)
{
    (void)state;
    json_t *data = fixture_load("spm_cases.json"), *c;
    size_t i, checked = 0;
    json_array_foreach(json_object_get(data, "cases"), i, c)
    {
        if (!json_object_get(c, "json"))
            continue;
        json_t *root = spm_json(data, c);
        Tokenizer *t = fixture_from_json(root, NULL);
        checked += check_recorded(t, json_string_value(json_object_get(c, "name")), json_object_get(c, "texts"),
                                  TOK_PARSE_SPECIAL);
        tokenizer_free(t);
        json_decref(root);
    }
    assert_true(checked > 90);
    json_decref(data);
}

static void spm__best_score_merges_first_and_the_leftmost_of_equals(void **state)
{
    (void)state;
    json_error_t e;
    json_t *meta = json_loads("{\"tokenizer.ggml.model\":\"llama\",\"tokenizer.ggml.add_space_prefix\":false,"
                              "\"tokenizer.ggml.tokens\":[\"a\",\"b\",\"c\",\"ab\",\"bc\",\"aa\",\"abc\",\"xy\"],"
                              "\"tokenizer.ggml.scores\":[0,0,0,-2,-1,0.5,-9,3]}",
                              0, &e);
    assert_non_null(meta);
    Tokenizer *t = from_gguf(meta);
    assert_pieces(t, "abc", 0, "[abc]"); /* bc first, then a with bc */
    assert_pieces(t, "abab", 0, "[ab][ab]");
    assert_pieces(t, "aaa", 0, "[aa][a]");
    assert_pieces(t, "aaab", 0, "[aa][ab]");
    assert_pieces(t, "aab", 0, "[aa][b]");
    assert_pieces(t, "axyb", 0, "[a][xy][b]"); /* neither x nor y is a token: their bytes together are */
    assert_pieces(t, "axb", 0, "[a][b]");      /* no byte tokens and no unknown token: nothing */
    tokenizer_free(t);
    json_decref(meta);
}

static void spm__byte_tokens_give_their_byte(void **state)
{
    (void)state;
    json_t *data = fixture_load("spm_cases.json"), *meta = spm_meta(data);
    Tokenizer *t = from_gguf(meta);
    TokenList l = fixture_encode(t, "\xf0\x9f\xa4\x94", 0);
    Str out = STR_INIT;
    Detokenizer d;
    size_t len;
    assert_int_equal(l.n, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal((unsigned char)*tokenizer_token(t, l.id[i], &len), (unsigned char)"\xf0\x9f\xa4\x94"[i]);
        assert_int_equal(len, 1);
    }
    detokenizer_init(&d, t, false);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(out.len, 0);
        detokenizer_add(&d, l.id[i], &out);
    }
    assert_string_equal(str_c(&out), "\xf0\x9f\xa4\x94");
    str_release(&out);
    token_list_release(&l);
    tokenizer_free(t);
    json_decref(meta);
    json_decref(data);
}

static void spm__only_a_whole_text_loses_the_space_in_front(void **state)
{
    (void)state;
    json_t *data = fixture_load("spm_cases.json"), *meta = spm_meta(data);
    json_object_del(meta, "tokenizer.ggml.add_space_prefix"); /* it is there unless the file says otherwise */
    Tokenizer *t = from_gguf(meta);
    TokenList l = fixture_encode(t, "the cache", TOK_ADD_BOS);
    Str whole = STR_INIT, streamed = STR_INIT;
    Detokenizer d;
    assert_true(tokenizer_strips_space(t));
    assert_int_equal(l.id[0], 1); /* and so is BOS */
    str_adds(&whole, "so: ");
    detokenize(t, l.id, l.n, false, &whole);
    assert_string_equal(str_c(&whole), "so: the cache");
    detokenizer_init(&d, t, false);
    for (size_t i = 0; i < l.n; i++)
        detokenizer_add(&d, l.id[i], &streamed);
    assert_string_equal(str_c(&streamed), " the cache");
    str_release(&whole);
    str_release(&streamed);
    token_list_release(&l);
    tokenizer_free(t);
    json_decref(meta);
    json_decref(data);
}

static void spm__no_text_becomes_a_control_token_untold(void **state)
{
    (void)state;
    json_t *data = fixture_load("spm_cases.json"), *meta = spm_meta(data);
    json_t *types = json_object_get(meta, "tokenizer.ggml.token_type");
    Tokenizer *t = from_gguf(meta);
    int32_t the = tokenizer_find(t, " the", 4);
    assert_true(the > 0);
    assert_pieces(t, " the<s>", TOK_PARSE_SPECIAL, "[ the][<s>]");
    tokenizer_free(t);
    for (int type = 3; type <= 5; type += 2) { /* control, unused */
        json_array_set_new(types, (size_t)the, json_integer(type));
        t = from_gguf(meta);
        TokenList l = fixture_encode(t, " the", 0);
        assert_true(l.n > 1);
        assert_int_equal(fixture_count_control(t, &l), 0);
        token_list_release(&l);
        tokenizer_free(t);
    }
    json_decref(meta);
    json_decref(data);
}

static void spm__turns_of_a_chat_are_control_tokens_and_user_text_is_not(void **state)
{
    (void)state;
    json_t *data = fixture_load("spm_cases.json"), *meta = spm_meta(data);
    const char *turn[2] = {"<start_of_turn>", "<end_of_turn>"};
    for (int i = 0; i < 2; i++) {
        json_array_append_new(json_object_get(meta, "tokenizer.ggml.tokens"), json_string(turn[i]));
        json_array_append_new(json_object_get(meta, "tokenizer.ggml.token_type"), json_integer(3));
        json_array_append_new(json_object_get(meta, "tokenizer.ggml.scores"), json_integer(-1000));
    }
    const char *source = "{{ bos_token }}<start_of_turn>user\n{{ messages[0].content }}<end_of_turn>";
    Tokenizer *t = from_gguf(meta);
    ChatTemplate *c = NULL;
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "it<end_of_turn>\n<s> is");
    ChatInput input = {.messages = messages};
    TokenList l = TOKEN_LIST_INIT;
    Str back = STR_INIT;
    Err err = {""};
    assert_true(tokenizer_is_end(t, 641)); /* a turn's end ends a generation */
    assert_int_equal(chat_template_new(&c, source, strlen(source), "chat_template", &err), ST_OK);
    assert_int_equal(chat_encode(c, t, &input, &l, &err), ST_OK);
    assert_int_equal(fixture_count_control(t, &l), 3);
    assert_int_equal(l.id[0], 1);
    assert_int_equal(l.id[1], 640);
    detokenize(t, l.id, l.n, true, &back);
    assert_string_equal(str_c(&back), "<s><start_of_turn>user\nit<end_of_turn>\n<s> is<end_of_turn>");
    str_release(&back);
    token_list_release(&l);
    chat_template_free(c);
    json_decref(messages);
    tokenizer_free(t);
    json_decref(meta);
    json_decref(data);
}

static void spm__broken_metadata_is_refused_by_key(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *say;
    } rows[] = {
        {"scores", "null", "tokenizer.ggml.scores"},
        {"scores", "[1, 2]", "tokenizer.ggml.scores"},
        {"scores", "\"text\"", "tokenizer.ggml.scores"},
        {"remove_extra_whitespaces", "true", "remove_extra_whitespaces"},
        {"unknown_token_id", "640", "unknown_token_id"},
        {"model", "\"t5\"", "t5"},
    };
    json_t *data = fixture_load("spm_cases.json");
    json_error_t e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *meta = spm_meta(data);
        char key[64];
        Err err = {""};
        Tokenizer *t = NULL;
        snprintf(key, sizeof key, "tokenizer.ggml.%s", rows[i].key);
        json_object_set_new(meta, key, json_loads(rows[i].value, JSON_DECODE_ANY, &e));
        assert_int_not_equal(tokenizer_from_gguf(&t, meta, &err), ST_OK);
        assert_null(t);
        assert_non_null(strstr(err.msg, rows[i].say));
        json_decref(meta);
    }
    /* A byte token that is spelled otherwise, and a score that is no number. */
    for (int i = 0; i < 2; i++) {
        json_t *meta = json_deep_copy(data), *gguf = spm_meta(meta);
        Err err = {""};
        Tokenizer *t = NULL;
        if (i == 0)
            json_array_set_new(json_object_get(meta, "tokens"), 9, json_string("<0x2>"));
        else
            json_array_set_new(json_object_get(meta, "scores"), 9, json_string("1"));
        assert_int_equal(tokenizer_from_gguf(&t, gguf, &err), ST_FORMAT);
        assert_non_null(strstr(err.msg, i == 0 ? "<0x2>" : "entry 9"));
        json_decref(gguf);
        json_decref(meta);
    }
    json_decref(data);
}

static double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* A text without added tokens is one word. Quadratic work on 16 times the text would take 256 times as long. */
static void spm__a_long_text_costs_n_log_n(void **state)
{
    (void)state;
    enum { SHORT = 1 << 13, LONG = SHORT * 16 };
    json_t *data = fixture_load("spm_cases.json"), *meta = spm_meta(data);
    Tokenizer *t = from_gguf(meta);
    char *text = malloc(LONG);
    double took[2] = {1e9, 1e9};
    assert_non_null(text);
    for (size_t i = 0; i < LONG; i++)
        text[i] = "the state of a cache "[i % 21];
    for (int i = 0; i < 6; i++) {
        TokenList l = TOKEN_LIST_INIT;
        Err err;
        double start = seconds();
        assert_int_equal(tokenizer_encode(t, text, i % 2 ? LONG : SHORT, 0, &l, &err), ST_OK);
        double s = seconds() - start;
        took[i % 2] = s < took[i % 2] ? s : took[i % 2];
        token_list_release(&l);
    }
    if (took[1] > took[0] * 80)
        fail_msg("%d bytes took %.2g s, %d bytes %.2g s", SHORT, took[0], LONG, took[1]);
    free(text);
    tokenizer_free(t);
    json_decref(meta);
    json_decref(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm__scores_give_the_ids_of_sentencepiece),
        cmocka_unit_test(spm__merges_give_the_ids_and_texts_of_tokenizers),
        cmocka_unit_test(spm__best_score_merges_first_and_the_leftmost_of_equals),
        cmocka_unit_test(spm__byte_tokens_give_their_byte),
        cmocka_unit_test(spm__only_a_whole_text_loses_the_space_in_front),
        cmocka_unit_test(spm__no_text_becomes_a_control_token_untold),
        cmocka_unit_test(spm__turns_of_a_chat_are_control_tokens_and_user_text_is_not),
        cmocka_unit_test(spm__broken_metadata_is_refused_by_key),
        cmocka_unit_test(spm__a_long_text_costs_n_log_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
