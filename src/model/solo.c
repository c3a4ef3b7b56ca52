/* solo.c - see solo.h. Logical block b is physical block b modulo the pool: a pool with a window holds all that a chunk
 * sees and writes, so what is overwritten is dead. */
#include "model/solo.h"
#include <stdlib.h>

struct Solo {
    Model *model;
    uint32_t len, chunk, limit;
    uint32_t blocks;                                         /* of a table */
    int32_t *positions, *slots, *row_seq, *table, *out_rows; /* chunk-sized, slots and table for each KV group */
};

Status solo_new(Solo **out, Model *m, Err *err)
{
    Status st = ST_OK;
    const ModelOptions *o = model_options(m);
    const MemoryPlan *mem = model_memory(m);
    Solo *s = calloc(1, sizeof *s);

    if (s == NULL)
        return err_set(err, ST_NOMEM, "out of memory for a sequence");
    s->model = m;
    s->chunk = o->max_rows;
    for (uint32_t g = 0; g < mem->n_groups; g++)
        s->chunk = kv_group_rows(mem->groups[g], s->chunk);
    s->limit = model_max_tokens(m);
    s->blocks = kv_group_blocks(o->max_len);
    s->positions = calloc(s->chunk, sizeof(int32_t));
    s->slots = calloc((size_t)mem->n_groups * s->chunk, sizeof(int32_t));
    s->row_seq = calloc(s->chunk, sizeof(int32_t));
    s->out_rows = calloc(s->chunk, sizeof(int32_t));
    s->table = calloc((size_t)mem->n_groups * s->blocks, sizeof(int32_t));
    if (!s->positions || !s->slots || !s->row_seq || !s->out_rows || !s->table)
        TRY(err_set(err, ST_NOMEM, "out of memory for a sequence"));
    for (uint32_t g = 0; g < mem->n_groups; g++)
        for (uint32_t b = 0; b < s->blocks; b++)
            s->table[(size_t)g * s->blocks + b] = (int32_t)(b % mem->groups[g].blocks);
    *out = s;
    s = NULL;
done:
    solo_free(s);
    return st;
}

void solo_free(Solo *s)
{
    if (s == NULL)
        return;
    free(s->positions);
    free(s->slots);
    free(s->row_seq);
    free(s->out_rows);
    free(s->table);
    free(s);
}

void solo_reset(Solo *s)
{
    s->len = 0;
}

static void fill_slots(Solo *s, uint32_t rows)
{
    for (uint32_t g = 0; g < model_memory(s->model)->n_groups; g++)
        for (uint32_t r = 0; r < rows; r++) {
            const uint32_t p = s->len + r;
            const int32_t block = s->table[(size_t)g * s->blocks + p / KV_BLOCK_TOKENS];
            s->slots[(size_t)g * rows + r] = block * KV_BLOCK_TOKENS + (int32_t)(p % KV_BLOCK_TOKENS);
        }
}

Status solo_append(Solo *s, const int32_t *ids, uint32_t n, float *logits, Err *err)
{
    Status st = ST_OK;
    uint32_t most = s->chunk, max_outs = model_options(s->model)->max_outs;

    if (n > s->limit - s->len)
        return err_set(err, ST_INVALID,
                       "%u tokens behind %u are more than the context of %u; raise --max-len and --kv-tokens", n,
                       s->len, s->limit);
    if (logits && max_outs < most)
        most = max_outs;
    for (uint32_t done = 0; done < n;) {
        uint32_t rows = n - done < most ? n - done : most;
        int32_t start[2] = {0, (int32_t)rows}, state_slot = 0;
        for (uint32_t r = 0; r < rows; r++) {
            s->positions[r] = (int32_t)(s->len + r);
            s->out_rows[r] = (int32_t)r;
        }
        fill_slots(s, rows);
        StepInput in = {.rows = rows,
                        .seqs = 1,
                        .outs = logits ? rows : 0,
                        .tokens = ids + done,
                        .positions = s->positions,
                        .slots = s->slots,
                        .row_seq = s->row_seq,
                        .seq_start = start,
                        .block_table = s->table,
                        .out_rows = s->out_rows,
                        .state_slots = &state_slot};
        TRY(model_step(s->model, &in, logits ? logits + (size_t)done * model_vocab(s->model) : NULL, err));
        s->len += rows;
        done += rows;
    }
done:
    return st;
}
