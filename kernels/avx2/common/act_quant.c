/* act_quant: y = x in format i8/32
 *   y      [rows][width/32] ActBlock      x  [rows][width] f32, width a multiple of 32
 *   grid   (rows) */
#include "act_i8.h"
#include "kernel_abi.h"

KERNEL(act_quant)
{
    int width = I32(3);
    ActBlock *y = PTR(0, ActBlock) + (size_t)b->x * (size_t)(width / 32);
    const float *x = PTR(1, float) + (size_t)b->x * (size_t)width;
    for (int c = 0; c < width; c += 32)
        act_quant_block(y + c / 32, v_load(x + c), v_load(x + c + 16));
}
