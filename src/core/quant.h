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
    SIDE_INPUT, /* static scale of the inputs: QuantInput */
    SIDE_NESTED_SCALE,
    SIDE_NESTED_MAP,
    SIDE_MAP,
    SIDE_STATE, /* nf4 */
    QUANT_SIDES
} QuantSide;

/* What inputs are rounded to. Also the values of parameter `to` of the op act_quant. */
typedef enum {
    ACT_NARROW, /* not by the configuration: as the class's kernels take them */
    ACT_E4M3,   /* largest 448 */
    ACT_I8,     /* -127 .. 127 */
    ACT_E2M1,   /* largest 6; scales of spans are e4m3 */
} ActFormat;

/* What the configuration asks of a matrix's inputs; all 0: nothing.
 *   e4m3, i8   d = max|x| of the span / largest, or, scaled, the one static scale; x = d * round(x / d)
 *   e2m1       s = e4m3(max|x| of the span / 6 / g), g the static scale;           x = s g * round(x / (s g))
 * in f32, to nearest even, saturated. A span of zeros stays zeros. */
typedef struct QuantInput {
    ActFormat to;
    uint32_t span; /* inputs that share a scale; 0: all of a row */
    bool scaled;   /* SIDE_INPUT holds a scale, or with global_divides its reciprocal */
} QuantInput;

typedef struct QuantScheme {
    QuantStore store;
    uint32_t bits;       /* of a code */
    uint32_t group;      /* inputs that share a scale; 0: all of a row */
    uint32_t group_rows; /* rows that share it; 0: all of the matrix */
    bool zero_less_one;  /* the stored zero point is one less than it is */
    bool global_divides; /* the value is divided by the global scale */
    QuantInput input;
    const char *name;               /* for reports: "fp8 block 128x128" */
    const char *main;               /* suffixes of tensor names behind the module's name */
    const char *sides[QUANT_SIDES]; /* NULL: the scheme has none */
    const char *also[QUANT_SIDES];  /* another spelling of it */
    bool side_optional[QUANT_SIDES];
} QuantScheme;
#endif
