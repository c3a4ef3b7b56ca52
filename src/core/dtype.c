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

DTypeRow dtype_row(DType t)
{
    switch (t) {
    case DT_FP8_128:
        return (DTypeRow){.span = 128, .bytes = 4};
    case DT_NVFP4:
        return (DTypeRow){.head = 4};
    case DT_NF4_64:
        return (DTypeRow){.span = 64, .bytes = 4};
    case DT_NF4_32:
        return (DTypeRow){.span = 32, .bytes = 4};
    case DT_W4_128:
    case DT_W8_128:
        return (DTypeRow){.span = 128, .bytes = 6};
    case DT_W4_64:
        return (DTypeRow){.span = 64, .bytes = 6};
    case DT_W4_32:
        return (DTypeRow){.span = 32, .bytes = 6};
    case DT_W4P_128:
        return (DTypeRow){.element = 2, .span = 128, .bytes = 6};
    case DT_W4P_64:
        return (DTypeRow){.element = 2, .span = 64, .bytes = 6};
    case DT_W4P_32:
        return (DTypeRow){.element = 2, .span = 32, .bytes = 6};
    default:
        return (DTypeRow){0};
    }
}

bool dtype_row_bytes(DType t, uint64_t n, uint64_t *bytes)
{
    const DTypeRow r = dtype_row(t);
    uint64_t product, beside;

    if (!dtype_known(t) || n % dtype_table[t].block != 0 || n > UINT64_MAX - r.span ||
        __builtin_mul_overflow(n / dtype_table[t].block, (uint64_t)dtype_table[t].bytes, &product) ||
        __builtin_mul_overflow(n, (uint64_t)r.element, &beside) || __builtin_add_overflow(product, beside, &product) ||
        __builtin_mul_overflow(dtype_spans(r, n), (uint64_t)r.bytes, &beside) ||
        __builtin_add_overflow(beside, (uint64_t)r.head, &beside) || __builtin_add_overflow(product, beside, &product))
        return false;
    *bytes = product;
    return true;
}
