/* ring_q2 - the few-row products of linear_ring.cuh with q2_k and q3_k weights. */
#include "frag_gguf.cuh"
#include "linear_ring.cuh"

RING_ENTRIES(q2_k, FragQ2_K)
RING_ENTRIES(q3_k, FragQ3_K)
