/* dtype.c - the table of dtype.h as code. */
#include "core/dtype.h"
#include <string.h>

typedef struct DTypeInfo {
    const char *name;
    uint32_t block, bytes;
} DTypeInfo;

static const DTypeInfo dtype_table[DT_COUNT] = {
#define X(id, name, block, bytes) [DT_##id] = {name, block, bytes},
    DTYPE_MAP(X)
#undef X
};

static bool dtype_known(DType t)
{
    return (unsigned)t < DT_COUNT;
}

const char *dtype_name(DType t)
{
    return dtype_known(t) ? dtype_table[t].name : "none";
}

bool dtype_parse(const char *name, DType *out)
{
    for (unsigned t = 0; t < DT_COUNT; t++) {
        if (strcmp(dtype_table[t].name, name) == 0) {
            *out = (DType)t;
            return true;
        }
    }
    return false;
}

uint32_t dtype_block(DType t)
{
    return dtype_known(t) ? dtype_table[t].block : 0;
}

uint32_t dtype_block_bytes(DType t)
{
    return dtype_known(t) ? dtype_table[t].bytes : 0;
}

bool dtype_row_bytes(DType t, uint64_t n, uint64_t *bytes)
{
    uint64_t product;

    if (!dtype_known(t) || n % dtype_table[t].block != 0 ||
        __builtin_mul_overflow(n / dtype_table[t].block, (uint64_t)dtype_table[t].bytes, &product))
        return false;
    *bytes = product;
    return true;
}
