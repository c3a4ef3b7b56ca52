/* token.h - the token of an embed's row. Arguments 1 tokens [rows] i32 and 6 picks of the step before, 16 bytes each, the token
 * first: a token of -1 - o stands for the one of that step's output o, and gives way to it here. An output that had none counts
 * as token 0; its sequence has ended, and what the row makes goes nowhere. */
#ifndef METRALE_TOKEN_H
#define METRALE_TOKEN_H
#include "kernel_abi.h"

static inline int row_token(const KArg *a, uint32_t row)
{
    int32_t *tokens = PTR(1, int32_t);

    if (tokens[row] < 0) {
        int32_t picked = PTR(6, const int32_t)[4 * (-1 - tokens[row])];
        tokens[row] = picked > 0 ? picked : 0;
    }
    return tokens[row];
}
#endif
