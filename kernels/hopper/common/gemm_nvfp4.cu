/* gemm_nvfp4 - the many-row products of linear_gemm.cuh with nvfp4 weights. */
#include "linear_gemm.cuh"

GEMM_ENTRIES(nvfp4, FragNvfp4, 1, 32)
GEMM_ENTRIES(nvfp4, FragNvfp4, 1, 64)
GEMM_ENTRIES(nvfp4, FragNvfp4, 2, 256)
