/* overlap.cuh - what a kernel whose point says `overlap` does before anything else: the next launch may start, and this one goes on
 * when all before it have ended and what they wrote is there (CUDA C++ Programming Guide, "Programmatic Dependent Launch"). Every
 * thread calls it before its first return, since a launch that ends without having waited would let the next one pass those before
 * it. Loads of what a predecessor wrote must not be __restrict__ const: those may be moved in front of the wait. */
#ifndef METRALE_OVERLAP_CUH
#define METRALE_OVERLAP_CUH

__device__ __forceinline__ void await_predecessors()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif
