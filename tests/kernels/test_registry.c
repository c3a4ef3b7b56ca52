/* test_registry.c - look-ups, on a registry written here and on the one that the build made. */
#include "kernels/registry.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const EmbeddedFile files[] = {
    {"a.toml", "1", 1}, {"b/a.toml", "2", 1}, {"b/b.toml", "3", 1}, {"c.toml", "4", 1}};
static const KernelObject objects[] = {
    {.entry = "one", .constants = ""},
    {.entry = "two", .constants = "A=1"},
    {.entry = "two", .constants = "A=2"},
};
static const KernelTarget targets[] = {
    {.name = "low/toy/any", .objects = objects, .n_objects = 3},
    {.name = "low/toy/q4"},
};
static const KernelRegistry small = {targets, 2, files, 4, NULL};

static void registry__finds_every_file_and_no_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_ptr_equal(registry_file(&small, files[i].path), &files[i]);
    static const char *const absent[] = {"", "a", "a.tom", "a.toml2", "b", "b/aa.toml", "d.toml"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        assert_null(registry_file(&small, absent[i]));
    const KernelRegistry empty = {0};
    assert_null(registry_file(&empty, "a.toml"));
}

static void registry__finds_targets_by_their_whole_name(void **state)
{
    (void)state;
    assert_ptr_equal(registry_target(&small, "low/toy/q4"), &targets[1]);
    assert_null(registry_target(&small, "low/toy"));
}

static void registry__entry_and_constants_name_an_object(void **state)
{
    (void)state;
    assert_ptr_equal(target_object(&targets[0], "two", "A=2"), &objects[2]);
    assert_ptr_equal(target_object(&targets[0], "one", ""), &objects[0]);
    assert_null(target_object(&targets[0], "two", ""));
    assert_null(target_object(&targets[1], "one", ""));
}

static void registry__the_built_one_is_sorted_and_whole(void **state)
{
    const KernelRegistry *r = &metrale_registry;
    (void)state;
    assert_true(r->n_files > 0);
    for (size_t i = 0; i < r->n_files; i++) {
        assert_int_equal(strlen(r->files[i].text), r->files[i].len);
        assert_true(i == 0 || strcmp(r->files[i - 1].path, r->files[i].path) < 0);
    }
    for (size_t i = 0; i < r->n_targets; i++) {
        const KernelTarget *t = &r->targets[i];
        assert_true(t->n_layers > 0);
        assert_int_equal(strlen(t->hash), 32);
        for (size_t j = 0; j < t->n_objects; j++)
            assert_true((t->objects[j].fn != NULL) != (t->objects[j].image != NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registry__finds_every_file_and_no_other),
        cmocka_unit_test(registry__finds_targets_by_their_whole_name),
        cmocka_unit_test(registry__entry_and_constants_name_an_object),
        cmocka_unit_test(registry__the_built_one_is_sorted_and_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
