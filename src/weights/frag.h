/* frag.h - the layout `frag` of layout.h: tiles of 16 rows in the order in which tensor cores take them.
 * Internal to this room. Pure. */
#ifndef METRALE_WEIGHTS_FRAG_H
#define METRALE_WEIGHTS_FRAG_H
#include "core/dtype.h"
#include <stdbool.h>
#include <stdint.h>

bool frag_takes(DType t);
/* Bytes of a tile of 16 rows, a multiple of 16; false on overflow. */
bool frag_tile_bytes(DType t, uint64_t k, uint64_t *bytes);
/* rows <= 16 row-major stored rows; the others, and k's behind the last, become zero. */
void frag_tile(DType t, uint64_t k, uint32_t rows, const uint8_t *src, uint8_t *dst);
#endif
