/* block.h - reading the fields of GGUF's blocks: unaligned words, and the 6-bit scales that super-blocks pack.
 * Formulas: ggml's block structs, by element. Internal to this room. Pure. */
#ifndef METRALE_WEIGHTS_BLOCK_H
#define METRALE_WEIGHTS_BLOCK_H
#include <stdint.h>
#include <string.h>

/* iq4_nl, iq4_xs: what a code stands for (ggml's kvalues_iq4nl), times the scale. */
static const int8_t IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static inline uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof v); /* blocks have any size, so nothing in a row is aligned */
    return v;
}

static inline uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* q4_k, q5_k: scale and minimum of sub-block j of 8, from 12 bytes. The first four pairs lie in the low 6 bits of bytes
 * 0..3 and 4..7; the others have their low nibbles in bytes 8..11 and their top two bits above the first pairs. */
static inline void block_scale_min(const uint8_t *p, int j, uint8_t *scale, uint8_t *min)
{
    if (j < 4) {
        *scale = p[j] & 63;
        *min = p[j + 4] & 63;
    } else {
        *scale = (uint8_t)((p[j + 4] & 15) | p[j - 4] >> 6 << 4);
        *min = (uint8_t)(p[j + 4] >> 4 | p[j] >> 6 << 4);
    }
}

/* q3_k: scale of sub-block j of 16, from 12 bytes, less its offset: -32..31. Low nibbles as nibbles of bytes 0..7 (low
 * ones first), the top two bits as pairs of bytes 8..11 (pair j / 4 of byte 8 + j % 4). */
static inline int8_t block_scale_q3_k(const uint8_t *p, int j)
{
    int low = j < 8 ? p[j] & 15 : p[j - 8] >> 4, high = p[8 + j % 4] >> 2 * (j / 4) & 3;

    return (int8_t)((low | high << 4) - 32);
}

/* iq4_xs: scale of sub-block j of 8, less its offset: -32..31. p: u16 of top pairs, then 4 bytes of low nibbles. */
static inline int8_t block_scale_iq4_xs(const uint8_t *p, int j)
{
    int low = p[2 + j / 2] >> 4 * (j % 2) & 15, high = load_u16(p) >> 2 * j & 3;

    return (int8_t)((low | high << 4) - 32);
}
#endif
