/* ring_nf4 - the few-row products of linear_ring.cuh with nf4 weights. */
#include "frag_spans.cuh"
#include "linear_ring.cuh"

RING_ENTRIES(nf4_64, Nf4<64>)
RING_ENTRIES(nf4_32, Nf4<32>)
