/* Tests of the text path: tokens to deltas, stop strings, end tokens, usage, logprobs; each in both modes. */
#include "server_fixture.h"
#include <math.h>

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"

static void openai_text__answer_and_usage_on_both_routes(void **state)
{
    Fixture f;
    Said s;

    (void)state;
    fixture_start(&f, NULL);
    fixture_say(&f, 'c', "hello");
    s = ask(&f, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    assert_string_equal(str_c(&s.text), "hello");
    assert_string_equal(s.finish, "stop");
    assert_int_equal(s.prompt_tokens, 1 + 5 + 2 + 1 + 1 + 2); /* im_start user\n hi im_end \n c> */
    assert_int_equal(s.completion_tokens, 6);
    assert_int_equal(s.pieces, 5);
    said_release(&s);
    s = ask(&f, TEXT, "{\"prompt\":\"say c>\"}");
    assert_string_equal(str_c(&s.text), "hello");
    assert_int_equal(s.prompt_tokens, 6);
    assert_int_equal(s.completion_tokens, 6);
    said_release(&s);
    expect_said(&f, TEXT, "{\"prompt\":[\"c>\"]}", "hello", "stop", 6);
    expect_said(&f, TEXT, "{\"prompt\":[99,62]}", "hello", "stop", 6);
    expect_said(&f, TEXT, "{\"prompt\":[[99,62]]}", "hello", "stop", 6);
    fixture_stop(&f);
}

static void openai_text__chat_chunks_have_the_documented_form(void **state)
{
    Fixture f;
    MockChannel m;
    const char *body = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true}";
    const char *p;

    (void)state;
    fixture_start(&f, NULL);
    fixture_say(&f, 'c', "ok");
    call(&f, &m, "POST", CHAT, body, strlen(body));
    assert_string_equal(m.type, "text/event-stream");
    assert_non_null(strstr(m.headers, "Cache-Control: no-cache\n"));
    p = strstr(m.body.p, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    assert_non_null(p);
    p = strstr(p, "\"delta\":{\"content\":\"o\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
    assert_non_null(p);
    p = strstr(p, "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
    assert_non_null(p);
    assert_null(strstr(m.body.p, "usage")); /* only when it is asked for */
    assert_non_null(strstr(m.body.p, "data: {\"id\":\"chatcmpl-"));
    assert_non_null(strstr(m.body.p, "\"object\":\"chat.completion.chunk\""));
    assert_non_null(strstr(m.body.p, "\"model\":\"scripted\""));
    mock_release(&m);
    fixture_stop(&f);
}

/* C011 */
static void openai_text__character_in_two_tokens_is_one_delta(void **state)
{
    Fixture f;
    Said s;

    (void)state;
    fixture_start(&f, &(FixtureOptions){.extra = {"\xf0\x9f", "\xa6\x99", " ok"}});
    for (int i = 0; i < 3; i++)
        fixture_say_id(&f, 'c', FIX_FIRST_EXTRA + i);
    s = ask(&f, TEXT, "{\"prompt\":\"c>\"}");
    assert_string_equal(str_c(&s.text), "\xf0\x9f\xa6\x99 ok");
    assert_int_equal(s.pieces, 2);
    said_release(&s);
    fixture_stop(&f);
}

/* C012 */
static void openai_text__limit_inside_a_character_is_valid_json(void **state)
{
    Fixture f;

    (void)state;
    fixture_start(&f, &(FixtureOptions){.extra = {"\xe2\x82"}});
    fixture_say(&f, 'c', "A");
    fixture_say_id(&f, 'c', FIX_FIRST_EXTRA);
    fixture_say(&f, 'd', "next");
    expect_said(&f, TEXT, "{\"prompt\":\"c>\",\"max_tokens\":2}", "A\xef\xbf\xbd", "length", 2);
    expect_said(&f, TEXT, "{\"prompt\":\"d>\"}", "next", "stop", 5);
    fixture_stop(&f);
}

/* C014 */
static void openai_text__stop_string_over_tokens_never_shows(void **state)
{
    static const char text[] = "one two three four";
    enum { N = sizeof text - 1 };
    Fixture f;

    (void)state;
    fixture_start(&f, &(FixtureOptions){.extra = {"one ", "two", " thr", "ee four", "AB", "ST"}});
    for (int i = 0; i < 4; i++)
        fixture_say_id(&f, 'c', FIX_FIRST_EXTRA + i);
    expect_said(&f, TEXT, "{\"prompt\":\"c>\",\"stop\":[\"two three\"]}", "one ", "stop", 4);
    expect_said(&f, TEXT, "{\"prompt\":\"c>\",\"stop\":\"two three\"}", "one ", "stop", 4);
    fixture_say_id(&f, 'a', FIX_FIRST_EXTRA + 4);
    fixture_say_id(&f, 'a', FIX_FIRST_EXTRA + 5);
    expect_said(&f, TEXT, "{\"prompt\":\"a>\",\"stop\":[\"STOPPED\"]}", "ABST", "stop", 3);
    fixture_stop(&f);

    /* Every way to cut the text into three tokens. */
    for (int i = 1; i < N - 1; i++)
        for (int k = i + 1; k < N; k++) {
            char piece[3][N + 1];
            snprintf(piece[0], sizeof piece[0], "%.*s", i, text);
            snprintf(piece[1], sizeof piece[1], "%.*s", k - i, text + i);
            snprintf(piece[2], sizeof piece[2], "%s", text + k);
            fixture_start(&f, &(FixtureOptions){.extra = {piece[0], piece[1], piece[2]}});
            for (int n = 0; n < 3; n++)
                fixture_say_id(&f, 'c', FIX_FIRST_EXTRA + n);
            expect_said(&f, TEXT, "{\"prompt\":\"c>\",\"stop\":[\"two three\"]}", "one ", "stop", -1);
            fixture_stop(&f);
        }
}

/* C015: the fixture's tokenizer has two end ids, as a checkpoint whose files name different ones. */
static void openai_text__every_end_id_ends(void **state)
{
    Fixture f;

    (void)state;
    fixture_start(&f, &(FixtureOptions){.extra = {"hi", "more"}});
    fixture_say_id(&f, 'c', FIX_FIRST_EXTRA);
    fixture_say_id(&f, 'c', FIX_IM_END);
    fixture_say_id(&f, 'c', FIX_FIRST_EXTRA + 1);
    expect_said(&f, TEXT, "{\"prompt\":\"c>\"}", "hi", "stop", 2);
    expect_said(&f, TEXT, "{\"prompt\":\"c>\",\"ignore_eos\":true,\"max_tokens\":3}", "himore", "length", 3);
    /* A stop id of the request is no text either. */
    expect_said(&f, TEXT, "{\"prompt\":\"c>\",\"stop_token_ids\":[260]}", "", "stop", 1);
    fixture_stop(&f);
}

/* C048 */
static void openai_text__chat_logprobs(void **state)
{
    Fixture f;
    Said s;
    const json_t *first;

    (void)state;
    fixture_start(&f, NULL);
    fixture_say(&f, 'c', "ok");
    s = ask(&f, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":true}");
    assert_int_equal(json_array_size(s.logprobs), s.completion_tokens);
    first = json_array_get(s.logprobs, 0);
    assert_string_equal(text_at(first, "token"), "o");
    assert_true(fabs(json_number_value(json_object_get(first, "logprob"))) < 1e-3); /* logit 20 against 10 and 0 */
    assert_int_equal(json_integer_value(json_array_get(json_object_get(first, "bytes"), 0)), 'o');
    assert_int_equal(json_array_size(json_object_get(first, "top_logprobs")), 0);
    assert_true(json_is_array(json_object_get(first, "top_logprobs")));
    said_release(&s);

    s = ask(&f, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":true,\"top_logprobs\":2}");
    first = json_object_get(json_array_get(s.logprobs, 0), "top_logprobs");
    assert_int_equal(json_array_size(first), 2);
    assert_string_equal(text_at(json_array_get(first, 0), "token"), "o");
    assert_string_equal(text_at(json_array_get(first, 1), "token"), "p");
    assert_true(fabs(json_number_value(json_object_get(json_array_get(first, 1), "logprob")) + 10) < 1e-2);
    said_release(&s);
    expect_error(&f, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"top_logprobs\":2}", 400,
                 "top_logprobs", "needs \"logprobs\": true");
    fixture_stop(&f);
}

static void openai_text__completions_logprobs(void **state)
{
    Fixture f;
    Said s;

    (void)state;
    fixture_start(&f, &(FixtureOptions){.extra = {"h\xc3\xa9"}});
    fixture_say_id(&f, 'c', FIX_FIRST_EXTRA);
    fixture_say(&f, 'c', "!");
    s = ask(&f, TEXT, "{\"prompt\":\"c>\",\"logprobs\":1}");
    assert_string_equal(json_string_value(json_array_get(json_object_get(s.logprobs, "tokens"), 0)), "h\xc3\xa9");
    assert_int_equal(json_array_size(json_object_get(s.logprobs, "token_logprobs")), 3);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(s.logprobs, "text_offset"), 1)), 2);
    assert_int_equal(json_object_size(json_array_get(json_object_get(s.logprobs, "top_logprobs"), 1)), 1);
    assert_non_null(json_object_get(json_array_get(json_object_get(s.logprobs, "top_logprobs"), 1), "!"));
    said_release(&s);
    fixture_stop(&f);
}

static void openai_text__logprobs_of_half_characters_are_valid_json(void **state)
{
    Fixture f;
    Said s;

    (void)state;
    fixture_start(&f, NULL);
    fixture_say(&f, 'c', "\xc3\xa9");
    s = ask(&f, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":true,\"top_logprobs\":5}");
    assert_string_equal(str_c(&s.text), "\xc3\xa9");
    assert_string_equal(text_at(json_array_get(s.logprobs, 0), "token"), "\xef\xbf\xbd");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(json_array_get(s.logprobs, 0), "bytes"), 0)),
                     0xc3);
    said_release(&s);
    fixture_stop(&f);
}

static void openai_text__requests_override_the_default_sampling(void **state)
{
    Fixture f;

    (void)state;
    fixture_start(&f, NULL);
    fixture_say(&f, 'c', "hello");
    /* The bias moves every token of the script out of the way. */
    expect_said(&f, TEXT, "{\"prompt\":\"c>\",\"max_tokens\":2,\"logit_bias\":{\"104\":-100,\"105\":100}}", "ii",
                "length", 2);
    f.app.sampling.temperature = 2; /* so hot that the script is lost, unless the request says otherwise */
    f.app.sampling.top_k = 1;
    expect_said(&f, TEXT, "{\"prompt\":\"c>\"}", "hello", "stop", 6);
    f.app.sampling.top_k = 0;
    expect_said(&f, TEXT, "{\"prompt\":\"c>\",\"temperature\":0}", "hello", "stop", 6);
    fixture_stop(&f);
}

static void openai_text__seed_repeats_and_no_seed_does_not(void **state)
{
    Fixture f;
    Said a, b, c;
    const char *seeded = "{\"prompt\":\"q\",\"max_tokens\":20,\"temperature\":2,\"seed\":7,\"ignore_eos\":true,"
                         "\"logit_bias\":{\"257\":-100,\"258\":-100}}";
    const char *free_ = "{\"prompt\":\"q\",\"max_tokens\":20,\"temperature\":2,\"ignore_eos\":true,"
                        "\"logit_bias\":{\"257\":-100,\"258\":-100}}";

    (void)state;
    fixture_start(&f, NULL); /* no script for q: after the bias its logits are flat */
    a = ask(&f, TEXT, seeded);
    b = ask_mode(&f, TEXT, free_, false);
    c = ask_mode(&f, TEXT, free_, false);
    assert_int_equal(a.completion_tokens, 20);
    assert_string_not_equal(str_c(&b.text), str_c(&c.text));
    assert_string_not_equal(str_c(&a.text), str_c(&b.text));
    said_release(&a);
    said_release(&b);
    said_release(&c);
    fixture_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(openai_text__answer_and_usage_on_both_routes),
        cmocka_unit_test(openai_text__chat_chunks_have_the_documented_form),
        cmocka_unit_test(openai_text__character_in_two_tokens_is_one_delta),
        cmocka_unit_test(openai_text__limit_inside_a_character_is_valid_json),
        cmocka_unit_test(openai_text__stop_string_over_tokens_never_shows),
        cmocka_unit_test(openai_text__every_end_id_ends),
        cmocka_unit_test(openai_text__chat_logprobs),
        cmocka_unit_test(openai_text__completions_logprobs),
        cmocka_unit_test(openai_text__logprobs_of_half_characters_are_valid_json),
        cmocka_unit_test(openai_text__requests_override_the_default_sampling),
        cmocka_unit_test(openai_text__seed_repeats_and_no_seed_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
