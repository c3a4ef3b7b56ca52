/* Inputs rounded to e2m1: act_round.h. */
#define TO 3
#include "act_round.h"

KERNEL(act_round_e2m1)
{
    act_round(a, b);
}

KERNEL(expert_act_round_e2m1)
{
    expert_act_round(a, b);
}
