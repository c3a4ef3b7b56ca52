/* attention.cuh - m16 tiles of queries against tokens: scores, weights, sums of values, all in fragments of
 * tensor.cuh. A tile's 16 queries are rows and heads that share one KV head; lane 4g + t has those of lines g and g + 8.
 * Scores are in units of ln 2, so that weights are powers of two (softmax does not care for the base). */
#ifndef METRALE_ATTENTION_CUH
#define METRALE_ATTENTION_CUH
#include "kv.cuh"
#include "tensor.cuh"

#define LOG2E 1.4426950408889634f

/* What turns q . k into a score. */
struct Scoring {
    float scale, softcap; /* scale: with 1 / ln 2, unless there is a cap */
    __device__ __forceinline__ Scoring(float scale_, float softcap_)
        : scale(softcap_ > 0.0f ? scale_ / softcap_ : scale_ * LOG2E), softcap(softcap_)
    {
    }
    __device__ __forceinline__ float operator()(float s) const
    {
        return softcap > 0.0f ? softcap * LOG2E * tanhf(s * scale) : s * scale;
    }
};

/* Of a lane's lines g (0) and g + 8 (1): largest score so far, this lane's share of the sum of weights. */
struct Softmax {
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
};

/* The largest or the sum over the four lanes of a line. */
__device__ __forceinline__ float line_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

__device__ __forceinline__ float line_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

/* The A fragment of 16 lines and the 16 elements from unit on. */
template <int HEAD> __device__ __forceinline__ void load_queries(uint32_t (&q)[4], const bf16 *lines, int unit)
{
    const int lane = (int)threadIdx.x % 32;
    load_matrices(q, lines + Rows<HEAD>::at(lane % 16, unit + lane / 16));
}

/* s[m][N] += q[m] . k of 8 N tokens over 16 elements: q[m] the A fragment of those elements, unit their first unit. */
template <int HEAD, int M, int N>
__device__ __forceinline__ void add_scores(float (&s)[M][N][4], const uint32_t (&q)[M][4], const bf16 *keys, int unit)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t k[4];
        load_matrices(k, keys + Rows<HEAD>::at(8 * n + lane / 16 * 8 + lane % 8, unit + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < M; m++) {
            multiply_add(s[m][n], q[m], k[0], k[1]);
            multiply_add(s[m][n + 1], q[m], k[2], k[3]);
        }
    }
}

/* Masked scores (-INFINITY outside) to weights; x.top moves on, out is rescaled. A line that has seen no token yet keeps 0. */
template <int N, int D> __device__ __forceinline__ void soften(float (&s)[N][4], Softmax &x, float (&out)[D][4])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = x.top[i];
#pragma unroll
        for (int n = 0; n < N; n++)
            top = fmaxf(top, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
        top = line_max(top);
        const float base = top == -INFINITY ? 0.0f : top, keep = exp2f(x.top[i] - base);
        x.top[i] = top;
        x.sum[i] *= keep;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 2 * i; j < 2 * i + 2; j++) {
                s[n][j] = exp2f(s[n][j] - base);
                x.sum[i] += s[n][j];
            }
#pragma unroll
        for (int d = 0; d < D; d++) {
            out[d][2 * i] *= keep;
            out[d][2 * i + 1] *= keep;
        }
    }
}

/* out[m] += weights of 8 N tokens times their values. */
template <int HEAD, int M, int N>
__device__ __forceinline__ void add_values(float (&out)[M][HEAD / 8][4], const float (&s)[M][N][4], const bf16 *values)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t p[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[m][i] = pack_two(s[m][n + i / 2][i % 2 * 2], s[m][n + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int d = 0; d < HEAD / 8; d += 2) {
            uint32_t v[4];
            load_matrices_turned(v, values + Rows<HEAD>::at(8 * n + lane % 16, d + lane / 16));
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add(out[m][d], p[m], v[0], v[1]);
                multiply_add(out[m][d + 1], p[m], v[2], v[3]);
            }
        }
    }
}
#endif
