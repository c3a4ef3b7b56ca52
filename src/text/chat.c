/* chat.c - normalises messages, renders the template over them, and encodes with the origin of each byte.
 *
 * Templates differ in what they expect of a tool call's arguments: most print them with tojson and want an object, some
 * paste them and want text. What a template wants is found once, by rendering a probe with each. */
#include "text/chat.h"

#include <stdlib.h>
#include <string.h>

#include "text/jinja.h"

struct ChatTemplate {
    Jinja *jinja;
    bool arguments_as_text;
};

/* --- messages --------------------------------------------------------------------------------------------------- */

/* Appends the text of one part; i and k are for the message. */
static Status add_part(Str *text, const json_t *part, size_t i, size_t k, Err *err)
{
    const json_t *type = json_object_get(part, "type"), *value = json_object_get(part, "text");
    if (json_is_string(part))
        value = part;
    else if (json_is_string(type) && !strstr(json_string_value(type), "text"))
        return err_set(err, ST_INVALID,
                       "messages[%zu].content[%zu]: a part of type \"%.60s\" is not supported; this model reads text",
                       i, k, json_string_value(type));
    if (!json_is_string(value))
        return err_set(err, ST_INVALID, "messages[%zu].content[%zu]: must be {\"type\": \"text\", \"text\": string}", i,
                       k);
    if (k)
        str_addc(text, '\n');
    str_add(text, json_string_value(value), json_string_length(value));
    return ST_OK;
}

/* The content of message i as one string, which the caller owns. */
static Status content_text(const json_t *content, size_t i, json_t **out, Err *err)
{
    Status st = ST_OK;
    Str text = STR_INIT;
    *out = NULL;
    if (json_is_string(content)) {
        *out = json_incref((json_t *)(uintptr_t)content); /* shared, never written */
        return ST_OK;
    }
    if (content && !json_is_null(content) && !json_is_array(content))
        return err_set(err, ST_INVALID, "messages[%zu].content: must be a string, a list of parts, or null", i);
    for (size_t k = 0; k < json_array_size(content); k++)
        TRY(add_part(&text, json_array_get(content, k), i, k, err));
    if (str_ok(&text))
        *out = json_stringn(str_c(&text), text.len);
    if (!*out)
        TRY(err_set(err, ST_NOMEM, "out of memory while reading messages"));
done:
    str_release(&text);
    return st;
}

/* Replaces, in a deep copy of a tool call, arguments that are the text of a JSON object by that object, or the other
 * way round for templates made for text. */
static Status fix_arguments(json_t *call, bool as_text, Err *err)
{
    json_t *function = json_object_get(call, "function"), *holder = function ? function : call;
    json_t *arguments = json_object_get(holder, "arguments"), *fixed = NULL;
    if (!as_text && json_is_string(arguments)) {
        Err ignored;
        if (json_parse(json_string_value(arguments), json_string_length(arguments), "arguments", &fixed, &ignored) !=
            ST_OK)
            return ST_OK; /* text that is no JSON stays as it is */
        if (!json_is_object(fixed)) {
            json_decref(fixed);
            return ST_OK;
        }
    } else if (as_text && json_is_object(arguments)) {
        char *text = json_dumps(arguments, JSON_COMPACT);
        fixed = text ? json_string(text) : NULL;
        free(text);
    } else {
        return ST_OK;
    }
    return fixed && json_object_set_new(holder, "arguments", fixed) == 0
               ? ST_OK
               : err_set(err, ST_NOMEM, "out of memory while reading messages");
}

static Status fix_tool_calls(json_t *message, size_t i, bool as_text, Err *err)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    if (!calls || json_is_null(calls))
        return ST_OK;
    if (!json_is_array(calls))
        return err_set(err, ST_INVALID, "messages[%zu].tool_calls: must be a list", i);
    json_t *copy = json_deep_copy(calls);
    if (!copy || json_object_set_new(message, "tool_calls", copy) != 0)
        return err_set(err, ST_NOMEM, "out of memory while reading messages");
    for (size_t k = 0; k < json_array_size(copy); k++) {
        json_t *call = json_array_get(copy, k);
        if (!json_is_object(call))
            return err_set(err, ST_INVALID, "messages[%zu].tool_calls[%zu]: must be an object", i, k);
        Status st = fix_arguments(call, as_text, err);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

/* A list of messages with plain contents; the caller owns it, the caller's own list is not changed. */
static Status normalise(const json_t *messages, bool arguments_as_text, json_t **out, Err *err)
{
    Status st = ST_OK;
    json_t *list = json_array(), *content = NULL;
    *out = NULL;
    if (!list)
        TRY(err_set(err, ST_NOMEM, "out of memory while reading messages"));
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        TRY(err_set(err, ST_INVALID, "messages: must be a list with at least one message"));
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        if (!json_is_object(m) || !json_is_string(json_object_get(m, "role")))
            TRY(err_set(err, ST_INVALID, "messages[%zu]: must be an object with a string \"role\"", i));
        json_t *copy = json_copy(m);
        if (!copy || json_array_append_new(list, copy) != 0)
            TRY(err_set(err, ST_NOMEM, "out of memory while reading messages"));
        TRY(content_text(json_object_get(m, "content"), i, &content, err));
        if (json_object_set_new(copy, "content", content) != 0)
            TRY(err_set(err, ST_NOMEM, "out of memory while reading messages"));
        TRY(fix_tool_calls(copy, i, arguments_as_text, err));
    }
    *out = list;
    list = NULL;
done:
    json_decref(list);
    return st;
}

/* --- rendering -------------------------------------------------------------------------------------------------- */

/* The text of a token as a JSON string, or NULL. */
static json_t *token_text(const Tokenizer *t, int32_t id)
{
    size_t len = 0;
    const char *bytes = t && id >= 0 ? tokenizer_token(t, id, &len) : NULL;
    return bytes ? json_stringn(bytes, len) : NULL;
}

enum { MAX_EXTRA = 64 };

static Status add_extra(const json_t *extra, JinjaVar *vars, size_t *n, Err *err)
{
    const char *key;
    json_t *value;
    if (!extra || json_is_null(extra))
        return ST_OK;
    if (!json_is_object(extra) || json_object_size(extra) > MAX_EXTRA)
        return err_set(err, ST_INVALID, "chat_template_kwargs: must be an object with at most %d values", MAX_EXTRA);
    json_object_foreach((json_t *)(uintptr_t)extra, key, value) /* reads only */
        vars[(*n)++] = (JinjaVar){key, value, true};
    return ST_OK;
}

static Status render(const ChatTemplate *c, const Tokenizer *t, const ChatInput *input, bool arguments_as_text,
                     Str *out, TextSpans *user, Err *err)
{
    Status st = ST_OK;
    JinjaVar vars[MAX_EXTRA + 8];
    JinjaEnv env = {.vars = vars, .has_time = input->has_time, .time_s = input->time_s};
    json_t *messages = NULL, *bos = NULL, *eos = NULL;

    if (input->tools && !json_is_null(input->tools) && !json_is_array(input->tools))
        TRY(err_set(err, ST_INVALID, "tools: must be a list"));
    TRY(normalise(input->messages, arguments_as_text, &messages, err));
    bos = token_text(t, t ? tokenizer_bos(t) : -1);
    eos = token_text(t, t ? tokenizer_eos(t) : -1);
    /* The request's own values come first, so that they cannot hide what follows. */
    TRY(add_extra(input->extra, vars, &env.n_vars, err));
    vars[env.n_vars++] = (JinjaVar){"messages", messages, true};
    bool has_tools = json_array_size(input->tools) > 0;
    vars[env.n_vars++] = (JinjaVar){"tools", has_tools ? input->tools : json_null(), true};
    vars[env.n_vars++] = (JinjaVar){"documents", json_null(), false};
    vars[env.n_vars++] =
        (JinjaVar){"add_generation_prompt", input->add_generation_prompt ? json_true() : json_false(), false};
    if (bos)
        vars[env.n_vars++] = (JinjaVar){"bos_token", bos, false};
    if (eos)
        vars[env.n_vars++] = (JinjaVar){"eos_token", eos, false};
    TRY(jinja_render(c->jinja, &env, out, user, err));
done:
    json_decref(messages);
    json_decref(bos);
    json_decref(eos);
    return st;
}

Status chat_render(const ChatTemplate *c, const Tokenizer *t, const ChatInput *input, Str *out, TextSpans *user,
                   Err *err)
{
    return render(c, t, input, c->arguments_as_text, out, user, err);
}

/* Two BOS at the front, or the prefix that the model wants, become one. */
static void drop_second_bos(const Tokenizer *t, TokenList *out, size_t first)
{
    int32_t bos = tokenizer_bos(t);
    size_t n = first;
    if (bos < 0)
        return;
    while (n + 1 < out->n && out->id[n] == bos && out->id[n + 1] == bos)
        n++;
    memmove(out->id + first, out->id + n, (out->n - n) * sizeof *out->id);
    out->n -= n - first;
}

Status chat_encode(const ChatTemplate *c, const Tokenizer *t, const ChatInput *input, TokenList *out, Err *err)
{
    Status st = ST_OK;
    Str text = STR_INIT;
    TextSpans user = TEXT_SPANS_INIT;
    size_t first = out->n;

    TRY(chat_render(c, t, input, &text, &user, err));
    if (input->trust_user_text)
        TRY(tokenizer_encode(t, str_c(&text), text.len, TOK_PARSE_SPECIAL, out, err));
    else
        TRY(tokenizer_encode_spans(t, str_c(&text), text.len, &user, 0, out, err));
    if (out->n > first)
        drop_second_bos(t, out, first);
done:
    text_spans_release(&user);
    str_release(&text);
    return st;
}

/* --- templates -------------------------------------------------------------------------------------------------- */

/* Does the template print the arguments of a tool call well, given as text or as an object? */
static bool probe(const ChatTemplate *c, bool as_text)
{
    static const char conversation[] =
        "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":"
        "\"call00000\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"probe_key\":\"v\"}}}]}]";
    Str text = STR_INIT;
    Err err;
    json_t *messages = NULL;
    bool good = false;
    if (json_parse(conversation, sizeof conversation - 1, "probe", &messages, &err) == ST_OK) {
        ChatInput input = {.messages = messages, .has_time = true};
        good = render(c, NULL, &input, as_text, &text, NULL, &err) == ST_OK && strstr(str_c(&text), "\"probe_key\"");
    }
    json_decref(messages);
    str_release(&text);
    return good;
}

Status chat_template_new(ChatTemplate **out, const char *source, size_t len, const char *name, Err *err)
{
    *out = NULL;
    ChatTemplate *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, ST_NOMEM, "%s: out of memory", name);
    Status st = jinja_parse(&c->jinja, source, len, name, err);
    if (st != ST_OK) {
        chat_template_free(c);
        return st;
    }
    c->arguments_as_text = !probe(c, false) && probe(c, true);
    *out = c;
    return ST_OK;
}

void chat_template_free(ChatTemplate *c)
{
    if (!c)
        return;
    jinja_free(c->jinja);
    free(c);
}

const char *chat_template_source(const json_t *chat_template, bool tools)
{
    const char *found = NULL;
    size_t i;
    const json_t *entry;
    if (json_is_string(chat_template))
        return json_string_value(chat_template);
    json_array_foreach(chat_template, i, entry)
    {
        const json_t *name = json_object_get(entry, "name"), *text = json_object_get(entry, "template");
        if (!json_is_string(name) || !json_is_string(text))
            continue;
        if (strcmp(json_string_value(name), "default") == 0 && !found)
            found = json_string_value(text);
        if (tools && strcmp(json_string_value(name), "tool_use") == 0)
            found = json_string_value(text);
    }
    return found;
}
