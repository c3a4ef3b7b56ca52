/* sequence.h - one accepted request on its way: tokens, KV table, what it may still get.
 * Owns: its tokens, copies of the request's lists, its end of the stream. Its KV blocks belong to the pools: they must be
 * given back before sequence_free.   Thread: made by a submitter, then the engine thread's. */
#ifndef METRALE_ENGINE_SEQUENCE_H
#define METRALE_ENGINE_SEQUENCE_H
#include "engine/kv_pools.h"
#include "engine/step_runner.h"
#include "sampling/seen.h"

typedef struct Sequence {
    Stream *stream;
    int32_t *
        tokens; /* [limit]: prompt, then answer; the last may still be one that a step in flight picks: -1 - its output */
    uint32_t n_prompt, n_tokens;
    uint32_t limit; /* tokens, prompt and answer, that it will have at most */
    uint32_t
        n_kv; /* leading tokens whose KV is written by the steps launched; where a window has passed on, it is gone again */
    uint32_t rows; /* of the next step */
    KvTables kv;
    int32_t state_slot; /* of the running sequence's recurrent states; -1: none */
    bool starved;       /* no host memory for its table: it must end */
    TokenEvent event;   /* the step's result, not delivered yet */
    Err why;            /* sentence of a last event that is no ordinary end */

    SamplingParams sampling;
    LogitBias *bias;
    SeenTokens seen; /* what penalties apply to, of the first n_counted tokens */
    uint32_t n_counted;
    int32_t *stop_ids;
    uint32_t n_stop_ids, n_top;
    bool want_logprobs;
    uint64_t deadline_ns;
} Sequence;

/* Checks the request against the runner's bounds (ST_INVALID, a sentence for the client) and copies it. *reader is the
 * other end of its stream. */
Status sequence_new(Sequence **out, Stream **reader, const GenRequest *req, const StepRunner *bounds, Err *err);
void sequence_free(Sequence *q);

/* Tokens whose KV has not been written: 1 while decoding, more while its prompt is read. */
static inline uint32_t sequence_pending(const Sequence *q)
{
    return q->n_tokens - q->n_kv;
}
/* It has all tokens that it may have, though the last one may not be known yet. */
static inline bool sequence_complete(const Sequence *q)
{
    return q->n_tokens == q->limit;
}
bool sequence_stops_at(const Sequence *q, int32_t token);
/* Biases, and with penalties the distinct tokens so far but for the last, which its row brings along: counted now. */
uint32_t sequence_edits(Sequence *q);

/* An ordered list of fixed capacity. */
typedef struct SequenceList {
    Sequence **items;
    uint32_t n, cap;
} SequenceList;
Status sequence_list_init(SequenceList *l, uint32_t cap, Err *err);
void sequence_list_release(SequenceList *l); /* not the sequences */
void sequence_list_insert(SequenceList *l, uint32_t at, Sequence *q);
Sequence *sequence_list_remove(SequenceList *l, uint32_t at);
#endif
