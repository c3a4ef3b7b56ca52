/* ring_q5 - the few-row products of linear_ring.cuh with q5_0 and q5_1 weights. */
#include "frag_gguf.cuh"
#include "linear_ring.cuh"

RING_ENTRIES(q5_0, FragQ5_0)
RING_ENTRIES(q5_1, FragQ5_1)
