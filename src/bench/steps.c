/* steps.c - see steps.h. Sequence q has the blocks q * n .. q * n + n - 1 of each pool; a pool with a window is smaller and
 * they go round in it, which is what its sequences' live blocks do. */
#include "bench/steps.h"
#include <stdlib.h>

typedef struct Tables {
    int32_t *tokens, *positions, *slots, *row_seq, *seq_start, *table, *out_rows, *state_slots;
} Tables;

static void fill(Tables *t, const Model *m, const StepLoad *l)
{
    const MemoryPlan *mem = model_memory(m);
    const uint32_t each = l->rows / l->seqs, stride = kv_group_blocks(model_options(m)->max_len);
    const uint32_t blocks = kv_group_blocks(l->first + each);
    uint64_t random = 1;

    for (uint32_t r = 0; r < l->rows; r++) {
        random = random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
        t->tokens[r] = (int32_t)((random >> 33) % model_vocab(m));
        t->row_seq[r] = (int32_t)(r / each);
        t->positions[r] = (int32_t)(l->first + r % each);
    }
    for (uint32_t q = 0; q < l->seqs; q++) {
        t->seq_start[q + 1] = (int32_t)((q + 1) * each);
        t->state_slots[q] = (int32_t)q;
    }
    for (uint32_t g = 0; g < mem->n_groups; g++) {
        int32_t *table = t->table + (size_t)g * l->seqs * stride, *slots = t->slots + (size_t)g * l->rows;
        for (uint32_t q = 0; q < l->seqs; q++)
            for (uint32_t b = 0; b < blocks; b++)
                table[(size_t)q * stride + b] = (int32_t)(((uint64_t)q * blocks + b) % mem->groups[g].blocks);
        for (uint32_t r = 0; r < l->rows; r++) {
            const uint32_t p = (uint32_t)t->positions[r];
            slots[r] = table[(size_t)t->row_seq[r] * stride + p / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS +
                       (int32_t)(p % KV_BLOCK_TOKENS);
        }
    }
    for (uint32_t o = 0; o < l->outs; o++)
        t->out_rows[o] = (int32_t)(l->rows - l->outs + o);
}

Status bench_steps(StepTimes *out, Model *m, const StepLoad *l, uint32_t rounds, Err *err)
{
    const ModelOptions *o = model_options(m);
    const uint32_t groups = model_memory(m)->n_groups;
    Tables t = {0};
    Status st = ST_OK;

    if (l->seqs == 0 || l->rows % l->seqs != 0 || l->seqs > o->max_seqs || l->rows > o->max_rows || l->outs > l->rows ||
        l->first + l->rows / l->seqs > o->max_len)
        return err_set(
            err, ST_INVALID,
            "a step of %u rows of %u sequences behind %u tokens is beyond the model's bounds (--max-rows %u, "
            "--max-seqs %u, --max-len %u)",
            l->rows, l->seqs, l->first, o->max_rows, o->max_seqs, o->max_len);
    t.tokens = calloc(l->rows, sizeof(int32_t));
    t.positions = calloc(l->rows, sizeof(int32_t));
    t.slots = calloc((size_t)l->rows * groups, sizeof(int32_t));
    t.row_seq = calloc(l->rows, sizeof(int32_t));
    t.seq_start = calloc(l->seqs + 1u, sizeof(int32_t));
    t.table = calloc((size_t)groups * l->seqs * kv_group_blocks(o->max_len), sizeof(int32_t));
    t.out_rows = calloc(l->outs + 1u, sizeof(int32_t));
    t.state_slots = calloc(l->seqs, sizeof(int32_t));
    if (!t.tokens || !t.positions || !t.slots || !t.row_seq || !t.seq_start || !t.table || !t.out_rows ||
        !t.state_slots)
        TRY(err_set(err, ST_NOMEM, "out of memory for a step of %u rows", l->rows));
    fill(&t, m, l);
    const StepInput in = {.rows = l->rows,
                          .seqs = l->seqs,
                          .outs = l->outs,
                          .tokens = t.tokens,
                          .positions = t.positions,
                          .slots = t.slots,
                          .row_seq = t.row_seq,
                          .seq_start = t.seq_start,
                          .block_table = t.table,
                          .out_rows = t.out_rows,
                          .state_slots = t.state_slots};
    TRY(model_time_launches(out, m, &in, rounds, err));
done:
    free(t.tokens);
    free(t.positions);
    free(t.slots);
    free(t.row_seq);
    free(t.seq_start);
    free(t.table);
    free(t.out_rows);
    free(t.state_slots);
    return st;
}
