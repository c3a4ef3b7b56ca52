/* dtype.h - element and block formats of tensors, as stored in files and as laid out for kernels.
 * Names are what TOML files, reports and messages print. A block format packs `block` elements of one row into `bytes`.
 */
#ifndef METRALE_CORE_DTYPE_H
#define METRALE_CORE_DTYPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(ID, name, elements per block, bytes per block) */
#define DTYPE_MAP(X)                                                                                                   \
    X(F32, "f32", 1, 4)                                                                                                \
    X(F16, "f16", 1, 2)                                                                                                \
    X(BF16, "bf16", 1, 2)                                                                                              \
    X(I32, "i32", 1, 4)                                                                                                \
    X(I64, "i64", 1, 8)                                                                                                \
    X(Q8_0, "q8_0", 32, 34)   /* f16 d; i8 q[32]: w = d*q                       (GGUF) */                              \
    X(Q4_0, "q4_0", 32, 18)   /* f16 d; u4 q[32], low nibbles first: w = d*(q-8) (GGUF) */                             \
    X(Q4_1, "q4_1", 32, 20)   /* f16 d, m; u4 q[32]: w = d*q + m                (GGUF) */                              \
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
