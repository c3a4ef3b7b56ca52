/* rowed.h - the formats whose rows have a part beside their codes (dtype.h: fp8/128, nvfp4, nf4, w4, w8, w4p): what they
 * mean and how they are laid out. decode.c and layout.c hand these formats on to here.
 * Internal to this room. Pure. */
#ifndef METRALE_WEIGHTS_ROWED_H
#define METRALE_WEIGHTS_ROWED_H
#include "core/dtype.h"
#include <stdbool.h>
#include <stdint.h>

/* Values of the 16 codes of nf4: quantiles of a normal distribution, scaled to -1..1 (QLoRA, Dettmers et al. 2023,
 * appendix E), as bitsandbytes has them in f32. */
extern const float NF4_VALUES[16];

/* Has t a row of this kind? */
bool rowed(DType t);
/* Where the parts of a row of n elements begin. */
typedef struct RowedParts {
    uint64_t order, scales, codes; /* byte offsets; w4p: u16 p[n], spans, codes; others as in dtype.h */
} RowedParts;
RowedParts rowed_parts(DType t, uint64_t n);
/* n is a multiple of the format's block. */
void rowed_to_f32(DType t, const uint8_t *row, uint64_t n, float *out);
bool rowed_finite(DType t, const uint8_t *row, uint64_t n, uint64_t *at);
/* Bytes of a tile of 16 rows; false on overflow. */
bool rowed_tile_bytes(DType t, uint64_t k, uint64_t *bytes);
/* Rows that are missing are zero already. */
void rowed_tile(DType t, uint64_t k, uint32_t rows, const uint8_t *src, uint8_t *dst);
#endif
