/* rope: rotates the first `rotary` elements of each head of q and k by the row's position.
 *   neox:        pairs (i, i + rotary/2)     interleaved: pairs (2i, 2i + 1)       (a, b) -> (a cos - b sin, b cos + a sin)
 *   yq, q  [rows][wq] f32, yk, k [rows][wk] f32; yq may be q, yk may be k
 *   table  [max_len][rotary/2][2] f32: cos, sin of each position
 *   grid   (rows) */
#include "rope.h"
#include "kernel_abi.h"
#include <stddef.h>

KERNEL(rope)
{
    int wq = I32(7), wk = I32(8), head_dim = I32(9), rotary = I32(10), style = I32(11);
    const float *cs = PTR(4, float) + (size_t)PTR(5, int32_t)[b->x] * (size_t)rotary;
    rope_heads(PTR(0, float) + (size_t)b->x * (size_t)wq, PTR(2, float) + (size_t)b->x * (size_t)wq, cs, wq, head_dim,
               rotary, style);
    rope_heads(PTR(1, float) + (size_t)b->x * (size_t)wk, PTR(3, float) + (size_t)b->x * (size_t)wk, cs, wk, head_dim,
               rotary, style);
}
