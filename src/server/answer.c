/* answer.c - see answer.h.
 *
 * The handler's thread sleeps in stream_next until the engine has a token. The client's leaving ends the request at
 * once through the channel's hook, which cancels the stream: the FINISH_CANCELLED that follows wakes the handler.
 * The status goes out with the first token, so that a failure before it is still an HTTP error; a later one is an event
 * `data: {"error":...}` without a [DONE] behind it.
 *
 * Counting: completion_tokens are the tokens that the engine delivered up to the end, the end token among them. Each of
 * them has one entry in logprobs, whether or not its text is shown. */
#include "server/answer.h"
#include "core/utf8.h"
#include "server/json_write.h"
#include "text/detokenizer.h"
#include "text/stop.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A wait has no end of its own: the engine ends every stream. This only bounds one sleep. */
#define WAIT_NS UINT64_C(1000000000)

typedef struct Answer {
    App *app;
    Channel *ch;
    const AnswerFormat *format;
    const Params *p;
    size_t n_prompt, n_completion;
    int64_t created;
    uint64_t id;
    bool started; /* a stream's head is out */

    Detokenizer detokenizer;
    StopMatcher *stop;
    Str text;        /* what may be shown and is not written yet */
    Str piece, line; /* scratch */
    size_t n_chars;  /* characters that the tokens so far stand for */
    AnswerToken *tokens;
    size_t n_tokens, cap_tokens; /* not written yet */
} Answer;

void answer_write_token(Str *out, const Tokenizer *t, int32_t id)
{
    size_t len;
    const char *s = tokenizer_token(t, id, &len);
    json_write_string(out, s ? s : "", len);
}

static size_t count_chars(const char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

/* {"id":...,"model":..., without the closing brace. */
static void write_head(Answer *a, const char *object)
{
    str_addf(&a->line,
             "{\"id\":\"%s%016" PRIx64 "\",\"object\":\"%s\",\"created\":%lld,\"model\":", a->format->id_prefix, a->id,
             object, (long long)a->created);
    json_write_text(&a->line, a->app->model_id);
}

static void write_usage(Answer *a)
{
    str_addf(&a->line, ",\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu}", a->n_prompt,
             a->n_completion, a->n_prompt + a->n_completion);
}

/* The rest of a choice behind its text. with_tokens: its logprobs are those of a->tokens. What was written is gone. */
static void write_choice_end(Answer *a, bool with_tokens, const char *finish)
{
    str_adds(&a->line, ",\"logprobs\":");
    if (with_tokens && a->p->logprobs)
        a->format->logprobs(&a->line, a->app->tokenizer, a->tokens, a->n_tokens);
    else
        str_adds(&a->line, "null");
    if (with_tokens) {
        str_clear(&a->text);
        a->n_tokens = 0;
    }
    str_adds(&a->line, ",\"finish_reason\":");
    json_write_text(&a->line, finish);
    str_adds(&a->line, "}]");
}

static bool send_line(Answer *a)
{
    return str_ok(&a->line) && channel_write(a->ch, a->line.p, a->line.len);
}

typedef enum { CHUNK_OPENING, CHUNK_PIECE, CHUNK_CLOSING } ChunkKind;

/* One chunk of a stream; CHUNK_PIECE takes a->text. False: the client is gone, or memory is. */
static bool send_chunk(Answer *a, ChunkKind kind, const char *finish)
{
    str_clear(&a->line);
    str_adds(&a->line, "data: ");
    write_head(a, a->format->chunk_object);
    str_adds(&a->line, ",\"choices\":[{\"index\":0,");
    if (kind == CHUNK_OPENING)
        a->format->opening(&a->line);
    else if (kind == CHUNK_PIECE)
        a->format->piece(&a->line, str_c(&a->text), a->text.len);
    else
        a->format->closing(&a->line);
    write_choice_end(a, kind == CHUNK_PIECE, finish);
    if (a->p->include_usage)
        str_adds(&a->line, ",\"usage\":null");
    str_adds(&a->line, "}\n\n");
    return send_line(a);
}

/* The head of a stream, once. */
static bool open_stream(Answer *a)
{
    static const HttpHeader headers[] = {{"Cache-Control", "no-cache"}};

    if (a->started)
        return true;
    a->started = true;
    channel_start(a->ch, 200, "text/event-stream", headers, 1, -1);
    return !a->format->opening || send_chunk(a, CHUNK_OPENING, NULL);
}

static void send_error(Answer *a, const ApiError *e)
{
    if (!a->started) {
        api_error_send(e, a->ch);
        return;
    }
    str_clear(&a->line);
    str_adds(&a->line, "data: ");
    api_error_write(e, &a->line);
    str_adds(&a->line, "\n\n");
    send_line(a);
}

static const char *finish_name(FinishReason f)
{
    return f == FINISH_LENGTH ? "length" : "stop";
}

static void send_end(Answer *a, FinishReason finish)
{
    if (a->p->stream) {
        bool ok = open_stream(a) && send_chunk(a, CHUNK_CLOSING, finish_name(finish));
        str_clear(&a->line);
        if (ok && a->p->include_usage) {
            str_adds(&a->line, "data: ");
            write_head(a, a->format->chunk_object);
            str_adds(&a->line, ",\"choices\":[]");
            write_usage(a);
            str_adds(&a->line, "}\n\n");
        }
        str_adds(&a->line, "data: [DONE]\n\n");
        if (ok)
            send_line(a);
        return;
    }
    str_clear(&a->line);
    write_head(a, a->format->object);
    str_adds(&a->line, ",\"choices\":[{\"index\":0,");
    a->format->whole(&a->line, str_c(&a->text), a->text.len);
    write_choice_end(a, true, finish_name(finish));
    write_usage(a);
    str_adds(&a->line, "}\n");
    if (str_ok(&a->line)) {
        channel_start(a->ch, 200, "application/json", NULL, 0, (long long)a->line.len);
        send_line(a);
    }
}

static bool note_token(Answer *a, const TokenEvent *ev)
{
    if (a->n_tokens == a->cap_tokens) {
        size_t cap = a->cap_tokens ? a->cap_tokens * 2 : 16;
        AnswerToken *grown = realloc(a->tokens, cap * sizeof *grown);
        if (!grown)
            return false;
        a->tokens = grown;
        a->cap_tokens = cap;
    }
    AnswerToken *t = &a->tokens[a->n_tokens++];
    *t = (AnswerToken){.id = ev->token, .n_top = ev->n_top, .logprob = ev->logprob, .offset = a->n_chars};
    memcpy(t->top, ev->top, ev->n_top * sizeof *t->top);
    return true;
}

/* Takes one event into text and counts. True: a stop string is complete. *ok: memory sufficed. */
static bool take_event(Answer *a, const TokenEvent *ev, bool *ok)
{
    bool stopped;
    bool shown = ev->finish != FINISH_STOP; /* an end token comes with FINISH_STOP and is no text */

    str_clear(&a->piece);
    if (ev->token >= 0) {
        a->n_completion++;
        if (a->p->logprobs && !note_token(a, ev))
            *ok = false;
        if (shown)
            detokenizer_add(&a->detokenizer, ev->token, &a->piece);
    }
    if (ev->finish != FINISH_NONE)
        detokenizer_end(&a->detokenizer, &a->piece);
    a->n_chars += count_chars(str_c(&a->piece), a->piece.len);
    stopped = stop_add(a->stop, str_c(&a->piece), a->piece.len, &a->text);
    if (ev->finish != FINISH_NONE)
        stop_end(a->stop, &a->text);
    *ok = *ok && str_ok(&a->piece) && str_ok(&a->text);
    return stopped;
}

static void cancel(void *stream)
{
    stream_cancel(stream);
}

/* The end that is none: the engine gave up the request. */
static void send_failure(Answer *a, const Stream *s, FinishReason finish)
{
    ApiError e;

    if (finish == FINISH_ERROR)
        api_error_set(&e, ST_DEVICE, "engine_error", NULL, "%s",
                      stream_error(s) ? stream_error(s) : "the answer failed");
    else
        api_error_set(&e, ST_CANCELLED, "stopping", NULL, "the server is stopping; the answer was cut off");
    if (!channel_gone(a->ch))
        send_error(a, &e);
}

static void answer_loop(Answer *a, Stream *s)
{
    TokenEvent ev = {.finish = FINISH_NONE};

    while (ev.finish == FINISH_NONE) {
        bool ok = true, stopped;

        if (!stream_next(s, &ev, WAIT_NS))
            continue;
        if (ev.finish == FINISH_ERROR || ev.finish == FINISH_CANCELLED) {
            send_failure(a, s, ev.finish);
            return;
        }
        stopped = take_event(a, &ev, &ok);
        if (!ok) {
            ApiError e;
            api_error_set(&e, ST_NOMEM, NULL, NULL, "out of memory for an answer");
            send_error(a, &e);
            return;
        }
        if (stopped)
            ev.finish = FINISH_STOP; /* the engine learns by stream_free */
        if (a->p->stream &&
            (!open_stream(a) || ((a->text.len > 0 || a->n_tokens > 0) && !send_chunk(a, CHUNK_PIECE, NULL))))
            return;
    }
    send_end(a, ev.finish);
}

void answer_run(App *app, Channel *ch, const AnswerFormat *format, const TokenList *prompt, const Params *p)
{
    Status st;
    ApiError e;
    Stream *s = NULL;
    int32_t *stop_ids = NULL;
    size_t n_end;
    const int32_t *end = tokenizer_end_ids(app->tokenizer, &n_end);
    Answer a = {.app = app,
                .ch = ch,
                .format = format,
                .p = p,
                .n_prompt = prompt->n,
                .created = clock_unix_s(app->clock),
                .id = app_next(app)};

    if (prompt->n + 1 > app->max_len)
        TRY(api_error_set(&e, ST_INVALID, "context_length_exceeded", format->prompt_field,
                          "the prompt has %zu tokens; with one for the answer at most %u fit: shorten it", prompt->n,
                          app->max_len));
    st = stop_new(&a.stop, p->stop, p->n_stop, &e.err);
    if (st != ST_OK)
        TRY(api_error_of(&e, st, "invalid_value", "stop"));
    stop_ids = malloc((n_end + p->n_stop_ids + 1) * sizeof *stop_ids);
    if (!stop_ids)
        TRY(api_error_set(&e, ST_NOMEM, NULL, NULL, "out of memory for a request"));
    if (n_end)
        memcpy(stop_ids, end, n_end * sizeof *stop_ids);
    memcpy(stop_ids + n_end, p->stop_ids, p->n_stop_ids * sizeof *stop_ids);
    detokenizer_init(&a.detokenizer, app->tokenizer, false);

    GenRequest req = {.prompt = prompt->id,
                      .n_prompt = (uint32_t)prompt->n,
                      .max_tokens = p->max_tokens,
                      .sampling = p->sampling,
                      .stop_ids = stop_ids,
                      .n_stop_ids = (uint32_t)(n_end + p->n_stop_ids),
                      .ignore_eos = p->ignore_eos,
                      .want_logprobs = p->logprobs,
                      .n_top_logprobs = p->n_top};
    st = engine_submit(app->engine, &req, &s, &e.err);
    if (st != ST_OK)
        TRY(api_error_of(&e, st, NULL, NULL));
    channel_on_gone(ch, cancel, s);
    answer_loop(&a, s);
    channel_on_gone(ch, NULL, NULL);
done:
    if (st != ST_OK)
        api_error_send(&e, ch);
    stream_free(s);
    stop_free(a.stop);
    free(stop_ids);
    free(a.tokens);
    str_release(&a.text);
    str_release(&a.piece);
    str_release(&a.line);
}
