/* frag.c - see frag.h. A fragment is 16 rows x 32 bytes of codes, permuted so that one 16-byte load gives each lane of a warp
 * what mma and wgmma want in four registers. 16-bit codes need words moved, 8-bit codes are first put in the order of the
 * lanes, and 4-bit codes so that a shift and a mask give two neighbours in the halves of a word; so do planes of 1 and 2 bits,
 * whose lanes have 4 and 8 bytes. What scales there are lie in front of the codes that they belong to. No value is computed. */
#include "weights/frag.h"
#include "weights/block.h"
#include "weights/frag_codes.h"
#include <string.h>

enum { ROWS = 16, FRAG_BYTES = 512, FRAG_ROW = FRAG_BYTES / ROWS };

/* How a format's tile is made: `head` bytes once, then for each `group` k's the scales of 16 rows and the fragments. */
typedef struct FragShape {
    uint32_t group, head, scales, frags;
} FragShape;

static FragShape shape_of(DType t)
{
    const FragGroup g = frag_group(t);

    switch (t) {
    case DT_F32:
        return (FragShape){32, 0, 0, 4};
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
        return (FragShape){g.k, 0, g.head + g.k * (g.bits % 4) * ROWS / 8,
                           g.k * (g.bits & ~3u) * ROWS / 8 / FRAG_BYTES};
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

/* 32 bytes of row r, in the order of the lanes: lane 4 (r mod 8) + t has bytes 4t.. of both halves; rows 8..15 come second in
 * each half. */
static inline void put_frag(uint8_t *frag, uint32_t r, const uint8_t *q)
{
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t t = 0; t < 4; t++)
            memcpy(frag + (4 * (r % 8) + t) * 16 + (r / 8 + 2 * half) * 4, q + 16 * half + 4 * t, 4);
}

/* Floats: 8 k's a fragment, of which a lane has 2t and 2t + 1 of row g, then of row g + 8. */
static void put_32(uint64_t k, const uint8_t *src, uint32_t r, uint8_t *dst)
{
    for (uint64_t i = 0; i < k; i += 2) {
        uint64_t n = k - i < 2 ? 1 : 2;
        memcpy(dst + i / 8 * FRAG_BYTES + (4 * (r % 8) + i % 8 / 2) * 16 + r / 8 * 8, src + 4 * i, 4 * n);
    }
}

/* 16-bit codes lie in that order already. */
static void put_16(FragShape s, uint64_t k, const uint8_t *src, uint32_t r, uint8_t *dst)
{
    for (uint64_t i = 0, f = 0; i < 2 * k; i += FRAG_ROW, f++) {
        uint8_t q[FRAG_ROW] = {0};
        memcpy(q, src + i, 2 * k - i < FRAG_ROW ? 2 * k - i : FRAG_ROW);
        put_frag(dst + f / s.frags * group_bytes(s) + f % s.frags * FRAG_BYTES, r, q);
    }
}

/* One fragment of 32 codes. */
static void put_8(const uint8_t codes[32], uint32_t r, uint8_t *frag)
{
    uint8_t q[FRAG_ROW];

    for (uint32_t b = 0; b < FRAG_ROW; b++) /* byte 4t + j: k 2t, 2t + 1, 2t + 8, 2t + 9 */
        q[b] = codes[b / 16 * 16 + b % 16 / 4 * 2 + b % 4 / 2 * 8 + b % 2];
    put_frag(frag, r, q);
}

/* Narrow codes, a byte each, of n runs of 8: 16 bits number t of *even and *odd have codes 2t and 2t + 1 of run j at bit
 * `width` * j. */
static inline void gather(const uint8_t *codes, uint32_t n, uint32_t width, uint64_t *even, uint64_t *odd)
{
    const uint64_t mask = 0x00ff00ff00ff00ffull;

    *even = *odd = 0;
    for (uint32_t j = 0; j < n; j++) {
        uint64_t c;
        memcpy(&c, codes + 8 * j, 8);
        *even |= (c & mask) << width * j;
        *odd |= (c >> 8 & mask) << width * j;
    }
}

/* Word t of those. */
static inline uint32_t neighbours(uint64_t even, uint64_t odd, uint32_t t)
{
    return (uint32_t)(even >> 16 * t & 0xffff) | (uint32_t)(odd >> 16 * t & 0xffff) << 16;
}

/* One fragment of 64 codes, a byte each. */
static void put_4(const uint8_t codes[64], uint32_t r, uint8_t *frag)
{
    for (uint32_t half = 0; half < 2; half++) {
        uint64_t even, odd;
        gather(codes + 32 * half, 4, 4, &even, &odd);
        for (uint32_t t = 0; t < 4; t++) {
            const uint32_t w = neighbours(even, odd, t);
            memcpy(frag + (4 * (r % 8) + t) * 16 + (r / 8 + 2 * half) * 4, &w, 4);
        }
    }
}

/* 64 codes of 2 bits, and of 1: layout.h. */
static void put_2(const uint8_t codes[64], uint32_t r, uint8_t *plane)
{
    uint64_t even, odd;

    gather(codes, 8, 2, &even, &odd);
    for (uint32_t t = 0; t < 4; t++) {
        const uint32_t w = neighbours(even, odd, t);
        memcpy(plane + (4 * (r % 8) + t) * 8 + r / 8 * 4, &w, 4);
    }
}

static void put_1(const uint8_t codes[64], uint32_t r, uint8_t *plane)
{
    uint64_t even, odd;

    gather(codes, 8, 1, &even, &odd);
    for (uint32_t t = 0; t < 4; t++) {
        const uint32_t w = neighbours(even, odd, t);
        plane[(4 * (r % 8) + t) * 4 + r / 8] = (uint8_t)w;
        plane[(4 * (r % 8) + t) * 4 + 2 + r / 8] = (uint8_t)(w >> 16);
    }
}

/* The widest plane has a code's lowest bits and comes last. */
static void put_planes(FragGroup g, const uint8_t *codes, uint32_t r, uint8_t *dst)
{
    uint8_t part[64];
    uint32_t shift = g.bits;

    for (uint32_t width = 1; width <= 8; width *= 2) {
        if (!(g.bits & width))
            continue;
        shift -= width;
        for (uint32_t i = 0; i < g.k; i += 64, dst += 64 * width * ROWS / 8) {
            for (uint32_t j = 0; j < 64; j++)
                part[j] = (uint8_t)(codes[i + j] >> shift & ((1u << width) - 1));
            if (width == 1)
                put_1(part, r, dst);
            else if (width == 2)
                put_2(part, r, dst);
            else if (width == 4)
                put_4(part, r, dst);
            else {
                put_8(part, r, dst);
                put_8(part + 32, r, dst + FRAG_BYTES);
            }
        }
    }
}

static void put_groups(DType t, uint64_t k, const uint8_t *row, uint32_t r, uint8_t *dst)
{
    const FragGroup g = frag_group(t);
    uint8_t codes[FRAG_MAX_GROUP];

    for (uint64_t i = 0; i < k; i += g.k, dst += group_bytes(shape_of(t))) {
        frag_group_codes(t, k, row, i, r, dst, codes);
        put_planes(g, codes, r, dst + g.head);
    }
}

static void put_fp8(uint64_t k, const uint8_t *row, uint32_t r, uint8_t *dst)
{
    const FragShape s = shape_of(DT_FP8_128);
    const uint64_t groups = (k + s.group - 1) / s.group;

    for (uint64_t g = 0; g < groups; g++)
        memcpy(dst + g * group_bytes(s) + 4 * r, row + 4 * g, 4);
    row += 4 * groups;
    for (uint64_t i = 0, f = 0; i < k; i += FRAG_ROW, f++) {
        uint8_t codes[FRAG_ROW] = {0};
        memcpy(codes, row + i, k - i < FRAG_ROW ? k - i : FRAG_ROW);
        put_8(codes, r, dst + f / s.frags * group_bytes(s) + s.scales + f % s.frags * FRAG_BYTES);
    }
}

static void put_nvfp4(uint64_t k, const uint8_t *row, uint32_t r, uint8_t *dst)
{
    const FragShape s = shape_of(DT_NVFP4);
    const uint8_t *block = row + 4;

    memcpy(dst + 4 * r, row, 4);
    dst += s.head;
    for (uint64_t i = 0; i < k; i += s.group, dst += group_bytes(s)) {
        uint8_t codes[64] = {0};
        for (uint32_t b = 0; b < 4 && i + 16 * b < k; b++, block += 9) {
            dst[4 * r + b] = block[0];
            for (uint32_t j = 0; j < 16; j++)
                codes[16 * b + j] = block[1 + j / 2] >> 4 * (j % 2) & 15;
        }
        put_4(codes, r, dst + s.scales);
    }
}

static void put_mxfp4(uint64_t k, const uint8_t *row, uint32_t r, uint8_t *dst)
{
    const FragShape s = shape_of(DT_MXFP4);

    for (uint64_t i = 0; i < k; i += s.group, dst += group_bytes(s)) {
        uint8_t codes[64] = {0};
        for (uint32_t b = 0; b < 2 && i + 32 * b < k; b++, row += 17) {
            dst[2 * r + b] = row[0];
            for (uint32_t j = 0; j < 32; j++)
                codes[32 * b + j] = row[1 + j % 16] >> 4 * (j / 16) & 15;
        }
        put_4(codes, r, dst + s.scales);
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
        case DT_F16:
        case DT_BF16:
            put_16(s, k, src, r, dst);
            break;
        case DT_F32:
            put_32(k, src, r, dst);
            break;
        default:
            put_groups(t, k, src, r, dst);
            break;
        }
}
