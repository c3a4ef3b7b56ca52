/* linear_f16 - the matrix products of linear_frag.cuh with f16 weights. */
#include "linear_frag.cuh"

LINEAR_ENTRIES(f16, FragF16)
