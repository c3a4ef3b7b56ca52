/* wgmma_attention.cuh - the two warpgroup products of attention (PTX ISA 8, wgmma.mma_async, bf16 in, f32 out). A warpgroup has 64
 * lines; warp w of it lines 16w .. 16w + 15, in the fragments of mma.m16n8k16.
 *
 * Tiles in shared memory are columns of 64 elements: R rows of 128 bytes each, in the 128-byte swizzle (the 16-byte piece c of row r
 * is at piece c ^ (r % 8)), aligned to 1,024 bytes; the next 64 elements of all rows follow behind the R rows. Queries and keys
 * are read along the rows (K-major), values across them: elements are the columns of B, rows its k's (N-major). In a descriptor
 * the stride offset is that from eight rows to the next eight; the leading offset, for N-major, that from 64 elements to the next.
 * 16 elements on: the address + 32 bytes. 16 rows on: + 2,048 bytes. */
#ifndef METRALE_WGMMA_ATTENTION_CUH
#define METRALE_WGMMA_ATTENTION_CUH
#include "wgmma.cuh"

/* The descriptor of values in a tile of ROWS rows. */
template <int ROWS> __device__ __forceinline__ uint64_t wgmma_values_tile(uint32_t shared_address)
{
    static_assert(ROWS * 128 >> 4 < 1 << 14, "the field holds it");
    return (uint64_t)((shared_address & 0x3ffff) >> 4) | (uint64_t)(ROWS * 128 >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* The compiler does not know that wgmma writes after its asm: behind a wait, no use of d moves in front of this. */
template <int N> __device__ __forceinline__ void wgmma_written(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

#define WGMMA_NAMES_32                                                                                                 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "                  \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_SUMS_32                                                                                                  \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),        \
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),         \
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),        \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define WGMMA_NAMES_64                                                                                                 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "                  \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "                  \
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "                  \
    "%59, %60, %61, %62, %63"
#define WGMMA_SUMS_64                                                                                                  \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),        \
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),         \
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),        \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),        \
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),        \
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),        \
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),        \
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])

/* d = a . b (ADD: d += a . b), both from shared memory: queries of 16 elements by N keys. */
template <int N, int ADD> __device__ __forceinline__ void wgmma_scores(float (&d)[N / 2], uint64_t a, uint64_t b)
{
    static_assert(N == 64 || N == 128, "what attention takes");
    if constexpr (N == 64)
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WGMMA_NAMES_32
                     "}, %32, %33, %34, 1, 1, 0, 0;"
                     : WGMMA_SUMS_32
                     : "l"(a), "l"(b), "n"(ADD));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_NAMES_64
                     "}, %64, %65, %66, 1, 1, 0, 0;"
                     : WGMMA_SUMS_64
                     : "l"(a), "l"(b), "n"(ADD));
}

/* d += a . b, a from registers: weights of 16 tokens by N elements of their values. */
template <int N> __device__ __forceinline__ void wgmma_values(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b)
{
    static_assert(N == 64 || N == 128, "what attention takes");
    if constexpr (N == 64)
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WGMMA_NAMES_32
                     "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                     : WGMMA_SUMS_32
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_NAMES_64
                     "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                     : WGMMA_SUMS_64
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#endif
