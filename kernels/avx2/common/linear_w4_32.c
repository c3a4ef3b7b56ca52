/* The families that read w4/32 matrices. linear_int.h has the product, tile.h and expert_linear.h the ops. */
#define FORMAT w4_32
#define GATE   END_GATE_I8
#define BITS   4
#define SPAN   32
#include "linear_int.h"

#include "entries.h"
