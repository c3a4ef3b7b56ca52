/* server_fixture.h - an App over a scripted model, and readers of its answers.
 *
 * The tokenizer has one token for each byte, four control tokens, and the plain tokens that a test adds. The model
 * answers a prompt that ends in "x>" with script x, token by token, then with the end token; so '>' must not be in a
 * script. It reads the sequence back through the KV slots, as a real one does. */
#ifndef METRALE_TESTS_SERVER_FIXTURE_H
#define METRALE_TESTS_SERVER_FIXTURE_H
#include "core/json.h"
#include "core/utf8.h"
#include "engine/step_runner.h"
#include "mock_channel.h"
#include "server/openai.h"
#include "support/host_device.h"
#include <stdatomic.h>
#include <unistd.h>

enum { FIX_BOS = 256, FIX_EOS, FIX_IM_START, FIX_IM_END, FIX_FIRST_EXTRA, FIX_MAX_EXTRA = 40 };
enum { FIX_MAX_LEN = 64, FIX_KV_BLOCKS = 64, FIX_SEQS = 4 };

typedef struct Script {
    int32_t token[512];
    size_t n;
} Script;

typedef struct FixtureOptions {
    bool add_bos;
    uint32_t max_len, kv_blocks, queue; /* 0: defaults */
    const char *extra[FIX_MAX_EXTRA];   /* more plain tokens, NULL-terminated; ids from FIX_FIRST_EXTRA */
} FixtureOptions;

typedef struct Fixture {
    App app;
    Tokenizer *tokenizer;
    ChatTemplate *chat;
    Engine *engine;
    StepRunner runner;
    HostDevice device;
    int32_t *kv;
    Script script[256];
    atomic_bool hold;    /* steps wait */
    atomic_bool fail;    /* steps fail */
    atomic_uint step_us; /* each step takes so long */
    atomic_uint steps;
} Fixture;

static inline Status fixture_step(void *ctx, const StepInput *s, float *logits, Err *err)
{
    Fixture *f = ctx;
    uint32_t stride = (f->runner.max_len + 15) / 16;

    while (f->hold)
        usleep(500);
    if (f->step_us)
        usleep(f->step_us);
    f->steps++;
    if (f->fail)
        return err_set(err, ST_DEVICE, "the scripted device fell off");
    for (uint32_t r = 0; r < s->rows; r++)
        f->kv[s->slots[r]] = s->tokens[r];
    for (uint32_t o = 0; o < s->outs; o++) {
        uint32_t row = (uint32_t)s->out_rows[o], seq = (uint32_t)s->row_seq[row];
        int32_t last = s->positions[row], mark = -1, before = 'x', token = FIX_EOS;
        float *l = logits + (size_t)o * f->runner.vocab;

        for (int32_t p = 0; p <= last; p++) {
            int32_t t = f->kv[s->block_table[seq * stride + (uint32_t)p / 16] * 16 + p % 16];
            if (t == '>') {
                mark = p;
            } else if (mark < 0) {
                before = t;
            }
        }
        if (mark >= 0 && before < 256 && (size_t)(last - mark) < f->script[before].n)
            token = f->script[before].token[last - mark];
        for (uint32_t v = 0; v < f->runner.vocab; v++)
            l[v] = v == (uint32_t)token ? 20.0f : v == (uint32_t)token + 1 ? 10.0f : 0.0f;
    }
    return ST_OK;
}

/* One byte in the alphabet of byte-level BPE (GPT-2's bytes_to_unicode). */
static inline void fixture_add_byte(Str *out, unsigned char b)
{
    uint32_t cp = b, n = 0;
    char utf8[4];

    if (!((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174)) {
        for (unsigned k = 0; k < b; k++)
            n += !((k >= 33 && k <= 126) || (k >= 161 && k <= 172) || k >= 174);
        cp = 256 + n;
    }
    str_add(out, utf8, (size_t)utf8_encode(cp, utf8));
}

static inline Tokenizer *fixture_tokenizer(const FixtureOptions *o)
{
    static const char *const control[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>"};
    json_t *tokens = json_array(), *types = json_array(), *meta;
    Tokenizer *t = NULL;
    Err err = {""};

    for (int b = 0; b < 256; b++) {
        Str s = STR_INIT;
        fixture_add_byte(&s, (unsigned char)b);
        json_array_append_new(tokens, json_string(str_c(&s)));
        json_array_append_new(types, json_integer(1));
        str_release(&s);
    }
    for (int i = 0; i < 4; i++) {
        json_array_append_new(tokens, json_string(control[i]));
        json_array_append_new(types, json_integer(3));
    }
    for (int i = 0; o->extra[i]; i++) {
        Str s = STR_INIT;
        for (const char *p = o->extra[i]; *p; p++)
            fixture_add_byte(&s, (unsigned char)*p);
        json_array_append_new(tokens, json_string(str_c(&s)));
        json_array_append_new(types, json_integer(1));
        str_release(&s);
    }
    meta = json_pack("{s:s, s:s, s:o, s:o, s:[], s:i, s:i, s:i, s:b}", "tokenizer.ggml.model", "gpt2",
                     "tokenizer.ggml.pre", "gpt-2", "tokenizer.ggml.tokens", tokens, "tokenizer.ggml.token_type", types,
                     "tokenizer.ggml.merges", "tokenizer.ggml.bos_token_id", FIX_BOS, "tokenizer.ggml.eos_token_id",
                     FIX_EOS, "tokenizer.ggml.eot_token_id", FIX_IM_END, "tokenizer.ggml.add_bos_token", o->add_bos);
    assert_non_null(meta);
    if (tokenizer_from_gguf(&t, meta, &err) != ST_OK)
        fail_msg("%s", err.msg);
    json_decref(meta);
    return t;
}

#define FIXTURE_TEMPLATE                                                                                               \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"                         \
    "{% if add_generation_prompt %}c>{% endif %}"

/* Another template, until fixture_stop. */
static inline void fixture_template(Fixture *f, const char *source)
{
    Err err = {""};

    chat_template_free(f->chat);
    if (chat_template_new(&f->chat, source, strlen(source), "template", &err) != ST_OK)
        fail_msg("%s", err.msg);
    f->app.chat = f->chat;
}

static inline void fixture_init(Fixture *f, const FixtureOptions *options)
{
    static const FixtureOptions none = {.add_bos = false};
    const FixtureOptions *o = options ? options : &none;
    Err err = {""};

    memset(f, 0, sizeof *f);
    f->tokenizer = fixture_tokenizer(o);
    f->runner = (StepRunner){.max_rows = 32,
                             .max_outs = FIX_SEQS,
                             .max_seqs = FIX_SEQS,
                             .max_len = o->max_len ? o->max_len : FIX_MAX_LEN,
                             .kv_blocks = o->kv_blocks ? o->kv_blocks : FIX_KV_BLOCKS,
                             .vocab = (uint32_t)tokenizer_vocab_size(f->tokenizer)};
    host_device_init(&f->device, &f->runner, false, fixture_step, f);
    f->kv = calloc(f->runner.kv_blocks * 16u, sizeof *f->kv);
    assert_non_null(f->kv);
    if (engine_new_with_runner(&f->engine, &f->runner, clock_system(),
                               &(EngineOptions){.queue_len = o->queue ? o->queue : 8}, NULL, &err) != ST_OK)
        fail_msg("%s", err.msg);
    f->app.engine = f->engine;
    f->app.tokenizer = f->tokenizer;
    fixture_template(f, FIXTURE_TEMPLATE);
    f->app.model_id = "scripted";
    f->app.clock = clock_system();
    f->app.started_s = 1700000000;
    sampling_defaults(&f->app.sampling);
    f->app.sampling.temperature = 0;
    f->app.max_len = f->runner.max_len < f->runner.kv_blocks * 16 ? f->runner.max_len : f->runner.kv_blocks * 16;
    f->app.vocab = f->runner.vocab;
    f->app.seed = 42;
}

static inline void fixture_start(Fixture *f, const FixtureOptions *options)
{
    Err err = {""};

    fixture_init(f, options);
    if (engine_start(f->engine, &err) != ST_OK)
        fail_msg("%s", err.msg);
}

static inline void fixture_stop(Fixture *f)
{
    engine_stop(f->engine, 0);
    engine_free(f->engine);
    chat_template_free(f->chat);
    tokenizer_free(f->tokenizer);
    free(f->kv);
    host_device_release(&f->device);
}

/* Script of prompts that end in "x>": the bytes of text, and then what else is added. */
static inline void fixture_say(Fixture *f, char x, const char *text)
{
    Script *s = &f->script[(unsigned char)x];
    for (const char *p = text; *p; p++)
        s->token[s->n++] = (unsigned char)*p;
}

static inline void fixture_say_id(Fixture *f, char x, int32_t id)
{
    Script *s = &f->script[(unsigned char)x];
    s->token[s->n++] = id;
}

/* ---- calls -------------------------------------------------------------------------------------------------------- */

static inline void call(Fixture *f, MockChannel *m, const char *method, const char *path, const char *body, size_t len)
{
    HttpRequest req = {.method = method, .path = path, .body = body, .len = len};

    mock_init(m);
    openai_handle(&f->app, &req, &m->base);
    assert_true(m->status != 0 || m->gone);
    assert_true(utf8_valid(str_c(&m->body), m->body.len));
}

/* Unlike requests, answers may hold NUL characters: a token may stand for one. */
static inline json_t *parse_answer(const char *text, size_t len)
{
    json_error_t e;
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);

    if (!j)
        fail_msg("%s in %.*s", e.text, (int)len, text);
    return j;
}

/* A whole answer as JSON, the status in *status. */
static inline json_t *call_json(Fixture *f, const char *method, const char *path, const char *body, int *status)
{
    MockChannel m;
    json_t *j;

    call(f, &m, method, path, body ? body : "", body ? strlen(body) : 0);
    assert_string_equal(m.type, "application/json");
    j = parse_answer(str_c(&m.body), m.body.len);
    *status = m.status;
    mock_release(&m);
    return j;
}

static inline const char *text_at(const json_t *j, const char *dotted)
{
    const json_t *v = json_at(j, dotted);
    return json_is_string(v) ? json_string_value(v) : "(none)";
}

/* Expects an error of this status and param ("" for none) whose message holds text. */
static inline void expect_error(Fixture *f, const char *path, const char *body, int status, const char *param,
                                const char *text)
{
    int got;
    json_t *j = call_json(f, "POST", path, body, &got);
    const json_t *p = json_at(j, "error.param");

    if (got != status)
        fail_msg("%s: status %d, expected %d: %s", body, got, status, text_at(j, "error.message"));
    if (!strstr(text_at(j, "error.message"), text))
        fail_msg("%s: message \"%s\" lacks \"%s\"", body, text_at(j, "error.message"), text);
    if (strcmp(json_is_string(p) ? json_string_value(p) : "", param) != 0)
        fail_msg("%s: param is %s, expected %s", body, json_is_string(p) ? json_string_value(p) : "null", param);
    assert_true(json_is_string(json_at(j, "error.type")));
    assert_non_null(json_at(j, "error.code"));
    json_decref(j);
}

/* What an answer says, of either mode. */
typedef struct Said {
    Str text;
    char finish[16];
    long long prompt_tokens, completion_tokens, total_tokens;
    json_t *logprobs; /* the list "content", or completions' object; NULL: none */
    int pieces;       /* chunks with text */
    bool done, broken;
    char error[256];
} Said;

static inline void said_release(Said *s)
{
    str_release(&s->text);
    json_decref(s->logprobs);
}

static inline void said_usage(Said *s, const json_t *usage)
{
    s->prompt_tokens = json_integer_value(json_object_get(usage, "prompt_tokens"));
    s->completion_tokens = json_integer_value(json_object_get(usage, "completion_tokens"));
    s->total_tokens = json_integer_value(json_object_get(usage, "total_tokens"));
}

static inline void said_logprobs(Said *s, json_t *v)
{
    const char *key;
    json_t *list;

    if (!json_is_object(v))
        return;
    if (json_object_get(v, "content"))
        v = json_object_get(v, "content");
    if (!s->logprobs) {
        s->logprobs = json_deep_copy(v);
    } else if (json_is_array(v)) {
        json_array_extend(s->logprobs, v);
    } else {
        json_object_foreach(v, key, list) json_array_extend(json_object_get(s->logprobs, key), list);
    }
}

/* One choice of either mode and route. */
static inline void said_choice(Said *s, const json_t *choice)
{
    static const char *const paths[] = {"text", "message.content", "delta.content"};

    for (int i = 0; i < 3; i++) {
        const json_t *v = json_at(choice, paths[i]);
        if (json_is_string(v)) {
            assert_null(strstr(json_string_value(v), "<|"));
            str_add(&s->text, json_string_value(v), json_string_length(v));
            s->pieces += json_string_length(v) > 0;
        }
    }
    if (json_is_string(json_object_get(choice, "finish_reason")))
        snprintf(s->finish, sizeof s->finish, "%s", text_at(choice, "finish_reason"));
    said_logprobs(s, json_object_get(choice, "logprobs"));
}

/* Reads server-sent events; each is one line `data: ...` with an empty line behind it. */
static inline void said_events(Said *s, const char *body)
{
    while (*body) {
        const char *end = strstr(body, "\n\n");
        json_t *j;

        if (!end) {
            s->broken = true;
            return;
        }
        assert_true(str_starts(body, "data: "));
        assert_false(s->done);
        body += 6;
        if (str_starts(body, "[DONE]")) {
            s->done = true;
        } else {
            j = parse_answer(body, (size_t)(end - body));
            if (json_object_get(j, "error")) {
                snprintf(s->error, sizeof s->error, "%s", text_at(j, "error.message"));
            } else {
                json_t *choices = json_object_get(j, "choices");
                assert_true(json_is_array(choices));
                if (json_array_size(choices))
                    said_choice(s, json_array_get(choices, 0));
                if (json_is_object(json_object_get(j, "usage")))
                    said_usage(s, json_object_get(j, "usage"));
            }
            json_decref(j);
        }
        body = end + 2;
    }
}

static inline Said ask_mode(Fixture *f, const char *path, const char *body, bool stream)
{
    Said s = {.logprobs = NULL};
    MockChannel m;
    Err err = {""};
    json_t *j = NULL;
    char *text;

    assert_int_equal(json_parse(body, strlen(body), "test", &j, &err), ST_OK);
    if (stream)
        json_object_update_new(j, json_pack("{s:b, s:{s:b}}", "stream", 1, "stream_options", "include_usage", 1));
    text = json_dumps(j, 0);
    json_decref(j);
    call(f, &m, "POST", path, text, strlen(text));
    free(text);
    if (m.status != 200)
        fail_msg("%s: status %d: %s", body, m.status, str_c(&m.body));
    if (stream) {
        assert_string_equal(m.type, "text/event-stream");
        assert_int_equal(m.len, -1);
        said_events(&s, str_c(&m.body));
    } else {
        j = parse_answer(m.body.p, m.body.len);
        said_choice(&s, json_array_get(json_object_get(j, "choices"), 0));
        said_usage(&s, json_object_get(j, "usage"));
        json_decref(j);
    }
    mock_release(&m);
    return s;
}

/* Asks in both modes, which must agree in all they say. */
static inline Said ask(Fixture *f, const char *path, const char *body)
{
    Said whole = ask_mode(f, path, body, false), streamed = ask_mode(f, path, body, true);

    assert_true(streamed.done && !streamed.broken);
    assert_string_equal(streamed.error, "");
    assert_string_equal(str_c(&whole.text), str_c(&streamed.text));
    assert_int_equal(whole.text.len, streamed.text.len);
    assert_string_equal(whole.finish, streamed.finish);
    assert_int_equal(whole.prompt_tokens, streamed.prompt_tokens);
    assert_int_equal(whole.completion_tokens, streamed.completion_tokens);
    assert_int_equal(whole.total_tokens, whole.prompt_tokens + whole.completion_tokens);
    assert_int_equal(streamed.total_tokens, whole.total_tokens);
    assert_true(whole.logprobs ? json_equal(whole.logprobs, streamed.logprobs) : !streamed.logprobs);
    whole.pieces = streamed.pieces;
    said_release(&streamed);
    return whole;
}

static inline void expect_said(Fixture *f, const char *path, const char *body, const char *text, const char *finish,
                               long long completion_tokens)
{
    Said s = ask(f, path, body);

    assert_string_equal(str_c(&s.text), text);
    assert_string_equal(s.finish, finish);
    if (completion_tokens >= 0)
        assert_int_equal(s.completion_tokens, completion_tokens);
    said_release(&s);
}
#endif
