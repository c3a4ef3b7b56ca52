/* gemm_bf16 - the many-row products of linear_gemm.cuh with bf16 weights: rows of a decode batch, then of a prompt. */
#include "linear_gemm.cuh"

GEMM_ENTRIES(bf16, FragBf16, 1, 32)
GEMM_ENTRIES(bf16, FragBf16, 1, 64)
GEMM_ENTRIES(bf16, FragBf16, 2, 256)
