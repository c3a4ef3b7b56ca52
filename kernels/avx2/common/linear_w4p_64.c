/* The families that read w4p/64 matrices. linear_code4.h has the product, tile.h and expert_linear.h the ops. */
#define FORMAT w4p_64
#define GATE   END_GATE
#define CODES  CODES_W4P
#define SPAN   64
#include "linear_code4.h"

#include "entries.h"
