/* scheduler.c - continuous batching.
 *
 * Every step: one row for each sequence that decodes; then the rest of the rows, in order of arrival, for prompts, which
 * may take several steps each; then new sequences as long as there are rows, places and blocks. Nobody overtakes.
 *
 * A sequence holds the blocks of its whole prompt from its admission on, in a KV group with a window those of its window;
 * while it decodes it takes them one by one. Where a window has passed on it gives them back, and takes new ones for the rows of the
 * step: a chunk of a prompt is cut to what is free. When a sequence finds no block for a single row, the youngest gives up its own, waits
 * at the head of the queue, and later recomputes what it had: its answer so far has become part of its prompt. Each
 * sequence alone fits into every pool, so the oldest always gets on and every sequence ends.
 *
 * A running sequence has a state slot for as long as it runs. What the last owner left there needs no clearing: a
 * sequence begins, and begins again after a preemption, at position 0, where a model takes the state for zeros.
 *
 * The number of running sequences is bounded by rows, outputs and sequences of a step alike: then each decoding one has
 * a row and an output in each step, and nothing has to be bounded again further down. */
#include "engine/scheduler.h"
#include <stdlib.h>

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

Status scheduler_init(Scheduler *s, const StepRunner *bounds, uint32_t queue_len, Err *err)
{
    Status st = ST_OK;
    const KvGroup whole = {.window = 0, .blocks = bounds->kv_blocks};
    uint32_t places = min_u32(bounds->max_rows, min_u32(bounds->max_outs, bounds->max_seqs));

    *s = (Scheduler){.max_rows = bounds->max_rows};
    TRY(kv_pools_init(&s->kv, bounds->n_groups ? bounds->groups : &whole, bounds->n_groups ? bounds->n_groups : 1,
                      err));
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
    kv_pools_release(&s->kv);
    free(s->free_slots);
    *s = (Scheduler){0};
}

Sequence *scheduler_remove(Scheduler *s, SequenceList *list, uint32_t at)
{
    Sequence *q = sequence_list_remove(list, at);
    kv_pools_give(&s->kv, &q->kv);
    if (q->state_slot >= 0)
        s->free_slots[s->n_free_slots++] = q->state_slot;
    q->state_slot = -1;
    q->n_kv = 0;
    q->rows = 0;
    return q;
}

/* Blocks for one more token of running[at], if need be at the cost of younger ones. False: it was the youngest itself,
 * or has to end. */
static bool make_room(Scheduler *s, uint32_t at)
{
    Sequence *q = s->running.items[at];

    for (;;) {
        Status st = kv_pools_take(&s->kv, &q->kv, q->n_kv + 1, NULL);
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

    if (!kv_pools_room(&s->kv, roomy))
        return false;
    if (kv_pools_reserve(&s->kv, &q->kv, q->n_tokens, NULL) != ST_OK) {
        q->starved = true;
        return false;
    }
    q->state_slot = s->free_slots[--s->n_free_slots];
    sequence_list_insert(&s->running, s->running.n, sequence_list_remove(&s->waiting, 0));
    return true;
}

/* Rows of a prompt, at most `rows`: as many as find blocks. */
static uint32_t read_prompt(Scheduler *s, Sequence *q, uint32_t rows)
{
    const uint32_t reach = kv_pools_reach(&s->kv, &q->kv, q->n_kv + min_u32(sequence_pending(q), rows));

    if (kv_pools_take(&s->kv, &q->kv, reach, NULL) != ST_OK) {
        q->starved = true;
        return 0;
    }
    return reach - q->n_kv;
}

void scheduler_pick(Scheduler *s)
{
    uint32_t rows = s->max_rows;

    for (uint32_t i = 0; i < s->running.n; i++)
        kv_pools_recycle(&s->kv, &s->running.items[i]->kv, s->running.items[i]->n_kv);
    for (uint32_t i = 0; i < s->running.n; i++) {
        Sequence *q = s->running.items[i];
        q->rows = !sequence_complete(q) && make_room(s, i) && sequence_pending(q) == 1;
        rows -= q->rows;
    }
    for (uint32_t i = 0; rows > 0; i++) {
        if (i == s->running.n && (i == s->running.cap || s->waiting.n == 0 || !admit(s)))
            break;
        Sequence *q = s->running.items[i];
        if (q->rows == 0 && !q->starved && !sequence_complete(q)) {
            q->rows = read_prompt(s, q, rows);
            rows -= q->rows;
        }
    }
}
