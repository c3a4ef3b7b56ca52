/* ggml_type.h - the tensor types of GGUF files: every id that was ever given out, by name and size.
 * Facts from ggml's public header (enum ggml_type and the block structs). Pure. */
#ifndef METRALE_WEIGHTS_GGML_TYPE_H
#define METRALE_WEIGHTS_GGML_TYPE_H
#include "core/dtype.h"
#include <stdint.h>

typedef struct GgmlType {
    const char *name;
    uint32_t block, bytes; /* elements and bytes of a block; 0: withdrawn from the format, or its size is not settled */
    DType dtype;           /* DT_NONE: this build does not compute with it */
} GgmlType;

/* NULL for an id that ggml does not have. */
const GgmlType *ggml_type_find(uint32_t id);
/* The names of those with a dtype, for messages. */
#define GGML_TYPES_READ                                                                                                \
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4"
#endif
