/* The families that read w4p/128 matrices. linear_code4.h has the product, tile.h and expert_linear.h the ops. */
#define FORMAT w4p_128
#define GATE   END_GATE
#define CODES  CODES_W4P
#define SPAN   128
#include "linear_code4.h"

#include "entries.h"
