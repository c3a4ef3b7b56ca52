/* ring_fp8_128 - the few-row products of linear_ring.cuh with fp8/128 weights. */
#include "linear_ring.cuh"

RING_ENTRIES(fp8_128, FragFp8)
