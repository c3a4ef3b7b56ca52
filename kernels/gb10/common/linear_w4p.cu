/* linear_w4p - the matrix products of linear_frag.cuh with w4p weights. */
#include "frag_spans.cuh"
#include "linear_frag.cuh"

LINEAR_ENTRIES(w4p_128, FragW4p_128)
LINEAR_ENTRIES(w4p_64, FragW4p_64)
LINEAR_ENTRIES(w4p_32, FragW4p_32)
