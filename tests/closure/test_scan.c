/* test_scan.c - entry points and includes, read without a compiler. */
#include "closure/scan.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static NameList scan(bool (*f)(const char *, size_t, Arena *, NameList *), const char *text, Arena *a)
{
    NameList l = {0};
    assert_true(f(text, strlen(text), a, &l));
    return l;
}

static void expect_entries(const char *text, const char *const *names, size_t n)
{
    Arena *a = arena_new();
    NameList l = scan(scan_entries, text, a);
    assert_int_equal(l.len, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(l.items[i], names[i]);
    arena_free(a);
}
#define ENTRIES(text, ...)                                                                                             \
    expect_entries(text, (const char *const[]){__VA_ARGS__},                                                           \
                   sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void scan__finds_cpu_kernels_at_file_scope(void **state)
{
    (void)state;
    ENTRIES("KERNEL(a)\n{\n}\n KERNEL ( b ) {}", "a", "b");
}

static void scan__sees_macros_that_define_kernels(void **state)
{
    (void)state;
    ENTRIES("#define ROWS(name, n) KERNEL(name) { body(n); }\nROWS(rows_1, 1)\nROWS(rows_8, 8)\n", "rows_1", "rows_8");
}

static void scan__skips_comments_strings_directives_and_bodies(void **state)
{
    (void)state;
    ENTRIES("/* KERNEL(x) */ // KERNEL(y)\n#define K KERNEL(z) \\\n KERNEL(w)\nKERNEL(a)\n{\n  CALL(inner);\n  s = "
            "\"KERNEL(t)\";\n"
            "  c = '\"';\n}\nKERNEL(b) {}",
            "a", "b");
}

static void scan__finds_cuda_kernels_behind_their_attributes(void **state)
{
    (void)state;
    ENTRIES("extern \"C\" __global__ void __launch_bounds__(256, MIN(1, 2)) one(int *p)\n{\n}\n"
            "template <int N> __global__ void two(float x) {}\n"
            "extern \"C\" {\n__global__ static void three() {}\n}\nKERNEL(four) {}",
            "one", "two", "three", "four");
}

static void scan__survives_text_that_ends_anywhere(void **state)
{
    static const char text[] =
        "extern \"C\" __global__ void __launch_bounds__(2) f(int a) { /* x */ \"s\\\" } KERNEL(g)\n#define X \\\n";
    (void)state;
    for (size_t n = 0; n <= sizeof text - 1; n++) {
        char copy[sizeof text];
        Arena *a = arena_new();
        NameList l = {0};
        memcpy(copy, text, n);
        assert_true(scan_entries(copy, n, a, &l));
        assert_true(scan_includes(copy, n, a, &l));
        arena_free(a);
    }
}

static void scan__lists_each_include_once(void **state)
{
    Arena *a = arena_new();
    (void)state;
    NameList l = scan(
        scan_includes,
        "#include \"a.h\"\n  #  include <b/c.h>\n#include \"a.h\"\n#include MACRO\nint include;\n#include \"open\n", a);
    assert_int_equal(l.len, 2);
    assert_string_equal(l.items[0], "a.h");
    assert_string_equal(l.items[1], "b/c.h");
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scan__finds_cpu_kernels_at_file_scope),
        cmocka_unit_test(scan__sees_macros_that_define_kernels),
        cmocka_unit_test(scan__skips_comments_strings_directives_and_bodies),
        cmocka_unit_test(scan__finds_cuda_kernels_behind_their_attributes),
        cmocka_unit_test(scan__survives_text_that_ends_anywhere),
        cmocka_unit_test(scan__lists_each_include_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
