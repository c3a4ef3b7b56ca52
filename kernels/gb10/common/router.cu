/* The ends of a mixture of experts.
 *   top_k  ids, weights [rows][k] of a row's best experts, best first, of equal ones the lower id
 *     ids i32; weights f32; logits [rows][experts] bf16; bias [experts] f32 or NULL, moves the choice only
 *     scores 0: softmax, 1: sigmoid. n_group > 1: only experts of the topk_group groups whose two best add up to most
 *     renormalize: weights divided by their sum + eps; then all times scale
 *     grid (rows)  block (32)  smem 4 * (2 * experts + n_group + k): scores, what the choice goes by, groups, chosen scores
 *   blend  y[r] = sum over j of w[r][j] * x[r][j], j in turn, one fma each
 *     x [rows][k][width], y [rows][width] bf16, w [rows][k] f32
 *     grid (rows, ceil(width, 1024))  block (128): 8 elements a thread
 * Softmax without bias and groups is chosen by the logits themselves. */
#include "load.cuh"
#include "overlap.cuh"
#include "warp.cuh"

enum { BLEND = 128 };

/* Floats as unsigned integers in the same order; 0 is below all of them. */
__device__ __forceinline__ unsigned rising(float x)
{
    const unsigned u = __float_as_uint(x);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* The best of a group and the best after it, added up. */
__device__ __forceinline__ float two_best(const float *v, int n)
{
    float a = -INFINITY, b = -INFINITY;
    for (int i = 0; i < n; i++) {
        b = fmaxf(b, fminf(a, v[i]));
        a = fmaxf(a, v[i]);
    }
    return n > 1 ? a + b : a;
}

/* Takes away the experts of all groups but the best `kept`; of equal ones the later falls. */
__device__ __forceinline__ void keep_groups(float *choice, float *sums, int experts, int groups, int kept)
{
    const int size = experts / groups;

    for (int g = (int)threadIdx.x; g < groups; g += WARP)
        sums[g] = two_best(choice + g * size, size);
    __syncwarp();
    for (int e = (int)threadIdx.x; e < groups * size; e += WARP) {
        const int g = e / size;
        int better = 0;
        for (int o = 0; o < groups; o++)
            better += sums[o] > sums[g] || (sums[o] == sums[g] && o < g);
        if (better >= kept)
            choice[e] = -INFINITY;
    }
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(WARP)
    top_k(int *ids, float *weights, const bf16 *logits, const float *__restrict__ bias, int rows, int experts, int k,
          int sigmoid, int renormalize, float scale, float sum_eps, int n_group, int topk_group)
{
    await_predecessors();
    extern __shared__ float smem[];
    float *score = smem, *choice = score + experts, *sums = choice + experts, *chosen = sums + n_group;
    const int lane = (int)threadIdx.x, row = (int)blockIdx.x;
    float top = -INFINITY, sum = 0.0f, total = sum_eps;

    if (row >= rows)
        return;
    logits += (size_t)row * (size_t)experts;
    for (int e = lane; e < experts; e += WARP) {
        choice[e] = __bfloat162float(logits[e]);
        top = fmaxf(top, choice[e]);
    }
    top = warp_max(top);
    for (int e = lane; e < experts; e += WARP) {
        score[e] = sigmoid ? 1.0f / (1.0f + expf(-choice[e])) : expf(choice[e] - top);
        sum += score[e];
    }
    sum = sigmoid ? 1.0f : warp_sum(sum);
    for (int e = lane; e < experts; e += WARP) {
        score[e] /= sum;
        if (bias)
            choice[e] = score[e] + bias[e];
        else if (sigmoid || n_group > 1)
            choice[e] = score[e];
    }
    __syncwarp();
    if (n_group > 1)
        keep_groups(choice, sums, experts, n_group, topk_group);

    /* Each lane knows the best of its own; the lane whose best is taken looks again. */
    unsigned best = 0;
    int id = experts;
    bool look = true;
    for (int j = 0; j < k; j++) {
        if (look) {
            best = 0;
            id = experts;
            for (int e = lane; e < experts; e += WARP)
                if (rising(choice[e]) > best) {
                    best = rising(choice[e]);
                    id = e;
                }
        }
        const unsigned most = __reduce_max_sync(0xffffffffu, best);
        const int taken = __reduce_min_sync(0xffffffffu, best == most ? id : experts);
        look = taken == id;
        if (look) {
            choice[taken] = -INFINITY;
            ids[(size_t)row * (size_t)k + (size_t)j] = taken;
            chosen[j] = score[taken];
        }
        __syncwarp();
        total += chosen[j];
    }
    for (int j = lane; j < k; j += WARP)
        weights[(size_t)row * (size_t)k + (size_t)j] = (renormalize ? chosen[j] / total : chosen[j]) * scale;
}

extern "C" __global__ void __launch_bounds__(BLEND)
    blend(bf16 *y, const bf16 *x, const float *w, int rows, int width, int k)
{
    await_predecessors();
    const int c = ((int)blockIdx.y * BLEND + (int)threadIdx.x) * VEC, row = (int)blockIdx.x;
    if (row >= rows || c >= width)
        return;
    const bool whole = width % VEC == 0;
    float sum[VEC] = {0.0f}, v[VEC];

    x += (size_t)row * (size_t)k * (size_t)width + (size_t)c;
    w += (size_t)row * (size_t)k;
    for (int j = 0; j < k; j++, x += width) {
        load_row(v, x, width - c, whole);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            sum[i] = fmaf(w[j], v[i], sum[i]);
    }
    store_row(y + (size_t)row * (size_t)width + c, sum, width - c, whole);
}
