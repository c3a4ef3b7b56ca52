/* random_rows.h - random matrices in the formats whose rows have a part beside their codes: any bits as codes, scales such
 * that weights are below about 0.2, zero points of every size that checkpoints have, one order of the inputs for all rows.
 *
 * Owns: nothing.   Thread: one. */
#ifndef METRALE_TESTS_RANDOM_ROWS_H
#define METRALE_TESTS_RANDOM_ROWS_H
#include "core/dtype.h"
#include <stdbool.h>
#include <string.h>

/* Takes a function that gives a number in -1..1. False: t is not such a format. */
static inline bool random_rows(DType t, uint64_t n, uint64_t k, uint8_t *out, double (*random)(void))
{
    const DTypeRow shape = dtype_row(t);
    const bool fp8 = t == DT_FP8_128, nvfp4 = t == DT_NVFP4, eight = t == DT_W8_128;
    uint64_t row_bytes;

    if ((shape.head == 0 && shape.span == 0) || !dtype_row_bytes(t, k, &row_bytes))
        return false;
    for (uint64_t r = 0; r < n; r++, out += row_bytes) {
        uint8_t *p = out;

        for (uint64_t i = 0; i < row_bytes; i++)
            out[i] = (uint8_t)(int)(random() * 127.5 + 127.5);
        for (uint64_t i = 0; i < k && shape.element == 2; i++, p += 2) /* a permutation: 7919 is prime */
            memcpy(p, &(uint16_t){(uint16_t)(i * 7919 % k)}, 2);
        for (uint64_t i = 0; i < (nvfp4 ? 1 : dtype_spans(shape, k)); i++, p += shape.head + shape.bytes) {
            float d = (float)random() * (fp8 || nvfp4 ? 0.001f : shape.bytes == 4 ? 0.2f : eight ? 0.001f : 0.015f);
            memcpy(p, &d, 4);
            if (shape.bytes == 6)
                memcpy(p + 4, &(int16_t){(int16_t)(eight ? random() * 128 : random() * 8 + 8.5)}, 2);
        }
        for (; p < out + row_bytes && nvfp4; p += 9) /* 0.5 to 2 of either sign: no term outweighs the others */
            *p = (uint8_t)((*p & 0x8f) | 0x30);
        for (; p < out + row_bytes && fp8; p++)
            if ((*p & 0x7f) == 0x7f)
                *p ^= 1; /* NaN */
    }
    return true;
}
#endif
