/* openai_chat.c - POST /v1/chat/completions: messages through the model's template to ids, the answer as a message. */
#include "server/answer.h"
#include "server/json_write.h"
#include "server/openai.h"
#include <string.h>

static void write_whole(Str *out, const char *text, size_t len)
{
    str_adds(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    json_write_string(out, text, len);
    str_adds(out, ",\"refusal\":null}");
}

static void write_opening(Str *out)
{
    str_adds(out, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
}

static void write_piece(Str *out, const char *text, size_t len)
{
    str_adds(out, "\"delta\":{\"content\":");
    json_write_string(out, text, len);
    str_addc(out, '}');
}

static void write_closing(Str *out)
{
    str_adds(out, "\"delta\":{}");
}

/* {"token":..,"logprob":..,"bytes":[..] without the closing brace. */
static void write_token(Str *out, const Tokenizer *t, int32_t id, float logprob)
{
    size_t len;
    const char *bytes = tokenizer_token(t, id, &len);

    str_adds(out, "{\"token\":");
    answer_write_token(out, t, id);
    str_adds(out, ",\"logprob\":");
    json_write_float(out, logprob);
    str_adds(out, ",\"bytes\":");
    json_write_bytes(out, bytes, len);
}

static void write_logprobs(Str *out, const Tokenizer *t, const AnswerToken *tokens, size_t n)
{
    str_adds(out, "{\"content\":[");
    for (size_t i = 0; i < n; i++) {
        str_adds(out, i ? "," : "");
        write_token(out, t, tokens[i].id, tokens[i].logprob);
        str_adds(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < tokens[i].n_top; k++) {
            str_adds(out, k ? "," : "");
            write_token(out, t, tokens[i].top[k].token, tokens[i].top[k].logprob);
            str_addc(out, '}');
        }
        str_adds(out, "]}");
    }
    str_adds(out, "],\"refusal\":null}");
}

static const AnswerFormat chat_format = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .prompt_field = "messages",
    .whole = write_whole,
    .opening = write_opening,
    .piece = write_piece,
    .closing = write_closing,
    .logprobs = write_logprobs,
};

static Status read_logprobs(const json_t *body, Params *p, ApiError *e)
{
    int64_t n_top = 0;
    Status st = params_bool(body, "logprobs", &p->logprobs, e);

    if (st == ST_OK)
        st = params_int(body, "top_logprobs", 0, ENGINE_MAX_TOP_LOGPROBS, &n_top, e);
    if (st == ST_OK && params_get(body, "top_logprobs") && !p->logprobs)
        st = api_error_set(e, ST_INVALID, "invalid_value", "top_logprobs", "top_logprobs: needs \"logprobs\": true");
    p->n_top = (uint32_t)n_top;
    return st;
}

/* What every template may rely on: a list of objects with a role and a content of a known kind. */
static Status check_messages(const json_t *messages, ApiError *e)
{
    const json_t *m, *content, *part;
    size_t i, k;

    if (!json_is_array(messages))
        return api_error_set(e, ST_INVALID, "invalid_type", "messages", "messages: must be a list of messages");
    if (json_array_size(messages) == 0)
        return api_error_set(e, ST_INVALID, "invalid_value", "messages", "messages: is empty; give at least one");
    json_array_foreach(messages, i, m)
    {
        if (!json_is_string(json_object_get(m, "role")))
            return api_error_set(e, ST_INVALID, "invalid_type", "messages",
                                 "messages[%zu]: must be an object with a text \"role\"", i);
        content = params_get(m, "content");
        if (content && !json_is_string(content) && !json_is_array(content))
            return api_error_set(e, ST_INVALID, "invalid_type", "messages",
                                 "messages[%zu].content: must be text, a list of parts, or null", i);
        if (!json_is_array(content))
            continue;
        json_array_foreach(content, k, part)
        {
            const json_t *type = json_object_get(part, "type");
            if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0)
                return api_error_set(e, ST_INVALID, "unsupported", "messages",
                                     "messages[%zu].content[%zu]: only parts of \"type\": \"text\" are supported", i,
                                     k);
            if (!json_is_string(json_object_get(part, "text")))
                return api_error_set(e, ST_INVALID, "invalid_type", "messages",
                                     "messages[%zu].content[%zu].text: must be text", i, k);
        }
    }
    return ST_OK;
}

/* chat_template_kwargs: further variables for the template. */
static Status read_kwargs(const json_t *body, ChatInput *input, ApiError *e)
{
    input->extra = params_get(body, "chat_template_kwargs");
    if (input->extra && !json_is_object(input->extra))
        return api_error_set(e, ST_INVALID, "invalid_type", "chat_template_kwargs",
                             "chat_template_kwargs: must be an object");
    return ST_OK;
}

void openai_chat(App *app, const HttpRequest *req, Channel *ch)
{
    Status st = ST_OK;
    ApiError e;
    json_t *body = NULL;
    Arena *arena = arena_new();
    TokenList prompt = TOKEN_LIST_INIT;
    ChatInput input = {.add_generation_prompt = true, .has_time = true};
    Params p;

    if (!arena)
        TRY(api_error_set(&e, ST_NOMEM, NULL, NULL, "out of memory for a request"));
    if (!app->chat)
        TRY(api_error_set(&e, ST_UNSUPPORTED, "no_chat_template", NULL,
                          "this model cannot chat: %s; /v1/completions works",
                          app->chat_error ? app->chat_error : "its checkpoint has no chat template"));
    TRY(params_body(req->body, req->len, &body, &e));
    TRY(params_read(app, body, arena, &p, &e));
    TRY(read_logprobs(body, &p, &e));
    TRY(check_messages(json_object_get(body, "messages"), &e));
    TRY(read_kwargs(body, &input, &e));
    input.messages = json_object_get(body, "messages");
    input.time_s = clock_unix_s(app->clock);
    st = chat_encode(app->chat, app->tokenizer, &input, &prompt, &e.err);
    if (st != ST_OK)
        TRY(api_error_of(&e, st == ST_BUSY ? ST_INVALID : st, "chat_template", "messages"));
    params_body_release(&body, req->len);
    answer_run(app, ch, &chat_format, &prompt, &p);
done:
    if (st != ST_OK)
        api_error_send(&e, ch);
    token_list_release(&prompt);
    params_body_release(&body, req->len);
    arena_free(arena);
}
