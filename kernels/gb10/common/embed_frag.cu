/* embed_frag: y[r] = scale * (row tokens[r] of the table), of formats whose groups frag.cuh takes apart, from the layout that a
 * head tied to the table reads.
 *   y       [rows][hidden] bf16    tokens [rows] i32 (token.cuh)    w  frag, tiles of 16 rows (src/weights/layout.h)
 *   grid    (rows, any)   block (THREADS): four threads a group, which stand for the lanes that have the row
 *   bytes   rows * hidden * 2, and of w the row's sectors, which hold row + 8 or row - 8 too
 * Whole warps stay in the loop: lanes may ask each other what a code stands for. */
#include "frag_gguf.cuh"
#include "token.cuh"

template <typename F>
__device__ __forceinline__ void embed(bf16 *y, int *tokens, const uint8_t *w, int rows, int hidden, float scale,
                                      const int4 *picks)
{
    if ((int)blockIdx.x >= rows)
        return;
    const int token = token_of(tokens, picks, (int)blockIdx.x), row = token % 16, lane = (int)threadIdx.x % 32;
    const int units = 4 * frag_groups<F>(hidden);
    const uint8_t *tile = w + (size_t)(token / 16) * frag_tile_bytes<F>(hidden);

    y += (size_t)blockIdx.x * (size_t)hidden;
    for (int u0 = (int)blockIdx.y * THREADS + (int)threadIdx.x - lane; u0 < units; u0 += (int)gridDim.y * THREADS) {
        const int u = u0 + lane < units ? u0 + lane : units - 1, k0 = u / 4 * F::GROUP, t = u % 4;
        F a;
        frag_load(a, tile + F::HEAD, u / 4, 4 * (row % 8) + t);
#pragma unroll
        for (int q = 0; q < F::QUADS; q++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 v0 = a.value(q, 0, i), v8 = a.value(q, 1, i), v = row < 8 ? v0 : v8;
                const int k = k0 + 32 * q + frag_k(2 * i, t);
                if (k < hidden)
                    y[k] = __float2bfloat16_rn(v.x * scale);
                if (k + 1 < hidden)
                    y[k + 1] = __float2bfloat16_rn(v.y * scale);
            }
    }
}

#define EMBED(X, F)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS) embed_##X(                                                   \
        bf16 *y, int *tokens, const uint8_t *__restrict__ w, int rows, int hidden, float scale, const int4 *picks)     \
    {                                                                                                                  \
        embed<F>(y, tokens, w, rows, hidden, scale, picks);                                                            \
    }

EMBED(f32, FragF32)
EMBED(mxfp4, FragMxfp4)
EMBED(q8_0, FragQ8_0)
EMBED(q4_0, FragQ4_0)
EMBED(q4_1, FragQ4_1)
EMBED(q5_0, FragQ5_0)
EMBED(q5_1, FragQ5_1)
EMBED(iq4_nl, FragIq4Nl)
EMBED(q2_k, FragQ2_K)
EMBED(q3_k, FragQ3_K)
EMBED(q4_k, FragQ4_K)
EMBED(q5_k, FragQ5_K)
EMBED(q6_k, FragQ6_K)
EMBED(iq4_xs, FragIq4Xs)
