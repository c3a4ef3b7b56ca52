/* arena: zeroed, aligned, bounded, and all of it freed at once (checked by the leak sanitizer). */
#include "core/arena.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void arena__memory_is_zero_and_aligned(void **state)
{
    Arena *a = arena_new();
    (void)state;
    for (size_t n = 0; n < 3000; n += 7) {
        unsigned char *p = arena_alloc(a, n, 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
    }
    arena_free(a);
}

static void arena__allocations_do_not_overlap(void **state)
{
    enum { N = 500 };
    unsigned char *p[N];
    size_t size[N];
    Arena *a = arena_new();
    (void)state;
    for (int i = 0; i < N; i++) {
        size[i] = i % 50 == 0 ? 100000 : (size_t)i; /* large ones get blocks of their own in between */
        p[i] = arena_alloc(a, size[i], 1);
        assert_non_null(p[i]);
        memset(p[i], i & 0xff, size[i]);
    }
    for (int i = 0; i < N; i++)
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(p[i][k], i & 0xff);
    arena_free(a);
}

static void arena__a_product_that_overflows_is_refused(void **state)
{
    Arena *a = arena_new();
    (void)state;
    assert_null(arena_alloc(a, SIZE_MAX / 2 + 1, 2));
    assert_null(arena_alloc(a, SIZE_MAX, SIZE_MAX));
    assert_null(arena_alloc(a, SIZE_MAX, 1)); /* no overflow, but rounding up to the alignment would */
    assert_null(arena_alloc(a, SIZE_MAX - 64, 1));
    assert_null(arena_strndup(a, "x", SIZE_MAX));
    assert_non_null(arena_alloc(a, 8, 8)); /* still usable */
    arena_free(a);
}

static void arena__an_empty_array_is_not_a_failure(void **state)
{
    Arena *a = arena_new();
    (void)state;
    void *p = arena_alloc(a, 0, 8), *q = arena_alloc(a, 8, 0);
    assert_non_null(p);
    assert_non_null(q);
    assert_ptr_not_equal(p, q);
    arena_free(a);
}

static void arena__a_large_request_keeps_the_small_block(void **state)
{
    Arena *a = arena_new();
    (void)state;
    char *first = arena_alloc(a, 16, 1);
    assert_non_null(arena_alloc(a, 10u << 20, 1));
    char *second = arena_alloc(a, 16, 1);
    assert_ptr_equal(second, first + 16);
    arena_free(a);
}

static void arena__strings_are_copied(void **state)
{
    Arena *a = arena_new();
    char text[] = "abcdef";
    (void)state;
    char *whole = arena_strdup(a, text), *part = arena_strndup(a, text + 1, 3);
    text[1] = '!';
    assert_string_equal(whole, "abcdef");
    assert_string_equal(part, "bcd");
    assert_string_equal(arena_strdup(a, ""), "");
    assert_string_equal(arena_printf(a, "%s/%d", "x", 42), "x/42");
    char *wide = arena_printf(a, "%9000d", 1);
    assert_int_equal(strlen(wide), 9000);
    arena_free(a);
}

static void arena_free__takes_null(void **state)
{
    (void)state;
    arena_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena__memory_is_zero_and_aligned),
        cmocka_unit_test(arena__allocations_do_not_overlap),
        cmocka_unit_test(arena__a_product_that_overflows_is_refused),
        cmocka_unit_test(arena__an_empty_array_is_not_a_failure),
        cmocka_unit_test(arena__a_large_request_keeps_the_small_block),
        cmocka_unit_test(arena__strings_are_copied),
        cmocka_unit_test(arena_free__takes_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
