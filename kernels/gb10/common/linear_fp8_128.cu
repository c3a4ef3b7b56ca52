/* linear_fp8_128 - the matrix products of linear_frag.cuh with fp8/128 weights. */
#include "linear_frag.cuh"

LINEAR_ENTRIES(fp8_128, FragFp8)
