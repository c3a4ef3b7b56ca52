/* linear_q2 - the matrix products of linear_frag.cuh with q2_k and q3_k weights. */
#include "frag_gguf.cuh"
#include "linear_frag.cuh"

LINEAR_ENTRIES(q2_k, FragQ2_K)
LINEAR_ENTRIES(q3_k, FragQ3_K)
