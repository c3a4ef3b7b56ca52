/* batch.c - from sequences to tables: the one place where a token's position becomes a KV slot. */
#include "engine/batch.h"
#include <stdlib.h>
#include <string.h>

Status batch_init(Batch *b, uint32_t max_rows, uint32_t max_seqs, uint32_t max_len, Err *err)
{
    const uint32_t max_blocks = max_len / KV_BLOCK_TOKENS + (max_len % KV_BLOCK_TOKENS != 0);
    Batch made = {.tokens = calloc(max_rows, sizeof(int32_t)),
                  .positions = calloc(max_rows, sizeof(int32_t)),
                  .slots = calloc(max_rows, sizeof(int32_t)),
                  .row_seq = calloc(max_rows, sizeof(int32_t)),
                  .seq_start = calloc(max_seqs + 1u, sizeof(int32_t)),
                  .block_table = calloc(max_seqs, max_blocks * sizeof(int32_t)),
                  .out_rows = calloc(max_seqs, sizeof(int32_t)),
                  .state_slots = calloc(max_seqs, sizeof(int32_t)),
                  .sequences = calloc(max_seqs, sizeof(Sequence *)),
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

static void add_sequence(Batch *b, Sequence *q)
{
    const uint32_t seq = b->seqs++;

    b->sequences[seq] = q;
    b->state_slots[seq] = q->state_slot;
    memcpy(b->block_table + (size_t)seq * b->max_blocks, q->table.blocks, q->table.n * sizeof *q->table.blocks);
    for (uint32_t i = 0; i < q->rows; i++) {
        uint32_t row = b->rows++, position = q->n_kv + i;
        b->tokens[row] = q->tokens[position];
        b->positions[row] = (int32_t)position;
        b->slots[row] =
            q->table.blocks[position / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + (int32_t)(position % KV_BLOCK_TOKENS);
        b->row_seq[row] = (int32_t)seq;
    }
    b->seq_start[b->seqs] = (int32_t)b->rows;
    if (q->rows == sequence_pending(q))
        b->out_rows[b->outs++] = (int32_t)b->rows - 1;
}

void batch_fill(Batch *b, const SequenceList *running)
{
    b->rows = b->seqs = b->outs = 0;
    for (uint32_t i = 0; i < running->n; i++)
        if (running->items[i]->rows > 0)
            add_sequence(b, running->items[i]);
}

StepInput batch_input(const Batch *b)
{
    return (StepInput){b->rows,    b->seqs,      b->outs,        b->tokens,   b->positions,  b->slots,
                       b->row_seq, b->seq_start, b->block_table, b->out_rows, b->state_slots};
}
