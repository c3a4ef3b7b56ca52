/* test_corpus.c - the fuzz targets of this room over their corpora, and over every prefix and flipped byte of them. */
#include "bytes.h"
#include "core/file.h"

/* The targets themselves, so that they cannot rot; each defines the one name that libFuzzer asks for. */
#define LLVMFuzzerTestOneInput fuzz_gguf
#include "../../fuzz/fuzz_gguf.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "../../fuzz/fuzz_safetensors.c"
#undef LLVMFuzzerTestOneInput

typedef int (*Target)(const uint8_t *data, size_t size);

/* A copy of exactly size bytes, so that a sanitizer sees every step outside. */
static void one(Target target, const char *bytes, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);

    assert_non_null(copy);
    memcpy(copy, bytes, size);
    assert_int_equal(target(copy, size), 0);
    free(copy);
}

static void replay(Target target, const char *dir)
{
    Arena *a = arena_new();
    DirEntry *entries;
    size_t n;
    Err err;

    if (dir_list(dir, a, &entries, &n, &err) != ST_OK)
        fail_msg("%s", err.msg);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        char *path = arena_printf(a, "%s/%s", dir, entries[i].name), *text;
        size_t len;

        if (file_read(path, 1 << 16, &text, &len, &err) != ST_OK)
            fail_msg("%s", err.msg);
        for (size_t cut = 0; cut <= len; cut++)
            one(target, text, cut);
        for (size_t at = 0; at < len; at++) {
            for (int bit = 0; bit < 8; bit += 7) { /* the lowest and the highest: off by one, and huge */
                text[at] = (char)(text[at] ^ 1 << bit);
                one(target, text, len);
                text[at] = (char)(text[at] ^ 1 << bit);
            }
        }
        free(text);
    }
    arena_free(a);
}

static void corpus__gguf_survives(void **state)
{
    (void)state;
    replay(fuzz_gguf, METRALE_SOURCE_DIR "/fuzz/corpus/gguf");
}

static void corpus__safetensors_survives(void **state)
{
    (void)state;
    replay(fuzz_safetensors, METRALE_SOURCE_DIR "/fuzz/corpus/safetensors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpus__gguf_survives),
        cmocka_unit_test(corpus__safetensors_survives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
