/* Norms of each `group` elements of a row; width is a multiple of group. y may be x.
 *   qk_norm         y = x / sqrt(mean(x^2) + eps) * (w[c mod group] + offset)
 *   l2_norm         y = x / sqrt(sum(x^2) + eps)
 *   gated_rms_norm  y = x / sqrt(mean(x^2) + eps) * w * silu(z), or with gate 1 of t = x silu(z): y = t / rms(t) * w
 *   y, x, z  [rows][width]  bf16 row-major
 *   w        [group] f32; of gated_rms_norm [weights]: of a group, or of the whole row
 *   grid     (rows, ceil(width / group, 4))  block (128): a warp a group
 *   bytes    rows*width*4, with z 6: x is read twice, the second time from L1 or L2
 * A lane rewrites only elements that it alone reads again, so in place is safe. */
#include "load.cuh"
#include "overlap.cuh"
#include "warp.cuh"

enum { WARPS = 4, SPAN = WARP * VEC }; /* SPAN: elements of one load of a warp */

/* Where this warp's group begins, as an offset into the tensor; false when there is none. */
__device__ __forceinline__ bool my_group(int rows, int width, int group, int &from, size_t &at)
{
    from = ((int)blockIdx.y * WARPS + (int)threadIdx.x / WARP) * group;
    at = (size_t)blockIdx.x * (size_t)width + (size_t)from;
    return (int)blockIdx.x < rows && from < width;
}

__device__ __forceinline__ float silu(float z)
{
    return z / (1.0f + __expf(-z));
}

/* Sum of squares of the group. */
__device__ __forceinline__ float squares(const bf16 *x, int group, bool whole)
{
    float v[VEC], sum = 0.0f;

    for (int c = (int)threadIdx.x % WARP * VEC; c < group; c += SPAN) {
        load_row(v, x + c, group - c, whole);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            sum = fmaf(v[i], v[i], sum);
    }
    return warp_sum(sum);
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP)
    qk_norm_warp(bf16 *y, const bf16 *x, const float *__restrict__ w, int rows, int width, int group, float eps,
                 float offset)
{
    await_predecessors();
    int from;
    size_t at;
    if (!my_group(rows, width, group, from, at))
        return;
    const bool whole = width % VEC == 0 && group % VEC == 0;
    const float scale = rsqrtf(squares(x + at, group, whole) / (float)group + eps);
    float v[VEC];

    for (int c = (int)threadIdx.x % WARP * VEC; c < group; c += SPAN) {
        load_row(v, x + at + c, group - c, whole);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            v[i] *= scale * (c + i < group ? w[c + i] + offset : 0.0f);
        store_row(y + at + c, v, group - c, whole);
    }
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP)
    l2_norm_warp(bf16 *y, const bf16 *x, int rows, int width, int group, float eps)
{
    await_predecessors();
    int from;
    size_t at;
    if (!my_group(rows, width, group, from, at))
        return;
    const bool whole = width % VEC == 0 && group % VEC == 0;
    const float scale = rsqrtf(squares(x + at, group, whole) + eps);
    float v[VEC];

    for (int c = (int)threadIdx.x % WARP * VEC; c < group; c += SPAN) {
        load_row(v, x + at + c, group - c, whole);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            v[i] *= scale;
        store_row(y + at + c, v, group - c, whole);
    }
}

/* 8 blocks a multiprocessor: left alone, ptxas spills for sm_100a to have more. */
extern "C" __global__ void __launch_bounds__(WARPS *WARP, 8)
    gated_rms_norm_warp(bf16 *y, const bf16 *x, const bf16 *z, const float *__restrict__ w, int rows, int width,
                        int group, int weights, float eps, int before)
{
    await_predecessors();
    int from;
    size_t at;
    if (!my_group(rows, width, group, from, at))
        return;
    const bool whole = width % VEC == 0 && group % VEC == 0;
    float v[VEC], g[VEC], sum = 0.0f;

    if (weights == width)
        w += from;
    for (int c = (int)threadIdx.x % WARP * VEC; before && c < group; c += SPAN) {
        load_row(v, x + at + c, group - c, whole);
        load_row(g, z + at + c, group - c, whole);
#pragma unroll
        for (int i = 0; i < VEC; i++) {
            v[i] *= silu(g[i]);
            sum = fmaf(v[i], v[i], sum);
        }
    }
    sum = before ? warp_sum(sum) : squares(x + at, group, whole);
    const float scale = rsqrtf(sum / (float)group + eps);

    for (int c = (int)threadIdx.x % WARP * VEC; c < group; c += SPAN) {
        load_row(v, x + at + c, group - c, whole);
        load_row(g, z + at + c, group - c, whole);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            v[i] *= silu(g[i]) * scale * (c + i < group ? w[c + i] : 0.0f);
        store_row(y + at + c, v, group - c, whole);
    }
}
