/* frag.c - see frag.h. A fragment is 16 rows x 32 bytes of codes, permuted by words so that one 16-byte load gives each lane
 * of a warp the four registers that mma and wgmma take from it. The permutation knows bytes only: 32 bytes are 16 k's of
 * bf16, 32 of fp8 or 64 of fp4, and all of them go the same way. What scales there are lie in front of the fragments that
 * they belong to. No value is computed. */
#include "weights/frag.h"
#include "weights/block.h"
#include <string.h>

enum { ROWS = 16, FRAG_BYTES = 512, FRAG_ROW = FRAG_BYTES / ROWS };

/* How a format's tile is made: `head` bytes once, then for each `group` k's the scales of 16 rows and the fragments. */
typedef struct FragShape {
    uint32_t group, head, scales, frags;
} FragShape;

static FragShape shape_of(DType t)
{
    switch (t) {
    case DT_F16:
    case DT_BF16:
        return (FragShape){32, 0, 0, 2};
    case DT_FP8_128:
        return (FragShape){128, 0, 4 * ROWS, 4};
    case DT_NVFP4:
        return (FragShape){64, 4 * ROWS, 4 * ROWS, 1};
    case DT_MXFP4:
        return (FragShape){64, 0, 2 * ROWS, 1};
    default:
        return (FragShape){0};
    }
}

bool frag_takes(DType t)
{
    return shape_of(t).group != 0;
}

static uint32_t group_bytes(FragShape s)
{
    return s.scales + s.frags * FRAG_BYTES;
}

bool frag_tile_bytes(DType t, uint64_t k, uint64_t *bytes)
{
    const FragShape s = shape_of(t);
    uint64_t row;

    return s.group && dtype_row_bytes(t, k, &row) &&
           !__builtin_mul_overflow(k / s.group + (k % s.group != 0), (uint64_t)group_bytes(s), bytes) &&
           !__builtin_add_overflow(*bytes, (uint64_t)s.head, bytes);
}

/* 32 bytes of row r. Lane 4 (r mod 8) + t has bytes 4t.. of both halves; rows 8..15 come second in each half. */
static inline void put_frag(uint8_t *frag, uint32_t r, const uint8_t *q)
{
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t t = 0; t < 4; t++)
            memcpy(frag + (4 * (r % 8) + t) * 16 + (r / 8 + 2 * half) * 4, q + 16 * half + 4 * t, 4);
}

/* What lies along a row, in units of `bytes` at `src`, to the fragments of its groups; the last may be short. */
static void put_bytes(FragShape s, uint64_t bytes, const uint8_t *src, uint32_t r, uint8_t *dst)
{
    for (uint64_t i = 0, f = 0; i < bytes; i += FRAG_ROW, f++) {
        uint8_t q[FRAG_ROW] = {0};
        memcpy(q, src + i, bytes - i < FRAG_ROW ? bytes - i : FRAG_ROW);
        put_frag(dst + f / s.frags * group_bytes(s) + s.scales + f % s.frags * FRAG_BYTES, r, q);
    }
}

static void put_fp8(uint64_t k, const uint8_t *row, uint32_t r, uint8_t *dst)
{
    const FragShape s = shape_of(DT_FP8_128);
    const uint64_t groups = (k + s.group - 1) / s.group;

    for (uint64_t g = 0; g < groups; g++)
        memcpy(dst + g * group_bytes(s) + 4 * r, row + 4 * g, 4);
    put_bytes(s, k, row + 4 * groups, r, dst);
}

static void put_nvfp4(uint64_t k, const uint8_t *row, uint32_t r, uint8_t *dst)
{
    const FragShape s = shape_of(DT_NVFP4);
    const uint8_t *block = row + 4;

    memcpy(dst + 4 * r, row, 4);
    dst += s.head;
    for (uint64_t i = 0; i < k; i += s.group, dst += group_bytes(s)) {
        uint8_t q[FRAG_ROW] = {0};
        for (uint32_t b = 0; b < 4 && i + 16 * b < k; b++, block += 9) {
            dst[4 * r + b] = block[0];
            memcpy(q + 8 * b, block + 1, 8);
        }
        put_frag(dst + s.scales, r, q);
    }
}

/* Codes in halves of 32 become pairs. */
static void put_mxfp4(uint64_t k, const uint8_t *row, uint32_t r, uint8_t *dst)
{
    const FragShape s = shape_of(DT_MXFP4);

    for (uint64_t i = 0; i < k; i += s.group, dst += group_bytes(s)) {
        uint8_t q[FRAG_ROW] = {0};
        for (uint32_t b = 0; b < 2 && i + 32 * b < k; b++, row += 17) {
            dst[2 * r + b] = row[0];
            for (uint32_t j = 0; j < 16; j++) {
                const uint8_t *p = row + 1 + 2 * (j % 8);
                q[16 * b + j] = j < 8 ? (p[0] & 15) | (uint8_t)(p[1] << 4) : p[0] >> 4 | (p[1] & 0xf0);
            }
        }
        put_frag(dst + s.scales, r, q);
    }
}

void frag_tile(DType t, uint64_t k, uint32_t rows, const uint8_t *src, uint8_t *dst)
{
    const FragShape s = shape_of(t);
    uint64_t row_bytes = 0, bytes = 0;

    dtype_row_bytes(t, k, &row_bytes);
    frag_tile_bytes(t, k, &bytes);
    if (rows < ROWS || k % s.group)
        memset(dst, 0, bytes);
    for (uint32_t r = 0; r < rows; r++, src += row_bytes)
        switch (t) {
        case DT_FP8_128:
            put_fp8(k, src, r, dst);
            break;
        case DT_NVFP4:
            put_nvfp4(k, src, r, dst);
            break;
        case DT_MXFP4:
            put_mxfp4(k, src, r, dst);
            break;
        default:
            put_bytes(s, 2 * k, src, r, dst);
            break;
        }
}
