/* linear_f32 - the matrix products of linear_frag.cuh with f32 weights. */
#include "linear_frag.cuh"

LINEAR_ENTRIES(f32, FragF32)
