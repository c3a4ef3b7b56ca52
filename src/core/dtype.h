/* dtype.h - element and block formats of tensors, as stored in files and as laid out for kernels.
 * Names are what TOML files, reports and messages print. A block format packs `block` elements of one row into `bytes`.
 */
#ifndef METRALE_CORE_DTYPE_H
#define METRALE_CORE_DTYPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(ID, name, elements per block, bytes per block).
 *
 * The block formats, byte by byte (GGUF; facts from ggml's block structs). d, dmin, m: f16, little-endian. u4[32]: byte b
 * holds element b in its low nibble and element b + 16 in its high one. src/weights/decode.c says what they are worth.
 *
 *   q8_0     d | i8 q[32]                                       w = d*q
 *   q4_0     d | u4 q[32]                                       w = d*(q - 8)
 *   q4_1     d, m | u4 q[32]                                    w = d*q + m
 *   q5_0     d | u1 h[32] | u4 q[32]                            w = d*(q + 16h - 16)
 *   q5_1     d, m | u1 h[32] | u4 q[32]                         w = d*(q + 16h) + m
 *   iq4_nl   d | u4 q[32]                                       w = d*value[q], 16 values that are dense near 0
 *   mxfp4    u8 e | u4 q[32]                                    w = 2^(e-127) * e2m1(q)      (OCP Microscaling 1.0)
 *
 * Super-blocks of 256, in sub-blocks of 16 or 32 that have scales s and minima m of their own:
 *   q2_k     u4 s, u4 m [16] | u2 q[256] | d, dmin              w = d*s*q - dmin*m
 *   q3_k     u1 h[256] | u2 q[256] | u6 s[16] | d               w = d*(s - 32)*(q + 4h - 4)
 *   q4_k     d, dmin | u6 s, m [8] | u4 q[256]                  w = d*s*q - dmin*m
 *   q5_k     d, dmin | u6 s, m [8] | u1 h[256] | u4 q[256]      w = d*s*(q + 16h) - dmin*m
 *   q6_k     u4 q[256] | u2 h[256] | i8 s[16] | d               w = d*s*(q + 16h - 32)
 *   iq4_xs   d | u6 s[8] | u4 q[256]                            w = d*(s - 32)*value[q]
 *
 * Checkpoints of other quantisers keep codes, scales and zero points in tensors of their own. One row of them, put
 * together (weights/quant.h), is a head, then codes in order of k; a scale is for one span of k's, the last may be short:
 *
 *   fp8/128         f32 d[ceil(k/128)] | u8 q[k]                w = d*e4m3(q)
 *   nvfp4           f32 g | e4m3 s, u4p q[16] ...               w = g*(s*e2m1(q))           g, s: exact product first
 *   nf4/S           f32 d[ceil(k/S)] | u4p q[k]                 w = d*nf4(q)
 *   w4/S, w8/S      {f32 d, i16 z}[ceil(k/S)] | q[k]            w = d*(q - z)               u4 in 32s as above; i8
 *   w4p/S           u16 p[k] | {f32 d, i16 z}[..] | u4p q[k]    w[p[i]] = d*(q[i] - z)      input p[i] meets code i
 *
 * u4p: byte b holds elements 2b (low nibble) and 2b + 1.
 */
#define DTYPE_MAP(X)                                                                                                   \
    X(F32, "f32", 1, 4)                                                                                                \
    X(F16, "f16", 1, 2)                                                                                                \
    X(BF16, "bf16", 1, 2)                                                                                              \
    X(I32, "i32", 1, 4)                                                                                                \
    X(I64, "i64", 1, 8)                                                                                                \
    X(Q8_0, "q8_0", 32, 34)                                                                                            \
    X(Q4_0, "q4_0", 32, 18)                                                                                            \
    X(Q4_1, "q4_1", 32, 20)                                                                                            \
    X(Q5_0, "q5_0", 32, 22)                                                                                            \
    X(Q5_1, "q5_1", 32, 24)                                                                                            \
    X(IQ4_NL, "iq4_nl", 32, 18)                                                                                        \
    X(MXFP4, "mxfp4", 32, 17)                                                                                          \
    X(Q2_K, "q2_k", 256, 84)                                                                                           \
    X(Q3_K, "q3_k", 256, 110)                                                                                          \
    X(Q4_K, "q4_k", 256, 144)                                                                                          \
    X(Q5_K, "q5_k", 256, 176)                                                                                          \
    X(Q6_K, "q6_k", 256, 210)                                                                                          \
    X(IQ4_XS, "iq4_xs", 256, 136)                                                                                      \
    X(U8, "u8", 1, 1)                                                                                                  \
    X(I8, "i8", 1, 1)                                                                                                  \
    X(E4M3, "e4m3", 1, 1)                                                                                              \
    X(E8M0, "e8m0", 1, 1)                                                                                              \
    X(FP8_128, "fp8/128", 8, 8)                                                                                        \
    X(NVFP4, "nvfp4", 16, 9)                                                                                           \
    X(NF4_64, "nf4/64", 32, 16)                                                                                        \
    X(NF4_32, "nf4/32", 32, 16)                                                                                        \
    X(W4_128, "w4/128", 32, 16)                                                                                        \
    X(W4_64, "w4/64", 32, 16)                                                                                          \
    X(W4_32, "w4/32", 32, 16)                                                                                          \
    X(W8_128, "w8/128", 32, 32)                                                                                        \
    X(W4P_128, "w4p/128", 32, 16)                                                                                      \
    X(W4P_64, "w4p/64", 32, 16)                                                                                        \
    X(W4P_32, "w4p/32", 32, 16)                                                                                        \
    X(I8_32, "i8/32", 32, 40) /* activations: i8 q[32]; f32 d; i32 s = sum(q): x = d*q */

typedef enum {
#define X(id, name, block, bytes) DT_##id,
    DTYPE_MAP(X)
#undef X
        DT_COUNT,
    DT_NONE = DT_COUNT
} DType;

const char *dtype_name(DType t);                /* "none" for DT_NONE */
bool dtype_parse(const char *name, DType *out); /* false: unknown */
uint32_t dtype_block(DType t);
uint32_t dtype_block_bytes(DType t);
/* Bytes of one row of n elements; false when n is no multiple of the block or the product overflows. */
bool dtype_row_bytes(DType t, uint64_t n, uint64_t *bytes);

/* What a row has beside its codes; all 0 for formats whose blocks are self-contained. */
typedef struct DTypeRow {
    uint32_t head, element; /* bytes once, and for each element */
    uint32_t span, bytes;   /* elements that share a scale, and its bytes */
} DTypeRow;
DTypeRow dtype_row(DType t);
static inline uint64_t dtype_spans(DTypeRow r, uint64_t n)
{
    return r.span ? (n + r.span - 1) / r.span : 0;
}
#endif
