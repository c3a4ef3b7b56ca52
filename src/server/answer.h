/* answer.h - from a prompt's ids to an answer on a channel: submit, wait for tokens, make text of them, look for stop
 * strings, write. The same path serves both modes, so that the streamed pieces joined are the whole answer.
 *
 * What differs between routes is an AnswerFormat: how the members of a choice are spelled.
 * Owns: nothing beyond the call. Thread: the handler's. */
#ifndef METRALE_SERVER_ANSWER_H
#define METRALE_SERVER_ANSWER_H
#include "server/app.h"
#include "server/channel.h"
#include "server/params.h"

/* One token of the answer, as logprobs report it. */
typedef struct AnswerToken {
    int32_t id;
    uint32_t n_top;
    float logprob;
    size_t offset; /* characters of the answer in front of it */
    TokenLogprob top[ENGINE_MAX_TOP_LOGPROBS];
} AnswerToken;

typedef struct AnswerFormat {
    const char *id_prefix, *object, *chunk_object;
    const char *prompt_field; /* the request's field that a prompt over the limit is blamed on */
    /* Members of choices[0], without braces. text is valid UTF-8 and may hold NUL bytes. */
    void (*whole)(Str *out, const char *text, size_t len);
    void (*opening)(Str *out); /* of a first chunk without text; NULL: there is none */
    void (*piece)(Str *out, const char *text, size_t len);
    void (*closing)(Str *out); /* of the last chunk */
    /* The value of "logprobs" for n tokens. */
    void (*logprobs)(Str *out, const Tokenizer *t, const AnswerToken *tokens, size_t n);
} AnswerFormat;

/* Writes one answer, or the error in its place. */
void answer_run(App *app, Channel *ch, const AnswerFormat *format, const TokenList *prompt, const Params *p);

/* Appends the token's text as a JSON string. */
void answer_write_token(Str *out, const Tokenizer *t, int32_t id);
#endif
