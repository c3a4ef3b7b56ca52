/* fuzz_gguf.c - libFuzzer entry: any bytes as a gguf file. */
#include "weights/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    WeightStore *s = NULL;
    Err err;

    if (store_gguf_parse(&s, data, size, "fuzz", &err) == ST_OK)
        store_free(s);
    return 0;
}
