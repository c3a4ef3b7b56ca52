/* weight.h - matrices in layout n16: 16 output rows interleaved (src/weights/layout.h has the byte tables). WEIGHT names the format:
 * 0 f32, 1 f16, 2 bf16: [k][16] elements;  3 q8_0, 4 q4_0, 5 q4_1: blocks of 32 along k. */
#ifndef METRALE_WEIGHT_H
#define METRALE_WEIGHT_H
#include "simd.h"
#include <stddef.h>

#if WEIGHT == 0
typedef float weight_t;
static inline v16 weight_load(const weight_t *p)
{
    return v_load(p);
}
#elif WEIGHT == 1
typedef uint16_t weight_t;
static inline v16 weight_load(const weight_t *p)
{
    return v_load_f16(p);
}
#elif WEIGHT == 2
typedef uint16_t weight_t;
static inline v16 weight_load(const weight_t *p)
{
    return v_load_bf16(p);
}
#elif WEIGHT == 3
enum { BLOCK_BYTES = 32 + 512 };
#elif WEIGHT == 4
enum { BLOCK_BYTES = 32 + 256 };
#elif WEIGHT == 5
enum { BLOCK_BYTES = 64 + 256 };
#endif
#endif
