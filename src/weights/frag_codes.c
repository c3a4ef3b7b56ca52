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
static uint8_t half_code(const uint8_t *q, uint32_t j)
{
    return q[j % 16] >> 4 * (j / 16) & 15;
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
    const uint32_t high = fifth ? load_u32(p) : 0;
    p += fifth ? 4 : 0;
    for (uint32_t j = 0; j < 32; j++)
        codes[32 * b + j] = t == DT_Q8_0 ? p[j] : (uint8_t)(half_code(p, j) | (high >> j & 1) << 4);
}

static void put_floats(uint8_t *head, uint32_t r, const uint8_t *d, const uint8_t *dmin)
{
    memcpy(head + 4 * r, d, 2);
    memcpy(head + 4 * r + 2, dmin, 2);
}

/* A super-block is a group: d[16] or {d, dmin}[16], then for each row its scales, then its minima. */
static void block_256(DType t, const uint8_t *p, uint32_t r, uint8_t *head, uint8_t *codes)
{
    uint8_t *const after_two = head + 4 * ROWS, *const after_one = head + 2 * ROWS;

    switch (t) {
    case DT_Q2_K:
        put_floats(head, r, p + 80, p + 82);
        memcpy(after_two + 16 * r, p, 16);
        for (int i = 0; i < 256; i++)
            codes[i] = (uint8_t)block_plane2(p + 16, i);
        break;
    case DT_Q3_K:
        memcpy(head + 2 * r, p + 108, 2);
        for (int i = 0; i < 16; i++)
            after_one[16 * r + i] = (uint8_t)block_scale_q3_k(p + 96, i);
        for (int i = 0; i < 256; i++)
            codes[i] = (uint8_t)(block_plane2(p + 32, i) + 4 * block_plane1(p, i));
        break;
    case DT_Q6_K:
        memcpy(head + 2 * r, p + 208, 2);
        memcpy(after_one + 16 * r, p + 192, 16);
        for (int i = 0; i < 256; i++)
            codes[i] = (uint8_t)block_code_q6_k(p, i);
        break;
    case DT_IQ4_XS:
        memcpy(head + 2 * r, p, 2);
        for (int i = 0; i < 8; i++)
            after_one[8 * r + i] = (uint8_t)block_scale_iq4_xs(p + 2, i);
        for (uint32_t i = 0; i < 256; i++)
            codes[i] = half_code(p + 8 + 16 * (i / 32), i % 32);
        break;
    default: /* q4_k, q5_k */
        put_floats(head, r, p, p + 2);
        for (int i = 0; i < 8; i++)
            block_scale_min(p + 4, i, &after_two[8 * r + i], &after_two[8 * ROWS + 8 * r + i]);
        for (int i = 0; i < 256; i++)
            codes[i] = (uint8_t)(t == DT_Q4_K ? block_plane4(p + 16, i)
                                              : block_plane4(p + 48, i) + 16 * block_plane1(p + 16, i));
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
    for (uint32_t j = 0; j < n; j++)
        codes[j] = t == DT_W8_128                                     ? q[i + j]
                   : t == DT_W4_128 || t == DT_W4_64 || t == DT_W4_32 ? half_code(q + (i + j) / 32 * 16, j % 32)
                                                                      : q[(i + j) / 2] >> 4 * (j % 2) & 15;
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
            block_32(t, p + b * dtype_block_bytes(t), b, r, head, codes);
}
