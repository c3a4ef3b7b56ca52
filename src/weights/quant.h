/* quant.h - reads a matrix whose codes, scales and zero points lie in tensors of their own, as rows of one format
 * (dtype.h): what a device layout is made of, and what decode.h turns into floats.
 *
 * Every value that can spoil the matrix is checked when it is opened or read: a scale that is not finite, a scale over
 * the whole matrix that is 0, a group that does not exist, a shape that disagrees. The sentence names the tensor.
 *
 * Owns: the side tensors' values, and the codes where they are stored by column.   Not: the store.
 * Thread: one caller for each reader; any number of readers of one store. */
#ifndef METRALE_WEIGHTS_QUANT_H
#define METRALE_WEIGHTS_QUANT_H
#include "core/quant.h"
#include "weights/store.h"

typedef struct QuantReader QuantReader;

/* module: what stands in front of the scheme's suffixes. {n, k}: the whole main tensor as a matrix, with experts in one
 * tensor all of their rows. format: of the rows. Shapes are as src/circuit/quant_bind.c checked them. */
Status quant_open(QuantReader **out, WeightStore *store, const QuantScheme *scheme, const char *module, uint64_t n,
                  uint64_t k, DType format, Err *err);
/* For rows [first, first + rows) alone: no other row's scales are read, where they can be told apart. */
Status quant_open_rows(QuantReader **out, WeightStore *store, const QuantScheme *scheme, const char *module, uint64_t n,
                       uint64_t k, DType format, uint64_t first, uint64_t rows, Err *err);
void quant_close(QuantReader *r);
/* Rows [first, first + n) in the format, one behind the other. */
Status quant_read(QuantReader *r, uint64_t first, uint64_t n, uint8_t *out, Err *err);
#endif
