/* openai_completions.c - POST /v1/completions: a prompt as text or ids, continued. */
#include "server/answer.h"
#include "server/json_write.h"
#include "server/openai.h"
#include <string.h>

enum { DEFAULT_MAX_TOKENS = 16 }; /* OpenAI's, for this route alone */

static void write_text(Str *out, const char *text, size_t len)
{
    str_adds(out, "\"text\":");
    json_write_string(out, text, len);
}

static void write_closing(Str *out)
{
    str_adds(out, "\"text\":\"\"");
}

static void write_logprobs(Str *out, const Tokenizer *t, const AnswerToken *tokens, size_t n)
{
    str_adds(out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        str_adds(out, i ? "," : "");
        answer_write_token(out, t, tokens[i].id);
    }
    str_adds(out, "],\"token_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        str_adds(out, i ? "," : "");
        json_write_float(out, tokens[i].logprob);
    }
    /* Two ids of one spelling would be one key twice; the better one, which comes first, is what readers keep or not:
     * so only it is written. */
    str_adds(out, "],\"top_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        str_adds(out, i ? ",{" : "{");
        for (uint32_t k = 0; k < tokens[i].n_top; k++) {
            size_t len, other_len;
            const char *text = tokenizer_token(t, tokens[i].top[k].token, &len);
            bool twice = false;

            for (uint32_t j = 0; j < k && !twice; j++) {
                const char *other = tokenizer_token(t, tokens[i].top[j].token, &other_len);
                twice = len == other_len && (len == 0 || memcmp(text, other, len) == 0);
            }
            if (twice)
                continue;
            str_adds(out, k ? "," : "");
            answer_write_token(out, t, tokens[i].top[k].token);
            str_addc(out, ':');
            json_write_float(out, tokens[i].top[k].logprob);
        }
        str_addc(out, '}');
    }
    str_adds(out, "],\"text_offset\":[");
    for (size_t i = 0; i < n; i++)
        str_addf(out, "%s%zu", i ? "," : "", tokens[i].offset);
    str_adds(out, "]}");
}

static const AnswerFormat completions_format = {
    .id_prefix = "cmpl-",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .prompt_field = "prompt",
    .whole = write_text,
    .piece = write_text,
    .closing = write_closing,
    .logprobs = write_logprobs,
};

static Status encode_text(App *app, const json_t *text, TokenList *out, ApiError *e)
{
    const char *s = json_string_value(text);
    size_t len = json_string_length(text), bos_len;
    const char *bos = tokenizer_token(app->tokenizer, tokenizer_bos(app->tokenizer), &bos_len);
    Status st = tokenizer_encode(app->tokenizer, s, len, TOK_PARSE_SPECIAL | TOK_ADD_BOS, out, &e->err);

    if (st != ST_OK)
        return api_error_of(e, st, "invalid_value", "prompt");
    if (out->n == 0)
        return api_error_set(e, ST_INVALID, "invalid_value", "prompt",
                             "prompt: is empty, and this model has no start token to begin from; give some text");
    if (bos_len > 0 && len >= bos_len && memcmp(s, bos, bos_len) == 0 && tokenizer_adds_bos(app->tokenizer) &&
        !atomic_exchange(&app->told_bos, true))
        log_info(app->log, "a prompt spells the start token that the model adds itself; such prompts get one, not two");
    return ST_OK;
}

static Status copy_ids(const App *app, const json_t *ids, TokenList *out, ApiError *e)
{
    const json_t *id;
    size_t i;

    json_array_foreach(ids, i, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= app->vocab)
            return api_error_set(e, ST_INVALID, "invalid_value", "prompt", "prompt[%zu]: must be a token id, 0 to %u",
                                 i, app->vocab - 1);
        if (!token_list_add(out, (int32_t)json_integer_value(id)))
            return api_error_set(e, ST_NOMEM, NULL, NULL, "out of memory for a request");
    }
    return ST_OK;
}

/* "text", ["text"], [1, 2] or [[1, 2]]. */
static Status read_prompt(App *app, const json_t *prompt, TokenList *out, ApiError *e)
{
    const json_t *first = json_array_get(prompt, 0);

    if (!prompt)
        return api_error_set(e, ST_INVALID, "missing", "prompt", "prompt: is missing; give text or token ids");
    if (json_is_string(prompt))
        return encode_text(app, prompt, out, e);
    if (!json_is_array(prompt))
        return api_error_set(e, ST_INVALID, "invalid_type", "prompt", "prompt: must be text or a list of token ids");
    if (json_is_string(first) || json_is_array(first)) {
        if (json_array_size(prompt) > 1)
            return api_error_set(e, ST_INVALID, "unsupported", "prompt",
                                 "prompt: only one prompt a request is supported; send one request for each");
        if (json_is_string(first))
            return encode_text(app, first, out, e);
        prompt = first;
    }
    if (json_array_size(prompt) == 0)
        return api_error_set(e, ST_INVALID, "invalid_value", "prompt", "prompt: is an empty list; give some tokens");
    return copy_ids(app, prompt, out, e);
}

/* Fields of this route that ask for another answer than the one that would come. */
static Status refuse_missing_features(const json_t *body, ApiError *e)
{
    bool echo = false;
    const json_t *suffix = params_get(body, "suffix");
    Status st = params_bool(body, "echo", &echo, e);

    if (st == ST_OK && echo)
        st = api_error_set(e, ST_INVALID, "unsupported", "echo",
                           "echo: is not supported; leave it out and put the prompt in front yourself");
    if (st == ST_OK && suffix && !(json_is_string(suffix) && json_string_length(suffix) == 0))
        st = api_error_set(e, ST_INVALID, "unsupported", "suffix", "suffix: is not supported; leave it out");
    return st;
}

static Status read_logprobs(const json_t *body, Params *p, ApiError *e)
{
    int64_t n_top = 0;
    Status st = params_int(body, "logprobs", 0, ENGINE_MAX_TOP_LOGPROBS, &n_top, e);

    p->logprobs = params_get(body, "logprobs") != NULL;
    p->n_top = (uint32_t)n_top;
    return st;
}

void openai_completions(App *app, const HttpRequest *req, Channel *ch)
{
    Status st = ST_OK;
    ApiError e;
    json_t *body = NULL;
    Arena *arena = arena_new();
    TokenList prompt = TOKEN_LIST_INIT;
    Params p;

    if (!arena)
        TRY(api_error_set(&e, ST_NOMEM, NULL, NULL, "out of memory for a request"));
    TRY(params_body(req->body, req->len, &body, &e));
    TRY(params_read(app, body, arena, &p, &e));
    TRY(refuse_missing_features(body, &e));
    TRY(read_logprobs(body, &p, &e));
    TRY(read_prompt(app, params_get(body, "prompt"), &prompt, &e));
    if (p.max_tokens == 0)
        p.max_tokens = DEFAULT_MAX_TOKENS;
    params_body_release(&body, req->len);
    answer_run(app, ch, &completions_format, &prompt, &p);
done:
    if (st != ST_OK)
        api_error_send(&e, ch);
    token_list_release(&prompt);
    params_body_release(&body, req->len);
    arena_free(arena);
}
