/* decode.h - what stored weights mean: one row to f32, as every kernel must read it. Pure.
 *
 * Formulas (dtype.h; GGUF block formats): f32, f16, bf16 widen exactly; q8_0: w = d*q; q4_0: w = d*(q-8); q4_1: w = d*q + m,
 * with d and m from f16. Product and sum are computed in f32, each rounded once, as kernels without a fused multiply-add
 * do. The products are exact, too: 11 bits of d times 8 of q fit into the 24 of a float. Only q4_1's sum can round, by
 * at most half an ulp. */
#ifndef METRALE_WEIGHTS_DECODE_H
#define METRALE_WEIGHTS_DECODE_H
#include "core/dtype.h"
#include <stdbool.h>
#include <stdint.h>

/* row [n] of t -> out [n]. False when t has no values as floats (integers, activations) or n is no multiple of its block. */
bool dtype_row_to_f32(DType t, const void *row, uint64_t n, float *out);

/* Can every weight of the row be finite: no infinity or NaN among the floats, or among the scales of the blocks? Where
 * it is not so, *at is the index of the first bad element (the first of its block). Rows that dtype_row_to_f32 refuses
 * are finite. */
bool dtype_row_finite(DType t, const void *row, uint64_t n, uint64_t *at);
#endif
