/* frag_gguf.cuh - the block formats of GGUF in the layout `frag` (src/weights/layout.h has their bytes). */
#ifndef METRALE_FRAG_GGUF_CUH
#define METRALE_FRAG_GGUF_CUH
#include "frag_coded.cuh"

/* ---- blocks of 32, two to a group ---------------------------------------------------------------------------------- */

struct FragQ8_0 : Coded<FragQ8_0, 64, 1088, 32> {
    Halves d;
    Plane8<2> c;
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        d.load(p, lane);
        c.load(p + 64, lane);
    }
    __device__ __forceinline__ uint32_t code(int q, int h, int i) const
    {
        return c.whole(q, h, i, twice_1024_and(128));
    }
    __device__ __forceinline__ float scale(int s, int h) const { return d.at(h, s); }
};

/* d * (q - 8) or d * q + m, of 4 bits or 5 (q - 16) */
template <bool FIFTH, bool MIN> struct Block32 : Coded<Block32<FIFTH, MIN>, 64, 64 + 64 * MIN + 128 * FIFTH + 512, 32> {
    enum { MINIMA = MIN };
    Halves d, m;
    Plane1<1> high;
    Plane4<1> c;
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        d.load(p, lane);
        if constexpr (MIN)
            m.load(p + 64, lane);
        if constexpr (FIFTH)
            high.load(p + 64 + 64 * MIN, lane);
        c.load(p + 64 + 64 * MIN + 128 * FIFTH, lane);
    }
    __device__ __forceinline__ uint32_t code(int q, int h, int i) const
    {
        if constexpr (FIFTH)
            return half2_whole(c.two(q, h, i) | high.two(q, h, i) << 4, twice_1024_and(MIN ? 0 : 16));
        else
            return c.whole(q, h, i, twice_1024_and(MIN ? 0 : 8), MIN ? 0xd400d400u : 0xd480d480u); /* -64, -72 */
    }
    __device__ __forceinline__ float scale(int s, int h) const { return d.at(h, s); }
    __device__ __forceinline__ uint32_t min(int j, int h) const { return m.twice(h, j / 2); }
    __device__ __forceinline__ float min_scale(int) const { return 1.0f; }
};
typedef Block32<false, false> FragQ4_0;
typedef Block32<false, true> FragQ4_1;
typedef Block32<true, false> FragQ5_0;
typedef Block32<true, true> FragQ5_1;

/* iq4_nl, iq4_xs: ggml's kvalues_iq4nl */
__device__ const int8_t IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct Iq4Table : Table {
    __device__ __forceinline__ void load()
    {
        mine = __half_as_ushort(__float2half_rn((float)IQ4_VALUES[threadIdx.x % 16]));
    }
    __device__ __forceinline__ uint32_t two(uint32_t word, int i) const
    {
        uint32_t even, odd;
        pick(word, i, even, odd);
        return __byte_perm(even, odd, 0x5410);
    }
};

struct FragIq4Nl : Coded<FragIq4Nl, 64, 576, 32> {
    Iq4Table table;
    Halves d;
    Plane4<1> c;
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        table.load();
        d.load(p, lane);
        c.load(p + 64, lane);
    }
    __device__ __forceinline__ uint32_t code(int q, int h, int i) const { return table.two(c.word(q, h), i); }
    __device__ __forceinline__ float scale(int s, int h) const { return d.at(h, s); }
};

/* ---- super-blocks of 256, four groups each ------------------------------------------------------------------------- */

struct FragIq4Xs : Coded<FragIq4Xs, 64, 2208, 32> {
    enum { SUPER = 4 };
    Iq4Table table;
    Single d;
    Quarter<uint16_t> s;
    Plane4<1> c;
    __device__ __forceinline__ void load(const uint8_t *p, int lane, int part)
    {
        table.load();
        d.load(p, lane);
        s.load(p + 32, lane, part);
        c.load(p + 160 + 512 * part, lane);
    }
    __device__ __forceinline__ uint32_t code(int q, int h, int i) const { return table.two(c.word(q, h), i); }
    __device__ __forceinline__ float scale(int i, int h) const { return d.d[h] * s.with_sign(h, i); }
};

/* A whole number of at most 63, twice, as f16. */
__device__ __forceinline__ uint32_t half2_small(uint32_t v)
{
    return half2_whole(v * 0x10001u, twice_1024_and(0));
}

struct FragQ2_K : Coded<FragQ2_K, 64, 1344, 16> {
    enum { SUPER = 4, MINIMA = 1 };
    Halves d;
    Quarter<uint32_t> s; /* scale in the low nibble, minimum in the high one */
    Plane2<1> c;
    __device__ __forceinline__ void load(const uint8_t *p, int lane, int part)
    {
        d.load(p, lane);
        s.load(p + 64, lane, part);
        c.load(p + 320 + 256 * part, lane);
    }
    __device__ __forceinline__ uint32_t code(int q, int h, int i) const
    {
        return half2_whole(c.two(q, h, i), twice_1024_and(0));
    }
    __device__ __forceinline__ float scale(int i, int h) const { return d.at(h, 0) * (float)(s.at(h, i) & 15); }
    __device__ __forceinline__ uint32_t min(int j, int h) const { return half2_small(s.at(h, j) >> 4); }
    __device__ __forceinline__ float min_scale(int h) const { return -d.at(h, 1); }
};

struct FragQ3_K : Coded<FragQ3_K, 64, 1824, 16> {
    enum { SUPER = 4 };
    Single d;
    Quarter<uint32_t> s;
    Plane1<1> high;
    Plane2<1> c;
    __device__ __forceinline__ void load(const uint8_t *p, int lane, int part)
    {
        d.load(p, lane);
        s.load(p + 32, lane, part);
        high.load(p + 288 + 128 * part, lane);
        c.load(p + 800 + 256 * part, lane);
    }
    __device__ __forceinline__ uint32_t code(int q, int h, int i) const
    {
        return half2_whole(c.two(q, h, i) | high.two(q, h, i) << 2, twice_1024_and(4));
    }
    __device__ __forceinline__ float scale(int i, int h) const { return d.d[h] * s.with_sign(h, i); }
};

template <bool FIFTH> struct Super45 : Coded<Super45<FIFTH>, 64, 320 + 512 * FIFTH + 2048, 32> {
    enum { SUPER = 4, MINIMA = 1 };
    Halves d;
    Quarter<uint16_t> s, m;
    Plane1<1> high;
    Plane4<1> c;
    __device__ __forceinline__ void load(const uint8_t *p, int lane, int part)
    {
        d.load(p, lane);
        s.load(p + 64, lane, part);
        m.load(p + 192, lane, part);
        if constexpr (FIFTH)
            high.load(p + 320 + 128 * part, lane);
        c.load(p + 320 + 512 * (FIFTH + part), lane);
    }
    __device__ __forceinline__ uint32_t code(int q, int h, int i) const
    {
        if constexpr (FIFTH)
            return half2_whole(c.two(q, h, i) | high.two(q, h, i) << 4, twice_1024_and(0));
        else
            return c.whole(q, h, i, twice_1024_and(0), 0xd400d400u);
    }
    __device__ __forceinline__ float scale(int i, int h) const { return d.at(h, 0) * (float)s.at(h, i); }
    __device__ __forceinline__ uint32_t min(int j, int h) const { return half2_small(m.at(h, j / 2)); }
    __device__ __forceinline__ float min_scale(int h) const { return -d.at(h, 1); }
};
typedef Super45<false> FragQ4_K;
typedef Super45<true> FragQ5_K;

struct FragQ6_K : Coded<FragQ6_K, 64, 3360, 16> {
    enum { SUPER = 4 };
    Single d;
    Quarter<uint32_t> s;
    Plane2<1> high;
    Plane4<1> c;
    __device__ __forceinline__ void load(const uint8_t *p, int lane, int part)
    {
        d.load(p, lane);
        s.load(p + 32, lane, part);
        high.load(p + 288 + 256 * part, lane);
        c.load(p + 1312 + 512 * part, lane);
    }
    __device__ __forceinline__ uint32_t code(int q, int h, int i) const
    {
        return half2_whole(c.two(q, h, i) | high.two(q, h, i) << 4, twice_1024_and(32));
    }
    __device__ __forceinline__ float scale(int i, int h) const { return d.d[h] * s.with_sign(h, i); }
};
#endif
