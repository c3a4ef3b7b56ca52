/* batch.c - from sequences to tables: the one place where a token's position becomes a KV slot, and where a sequence's wishes
 * become the words of op sample. */
#include "engine/batch.h"
#include <stdlib.h>
#include <string.h>

Status batch_init(Batch *b, const StepRunner *bounds, uint32_t max_seqs, uint32_t groups, Err *err)
{
    const uint32_t max_rows = bounds->max_rows, max_blocks = kv_group_blocks(bounds->max_len);
    const uint32_t max_edits = step_max_edits(max_seqs, bounds->vocab, bounds->max_len);
    Batch made = {.tokens = calloc(max_rows, sizeof(int32_t)),
                  .positions = calloc(max_rows, sizeof(int32_t)),
                  .slots = calloc(max_rows, groups * sizeof(int32_t)),
                  .row_seq = calloc(max_rows, sizeof(int32_t)),
                  .seq_start = calloc(max_seqs + 1u, sizeof(int32_t)),
                  .block_table = calloc((size_t)max_seqs * groups, max_blocks * sizeof(int32_t)),
                  .out_rows = calloc(max_seqs, sizeof(int32_t)),
                  .state_slots = calloc(max_seqs, sizeof(int32_t)),
                  .samples = calloc(max_seqs, sizeof(SampleRow)),
                  .edits = calloc(max_edits, sizeof(SampleEdit)),
                  .max_edits = max_edits,
                  .sequences = calloc(max_seqs, sizeof(Sequence *)),
                  .out_seqs = calloc(max_seqs, sizeof(uint32_t)),
                  .out_places = calloc(max_seqs, sizeof(uint32_t)),
                  .groups = groups,
                  .max_blocks = max_blocks};

    *b = made;
    if (!b->tokens || !b->positions || !b->slots || !b->row_seq || !b->seq_start || !b->block_table || !b->out_rows ||
        !b->state_slots || !b->samples || !b->edits || !b->sequences || !b->out_seqs || !b->out_places) {
        batch_release(b);
        return err_set(err, ST_NOMEM, "out of memory for the tables of a step of %u rows and %u sequences", max_rows,
                       max_seqs);
    }
    return ST_OK;
}

void batch_release(Batch *b)
{
    free(b->tokens);
    free(b->positions);
    free(b->slots);
    free(b->row_seq);
    free(b->seq_start);
    free(b->block_table);
    free(b->out_rows);
    free(b->state_slots);
    free(b->samples);
    free(b->edits);
    free(b->sequences);
    free(b->out_seqs);
    free(b->out_places);
    *b = (Batch){0};
}

/* Slots and blocks of the sequence's next rows, in the step's table of one group. */
static void add_blocks(const KvTable *t, const Sequence *q, int32_t *slots, int32_t *table)
{
    memcpy(table, t->blocks, t->n * sizeof *t->blocks);
    for (uint32_t i = 0; i < q->rows; i++) {
        uint32_t position = q->n_kv + i;
        slots[i] = t->blocks[position / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + (int32_t)(position % KV_BLOCK_TOKENS);
    }
}

/* Will the sequence's last token be among its rows? */
static bool has_output(const Sequence *q)
{
    return q->rows == sequence_pending(q);
}

/* The output's words and edits; sequence_edits says how many these are. */
static void add_output(Batch *b, Sequence *q, uint32_t seq)
{
    const uint32_t out = b->outs++;
    SampleRow *s = &b->samples[out];
    SampleEdit *edits = b->edits + b->n_edits;

    sampling_fill(&q->sampling, q->n_tokens - q->n_prompt, q->want_logprobs, s); /* counts on over a preemption */
    s->first_edit = b->n_edits;
    s->n_bias = q->sampling.n_bias;
    s->n_seen = q->seen.n;
    s->in_prompt = q->n_tokens == q->n_prompt;
    for (uint32_t i = 0; i < s->n_bias; i++) {
        edits[i].token = q->bias[i].token;
        memcpy(&edits[i].value, &q->bias[i].bias, sizeof edits[i].value);
    }
    if (s->n_seen > 0)
        memcpy(edits + s->n_bias, q->seen.list, s->n_seen * sizeof *edits);
    b->n_edits += s->n_bias + s->n_seen;
    b->out_rows[out] = (int32_t)b->rows - 1;
    b->out_seqs[out] = seq;
    b->out_places[out] = q->n_tokens;
    b->want_logits |= q->n_top > 0;
}

/* rows, seqs: of the whole step. */
static void add_sequence(Batch *b, Sequence *q, uint32_t rows, uint32_t seqs)
{
    const uint32_t seq = b->seqs++;

    b->sequences[seq] = q;
    b->state_slots[seq] = q->state_slot;
    for (uint32_t g = 0; g < b->groups; g++)
        add_blocks(&q->kv.group[g], q, b->slots + (size_t)g * rows + b->rows,
                   b->block_table + ((size_t)g * seqs + seq) * b->max_blocks);
    for (uint32_t i = 0; i < q->rows; i++) {
        uint32_t row = b->rows++, position = q->n_kv + i;
        b->tokens[row] = q->tokens[position];
        b->positions[row] = (int32_t)position;
        b->row_seq[row] = (int32_t)seq;
    }
    b->seq_start[b->seqs] = (int32_t)b->rows;
    if (has_output(q))
        add_output(b, q, seq);
}

void batch_fill(Batch *b, const SequenceList *running)
{
    uint32_t rows = 0, seqs = 0, edits = 0;

    b->rows = b->seqs = b->outs = b->n_edits = 0;
    b->want_logits = false;
    for (uint32_t i = 0; i < running->n; i++) {
        Sequence *q = running->items[i];
        if (q->rows > 0 && has_output(q)) {
            const uint32_t own = sequence_edits(q);
            if (own > b->max_edits - edits) /* never the first: one sequence's always fit */
                q->rows = 0;
            else
                edits += own;
        }
        rows += q->rows;
        seqs += q->rows > 0;
    }
    for (uint32_t i = 0; i < running->n; i++)
        if (running->items[i]->rows > 0)
            add_sequence(b, running->items[i], rows, seqs);
}

StepInput batch_input(const Batch *b)
{
    return (StepInput){.rows = b->rows,
                       .seqs = b->seqs,
                       .outs = b->outs,
                       .tokens = b->tokens,
                       .positions = b->positions,
                       .slots = b->slots,
                       .row_seq = b->row_seq,
                       .seq_start = b->seq_start,
                       .block_table = b->block_table,
                       .out_rows = b->out_rows,
                       .state_slots = b->state_slots,
                       .samples = b->samples,
                       .edits = b->edits,
                       .n_edits = b->n_edits};
}

void batch_launched(const Batch *b)
{
    for (uint32_t i = 0; i < b->seqs; i++)
        b->sequences[i]->n_kv += b->sequences[i]->rows;
    for (uint32_t o = 0; o < b->outs; o++) {
        Sequence *q = b->sequences[b->out_seqs[o]];
        q->tokens[q->n_tokens++] = -1 - (int32_t)o;
    }
}

void batch_forget(Batch *b, const Sequence *q)
{
    for (uint32_t i = 0; i < b->seqs; i++)
        if (b->sequences[i] == q)
            b->sequences[i] = NULL;
}
