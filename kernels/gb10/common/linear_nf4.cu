/* linear_nf4 - the matrix products of linear_frag.cuh with nf4 and w8 weights. */
#include "frag_spans.cuh"
#include "linear_frag.cuh"

LINEAR_ENTRIES(nf4_64, Nf4<64>)
LINEAR_ENTRIES(nf4_32, Nf4<32>)
LINEAR_ENTRIES(w8_128, FragW8)
