/* ring_w8 - the few-row products of linear_ring.cuh with w8 weights. */
#include "frag_spans.cuh"
#include "linear_ring.cuh"

RING_ENTRIES(w8_128, FragW8)
