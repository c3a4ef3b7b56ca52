/* cmd_perplexity.c - `metrale perplexity`: exp of the mean negative log likelihood of a text.
 *
 * The rule is the one that the common tools use, so that figures compare: the text is tokenized whole; it is cut into windows of N tokens, a rest is dropped; in
 * each window the first token is BOS where the model adds one; the first N/2 tokens are context only; tokens N/2+1 .. N-1 are scored. */
#include "cli/cli.h"
#include "cli/loader.h"
#include "core/file.h"
#include "model/solo.h"
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Args {
    const char *model, *file;
    uint32_t ctx;
    bool json;
    Levers levers;
} Args;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;
    uint64_t n;
    switch (key) {
    case 'f':
        a->file = arg;
        return 0;
    case 'c':
        if (!cli_whole(arg, 4, 1 << 20, &n))
            argp_error(state, "--ctx: \"%s\" is no whole number from 4 to 1048576", arg);
        a->ctx = (uint32_t)n;
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->levers;
        return 0;
    case ARGP_KEY_ARG:
        cli_one_model(state, &a->model, arg);
        return 0;
    case ARGP_KEY_END:
        if (!a->model || !a->file)
            argp_error(state, "MODEL and --file FILE are needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* -log softmax(logits)[token] */
static double surprise(const float *logits, uint32_t vocab, int32_t token)
{
    double top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        top = fmax(top, (double)logits[i]);
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - top);
    return log(sum) + top - (double)logits[token];
}

static Status run(const Loaded *l, TokenList *text, uint32_t ctx, double *sum, uint64_t *count, Err *err)
{
    Status st = ST_OK;
    uint32_t vocab = model_vocab(l->model), half = ctx / 2, scored = ctx - 1 - half;
    float *logits = malloc(sizeof(float) * vocab * scored);
    Solo *solo = NULL;

    if (logits == NULL)
        return err_set(err, ST_NOMEM, "out of memory for %u x %u logits", scored, vocab);
    TRY(solo_new(&solo, l->model, err));
    for (size_t w = 0; w + ctx <= text->n; w += ctx) {
        int32_t *id = text->id + w, first = id[0];
        solo_reset(solo);
        if (tokenizer_adds_bos(l->tokenizer))
            id[0] = tokenizer_bos(l->tokenizer);
        TRY(solo_append(solo, id, half, NULL, err));
        id[0] = first;
        TRY(solo_append(solo, id + half, scored, logits, err));
        for (uint32_t i = 0; i < scored; i++)
            *sum += surprise(logits + (size_t)i * vocab, vocab, id[half + i + 1]);
        *count += scored;
    }
done:
    solo_free(solo);
    free(logits);
    return st;
}

int cmd_perplexity(int argc, char **argv)
{
    static const struct argp_option options[] = {{"file", 'f', "FILE", 0, "UTF-8 text to score", 0},
                                                 {"ctx", 'c', "N", 0, "tokens of a window (512)", 0},
                                                 {"json", 'j', 0, 0, "print a JSON object", 0},
                                                 {0}};
    Status st = ST_OK;
    Err err;
    Args a = {.ctx = 512};
    Loaded l = {0};
    TokenList tokens = TOKEN_LIST_INIT;
    char *text = NULL;
    size_t len;
    double sum = 0;
    uint64_t count = 0;

    levers_init(&a.levers);
    const struct argp_child children[] = {{&a.levers.parser, 0, "Settings:", 1}, {0}};
    const struct argp parser = {
        options,
        parse,
        "MODEL --file FILE",
        "Perplexity of a text: whole windows of N tokens, the first half of each is context and not scored.",
        children,
        NULL,
        NULL};
    argp_parse(&parser, argc, argv, 0, NULL, &a);

    LoadOptions lo = {.level = LOAD_MODEL, .quiet = true, .tokenizer = true, .max_outs = 128, .max_seqs = 1};
    TRY(loaded_open(&l, a.model, &a.levers, &lo, &err));
    TRY(file_read(a.file, (size_t)256 << 20, &text, &len, &err));
    TRY(tokenizer_encode(l.tokenizer, text, len, TOK_ADD_BOS, &tokens, &err));
    if (tokens.n < a.ctx)
        TRY(err_set(&err, ST_INVALID,
                    "%s: %zu tokens are less than one window of %u; give a longer text or a smaller --ctx", a.file,
                    tokens.n, a.ctx));
    TRY(run(&l, &tokens, a.ctx, &sum, &count, &err));
    if (a.json)
        printf("{\"perplexity\": %.4f, \"tokens\": %llu, \"ctx\": %u}\n", exp(sum / (double)count),
               (unsigned long long)count, a.ctx);
    else
        printf("perplexity %.4f over %llu tokens in windows of %u\n", exp(sum / (double)count),
               (unsigned long long)count, a.ctx);
done:
    token_list_release(&tokens);
    free(text);
    loaded_close(&l);
    levers_release(&a.levers);
    return st == ST_OK ? 0 : cli_fail(&err);
}
