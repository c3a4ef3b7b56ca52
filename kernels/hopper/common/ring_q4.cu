/* ring_q4 - the few-row products of linear_ring.cuh with q4_0 and q4_1 weights. */
#include "frag_gguf.cuh"
#include "linear_ring.cuh"

RING_ENTRIES(q4_0, FragQ4_0)
RING_ENTRIES(q4_1, FragQ4_1)
