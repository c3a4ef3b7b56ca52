/* rope_table.h - rotary frequencies with a checkpoint's own factors, and the table that kernels read.
 * Thread: any. */
#ifndef METRALE_MODEL_ROPE_TABLE_H
#define METRALE_MODEL_ROPE_TABLE_H
#include "circuit/rope.h"
#include "weights/store.h"

/* inv_freq[dims/2] by the spec's rule, divided by its factors tensor when it names one; *scale multiplies cos and sin. */
Status rope_table_frequencies(const RopeSpec *spec, WeightStore *store, double *inv_freq, double *scale, Err *err);
/* out: f32 [max_len][dims/2][2] = cos, sin. */
Status rope_table_fill(const RopeSpec *spec, WeightStore *store, uint32_t max_len, float *out, Err *err);
#endif
