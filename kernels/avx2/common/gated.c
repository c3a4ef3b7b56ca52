/* Gates beside silu_mul, and what takes a gate out of a row. One block a row, all f32.
 *   gelu_tanh_mul     y = g * sigmoid(2 z) * u, z = sqrt(2/pi) (g + 0.044715 g^3): g/2 (1 + tanh z) is g sigmoid(2z);  y may be g
 *   swiglu_clamp      y = g * sigmoid(alpha g) * (u + 1) of g = min(g, limit), u within +-limit;  y may be g
 *   sigmoid_gate_mul  y = a * sigmoid(g), each of `gates` elements of g for width / gates neighbours of a;  y may be a
 *   split             groups equal parts of x: the first `first` elements of each to ya, the rest to yb */
#include "kernel_abi.h"
#include "simd.h"
#include <stddef.h>

static inline v16 sigmoid(v16 x)
{
    v16 one = v_set1(1.0f);
    return v_div(one, v_add(one, v_exp(v_sub(v_zero(), x))));
}

static inline v16 gelu_tanh(v16 g)
{
    v16 cube = v_mul(v_mul(g, g), g);
    v16 z2 = v_mul(v_set1(1.5957691216f), v_fma(cube, v_set1(0.044715f), g));
    return v_mul(g, sigmoid(z2));
}

KERNEL(gelu_tanh_mul)
{
    int width = I32(4);
    size_t row = (size_t)b->x * (size_t)width;
    float *y = PTR(0, float) + row;
    const float *g = PTR(1, float) + row, *u = PTR(2, float) + row;
    int c = 0;
    for (; c + 16 <= width; c += 16)
        v_store(y + c, v_mul(gelu_tanh(v_load(g + c)), v_load(u + c)));
    if (c < width)
        v_store_n(y + c, v_mul(gelu_tanh(v_load_n(g + c, width - c)), v_load_n(u + c, width - c)), width - c);
}

static inline v16 swiglu(v16 g, v16 u, float alpha, float limit)
{
    v16 top = v_set1(limit);
    g = v_min(g, top);
    u = v_max(v_min(u, top), v_set1(-limit));
    return v_mul(v_mul(g, sigmoid(v_mul(g, v_set1(alpha)))), v_add(u, v_set1(1.0f)));
}

KERNEL(swiglu_clamp)
{
    int width = I32(4);
    size_t row = (size_t)b->x * (size_t)width;
    float *y = PTR(0, float) + row;
    const float *g = PTR(1, float) + row, *u = PTR(2, float) + row;
    int c = 0;
    for (; c + 16 <= width; c += 16)
        v_store(y + c, swiglu(v_load(g + c), v_load(u + c), F32(5), F32(6)));
    if (c < width)
        v_store_n(y + c, swiglu(v_load_n(g + c, width - c), v_load_n(u + c, width - c), F32(5), F32(6)), width - c);
}

/* y = a * gate over n neighbours; gates: one for each, or NULL: `one` for all */
static inline void gate_run(float *y, const float *a, const float *gates, v16 one, int n)
{
    for (int c = 0; c < n; c += 16) {
        int m = n - c < 16 ? n - c : 16;
        v16 g = gates ? sigmoid(v_load_n(gates + c, m)) : one;
        v_store_n(y + c, v_mul(v_load_n(a + c, m), g), m);
    }
}

KERNEL(sigmoid_gate_mul)
{
    int width = I32(4), gates = I32(5), run = width / gates;
    float *y = PTR(0, float) + (size_t)b->x * (size_t)width;
    const float *a0 = PTR(1, float) + (size_t)b->x * (size_t)width, *g = PTR(2, float) + (size_t)b->x * (size_t)gates;

    if (run == 1)
        gate_run(y, a0, g, v_zero(), width);
    else
        for (int i = 0; i < gates; i++)
            gate_run(y + i * run, a0 + i * run, NULL, sigmoid(v_set1(g[i])), run);
}

KERNEL(split)
{
    int width = I32(4), groups = I32(5), first = I32(6), part = width / groups, rest = part - first;
    const float *x = PTR(2, float) + (size_t)b->x * (size_t)width;
    float *ya = PTR(0, float) + (size_t)b->x * (size_t)groups * (size_t)first;
    float *yb = PTR(1, float) + (size_t)b->x * (size_t)groups * (size_t)rest;

    for (int i = 0; i < groups; i++, x += part, ya += first, yb += rest) {
        memcpy(ya, x, sizeof(float) * (size_t)first);
        memcpy(yb, x + first, sizeof(float) * (size_t)rest);
    }
}
