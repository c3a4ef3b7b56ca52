/* embed: y[r] = scale * (row tokens[r] of the table), from the layout that a head tied to the table reads (weights/layout.h).
 *   y       [rows][hidden]  bf16 row-major
 *   tokens  [rows] i32, picks: token.cuh
 *   w       bf16, f16: frag - tiles of 16 rows, units of 16 k's, 512 bytes each, an even number of them: lane 4g + t has 16 bytes, whose words are
 *           k 2t, 2t + 1 of rows g, g + 8, then k 8 + 2t, 9 + 2t of the same rows
 *   grid    (rows, ceil(hidden, 8 * THREADS))  block (THREADS): 8 elements a thread
 *   bytes   rows*hidden*(element + 2), twice the element in frag, whose sectors hold two rows */
#include "load.cuh"
#include "token.cuh"
#include <cuda_fp16.h>

template <class T> __device__ __forceinline__ float2 widen(unsigned word);
template <> __device__ __forceinline__ float2 widen<bf16>(unsigned word)
{
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}
template <> __device__ __forceinline__ float2 widen<__half>(unsigned word)
{
    return __half22float2(*reinterpret_cast<const __half2 *>(&word));
}

template <class T>
__device__ __forceinline__ void embed(bf16 *y, int *tokens, const unsigned *w, int rows, int hidden, float scale,
                                      const int4 *picks)
{
    const int c = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * VEC;
    if ((int)blockIdx.x >= rows || c >= hidden)
        return;
    const int token = token_of(tokens, picks, (int)blockIdx.x), row = token % 16, units = (hidden + 31) / 32 * 2;
    const unsigned *unit = w + ((size_t)(token / 16) * (size_t)units + (size_t)(c / 16)) * 128;
    float v[VEC];

    unit += row % 8 * 16 + row / 8 + c / VEC % 2 * 2; /* lane 4g, the word of this row and half */
#pragma unroll
    for (int t = 0; t < 4; t++) {
        float2 f = widen<T>(unit[4 * t]);
        v[2 * t] = f.x * scale;
        v[2 * t + 1] = f.y * scale;
    }
    store_row(y + (size_t)blockIdx.x * (size_t)hidden + c, v, hidden - c, hidden % VEC == 0);
}

extern "C" __global__ void __launch_bounds__(THREADS) embed_bf16(bf16 *y, int *tokens, const unsigned *__restrict__ w,
                                                                 int rows, int hidden, float scale, const int4 *picks)
{
    embed<bf16>(y, tokens, w, rows, hidden, scale, picks);
}

extern "C" __global__ void __launch_bounds__(THREADS) embed_f16(bf16 *y, int *tokens, const unsigned *__restrict__ w,
                                                                int rows, int hidden, float scale, const int4 *picks)
{
    embed<__half>(y, tokens, w, rows, hidden, scale, picks);
}
