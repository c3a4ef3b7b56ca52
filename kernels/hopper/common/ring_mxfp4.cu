/* ring_mxfp4 - the few-row products of linear_ring.cuh with mxfp4 weights. */
#include "linear_ring.cuh"

RING_ENTRIES(mxfp4, FragMxfp4)
