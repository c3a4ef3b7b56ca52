/* Inputs rounded to e4m3: act_round.h. */
#define TO 1
#include "act_round.h"

KERNEL(act_round_e4m3)
{
    act_round(a, b);
}

KERNEL(expert_act_round_e4m3)
{
    expert_act_round(a, b);
}
