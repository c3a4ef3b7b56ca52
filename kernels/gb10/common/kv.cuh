/* kv.cuh - the paged pools of one layer on the NVIDIA classes: bf16 or f32, a physical block of 16 tokens.
 *   K, V  [block][n_kv_heads][16][head_dim]: one head's 16 tokens are contiguous, 16 * head_dim elements
 * A slot is block * 16 + offset. */
#ifndef METRALE_KV_CUH
#define METRALE_KV_CUH
#include "load.cuh"

enum { KV_TOKENS = 16 };

__device__ __forceinline__ size_t kv_at(int slot, int head, int n_kv_heads, int head_dim)
{
    return (((size_t)(slot / KV_TOKENS) * (size_t)n_kv_heads + (size_t)head) * KV_TOKENS + (size_t)(slot % KV_TOKENS)) *
           (size_t)head_dim;
}

__device__ __forceinline__ void kv_put(bf16 *p, float x)
{
    *p = __float2bfloat16_rn(x);
}

/* What an edge in bf16 keeps of x, so that fused and plain writes give the same bits. */
__device__ __forceinline__ void kv_put(float *p, float x)
{
    *p = __bfloat162float(__float2bfloat16_rn(x));
}
#endif
