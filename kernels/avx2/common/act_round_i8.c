/* Inputs rounded to int8: act_round.h; or kept as codes, in format i8/32. */
#define TO 2
#include "act_i8.h"
#include "act_round.h"

KERNEL(act_round_i8)
{
    act_round(a, b);
}

KERNEL(expert_act_round_i8)
{
    expert_act_round(a, b);
}

/* y [rows][width / 32] ActBlock; spans are whole blocks, or the row, which is */
KERNEL(act_codes_i8)
{
    int width = I32(4), row = I32(5), span = I32(6);
    size_t from = (size_t)b->x * (size_t)width + (size_t)b->y * (size_t)row;
    const float *x = PTR(1, float) + from;
    ActBlock *y = PTR(0, ActBlock) + from / 32;
    float fixed = static_scale(PTR(2, float), 0, I32(7));

    for (int at = 0; at < row; at += span) {
        int end = row - at < span ? row : at + span;
        float d = span_scale(x + at, end - at, fixed);
        for (int c = at; c < end; c += 32, y++) {
            n16 qa = v_round_i32(codes(v_load(x + c), d)), qc = v_round_i32(codes(v_load(x + c + 16), d));
            n_store_i8(y->q, qa);
            n_store_i8(y->q + 16, qc);
            y->d = d;
            y->s = n_sum(qa) + n_sum(qc);
        }
    }
}
