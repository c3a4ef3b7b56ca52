/* linear_nvfp4 - the matrix products of linear_frag.cuh with nvfp4 weights. */
#include "linear_frag.cuh"

LINEAR_ENTRIES(nvfp4, FragNvfp4)
