/* linear_iq4 - the matrix products of linear_frag.cuh with iq4_nl and iq4_xs weights. */
#include "frag_gguf.cuh"
#include "linear_frag.cuh"

LINEAR_ENTRIES(iq4_nl, FragIq4Nl)
LINEAR_ENTRIES(iq4_xs, FragIq4Xs)
