/* The families that read w4/128 matrices. linear_int.h has the product, tile.h and expert_linear.h the ops. */
#define FORMAT w4_128
#define GATE   END_GATE_I8
#define BITS   4
#define SPAN   128
#include "linear_int.h"

#include "entries.h"
