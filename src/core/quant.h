/* quant.h - how a checkpoint stores one quantised matrix: which tensors hold it and what its numbers mean. Read from the
 * configuration by src/circuit/quant_config.c, carried by an instance's bindings, followed by src/weights/quant.c.
 *
 * Owns: nothing; texts are static.   Thread: any. */
#ifndef METRALE_CORE_QUANT_H
#define METRALE_CORE_QUANT_H
#include "core/dtype.h"
#include <stdbool.h>
#include <stdint.h>

/* How the codes of a matrix [n][k] lie in the main tensor. */
typedef enum {
    QUANT_FP8,    /* e4m3 [n][k] */
    QUANT_INT8,   /* i8 [n][k] */
    QUANT_NVFP4,  /* u8 [n][k/2]: e2m1, low nibble first; e4m3 scales of 16 */
    QUANT_MXFP4,  /* u8 [n][k/32][16]: e2m1, low nibble first; e8m0 scales of 32 */
    QUANT_AWQ,    /* i32 [k][n/8]: column 8a + j at bits 4 * {0,4,1,5,2,6,3,7}[j] of word a */
    QUANT_GPTQ,   /* i32 [k * bits / 32][n]: in order along k */
    QUANT_PACKED, /* i32 [n][k * bits / 32]: in order along k, code = signed code + 2^(bits - 1) */
    QUANT_NF4,    /* u8 [n * k / 2][1]: high nibble first, scales of 64 along the flattened matrix */
} QuantStore;

/* The tensors beside the main one. */
typedef enum {
    SIDE_SCALE,
    SIDE_GLOBAL, /* one scale over all others */
    SIDE_ZERO,
    SIDE_ORDER, /* i32 [k]: the group of each input */
    SIDE_SHAPE, /* i64 [2]: n, k */
    SIDE_INPUT, /* static scale of the inputs: read to be checked, since kernels here take inputs as they are */
    SIDE_NESTED_SCALE,
    SIDE_NESTED_MAP,
    SIDE_MAP,
    SIDE_STATE, /* nf4 */
    QUANT_SIDES
} QuantSide;

typedef struct QuantScheme {
    QuantStore store;
    uint32_t bits;                  /* of a code */
    uint32_t group;                 /* inputs that share a scale; 0: all of a row */
    uint32_t group_rows;            /* rows that share it; 0: all of the matrix */
    bool zero_less_one;             /* the stored zero point is one less than it is */
    bool global_divides;            /* the value is divided by the global scale */
    const char *name;               /* for reports: "fp8 block 128x128" */
    const char *main;               /* suffixes of tensor names behind the module's name */
    const char *sides[QUANT_SIDES]; /* NULL: the scheme has none */
    const char *also[QUANT_SIDES];  /* another spelling of it */
    bool side_optional[QUANT_SIDES];
} QuantScheme;
#endif
