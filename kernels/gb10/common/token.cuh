/* token.cuh - the token of an embed's row. A token of -1 - o stands for the one of output o of the step before (picks: 16 bytes
 * each, the token first) and gives way to it here; blocks of one row may both write it, and then the same. An output that had
 * none counts as token 0; its sequence has ended, and what the row makes goes nowhere. */
#ifndef METRALE_TOKEN_CUH
#define METRALE_TOKEN_CUH

__device__ __forceinline__ int token_of(int *tokens, const int4 *picks, int row)
{
    int token = tokens[row];
    if (token < 0) {
        token = max(picks[-1 - token].x, 0);
        tokens[row] = token;
    }
    return token;
}
#endif
