/* ggml_type.c - the table, complete so that a refusal can name the type instead of a number. */
#include "weights/ggml_type.h"
#include <stddef.h>

/* Indexed by id. Ids are never reused: withdrawn ones keep their place. */
static const GgmlType TYPES[] = {
    [0] = {"F32", 1, 4, DT_F32},          [1] = {"F16", 1, 2, DT_F16},          [2] = {"Q4_0", 32, 18, DT_Q4_0},
    [3] = {"Q4_1", 32, 20, DT_Q4_1},      [4] = {"Q4_2", 0, 0, DT_NONE},        [5] = {"Q4_3", 0, 0, DT_NONE},
    [6] = {"Q5_0", 32, 22, DT_Q5_0},      [7] = {"Q5_1", 32, 24, DT_Q5_1},      [8] = {"Q8_0", 32, 34, DT_Q8_0},
    [9] = {"Q8_1", 32, 36, DT_NONE},      [10] = {"Q2_K", 256, 84, DT_Q2_K},    [11] = {"Q3_K", 256, 110, DT_Q3_K},
    [12] = {"Q4_K", 256, 144, DT_Q4_K},   [13] = {"Q5_K", 256, 176, DT_Q5_K},   [14] = {"Q6_K", 256, 210, DT_Q6_K},
    [15] = {"Q8_K", 256, 292, DT_NONE},   [16] = {"IQ2_XXS", 256, 66, DT_NONE}, [17] = {"IQ2_XS", 256, 74, DT_NONE},
    [18] = {"IQ3_XXS", 256, 98, DT_NONE}, [19] = {"IQ1_S", 256, 50, DT_NONE},   [20] = {"IQ4_NL", 32, 18, DT_IQ4_NL},
    [21] = {"IQ3_S", 256, 110, DT_NONE},  [22] = {"IQ2_S", 256, 82, DT_NONE},   [23] = {"IQ4_XS", 256, 136, DT_IQ4_XS},
    [24] = {"I8", 1, 1, DT_NONE},         [25] = {"I16", 1, 2, DT_NONE},        [26] = {"I32", 1, 4, DT_NONE},
    [27] = {"I64", 1, 8, DT_NONE},        [28] = {"F64", 1, 8, DT_NONE},        [29] = {"IQ1_M", 256, 56, DT_NONE},
    [30] = {"BF16", 1, 2, DT_BF16},       [31] = {"Q4_0_4_4", 0, 0, DT_NONE},   [32] = {"Q4_0_4_8", 0, 0, DT_NONE},
    [33] = {"Q4_0_8_8", 0, 0, DT_NONE},   [34] = {"TQ1_0", 256, 54, DT_NONE},   [35] = {"TQ2_0", 256, 66, DT_NONE},
    [36] = {"IQ4_NL_4_4", 0, 0, DT_NONE}, [37] = {"IQ4_NL_4_8", 0, 0, DT_NONE}, [38] = {"IQ4_NL_8_8", 0, 0, DT_NONE},
    [39] = {"MXFP4", 32, 17, DT_MXFP4},   [40] = {"NVFP4", 64, 36, DT_NONE},    [41] = {"Q1_0", 128, 18, DT_NONE},
    [42] = {"Q2_0", 0, 0, DT_NONE},
};

const GgmlType *ggml_type_find(uint32_t id)
{
    return id < sizeof TYPES / sizeof TYPES[0] ? &TYPES[id] : NULL;
}
