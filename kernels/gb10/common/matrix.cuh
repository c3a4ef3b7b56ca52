/* matrix.cuh - what the matrix products of all schedules have in common: a matrix and where it goes, and the ends of fused
 * products, which round to bf16 where the ops that they fuse would. */
#ifndef METRALE_MATRIX_CUH
#define METRALE_MATRIX_CUH
#include "frag.cuh"

/* One of up to three matrices that read the same x. */
struct Matrix {
    bf16 *y;           /* [rows][n] */
    const uint8_t *w;  /* tiles of 16 n's */
    const float *bias; /* [n] or NULL */
    int n;
    __device__ __forceinline__ int tiles() const { return (n + 15) / 16; }
};

__device__ __forceinline__ float to_bf16(float v)
{
    return __bfloat162float(__float2bfloat16_rn(v));
}

__device__ __forceinline__ float silu(float g)
{
    return g / (1.0f + __expf(-g));
}
#endif
