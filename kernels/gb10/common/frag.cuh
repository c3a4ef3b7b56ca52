/* frag.cuh - what a group of weights in the layout `frag` (src/weights/layout.h) adds to 16 outputs of 8 tokens: one or more
 * mma.m16n8k16 with the weights as A (16 rows of w) and the tokens as B (8 columns).
 *
 * A format is a struct with
 *   GROUP, BYTES, HEAD   k's of a group, its bytes, and what a tile has in front of its groups
 *   SUPER                groups that share scales: BYTES are of so many, and g.load has a third argument, which one of them
 *   QUADS                32 k's each, for which a lane needs 16 bytes of x (frag_k)
 *   BLOCK                what k is a multiple of
 *   Half                 whether x is taken as f16 (weights that become f16) or as bf16
 *   Group g; g.load(p, lane)          one lane's part of a group in registers
 *   g.add(acc, x)                     acc += group * x, x[QUADS] the lane's units of its token lane / 4
 *
 * The result of lane 4g + t is acc[0..3] = (row g, token 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). */
#ifndef METRALE_FRAG_CUH
#define METRALE_FRAG_CUH
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

typedef __nv_bfloat16 bf16;

__device__ __forceinline__ void mma_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                        uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* x of two tokens' worth as the mma wants it. f16 has less range than bf16: what is beyond becomes its largest number. */
template <bool HALF> __device__ __forceinline__ uint32_t pack_x(bf16 lo, bf16 hi)
{
    if (HALF) {
        const __half2 limit = __float2half2_rn(65504.0f);
        __half2 h = __floats2half2_rn(__bfloat162float(lo), __bfloat162float(hi));
        h = __hmax2(__hmin2(h, limit), __hneg2(limit));
        return *reinterpret_cast<uint32_t *>(&h);
    }
    __nv_bfloat162 b = __halves2bfloat162(lo, hi);
    return *reinterpret_cast<uint32_t *>(&b);
}

/* Scales of f16 are small numbers times 2 to a power; all that follow are exact. */
__device__ __forceinline__ uint32_t half2_mul(uint32_t a, uint32_t b)
{
    __half2 c = __hmul2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b));
    return *reinterpret_cast<uint32_t *>(&c);
}

/* Codes i and i + 4 of eight e2m1 codes, times 2^-14: sign and the three bits below it, moved to f16's places. */
__device__ __forceinline__ uint32_t half2_e2m1(uint32_t codes, int i)
{
    uint32_t c = codes >> 4 * i;
    return (c & 0x00080008u) << 12 | (c & 0x00070007u) << 9;
}

/* Which of 32 k's element e (0..7) of x is, for the lane's t = lane % 4. */
__device__ __forceinline__ constexpr int frag_k(int e, int t)
{
    return 8 * (e / 2) + 2 * t + e % 2;
}

template <bool F16> struct Float16Bits {
    enum { GROUP = 32, BYTES = 1024, HEAD = 0, QUADS = 1, BLOCK = 1, SUPER = 1 };
    static constexpr bool Half = F16;
    uint4 a[2];
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        a[0] = reinterpret_cast<const uint4 *>(p)[lane];
        a[1] = reinterpret_cast<const uint4 *>(p)[32 + lane];
    }
    __device__ __forceinline__ void add(float (&acc)[4], const uint4 (&x)[QUADS]) const
    {
        if (F16) {
            mma_f16(acc, a[0].x, a[0].y, a[0].z, a[0].w, x[0].x, x[0].y);
            mma_f16(acc, a[1].x, a[1].y, a[1].z, a[1].w, x[0].z, x[0].w);
        } else {
            mma_bf16(acc, a[0].x, a[0].y, a[0].z, a[0].w, x[0].x, x[0].y);
            mma_bf16(acc, a[1].x, a[1].y, a[1].z, a[1].w, x[0].z, x[0].w);
        }
    }
};
typedef Float16Bits<false> FragBf16;
typedef Float16Bits<true> FragF16;

/* An f32 is the sum of three bf16: its 24 bits, cut. Each times a bf16 is exact in f32. */
struct FragF32 {
    enum { GROUP = 32, BYTES = 2048, HEAD = 0, QUADS = 1, BLOCK = 1, SUPER = 1 };
    static constexpr bool Half = false;
    uint4 c[4]; /* of 8 k's: two of row g, two of row g + 8 */
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[i] = reinterpret_cast<const uint4 *>(p)[32 * i + lane];
    }
    /* the upper halves of two; what is left of them */
    static __device__ __forceinline__ uint32_t cut(uint32_t &a, uint32_t &b)
    {
        const uint32_t high = __byte_perm(a, b, 0x7632);
        a = __float_as_uint(__uint_as_float(a) - __uint_as_float(a & 0xffff0000u));
        b = __float_as_uint(__uint_as_float(b) - __uint_as_float(b & 0xffff0000u));
        return high;
    }
    __device__ __forceinline__ void add(float (&acc)[4], const uint4 (&x)[QUADS]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            uint4 u = c[i], v = c[i + 1];
            const uint32_t x0 = i ? x[0].z : x[0].x, x1 = i ? x[0].w : x[0].y;
#pragma unroll
            for (int part = 0; part < 3; part++) {
                const uint32_t a0 = cut(u.x, u.y), a1 = cut(u.z, u.w), a2 = cut(v.x, v.y), a3 = cut(v.z, v.w);
                mma_bf16(acc, a0, a1, a2, a3, x0, x1);
            }
        }
    }
    __device__ __forceinline__ float2 value(int q, int h, int i) const
    {
        return {__uint_as_float(h ? c[i].z : c[i].x), __uint_as_float(h ? c[i].w : c[i].y)};
    }
};

/* e4m3 to f16 is exact. Rows g take the convert instruction, rows g + 8 bit operations, which give 2^-8 of the value: two units
 * of the multiprocessor share the work, and the factor goes into the scale. */
struct FragFp8 {
    enum { GROUP = 128, BYTES = 2112, HEAD = 0, QUADS = 4, BLOCK = 8, SUPER = 1 };
    static constexpr bool Half = true;
    uint4 c[4];
    float d0, d8;
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        d0 = reinterpret_cast<const float *>(p)[lane / 4];
        d8 = reinterpret_cast<const float *>(p)[lane / 4 + 8] * 256.0f;
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[i] = reinterpret_cast<const uint4 *>(p + 64)[32 * i + lane];
    }
    static __device__ __forceinline__ uint32_t convert(uint16_t two)
    {
        uint32_t h;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(two));
        return h;
    }
    static __device__ __forceinline__ uint32_t shift(uint32_t codes, uint32_t select)
    {
        uint32_t h = __byte_perm(codes, 0, select);
        return (h & 0x80008000u) | (h & 0x7f007f00u) >> 1;
    }
    static __device__ __forceinline__ void two(float (&part)[4], uint32_t row0, uint32_t row8, uint32_t x0, uint32_t x1)
    {
        mma_f16(part, convert((uint16_t)row0), shift(row8, 0x1404), convert((uint16_t)(row0 >> 16)),
                shift(row8, 0x3424), x0, x1);
    }
    __device__ __forceinline__ void add(float (&acc)[4], const uint4 (&x)[QUADS]) const
    {
        float part[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            two(part, c[i].x, c[i].y, x[i].x, x[i].y);
            two(part, c[i].z, c[i].w, x[i].z, x[i].w);
        }
        acc[0] = fmaf(part[0], d0, acc[0]);
        acc[1] = fmaf(part[1], d0, acc[1]);
        acc[2] = fmaf(part[2], d8, acc[2]);
        acc[3] = fmaf(part[3], d8, acc[3]);
    }
};

struct FragFp4 {
    /* 32 k's: a word of row g and one of row g + 8; scales, twice each, of the first and second 16 k's. */
    static __device__ __forceinline__ void eight(float (&part)[4], uint32_t row0, uint32_t row8,
                                                 const uint32_t (&s0)[2], const uint32_t (&s8)[2], uint4 x)
    {
        mma_f16(part, half2_mul(half2_e2m1(row0, 0), s0[0]), half2_mul(half2_e2m1(row8, 0), s8[0]),
                half2_mul(half2_e2m1(row0, 1), s0[0]), half2_mul(half2_e2m1(row8, 1), s8[0]), x.x, x.y);
        mma_f16(part, half2_mul(half2_e2m1(row0, 2), s0[1]), half2_mul(half2_e2m1(row8, 2), s8[1]),
                half2_mul(half2_e2m1(row0, 3), s0[1]), half2_mul(half2_e2m1(row8, 3), s8[1]), x.z, x.w);
    }
};

/* The scales of 16 k's are e4m3: s * 2^7 is an f16, and code * s * 2^-7 is one too, to the bit. The tile's f32 factors come last
 * (finish). */
struct FragNvfp4 : FragFp4 {
    enum { GROUP = 64, BYTES = 576, HEAD = 64, QUADS = 2, BLOCK = 16, SUPER = 1 };
    static constexpr bool Half = true;
    uint4 c;
    uint32_t s0, s8; /* four e4m3 each */
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        s0 = reinterpret_cast<const uint32_t *>(p)[lane / 4];
        s8 = reinterpret_cast<const uint32_t *>(p)[lane / 4 + 8];
        c = reinterpret_cast<const uint4 *>(p + 64)[lane];
    }
    static __device__ __forceinline__ uint32_t scale(uint32_t s, int i) /* twice s[i] * 2^7 */
    {
        const uint32_t c = s >> 8 * i, h = (c & 0x80) << 8 | (c & 0x7f) << 7;
        return half2_mul(h | h << 16, 0x78007800u); /* 2^15 */
    }
    __device__ __forceinline__ void add(float (&acc)[4], const uint4 (&x)[QUADS]) const
    {
        const uint32_t a0[4] = {scale(s0, 0), scale(s0, 1), scale(s0, 2), scale(s0, 3)};
        const uint32_t a8[4] = {scale(s8, 0), scale(s8, 1), scale(s8, 2), scale(s8, 3)};
        eight(acc, c.x, c.y, {a0[0], a0[1]}, {a8[0], a8[1]}, x[0]);
        eight(acc, c.z, c.w, {a0[2], a0[3]}, {a8[2], a8[3]}, x[1]);
    }
};

/* The scales of 32 k's are powers of two of any size, so they meet the sums in f32. */
struct FragMxfp4 : FragFp4 {
    enum { GROUP = 64, BYTES = 544, HEAD = 0, QUADS = 2, BLOCK = 32, SUPER = 1 };
    static constexpr bool Half = true;
    uint4 c;
    uint32_t e0, e8; /* two e8m0 each */
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        e0 = reinterpret_cast<const uint16_t *>(p)[lane / 4];
        e8 = reinterpret_cast<const uint16_t *>(p)[lane / 4 + 8];
        c = reinterpret_cast<const uint4 *>(p + 32)[lane];
    }
    static __device__ __forceinline__ float power(uint32_t e) /* 2^(e - 127) */
    {
        return __uint_as_float(e ? e << 23 : 0x00400000u);
    }
    /* of 32 k's number q and row g + 8h: k frag_k(2i, t) and its neighbour */
    __device__ __forceinline__ float2 value(int q, int h, int i) const
    {
        const uint32_t w = q ? (h ? c.w : c.z) : (h ? c.y : c.x), half = half2_mul(half2_e2m1(w, i), 0x70007000u);
        const float2 f = __half22float2(*reinterpret_cast<const __half2 *>(&half));
        const float e = 2.0f * power((h ? e8 : e0) >> 8 * q & 255);
        return {f.x * e, f.y * e};
    }
    __device__ __forceinline__ void add(float (&acc)[4], const uint4 (&x)[QUADS]) const
    {
        const uint32_t one[2] = {0x70007000u, 0x70007000u}; /* 2^13: codes become half of their value */
        float low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};
        eight(low, c.x, c.y, one, one, x[0]);
        eight(high, c.z, c.w, one, one, x[1]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t e = i < 2 ? e0 : e8;
            acc[i] = fmaf(2.0f * low[i], power(e & 255), acc[i]);
            acc[i] = fmaf(2.0f * high[i], power(e >> 8), acc[i]);
        }
    }
};

/* Does code k meet another input than k? Then a.order(q, i) has the two inputs of k frag_k(2i, t) of quad q, in its halves. */
template <typename F> constexpr bool ordered = false;

/* What is left to do to a sum of a tile's row: r 0..15. */
template <typename F> __device__ __forceinline__ float frag_finish(const uint8_t *tile, int r, float sum)
{
    return sum;
}
template <> __device__ __forceinline__ float frag_finish<FragNvfp4>(const uint8_t *tile, int r, float sum)
{
    return sum * (reinterpret_cast<const float *>(tile)[r] * 128.0f);
}

template <typename F> __device__ __forceinline__ int frag_groups(int k)
{
    return (k + F::GROUP - 1) / F::GROUP;
}
/* n is a multiple of SUPER. */
template <typename F> __device__ __forceinline__ size_t frag_bytes(int n)
{
    return (size_t)(n / F::SUPER) * F::BYTES;
}
template <typename F> __device__ __forceinline__ size_t frag_tile_bytes(int k)
{
    return F::HEAD + frag_bytes<F>(frag_groups<F>(k));
}
/* Group g of those that begin at p. */
template <typename F> __device__ __forceinline__ void frag_load(F &a, const uint8_t *p, int g, int lane)
{
    if constexpr (F::SUPER > 1)
        a.load(p + frag_bytes<F>(g), lane, g % F::SUPER);
    else
        a.load(p + frag_bytes<F>(g), lane);
}
#endif
