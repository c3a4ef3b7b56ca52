/* cmd_template.c - `metrale template`: the prompt that a checkpoint's chat template makes of messages. */
#include "cli/cli.h"
#include "cli/loader.h"
#include "core/clock.h"
#include "core/file.h"
#include "text/chat.h"
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_NO_PROMPT = 1000, MAX_MESSAGES_FILE = 64 << 20 };

typedef struct Args {
    const char *model, *messages;
    bool no_prompt, json;
    Levers levers;
} Args;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;

    switch (key) {
    case 'm':
        a->messages = arg;
        return 0;
    case KEY_NO_PROMPT:
        a->no_prompt = true;
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        cli_one_model(state, &a->model, arg);
        return 0;
    case ARGP_KEY_END:
        if (!a->model)
            argp_error(state, "MODEL is needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The JSON of a request's body, or its list of messages alone. */
static Status read_messages(const Args *a, json_t **out, Err *err)
{
    Status st = ST_OK;
    const bool standard = strcmp(a->messages, "-") == 0;
    const char *name = standard ? "standard input" : a->messages;
    char *text = NULL;
    size_t len = 0;
    Str s = STR_INIT;

    if (standard) {
        TRY(cli_stdin(&s, err));
    } else {
        TRY(file_read(a->messages, MAX_MESSAGES_FILE, &text, &len, err));
    }
    TRY(json_parse(standard ? str_c(&s) : text, standard ? s.len : len, name, out, err));
    if (!json_is_array(*out) && !json_is_array(json_object_get(*out, "messages")))
        TRY(err_set(err, ST_INVALID,
                    "%s: a list of {role, content}, or an object with such a list as \"messages\", "
                    "is needed",
                    name));
done:
    free(text);
    str_release(&s);
    return st;
}

static Status render(const Args *a, const Loaded *l, const json_t *body, Str *out, Err *err)
{
    Status st = ST_OK;
    const bool list = json_is_array(body);
    const json_t *tools = list ? NULL : json_object_get(body, "tools"),
                 *extra = list ? NULL : json_object_get(body, "chat_template_kwargs");
    const char *source = chat_template_source(l->chat_template, tools != NULL);
    const ChatInput input = {.messages = list ? body : json_object_get(body, "messages"),
                             .tools = json_is_array(tools) ? tools : NULL,
                             .extra = json_is_object(extra) ? extra : NULL,
                             .add_generation_prompt = !a->no_prompt,
                             .has_time = true,
                             .time_s = clock_unix_s(clock_system())};
    ChatTemplate *t = NULL;
    TextSpans user = TEXT_SPANS_INIT;

    if (source == NULL)
        return err_set(err, ST_NOTFOUND, "%s: the checkpoint has no chat template", l->path);
    TRY(chat_template_new(&t, source, strlen(source), l->path, err));
    TRY(chat_render(t, l->tokenizer, &input, out, &user, err));
    if (!str_ok(out))
        TRY(err_set(err, ST_NOMEM, "out of memory for the prompt"));
done:
    text_spans_release(&user);
    chat_template_free(t);
    return st;
}

static Status print(const Args *a, const Str *prompt, Err *err)
{
    json_t *j;

    if (!a->json) {
        fwrite(str_c(prompt), 1, prompt->len, stdout);
        return ST_OK;
    }
    j = json_pack("{s:s%}", "prompt", str_c(prompt), prompt->len);
    if (j == NULL)
        return err_set(err, ST_INVALID, "the prompt is not UTF-8; leave --json out for the raw bytes");
    json_dumpf(j, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(j);
    return ST_OK;
}

int cmd_template(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"messages", 'm', "FILE", 0,
         "JSON: a list of messages, or an object with messages, tools, chat_template_kwargs; - for standard input (-)",
         0},
        {"no-generation-prompt", KEY_NO_PROMPT, 0, 0, "end behind the last message", 0},
        {"json", 'j', 0, 0, "print a JSON object", 0},
        {0}};
    static const struct argp parser = {
        options, parse, "MODEL", "Prints the prompt that the model's chat template makes of messages.",
        NULL,    NULL,  NULL};
    Status st = ST_OK;
    Err err = {{0}};
    Args a = {.messages = "-"};
    Loaded l = {0};
    json_t *body = NULL;
    Str prompt = STR_INIT;
    const LoadOptions lo = {.level = LOAD_TOKENIZER, .quiet = true};

    levers_init(&a.levers);
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    TRY(loaded_open(&l, a.model, &a.levers, &lo, &err));
    TRY(read_messages(&a, &body, &err));
    TRY(render(&a, &l, body, &prompt, &err));
    TRY(print(&a, &prompt, &err));
done:
    str_release(&prompt);
    json_decref(body);
    loaded_close(&l);
    levers_release(&a.levers);
    return st == ST_OK ? 0 : cli_fail(&err);
}
