/* linear_q8 - the matrix products of linear_frag.cuh with q8_0 and q6_k weights. */
#include "frag_gguf.cuh"
#include "linear_frag.cuh"

LINEAR_ENTRIES(q8_0, FragQ8_0)
LINEAR_ENTRIES(q6_k, FragQ6_K)
