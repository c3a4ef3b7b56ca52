/* linear_w4 - the matrix products of linear_frag.cuh with w4 weights. */
#include "frag_spans.cuh"
#include "linear_frag.cuh"

LINEAR_ENTRIES(w4_128, FragW4_128)
LINEAR_ENTRIES(w4_64, FragW4_64)
LINEAR_ENTRIES(w4_32, FragW4_32)
