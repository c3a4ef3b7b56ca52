/* ring_bf16 - the few-row products of linear_ring.cuh with bf16 weights. */
#include "linear_ring.cuh"

RING_ENTRIES(bf16, FragBf16)
