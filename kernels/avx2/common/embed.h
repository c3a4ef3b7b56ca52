/* embed: y[r] = scale * (row tokens[r] of the table), the table in the same layout n16 that the head reads.
 *   y [rows][hidden] f32, tokens [rows] i32 (token.h), w n16 [ceil(vocab/16)][hidden]..
 *   grid (rows)
 * Order: w = d * q (+ m) in f32, then scale. */
#ifndef METRALE_EMBED_H
#define METRALE_EMBED_H
#include "kernel_abi.h"
#include "token.h"
#include "weight.h"
#include <immintrin.h>
#include <math.h>

static inline float half_to_f32(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}

static inline void embed(const KArg *a, const KBlock *b)
{
    int hidden = I32(4);
    float scale = F32(5), *y = PTR(0, float) + (size_t)b->x * (size_t)hidden;
    int token = row_token(a, b->x), lane = token % 16;
    size_t tile = (size_t)(token / 16);
#if WEIGHT < 3
    const weight_t *w = PTR(2, weight_t) + tile * (size_t)hidden * 16 + lane;
    for (int i = 0; i < hidden; i++) {
        float t[16];
        weight_t one[16] = {w[(size_t)i * 16]};
        v_store(t, weight_load(one));
        y[i] = t[0] * scale;
    }
#else
    const uint8_t *w = PTR(2, uint8_t) + tile * (size_t)(hidden / 32) * BLOCK_BYTES;
    for (int k = 0; k < hidden / 32; k++, w += BLOCK_BYTES) {
        float d = half_to_f32(w + 2 * lane);
        const uint8_t *q = w + BLOCK_BYTES - (WEIGHT == 3 ? 512 : 256) + 4 * lane;
        for (int i = 0; i < 32; i++) {
#if WEIGHT == 3
            float v = d * (float)(int8_t)q[64 * (i / 4) + i % 4];
#else
            int byte = q[64 * (i % 16 / 4) + i % 4], code = i < 16 ? byte & 15 : byte >> 4;
#if WEIGHT == 4
            float v = d * (float)(code - 8);
#else
            float v = fmaf(d, (float)code, half_to_f32(w + 32 + 2 * lane));
#endif
#endif
            y[32 * k + i] = v * scale;
        }
    }
#endif
}
#endif
