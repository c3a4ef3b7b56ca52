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
/* From now on what a node leaves is rounded to `format`, DT_BF16 or DT_F32 (as at first: exact), but integers, logits and
 * outputs that are f32 on every class: as in a plan whose edges have that format, apart from the order of its f32 sums. seed, when not
 * 0, stands for that order: each value is moved by up to 1e-6 of itself before it is rounded. */
void reference_round_edges(Reference *r, DType format, uint64_t seed);
/* Appends n tokens to the sequence and writes logits of each, f32 [n][vocab].
 * hidden, when not NULL, gets the residual stream behind each layer: f32 [n_layers][n][hidden]. */
Status reference_forward(Reference *r, const int32_t *ids, uint32_t n, float *logits, float *hidden, Err *err);
#endif
