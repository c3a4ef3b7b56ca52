/* batch.c - from sequences to tables: the one place where a token's position becomes a KV slot. */
#include "engine/batch.h"
#include <stdlib.h>
#include <string.h>

Status batch_init(Batch *b, uint32_t max_rows, uint32_t max_seqs, uint32_t max_len, uint32_t groups, Err *err)
{
    const uint32_t max_blocks = kv_group_blocks(max_len);
    Batch made = {.tokens = calloc(max_rows, sizeof(int32_t)),
                  .positions = calloc(max_rows, sizeof(int32_t)),
                  .slots = calloc(max_rows, groups * sizeof(int32_t)),
                  .row_seq = calloc(max_rows, sizeof(int32_t)),
                  .seq_start = calloc(max_seqs + 1u, sizeof(int32_t)),
                  .block_table = calloc((size_t)max_seqs * groups, max_blocks * sizeof(int32_t)),
                  .out_rows = calloc(max_seqs, sizeof(int32_t)),
                  .state_slots = calloc(max_seqs, sizeof(int32_t)),
                  .sequences = calloc(max_seqs, sizeof(Sequence *)),
                  .groups = groups,
                  .max_blocks = max_blocks};

    *b = made;
    if (!b->tokens || !b->positions || !b->slots || !b->row_seq || !b->seq_start || !b->block_table || !b->out_rows ||
        !b->state_slots || !b->sequences) {
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
    free(b->sequences);
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
    if (q->rows == sequence_pending(q))
        b->out_rows[b->outs++] = (int32_t)b->rows - 1;
}

void batch_fill(Batch *b, const SequenceList *running)
{
    uint32_t rows = 0, seqs = 0;

    b->rows = b->seqs = b->outs = 0;
    for (uint32_t i = 0; i < running->n; i++) {
        rows += running->items[i]->rows;
        seqs += running->items[i]->rows > 0;
    }
    for (uint32_t i = 0; i < running->n; i++)
        if (running->items[i]->rows > 0)
            add_sequence(b, running->items[i], rows, seqs);
}

StepInput batch_input(const Batch *b)
{
    return (StepInput){b->rows,    b->seqs,      b->outs,        b->tokens,   b->positions,  b->slots,
                       b->row_seq, b->seq_start, b->block_table, b->out_rows, b->state_slots};
}
