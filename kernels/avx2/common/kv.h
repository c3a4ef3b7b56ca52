/* kv.h - the paged KV pools of one layer. A physical block holds 16 tokens; KV_FORMAT 0: f32, 1: bf16, 2: f16.
 *   K  [block][n_kv_heads][head_dim][16]     transposed, so that one register holds one element of 16 tokens' keys
 *   V  [block][n_kv_heads][16][head_dim]
 * A slot is block * 16 + offset. What f16 cannot hold is stored as its largest, 65504; NaN stays NaN. */
#ifndef METRALE_KV_H
#define METRALE_KV_H
#include "simd.h"
#include <stddef.h>

#if KV_FORMAT == 1
typedef uint16_t kv_t;
static inline v16 kv_load(const kv_t *p)
{
    return v_load_bf16(p);
}
static inline void kv_store(kv_t *p, v16 a)
{
    v_store_bf16(p, a);
}
static inline float kv_scalar(kv_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
#elif KV_FORMAT == 2
typedef uint16_t kv_t;
static inline v16 kv_load(const kv_t *p)
{
    return v_load_f16(p);
}
static inline void kv_store(kv_t *p, v16 a)
{
    v_store_f16(p, v_min(v_set1(65504.0f), v_max(v_set1(-65504.0f), a))); /* of a NaN, max and min give the second */
}
static inline float kv_scalar(kv_t h)
{
    return _cvtsh_ss(h);
}
#else
typedef float kv_t;
static inline v16 kv_load(const kv_t *p)
{
    return v_load(p);
}
static inline void kv_store(kv_t *p, v16 a)
{
    v_store(p, a);
}
static inline float kv_scalar(kv_t f)
{
    return f;
}
#endif

enum { KV_TOKENS = 16 };

/* Stores one row's key and value vectors of one head at a slot. */
static inline void kv_put(kv_t *kpool, kv_t *vpool, int32_t slot, int head, int n_kv_heads, int head_dim,
                          const float *k, const float *v)
{
    size_t at = ((size_t)(slot / KV_TOKENS) * (size_t)n_kv_heads + (size_t)head) * (size_t)head_dim * KV_TOKENS;
    kv_t *kb = kpool + at + slot % KV_TOKENS;
    kv_t *vb = vpool + at + (size_t)(slot % KV_TOKENS) * (size_t)head_dim;
    for (int d = 0; d < head_dim; d += 16) {
        int n = head_dim - d < 16 ? head_dim - d : 16;
        kv_t t[16];
        kv_store(t, n == 16 ? v_load(k + d) : v_load_n(k + d, n));
        for (int i = 0; i < n; i++)
            kb[(size_t)(d + i) * KV_TOKENS] = t[i];
        kv_store(t, n == 16 ? v_load(v + d) : v_load_n(v + d, n));
        memcpy(vb + d, t, sizeof(kv_t) * (size_t)n);
    }
}
#endif
