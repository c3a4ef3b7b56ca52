/* linear_q4 - the matrix products of linear_frag.cuh with q4_0, q4_1 and q4_k weights. */
#include "frag_gguf.cuh"
#include "linear_frag.cuh"

LINEAR_ENTRIES(q4_0, FragQ4_0)
LINEAR_ENTRIES(q4_1, FragQ4_1)
LINEAR_ENTRIES(q4_k, FragQ4_K)
