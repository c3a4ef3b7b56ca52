/* act_i8.h - activations in format i8/32: blocks of 32 along a row, 40 bytes each: i8 q[32]; f32 d; i32 s.
 * d = max|x| / 127, q = round to even of x / d, s = sum of q; a block of zeros has d = 0. x is about d * q, |error| <= d / 2. */
#ifndef METRALE_ACT_I8_H
#define METRALE_ACT_I8_H
#include "simd.h"
#include <stddef.h>

typedef struct ActBlock {
    int8_t q[32];
    float d;
    int32_t s;
} ActBlock;

static inline void act_quant_block(ActBlock *out, v16 a, v16 c)
{
    float top = v_maximum(v_max(v_abs(a), v_abs(c)));
    v16 inv = v_set1(top > 0.0f ? 127.0f / top : 0.0f);
    n16 qa = v_round_i32(v_mul(a, inv)), qc = v_round_i32(v_mul(c, inv));
    n_store_i8(out->q, qa);
    n_store_i8(out->q + 16, qc);
    out->d = top / 127.0f;
    out->s = n_sum(qa) + n_sum(qc);
}
#endif
