/* The families that read fp8/128 matrices. linear_fp8.h has the product, tile.h and expert_linear.h the ops. */
#define FORMAT fp8_128
#define GATE   END_GATE
#include "linear_fp8.h"

#include "entries.h"
