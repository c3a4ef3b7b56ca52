/* solo.h - one sequence alone on a model, KV blocks in order, round and round in a pool that keeps a window: for score, perplexity and tests. The engine does not use it.
 * Owns: its step tables.   Not: the model.   Thread: the model's. */
#ifndef METRALE_MODEL_SOLO_H
#define METRALE_MODEL_SOLO_H
#include "model/model.h"

typedef struct Solo Solo;

Status solo_new(Solo **out, Model *m, Err *err);
void solo_free(Solo *s);
void solo_reset(Solo *s); /* forgets the sequence */
/* Appends n tokens in chunks of at most max_rows and max_outs. logits: f32 [n][vocab] for all of them, or NULL for none.
 * ST_INVALID when the sequence would pass model_max_tokens. */
Status solo_append(Solo *s, const int32_t *ids, uint32_t n, float *logits, Err *err);
#endif
