/* ring_w4 - the few-row products of linear_ring.cuh with w4 weights. */
#include "frag_spans.cuh"
#include "linear_ring.cuh"

RING_ENTRIES(w4_128, FragW4_128)
RING_ENTRIES(w4_64, FragW4_64)
RING_ENTRIES(w4_32, FragW4_32)
