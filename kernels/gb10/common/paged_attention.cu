/* paged_attention: y[r][h] = softmax(scale * q[r][h] . K^T) V over the tokens of the row's sequence that it may see: positions
 * max(0, pos - window + 1) .. pos (window 0: all up to pos).
 *   y, q       [rows][n_heads * head_dim]  bf16 row-major; head_dim a multiple of 8, at most 256
 *   kpool, vpool  kv.cuh
 *   positions, row_seq [rows]; table [seqs][max_blocks] physical blocks
 *   sinks      [n_heads] f32 or NULL: an extra score that takes weight and gives nothing
 *   softcap    above 0: scores are softcap * tanh(score / softcap)
 *   grid       (rows, ceil(n_heads, 4))  block (128): a warp a head
 *   bytes      the sequence's K and V once for each of its query heads, from L2 where heads share them
 * Spans of 32 tokens in position order, online softmax (Milakov, Gimelshein 2018): a lane has the score of one token, then two
 * elements of the output. Physical placement and other rows change nothing. */
#include "kv.cuh"
#include "warp.cuh"

enum { WARPS = 4, HEAD_MAX = 256, PAIRS = HEAD_MAX / (2 * WARP) };

__device__ __forceinline__ void load_kv(float (&x)[VEC], const bf16 *p)
{
    load_row(x, p, VEC, true);
}

__device__ __forceinline__ void load_kv(float (&x)[VEC], const float *p)
{
    const float4 a = reinterpret_cast<const float4 *>(p)[0], b = reinterpret_cast<const float4 *>(p)[1];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

__device__ __forceinline__ float2 load_two(const bf16 *p)
{
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(p));
}

__device__ __forceinline__ float2 load_two(const float *p)
{
    return *reinterpret_cast<const float2 *>(p);
}

template <class T>
__device__ __forceinline__ void attend(bf16 *y, const bf16 *q, const T *kpool, const T *vpool, const int *positions,
                                       const int *row_seq, const int *table, const float *sinks, int rows,
                                       int max_blocks, int n_heads, int n_kv, int head_dim, float scale, int window,
                                       float softcap)
{
    __shared__ float queries[WARPS][HEAD_MAX];
    const int row = (int)blockIdx.x, warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    const int head = (int)blockIdx.y * WARPS + warp;
    if (row >= rows || head >= n_heads)
        return;
    const int pos = positions[row], first = window > 0 && pos >= window ? pos - window + 1 : 0;
    const int kvh = head / (n_heads / n_kv);
    const int *blocks = table + (size_t)row_seq[row] * (size_t)max_blocks;
    const size_t at = ((size_t)row * (size_t)n_heads + (size_t)head) * (size_t)head_dim;
    float top = sinks ? sinks[head] : -INFINITY, sum = sinks ? 1.0f : 0.0f;
    float2 out[PAIRS];

    for (int d = lane; d < head_dim; d += WARP)
        queries[warp][d] = __bfloat162float(q[at + d]) * scale;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < PAIRS; j++)
        out[j] = {0.0f, 0.0f};
    for (int from = first / WARP * WARP; from <= pos; from += WARP) {
        const int token = from + lane;
        const bool seen = token >= first && token <= pos;
        const int slot = seen ? blocks[token / KV_TOKENS] * KV_TOKENS + token % KV_TOKENS : 0;
        float score = -INFINITY;

        if (seen) {
            const T *k = kpool + kv_at(slot, kvh, n_kv, head_dim);
            score = 0.0f;
            for (int d = 0; d < head_dim; d += VEC) {
                float x[VEC];
                load_kv(x, k + d);
#pragma unroll
                for (int i = 0; i < VEC; i++)
                    score = fmaf(x[i], queries[warp][d + i], score);
            }
            if (softcap > 0.0f)
                score = softcap * tanhf(score / softcap);
        }
        const float best = fmaxf(top, warp_max(score)),
                    keep = __expf(top - best); /* e^-inf is 0; best is a number here */
        const float p = __expf(score - best);
        top = best;
        sum = fmaf(sum, keep, warp_sum(p));
#pragma unroll
        for (int j = 0; j < PAIRS; j++) {
            out[j].x *= keep;
            out[j].y *= keep;
        }
        for (int t = max(first - from, 0); t <= min(pos - from, WARP - 1); t++) {
            const float weight = __shfl_sync(0xffffffffu, p, t);
            const T *v = vpool + kv_at(__shfl_sync(0xffffffffu, slot, t), kvh, n_kv, head_dim);
#pragma unroll
            for (int j = 0; j < PAIRS; j++) {
                const int d = 2 * (lane + j * WARP);
                if (d < head_dim) {
                    const float2 x = load_two(v + d);
                    out[j].x = fmaf(x.x, weight, out[j].x);
                    out[j].y = fmaf(x.y, weight, out[j].y);
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
        const int d = 2 * (lane + j * WARP);
        if (d < head_dim)
            *reinterpret_cast<__nv_bfloat162 *>(y + at + d) = __floats2bfloat162_rn(out[j].x / sum, out[j].y / sum);
    }
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP)
    paged_attention_bf16(bf16 *y, const bf16 *__restrict__ q, const bf16 *__restrict__ kpool,
                         const bf16 *__restrict__ vpool, const int *__restrict__ positions,
                         const int *__restrict__ row_seq, const int *__restrict__ table,
                         const float *__restrict__ sinks, int rows, int max_blocks, int n_heads, int n_kv, int head_dim,
                         float scale, int window, float softcap)
{
    attend(y, q, kpool, vpool, positions, row_seq, table, sinks, rows, max_blocks, n_heads, n_kv, head_dim, scale,
           window, softcap);
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP)
    paged_attention_f32(bf16 *y, const bf16 *__restrict__ q, const float *__restrict__ kpool,
                        const float *__restrict__ vpool, const int *__restrict__ positions,
                        const int *__restrict__ row_seq, const int *__restrict__ table, const float *__restrict__ sinks,
                        int rows, int max_blocks, int n_heads, int n_kv, int head_dim, float scale, int window,
                        float softcap)
{
    attend(y, q, kpool, vpool, positions, row_seq, table, sinks, rows, max_blocks, n_heads, n_kv, head_dim, scale,
           window, softcap);
}
