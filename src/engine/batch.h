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
    SampleRow *samples;                    /* [max_seqs] */
    SampleEdit *edits;                     /* [max_edits] */
    uint32_t n_edits, max_edits;
    Sequence **sequences; /* [max_seqs]: of each of seqs; NULL when it has ended since */
    uint32_t *out_seqs;   /* [max_seqs]: of each output, which of seqs it is of */
    uint32_t *out_places; /* [max_seqs]: of each output, the place of its token in the sequence */
    bool want_logits;     /* by some output */
    uint32_t groups, max_blocks;
} Batch;

/* max_seqs: sequences, and so outputs, of a step. groups: KV groups. */
Status batch_init(Batch *b, const StepRunner *bounds, uint32_t max_seqs, uint32_t groups, Err *err);
void batch_release(Batch *b);

/* Rows of one sequence are consecutive and in order of position; a sequence whose last token is among its rows has an
 * output. Those whose biases and penalties find no room wait: their rows become 0. */
void batch_fill(Batch *b, const SequenceList *running);
StepInput batch_input(const Batch *b);
/* The step was launched: its rows count as written, and each output's token has its place, where it is -1 - o until
 * it is known. */
void batch_launched(const Batch *b);
void batch_forget(Batch *b, const Sequence *q); /* it has ended; what the step brings for it is dropped */
#endif
