/* ring_f16 - the few-row products of linear_ring.cuh with f16 weights. */
#include "linear_ring.cuh"

RING_ENTRIES(f16, FragF16)
