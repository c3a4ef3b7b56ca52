/* layout.c - row-major stored rows to the interleaved layouts of layout.h.
 *
 * Both 4-bit block formats already keep element k of a block and element k + 16 in one byte, which is what n16 wants;
 * so the block formats are repacked as 32-bit words (4 bytes of one row) and only their order changes: a transpose of
 * 16 rows by words. Float formats are a transpose of 16 rows by elements. Nothing is computed, hence every layout is
 * the same bits as the file. */
#include "weights/layout.h"
#include "weights/decode.h"
#include <assert.h>
#include <string.h>

#define TILE 16 /* rows of an n16 piece */

static const char *const NAMES[LAYOUT_COUNT] = {[LAYOUT_ROW] = "row", [LAYOUT_F32] = "f32", [LAYOUT_N16] = "n16"};

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
    switch (stored) {
    case DT_F32:
    case DT_F16:
    case DT_BF16:
        return l < LAYOUT_COUNT;
    case DT_Q8_0:
    case DT_Q4_0:
    case DT_Q4_1:
        return l == LAYOUT_ROW || l == LAYOUT_N16;
    case DT_I32:
    case DT_I64:
        return l == LAYOUT_ROW;
    default:
        return false;
    }
}

DType layout_dtype(WeightLayout l, DType stored)
{
    return l == LAYOUT_F32 ? DT_F32 : stored;
}

uint32_t layout_rows(WeightLayout l)
{
    return l == LAYOUT_N16 ? TILE : 1;
}

bool layout_bytes(WeightLayout l, DType stored, uint64_t n, uint64_t k, uint64_t *bytes)
{
    uint64_t row, tile = layout_rows(l);

    if (!layout_takes(l, stored) || !dtype_row_bytes(layout_dtype(l, stored), k, &row) || n > UINT64_MAX - (tile - 1))
        return false;
    return !__builtin_mul_overflow((n + tile - 1) / tile * tile, row, bytes);
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

/* One block of 16 rows: `scales` f16 values a row, then `words` words a row. dst: scale s of row r at [s][r], then word g
 * of row r at [g][r]. The counts are constants where this is called. */
static inline void block_words(uint32_t rows, const uint8_t *src, uint64_t row_bytes, uint8_t *dst, int scales,
                               int words)
{
    uint8_t *to = dst + scales * TILE * 2;

    for (uint32_t r = 0; r < rows; r++, src += row_bytes) {
        for (int s = 0; s < scales; s++)
            memcpy(dst + (s * TILE + r) * 2, src + s * 2, 2);
        for (int g = 0; g < words; g++)
            memcpy(to + (g * TILE + r) * 4, src + scales * 2 + g * 4, 4);
    }
}

static void piece_blocks(DType stored, uint64_t k, uint32_t rows, const uint8_t *src, uint8_t *dst)
{
    uint64_t n_blocks = k / 32, size = dtype_block_bytes(stored), row_bytes = n_blocks * size;

    for (uint64_t b = 0; b < n_blocks; b++, src += size, dst += size * TILE) {
        if (stored == DT_Q8_0)
            block_words(rows, src, row_bytes, dst, 1, 8);
        else if (stored == DT_Q4_0)
            block_words(rows, src, row_bytes, dst, 1, 4);
        else
            block_words(rows, src, row_bytes, dst, 2, 4);
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
    else if (stored == DT_F32)
        piece_u32(k, rows, src, dst);
    else if (stored == DT_F16 || stored == DT_BF16)
        piece_u16(k, rows, src, dst);
    else
        piece_blocks(stored, k, rows, src, dst);
}
