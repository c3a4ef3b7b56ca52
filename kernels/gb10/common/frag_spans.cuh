/* frag_spans.cuh - the formats of checkpoints that have a scale, perhaps a zero point, for a span of k's in the layout `frag`
 * (src/weights/layout.h has their bytes): w4, w4p, w8, nf4. */
#ifndef METRALE_FRAG_SPANS_CUH
#define METRALE_FRAG_SPANS_CUH
#include "frag_coded.cuh"

/* f32 d[16][N], i16 z[16][N] of rows g and g + 8; of codes less z (|z| at most 256) half2_whole takes `less` off. */
template <int N> struct Spans {
    float d[2][N];
    int z[2][N];
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < N; i++) {
                d[h][i] = reinterpret_cast<const float *>(p)[N * (lane / 4 + 8 * h) + i];
                z[h][i] = reinterpret_cast<const int16_t *>(p + 64 * N)[N * (lane / 4 + 8 * h) + i];
            }
    }
    static __device__ __forceinline__ uint32_t twice(int v)
    {
        return __half_as_ushort(__int2half_rn(v)) * 0x10001u;
    }
};

template <int SPAN, bool ORDER, int K = SPAN == 128 ? 128 : 64>
struct W4 : Coded<W4<SPAN, ORDER>, K, (ORDER ? 2 * K : 0) + 96 * (K / SPAN) + 8 * K, SPAN> {
    Spans<K / SPAN> s;
    Plane4<K / 64> c;
    uint32_t inputs[ORDER ? K / 32 : 1][4];
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        if constexpr (ORDER) {
#pragma unroll
            for (int q = 0; q < K / 32; q++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    inputs[q][i] = reinterpret_cast<const uint32_t *>(p)[(32 * q + frag_k(2 * i, lane % 4)) / 2];
            p += 2 * K;
        }
        s.load(p, lane);
        c.load(p + 96 * (K / SPAN), lane);
    }
    __device__ __forceinline__ uint32_t code(int q, int h, int i) const
    {
        const int z = s.z[h][32 * q / SPAN];
        return c.whole(q, h, i, s.twice(1024 + z), s.twice(-64 - z));
    }
    __device__ __forceinline__ float scale(int i, int h) const
    {
        return s.d[h][i];
    }
    __device__ __forceinline__ uint32_t order(int q, int i) const
    {
        return inputs[q][i];
    }
};
template <int SPAN, int K> constexpr bool ordered<W4<SPAN, true, K>> = true;

typedef W4<128, false> FragW4_128;
typedef W4<64, false> FragW4_64;
typedef W4<32, false> FragW4_32;
typedef W4<128, true> FragW4p_128;
typedef W4<64, true> FragW4p_64;
typedef W4<32, true> FragW4p_32;

struct FragW8 : Coded<FragW8, 128, 2144, 128> {
    Spans<1> s;
    Plane8<4> c;
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        s.load(p, lane);
        c.load(p + 96, lane);
    }
    __device__ __forceinline__ uint32_t code(int q, int h, int i) const
    {
        return c.whole(q, h, i, s.twice(1024 + 128 + s.z[h][0]));
    }
    __device__ __forceinline__ float scale(int i, int h) const { return s.d[h][i]; }
};

/* QLoRA (Dettmers et al. 2023), appendix E. */
__device__ const float NF4_VALUES[16] = {-1.0f,
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

/* A value is the sum of two f16, which differ from it by less than 2^-22; lanes have both in one word. */
template <int SPAN> struct Nf4 {
    enum { GROUP = 64, BYTES = 64 * (64 / SPAN) + 512, HEAD = 0, QUADS = 2, BLOCK = 32, SUPER = 1 };
    static constexpr bool Half = true;
    Table table;
    float d[2][64 / SPAN];
    Plane4<1> c;
    __device__ __forceinline__ void load(const uint8_t *p, int lane)
    {
        const float v = NF4_VALUES[threadIdx.x % 16];
        const __half high = __float2half_rn(v), low = __float2half_rn(v - __half2float(high));
        table.mine = __half_as_ushort(high) | (uint32_t)__half_as_ushort(low) << 16;
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 64 / SPAN; i++)
                d[h][i] = reinterpret_cast<const float *>(p)[64 / SPAN * (lane / 4 + 8 * h) + i];
        c.load(p + 64 * (64 / SPAN), lane);
    }
    __device__ __forceinline__ void add(float (&acc)[4], const uint4 (&x)[QUADS]) const
    {
#pragma unroll
        for (int s = 0; s < 64 / SPAN; s++) {
            float part[4] = {0, 0, 0, 0};
#pragma unroll
            for (int j = s * SPAN / 16; j < (s + 1) * SPAN / 16; j++) {
                const int q = j / 2, i = j % 2 * 2;
                const uint32_t x0 = i ? x[q].z : x[q].x, x1 = i ? x[q].w : x[q].y;
                uint32_t high[4], low[4];
#pragma unroll
                for (int a = 0; a < 4; a++) {
                    uint32_t even, odd;
                    table.pick(c.word(q, a % 2), i + a / 2, even, odd);
                    high[a] = __byte_perm(even, odd, 0x5410);
                    low[a] = __byte_perm(even, odd, 0x7632);
                }
                mma_f16(part, low[0], low[1], low[2], low[3], x0, x1);
                mma_f16(part, high[0], high[1], high[2], high[3], x0, x1);
            }
#pragma unroll
            for (int k = 0; k < 4; k++)
                acc[k] = fmaf(part[k], d[k / 2][s], acc[k]);
        }
    }
};
#endif
