/* linear_bf16 - the matrix products of linear_frag.cuh with bf16 weights. */
#include "linear_frag.cuh"

LINEAR_ENTRIES(bf16, FragBf16)
