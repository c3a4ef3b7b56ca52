/* frag_codes.h - the codes and the scales of one group of one row, for the layout `frag` of the formats whose codes are whole
 * numbers of 2 to 8 bits (layout.h).   Internal to this room. Pure. */
#ifndef METRALE_WEIGHTS_FRAG_CODES_H
#define METRALE_WEIGHTS_FRAG_CODES_H
#include "core/dtype.h"
#include <stdint.h>

enum { FRAG_MAX_GROUP = 256 };

/* How a group lies: its k's, the bytes in front of its codes, bits of a code. */
typedef struct FragGroup {
    uint32_t k, head, bits;
} FragGroup;

/* k is 0 for formats that are not of this kind. */
FragGroup frag_group(DType t);
/* The group that begins at element i of a stored row of k, i a multiple of the group. Row r (0..15) gets its places in head;
 * codes [k of a group], a byte each, 0 behind the row's end. */
void frag_group_codes(DType t, uint64_t k, const uint8_t *row, uint64_t i, uint32_t r, uint8_t *head, uint8_t *codes);
#endif
