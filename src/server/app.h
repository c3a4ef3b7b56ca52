/* app.h - what the protocol handlers serve: one model, ready to answer.
 *
 * Owns: nothing; everything behind the pointers outlives all handlers.
 * Thread: any; only the atomic fields change while handlers run. */
#ifndef METRALE_SERVER_APP_H
#define METRALE_SERVER_APP_H
#include "core/clock.h"
#include "core/log.h"
#include "engine/engine.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include <stdatomic.h>

typedef struct App {
    Engine *engine;
    const Tokenizer *tokenizer;
    const ChatTemplate *chat; /* NULL: none that works; chat_error says why, and how to mend it */
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
