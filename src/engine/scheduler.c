/* scheduler.c - continuous batching.
 *
 * Every step: one row for each sequence that decodes; then the rest of the rows, in order of arrival, for prompts, which
 * may take several steps each; then new sequences as long as there are rows, places and blocks. Nobody overtakes.
 *
 * A sequence holds the blocks of its whole prompt from its admission on; while it decodes it takes them one by one. When
 * none is free the youngest gives up its own, waits at the head of the queue, and later recomputes what it had: its
 * answer so far has become part of its prompt. Each sequence alone fits into the pool, so the oldest always gets on and
 * every sequence ends.
 *
 * A running sequence has a state slot for as long as it runs. What the last owner left there needs no clearing: a
 * sequence begins, and begins again after a preemption, at position 0, where a model takes the state for zeros.
 *
 * The number of running sequences is bounded by rows, outputs and sequences of a step alike: then each decoding one has
 * a row and an output in each step, and nothing has to be bounded again further down. */
#include "engine/scheduler.h"
#include <stdlib.h>

_Static_assert((int)KV_BLOCKS_TOKENS == (int)KV_BLOCK_TOKENS, "pool and plan must agree on the size of a block");

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

Status scheduler_init(Scheduler *s, const StepRunner *bounds, uint32_t queue_len, Err *err)
{
    Status st = ST_OK;
    uint32_t places = min_u32(bounds->max_rows, min_u32(bounds->max_outs, bounds->max_seqs));

    *s = (Scheduler){.max_rows = bounds->max_rows};
    TRY(kv_blocks_new(&s->kv, bounds->kv_blocks, err));
    TRY(sequence_list_init(&s->running, places, err));
    TRY(sequence_list_init(&s->waiting, queue_len + places, err)); /* preempted ones come on top of the queue */
    s->free_slots = calloc(places, sizeof *s->free_slots);
    if (s->free_slots == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for %u state slots", places));
    while (s->n_free_slots < places) {
        s->free_slots[s->n_free_slots] = (int32_t)(places - 1 - s->n_free_slots);
        s->n_free_slots++;
    }
done:
    if (st != ST_OK)
        scheduler_release(s);
    return st;
}

void scheduler_release(Scheduler *s)
{
    sequence_list_release(&s->running);
    sequence_list_release(&s->waiting);
    kv_blocks_free(s->kv);
    free(s->free_slots);
    *s = (Scheduler){0};
}

Sequence *scheduler_remove(Scheduler *s, SequenceList *list, uint32_t at)
{
    Sequence *q = sequence_list_remove(list, at);
    kv_blocks_give(s->kv, &q->table);
    if (q->state_slot >= 0)
        s->free_slots[s->n_free_slots++] = q->state_slot;
    q->state_slot = -1;
    q->n_kv = 0;
    q->rows = 0;
    return q;
}

/* A block for one more token of running[at], if need be at the cost of younger ones. False: it was the youngest itself,
 * or has to end. */
static bool make_room(Scheduler *s, uint32_t at)
{
    Sequence *q = s->running.items[at];

    for (;;) {
        Status st = kv_blocks_take(s->kv, &q->table, q->n_kv + 1, NULL);
        if (st == ST_OK)
            return true;
        if (st != ST_BUSY) {
            q->starved = true;
            return false;
        }
        Sequence *youngest = scheduler_remove(s, &s->running, s->running.n - 1);
        sequence_list_insert(&s->waiting, 0, youngest);
        s->preemptions++;
        if (youngest == q)
            return false;
    }
}

/* Takes the blocks of the next waiting sequence, if those and one more (unless it can never need it) are free. */
static bool admit(Scheduler *s)
{
    Sequence *q = s->waiting.items[0];
    uint32_t roomy = min_u32(q->n_tokens + KV_BLOCK_TOKENS, q->limit);

    if (kv_blocks_need(&q->table, roomy) > kv_blocks_available(s->kv))
        return false;
    if (kv_blocks_take(s->kv, &q->table, q->n_tokens, NULL) != ST_OK) {
        q->starved = true;
        return false;
    }
    q->state_slot = s->free_slots[--s->n_free_slots];
    sequence_list_insert(&s->running, s->running.n, sequence_list_remove(&s->waiting, 0));
    return true;
}

void scheduler_pick(Scheduler *s)
{
    uint32_t rows = s->max_rows;

    for (uint32_t i = 0; i < s->running.n; i++) {
        Sequence *q = s->running.items[i];
        q->rows = sequence_pending(q) == 1 && make_room(s, i);
        rows -= q->rows;
    }
    for (uint32_t i = 0; rows > 0; i++) {
        if (i == s->running.n && (i == s->running.cap || s->waiting.n == 0 || !admit(s)))
            break;
        Sequence *q = s->running.items[i];
        if (q->rows == 0 && !q->starved) {
            q->rows = min_u32(sequence_pending(q), rows);
            rows -= q->rows;
        }
    }
}
