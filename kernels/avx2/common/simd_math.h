/* simd_math.h - functions over sixteen lanes, built from simd.h's operations only, so that every class gives the same bits. */
#ifndef METRALE_SIMD_MATH_H
#define METRALE_SIMD_MATH_H

/* e^x for x <= 88, to about 1 ulp; below -87.3 the result is 0 or next to it. x = n ln2 + r, |r| <= ln2/2, e^r by a polynomial of degree 6
 * (minimax on that interval, as in Cephes expf), times 2^n by adding n to the exponent. */
static inline v16 v_exp(v16 x)
{
    x = v_max(x, v_set1(-87.0f));
    x = v_min(x, v_set1(88.0f));
    n16 n = v_round_i32(v_mul(x, v_set1(1.44269504f)));
    v16 fn = n_to_f32(n);
    v16 r = v_fma(fn, v_set1(-0.693359375f), x);
    r = v_fma(fn, v_set1(2.12194440e-4f), r);
    v16 p = v_set1(1.9875691500e-4f);
    p = v_fma(p, r, v_set1(1.3981999507e-3f));
    p = v_fma(p, r, v_set1(8.3334519073e-3f));
    p = v_fma(p, r, v_set1(4.1665795894e-2f));
    p = v_fma(p, r, v_set1(1.6666665459e-1f));
    p = v_fma(p, r, v_set1(5.0000001201e-1f));
    p = v_fma(v_mul(r, r), p, v_add(r, v_set1(1.0f)));
    return v_scale2(p, n);
}

/* The first n < 16 lanes from memory, zeros behind; and back. */
static inline v16 v_load_n(const float *p, int n)
{
    float t[16] = {0};
    memcpy(t, p, sizeof(float) * (size_t)n);
    return v_load(t);
}
static inline void v_store_n(float *p, v16 a, int n)
{
    float t[16];
    v_store(t, a);
    memcpy(p, t, sizeof(float) * (size_t)n);
}

static inline float s_exp(float x)
{
    float t[16];
    v_store(t, v_exp(v_set1(x)));
    return t[0];
}

/* x * sigmoid(x) */
static inline v16 v_silu(v16 x)
{
    v16 e = v_exp(v_sub(v_zero(), x));
    return v_div(x, v_add(v_set1(1.0f), e));
}
#endif
