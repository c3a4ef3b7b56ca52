/* decode.h - what stored weights mean: one row to f32, as every kernel must read it. Pure.
 *
 * Formulas: dtype.h (GGUF block formats). f32, f16 and bf16 widen exactly. Scales and minima are f16 or integers, so that
 * every product (d*q; d*s*q, at most 11 + 7 + 6 bits; dmin*m; 2^e times an e2m1 value) fits into the 24 bits of a float and
 * is exact in any order. Only the formats that add or take off a minimum can round: once, to nearest. */
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
