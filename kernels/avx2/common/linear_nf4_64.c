/* The families that read nf4/64 matrices. linear_code4.h has the product, tile.h and expert_linear.h the ops. */
#define FORMAT nf4_64
#define GATE   END_GATE
#define CODES  CODES_NF4
#define SPAN   64
#include "linear_code4.h"

#include "entries.h"
