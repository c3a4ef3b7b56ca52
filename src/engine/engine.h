/* engine.h - the one owner of inference state: a thread that schedules, runs steps, samples and hands tokens to
 * streams.
 *
 * Server threads submit requests (bounded queue) and read token events from a Stream each. A slow reader never stalls
 * the engine: a stream has room for all tokens that its request may get. Owns: the model's steps, KV blocks, sequences.
 * Not: the model itself, text, HTTP. Thread: engine_submit, engine_stats and all stream_ calls from any thread; the
 * rest from the owner. */
#ifndef METRALE_ENGINE_ENGINE_H
#define METRALE_ENGINE_ENGINE_H
#include "core/clock.h"
#include "core/log.h"
#include "model/model.h"
#include "sampling/sampling.h"

typedef struct Engine Engine;
typedef struct Stream Stream;

typedef enum { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED, FINISH_ERROR } FinishReason;

enum { ENGINE_MAX_TOP_LOGPROBS = 20 };
typedef struct TokenEvent {
    int32_t token;       /* -1 in the last event when no token comes with it */
    FinishReason finish; /* not NONE: the last event */
    float logprob;
    uint32_t n_top;
    TokenLogprob top[ENGINE_MAX_TOP_LOGPROBS];
    uint64_t at_ns;
} TokenEvent;

typedef struct GenRequest {
    const int32_t *prompt; /* copied */
    uint32_t n_prompt;
    /* Of the answer. 0: as many as fit. More than fit into the window (max_len) or the KV pools, counted with the
     * prompt, are clipped to what fits; the answer then ends with FINISH_LENGTH. */
    uint32_t max_tokens;
    SamplingParams sampling; /* bias is copied */
    const int32_t *stop_ids; /* end tokens, copied; the end token itself is delivered with FINISH_STOP */
    uint32_t n_stop_ids;
    bool ignore_eos; /* stop_ids do not end the answer */
    bool want_logprobs;
    uint32_t n_top_logprobs; /* counts with want_logprobs only */
    uint64_t deadline_ns;    /* on the engine's clock; 0: none. FINISH_CANCELLED from then on, within one step */
    /* Called by the engine thread after each event is readable; must not block, nor call stream_free. NULL: stream_next
     * only. */
    void (*notify)(void *ctx);
    void *notify_ctx;
} GenRequest;

typedef struct EngineOptions {
    uint32_t queue_len; /* waiting requests, 1 to 65536; one more is ST_BUSY */
    /* Called once by the engine thread when a step failed because the device is lost: no later step can succeed. NULL is
     * fine. */
    void (*on_lost)(void *ctx, const char *why);
    void *lost_ctx;
} EngineOptions;

typedef struct EngineStats {
    uint32_t running, waiting;
    uint32_t kv_blocks_used, kv_blocks_total; /* over the pools of all KV groups */
    uint64_t steps, prompt_tokens, generated_tokens, preemptions;
    uint64_t requests; /* accepted */
} EngineStats;

Status engine_new(Engine **out, Model *model, Clock *clock, const EngineOptions *opt, const Log *log, Err *err);
/* Starts the thread. Without it the owner calls engine_step itself (tests, bench). */
Status engine_start(Engine *e, Err *err);
/* Stops taking requests, lets accepted ones finish until grace_ns has passed, then ends them with FINISH_CANCELLED;
 * joins the thread. Without a thread it steps by itself. */
void engine_stop(Engine *e, uint64_t grace_ns);
void engine_free(Engine *e); /* stops without grace if need be; NULL is fine */
/* One turn: schedule, fill the batch, launch the plan, commit what was picked: by this step, or, where the device runs ahead of
 * the host, by the one before it. *worked is false when there was nothing to do. A step that fails ends its requests with FINISH_ERROR and is returned; the engine can go on. */
Status engine_step(Engine *e, bool *worked, Err *err);

/* ST_INVALID: empty prompt, token outside the vocabulary, prompt + 1 over max_len or over what the KV pools hold, bad
 * sampling values (sentences fit for the client). ST_BUSY: queue full. ST_CANCELLED: stopping. */
Status engine_submit(Engine *e, const GenRequest *req, Stream **out, Err *err);
/* Next event in order; one reader at a time. wait_ns 0: do not wait. False: none yet (or, after the last event, never
 * again). */
bool stream_next(Stream *s, TokenEvent *out, uint64_t wait_ns);
void stream_cancel(Stream *s); /* takes effect within one step; a FINISH_CANCELLED event follows */
/* Cancels what is unfinished. Waits for a notify under way, and none follows: so hold no lock that notify takes. NULL is
 * fine. The engine may be gone already. */
void stream_free(Stream *s);
/* After the last event: the sentence behind FINISH_ERROR, or why the engine cancelled; otherwise "". */
const char *stream_error(const Stream *s);
void engine_stats(Engine *e, EngineStats *out);
const Model *engine_model(const Engine *e); /* NULL when it was made without one (step_runner.h) */
#endif
