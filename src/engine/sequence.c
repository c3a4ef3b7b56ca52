/* sequence.c - requests checked and copied, and the list that holds them.
 *
 * A sequence that was accepted can always be finished: its limit is clipped to the window (max_len) and to what the KV
 * pools hold of one sequence, and all memory that its answer needs on the host is taken here. */
#include "engine/sequence.h"
#include "engine/stream.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static Status check_tokens(const char *what, const int32_t *tokens, uint32_t n, uint32_t vocab, Err *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocab)
            return err_set(err, ST_INVALID, "%s[%u] is %d; the vocabulary has tokens 0 to %u", what, i, tokens[i],
                           vocab - 1);
    return ST_OK;
}

static uint32_t pool_tokens(const StepRunner *b)
{
    uint32_t tokens = b->n_groups == 0 ? kv_group_tokens((KvGroup){0, b->kv_blocks}) : UINT32_MAX;

    for (uint32_t g = 0; g < b->n_groups; g++) {
        uint32_t most = kv_group_tokens(b->groups[g]);
        tokens = most < tokens ? most : tokens;
    }
    return tokens;
}

static Status check_request(const GenRequest *r, const StepRunner *b, Err *err)
{
    Status st = ST_OK;

    if (r->n_prompt == 0)
        TRY(err_set(err, ST_INVALID, "the prompt is empty; give at least one token"));
    if (r->n_prompt >= b->max_len)
        TRY(err_set(err, ST_INVALID,
                    "the prompt has %u tokens; the context window is %u tokens, of which the answer needs at least one",
                    r->n_prompt, b->max_len));
    if (r->n_prompt >= pool_tokens(b))
        TRY(err_set(err, ST_INVALID,
                    "the prompt has %u tokens; the KV cache holds %u tokens in all, of which the answer needs at least "
                    "one",
                    r->n_prompt, pool_tokens(b)));
    TRY(check_tokens("prompt", r->prompt, r->n_prompt, b->vocab, err));
    TRY(check_tokens("stop_token_ids", r->stop_ids, r->n_stop_ids, b->vocab, err));
    if (r->n_top_logprobs > ENGINE_MAX_TOP_LOGPROBS)
        TRY(err_set(err, ST_INVALID, "top_logprobs is %u; it must be 0 to %d", r->n_top_logprobs,
                    ENGINE_MAX_TOP_LOGPROBS));
    TRY(sampling_check(&r->sampling, b->vocab, err));
done:
    return st;
}

static uint32_t token_limit(const GenRequest *r, const StepRunner *b)
{
    uint32_t limit = b->max_len < pool_tokens(b) ? b->max_len : pool_tokens(b);

    if (r->max_tokens > 0 && r->max_tokens < limit - r->n_prompt)
        limit = r->n_prompt + r->max_tokens;
    return limit;
}

Status sequence_new(Sequence **out, Stream **reader, const GenRequest *req, const StepRunner *bounds, Err *err)
{
    Status st = ST_OK;
    Sequence *q = NULL;

    TRY(check_request(req, bounds, err));
    q = calloc(1, sizeof *q);
    if (q == NULL)
        return err_set(err, ST_NOMEM, "out of memory for a request");
    q->n_prompt = q->n_tokens = req->n_prompt;
    q->state_slot = -1;
    q->limit = token_limit(req, bounds);
    q->want_logprobs = req->want_logprobs;
    q->n_top = !req->want_logprobs ? 0 : req->n_top_logprobs < bounds->vocab ? req->n_top_logprobs : bounds->vocab;
    q->deadline_ns = req->deadline_ns;
    q->n_stop_ids = req->ignore_eos ? 0 : req->n_stop_ids;

    q->tokens = calloc(q->limit, sizeof *q->tokens);
    q->bias = calloc(req->sampling.n_bias + 1u, sizeof *q->bias);
    q->stop_ids = calloc(q->n_stop_ids + 1u, sizeof *q->stop_ids);
    if (q->tokens == NULL || q->bias == NULL || q->stop_ids == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for a request of up to %u tokens", q->limit));
    memcpy(q->tokens, req->prompt, req->n_prompt * sizeof *q->tokens);
    q->sampling = req->sampling;
    q->sampling.bias = q->bias;
    q->sampling.n_prompt = q->n_prompt;
    for (uint32_t i = 0; i < req->sampling.n_bias; i++)
        q->bias[i] = req->sampling.bias[i];
    q->sampling.n_bias = sampling_merge_bias(q->bias, req->sampling.n_bias);
    for (uint32_t i = 0; i < q->n_stop_ids; i++)
        q->stop_ids[i] = req->stop_ids[i];
    if (sampling_penalises(&q->sampling))
        TRY(seen_init(&q->seen, bounds->vocab, q->limit, err));

    /* Each token of the answer, and an end that comes without one. */
    TRY(stream_new(&q->stream, q->limit - q->n_prompt + 1, q->n_top, req->notify, req->notify_ctx, err));
    *reader = q->stream;
    *out = q;
    q = NULL;
done:
    sequence_free(q);
    return st;
}

void sequence_free(Sequence *q)
{
    if (q == NULL)
        return;
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
        assert(q->kv.group[g].n == 0);
    stream_release(q->stream);
    seen_release(&q->seen);
    free(q->tokens);
    free(q->bias);
    free(q->stop_ids);
    free(q);
}

bool sequence_stops_at(const Sequence *q, int32_t token)
{
    for (uint32_t i = 0; i < q->n_stop_ids; i++)
        if (q->stop_ids[i] == token)
            return true;
    return false;
}

uint32_t sequence_edits(Sequence *q)
{
    for (; q->seen.list != NULL && q->n_counted + 1 < q->n_tokens; q->n_counted++) {
        const bool in_prompt = q->n_counted < q->n_prompt;
        if (!in_prompt || sampling_penalises_prompt(&q->sampling))
            seen_add(&q->seen, q->tokens[q->n_counted], in_prompt);
    }
    return q->sampling.n_bias + q->seen.n;
}

/* ---- lists ------------------------------------------------------------------------------------------------------ */

Status sequence_list_init(SequenceList *l, uint32_t cap, Err *err)
{
    *l = (SequenceList){.items = calloc(cap, sizeof(Sequence *)), .cap = cap};
    if (l->items == NULL)
        return err_set(err, ST_NOMEM, "out of memory for a list of %u requests", cap);
    return ST_OK;
}

void sequence_list_release(SequenceList *l)
{
    free(l->items);
    *l = (SequenceList){0};
}

void sequence_list_insert(SequenceList *l, uint32_t at, Sequence *q)
{
    assert(at <= l->n && l->n < l->cap);
    memmove(l->items + at + 1, l->items + at, (l->n - at) * sizeof(Sequence *));
    l->items[at] = q;
    l->n++;
}

Sequence *sequence_list_remove(SequenceList *l, uint32_t at)
{
    Sequence *q = l->items[at];

    assert(at < l->n);
    l->n--;
    memmove(l->items + at, l->items + at + 1, (l->n - at) * sizeof(Sequence *));
    return q;
}
