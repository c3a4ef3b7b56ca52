/* warp.cuh - sums and maxima across the threads of a block, in one order whatever the schedule. */
#ifndef METRALE_WARP_CUH
#define METRALE_WARP_CUH

enum { WARP = 32 };

/* The sum over the warp's lanes, in every lane: lane distance 16, 8, 4, 2, 1. */
__device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

/* The largest over the warp's lanes, in every lane. */
__device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* The sum over a block of BLOCK threads, in every thread: within warps, then over the warps' sums. All threads call it, once
 * in a kernel: the shared array is not guarded for a second use. */
template <int BLOCK> __device__ __forceinline__ float block_sum(float v)
{
    static_assert(BLOCK % WARP == 0 && BLOCK / WARP <= WARP, "whole warps, at most as many as a warp has lanes");
    constexpr int n_warps = BLOCK / WARP;
    __shared__ float sums[n_warps];
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    v = warp_sum(v);
    if (lane == 0)
        sums[warp] = v;
    __syncthreads();
    return warp_sum(lane < n_warps ? sums[lane] : 0.0f);
}
#endif
