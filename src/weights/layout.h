/* layout.h - the device layouts of weights: how a row-major stored tensor is laid out for kernels.
 * A layout is named by the family that reads it (FAMILIES.toml `layout`). All CPU classes share one layout for each
 * format.
 *
 *   row     [n][row bytes]                as stored
 *   f32     [n] f32                       any float vector, widened exactly (norms, biases)
 *   n16     16 output rows interleaved, so that one vector register holds the same k (or 4 k's) of 16 rows; n is padded
 * to 16 with zeros. f32/f16/bf16:  tile t = n/16:  [k][16] elements q8_0:          tile t, block b = k/32:  f16 d[16] |
 * i8  q[8][16][4]      (q[g][r][j]: row r, k = 32b + 4g + j)       = 544 bytes q4_0:          tile t, block b: f16
 * d[16] | u8  q[4][16][4]      (byte of q[g][r][j]: low nibble k = 32b + 4g + j, q4_1:          tile t, block b:  f16
 * d[16], f16 m[16] | u8 q[4][16][4]    high nibble k = 32b + 16 + 4g + j)          = 288 / 320 bytes
 *
 * Transforms are pure: bytes in, bytes out. */
#ifndef METRALE_WEIGHTS_LAYOUT_H
#define METRALE_WEIGHTS_LAYOUT_H
#include "core/dtype.h"
#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum { LAYOUT_ROW, LAYOUT_F32, LAYOUT_N16, LAYOUT_COUNT } WeightLayout;

const char *layout_name(WeightLayout l);
bool layout_parse(const char *name, WeightLayout *out);
/* Can this stored format be laid out so? */
bool layout_takes(WeightLayout l, DType stored);
/* The format that a kernel sees: stored, or f32 under LAYOUT_F32. */
DType layout_dtype(WeightLayout l, DType stored);
/* Device bytes of an {n, k} tensor (n = 1 for vectors); false on overflow or when k is no multiple of the block. */
bool layout_bytes(WeightLayout l, DType stored, uint64_t n, uint64_t k, uint64_t *bytes);
/* How many source rows one independent piece takes (1 for row and f32, 16 for n16). */
uint32_t layout_rows(WeightLayout l);
/* Lays out rows [0, rows) of a source piece, rows <= layout_rows(l); src is row-major stored rows, dst one piece.
 * Missing rows are zero. */
void layout_piece(WeightLayout l, DType stored, uint64_t k, uint32_t rows, const void *src, void *dst);
#endif
