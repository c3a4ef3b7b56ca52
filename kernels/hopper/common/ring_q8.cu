/* ring_q8 - the few-row products of linear_ring.cuh with q8_0 and q6_k weights. */
#include "frag_gguf.cuh"
#include "linear_ring.cuh"

RING_ENTRIES(q8_0, FragQ8_0)
RING_ENTRIES(q6_k, FragQ6_K)
