/* The families that read w4p/32 matrices. linear_code4.h has the product, tile.h and expert_linear.h the ops. */
#define FORMAT w4p_32
#define GATE   END_GATE
#define CODES  CODES_W4P
#define SPAN   32
#include "linear_code4.h"

#include "entries.h"
