/* rowed.c - see rowed.h. A row's scales lie apart from its codes, so that a row may end inside of a span; a tile has the
 * scales of a span in front of the span's codes, where a kernel meets them. Nothing is computed on the way, and only w4p
 * drops something: the order of the inputs, which all rows of a matrix share, is kept once for a tile. */
#include "weights/rowed.h"
#include "core/numeric.h"
#include "weights/block.h"

#define TILE 16

enum { CHUNK = 64 };

const float NF4_VALUES[16] = {-1.0f,
                              -0.6961928009986877f,
                              -0.5250730514526367f,
                              -0.39491748809814453f,
                              -0.28444138169288635f,
                              -0.18477343022823334f,
                              -0.09105003625154495f,
                              0.0f,
                              0.07958029955625534f,
                              0.16093020141124725f,
                              0.24611230194568634f,
                              0.33791524171829224f,
                              0.44070982933044434f,
                              0.5626170039176941f,
                              0.7229568362236023f,
                              1.0f};

typedef enum { CODES_FP8, CODES_NVFP4, CODES_NF4, CODES_W4, CODES_W8, CODES_W4P, CODES_NONE } Codes;

static Codes codes_of(DType t)
{
    switch (t) {
    case DT_FP8_128:
        return CODES_FP8;
    case DT_NVFP4:
        return CODES_NVFP4;
    case DT_NF4_64:
    case DT_NF4_32:
        return CODES_NF4;
    case DT_W4_128:
    case DT_W4_64:
    case DT_W4_32:
        return CODES_W4;
    case DT_W8_128:
        return CODES_W8;
    case DT_W4P_128:
    case DT_W4P_64:
    case DT_W4P_32:
        return CODES_W4P;
    default:
        return CODES_NONE;
    }
}

bool rowed(DType t)
{
    return codes_of(t) != CODES_NONE;
}

RowedParts rowed_parts(DType t, uint64_t n)
{
    const DTypeRow r = dtype_row(t);
    uint64_t scales = n * r.element;

    return (RowedParts){.scales = scales, .codes = scales + r.head + dtype_spans(r, n) * r.bytes};
}

/* ---- what a row means --------------------------------------------------------------------------------------------- */
static float load_f32(const uint8_t *p)
{
    float f;

    memcpy(&f, p, sizeof f);
    return f;
}

static uint8_t pair_code(const uint8_t *q, uint64_t i) /* u4p */
{
    return q[i / 2] >> 4 * (i % 2) & 15;
}

static uint8_t half_code(const uint8_t *q, uint64_t i) /* u4 in blocks of 32 */
{
    const uint8_t *p = q + i / 32 * 16;

    return i % 32 < 16 ? p[i % 16] & 15 : p[i % 16] >> 4;
}

void rowed_to_f32(DType t, const uint8_t *row, uint64_t n, float *out)
{
    const Codes codes = codes_of(t);
    const RowedParts at = rowed_parts(t, n);
    const DTypeRow shape = dtype_row(t);
    const uint8_t *q = row + at.codes;

    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *s = row + at.scales + (shape.span ? i / shape.span * shape.bytes : 0);
        const float d = load_f32(s);
        const int16_t z = shape.bytes == 6 ? (int16_t)load_u16(s + 4) : 0;

        if (codes == CODES_FP8)
            out[i] = d * e4m3_to_f32(q[i]);
        else if (codes == CODES_NVFP4)
            out[i] = d * (e4m3_to_f32(q[i / 16 * 9]) * e2m1_to_f32(pair_code(q + i / 16 * 9 + 1, i % 16)));
        else if (codes == CODES_NF4)
            out[i] = d * NF4_VALUES[pair_code(q, i)];
        else if (codes == CODES_W4)
            out[i] = d * (float)(half_code(q, i) - z);
        else if (codes == CODES_W8)
            out[i] = d * (float)((int8_t)q[i] - z);
        else
            out[load_u16(row + 2 * i)] = d * (float)(pair_code(q, i) - z);
    }
}

static bool f32_bad(const uint8_t *p)
{
    return (load_u32(p) & 0x7f800000u) == 0x7f800000u;
}

/* Of CHUNK codes, without a branch for each: loading looks at every byte of a model. */
static bool e4m3_any_nan(const uint8_t *q)
{
    uint8_t any = 0;

    for (int i = 0; i < CHUNK; i++)
        any |= (q[i] & 0x7f) == 0x7f;
    return any != 0;
}

bool rowed_finite(DType t, const uint8_t *row, uint64_t n, uint64_t *at)
{
    const Codes codes = codes_of(t);
    const RowedParts parts = rowed_parts(t, n);
    const DTypeRow r = dtype_row(t);
    const uint8_t *q = row + parts.codes;
    uint64_t sound = 0; /* codes of whole chunks that are no NaN */

    *at = 0;
    if (r.head > 0 && f32_bad(row))
        return false;
    for (uint64_t s = 0; s < dtype_spans(r, n); s++)
        if (f32_bad(row + parts.scales + s * r.bytes)) {
            *at = s * r.span;
            return false;
        }
    for (uint64_t i = 0; i < n && codes == CODES_NVFP4; i += 16)
        if ((q[i / 16 * 9] & 0x7f) == 0x7f) {
            *at = i;
            return false;
        }
    if (codes != CODES_FP8)
        return true;
    while (n - sound >= CHUNK && !e4m3_any_nan(q + sound))
        sound += CHUNK;
    for (uint64_t i = sound; i < n; i++)
        if ((q[i] & 0x7f) == 0x7f) {
            *at = i;
            return false;
        }
    return true;
}

/* ---- tiles -------------------------------------------------------------------------------------------------------- */
bool rowed_tile_bytes(DType t, uint64_t k, uint64_t *bytes)
{
    const DTypeRow r = dtype_row(t);
    uint64_t row, once = k * r.element;

    return dtype_row_bytes(t, k, &row) && !__builtin_mul_overflow(row - once, (uint64_t)TILE, bytes) &&
           !__builtin_add_overflow(*bytes, once, bytes);
}

/* Codes i, i + 1 of row r side by side: byte r of 16. */
static void put_pair(uint8_t *dst, uint32_t r, const uint8_t *q, uint64_t pairs)
{
    for (uint64_t i = 0; i < pairs; i++)
        dst[i * TILE + r] = q[i];
}

/* The codes of n elements of row r; returns what they take in the tile. */
static uint64_t put_codes(Codes codes, uint64_t n, const uint8_t *q, uint32_t r, uint8_t *dst)
{
    switch (codes) {
    case CODES_FP8:
        put_pair(dst, r, q, n);
        return n * TILE;
    case CODES_W4:
        for (uint64_t w = 0; w < n / 8; w++)
            memcpy(dst + (w * TILE + r) * 4, q + 4 * w, 4);
        return n * TILE / 2;
    case CODES_W8:
        for (uint64_t w = 0; w < n / 4; w++)
            memcpy(dst + (w * TILE + r) * 4, q + 4 * w, 4);
        return n * TILE;
    default:
        put_pair(dst, r, q, n / 2);
        return n * TILE / 2;
    }
}

static void put_nvfp4(uint64_t k, const uint8_t *row, uint32_t r, uint8_t *dst)
{
    const uint8_t *q = row + 4;

    memcpy(dst + 4 * r, row, 4);
    dst += 4 * TILE;
    for (uint64_t i = 0; i < k / 16; i++, q += 9, dst += 9 * TILE) {
        dst[r] = q[0];
        put_pair(dst + TILE, r, q + 1, 8);
    }
}

static void put_spans(DType t, uint64_t k, const uint8_t *row, uint32_t r, uint8_t *dst)
{
    const Codes codes = codes_of(t);
    const DTypeRow shape = dtype_row(t);
    const RowedParts at = rowed_parts(t, k);
    const uint8_t *s = row + at.scales, *q = row + at.codes;
    const uint64_t per = dtype_block(t), bytes = dtype_block_bytes(t);

    for (uint64_t i = 0; i < k; i += shape.span, s += shape.bytes) {
        uint64_t n = k - i < shape.span ? k - i : shape.span;

        memcpy(dst + 4 * r, s, 4);
        if (shape.bytes > 4)
            memcpy(dst + 4 * TILE + 2 * r, s + 4, 2);
        dst += shape.bytes * TILE;
        dst += put_codes(codes, n, q, r, dst);
        q += n / per * bytes;
    }
}

void rowed_tile(DType t, uint64_t k, uint32_t rows, const uint8_t *src, uint8_t *dst)
{
    const uint64_t once = k * dtype_row(t).element;
    uint64_t row_bytes = 0;

    dtype_row_bytes(t, k, &row_bytes);
    memcpy(dst, src, once);
    for (uint32_t r = 0; r < rows; r++)
        if (t == DT_NVFP4)
            put_nvfp4(k, src + r * row_bytes, r, dst);
        else
            put_spans(t, k, src + r * row_bytes, r, dst + once);
}
