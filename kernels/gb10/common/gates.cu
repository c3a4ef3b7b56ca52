/* Element by element, beside silu_mul. y may be the first input.
 *   gelu_tanh_mul     y = g * sigmoid(2 z) * u, z = sqrt(2/pi) (g + 0.044715 g^3): g/2 (1 + tanh z) is g sigmoid(2 z)
 *   swiglu_clamp      y = g * sigmoid(alpha g) * (u + 1) of g = min(g, limit), u within +-limit
 *   relu2             y = max(x, 0)^2
 *   sigmoid_gate_mul  y = a * sigmoid(g), each of `gates` elements of g for width / gates neighbours of a
 *   y, g, u, x, a  [rows][width]  bf16 row-major;  the gates of sigmoid_gate_mul [rows][gates]
 *   grid     (rows, ceil(width, 8 * THREADS))  block (THREADS): 8 elements a thread
 *   bytes    rows*width*6, relu2 4
 * The fast exponential errs by 2 ulp of f32 and a few at large arguments: far below the rounding to bf16. Where it overflows, the
 * quotient is 0, which is the limit. */
#include "load.cuh"
#include "overlap.cuh"

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + __expf(-x));
}

struct Gelu {
    __device__ float operator()(float g, float u) const
    {
        return g * sigmoid(1.5957691216f * fmaf(g * g * g, 0.044715f, g)) * u;
    }
};

struct Swiglu {
    float alpha, limit;
    __device__ float operator()(float g, float u) const
    {
        g = fminf(g, limit);
        u = fmaxf(fminf(u, limit), -limit);
        return g * sigmoid(alpha * g) * (u + 1.0f);
    }
};

/* y = f(a, b) for the elements of this thread. */
template <class F>
__device__ __forceinline__ void each_pair(bf16 *y, const bf16 *a, const bf16 *b, int rows, int width, F f)
{
    const int c = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * VEC;
    if ((int)blockIdx.x >= rows || c >= width)
        return;
    const size_t at = (size_t)blockIdx.x * (size_t)width + (size_t)c;
    const bool whole = width % VEC == 0;
    float p[VEC], q[VEC];

    load_row(p, a + at, width - c, whole);
    load_row(q, b + at, width - c, whole);
#pragma unroll
    for (int i = 0; i < VEC; i++)
        p[i] = f(p[i], q[i]);
    store_row(y + at, p, width - c, whole);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gelu_tanh_mul_tile(bf16 *y, const bf16 *g, const bf16 *u, int rows, int width)
{
    await_predecessors();
    each_pair(y, g, u, rows, width, Gelu{});
}

extern "C" __global__ void __launch_bounds__(THREADS)
    swiglu_clamp_tile(bf16 *y, const bf16 *g, const bf16 *u, int rows, int width, float alpha, float limit)
{
    await_predecessors();
    each_pair(y, g, u, rows, width, Swiglu{alpha, limit});
}

extern "C" __global__ void __launch_bounds__(THREADS) relu2_tile(bf16 *y, const bf16 *x, int rows, int width)
{
    await_predecessors();
    const int c = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * VEC;
    if ((int)blockIdx.x >= rows || c >= width)
        return;
    const size_t at = (size_t)blockIdx.x * (size_t)width + (size_t)c;
    const bool whole = width % VEC == 0;
    float p[VEC];

    load_row(p, x + at, width - c, whole);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        p[i] = fmaxf(p[i], 0.0f);
        p[i] *= p[i];
    }
    store_row(y + at, p, width - c, whole);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sigmoid_gate_mul_tile(bf16 *y, const bf16 *a, const bf16 *g, int rows, int width, int gates)
{
    await_predecessors();
    const int c = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * VEC, run = width / gates;
    if ((int)blockIdx.x >= rows || c >= width)
        return;
    const size_t at = (size_t)blockIdx.x * (size_t)width + (size_t)c;
    const bf16 *gate = g + (size_t)blockIdx.x * (size_t)gates;
    const bool whole = width % VEC == 0;
    float p[VEC], q[VEC];

    load_row(p, a + at, width - c, whole);
    if (run == 1) {
        load_row(q, gate + c, width - c, whole);
    } else if (run % VEC == 0) { /* one gate for the eight: c is a multiple of 8 */
        const float one = __bfloat162float(gate[c / run]);
#pragma unroll
        for (int i = 0; i < VEC; i++)
            q[i] = one;
    } else {
#pragma unroll
        for (int i = 0; i < VEC; i++)
            q[i] = c + i < width ? __bfloat162float(gate[(c + i) / run]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < VEC; i++)
        p[i] *= sigmoid(q[i]);
    store_row(y + at, p, width - c, whole);
}
