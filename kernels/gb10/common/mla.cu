/* Attention over latents (DeepSeek-AI 2024), absorbed: what kv_b would make of a latent for its keys is moved into the query, what it
 * would make for its values behind the sum. One form for one row and for many.
 *   latent_write   pool[slot(row)] = latent [rows][latent_dim], then rope [rows][rope_dim], the rotated part of the key
 *     grid   (rows)  block (128)
 *   mla_attention  y[r][h] = V_h (softmax(scale (K_h^T q_nope + q_rope) . C) C), C the latents of positions 0 .. pos
 *     y        [rows][n_heads][v_dim] bf16;  q_nope [rows][n_heads][nope], q_rope [rows][n_heads][rope] bf16
 *     kv_b     rows as stored: of each head K_h [nope][latent], then V_h [v_dim][latent]
 *     pool     [block][16][latent + rope] bf16 or f32
 *     positions, row_seq [rows]; table [seqs][max_blocks] physical blocks
 *     grid     (rows, ceil(n_heads, 4))  block (256): four heads share a pass over the latents; a latent has at most 512 elements
 *     smem     4 * 4 * (latent + rope + 32): queries, weights of 32 tokens
 *     bytes    a row's latents once for each four heads, and all of kv_b, from L2
 * Order: K_h^T q by the rows of K_h, one fma each; a score by lanes, 32 elements apart, then the tree of warp_sum; spans of 32 tokens by
 * position, online softmax (Milakov, Gimelshein 2018); a value one chain over tokens, divided by the sum of the weights; V_h by lanes. */
#include "kv.cuh"
#include "warp.cuh"
#include <cuda_fp16.h>
#include <cuda_fp8.h>

enum { HEADS = 4, BLOCK = 256, WARPS = BLOCK / WARP, LATENT_MAX = 512, OWN = LATENT_MAX / BLOCK, TOKENS = 32 };

/* Element c of stored row `row` of k elements. */
struct RowsF32 {
    static __device__ __forceinline__ float at(const unsigned char *w, size_t row, int k, int c)
    {
        return reinterpret_cast<const float *>(w)[row * (size_t)k + (size_t)c];
    }
};
struct RowsF16 {
    static __device__ __forceinline__ float at(const unsigned char *w, size_t row, int k, int c)
    {
        return __half2float(reinterpret_cast<const __half *>(w)[row * (size_t)k + (size_t)c]);
    }
};
struct RowsBf16 {
    static __device__ __forceinline__ float at(const unsigned char *w, size_t row, int k, int c)
    {
        return __bfloat162float(reinterpret_cast<const bf16 *>(w)[row * (size_t)k + (size_t)c]);
    }
};
/* Blocks of 32: f16 scale, 32 i8. */
struct RowsQ8_0 {
    static __device__ __forceinline__ float at(const unsigned char *w, size_t row, int k, int c)
    {
        const unsigned char *block = w + (row * (size_t)(k / 32) + (size_t)(c / 32)) * 34;
        return __half2float(*reinterpret_cast<const __half *>(block)) * (float)(signed char)block[2 + c % 32];
    }
};
/* An f32 scale for each 128 of k, then the codes; rows need not be aligned to the scale's four bytes. */
struct RowsFp8_128 {
    static __device__ __forceinline__ float at(const unsigned char *w, size_t row, int k, int c)
    {
        const size_t spans = ((size_t)k + 127) / 128;
        const unsigned char *p = w + row * (spans * 4 + (size_t)k), *d = p + (size_t)(c / 128) * 4;
        const unsigned bits = (unsigned)d[0] | (unsigned)d[1] << 8 | (unsigned)d[2] << 16 | (unsigned)d[3] << 24;
        const __half_raw code = __nv_cvt_fp8_to_halfraw(p[spans * 4 + (size_t)c], __NV_E4M3);
        return __half2float(__half(code)) * __uint_as_float(bits);
    }
};

__device__ __forceinline__ float widen(float x)
{
    return x;
}

__device__ __forceinline__ float widen(bf16 x)
{
    return __bfloat162float(x);
}

struct Mla {
    bf16 *y;
    const bf16 *q_nope, *q_rope;
    const unsigned char *kv_b;
    const int *positions, *row_seq, *table;
    int max_blocks;
    float scale;
    int n_heads, nope, rope, v_dim, latent;
};

template <class Rows, class T> __device__ __forceinline__ void attend(const Mla &m, const T *pool, float *smem)
{
    __shared__ float keep[HEADS], sums[HEADS];
    const int row = (int)blockIdx.x, h0 = (int)blockIdx.y * HEADS, n = min(HEADS, m.n_heads - h0);
    const int tid = (int)threadIdx.x, lane = tid % WARP, warp = tid / WARP, width = m.latent + m.rope;
    const int pos = m.positions[row], part = m.nope + m.v_dim;
    const int *blocks = m.table + (size_t)m.row_seq[row] * (size_t)m.max_blocks;
    const size_t at = (size_t)row * (size_t)m.n_heads + (size_t)h0;
    float *q = smem, *p = smem + HEADS * width;         /* [HEADS][width], [HEADS][TOKENS] */
    float out[HEADS][OWN], top = -INFINITY, sum = 0.0f; /* top, sum: of head `warp` */

    for (int h = 0; h < n; h++) {
        const bf16 *nope = m.q_nope + (at + (size_t)h) * (size_t)m.nope;
        for (int c = tid; c < width; c += BLOCK) {
            float x = 0.0f;
            for (int i = 0; c < m.latent && i < m.nope; i++)
                x = fmaf(Rows::at(m.kv_b, (size_t)(h0 + h) * (size_t)part + (size_t)i, m.latent, c),
                         __bfloat162float(nope[i]), x);
            if (c >= m.latent)
                x = __bfloat162float(m.q_rope[(at + (size_t)h) * (size_t)m.rope + (size_t)(c - m.latent)]);
            q[h * width + c] = x * m.scale;
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int j = 0; j < OWN; j++)
            out[h][j] = 0.0f;
    __syncthreads();

    for (int from = 0; from <= pos; from += TOKENS) {
        const int tokens = min(TOKENS, pos + 1 - from);
        for (int t = warp; t < tokens; t += WARPS) {
            const int token = from + t;
            const T *c =
                pool + ((size_t)blocks[token / KV_TOKENS] * KV_TOKENS + (size_t)(token % KV_TOKENS)) * (size_t)width;
            float score[HEADS] = {0.0f};
            for (int i = lane; i < width; i += WARP) {
                const float x = widen(c[i]);
#pragma unroll
                for (int h = 0; h < HEADS; h++)
                    score[h] = h < n ? fmaf(x, q[h * width + i], score[h]) : 0.0f;
            }
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                const float s = warp_sum(score[h]);
                if (lane == 0)
                    p[h * TOKENS + t] = s;
            }
        }
        __syncthreads();
        if (warp < n) { /* a warp a head, a lane a token */
            const float s = lane < tokens ? p[warp * TOKENS + lane] : -INFINITY;
            const float best = fmaxf(top, warp_max(s)), weight = __expf(s - best), old = __expf(top - best);
            top = best;
            sum = fmaf(sum, old, warp_sum(weight));
            p[warp * TOKENS + lane] = weight;
            if (lane == 0)
                keep[warp] = old;
        }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int j = 0; j < OWN; j++)
                out[h][j] *= h < n ? keep[h] : 0.0f;
        for (int t = 0; t < tokens; t++) {
            const int token = from + t;
            const T *c =
                pool + ((size_t)blocks[token / KV_TOKENS] * KV_TOKENS + (size_t)(token % KV_TOKENS)) * (size_t)width;
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const float x = tid + j * BLOCK < m.latent ? widen(c[tid + j * BLOCK]) : 0.0f;
#pragma unroll
                for (int h = 0; h < HEADS; h++)
                    out[h][j] = h < n ? fmaf(x, p[h * TOKENS + t], out[h][j]) : 0.0f;
            }
        }
        __syncthreads(); /* p and keep are written again */
    }
    if (warp < n && lane == 0)
        sums[warp] = sum;
    __syncthreads();
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int j = 0; j < OWN; j++)
            if (h < n && tid + j * BLOCK < m.latent)
                q[h * width + tid + j * BLOCK] = out[h][j] / sums[h];
    __syncthreads();
    for (int i = warp; i < n * m.v_dim; i += WARPS) {
        const int h = i / m.v_dim, d = i % m.v_dim;
        const size_t stored = (size_t)(h0 + h) * (size_t)part + (size_t)(m.nope + d);
        float x = 0.0f;
        for (int c = lane; c < m.latent; c += WARP)
            x = fmaf(Rows::at(m.kv_b, stored, m.latent, c), q[h * width + c], x);
        x = warp_sum(x);
        if (lane == 0)
            m.y[(at + (size_t)h) * (size_t)m.v_dim + (size_t)d] = __float2bfloat16_rn(x);
    }
}

#define MLA_ATTENTION(entry, Rows, T)                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                \
        entry(bf16 *y, const bf16 *__restrict__ q_nope, const bf16 *__restrict__ q_rope,                               \
              const unsigned char *__restrict__ kv_b, const T *__restrict__ pool, const int *__restrict__ positions,   \
              const int *__restrict__ row_seq, const int *__restrict__ table, int max_blocks, float scale,             \
              int n_heads, int nope, int rope, int v_dim, int latent)                                                  \
    {                                                                                                                  \
        extern __shared__ float smem[];                                                                                \
        attend<Rows>(Mla{y, q_nope, q_rope, kv_b, positions, row_seq, table, max_blocks, scale, n_heads, nope, rope,   \
                         v_dim, latent},                                                                               \
                     pool, smem);                                                                                      \
    }

MLA_ATTENTION(mla_attention_bf16_bf16, RowsBf16, bf16)
MLA_ATTENTION(mla_attention_f16_bf16, RowsF16, bf16)
MLA_ATTENTION(mla_attention_f32_bf16, RowsF32, bf16)
MLA_ATTENTION(mla_attention_q8_0_bf16, RowsQ8_0, bf16)
MLA_ATTENTION(mla_attention_fp8_128_bf16, RowsFp8_128, bf16)
MLA_ATTENTION(mla_attention_bf16_f32, RowsBf16, float)
MLA_ATTENTION(mla_attention_f16_f32, RowsF16, float)
MLA_ATTENTION(mla_attention_f32_f32, RowsF32, float)
MLA_ATTENTION(mla_attention_q8_0_f32, RowsQ8_0, float)
MLA_ATTENTION(mla_attention_fp8_128_f32, RowsFp8_128, float)

template <class T>
__device__ __forceinline__ void latent_write(const bf16 *latent, const bf16 *rope, T *pool, const int *slots, int rows,
                                             int latent_dim, int rope_dim)
{
    const int row = (int)blockIdx.x;
    if (row >= rows)
        return;
    T *to = pool + (size_t)slots[row] * (size_t)(latent_dim + rope_dim);
    for (int c = (int)threadIdx.x; c < latent_dim + rope_dim; c += (int)blockDim.x)
        kv_put(to + c,
               __bfloat162float(c < latent_dim ? latent[(size_t)row * (size_t)latent_dim + (size_t)c]
                                               : rope[(size_t)row * (size_t)rope_dim + (size_t)(c - latent_dim)]));
}

extern "C" __global__ void __launch_bounds__(128)
    latent_write_bf16(const bf16 *__restrict__ latent, const bf16 *__restrict__ rope, bf16 *pool,
                      const int *__restrict__ slots, int rows, int latent_dim, int rope_dim)
{
    latent_write(latent, rope, pool, slots, rows, latent_dim, rope_dim);
}

extern "C" __global__ void __launch_bounds__(128)
    latent_write_f32(const bf16 *__restrict__ latent, const bf16 *__restrict__ rope, float *pool,
                     const int *__restrict__ slots, int rows, int latent_dim, int rope_dim)
{
    latent_write(latent, rope, pool, slots, rows, latent_dim, rope_dim);
}
