/* dummy_pool.c - see dummy_pool.h.
 *
 *   bits(p)  = splitmix64 of key + p                       key: the seed's; p: a place in the pool
 *   z(p)     = sum of the four 16-bit parts, centred       Irwin-Hall, n = 4: normal to within 2% of the density,
 *              and scaled to sigma 1                       and bounded by 3.47 sigma
 *
 * Integers and exact float steps only, no libm: the same on every machine. The bound lets block formats use one scale for
 * the whole tensor, without a pass for the largest value: 4 bits and more span it, 2 and 3 bits take the steps that keep
 * sigma.
 *
 * A pool has 2^20 units to start from and a segment's length more. Place p of a float pool and the element at p of a block
 * pool are made of one z, and a start is rounded down to whole blocks, so that a tensor is the same in every format up to
 * that shift. */
#include "weights/dummy_pool.h"
#include "core/numeric.h"
#include "weights/block.h"
#include <stdlib.h>
#include <string.h>

#define SIGMA 0.02f
#define BOUND (SIGMA * DUMMY_BOUND) /* of |0.02 z| */

enum { STARTS = 1 << 20, SEGMENT = 4096, UNIT_MAX = 256 }; /* elements; UNIT_MAX: of one block */

struct DummyPool {
    DType dtype;
    DummyFill fill;
    uint64_t starts; /* units that a segment may begin at; 1 of a constant */
    size_t unit;     /* bytes of a block */
    size_t segment;  /* bytes */
    DummyPool *next; /* of the store's list */
    uint8_t bytes[]; /* [starts + SEGMENT / block] units */
};

/* Steele, Lea, Flood 2014: the finalizer of SplitMix64, here over a Weyl sequence. */
uint64_t dummy_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static float dummy_normal(uint64_t key, uint64_t i)
{
    uint64_t b = dummy_mix(key + i * 0x9e3779b97f4a7c15u);
    int32_t sum = (int32_t)((b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48));

    /* The sum has mean 2 * 65535 and deviation 65536 / sqrt(3). */
    return (float)(sum - 2 * 65535) * (1.7320508f / 65536.0f);
}

/* v / step to the nearest integer, kept in [lo, hi]. */
static int quantize(float v, float step, int lo, int hi)
{
    float x = v / step;
    int q = (int)(x < 0 ? x - 0.5f : x + 0.5f);

    return q < lo ? lo : q > hi ? hi : q;
}

static void store_f16(uint8_t *p, float v)
{
    uint16_t h = f32_to_f16(v);

    memcpy(p, &h, 2);
}

/* codes: the nearest of low, low + step, .., low + max * step. */
static void codes_nearest(const float *v, int n, float low, float step, int max, uint8_t *codes)
{
    for (int i = 0; i < n; i++)
        codes[i] = (uint8_t)quantize(v[i] - low, step, 0, max);
}

/* codes: the nearest of scale * values[0..15]; of equal ones, the first. */
static void codes_of_values(const float *v, int n, float scale, const int8_t *values, uint8_t *codes)
{
    for (int i = 0; i < n; i++) {
        float x = v[i] / scale, best = 1e30f;
        for (int c = 0; c < 16; c++) {
            float far = (float)values[c] < x ? x - (float)values[c] : (float)values[c] - x;
            if (far < best) {
                best = far;
                codes[i] = (uint8_t)c;
            }
        }
    }
}

/* Bits of codes to the places that decode.c reads them from; p is zero before. */
static void put_nibbles32(uint8_t *p, const uint8_t *codes)
{
    for (int i = 0; i < 16; i++)
        p[i] = (uint8_t)((codes[i] & 15) | codes[i + 16] << 4);
}

static void put_plane1(uint8_t *p, const uint8_t *codes, int bit)
{
    for (int i = 0; i < 256; i++)
        p[i % 32] = (uint8_t)(p[i % 32] | (codes[i] >> bit & 1) << i / 32);
}

static void put_plane2(uint8_t *p, const uint8_t *codes, int bit)
{
    for (int i = 0; i < 256; i++)
        p[32 * (i / 128) + i % 32] =
            (uint8_t)(p[32 * (i / 128) + i % 32] | (codes[i] >> bit & 3) << 2 * (i % 128 / 32));
}

static void put_plane4(uint8_t *p, const uint8_t *codes)
{
    for (int i = 0; i < 256; i++)
        p[32 * (i / 64) + i % 32] = (uint8_t)(p[32 * (i / 64) + i % 32] | (codes[i] & 15) << 4 * (i % 64 / 32));
}

static void put_high32(uint8_t *p, const uint8_t *codes)
{
    uint32_t h = 0;

    for (int i = 0; i < 32; i++)
        h |= (uint32_t)(codes[i] >> 4) << i;
    memcpy(p, &h, 4);
}

static void dummy_block32(DType t, const float *v, uint8_t *p)
{
    static const int8_t e2m1_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    float d, m = -BOUND;
    uint8_t codes[32];

    switch (t) {
    case DT_Q8_0:
        d = BOUND / 127;
        store_f16(p, d);
        for (int i = 0; i < 32; i++)
            p[2 + i] = (uint8_t)quantize(v[i], d, -127, 127);
        break;
    case DT_Q4_0:
        d = BOUND / 7;
        store_f16(p, d);
        codes_nearest(v, 32, -8 * d, d, 15, codes);
        put_nibbles32(p + 2, codes);
        break;
    case DT_Q4_1:
        d = 2 * BOUND / 15;
        store_f16(p, d);
        store_f16(p + 2, m);
        codes_nearest(v, 32, m, d, 15, codes);
        put_nibbles32(p + 4, codes);
        break;
    case DT_Q5_0:
        d = BOUND / 15;
        store_f16(p, d);
        codes_nearest(v, 32, -16 * d, d, 31, codes);
        put_high32(p + 2, codes);
        put_nibbles32(p + 6, codes);
        break;
    case DT_Q5_1:
        d = 2 * BOUND / 31;
        store_f16(p, d);
        store_f16(p + 2, m);
        codes_nearest(v, 32, m, d, 31, codes);
        put_high32(p + 4, codes);
        put_nibbles32(p + 8, codes);
        break;
    case DT_IQ4_NL:
        d = BOUND / 113;
        store_f16(p, d);
        codes_of_values(v, 32, d, IQ4_VALUES, codes);
        put_nibbles32(p + 2, codes);
        break;
    default: /* DT_MXFP4: 6 * 2^-6 is just above the bound */
        p[0] = 127 - 6;
        codes_of_values(v, 32, 0x1p-7f, e2m1_twice, codes);
        put_nibbles32(p + 1, codes);
        break;
    }
}

/* Scales and minima of all sub-blocks are equal, with only top bits set, so that packing them is a matter of whole bytes:
 * 8 of 4 bits, 32 of 6 bits, 48 - 32 of 6 bits with an offset. */
static void dummy_block256(DType t, const float *v, uint8_t *p)
{
    float step;
    uint8_t codes[256];

    switch (t) {
    case DT_Q2_K:
        step = 1.16f * SIGMA; /* four levels at -1.5, -0.5, 0.5, 1.5 steps: their deviation is sigma again */
        memset(p, 0x88, 16);
        store_f16(p + 80, step / 8);
        store_f16(p + 82, 1.5f * step / 8);
        codes_nearest(v, 256, -1.5f * step, step, 3, codes);
        put_plane2(p + 16, codes, 0);
        break;
    case DT_Q3_K:
        step = 0.7f * SIGMA; /* -4..3 steps: all but 1% are inside */
        memset(p + 104, 0xff, 4);
        store_f16(p + 108, step / 16);
        codes_nearest(v, 256, -4 * step, step, 7, codes);
        put_plane1(p, codes, 2);
        put_plane2(p + 32, codes, 0);
        break;
    case DT_Q4_K:
    case DT_Q5_K:
        step = 2 * BOUND / (t == DT_Q4_K ? 15 : 31);
        store_f16(p, step / 32);
        store_f16(p + 2, BOUND / 32);
        memset(p + 4, 0xa0, 8);
        codes_nearest(v, 256, -BOUND, step, t == DT_Q4_K ? 15 : 31, codes);
        if (t == DT_Q5_K)
            put_plane1(p + 16, codes, 4);
        put_plane4(p + (t == DT_Q4_K ? 16 : 48), codes);
        break;
    case DT_Q6_K:
        step = BOUND / 31;
        memset(p + 192, 32, 16);
        store_f16(p + 208, step / 32);
        codes_nearest(v, 256, -32 * step, step, 63, codes);
        for (int i = 0; i < 256; i++)
            p[64 * (i / 128) + i % 64] = (uint8_t)(p[64 * (i / 128) + i % 64] | (codes[i] & 15) << 4 * (i % 128 / 64));
        put_plane2(p + 128, codes, 4);
        break;
    default: /* DT_IQ4_XS */
        step = BOUND / 113;
        store_f16(p, step / 16);
        memset(p + 2, 0xff, 2);
        codes_of_values(v, 256, step, IQ4_VALUES, codes);
        for (int i = 0; i < 8; i++)
            put_nibbles32(p + 8 + 16 * i, codes + 32 * i);
        break;
    }
}

/* The nearest e4m3, ties to even; 448 of everything above. Below 2^-6 steps are 2^-9. */
static uint8_t e4m3_nearest(float v)
{
    const float a = v < 0 ? -v : v;
    const uint8_t sign = v < 0 ? 0x80 : 0;
    uint32_t u;

    if (a < 0x1p-6f)
        return sign | (uint8_t)quantize(a, 0x1p-9f, 0, 8);
    memcpy(&u, &a, 4);
    u += 0x7ffff + (u >> 20 & 1);  /* 20 bits of the fraction go */
    u = (u >> 20) - (127 - 7) * 8; /* exponent and 3 bits of fraction, in the other bias */
    return sign | (uint8_t)(u < 126 ? u : 126);
}

/* The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6. */
static uint32_t e2m1_nearest(float v)
{
    const float a = v < 0 ? -v : v;

    return (uint32_t)((a > 0.25f) + (a > 0.75f) + (a > 1.25f) + (a > 1.75f) + (a > 2.5f) + (a > 3.5f) + (a > 5)) |
           (v < 0 ? 8u : 0u);
}

/* Units [0, n) of single numbers, from places of z. */
static void fill_numbers(DummyPool *p, uint64_t key, uint64_t n)
{
    const float mean = p->fill.mean, sigma = p->fill.sigma;

    for (uint64_t i = 0; i < n; i++) {
        float v = mean + sigma * dummy_normal(key, i);
        uint16_t h = p->dtype == DT_BF16 ? f32_to_bf16(v) : p->dtype == DT_F16 ? f32_to_f16(v) : 0;

        switch (p->dtype) {
        case DT_F32:
            memcpy(p->bytes + 4 * i, &v, 4);
            break;
        case DT_F16:
        case DT_BF16:
            memcpy(p->bytes + 2 * i, &h, 2);
            break;
        case DT_E4M3:
            p->bytes[i] = e4m3_nearest(v);
            break;
        default: /* DT_I8: dummy_pool_takes lets nothing else in */
            p->bytes[i] = (uint8_t)quantize(v, 1, -127, 127);
            break;
        }
    }
}

/* Bytes of bit fields: whole numbers, or e2m1 codes. */
static void fill_fields(DummyPool *p, uint64_t key, uint64_t n)
{
    const uint32_t bits = p->fill.kind == DUMMY_E2M1 ? 4 : p->fill.bits, per = 8 / bits;
    const int most = (1 << bits) - 1;

    for (uint64_t i = 0; i < n * p->unit; i++) {
        uint32_t byte = 0;

        for (uint32_t j = 0; j < per; j++) {
            float v = p->fill.mean + p->fill.sigma * dummy_normal(key, i * per + j);

            uint32_t code = p->fill.kind == DUMMY_E2M1 ? e2m1_nearest(v) : (uint32_t)quantize(v, 1, 0, most);

            byte |= code << bits * j;
        }
        p->bytes[i] = (uint8_t)byte;
    }
}

static void fill_blocks(DummyPool *p, uint64_t key, uint64_t n)
{
    const uint32_t per = dtype_block(p->dtype);
    float v[UNIT_MAX];

    for (uint64_t u = 0; u < n; u++) {
        for (uint32_t i = 0; i < per; i++)
            v[i] = SIGMA * dummy_normal(key, u * per + i);
        if (per == 32)
            dummy_block32(p->dtype, v, p->bytes + u * p->unit);
        else
            dummy_block256(p->dtype, v, p->bytes + u * p->unit);
    }
}

bool dummy_pool_takes(DType t, const DummyFill *fill)
{
    if (fill->kind == DUMMY_E2M1)
        return t == DT_U8;
    if (fill->kind == DUMMY_FIELDS)
        return (t == DT_U8 || t == DT_I32 || t == DT_I8) && (fill->bits == 4 || fill->bits == 8);
    if (t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_E4M3 || t == DT_I8)
        return true;
    return (dtype_block(t) == 32 || dtype_block(t) == 256) && t != DT_I8_32 && dtype_row(t).bytes == 0 &&
           fill->mean == 0.0f && fill->sigma == SIGMA;
}

Status dummy_pool_find(DummyPool **list, const DummyPool **out, DType t, const DummyFill *fill, uint64_t seed, Err *err)
{
    const uint32_t block = dtype_block(t);
    const uint64_t starts = fill->sigma == 0.0f ? 1 : STARTS / block, units = starts + SEGMENT / block,
                   key = dummy_mix(seed);
    DummyPool *p;

    for (p = *list; p != NULL; p = p->next)
        if (p->dtype == t && p->fill.kind == fill->kind && p->fill.bits == fill->bits && p->fill.mean == fill->mean &&
            p->fill.sigma == fill->sigma) {
            *out = p;
            return ST_OK;
        }
    p = calloc(1, sizeof *p + units * dtype_block_bytes(t));
    if (p == NULL)
        return err_set(err, ST_NOMEM, "dummy weights: out of memory; free some memory");
    p->dtype = t;
    p->fill = *fill;
    p->starts = starts;
    p->unit = dtype_block_bytes(t);
    p->segment = SEGMENT / block * p->unit;
    if (fill->kind != DUMMY_NORMAL)
        fill_fields(p, key, units);
    else if (block == 1)
        fill_numbers(p, key, units);
    else
        fill_blocks(p, key, units);
    p->next = *list;
    *list = p;
    *out = p;
    return ST_OK;
}

void dummy_pool_free(DummyPool *list)
{
    while (list != NULL) {
        DummyPool *next = list->next;
        free(list);
        list = next;
    }
}

void dummy_pool_read(const DummyPool *p, uint64_t key, uint64_t offset, uint8_t *dst, size_t len)
{
    while (len > 0) {
        const uint64_t segment = offset / p->segment;
        const uint64_t start = (dummy_mix(key + segment * 0x9e3779b97f4a7c15u) >> 32) * p->starts >> 32;
        const size_t skip = offset % p->segment;
        const size_t n = p->segment - skip < len ? p->segment - skip : len;

        memcpy(dst, p->bytes + start * p->unit + skip, n);
        dst += n;
        offset += n;
        len -= n;
    }
}
