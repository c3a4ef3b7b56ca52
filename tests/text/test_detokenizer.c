/* test_detokenizer.c - streamed text is valid UTF-8 at all times and equals the text decoded at once. */
#include "text/detokenizer.h"

#include "core/utf8.h"
#include "text_fixture.h"

static void detokenizer__character_over_two_tokens_comes_out_whole(void **state)
{
    (void)state;
    Detokenizer d;
    Str out = STR_INIT;
    detokenizer_init(&d, NULL, false);
    detokenizer_add_bytes(&d, "\xf0\x9f", 2, &out);
    assert_int_equal(out.len, 0);
    detokenizer_add_bytes(&d, "\xa6\x99", 2, &out);
    assert_string_equal(str_c(&out), "🦙");
    detokenizer_add_bytes(&d, " ok", 3, &out);
    detokenizer_end(&d, &out);
    assert_string_equal(str_c(&out), "🦙 ok");
    str_release(&out);
}

static void detokenizer__cut_character_becomes_one_replacement(void **state)
{
    (void)state;
    Detokenizer d;
    Str out = STR_INIT;
    detokenizer_init(&d, NULL, false);
    detokenizer_add_bytes(&d, "A", 1, &out);
    detokenizer_add_bytes(&d, "\xe2\x82", 2, &out);
    assert_string_equal(str_c(&out), "A");
    detokenizer_end(&d, &out);
    assert_string_equal(str_c(&out), "A\xef\xbf\xbd");
    detokenizer_end(&d, &out); /* once only */
    assert_string_equal(str_c(&out), "A\xef\xbf\xbd");
    str_release(&out);
}

/* Every way to cut these bytes in two or three pieces gives the same text, and never half a character. */
static void detokenizer__text_does_not_depend_on_the_cut(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } rows[] = {
        {"a\xc3\xa9\xe2\x82\xac\xf0\x9f\xa6\x99z", "aé€🦙z"},
        {"\xe2\x82"
         "A\xe2\xe2\x82\xac",
         "\xef\xbf\xbd"
         "A\xef\xbf\xbd€"},
        {"\xff\x80\xf0\x9f\xa6", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80x", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        size_t len = strlen(rows[r].bytes);
        for (size_t a = 0; a <= len; a++)
            for (size_t b = a; b <= len; b++) {
                const size_t cut[4] = {0, a, b, len};
                Detokenizer d;
                Str out = STR_INIT;
                detokenizer_init(&d, NULL, false);
                for (int i = 0; i < 3; i++) {
                    detokenizer_add_bytes(&d, rows[r].bytes + cut[i], cut[i + 1] - cut[i], &out);
                    assert_true(utf8_valid(str_c(&out), out.len));
                }
                detokenizer_end(&d, &out);
                assert_string_equal(str_c(&out), rows[r].text);
                str_release(&out);
            }
    }
}

static void detokenizer__control_tokens_print_only_when_asked(void **state)
{
    (void)state;
    Tokenizer *t = fixture_tokenizer();
    TokenList l = fixture_encode(t, "a<|im_end|>b", TOK_PARSE_SPECIAL);
    Str out = STR_INIT;
    assert_true(token_list_add(&l, 1 << 20)); /* no such id: prints nothing */
    detokenize(t, l.id, l.n, false, &out);
    assert_string_equal(str_c(&out), "ab");
    str_clear(&out);
    detokenize(t, l.id, l.n, true, &out);
    assert_string_equal(str_c(&out), "a<|im_end|>b");
    str_release(&out);
    token_list_release(&l);
    tokenizer_free(t);
}

static void detokenizer__added_tokens_print_their_bare_text(void **state)
{
    (void)state;
    json_t *root = fixture_tokenizer_json();
    fixture_add_token(root, "<m>", "lstrip");
    Tokenizer *t = fixture_from_json(root, NULL);
    TokenList l = fixture_encode(t, "a  <m>  b", 0);
    Str out = STR_INIT;
    detokenize(t, l.id, l.n, false, &out);
    assert_string_equal(str_c(&out), "a<m>  b");
    str_release(&out);
    token_list_release(&l);
    tokenizer_free(t);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(detokenizer__character_over_two_tokens_comes_out_whole),
        cmocka_unit_test(detokenizer__cut_character_becomes_one_replacement),
        cmocka_unit_test(detokenizer__text_does_not_depend_on_the_cut),
        cmocka_unit_test(detokenizer__control_tokens_print_only_when_asked),
        cmocka_unit_test(detokenizer__added_tokens_print_their_bare_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
