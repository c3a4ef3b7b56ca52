/* fuzz_openai_request.c - libFuzzer entry: any bytes as the body of an OpenAI request, up to the checked parameters. */
#include "server/params.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    App app = {.vocab = 1000};
    Arena *arena = arena_new();
    ApiError e;
    json_t *body = NULL;
    Params p;

    sampling_defaults(&app.sampling);
    if (arena && params_body((const char *)data, size, &body, &e) == ST_OK &&
        params_read(&app, body, arena, &p, &e) == ST_OK) {
        Err err;
        /* What the reader lets through, the sampler takes. */
        if (sampling_check(&p.sampling, app.vocab, &err) != ST_OK)
            abort();
    }
    json_decref(body);
    arena_free(arena);
    return 0;
}
