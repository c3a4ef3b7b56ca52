/* linear_mxfp4 - the matrix products of linear_frag.cuh with mxfp4 weights. */
#include "linear_frag.cuh"

LINEAR_ENTRIES(mxfp4, FragMxfp4)
