/* ring_k - the few-row products of linear_ring.cuh with q4_k and q5_k weights. */
#include "frag_gguf.cuh"
#include "linear_ring.cuh"

RING_ENTRIES(q4_k, FragQ4_K)
RING_ENTRIES(q5_k, FragQ5_K)
