/* linear_q5 - the matrix products of linear_frag.cuh with q5_0, q5_1 and q5_k weights. */
#include "frag_gguf.cuh"
#include "linear_frag.cuh"

LINEAR_ENTRIES(q5_0, FragQ5_0)
LINEAR_ENTRIES(q5_1, FragQ5_1)
LINEAR_ENTRIES(q5_k, FragQ5_K)
