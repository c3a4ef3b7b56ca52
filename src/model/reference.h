/* reference.h - the slow truth: interprets an instance node by node in plain C with double accumulation, one function
 * an op (reference_ops.h). It knows no plan, no kernel, no paging: KV is a plain array of double, unless the instance's
 * kv_format rounds it. Owns: its decoded weights on demand and its KV.   Thread: one caller. */
#ifndef METRALE_MODEL_REFERENCE_H
#define METRALE_MODEL_REFERENCE_H
#include "circuit/instance.h"
#include "weights/store.h"

typedef struct Reference Reference;

Status reference_new(Reference **out, const Instance *in, WeightStore *store, uint32_t max_len, Err *err);
void reference_free(Reference *r);
/* Appends n tokens to the sequence and writes logits of each, f32 [n][vocab].
 * hidden, when not NULL, gets the residual stream behind each layer: f32 [n_layers][n][hidden]. */
Status reference_forward(Reference *r, const int32_t *ids, uint32_t n, float *logits, float *hidden, Err *err);
#endif
