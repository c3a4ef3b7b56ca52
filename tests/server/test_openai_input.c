/* Tests of what the routes refuse, and of how: a 400 that names the field, no step run, and the next good request
 * served. */
#include "core/clock.h"
#include "server_fixture.h"

#define CHAT  "/v1/chat/completions"
#define TEXT  "/v1/completions"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void begin(Fixture *f)
{
    fixture_start(f, NULL);
    fixture_say(f, 'c', "fine");
}

/* The server is as well as before. */
static void end(Fixture *f)
{
    expect_said(f, TEXT, "{\"prompt\":\"c>\"}", "fine", "stop", 5);
    fixture_stop(f);
}

static void openai_input__types_are_checked_by_name(void **state)
{
    static const struct {
        const char *fields, *param;
    } cases[] = {
        {"\"temperature\":\"hot\"", "temperature"},
        {"\"temperature\":[1]", "temperature"},
        {"\"top_k\":1.5", "top_k"},
        {"\"top_k\":-2", "top_k"},
        {"\"max_tokens\":\"7\"", "max_tokens"},
        {"\"max_tokens\":0", "max_tokens"},
        {"\"max_completion_tokens\":-1", "max_completion_tokens"},
        {"\"seed\":1.5", "seed"},
        {"\"stream\":1", "stream"},
        {"\"stream_options\":true", "stream_options"},
        {"\"stream_options\":{\"include_usage\":1}", "include_usage"},
        {"\"stop\":7", "stop"},
        {"\"stop\":[\"a\",7]", "stop"},
        {"\"stop\":\"\"", "stop"},
        {"\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\",\"15\","
         "\"16\",\"17\"]",
         "stop"},
        {"\"model\":5", "model"},
        {"\"ignore_eos\":\"yes\"", "ignore_eos"},
        {"\"logit_bias\":[1]", "logit_bias"},
        {"\"logit_bias\":{\"5\":101}", "logit_bias"},
        {"\"logit_bias\":{\"5\":\"1\"}", "logit_bias"},
        {"\"stop_token_ids\":5", "stop_token_ids"},
        {"\"response_format\":{\"type\":\"json_object\"}", "response_format"},
        {"\"tools\":[{}]", "tools"},
        {"\"best_of\":2", "best_of"},
    };
    Fixture f;

    (void)state;
    begin(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[400];
        snprintf(body, sizeof body, "{\"prompt\":\"c>\",%s}", cases[i].fields);
        expect_error(&f, TEXT, body, 400, cases[i].param, cases[i].param);
        snprintf(body, sizeof body, "{" HELLO ",%s}", cases[i].fields);
        expect_error(&f, CHAT, body, 400, cases[i].param, cases[i].param);
    }
    assert_int_equal(f.steps, 0);
    end(&f);
}

static void openai_input__null_is_absent_and_unknown_fields_are_ignored(void **state)
{
    Fixture f;

    (void)state;
    begin(&f);
    expect_said(
        &f, TEXT,
        "{\"prompt\":\"c>\",\"temperature\":null,\"n\":null,\"stop\":null,\"logit_bias\":null,\"max_tokens\":null,"
        "\"logprobs\":null,\"echo\":null,\"suffix\":null,\"user\":\"me\",\"model\":\"gpt-9\",\"zig\":{}}",
        "fine", "stop", 5);
    expect_said(&f, CHAT, "{" HELLO ",\"tools\":[],\"response_format\":{\"type\":\"text\"},\"n\":1,\"seed\":-3}",
                "fine", "stop", 5);
    end(&f);
}

/* C054 */
static void openai_input__non_finite_and_out_of_range_numbers(void **state)
{
    static const char *const fields[] = {"temperature",       "top_p", "min_p", "presence_penalty", "frequency_penalty",
                                         "repetition_penalty"};
    static const char *const values[] = {"1e999", "-1e999", "\"nan\"", "-2.5", "1e300", "-1e300"};
    static const struct {
        const char *field, *param;
    } ranges[] = {{"\"top_p\":0", "top_p"},
                  {"\"top_p\":-0.1", "top_p"},
                  {"\"top_p\":1.1", "top_p"},
                  {"\"min_p\":1", "min_p"},
                  {"\"min_p\":-0.1", "min_p"},
                  {"\"n\":100000", "n"},
                  {"\"n\":0", "n"},
                  {"\"n\":-1", "n"},
                  {"\"temperature\":2.01", "temperature"},
                  {"\"n\":1e999", "n"},
                  {"\"n\":2", "n"},
                  {"\"repetition_penalty\":0", "repetition_penalty"},
                  {"\"seed\":99999999999999999999", "seed"}};
    Fixture f;
    char body[200];

    (void)state;
    begin(&f);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            snprintf(body, sizeof body, "{\"prompt\":\"c>\" , \"%s\" : %s }", fields[i], values[k]);
            expect_error(&f, TEXT, body, 400, fields[i], fields[i]);
        }
        snprintf(body, sizeof body, "{\"prompt\":\"c>\",\"%s\":NaN}", fields[i]); /* no JSON at all */
        expect_error(&f, TEXT, body, 400, "", "request body:1:");
    }
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        uint64_t t = clock_ns(clock_system());
        snprintf(body, sizeof body, "{\"prompt\":\"c>\",%s}", ranges[i].field);
        expect_error(&f, TEXT, body, 400, ranges[i].param, ranges[i].param);
        assert_true(clock_ns(clock_system()) - t < 50000000u);
    }
    assert_int_equal(f.steps, 0);
    end(&f);
}

static void *stream_neighbour(void *arg)
{
    Fixture *f = arg;
    Said *s = malloc(sizeof *s);

    assert_non_null(s);
    *s = ask_mode(f, TEXT, "{\"prompt\":\"n>\",\"max_tokens\":40}", true);
    return s;
}

/* C056 */
static void openai_input__foreign_token_ids_harm_no_neighbour(void **state)
{
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{\"prompt\":\"c>\",\"logit_bias\":{\"999999999\":5}}", "logit_bias"},
        {"{\"prompt\":\"c>\",\"logit_bias\":{\"-1\":5}}", "logit_bias"},
        {"{\"prompt\":\"c>\",\"logit_bias\":{\"AI\":5}}", "logit_bias"},
        {"{\"prompt\":\"c>\",\"logit_bias\":{\"\":5}}", "logit_bias"},
        {"{\"prompt\":\"c>\",\"logit_bias\":{\"99999999999999999999\":5}}", "logit_bias"},
        {"{\"prompt\":\"c>\",\"stop_token_ids\":[260]}", "stop_token_ids"},
        {"{\"prompt\":\"c>\",\"stop_token_ids\":[-1]}", "stop_token_ids"},
        {"{\"prompt\":[260]}", "prompt"},
        {"{\"prompt\":[-1]}", "prompt"},
        {"{\"prompt\":[1,\"a\"]}", "prompt"},
        {"{\"prompt\":[4294967296]}", "prompt"},
    };
    Fixture f;
    pthread_t t;
    void *said;

    (void)state;
    begin(&f);
    fixture_say(&f, 'n', "undisturbed to the end");
    f.step_us = 5000;
    pthread_create(&t, NULL, stream_neighbour, &f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(&f, TEXT, cases[i].body, 400, cases[i].param, cases[i].param);
    pthread_join(t, &said);
    assert_string_equal(str_c(&((Said *)said)->text), "undisturbed to the end");
    assert_true(((Said *)said)->done);
    said_release(said);
    free(said);
    f.step_us = 0;
    end(&f);
}

/* C057 */
static void openai_input__empty_prompts(void **state)
{
    static const char *const prompts[] = {"\"\"", "[\"\"]", "[]", "[[]]"};
    Fixture f;
    char body[64];
    Said s;

    (void)state;
    begin(&f);
    for (int i = 0; i < 4; i++) {
        snprintf(body, sizeof body, "{\"prompt\":%s}", prompts[i]);
        expect_error(&f, TEXT, body, 400, "prompt", "prompt: is");
        expect_said(&f, TEXT, "{\"prompt\":\"c>\"}", "fine", "stop", 5);
    }
    expect_error(&f, TEXT, "{}", 400, "prompt", "prompt: is missing");
    expect_error(&f, TEXT, "{\"prompt\":7}", 400, "prompt", "prompt: must be");
    expect_error(&f, TEXT, "{\"prompt\":[\"a\",\"b\"]}", 400, "prompt", "only one prompt");
    expect_error(&f, CHAT, "{\"messages\":[]}", 400, "messages", "messages: is empty");
    expect_error(&f, CHAT, "{}", 400, "messages", "messages: must be a list");
    expect_error(&f, CHAT, "{\"messages\":[7]}", 400, "messages", "messages[0]");
    expect_error(&f, CHAT, "{\"messages\":[{\"content\":\"x\"}]}", 400, "messages", "messages[0]");
    expect_error(&f, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":7}]}", 400, "messages",
                 "messages[0].content");
    expect_error(&f, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
                 "messages", "messages[0].content[0]");
    end(&f);

    fixture_start(&f, &(FixtureOptions){.add_bos = true});
    s = ask(&f, TEXT, "{\"prompt\":\"\"}");
    assert_int_equal(s.prompt_tokens, 1);
    said_release(&s);
    fixture_stop(&f);
}

/* C058: an answer ends where the window is full, whatever max_tokens asks for; a prompt that leaves no room is
 * refused. */
static void openai_input__prompts_longer_than_the_window(void **state)
{
    Fixture f;
    char prompt[600], body[700];
    int status;
    json_t *j;

    (void)state;
    begin(&f);
    fixture_say(&f, 'w', "0123456789");
    memset(prompt, 'w', sizeof prompt);
    snprintf(body, sizeof body, "{\"prompt\":\"%.70s\"}", prompt);
    j = call_json(&f, "POST", TEXT, body, &status);
    assert_int_equal(status, 400);
    assert_string_equal(text_at(j, "error.code"), "context_length_exceeded");
    assert_non_null(strstr(text_at(j, "error.message"), "70 tokens"));
    assert_non_null(strstr(text_at(j, "error.message"), "at most 64"));
    json_decref(j);
    assert_int_equal(f.steps, 0);

    snprintf(body, sizeof body, "{\"prompt\":\"%.59s>\"}", prompt);
    expect_said(&f, TEXT, body, "0123", "length", 4);
    snprintf(body, sizeof body, "{\"prompt\":\"%.59s>\",\"max_tokens\":10}", prompt);
    expect_said(&f, TEXT, body, "0123", "length", 4);
    /* The chat route: 10 tokens of the template around the content. */
    fixture_say(&f, 'c', " and so on");
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%.50s\"}],\"max_tokens\":10}", prompt);
    expect_said(&f, CHAT, body, "fine", "length", 4);
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%.60s\"}]}", prompt);
    expect_error(&f, CHAT, body, 400, "messages", "70 tokens");
    fixture_stop(&f);

    fixture_start(&f, &(FixtureOptions){.max_len = 1000, .kv_blocks = 13});
    fixture_say(&f, 'c', "fine");
    snprintf(body, sizeof body, "{\"prompt\":\"%.500s\"}", prompt);
    expect_error(&f, TEXT, body, 400, "prompt", "at most 208");
    end(&f);
}

/* C089: input that is not UTF-8, lone surrogates and NUL are refused; the error is valid JSON. */
static void openai_input__broken_unicode(void **state)
{
    static const struct {
        const char *text;
        size_t len;
    } bodies[] = {
        {"{\"prompt\":\"c>\xff\xfe\"}", 16},
        {"{\"prompt\":\"c>\\ud83d\"}", 20},
        {"{\"prompt\":\"c>\\ude48\"}", 20},
        {"{\"prompt\":\"c>\\u0000\"}", 20},
        {"{\0\"\0p\0\"\0:\0\"\0x\0\"\0}\0", 18},
        {"\xff\xfe{\0}\0", 6},
        {"{\"prompt\":\"\xed\xa0\xbd\"}", 16},
        {"{\"prompt\":\"c>\"", 14},
        {"", 0},
        {"[]", 2},
        {"7", 1},
        {"{\"prompt\":\"c>\",\"prompt\":\"c>\"}", 29},
    };
    Fixture f;

    (void)state;
    begin(&f);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        MockChannel m;
        json_t *j;

        call(&f, &m, "POST", TEXT, bodies[i].text, bodies[i].len);
        assert_int_equal(m.status, 400);
        assert_null(memchr(m.body.p, 0xff, m.body.len));
        j = parse_answer(m.body.p, m.body.len);
        assert_non_null(strstr(text_at(j, "error.message"), "request body"));
        json_decref(j);
        mock_release(&m);
    }
    expect_said(&f, TEXT, "{\"prompt\":\"\\ud83d\\ude48c>\",\"stop\":[\"\\ud83d\\ude48\"]}", "fine", "stop", 5);
    assert_int_equal(f.steps > 0, 1);
    end(&f);
}

static void openai_input__deep_and_wide_json_is_refused(void **state)
{
    Fixture f;
    Str body = STR_INIT;

    (void)state;
    begin(&f);
    str_adds(&body, "{\"prompt\":");
    for (int i = 0; i < 100000; i++)
        str_addc(&body, '[');
    expect_error(&f, TEXT, body.p, 400, "", "nested deeper");
    str_clear(&body);
    str_adds(&body, "{\"prompt\":\"c>\",\"logit_bias\":{\"0\":0");
    for (int i = 1; i < 2000; i++)
        str_addf(&body, ",\"%d\":0", i);
    str_adds(&body, "}}");
    expect_error(&f, TEXT, body.p, 400, "logit_bias", "over 1024");
    str_release(&body);
    end(&f);
}

static void openai_input__features_that_are_not_here_are_named(void **state)
{
    Fixture f;

    (void)state;
    begin(&f);
    expect_error(&f, TEXT, "{\"prompt\":\"c>\",\"echo\":true}", 400, "echo", "echo: is not supported");
    expect_error(&f, TEXT, "{\"prompt\":\"c>\",\"suffix\":\"x\"}", 400, "suffix", "suffix: is not supported");
    expect_error(&f, TEXT, "{\"prompt\":\"c>\",\"logprobs\":21}", 400, "logprobs", "from 0 to 20");
    expect_error(&f, TEXT, "{\"prompt\":\"c>\",\"logprobs\":true}", 400, "logprobs", "must be an integer");
    expect_error(&f, CHAT, "{" HELLO ",\"logprobs\":1}", 400, "logprobs", "must be true or false");
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(openai_input__types_are_checked_by_name),
        cmocka_unit_test(openai_input__null_is_absent_and_unknown_fields_are_ignored),
        cmocka_unit_test(openai_input__non_finite_and_out_of_range_numbers),
        cmocka_unit_test(openai_input__foreign_token_ids_harm_no_neighbour),
        cmocka_unit_test(openai_input__empty_prompts),
        cmocka_unit_test(openai_input__prompts_longer_than_the_window),
        cmocka_unit_test(openai_input__broken_unicode),
        cmocka_unit_test(openai_input__deep_and_wide_json_is_refused),
        cmocka_unit_test(openai_input__features_that_are_not_here_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
