/* layout.c - row-major stored rows to the interleaved layouts of layout.h.
 *
 * Everything moves as 32-bit words: 4 k's of one row are 4 bytes of a vector. The formats of 32 whose nibbles already lie
 * as n16 wants them are a transpose of words; the others regroup nibbles, pairs and bits of four k's at once, by shifts and
 * masks of words. Float formats are a transpose of 16 rows by elements. No value is computed, so every layout has the
 * same codes and scales as the file. */
#include "weights/layout.h"
#include "weights/block.h"
#include "weights/decode.h"
#include "weights/frag.h"
#include "weights/rowed.h"
#include <assert.h>
#include <string.h>

#define TILE 16 /* rows of an n16 piece */

static const char *const NAMES[LAYOUT_COUNT] = {
    [LAYOUT_ROW] = "row", [LAYOUT_F32] = "f32", [LAYOUT_N16] = "n16", [LAYOUT_FRAG] = "frag"};

const char *layout_name(WeightLayout l)
{
    return l < LAYOUT_COUNT ? NAMES[l] : "none";
}

bool layout_parse(const char *name, WeightLayout *out)
{
    for (int l = 0; l < LAYOUT_COUNT; l++) {
        if (strcmp(NAMES[l], name) == 0) {
            *out = (WeightLayout)l;
            return true;
        }
    }
    return false;
}

bool layout_takes(WeightLayout l, DType stored)
{
    if (l == LAYOUT_FRAG)
        return frag_takes(stored);
    switch (stored) {
    case DT_F32:
    case DT_F16:
    case DT_BF16:
        return l < LAYOUT_COUNT;
    case DT_Q8_0:
    case DT_Q4_0:
    case DT_Q4_1:
    case DT_Q5_0:
    case DT_Q5_1:
    case DT_IQ4_NL:
    case DT_MXFP4:
    case DT_Q2_K:
    case DT_Q3_K:
    case DT_Q4_K:
    case DT_Q5_K:
    case DT_Q6_K:
    case DT_IQ4_XS:
        return l == LAYOUT_ROW || l == LAYOUT_N16;
    case DT_I32:
    case DT_I64:
        return l == LAYOUT_ROW;
    default:
        return rowed(stored) && (l == LAYOUT_ROW || l == LAYOUT_N16);
    }
}

DType layout_dtype(WeightLayout l, DType stored)
{
    return l == LAYOUT_F32 ? DT_F32 : stored;
}

uint32_t layout_rows(WeightLayout l)
{
    return l == LAYOUT_N16 || l == LAYOUT_FRAG ? TILE : 1;
}

/* Bytes of one block of 16 rows under n16: 16 stored blocks, and the scales that are unpacked. */
static uint32_t n16_block_bytes(DType t)
{
    uint32_t stored = TILE * dtype_block_bytes(t);

    switch (t) {
    case DT_Q3_K: /* 12 bytes of scales become 16 */
    case DT_Q4_K:
    case DT_Q5_K:
        return stored + TILE * 4;
    case DT_IQ4_XS: /* 6 become 8 */
        return stored + TILE * 2;
    default:
        return stored;
    }
}

bool layout_bytes(WeightLayout l, DType stored, uint64_t n, uint64_t k, uint64_t *bytes)
{
    uint64_t row, piece;

    if (!layout_takes(l, stored) || !dtype_row_bytes(layout_dtype(l, stored), k, &row))
        return false;
    if (l == LAYOUT_ROW || l == LAYOUT_F32)
        return !__builtin_mul_overflow(n, row, bytes);
    return (l == LAYOUT_FRAG ? frag_tile_bytes(stored, k, &piece)
            : rowed(stored)
                ? rowed_tile_bytes(stored, k, &piece)
                : !__builtin_mul_overflow(k / dtype_block(stored), (uint64_t)n16_block_bytes(stored), &piece)) &&
           n <= UINT64_MAX - (TILE - 1) && !__builtin_mul_overflow((n + TILE - 1) / TILE, piece, bytes);
}

/* dst [k][16], src rows of k elements. In steps of 64 bytes a row, so that each cache line is read whole while the
 * 16 lines of a step stay in L1. */
static void piece_u16(uint64_t k, uint32_t rows, const uint8_t *src, uint8_t *dst)
{
    for (uint64_t k0 = 0; k0 < k; k0 += 32) {
        uint64_t end = k0 + 32 < k ? k0 + 32 : k;
        for (uint32_t r = 0; r < rows; r++)
            for (uint64_t i = k0; i < end; i++)
                memcpy(dst + (i * TILE + r) * 2, src + (r * k + i) * 2, 2);
    }
}

static void piece_u32(uint64_t k, uint32_t rows, const uint8_t *src, uint8_t *dst)
{
    for (uint64_t k0 = 0; k0 < k; k0 += 16) {
        uint64_t end = k0 + 16 < k ? k0 + 16 : k;
        for (uint32_t r = 0; r < rows; r++)
            for (uint64_t i = k0; i < end; i++)
                memcpy(dst + (i * TILE + r) * 4, src + (r * k + i) * 4, 4);
    }
}

/* One row r of one block: p is the stored block, dst the block of 16 rows. */

static inline void put_words(uint8_t *dst, uint32_t r, const uint8_t *src, int words)
{
    for (int g = 0; g < words; g++)
        memcpy(dst + (g * TILE + r) * 4, src + g * 4, 4);
}

static inline void put_f16(uint8_t *dst, uint32_t r, const uint8_t *src)
{
    memcpy(dst + r * 2, src, 2);
}

/* Plane q: 32 codes are the nibbles at `shift` of 32 bytes. */
static inline void put_nibbles(uint8_t *dst, uint32_t r, const uint8_t *src, int shift)
{
    for (int g = 0; g < 4; g++) {
        uint32_t low = load_u32(src + g * 4) >> shift & 0x0f0f0f0f,
                 high = load_u32(src + 16 + g * 4) >> shift & 0x0f0f0f0f;
        uint32_t w = low | high << 4;
        memcpy(dst + (g * TILE + r) * 4, &w, 4);
    }
}

/* Plane p: 32 codes are the pairs at `shift` of 32 bytes. */
static inline void put_pairs(uint8_t *dst, uint32_t r, const uint8_t *src, int shift)
{
    for (int v = 0; v < 2; v++) {
        uint32_t w = 0;
        for (int c = 0; c < 4; c++)
            w |= (load_u32(src + 16 * v + 4 * c) >> shift & 0x03030303) << 2 * c;
        memcpy(dst + (v * TILE + r) * 4, &w, 4);
    }
}

/* Plane h: 32 codes are the bits at `shift` of 32 bytes. */
static inline void put_bits(uint8_t *dst, uint32_t r, const uint8_t *src, int shift)
{
    uint32_t w = 0;

    for (int g = 0; g < 8; g++)
        w |= (load_u32(src + 4 * g) >> shift & 0x01010101) << g;
    memcpy(dst + r * 4, &w, 4);
}

/* Plane h: 32 codes are the bits of one word. The product puts copies of four bits 7 apart, hence bit j at 8j. */
static inline void put_word_bits(uint8_t *dst, uint32_t r, uint32_t bits)
{
    uint32_t w = 0;

    for (int g = 0; g < 8; g++)
        w |= ((bits >> 4 * g & 15) * 0x00204081 & 0x01010101) << g;
    memcpy(dst + r * 4, &w, 4);
}

static void row_q8_0(const uint8_t *p, uint32_t r, uint8_t *dst)
{
    put_f16(dst, r, p);
    put_words(dst + 32, r, p + 2, 8);
}

static void row_q4_0(const uint8_t *p, uint32_t r, uint8_t *dst) /* and iq4_nl */
{
    put_f16(dst, r, p);
    put_words(dst + 32, r, p + 2, 4);
}

static void row_q4_1(const uint8_t *p, uint32_t r, uint8_t *dst)
{
    put_f16(dst, r, p);
    put_f16(dst + 32, r, p + 2);
    put_words(dst + 64, r, p + 4, 4);
}

static void row_q5_0(const uint8_t *p, uint32_t r, uint8_t *dst)
{
    put_f16(dst, r, p);
    put_word_bits(dst + 32, r, load_u32(p + 2));
    put_words(dst + 96, r, p + 6, 4);
}

static void row_q5_1(const uint8_t *p, uint32_t r, uint8_t *dst)
{
    put_f16(dst, r, p);
    put_f16(dst + 32, r, p + 2);
    put_word_bits(dst + 64, r, load_u32(p + 4));
    put_words(dst + 128, r, p + 8, 4);
}

static void row_mxfp4(const uint8_t *p, uint32_t r, uint8_t *dst)
{
    dst[r] = p[0];
    put_words(dst + 16, r, p + 1, 4);
}

/* Super-blocks: i counts the cells of 32. decode.c says where files keep their planes. */

static void row_q2_k(const uint8_t *p, uint32_t r, uint8_t *dst)
{
    put_f16(dst, r, p + 80);
    put_f16(dst + 32, r, p + 82);
    dst += 64;
    for (int i = 0; i < 8; i++, dst += 160) {
        dst[r] = p[2 * i];
        dst[16 + r] = p[2 * i + 1];
        put_pairs(dst + 32, r, p + 16 + 32 * (i / 4), 2 * (i % 4));
    }
}

static void row_q3_k(const uint8_t *p, uint32_t r, uint8_t *dst)
{
    put_f16(dst, r, p + 108);
    dst += 32;
    for (int i = 0; i < 8; i++, dst += 224) {
        dst[r] = (uint8_t)block_scale_q3_k(p + 96, 2 * i);
        dst[16 + r] = (uint8_t)block_scale_q3_k(p + 96, 2 * i + 1);
        put_bits(dst + 32, r, p, i);
        put_pairs(dst + 96, r, p + 32 + 32 * (i / 4), 2 * (i % 4));
    }
}

static void row_q4_k(const uint8_t *p, uint32_t r, uint8_t *dst)
{
    put_f16(dst, r, p);
    put_f16(dst + 32, r, p + 2);
    dst += 64;
    for (int i = 0; i < 8; i++, dst += 288) {
        block_scale_min(p + 4, i, &dst[r], &dst[16 + r]);
        put_nibbles(dst + 32, r, p + 16 + 32 * (i / 2), 4 * (i % 2));
    }
}

static void row_q5_k(const uint8_t *p, uint32_t r, uint8_t *dst)
{
    put_f16(dst, r, p);
    put_f16(dst + 32, r, p + 2);
    dst += 64;
    for (int i = 0; i < 8; i++, dst += 352) {
        block_scale_min(p + 4, i, &dst[r], &dst[16 + r]);
        put_bits(dst + 32, r, p + 16, i);
        put_nibbles(dst + 96, r, p + 48 + 32 * (i / 2), 4 * (i % 2));
    }
}

static void row_q6_k(const uint8_t *p, uint32_t r, uint8_t *dst)
{
    put_f16(dst, r, p + 208);
    dst += 32;
    for (int i = 0; i < 8; i++, dst += 416) {
        dst[r] = p[192 + 2 * i];
        dst[16 + r] = p[192 + 2 * i + 1];
        put_pairs(dst + 32, r, p + 128 + 32 * (i / 4), 2 * (i % 4));
        put_nibbles(dst + 160, r, p + 64 * (i / 4) + 32 * (i % 2), 4 * (i % 4 / 2));
    }
}

static void row_iq4_xs(const uint8_t *p, uint32_t r, uint8_t *dst)
{
    put_f16(dst, r, p);
    dst += 32;
    for (int i = 0; i < 8; i++, dst += 272) {
        dst[r] = (uint8_t)block_scale_iq4_xs(p + 2, i);
        put_words(dst + 16, r, p + 8 + 16 * i, 4);
    }
}

/* Always inlined with a constant `put`, so that every format has a loop of its own without calls. */
static inline __attribute__((always_inline)) void piece_blocks(DType t, uint64_t k, uint32_t rows, const uint8_t *src,
                                                               uint8_t *dst,
                                                               void (*put)(const uint8_t *, uint32_t, uint8_t *))
{
    uint64_t n_blocks = k / dtype_block(t), size = dtype_block_bytes(t), row_bytes = n_blocks * size;
    uint32_t step = n16_block_bytes(t);

    for (uint64_t b = 0; b < n_blocks; b++, src += size, dst += step)
        for (uint32_t r = 0; r < rows; r++)
            put(src + r * row_bytes, r, dst);
}

static void piece_n16(DType t, uint64_t k, uint32_t rows, const uint8_t *src, uint8_t *dst)
{
    switch (t) {
    case DT_F32:
        piece_u32(k, rows, src, dst);
        break;
    case DT_F16:
    case DT_BF16:
        piece_u16(k, rows, src, dst);
        break;
    case DT_Q8_0:
        piece_blocks(t, k, rows, src, dst, row_q8_0);
        break;
    case DT_Q4_0:
    case DT_IQ4_NL:
        piece_blocks(t, k, rows, src, dst, row_q4_0);
        break;
    case DT_Q4_1:
        piece_blocks(t, k, rows, src, dst, row_q4_1);
        break;
    case DT_Q5_0:
        piece_blocks(t, k, rows, src, dst, row_q5_0);
        break;
    case DT_Q5_1:
        piece_blocks(t, k, rows, src, dst, row_q5_1);
        break;
    case DT_MXFP4:
        piece_blocks(t, k, rows, src, dst, row_mxfp4);
        break;
    case DT_Q2_K:
        piece_blocks(t, k, rows, src, dst, row_q2_k);
        break;
    case DT_Q3_K:
        piece_blocks(t, k, rows, src, dst, row_q3_k);
        break;
    case DT_Q4_K:
        piece_blocks(t, k, rows, src, dst, row_q4_k);
        break;
    case DT_Q5_K:
        piece_blocks(t, k, rows, src, dst, row_q5_k);
        break;
    case DT_Q6_K:
        piece_blocks(t, k, rows, src, dst, row_q6_k);
        break;
    default: /* DT_IQ4_XS: layout_takes lets nothing else in */
        piece_blocks(t, k, rows, src, dst, row_iq4_xs);
        break;
    }
}

void layout_piece(WeightLayout l, DType stored, uint64_t k, uint32_t rows, const void *src, void *dst)
{
    uint64_t piece = 0;
    bool fits = layout_bytes(l, stored, layout_rows(l), k, &piece);

    assert(fits && rows <= layout_rows(l)); /* callers asked layout_bytes before they took the memory */
    if (rows < layout_rows(l))
        memset(dst, 0, piece); /* missing rows, among the others */
    if (rows == 0)
        return;
    if (l == LAYOUT_F32)
        dtype_row_to_f32(stored, src, k, dst);
    else if (l == LAYOUT_ROW)
        memcpy(dst, src, piece);
    else if (l == LAYOUT_FRAG)
        frag_tile(stored, k, rows, src, dst);
    else if (rowed(stored))
        rowed_tile(stored, k, rows, src, dst);
    else
        piece_n16(stored, k, rows, src, dst);
}
