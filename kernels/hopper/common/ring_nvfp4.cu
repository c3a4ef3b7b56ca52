/* ring_nvfp4 - the few-row products of linear_ring.cuh with nvfp4 weights. */
#include "linear_ring.cuh"

RING_ENTRIES(nvfp4, FragNvfp4)
