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
#endif
