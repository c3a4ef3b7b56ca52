/* load.cuh - bf16 in memory, f32 in registers: eight elements as one 16-byte access, or what is left of a row.
 *
 * A row that starts at a multiple of 8 elements is 16-byte aligned when its tensor is (buffers are 256-byte aligned), so
 * whole vectors are legal for every row exactly when width is a multiple of 8. The callers hand that in as `whole`,
 * which is the same for the whole grid, so that the branch costs nothing. */
#ifndef METRALE_LOAD_CUH
#define METRALE_LOAD_CUH
#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

enum { VEC = 8 }; /* elements of a vector */

union Vec16 {
    uint4 bits;
    __nv_bfloat162 pair[VEC / 2];
};

/* x[0..8) = p[0..8); elements from n on are 0. */
__device__ __forceinline__ void load_row(float (&x)[VEC], const bf16 *p, int n, bool whole)
{
    if (whole) {
        Vec16 v;
        v.bits = *reinterpret_cast<const uint4 *>(p);
#pragma unroll
        for (int i = 0; i < VEC / 2; i++) {
            float2 f = __bfloat1622float2(v.pair[i]);
            x[2 * i] = f.x;
            x[2 * i + 1] = f.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < VEC; i++)
            x[i] = i < n ? __bfloat162float(p[i]) : 0.0f;
    }
}

/* p[0..min(8, n)) = x, rounded to nearest even. */
__device__ __forceinline__ void store_row(bf16 *p, const float (&x)[VEC], int n, bool whole)
{
    if (whole) {
        Vec16 v;
#pragma unroll
        for (int i = 0; i < VEC / 2; i++)
            v.pair[i] = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
        *reinterpret_cast<uint4 *>(p) = v.bits;
    } else {
#pragma unroll
        for (int i = 0; i < VEC; i++)
            if (i < n)
                p[i] = __float2bfloat16_rn(x[i]);
    }
}
#endif
