/* decode.c - plain loops over rows; the file that says what a stored weight is worth.
 *
 * Products are exact (decode.h says why), so a compiler that fuses a product and a sum changes no bit. */
#include "weights/decode.h"
#include "core/numeric.h"
#include "weights/block.h"
#include "weights/rowed.h"

/* Twice the value of an e2m1 code (OCP Microscaling 1.0: sign, two bits of exponent, one of mantissa; code 8 is -0). */
static const float E2M1_TWICE[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};

static float load_f16(const uint8_t *p)
{
    return f16_to_f32(load_u16(p));
}

/* 2^(e - 128), so that twice an e2m1 value is a whole number; the smallest two are subnormal. */
static float e8m0_half(uint8_t e)
{
    uint32_t u = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* One block each: p is the stored block, out its 32 or 256 values. */

static void block_q8_0(const uint8_t *p, float *out)
{
    float d = load_f16(p);

    for (int j = 0; j < 32; j++)
        out[j] = d * (float)(int8_t)p[2 + j];
}

static void block_q4_0(const uint8_t *p, float *out)
{
    float d = load_f16(p);

    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)((p[2 + j] & 15) - 8);
        out[16 + j] = d * (float)((p[2 + j] >> 4) - 8);
    }
}

static void block_q4_1(const uint8_t *p, float *out)
{
    float d = load_f16(p), m = load_f16(p + 2);

    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)(p[4 + j] & 15) + m;
        out[16 + j] = d * (float)(p[4 + j] >> 4) + m;
    }
}

/* Bit j of h belongs to element j. */
static int high5(uint32_t h, int j)
{
    return (int)(h >> j & 1) << 4;
}

static void block_q5_0(const uint8_t *p, float *out)
{
    float d = load_f16(p);
    uint32_t h = load_u32(p + 2);

    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)((p[6 + j] & 15) + high5(h, j) - 16);
        out[16 + j] = d * (float)((p[6 + j] >> 4) + high5(h, 16 + j) - 16);
    }
}

static void block_q5_1(const uint8_t *p, float *out)
{
    float d = load_f16(p), m = load_f16(p + 2);
    uint32_t h = load_u32(p + 4);

    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)((p[8 + j] & 15) + high5(h, j)) + m;
        out[16 + j] = d * (float)((p[8 + j] >> 4) + high5(h, 16 + j)) + m;
    }
}

static void block_iq4_nl(const uint8_t *p, float *out)
{
    float d = load_f16(p);

    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)IQ4_VALUES[p[2 + j] & 15];
        out[16 + j] = d * (float)IQ4_VALUES[p[2 + j] >> 4];
    }
}

static void block_mxfp4(const uint8_t *p, float *out)
{
    float d = e8m0_half(p[0]);

    for (int j = 0; j < 16; j++) {
        out[j] = d * E2M1_TWICE[p[1 + j] & 15];
        out[16 + j] = d * E2M1_TWICE[p[1 + j] >> 4];
    }
}

/* Super-blocks. Their quants come in planes, element i of 256 being at
 *   1 bit   h[i % 32],                   bit i / 32
 *   2 bits  q[32 * (i / 128) + i % 32],  bits 2 * (i % 128 / 32)..
 *   4 bits  q[32 * (i / 64) + i % 32],   low nibble for i % 64 < 32 (q4_k, q5_k; q6_k and iq4_xs differ, see there) */

static int plane1(const uint8_t *h, int i)
{
    return h[i % 32] >> (i / 32) & 1;
}

static int plane2(const uint8_t *q, int i)
{
    return q[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
}

static int plane4(const uint8_t *q, int i)
{
    return q[32 * (i / 64) + i % 32] >> 4 * (i % 64 / 32) & 15;
}

static void block_q2_k(const uint8_t *p, float *out)
{
    float d = load_f16(p + 80), dmin = load_f16(p + 82);

    for (int i = 0; i < 256; i++) {
        uint8_t sm = p[i / 16];
        out[i] = d * (float)((sm & 15) * plane2(p + 16, i)) - dmin * (float)(sm >> 4);
    }
}

static void block_q3_k(const uint8_t *p, float *out)
{
    float d = load_f16(p + 108);

    for (int i = 0; i < 256; i++)
        out[i] = d * (float)(block_scale_q3_k(p + 96, i / 16) * (plane2(p + 32, i) + 4 * plane1(p, i) - 4));
}

static void block_q4_k(const uint8_t *p, float *out)
{
    float d = load_f16(p), dmin = load_f16(p + 2);
    uint8_t s, m;

    for (int i = 0; i < 256; i++) {
        block_scale_min(p + 4, i / 32, &s, &m);
        out[i] = d * (float)(s * plane4(p + 16, i)) - dmin * (float)m;
    }
}

static void block_q5_k(const uint8_t *p, float *out)
{
    float d = load_f16(p), dmin = load_f16(p + 2);
    uint8_t s, m;

    for (int i = 0; i < 256; i++) {
        block_scale_min(p + 4, i / 32, &s, &m);
        out[i] = d * (float)(s * (plane4(p + 48, i) + 16 * plane1(p + 16, i))) - dmin * (float)m;
    }
}

/* Its nibbles: of 128 elements, 0..63 are the low ones of 64 bytes and 64..127 the high ones. */
static void block_q6_k(const uint8_t *p, float *out)
{
    float d = load_f16(p + 208);

    for (int i = 0; i < 256; i++) {
        int q = p[64 * (i / 128) + i % 64] >> 4 * (i % 128 / 64) & 15;
        out[i] = d * (float)((int8_t)p[192 + i / 16] * (q + 16 * plane2(p + 128, i) - 32));
    }
}

/* Its nibbles: each sub-block of 32 is 16 bytes, as in iq4_nl. */
static void block_iq4_xs(const uint8_t *p, float *out)
{
    float d = load_f16(p);

    for (int i = 0; i < 256; i++) {
        int q = p[8 + 16 * (i / 32) + i % 16] >> 4 * (i % 32 / 16) & 15;
        out[i] = d * (float)(block_scale_iq4_xs(p + 2, i / 32) * IQ4_VALUES[q]);
    }
}

typedef void (*BlockToF32)(const uint8_t *block, float *out);

static BlockToF32 block_decoder(DType t)
{
    switch (t) {
    case DT_Q8_0:
        return block_q8_0;
    case DT_Q4_0:
        return block_q4_0;
    case DT_Q4_1:
        return block_q4_1;
    case DT_Q5_0:
        return block_q5_0;
    case DT_Q5_1:
        return block_q5_1;
    case DT_IQ4_NL:
        return block_iq4_nl;
    case DT_MXFP4:
        return block_mxfp4;
    case DT_Q2_K:
        return block_q2_k;
    case DT_Q3_K:
        return block_q3_k;
    case DT_Q4_K:
        return block_q4_k;
    case DT_Q5_K:
        return block_q5_k;
    case DT_Q6_K:
        return block_q6_k;
    case DT_IQ4_XS:
        return block_iq4_xs;
    default:
        return NULL;
    }
}

bool dtype_row_to_f32(DType t, const void *row, uint64_t n, float *out)
{
    const uint8_t *p = row;
    BlockToF32 decode = block_decoder(t);
    uint32_t block = dtype_block(t), step = dtype_block_bytes(t);
    uint64_t bytes;

    if (!dtype_row_bytes(t, n, &bytes))
        return false;
    if (rowed(t)) {
        rowed_to_f32(t, p, n, out);
        return true;
    }
    switch (t) {
    case DT_F32:
        if (n > 0)
            memcpy(out, p, bytes);
        return true;
    case DT_F16:
        for (uint64_t i = 0; i < n; i++)
            out[i] = load_f16(p + 2 * i);
        return true;
    case DT_BF16:
        for (uint64_t i = 0; i < n; i++)
            out[i] = bf16_to_f32(load_u16(p + 2 * i));
        return true;
    default:
        if (decode == NULL)
            return false;
        for (uint64_t i = 0; i < n; i += block, p += step)
            decode(p, out + i);
        return true;
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

/* Are the element, or all scales of the block, such that every weight is finite? */
static bool block_finite(DType t, const uint8_t *p)
{
    switch (t) {
    case DT_F32:
        return f32_finite(p);
    case DT_BF16:
        return bf16_finite(p);
    case DT_F16:
    case DT_Q8_0:
    case DT_Q4_0:
    case DT_Q5_0:
    case DT_IQ4_NL:
    case DT_IQ4_XS:
        return f16_finite(p);
    case DT_Q4_1:
    case DT_Q5_1:
    case DT_Q4_K:
    case DT_Q5_K:
        return f16_finite(p) && f16_finite(p + 2);
    case DT_Q2_K:
        return f16_finite(p + 80) && f16_finite(p + 82);
    case DT_Q3_K:
        return f16_finite(p + 108);
    case DT_Q6_K:
        return f16_finite(p + 208);
    case DT_MXFP4: /* 255 is NaN; above 252, 2^(e - 127) times the largest value, 6, is past the largest float */
        return p[0] <= 252;
    default:
        return true;
    }
}

enum { CHUNK = 64 };

/* Of CHUNK floats, without a branch for each: loading looks at every element of a model. mask: their exponent. */
static bool any_mask16(const uint8_t *p, uint16_t mask)
{
    uint16_t any = 0;

    for (int i = 0; i < CHUNK; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, 2);
        any |= (h & mask) == mask;
    }
    return any != 0;
}

static bool any_mask32(const uint8_t *p, uint32_t mask)
{
    uint32_t any = 0;

    for (int i = 0; i < CHUNK; i++) {
        uint32_t u;
        memcpy(&u, p + 4 * i, 4);
        any |= (u & mask) == mask;
    }
    return any != 0;
}

/* Elements of the float row that are finite for sure: whole chunks up to the first that has one that is not. */
static uint64_t finite_chunks(DType t, const uint8_t *p, uint64_t n)
{
    uint64_t i = 0;

    if (t == DT_F32)
        while (n - i >= CHUNK && !any_mask32(p + 4 * i, 0x7f800000u))
            i += CHUNK;
    if (t == DT_F16 || t == DT_BF16)
        while (n - i >= CHUNK && !any_mask16(p + 2 * i, t == DT_F16 ? 0x7c00u : 0x7f80u))
            i += CHUNK;
    return i;
}

bool dtype_row_finite(DType t, const void *row, uint64_t n, uint64_t *at)
{
    const uint8_t *p = row;
    uint32_t block = dtype_block(t), step = dtype_block_bytes(t);
    uint64_t bytes;

    if (!dtype_row_bytes(t, n, &bytes))
        return true;
    if (rowed(t))
        return rowed_finite(t, p, n, at);
    const uint64_t sound = finite_chunks(t, p, n);
    p += sound * step; /* 0 of blocks */
    for (uint64_t i = sound; i < n; i += block, p += step) {
        if (!block_finite(t, p)) {
            *at = i;
            return false;
        }
    }
    return true;
}
