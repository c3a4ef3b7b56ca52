/* cmd_tokenize.c - `metrale tokenize`: text to ids, and ids to text with --decode. */
#include "cli/cli.h"
#include "cli/loader.h"
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Args {
    const char *model, *text;
    bool decode, special, bos, json;
    Levers levers;
} Args;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;
    switch (key) {
    case 't':
        a->text = arg;
        return 0;
    case 'd':
        a->decode = true;
        return 0;
    case 's':
        a->special = true;
        return 0;
    case 'b':
        a->bos = true;
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->model)
            argp_error(state, "one MODEL, please; \"%s\" is one too many (text goes to --text or standard input)", arg);
        a->model = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->model)
            argp_error(state, "MODEL is needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static Status read_input(const Args *a, Str *text, Err *err)
{
    if (!a->text)
        return cli_stdin(text, err);
    str_adds(text, a->text);
    return str_ok(text) ? ST_OK : err_set(err, ST_NOMEM, "out of memory for the input");
}

static Status print_ids(const Args *a, const Loaded *l, const Str *text, Err *err)
{
    TokenList ids = TOKEN_LIST_INIT;
    unsigned flags = (a->special ? TOK_PARSE_SPECIAL : 0u) | (a->bos ? TOK_ADD_BOS : 0u);
    Status st = tokenizer_encode(l->tokenizer, str_c(text), text->len, flags, &ids, err);

    if (st == ST_OK) {
        printf(a->json ? "{\"tokens\": [" : "");
        for (size_t i = 0; i < ids.n; i++)
            printf("%s%d", i ? (a->json ? ", " : " ") : "", ids.id[i]);
        printf(a->json ? "]}\n" : "\n");
    }
    token_list_release(&ids);
    return st;
}

static Status print_text(const Args *a, const Loaded *l, const Str *text, Err *err)
{
    Status st = ST_OK;
    Str out = STR_INIT;
    const char *p = str_c(text);
    char *end;

    for (p += strspn(p, " \t\r\n,[]"); *p; p += strspn(p, " \t\r\n,[]")) {
        errno = 0;
        long long id = strtoll(p, &end, 10);
        size_t len = 0;
        const char *bytes =
            errno || end == p || id < 0 || id > INT32_MAX ? NULL : tokenizer_token(l->tokenizer, (int32_t)id, &len);
        if (bytes == NULL)
            TRY(err_set(err, ST_INVALID, "\"%.*s\" is no token id of %s", (int)strcspn(p, " \t\r\n,[]"), p, l->path));
        str_add(&out, bytes, len);
        p = end;
    }
    if (!str_ok(&out))
        TRY(err_set(err, ST_NOMEM, "out of memory for the text"));
    if (a->json) {
        json_t *j = json_stringn(str_c(&out), out.len);
        if (j == NULL)
            TRY(err_set(err, ST_INVALID, "the ids end inside a character; leave --json out for the raw bytes"));
        printf("{\"text\": ");
        json_dumpf(j, stdout, JSON_ENCODE_ANY);
        printf("}\n");
        json_decref(j);
    } else {
        fwrite(str_c(&out), 1, out.len, stdout);
        putchar('\n');
    }
done:
    str_release(&out);
    return st;
}

int cmd_tokenize(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"text", 't', "TEXT", 0, "the text (or the ids); standard input when left out", 0},
        {"decode", 'd', 0, 0, "ids to text", 0},
        {"special", 's', 0, 0, "spellings of control tokens become control tokens", 0},
        {"bos", 'b', 0, 0, "begin with BOS where the model adds one", 0},
        {"json", 'j', 0, 0, "print a JSON object", 0},
        {0}};
    static const struct argp parser = {options, parse, "MODEL", "Text to token ids, and back.", NULL, NULL, NULL};
    Status st = ST_OK;
    Err err;
    Args a = {0};
    Loaded l = {0};
    Str text = STR_INIT;
    LoadOptions lo = {.level = LOAD_TOKENIZER};

    levers_init(&a.levers);
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    TRY(loaded_open(&l, a.model, &a.levers, &lo, &err));
    TRY(read_input(&a, &text, &err));
    TRY(a.decode ? print_text(&a, &l, &text, &err) : print_ids(&a, &l, &text, &err));
done:
    str_release(&text);
    loaded_close(&l);
    levers_release(&a.levers);
    return st == ST_OK ? 0 : cli_fail(&err);
}
