/* frag_codes.c - see frag_codes.h. Scales go where one load gives a lane all that its row has in a group: side by side for each
 * row, one kind behind the other. Those that files pack in 6 bits have a byte here, less their offset. */
#include "weights/frag_codes.h"
#include "weights/block.h"
#include "weights/rowed.h"

enum { ROWS = 16 };

FragGroup frag_group(DType t)
{
    switch (t) {
    case DT_Q8_0:
        return (FragGroup){64, 4 * ROWS, 8};
    case DT_Q4_0:
    case DT_IQ4_NL:
        return (FragGroup){64, 4 * ROWS, 4};
    case DT_Q4_1:
        return (FragGroup){64, 8 * ROWS, 4};
    case DT_Q5_0:
        return (FragGroup){64, 4 * ROWS, 5};
    case DT_Q5_1:
        return (FragGroup){64, 8 * ROWS, 5};
    case DT_Q2_K:
        return (FragGroup){256, 20 * ROWS, 2};
    case DT_Q3_K:
        return (FragGroup){256, 18 * ROWS, 3};
    case DT_Q4_K:
        return (FragGroup){256, 20 * ROWS, 4};
    case DT_Q5_K:
        return (FragGroup){256, 20 * ROWS, 5};
    case DT_Q6_K:
        return (FragGroup){256, 18 * ROWS, 6};
    case DT_IQ4_XS:
        return (FragGroup){256, 10 * ROWS, 4};
    case DT_NF4_64:
        return (FragGroup){64, 4 * ROWS, 4};
    case DT_NF4_32:
        return (FragGroup){64, 8 * ROWS, 4};
    case DT_W4_128:
        return (FragGroup){128, 6 * ROWS, 4};
    case DT_W4_64:
        return (FragGroup){64, 6 * ROWS, 4};
    case DT_W4_32:
        return (FragGroup){64, 12 * ROWS, 4};
    case DT_W8_128:
        return (FragGroup){128, 6 * ROWS, 8};
    case DT_W4P_128:
        return (FragGroup){128, 2 * 128 + 6 * ROWS, 4};
    case DT_W4P_64:
        return (FragGroup){64, 2 * 64 + 6 * ROWS, 4};
    case DT_W4P_32:
        return (FragGroup){64, 2 * 64 + 12 * ROWS, 4};
    default:
        return (FragGroup){0};
    }
}

/* u4 in 32s: element j in the low nibble of byte j, j + 16 in the high one. */
static inline void halves(uint8_t *codes, const uint8_t *q)
{
    for (int j = 0; j < 16; j++) {
        codes[j] = q[j] & 15;
        codes[16 + j] = q[j] >> 4;
    }
}

/* Bits of 32 codes: those at `shift` of 32 bytes, `up` in the code. */
static inline void plane(uint8_t *codes, const uint8_t *p, int shift, int mask, int up)
{
    for (int j = 0; j < 32; j++)
        codes[j] |= (uint8_t)((p[j] >> shift & mask) << up);
}

/* Block b of the two in a group: heads are d[16][2], then perhaps m[16][2]. */
static void block_32(DType t, const uint8_t *p, uint32_t b, uint32_t r, uint8_t *head, uint8_t *codes)
{
    const bool min = t == DT_Q4_1 || t == DT_Q5_1, fifth = t == DT_Q5_0 || t == DT_Q5_1;

    memcpy(head + 2 * (2 * r + b), p, 2);
    p += 2;
    if (min) {
        memcpy(head + 4 * ROWS + 2 * (2 * r + b), p, 2);
        p += 2;
    }
    if (t == DT_Q8_0)
        memcpy(codes, p, 32);
    else
        halves(codes, p + (fifth ? 4 : 0));
    if (fifth)
        for (uint32_t j = 0, high = load_u32(p); j < 32; j++)
            codes[j] |= (uint8_t)((high >> j & 1) << 4);
}

static void put_floats(uint8_t *head, uint32_t r, const uint8_t *d, const uint8_t *dmin)
{
    memcpy(head + 4 * r, d, 2);
    memcpy(head + 4 * r + 2, dmin, 2);
}

/* A super-block is a group: d[16] or {d, dmin}[16], then for each row its scales, then its minima. decode.c says where its
 * planes are. */
static void block_256(DType t, const uint8_t *p, uint32_t r, uint8_t *head, uint8_t *codes)
{
    uint8_t *const after_two = head + 4 * ROWS, *const after_one = head + 2 * ROWS;

    switch (t) {
    case DT_Q2_K:
        put_floats(head, r, p + 80, p + 82);
        memcpy(after_two + 16 * r, p, 16);
        for (int b = 0; b < 8; b++)
            plane(codes + 32 * b, p + 16 + b / 4 * 32, 2 * (b % 4), 3, 0);
        break;
    case DT_Q3_K:
        memcpy(head + 2 * r, p + 108, 2);
        for (int i = 0; i < 16; i++)
            after_one[16 * r + i] = (uint8_t)block_scale_q3_k(p + 96, i);
        for (int b = 0; b < 8; b++) {
            plane(codes + 32 * b, p + 32 + b / 4 * 32, 2 * (b % 4), 3, 0);
            plane(codes + 32 * b, p, b, 1, 2);
        }
        break;
    case DT_Q6_K:
        memcpy(head + 2 * r, p + 208, 2);
        memcpy(after_one + 16 * r, p + 192, 16);
        for (int b = 0; b < 8; b++) {
            plane(codes + 32 * b, p + b / 4 * 64 + b % 2 * 32, b % 4 / 2 * 4, 15, 0);
            plane(codes + 32 * b, p + 128 + b / 4 * 32, 2 * (b % 4), 3, 4);
        }
        break;
    case DT_IQ4_XS:
        memcpy(head + 2 * r, p, 2);
        for (int b = 0; b < 8; b++) {
            after_one[8 * r + b] = (uint8_t)block_scale_iq4_xs(p + 2, b);
            halves(codes + 32 * b, p + 8 + 16 * b);
        }
        break;
    default: /* q4_k, q5_k */
        put_floats(head, r, p, p + 2);
        for (int b = 0; b < 8; b++) {
            block_scale_min(p + 4, b, &after_two[8 * r + b], &after_two[8 * ROWS + 8 * r + b]);
            plane(codes + 32 * b, p + (t == DT_Q4_K ? 16 : 48) + b / 2 * 32, b % 2 * 4, 15, 0);
            if (t == DT_Q5_K)
                plane(codes + 32 * b, p + 16, b, 1, 4);
        }
        break;
    }
}

/* Spans' d[16][spans], then perhaps z[16][spans]; w4p: the inputs that the codes meet come first, the same from every row. */
static void spans(DType t, uint64_t k, const uint8_t *row, uint64_t i, uint32_t n, uint32_t r, uint8_t *head,
                  uint8_t *codes)
{
    const DTypeRow shape = dtype_row(t);
    const RowedParts at = rowed_parts(t, k);
    const uint32_t group = frag_group(t).k, per = group / shape.span;
    const uint8_t *s = row + at.scales + i / shape.span * shape.bytes, *q = row + at.codes;

    if (shape.element) {
        memcpy(head, row + 2 * i, 2 * n);
        head += 2 * group;
    }
    for (uint32_t b = 0; b < per && b * shape.span < n; b++, s += shape.bytes) {
        memcpy(head + 4 * (per * r + b), s, 4);
        if (shape.bytes > 4)
            memcpy(head + 4 * ROWS * per + 2 * (per * r + b), s + 4, 2);
    }
    if (t == DT_W8_128)
        memcpy(codes, q + i, n);
    else if (t == DT_W4_128 || t == DT_W4_64 || t == DT_W4_32)
        for (uint32_t j = 0; j < n; j += 32)
            halves(codes + j, q + (i + j) / 2);
    else
        for (uint32_t j = 0; j < n / 2; j++) {
            codes[2 * j] = q[i / 2 + j] & 15;
            codes[2 * j + 1] = q[i / 2 + j] >> 4;
        }
}

void frag_group_codes(DType t, uint64_t k, const uint8_t *row, uint64_t i, uint32_t r, uint8_t *head, uint8_t *codes)
{
    const uint32_t group = frag_group(t).k, n = k - i < group ? (uint32_t)(k - i) : group, block = dtype_block(t);
    const uint8_t *p = row + i / block * dtype_block_bytes(t);

    memset(codes, 0, group);
    if (rowed(t))
        spans(t, k, row, i, n, r, head, codes);
    else if (block == 256)
        block_256(t, p, r, head, codes);
    else
        for (uint32_t b = 0; 32 * b < n; b++)
            block_32(t, p + b * dtype_block_bytes(t), b, r, head, codes + 32 * b);
}
