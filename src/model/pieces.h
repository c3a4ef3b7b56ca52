/* pieces.h - the rows of a matrix that is put together from several tensors (InstanceBinding.pieces), turned where they are
 * stored as columns. Shared by the loader and the reference. */
#ifndef METRALE_MODEL_PIECES_H
#define METRALE_MODEL_PIECES_H
#include "circuit/instance.h"
#include "weights/store.h"

/* Rows of one group: the sum over its pieces. */
uint64_t pieces_group_rows(const InstanceBinding *b);
/* Rows [first, first + n) of w in its stored format, which is a float, one behind the other. A group is read whole, so
 * runs should be of whole groups. Errors: a tensor that changed, or a value that is not finite or not in its format. */
Status pieces_read(WeightStore *store, const InstanceBinding *b, const InstanceWeight *w, uint64_t first, uint64_t n,
                   uint8_t *out, Err *err);
#endif
