/* The families that read nvfp4 matrices. linear_code4.h has the product, tile.h and expert_linear.h the ops. */
#define FORMAT nvfp4
#define GATE   END_GATE
#define CODES  CODES_NVFP4
#define SPAN   16
#include "linear_code4.h"

#include "entries.h"
