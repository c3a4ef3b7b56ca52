/* cmd_run.c - `metrale run`: one answer to a prompt given as arguments, or a conversation with what standard input says, line by line.
 *
 * The engine is driven from here, without its thread: there is one sequence and nobody else. */
#include "cli/cli.h"
#include "cli/loader.h"
#include "engine/engine.h"
#include "text/chat.h"
#include "text/detokenizer.h"
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Args {
    const char *model, *system;
    Str prompt;
    bool raw;
    uint32_t max_tokens;
    double temperature; /* < 0: the target's preset */
    uint64_t seed;
    Levers levers;
} Args;

typedef struct Talk {
    Args *a;
    Loaded *l;
    Engine *engine;
    ChatTemplate *chat;
    json_t *messages;
} Talk;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;
    char *end = NULL;
    uint64_t n;
    switch (key) {
    case 's':
        a->system = arg;
        return 0;
    case 'r':
        a->raw = true;
        return 0;
    case 'n':
        if (!cli_whole(arg, 1, 1 << 24, &n))
            argp_error(state, "--max-tokens: \"%s\" is no whole number from 1 to 16777216", arg);
        a->max_tokens = (uint32_t)n;
        return 0;
    case 't':
        a->temperature = strtod(arg, &end);
        if (end == arg || *end || !(a->temperature >= 0 && a->temperature <= 2))
            argp_error(state, "--temperature: \"%s\" is no number from 0 to 2", arg);
        return 0;
    case 'e':
        if (!cli_whole(arg, 0, UINT64_MAX, &a->seed))
            argp_error(state, "--seed: \"%s\" is no whole number from 0 to 18446744073709551615", arg);
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->levers;
        return 0;
    case ARGP_KEY_ARG:
        if (!a->model) {
            a->model = arg;
            return 0;
        }
        str_addf(&a->prompt, "%s%s", a->prompt.len ? " " : "", arg);
        return 0;
    case ARGP_KEY_END:
        if (!a->model)
            argp_error(state, "MODEL is needed; `default` is the model that ./dev setup fetches");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The ids of what the model is to continue: the text as it is, or the conversation with it as the next turn. */
static Status encode(Talk *t, const char *text, TokenList *ids, Err *err)
{
    if (t->a->raw)
        return tokenizer_encode(t->l->tokenizer, text, strlen(text), TOK_PARSE_SPECIAL | TOK_ADD_BOS, ids, err);
    json_t *turn = json_pack("{s:s, s:s}", "role", "user", "content", text);
    if (turn == NULL || json_array_append_new(t->messages, turn) != 0)
        return err_set(err, ST_INVALID, "the prompt is not UTF-8");
    ChatInput in = {.messages = t->messages, .add_generation_prompt = true};
    return chat_encode(t->chat, t->l->tokenizer, &in, ids, err);
}

/* Prints what comes until the answer ends; keeps it in `answer`. */
static Status print_answer(Talk *t, Stream *s, Str *answer, Err *err)
{
    Status st = ST_OK;
    Detokenizer d;
    TokenEvent ev = {.finish = FINISH_NONE};
    size_t shown = 0;

    detokenizer_init(&d, t->l->tokenizer, false);
    while (ev.finish == FINISH_NONE) {
        bool worked;
        TRY(engine_step(t->engine, &worked, err));
        while (ev.finish == FINISH_NONE && stream_next(s, &ev, 0))
            if (ev.token >= 0 && ev.finish != FINISH_STOP)
                detokenizer_add(&d, ev.token, answer);
        if (ev.finish != FINISH_NONE)
            detokenizer_end(&d, answer);
        fwrite(str_c(answer) + shown, 1, answer->len - shown, stdout);
        fflush(stdout);
        shown = answer->len;
    }
    putchar('\n');
    if (ev.finish == FINISH_ERROR)
        TRY(err_set(err, ST_DEVICE, "%s", stream_error(s)));
    if (!str_ok(answer))
        TRY(err_set(err, ST_NOMEM, "out of memory for the answer"));
done:
    return st;
}

static Status answer_to(Talk *t, const char *text, Err *err)
{
    Status st = ST_OK;
    TokenList ids = TOKEN_LIST_INIT;
    Stream *stream = NULL;
    Str answer = STR_INIT;
    GenRequest req = {.max_tokens = t->a->max_tokens};
    size_t n_stop;

    TRY(encode(t, text, &ids, err));
    sampling_defaults(&req.sampling);
    req.sampling.temperature = (float)(t->a->temperature < 0 ? t->l->preset.temperature : t->a->temperature);
    req.sampling.top_p = (float)t->l->preset.top_p;
    req.sampling.top_k = (int32_t)t->l->preset.top_k;
    req.sampling.min_p = (float)t->l->preset.min_p;
    req.sampling.seed = t->a->seed;
    req.prompt = ids.id;
    req.n_prompt = (uint32_t)ids.n;
    req.stop_ids = tokenizer_end_ids(t->l->tokenizer, &n_stop);
    req.n_stop_ids = (uint32_t)n_stop;
    TRY(engine_submit(t->engine, &req, &stream, err));
    TRY(print_answer(t, stream, &answer, err));
    json_t *turn = json_pack("{s:s, s:s%}", "role", "assistant", "content", str_c(&answer), answer.len);
    if (turn == NULL || json_array_append_new(t->messages, turn) != 0)
        TRY(err_set(err, ST_NOMEM, "out of memory for the conversation"));
done:
    stream_free(stream);
    token_list_release(&ids);
    str_release(&answer);
    return st;
}

static Status converse(Talk *t, Err *err)
{
    Status st = ST_OK;
    bool person = isatty(STDIN_FILENO);
    bool more = true;
    Str line = STR_INIT;

    if (person)
        fprintf(stderr, "A line is a message; end with Ctrl-D.\n");
    for (;;) {
        if (person)
            fputs("> ", stderr);
        TRY(cli_stdin_line(&line, &more, err));
        if (!more)
            break;
        if (str_ends(str_c(&line), "\r"))
            line.p[--line.len] = '\0';
        if (line.len > 0)
            TRY(answer_to(t, str_c(&line), err));
    }
done:
    str_release(&line);
    return st;
}

static Status open_chat(Talk *t, Err *err)
{
    const char *source = t->l->chat_template ? chat_template_source(t->l->chat_template, false) : NULL;
    if (t->a->raw)
        return ST_OK;
    if (source == NULL)
        return err_set(err, ST_UNSUPPORTED, "%s has no chat template; use --raw to continue plain text", t->l->path);
    return chat_template_new(&t->chat, source, strlen(source), t->l->path, err);
}

int cmd_run(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"system", 's', "TEXT", 0, "system message of the conversation", 0},
        {"max-tokens", 'n', "N", 0, "most tokens of an answer; as many as fit when left out", 0},
        {"temperature", 't', "X", 0, "0 is greedy; the target's own when left out", 0},
        {"seed", 'e', "N", 0, "seed of the draws (0)", 0},
        {"raw", 'r', 0, 0, "continue the text as it is, without the chat template", 0},
        {0}};
    Status st = ST_OK;
    Err err;
    Args a = {.temperature = -1};
    Loaded l = {0};
    Talk t = {.a = &a, .l = &l, .messages = json_array()};

    levers_init(&a.levers);
    const struct argp_child children[] = {{&a.levers.parser, 0, "Settings:", 1}, {0}};
    const struct argp parser = {options,
                                parse,
                                "MODEL [PROMPT...]",
                                "Answers a prompt, or every line of standard input as one conversation.",
                                children,
                                NULL,
                                NULL};
    argp_parse(&parser, argc, argv, ARGP_IN_ORDER, NULL, &a);

    LoadOptions lo = {.level = LOAD_MODEL, .tokenizer = true, .max_seqs = 1, .quiet = true};
    EngineOptions eo = {.queue_len = 1};
    TRY(loaded_open(&l, a.model, &a.levers, &lo, &err));
    TRY(open_chat(&t, &err));
    TRY(engine_new(&t.engine, l.model, clock_system(), &eo, &l.log, &err));
    if (a.system) {
        json_t *turn = json_pack("{s:s, s:s}", "role", "system", "content", a.system);
        if (turn == NULL || json_array_append_new(t.messages, turn) != 0)
            TRY(err_set(&err, ST_INVALID, "--system: the text is not UTF-8"));
    }
    TRY(a.prompt.len ? answer_to(&t, str_c(&a.prompt), &err) : converse(&t, &err));
done:
    engine_free(t.engine);
    chat_template_free(t.chat);
    json_decref(t.messages);
    loaded_close(&l);
    levers_release(&a.levers);
    str_release(&a.prompt);
    return st == ST_OK ? 0 : cli_fail(&err);
}
