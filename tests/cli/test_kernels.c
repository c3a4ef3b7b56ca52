/* test_kernels.c - `metrale kernels` as it is typed: its output, its exit status. */
#include "cli/cli.h"
#include "core/json.h"
#include "kernels/registry.h"
#include "support/tree.h"

/* Runs the command with stdout and stderr in files; the texts stay until the next call. */
static char out_text[1 << 20], err_text[4096];

static void read_back(FILE *f, char *text, size_t size)
{
    rewind(f);
    text[fread(text, 1, size - 1, f)] = '\0';
    fclose(f);
}

static int run(int argc, const char *const *args)
{
    char *argv[8] = {(char[]){"metrale kernels"}};
    FILE *out = tmpfile(), *err = tmpfile();
    int kept_out = dup(1), kept_err = dup(2);
    for (int i = 0; i < argc; i++)
        argv[i + 1] = strdup(args[i]);
    fflush(stdout);
    dup2(fileno(out), 1);
    dup2(fileno(err), 2);
    int code = cmd_kernels(argc + 1, argv);
    fflush(stdout);
    fflush(stderr);
    dup2(kept_out, 1);
    dup2(kept_err, 2);
    close(kept_out);
    close(kept_err);
    read_back(out, out_text, sizeof out_text);
    read_back(err, err_text, sizeof err_text);
    for (int i = 0; i < argc; i++)
        free(argv[i + 1]);
    return code;
}
#define RUN(...) run(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

static bool said(const char *words)
{
    return strstr(out_text, words) != NULL;
}

static void kernels__list_without_a_tree_is_the_registry(void **state)
{
    json_t *root = NULL;
    Err err;
    (void)state;
    assert_int_equal(RUN("list"), 0);
    for (size_t i = 0; i < metrale_registry.n_targets; i++)
        assert_true(said(metrale_registry.targets[i].name));
    assert_int_equal(RUN("list", "--json"), 0);
    assert_int_equal(json_parse(out_text, strlen(out_text), "list", &root, &err), ST_OK);
    assert_int_equal(json_array_size(root), metrale_registry.n_targets);
    json_decref(root);
}

static void kernels__list_and_show_read_another_tree(void **state)
{
    (void)state;
    tree_plant();
    assert_int_equal(RUN("list", "--tree", TREE), 0);
    assert_true(said("high/toy/any"));
    assert_int_equal(RUN("show", "high/toy/any", "--tree", TREE), 0);
    assert_true(said("tree/low/common/scale.c"));
}

static void kernels__show_without_a_tree_is_the_registry(void **state)
{
    (void)state;
    if (!metrale_registry.n_targets) {
        print_message("SKIP: no kernel is built into this binary\n");
        skip();
    }
    assert_int_equal(RUN("show", metrale_registry.targets[0].name), 0);
    assert_true(said(metrale_registry.targets[0].layers[0]));
    assert_true(said(metrale_registry.targets[0].hash));
}

static void kernels__check_exits_1_with_a_line_for_each_fault(void **state)
{
    (void)state;
    tree_plant();
    assert_int_equal(RUN("check", "--tree", TREE), 0);
    assert_true(said("2 targets in 2 classes, no faults"));
    put("high/common/factor.h", "#define FACTOR 3.0f\n");
    put("low/common/RULES.toml", "[[rule]]\nfamily = \"scail\"\n");
    assert_int_equal(RUN("check", "--tree", TREE), 1);
    assert_true(said("tree/high/common/factor.h:1: undeclared shadow of low/common/factor.h: add "));
    assert_true(said("\ntree/low/common/RULES.toml:1: a rule names the unknown family 'scail': name "));
    assert_int_equal(RUN("check", "--tree", TREE, "--json"), 1);
    assert_true(said("\"line\": 1"));
}

static void kernels__why_tells_the_reason(void **state)
{
    (void)state;
    tree_plant();
    put("high/common/factor.h", "#define FACTOR 3.0f\n");
    put("high/common/KERNEL.toml", "[shadow]\n\"factor.h\" = \"three: docs/perf.md\"\n");
    assert_int_equal(RUN("why", "high/toy/any", "factor", "--tree", TREE), 0);
    assert_true(said("because three: docs/perf.md"));
    assert_int_equal(RUN("why", "high/toy/any", "gone", "--tree", TREE), 2);
    assert_non_null(strstr(err_text, "no layer of high/toy/any holds a file named 'gone'"));
}

static void kernels__bad_input_is_one_sentence_and_exit_2(void **state)
{
    (void)state;
    tree_plant();
    assert_int_equal(RUN("show", "no/such/target", "--tree", TREE), 2);
    assert_non_null(strstr(err_text, "tree has no target 'no/such/target'"));
    assert_int_equal(RUN("check", "--tree", "nowhere"), 2);
    assert_non_null(strstr(err_text, "nowhere is no directory"));
    assert_int_equal(RUN("check"), 2); /* there is no ./kernels here */
    assert_non_null(strstr(err_text, "name one with --tree DIR"));
    assert_int_equal(RUN("show", "no/such/target"), 2);
    assert_non_null(strstr(err_text, "is built into this binary"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels__list_without_a_tree_is_the_registry),
        cmocka_unit_test(kernels__list_and_show_read_another_tree),
        cmocka_unit_test(kernels__show_without_a_tree_is_the_registry),
        cmocka_unit_test(kernels__check_exits_1_with_a_line_for_each_fault),
        cmocka_unit_test(kernels__why_tells_the_reason),
        cmocka_unit_test(kernels__bad_input_is_one_sentence_and_exit_2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
