/* test_corpus.c - the fuzz targets of this room over their corpora, every beginning of them, and every byte changed. */
#include "text_fixture.h"

#include "core/arena.h"
#include "core/file.h"

/* The targets themselves, so that they cannot rot; each defines the one name that libFuzzer asks for. */
#define LLVMFuzzerTestOneInput fuzz_chat_template
#include "../../fuzz/fuzz_chat_template.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_tokenizer_json
#include "../../fuzz/fuzz_tokenizer_json.c"
#undef LLVMFuzzerTestOneInput

typedef int (*Target)(const uint8_t *data, size_t size);

/* A copy of exactly size bytes, so that a sanitizer sees every step outside. */
static void one(Target target, const char *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    assert_int_equal(target(copy, size), 0);
    free(copy);
}

static void replay(Target target, const char *name)
{
    Arena *a = arena_new();
    const char *dir = arena_printf(a, "%s/fuzz/corpus/%s", METRALE_SOURCE_DIR, name);
    DirEntry *entries;
    size_t n;
    Err err;
    if (dir_list(dir, a, &entries, &n, &err) != ST_OK)
        fail_msg("%s", err.msg);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        char *text;
        size_t len;
        if (file_read(arena_printf(a, "%s/%s", dir, entries[i].name), 1 << 16, &text, &len, &err) != ST_OK)
            fail_msg("%s", err.msg);
        for (size_t cut = 0; cut <= len; cut++)
            one(target, text, cut);
        for (size_t at = 0; at < len; at++) {
            char was = text[at];
            text[at] ^= 1;
            one(target, text, len);
            text[at] = "{}[]\"0%-"[at % 8]; /* a character that means something to the parsers */
            one(target, text, len);
            text[at] = was;
        }
        free(text);
    }
    arena_free(a);
}

static void corpus__chat_templates_survive(void **state)
{
    (void)state;
    replay(fuzz_chat_template, "chat_template");
}

static void corpus__tokenizers_survive(void **state)
{
    (void)state;
    replay(fuzz_tokenizer_json, "tokenizer_json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpus__chat_templates_survive),
        cmocka_unit_test(corpus__tokenizers_survive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
