/* frag_coded.cuh - the formats whose codes are numbers that f16 holds exactly, times a scale of 16 to 128 k's, perhaps with a
 * minimum beside: the interface of frag.cuh for them. Codes become f16 in registers, a few instructions for two; the tensor
 * cores sum code * x over a span, and its scale meets that sum in f32. Minima are an operand of their own, f16 too: what x sums
 * to is multiplied with them by the same units.
 *
 * A struct D : Coded<D, GROUP, BYTES, SPAN> has
 *   load(p, lane)      one lane's part of a group in registers
 *   code(q, h, i)      of 32 k's number q and row g + 8h: k frag_k(2i, t) and its neighbour, two f16
 *   scale(s, h)        of span s
 * and where MINIMA, min(j, h): of 16 k's number j, twice, and min_scale(h). */
#ifndef METRALE_FRAG_CODED_CUH
#define METRALE_FRAG_CODED_CUH
#include "frag.cuh"

template <typename D, int K, int SIZE, int SPAN> struct Coded {
    enum { GROUP = K, BYTES = SIZE, HEAD = 0, QUADS = K / 32, BLOCK = 32, SUPER = 1, MINIMA = 0 };
    static constexpr bool Half = true;

    __device__ __forceinline__ void add(float (&acc)[4], const uint4 (&x)[QUADS]) const
    {
        const D &d = *static_cast<const D *>(this);
        float low[4] = {0, 0, 0, 0};
#pragma unroll
        for (int s = 0; s < K / SPAN; s++) {
            float part[4] = {0, 0, 0, 0};
#pragma unroll
            for (int j = s * SPAN / 16; j < (s + 1) * SPAN / 16; j++) {
                const int q = j / 2, i = j % 2 * 2;
                const uint32_t x0 = i ? x[q].z : x[q].x, x1 = i ? x[q].w : x[q].y;
                mma_f16(part, d.code(q, 0, i), d.code(q, 1, i), d.code(q, 0, i + 1), d.code(q, 1, i + 1), x0, x1);
                if constexpr (D::MINIMA)
                    mma_f16(low, d.min(j, 0), d.min(j, 1), d.min(j, 0), d.min(j, 1), x0, x1);
            }
#pragma unroll
            for (int c = 0; c < 4; c++)
                acc[c] = fmaf(part[c], d.scale(s, c / 2), acc[c]);
        }
        if constexpr (D::MINIMA)
#pragma unroll
            for (int c = 0; c < 4; c++)
                acc[c] = fmaf(low[c], d.min_scale(c / 2), acc[c]);
    }
    /* the weights that code(q, h, i) stands for */
    __device__ __forceinline__ float2 value(int q, int h, int i) const
    {
        const D &d = *static_cast<const D *>(this);
        const int j = 2 * q + i / 2;
        const float2 c = two_floats(d.code(q, h, i));
        const float s = d.scale(16 * j / SPAN, h);
        float m = 0.0f;
        if constexpr (D::MINIMA)
            m = two_floats(d.min(j, h)).x * d.min_scale(h);
        return {fmaf(c.x, s, m), fmaf(c.y, s, m)};
    }
    static __device__ __forceinline__ float2 two_floats(uint32_t h)
    {
        return __half22float2(*reinterpret_cast<__half2 *>(&h));
    }
};

/* ---- parts of a group ---------------------------------------------------------------------------------------------- */

/* 0x6400 with c in its lowest ten bits is 1024 + c. less: 1024 plus what is taken off, twice. */
__device__ __forceinline__ uint32_t half2_less(uint32_t with_1024, uint32_t less)
{
    __half2 h = __hsub2(*reinterpret_cast<__half2 *>(&with_1024), *reinterpret_cast<__half2 *>(&less));
    return *reinterpret_cast<uint32_t *>(&h);
}
__device__ __forceinline__ uint32_t half2_whole(uint32_t two, uint32_t less)
{
    return half2_less(two | 0x64006400u, less);
}
constexpr __device__ uint32_t twice_1024_and(int z) /* z >= 0 */
{
    return (0x6400u + (uint32_t)z) * 0x10001u;
}

/* Planes: word(q, h) has the codes of 32 k's number q of row g + 8h; two(q, h, i) a code in each half. */
template <int N> struct Plane1 {
    uint32_t h[N];
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
#pragma unroll
        for (int n = 0; n < N; n++)
            h[n] = reinterpret_cast<const uint32_t *>(p)[32 * n + lane];
    }
    __device__ __forceinline__ uint32_t two(int q, int row, int i) const
    {
        return h[q / 2] >> (8 * row + 4 * (q % 2) + i) & 0x00010001u;
    }
};
template <int N> struct Plane2 {
    uint2 p[N];
    __device__ __forceinline__ void load(const uint8_t *at, int lane)
    {
#pragma unroll
        for (int n = 0; n < N; n++)
            p[n] = reinterpret_cast<const uint2 *>(at)[32 * n + lane];
    }
    __device__ __forceinline__ uint32_t two(int q, int row, int i) const
    {
        return (row ? p[q / 2].y : p[q / 2].x) >> 2 * (4 * (q % 2) + i) & 0x00030003u;
    }
};
template <int N> struct Plane4 {
    uint4 c[N];
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
#pragma unroll
        for (int n = 0; n < N; n++)
            c[n] = reinterpret_cast<const uint4 *>(p)[32 * n + lane];
    }
    __device__ __forceinline__ uint32_t word(int q, int row) const
    {
        const uint4 &f = c[q / 2];
        return q % 2 ? (row ? f.w : f.z) : (row ? f.y : f.x);
    }
    __device__ __forceinline__ uint32_t two(int q, int row, int i) const
    {
        return word(q, row) >> 4 * i & 0x000f000fu;
    }
    /* less z, as f16, for less = 1024 + z and less16 = -64 - z, twice each: an odd nibble is left where it is, 16 times its value */
    __device__ __forceinline__ uint32_t whole(int q, int row, int i, uint32_t less, uint32_t less16) const
    {
        const uint32_t w = word(q, row) >> (i / 2 * 8);
        if (i % 2 == 0)
            return half2_whole(w & 0x000f000fu, less);
        uint32_t v = (w & 0x00f000f0u) | 0x64006400u, sixteenth = 0x2c002c00u;
        __half2 h = __hfma2(*reinterpret_cast<__half2 *>(&v), *reinterpret_cast<__half2 *>(&sixteenth),
                            *reinterpret_cast<__half2 *>(&less16));
        return *reinterpret_cast<uint32_t *>(&h);
    }
};
template <int N> struct Plane8 { /* signed bytes */
    uint4 c[N];
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
#pragma unroll
        for (int n = 0; n < N; n++)
            c[n] = reinterpret_cast<const uint4 *>(p)[32 * n + lane];
    }
    /* less: 1024 + 128 + z */
    __device__ __forceinline__ uint32_t whole(int q, int row, int i, uint32_t less) const
    {
        const uint32_t w = i / 2 ? (row ? c[q].w : c[q].z) : (row ? c[q].y : c[q].x);
        return half2_less(__byte_perm(w ^ 0x80808080u, 0x64646464u, i % 2 ? 0x4342 : 0x4140), less);
    }
};

/* Two f16 for each of rows g and g + 8. */
struct Halves {
    uint32_t w[2];
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        w[0] = reinterpret_cast<const uint32_t *>(p)[lane / 4];
        w[1] = reinterpret_cast<const uint32_t *>(p)[lane / 4 + 8];
    }
    __device__ __forceinline__ uint32_t twice(int row, int i) const
    {
        return __byte_perm(w[row], 0, i ? 0x3232 : 0x1010);
    }
    __device__ __forceinline__ float at(int row, int i) const
    {
        const uint32_t h = w[row];
        const float2 f = __half22float2(*reinterpret_cast<const __half2 *>(&h));
        return i ? f.y : f.x;
    }
};

/* One f16 for each of rows g and g + 8. */
struct Single {
    float d[2];
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        d[0] = __half2float(reinterpret_cast<const __half *>(p)[lane / 4]);
        d[1] = __half2float(reinterpret_cast<const __half *>(p)[lane / 4 + 8]);
    }
};

/* Of 4N bytes for each row, N for each part of a super-block: those of rows g and g + 8. T has N bytes. */
template <typename T> struct Quarter {
    uint32_t w[2];
    __device__ __forceinline__ void load(const uint8_t *p, int lane, int part)
    {
        w[0] = reinterpret_cast<const T *>(p)[lane / 4 * 4 + part];
        w[1] = reinterpret_cast<const T *>(p)[(lane / 4 + 8) * 4 + part];
    }
    __device__ __forceinline__ uint32_t at(int row, int i) const { return w[row] >> 8 * i & 0xff; }
    __device__ __forceinline__ float with_sign(int row, int i) const { return (float)(int8_t)at(row, i); }
};

/* Codes that are places in a table of 16: lane l of each half warp has element l, and lanes ask each other. All of a warp take
 * part. */
struct Table {
    uint32_t mine;
    /* what codes i of the halves of a word stand for */
    __device__ __forceinline__ void pick(uint32_t word, int i, uint32_t &even, uint32_t &odd) const
    {
        even = __shfl_sync(0xffffffffu, mine, (int)(word >> 4 * i), 16);
        odd = __shfl_sync(0xffffffffu, mine, (int)(word >> (16 + 4 * i)), 16);
    }
};
#endif
