/* test_layout.c - what a target reads: the order of layers, inheritance, kernel_source, use, merged tables, hashes, reports. */
#include "closure/hash.h"
#include "closure/layout.h"
#include "closure/report.h"
#include "core/json.h"
#include "support/tree.h"

static Tree *read_clean(void)
{
    Tree *t = NULL;
    Err err;
    assert_int_equal(tree_read(&t, TREE, &err), ST_OK);
    for (size_t i = 0; i < t->faults.len; i++)
        print_message("%s:%u: %s\n", t->faults.items[i].file, t->faults.items[i].line, t->faults.items[i].what);
    assert_int_equal(t->faults.len, 0);
    return t;
}

static const TreeTarget *need(const Tree *t, const char *name)
{
    const TreeTarget *g = tree_target(t, name);
    assert_non_null(g);
    return g;
}

static const char *winner(const TreeTarget *g, const char *name)
{
    const TargetFile *f = target_file(g, name);
    return f ? f->file->file->path : "";
}

static void hex_of(const Tree *t, const char *name, char hex[33])
{
    Hash128 h;
    Err err;
    assert_int_equal(target_hash(t, need(t, name), &h, &err), ST_OK);
    hash_hex(h, hex);
}

static void layout__inheriting_class_has_its_parents_targets(void **state)
{
    (void)state;
    tree_plant();
    Tree *t = read_clean();
    assert_int_equal(t->n_targets, 2);
    const TreeTarget *g = need(t, "high/toy/any");
    assert_int_equal(g->n_layers, 2);
    assert_string_equal(g->layers[0]->path, "low/toy/any");
    assert_string_equal(g->layers[1]->path, "low/common");
    assert_string_equal(g->model_toml, "low/toy/MODEL.toml");
    assert_string_equal(g->cls->arch, "high");
    tree_free(t);
}

static void layout__own_tier_wins_over_parent_and_leaf_over_common(void **state)
{
    (void)state;
    tree_plant();
    static const char *const layers[] = {"high/toy/any", "high/common", "low/toy/any", "low/common"};
    /* f<i>.h lies in layers i and below */
    for (int i = 0; i < 4; i++) {
        char path[64], text[64], kernel_toml[256] = "[shadow]\n";
        for (int f = 0; f <= i; f++) {
            snprintf(path, sizeof path, "%s/f%d.h", layers[i], f);
            snprintf(text, sizeof text, "/* layer %d */\n", i);
            put(path, text);
            if (i < 3)
                snprintf(kernel_toml + strlen(kernel_toml), 64, "\"f%d.h\" = \"measured\"\n", f);
        }
        snprintf(path, sizeof path, "%s/KERNEL.toml", layers[i]);
        put(path, kernel_toml);
    }
    Tree *t = read_clean();
    const TreeTarget *g = need(t, "high/toy/any");
    assert_int_equal(g->n_layers, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(g->layers[i]->path, layers[i]);
    assert_string_equal(winner(g, "f0.h"), "high/toy/any/f0.h");
    assert_string_equal(winner(g, "f1.h"), "high/common/f1.h");
    assert_string_equal(winner(g, "f2.h"), "low/toy/any/f2.h");
    assert_string_equal(winner(g, "f3.h"), "low/common/f3.h");
    assert_string_equal(winner(need(t, "low/toy/any"), "f0.h"), "low/toy/any/f0.h");
    tree_free(t);
}

static void layout__child_may_override_a_models_manifest(void **state)
{
    (void)state;
    tree_plant();
    put("high/toy/MODEL.toml", MODEL_TOML "[sampling]\ntemperature = 0.5\n");
    Tree *t = read_clean();
    assert_string_equal(need(t, "high/toy/any")->model_toml, "high/toy/MODEL.toml");
    assert_string_equal(need(t, "low/toy/any")->model_toml, "low/toy/MODEL.toml");
    tree_free(t);
}

static void layout__kernel_source_reads_the_siblings_leaf(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy/any/own.h", "/* toy's */\n");
    put("low/twin/MODEL.toml", "[model]\nname = \"twin\"\nkernel_source = \"toy\"\n[match]\nmodel_type = \"toy\"\n");
    Tree *t = read_clean();
    assert_int_equal(t->n_targets, 4);
    const TreeTarget *g = need(t, "high/twin/any");
    assert_string_equal(winner(g, "own.h"), "low/toy/any/own.h");
    assert_string_equal(g->model_toml, "low/twin/MODEL.toml");
    tree_free(t);
}

static void layout__use_adds_a_file_or_a_directory_to_a_layer(void **state)
{
    (void)state;
    tree_plant();
    put("low/other/MODEL.toml", MODEL_TOML);
    put("low/other/any/KERNEL.toml", "# nothing\n");
    put("low/other/any/extra.c", "KERNEL(extra)\n{\n}\n");
    put("low/other/any/parts/a.h", "/* a */\n");
    put("low/other/any/parts/deep/b.h", "/* b */\n");
    put("low/toy/any/KERNEL.toml", "[sources]\nuse = [\"low/other/any/extra.c\", \"low/other/any/parts\"]\n");
    Tree *t = read_clean();
    const TreeTarget *g = need(t, "low/toy/any");
    assert_string_equal(winner(g, "extra.c"), "low/other/any/extra.c");
    assert_string_equal(winner(g, "a.h"), "low/other/any/parts/a.h");
    assert_string_equal(winner(g, "deep/b.h"), "low/other/any/parts/deep/b.h");
    assert_non_null(target_module(g, "extra"));
    assert_int_equal(target_file(g, "extra.c")->file->use_line, 2);
    tree_free(t);
}

static void layout__families_and_rules_merge_by_id(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/FAMILIES.toml", FAMILIES "[[family]]\nid = \"plain\"\n");
    put("low/common/RULES.toml", "[[rule]]\nid = \"r\"\nfamily = \"scale\"\n[[rule]]\nfamily = \"plain\"\n");
    put("high/common/FAMILIES.toml",
        "[[family]]\nid = \"scale\"\n[[family.point]]\nentry = \"scale\"\nmodule = \"scale\"\n"
        "constants = { B = 2, A = -1 }\n[[family]]\nid = \"new\"\n");
    put("high/common/RULES.toml", "[[rule]]\nid = \"r\"\nfamily = \"new\"\n");
    Tree *t = read_clean();
    const TreeTarget *g = need(t, "high/toy/any");
    assert_int_equal(g->n_families, 3);
    assert_string_equal(g->families[0]->path, "high/common/FAMILIES.toml");
    assert_string_equal(g->families[0]->points[0].constants, "A=-1 B=2");
    assert_int_equal(g->n_rules, 2);
    assert_string_equal(g->rules[0]->family, "new");
    assert_int_equal(need(t, "low/toy/any")->n_families, 2);
    tree_free(t);
}

static void layout__nearer_flags_come_later(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/KERNEL.toml", "[build]\nflags = [\"-O2\"]\n");
    put("low/toy/any/KERNEL.toml", "[build]\nflags = [\"-O3\"]\n");
    Tree *t = read_clean();
    static const char *const flags[] = {"-std=c17", "-O1", "-O2", "-O3"};
    for (size_t k = 0; k < t->n_targets; k++) { /* high has no flags of its own, and so has low's */
        assert_int_equal(t->targets[k].n_flags, 4);
        for (size_t i = 0; i < 4; i++)
            assert_string_equal(t->targets[k].flags[i], flags[i]);
    }
    tree_free(t);
}

static void layout__modules_choose_what_is_built(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/other.c", "KERNEL(other)\n{\n}\n");
    put("low/toy/any/KERNEL.toml", "[build]\nmodules = [\"other\"]\n");
    Tree *t = read_clean();
    const TreeTarget *g = need(t, "low/toy/any");
    assert_true(target_has_module(g, "other"));
    assert_false(target_has_module(g, "scale"));
    tree_free(t);
}

static void hash__changes_with_what_the_target_reads_and_only_then(void **state)
{
    char low[33], high[33], after[33];
    (void)state;
    tree_plant();
    put("low/lone/MODEL.toml", MODEL_TOML);
    put("low/lone/any/KERNEL.toml", "# nothing\n");
    Tree *t = read_clean();
    hex_of(t, "low/toy/any", low);
    hex_of(t, "high/toy/any", high);
    tree_free(t);
    assert_string_not_equal(low, high);

    put("low/lone/any/own.h", "/* of another target */\n");
    put("high/common/more.h", "/* of high */\n");
    t = read_clean();
    hex_of(t, "low/toy/any", after);
    assert_string_equal(after, low);
    hex_of(t, "high/toy/any", after);
    assert_string_not_equal(after, high);
    tree_free(t);

    static const char *const edits[][2] = {
        {"low/common/factor.h", "#define FACTOR 5.0f\n"}, {"low/toy/any/KERNEL.toml", "# another comment\n"},
        {"low/toy/MODEL.toml", MODEL_TOML "# more\n"},    {"low/common/FAMILIES.toml", FAMILIES "# more\n"},
        {"low/HARDWARE.toml", HARDWARE_TOML("low", "")},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        put(edits[i][0], edits[i][1]);
        t = read_clean();
        hex_of(t, "low/toy/any", after);
        assert_string_not_equal(after, low);
        memcpy(low, after, sizeof low);
        tree_free(t);
    }
}

static void hash__does_not_depend_on_where_the_tree_lies(void **state)
{
    char here[33], there[33];
    (void)state;
    tree_plant();
    Tree *t = read_clean();
    hex_of(t, "high/toy/any", here);
    tree_free(t);
    tree_clear("moved");
    assert_int_equal(rename(TREE, "moved"), 0);
    Err err;
    assert_int_equal(tree_read(&t, "moved/", &err), ST_OK);
    hex_of(t, "high/toy/any", there);
    assert_string_equal(here, there);
    tree_free(t);
}

static void report__why_names_the_layer_what_it_hides_and_the_reason(void **state)
{
    Str s = STR_INIT;
    Err err;
    (void)state;
    tree_plant();
    put("high/common/factor.h", "#define FACTOR 3.0f\n");
    put("high/common/KERNEL.toml", "[shadow]\n\"factor.h\" = \"three is faster: docs/perf.md\"\n");
    Tree *t = read_clean();
    assert_int_equal(report_why(t, need(t, "high/toy/any"), "factor", false, &s, &err), ST_OK);
    assert_non_null(strstr(str_c(&s), "factor.h comes from the layer tree/high/common"));
    assert_non_null(strstr(str_c(&s), "hides tree/low/common/factor.h"));
    assert_non_null(strstr(str_c(&s), "because three is faster: docs/perf.md"));
    str_clear(&s);
    assert_int_equal(report_why(t, need(t, "high/toy/any"), "factor.h", true, &s, &err), ST_OK);
    json_t *root = NULL;
    assert_int_equal(json_parse(s.p, s.len, "why", &root, &err), ST_OK);
    json_t *hidden = json_array_get(json_object_get(json_array_get(root, 0), "hides"), 0);
    assert_string_equal(json_string_value(json_object_get(hidden, "reason")), "three is faster: docs/perf.md");
    json_decref(root);
    assert_int_equal(report_why(t, need(t, "high/toy/any"), "gone", false, &s, &err), ST_NOTFOUND);
    assert_non_null(strstr(err.msg, "no layer of high/toy/any holds a file named 'gone'"));
    str_release(&s);
    tree_free(t);
}

static void report__list_show_and_faults_are_valid_json(void **state)
{
    Str s = STR_INIT;
    Err err;
    json_t *root = NULL;
    (void)state;
    tree_plant();
    put("low/toy/any/factor.h", "#define FACTOR 3.0f\n"); /* not declared */
    Tree *t = NULL;
    assert_int_equal(tree_read(&t, TREE, &err), ST_OK);
    assert_int_equal(report_list(t, true, &s, &err), ST_OK);
    assert_int_equal(json_parse(s.p, s.len, "list", &root, &err), ST_OK);
    assert_int_equal(json_array_size(root), 2);
    json_decref(root);
    str_clear(&s);
    assert_int_equal(report_target(t, need(t, "low/toy/any"), true, &s, &err), ST_OK);
    assert_int_equal(json_parse(s.p, s.len, "show", &root, &err), ST_OK);
    assert_int_equal(json_array_size(json_object_get(root, "layers")), 2);
    assert_int_equal(json_array_size(json_object_get(root, "points")), 1);
    json_decref(root);
    str_clear(&s);
    assert_int_equal(report_faults(t, true, &s, &err), ST_OK);
    assert_int_equal(json_parse(s.p, s.len, "check", &root, &err), ST_OK);
    assert_int_equal(json_array_size(root), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(root, 0), "line")), 1);
    json_decref(root);
    str_clear(&s);
    assert_int_equal(report_faults(t, false, &s, &err), ST_OK);
    assert_true(str_starts(str_c(&s), "tree/low/toy/any/factor.h:1: undeclared shadow of low/common/factor.h: add "));
    str_release(&s);
    tree_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout__inheriting_class_has_its_parents_targets),
        cmocka_unit_test(layout__own_tier_wins_over_parent_and_leaf_over_common),
        cmocka_unit_test(layout__child_may_override_a_models_manifest),
        cmocka_unit_test(layout__kernel_source_reads_the_siblings_leaf),
        cmocka_unit_test(layout__use_adds_a_file_or_a_directory_to_a_layer),
        cmocka_unit_test(layout__families_and_rules_merge_by_id),
        cmocka_unit_test(layout__nearer_flags_come_later),
        cmocka_unit_test(layout__modules_choose_what_is_built),
        cmocka_unit_test(hash__changes_with_what_the_target_reads_and_only_then),
        cmocka_unit_test(hash__does_not_depend_on_where_the_tree_lies),
        cmocka_unit_test(report__why_names_the_layer_what_it_hides_and_the_reason),
        cmocka_unit_test(report__list_show_and_faults_are_valid_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
