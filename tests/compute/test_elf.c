/* test_elf.c - symbol tables of real objects, and of broken ones. */
#include "compute/elf.h"
#include "compute/process.h"
#include "core/file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *object;
static size_t object_len;

static int compile_object(void **state)
{
    static const char text[] =
        "extern int elsewhere(void);\nint table[4];\nstatic int hidden(void) { return 1; }\n"
        "int shown(void) { return elsewhere() + hidden() + table[0]; }\nint second(void) { return 2; }\n";
    const char *const argv[] = {"cc", "-O0", "-c", "object.c", "-o", "object.o", NULL};
    Process p = {.argv = argv};
    Err err;
    (void)state;
    if (file_write("object.c", text, sizeof text - 1, &err) != ST_OK || process_run(&p, 1, 1, &err) != ST_OK || p.code)
        return -1;
    str_release(&p.output);
    return file_read("object.o", 1 << 20, &object, &object_len, &err) == ST_OK ? 0 : -1;
}

static int free_object(void **state)
{
    (void)state;
    free(object);
    return 0;
}

static bool has(const char *symbol)
{
    bool found;
    Err err;
    assert_int_equal(elf_has_function(object, object_len, "object.o", symbol, &found, &err), ST_OK);
    return found;
}

static void elf__lists_defined_global_functions_alone(void **state)
{
    (void)state;
    assert_true(has("shown"));
    assert_true(has("second"));
    assert_false(has("hidden"));
    assert_false(has("elsewhere"));
    assert_false(has("table"));
    assert_false(has("show"));
}

static void elf__other_bytes_are_refused_by_name(void **state)
{
    bool found;
    Err err;
    (void)state;
    assert_int_equal(elf_has_function("", 0, "empty.o", "x", &found, &err), ST_FORMAT);
    assert_non_null(strstr(err.msg, "empty.o is no 64-bit ELF file"));
}

/* Any prefix, and any byte changed, is answered or refused: never a read outside the bytes (the sanitizer would tell). */
static void elf__broken_files_are_answered_or_refused(void **state)
{
    bool found;
    Err err;
    (void)state;
    for (size_t n = 0; n < object_len; n++) {
        char *cut = malloc(n ? n : 1);
        memcpy(cut, object, n);
        elf_has_function(cut, n, "cut.o", "shown", &found, &err);
        free(cut);
    }
    for (size_t i = 0; i < object_len; i++) {
        char kept = object[i];
        static const char values[] = {0, 1, 127, -1};
        for (size_t v = 0; v < sizeof values; v++) {
            object[i] = values[v];
            elf_has_function(object, object_len, "changed.o", "shown", &found, &err);
        }
        object[i] = kept;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elf__lists_defined_global_functions_alone),
        cmocka_unit_test(elf__other_bytes_are_refused_by_name),
        cmocka_unit_test(elf__broken_files_are_answered_or_refused),
    };
    return cmocka_run_group_tests(tests, compile_object, free_object);
}
