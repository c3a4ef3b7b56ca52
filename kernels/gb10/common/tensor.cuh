/* tensor.cuh - what tensor-core kernels with operands in shared memory are made of: asynchronous copies, fragments, products.
 *
 * Fragments of mma.m16n8k16, lane 4g + t (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
 *   A [16][16]  a[0] (g, 2t..), a[1] (g + 8, 2t..), a[2] (g, 2t + 8..), a[3] (g + 8, 2t + 8..)
 *   B [16][8]   b0 (k 2t.., n g), b1 (k 2t + 8.., n g)
 *   D [16][8]   d[0], d[1] (g, 2t..), d[2], d[3] (g + 8, 2t..) */
#ifndef METRALE_TENSOR_CUH
#define METRALE_TENSOR_CUH
#include <cuda_bf16.h>
#include <stdint.h>

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes from global to shared memory, zeros where `there` is false; then nothing is read. */
__device__ __forceinline__ void copy_async(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

/* The copies since the last call are a group; groups end in order. */
__device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most N of this thread's groups are on their way. */
template <int N> __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Four 8 x 8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8, and gets of each matrix the
 * elements 2t, 2t + 1 of row g. */
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* The same matrices turned: rows 2t, 2t + 1 of column g. */
__device__ __forceinline__ void load_matrices_turned(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* d += a b */
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two floats as bf16, the first in the low half. */
__device__ __forceinline__ uint32_t pack_two(float lo, float hi)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&v);
}

/* Rows of HEAD bf16 in shared memory such that the eight rows of a matrix lie in different banks: units of 16 bytes are
 * permuted by the row where a row has a multiple of eight of them; otherwise rows are one unit longer. HEAD a multiple of 16. */
template <int HEAD> struct Rows {
    static_assert(HEAD % 16 == 0, "tensor cores take 16 elements at a time");
    static constexpr int STRIDE = HEAD % 64 == 0 ? HEAD : HEAD + 8;
    static __device__ __forceinline__ int at(int row, int unit)
    {
        return row * STRIDE + (HEAD % 64 == 0 ? unit ^ (row & 7) : unit) * 8;
    }
};
#endif
