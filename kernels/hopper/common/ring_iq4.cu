/* ring_iq4 - the few-row products of linear_ring.cuh with iq4_nl and iq4_xs weights. */
#include "frag_gguf.cuh"
#include "linear_ring.cuh"

RING_ENTRIES(iq4_nl, FragIq4Nl)
RING_ENTRIES(iq4_xs, FragIq4Xs)
