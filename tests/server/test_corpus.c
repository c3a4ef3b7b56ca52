/* test_corpus.c - the fuzz target of this room over its corpus, every beginning of it, and every byte changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/file.h"

/* The target itself, so that it cannot rot. */
#define LLVMFuzzerTestOneInput fuzz_openai_request
#include "../../fuzz/fuzz_openai_request.c"
#undef LLVMFuzzerTestOneInput

/* A copy of exactly size bytes, so that a sanitizer sees every step outside. */
static void one(const char *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    assert_non_null(copy);
    memcpy(copy, bytes, size);
    assert_int_equal(fuzz_openai_request(copy, size), 0);
    free(copy);
}

static void corpus__openai_requests_survive(void **state)
{
    const char *dir = METRALE_SOURCE_DIR "/fuzz/corpus/openai_request";
    Arena *a = arena_new();
    DirEntry *entries;
    size_t n;
    Err err;

    (void)state;
    if (dir_list(dir, a, &entries, &n, &err) != ST_OK)
        fail_msg("%s", err.msg);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        char *text;
        size_t len;

        if (file_read(arena_printf(a, "%s/%s", dir, entries[i].name), 1 << 16, &text, &len, &err) != ST_OK)
            fail_msg("%s", err.msg);
        for (size_t cut = 0; cut <= len; cut++)
            one(text, cut);
        for (size_t at = 0; at < len; at++) {
            char was = text[at];
            for (const char *c = "{}[]\"0-9e:,\\"; *c; c++) {
                text[at] = *c;
                one(text, len);
            }
            text[at] = (char)(was ^ 0x80);
            one(text, len);
            text[at] = was;
        }
        free(text);
    }
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus__openai_requests_survive)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
