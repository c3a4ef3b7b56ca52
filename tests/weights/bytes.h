/* bytes.h - hand-made weight files for the tests of this room, and one-line checks of what a parser said to them. */
#ifndef METRALE_TESTS_WEIGHTS_BYTES_H
#define METRALE_TESTS_WEIGHTS_BYTES_H
#include "core/str.h"
#include "weights/store.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h> /* needs the ones above */

static inline void put_u32(Str *s, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        str_addc(s, (char)(v >> 8 * i));
}

static inline void put_u64(Str *s, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        str_addc(s, (char)(v >> 8 * i));
}

/* A GGUF string. */
static inline void put_string(Str *s, const char *text)
{
    put_u64(s, strlen(text));
    str_adds(s, text);
}

static inline void put_f32(Str *s, float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    put_u32(s, u);
}

typedef Status (*Parse)(WeightStore **out, const void *bytes, size_t len, const char *name, Err *err);

/* Parses a copy of exactly len bytes, so that a sanitizer sees every step outside. The store borrows *copy. */
static inline Status parse_exact(Parse parse, const void *bytes, size_t len, WeightStore **out, void **copy, Err *err)
{
    *copy = malloc(len > 0 ? len : 1);
    assert_non_null(*copy);
    if (len > 0)
        memcpy(*copy, bytes, len);
    *err = (Err){{0}};
    *out = NULL;
    return parse(out, *copy, len, "the-file", err);
}

/* The parser refuses with one sentence that names the file and holds every given part. */
static inline void refuses(Parse parse, const void *bytes, size_t len, const char *part1, const char *part2)
{
    WeightStore *s;
    void *copy;
    Err err;
    Status st = parse_exact(parse, bytes, len, &s, &copy, &err);

    if (st == ST_OK)
        fail_msg("accepted what should be refused for: %s", part1);
    assert_null(s);
    if (strncmp(err.msg, "the-file: ", 10) != 0 || !strstr(err.msg, part1) || !strstr(err.msg, part2) ||
        strchr(err.msg, '\n') != NULL)
        fail_msg("wanted the file, '%s' and '%s' in: %s", part1, part2, err.msg);
    free(copy);
}
#endif
