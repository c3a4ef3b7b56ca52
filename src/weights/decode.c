/* decode.c - plain loops over rows; the file that says what a stored weight is worth. */
#include "weights/decode.h"
#include "core/numeric.h"
#include <string.h>

static uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof v); /* blocks have even, but not aligned, sizes */
    return v;
}

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

bool dtype_row_to_f32(DType t, const void *row, uint64_t n, float *out)
{
    const uint8_t *p = row;
    uint64_t bytes;

    if (!dtype_row_bytes(t, n, &bytes))
        return false;
    switch (t) {
    case DT_F32:
        if (n > 0)
            memcpy(out, p, bytes);
        return true;
    case DT_F16:
        for (uint64_t i = 0; i < n; i++)
            out[i] = f16_to_f32(load_u16(p + 2 * i));
        return true;
    case DT_BF16:
        for (uint64_t i = 0; i < n; i++)
            out[i] = bf16_to_f32(load_u16(p + 2 * i));
        return true;
    case DT_Q8_0:
        for (uint64_t i = 0; i < n; i += 32, p += 34) {
            float d = f16_to_f32(load_u16(p));
            for (int j = 0; j < 32; j++)
                out[i + j] = d * (float)(int8_t)p[2 + j];
        }
        return true;
    case DT_Q4_0:
        for (uint64_t i = 0; i < n; i += 32, p += 18) {
            float d = f16_to_f32(load_u16(p));
            for (int j = 0; j < 16; j++) {
                out[i + j] = d * (float)((p[2 + j] & 15) - 8);
                out[i + 16 + j] = d * (float)((p[2 + j] >> 4) - 8);
            }
        }
        return true;
    case DT_Q4_1:
        for (uint64_t i = 0; i < n; i += 32, p += 20) {
            float d = f16_to_f32(load_u16(p)), m = f16_to_f32(load_u16(p + 2));
            for (int j = 0; j < 16; j++) {
                /* Two statements: a compiler that may contract an expression must not fuse these. */
                float lo = d * (float)(p[4 + j] & 15), hi = d * (float)(p[4 + j] >> 4);
                out[i + j] = lo + m;
                out[i + 16 + j] = hi + m;
            }
        }
        return true;
    default:
        return false;
    }
}

/* An exponent of all ones is an infinity or a NaN (IEEE 754; bfloat16 = the upper half of f32). */
static bool f16_finite(const uint8_t *p)
{
    return (load_u16(p) & 0x7c00u) != 0x7c00u;
}

static bool bf16_finite(const uint8_t *p)
{
    return (load_u16(p) & 0x7f80u) != 0x7f80u;
}

static bool f32_finite(const uint8_t *p)
{
    return (load_u32(p) & 0x7f800000u) != 0x7f800000u;
}

bool dtype_row_finite(DType t, const void *row, uint64_t n, uint64_t *at)
{
    const uint8_t *p = row;
    uint32_t block, step;
    uint64_t bytes;

    if (!dtype_row_bytes(t, n, &bytes))
        return true;
    block = dtype_block(t);
    step = dtype_block_bytes(t);
    for (uint64_t i = 0; i < n; i += block, p += step) {
        bool fine = true;

        if (t == DT_F32)
            fine = f32_finite(p);
        else if (t == DT_BF16)
            fine = bf16_finite(p);
        else if (t == DT_F16 || t == DT_Q8_0 || t == DT_Q4_0)
            fine = f16_finite(p);
        else if (t == DT_Q4_1)
            fine = f16_finite(p) && f16_finite(p + 2);
        if (!fine) {
            *at = i;
            return false;
        }
    }
    return true;
}
