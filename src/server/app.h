/* app.h - what the protocol handlers serve: one model, ready to answer.
 *
 * Owns: nothing; everything behind the pointers outlives all handlers.
 * Thread: any; only the atomic fields change while handlers run. */
#ifndef METRALE_SERVER_APP_H
#define METRALE_SERVER_APP_H
#include "core/clock.h"
#include "core/log.h"
#include "engine/engine.h"
#include "text/tokenizer.h"
#include <stdatomic.h>

typedef struct App {
    Engine *engine;
    const Tokenizer *tokenizer;
    /* Turns a conversation into a prompt: appends its ids to out. messages is a list that is not empty. ST_INVALID and
     * ST_FORMAT are the client's fault, with a sentence for it. NULL: there is no template that works; chat_error says
     * why, and how to mend it. */
    Status (*chat)(void *ctx, const json_t *messages, TokenList *out, Err *err);
    void *chat_ctx;
    const char *chat_error;

    const char *model_id;
    Clock *clock;
    int64_t started_s;       /* unix time */
    SamplingParams sampling; /* what a request that says nothing gets */
    uint32_t max_len;        /* most tokens of prompt and answer together: the window or the KV cache */
    uint32_t vocab;          /* ids that the model knows */
    uint64_t seed;           /* of ids and of requests that bring no seed; from a random source */
    const Log *log;

    atomic_bool draining; /* the server is about to end: nothing new */
    atomic_uint_fast64_t n_ids;
    atomic_bool told_bos; /* the log has a line about prompts that spell BOS */
} App;

/* The next number of a sequence that looks random and repeats with the seed. */
uint64_t app_next(App *app);
#endif
