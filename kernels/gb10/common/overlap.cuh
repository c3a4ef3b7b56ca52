/* overlap.cuh - what a kernel whose point says `overlap` does before anything else: the next launch may start, and this one
 * goes on when all before it have ended and what they wrote is there (CUDA C++ Programming Guide, "Programmatic Dependent
 * Launch"). Every thread waits before its first return, since a launch that ends without having waited would let the next one pass
 * those before it. A step's tables are there before its first launch, and so is what earlier steps left in the KV pools: they
 * alone may be read earlier. Loads of what a predecessor wrote must not be __restrict__ const: those may be moved in front of the
 * wait. */
#ifndef METRALE_OVERLAP_CUH
#define METRALE_OVERLAP_CUH

__device__ __forceinline__ void start_next()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_all_before()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void await_predecessors()
{
    start_next();
    wait_for_all_before();
}
#endif
