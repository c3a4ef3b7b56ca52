/* batch.h - the tables of one step (StepInput), filled from the sequences that take part.
 * Owns: the tables.   Not: the sequences.   Thread: engine only. */
#ifndef METRALE_ENGINE_BATCH_H
#define METRALE_ENGINE_BATCH_H
#include "engine/sequence.h"

typedef struct Batch {
    uint32_t rows, seqs, outs;
    int32_t *tokens, *positions, *row_seq; /* [max_rows] */
    int32_t *slots;                        /* [groups][rows] */
    int32_t *seq_start;                    /* [max_seqs + 1] */
    int32_t *block_table;                  /* [groups][seqs][max_blocks] */
    int32_t *out_rows, *state_slots;       /* [max_seqs] */
    Sequence **sequences;                  /* [max_seqs]: of each of seqs */
    uint32_t groups, max_blocks;
} Batch;

/* max_seqs: sequences, and so outputs, of a step. groups: KV groups. */
Status batch_init(Batch *b, uint32_t max_rows, uint32_t max_seqs, uint32_t max_len, uint32_t groups, Err *err);
void batch_release(Batch *b);

/* Rows of one sequence are consecutive and in order of position; a sequence whose last token is among its rows has an
 * output. */
void batch_fill(Batch *b, const SequenceList *running);
StepInput batch_input(const Batch *b);
#endif
