/* gemm_fp8_128 - the many-row products of linear_gemm.cuh with fp8/128 weights. */
#include "linear_gemm.cuh"

GEMM_ENTRIES(fp8_128, FragFp8, 1, 32)
GEMM_ENTRIES(fp8_128, FragFp8, 1, 64)
GEMM_ENTRIES(fp8_128, FragFp8, 2, 256)
