/* gemm_mxfp4 - the many-row products of linear_gemm.cuh with mxfp4 weights. */
#include "linear_gemm.cuh"

GEMM_ENTRIES(mxfp4, FragMxfp4, 1, 32)
GEMM_ENTRIES(mxfp4, FragMxfp4, 1, 64)
GEMM_ENTRIES(mxfp4, FragMxfp4, 2, 256)
