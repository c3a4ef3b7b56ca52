/* kernel_abi.h - how the executor and a kernel meet. Included by kernel sources of CPU classes and by backends; depends
 * on nothing.
 *
 * A kernel is launched over a grid of blocks. Its arguments are 8-byte slots in the order of the family's `args`;
 * a GPU backend passes the address of each slot as a kernel parameter (pointer, int or float: little endian, so
 * the low bytes are the value), the CPU backend hands the array over as it is.
 *
 * A CPU kernel is one C function, called once for each block of the grid by some worker of the pool. Blocks run
 * in any order, at the same time, and may not talk to each other. `smem` is the caller's scratch of the size
 * that the point's `smem` asks for, 64-byte aligned, contents undefined; it may differ from block to block.
 *
 * Definition in a source:   KERNEL(rms_norm_rows) { float *y = PTR(0, float); ... int n = I32(3); }
 * METRALE_INSTANCE is set by the build to a suffix that is unique for (class, source, constants), so that the same
 * entry can be linked in many instances. */
#ifndef METRALE_KERNEL_ABI_H
#define METRALE_KERNEL_ABI_H
#include <stdint.h>

typedef union KArg {
    void *ptr;
    int32_t i32;
    int64_t i64;
    float f32;
} KArg;

typedef struct KBlock {
    uint32_t x, y, z;    /* this block */
    uint32_t nx, ny, nz; /* the grid */
    void *smem;
} KBlock;

typedef void (*KernelFn)(const KArg *a, const KBlock *b);

#ifdef METRALE_INSTANCE
#define METRALE_PASTE_(a, b) a##__##b
#define METRALE_PASTE(a, b)  METRALE_PASTE_(a, b)
#define KERNEL(entry)                                                                                                  \
    void METRALE_PASTE(entry, METRALE_INSTANCE)(const KArg *a, const KBlock *b);                                       \
    void METRALE_PASTE(entry, METRALE_INSTANCE)(const KArg *a, const KBlock *b)
#define PTR(i, T) ((T *)a[i].ptr)
#define I32(i)    (a[i].i32)
#define F32(i)    (a[i].f32)
#endif
#endif
