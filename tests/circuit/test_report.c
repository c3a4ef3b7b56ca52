/* Reports on classes and models, over small kernel trees made by hand. */
#include "circuit/report.h"
#include "lower_fixture.h"

#define CHILD_CPU                                                                                                      \
    "[hardware]\nname = \"cpu2\"\nvendor = \"cpu\"\narch = \"more\"\ninherits = \"cpu1\"\nbandwidth = 25\n"            \
    "activation = \"f32\"\n"
#define MODEL_SMALL "[model]\nname = \"small\"\n[match]\nmodel_type = \"small\"\n"
#define F_NORM_G                                                                                                       \
    FAMILY("norm_g", "rms_norm", "",                                                                                   \
           "\"y:out\", \"x:in\", \"w:weight\", \"rows\", \"width:in.width\", \"eps\", \"offset\"")                     \
    "[[family.point]]\nentry = \"norm_2\"\nmodule = \"m\"\nrows = [1, 0]\ngrid = [\"rows\", \"1\", \"1\"]\nblock = "   \
    "1\n"                                                                                                              \
    "evidence = \"r1\"\n"

/* A tree of the class cpu1 with the families; a target for the model "small" unless told otherwise. */
static Kernels *tree(const char *families, const char *rules, bool target)
{
    Kernels *k = fix_cpu(families, rules);

    if (target) {
        fix_file(k, "kernels/cpu1/small/MODEL.toml", MODEL_SMALL);
        fix_file(k, "kernels/cpu1/small/any/KERNEL.toml", "# nothing\n");
    }
    return k;
}

static Classes *classes(const Kernels *k)
{
    const KernelRegistry described = {.files = k->files, .n_files = k->reg.n_files};
    Classes *c = NULL;
    Err err = {{0}};

    if (classes_new(&c, &described, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return c;
}

static const ReportClass *class_of(const Classes *c, const char *name)
{
    const ReportClass *hw = NULL;
    Err err;

    if (classes_find(c, name, &hw, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return hw;
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* A list of strings with blanks between them. */
static const char *joined(const json_t *list)
{
    static char s[1024];
    size_t i;
    const json_t *item;

    s[0] = '\0';
    json_array_foreach(list, i, item)
        snprintf(s + strlen(s), sizeof s - strlen(s), "%s%s", i ? " " : "", json_string_value(item));
    return s;
}

static bool says(void (*write)(const json_t *, Str *), const json_t *report, const char *words)
{
    Str s = STR_INIT;

    write(report, &s);
    bool found = strstr(str_c(&s), words) != NULL;
    if (!found)
        print_message("no \"%s\" in:\n%s", words, str_c(&s));
    str_release(&s);
    return found;
}

static json_t *gap(const Classes *c, const Model *m, bool *open)
{
    const StepShape shapes[] = {fix_decode(1).shape, fix_decode(4).shape, fix_extend(8).shape};
    const ReportNeed need = {.in = &m->in, .shapes = shapes, .n_shapes = 3, .batch_invariant = true};
    json_t *j = NULL;
    Err err = {{0}};

    if (report_gap(&j, open, c, class_of(c, "cpu1"), &need, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return j;
}

/* ---- gap --------------------------------------------------------------------------------------------------------- */

static void gap__lists_each_op_that_nothing_covers_with_all_its_rows_shapes_and_nodes(void **state)
{
    Kernels *k = tree(F_EMBED F_NORM("") F_ADD(INPLACE) F_SILU F_QUANT F_KV F_LINEAR F_HEAD, NULL, true);
    Classes *c = classes(k);
    Model *m = fix_model(DT_Q4_1, DT_F32);
    bool open = false;
    json_t *j = gap(c, m, &open), *missing = json_object_get(j, "missing");

    (void)state;
    assert_true(open);
    assert_string_equal(text(j, "target"), "cpu1/small/any");
    assert_int_equal(json_array_size(missing), 2);
    assert_string_equal(text(json_array_get(missing, 0), "op"), "rope");
    assert_string_equal(text(json_array_get(missing, 1), "op"), "paged_attention");
    assert_string_equal(text(json_array_get(missing, 1), "formats"), "in f32, state f32, out f32");
    assert_string_equal(joined(json_object_get(json_array_get(missing, 1), "rows")), "1 3..4 1..8");
    assert_string_equal(joined(json_object_get(json_array_get(missing, 1), "shapes")), "64");
    assert_string_equal(joined(json_object_get(json_array_get(missing, 1), "nodes")), "full.attn");
    assert_true(says(report_gap_text, j, "not in this binary"));
    assert_true(says(report_gap_text, j, "\npaged_attention      in f32, state f32, out f32"));
    json_decref(j);
    free(m);
    classes_free(c);
    fix_kernels_free(k);
}

static void gap__sees_rows_that_no_point_holds_and_formats_that_no_family_reads(void **state)
{
#define F_SILU_1                                                                                                       \
    FAMILY("silu_f", "silu_mul", "", "\"y:out\", \"g:in0\", \"u:in1\", \"rows\", \"width:in0.width\"")                 \
    POINT("silu_1", "[1, 4]", "rows")
    Kernels *k =
        tree(F_EMBED F_NORM("") F_ADD(INPLACE) F_SILU_1 F_QUANT F_ROPE F_KV F_ATTN F_LINEAR F_HEAD, NULL, true);
    Classes *c = classes(k);
    Model *m = fix_model(DT_Q4_1, DT_BF16);
    bool open = false;
    json_t *j = gap(c, m, &open), *missing = json_object_get(j, "missing");

    (void)state;
    assert_true(open);
    assert_int_equal(json_array_size(missing), 3);
    assert_string_equal(text(json_array_get(missing, 0), "formats"), "in f32, in f32, state bf16");
    assert_string_equal(text(json_array_get(missing, 1), "formats"), "in f32, state bf16, out f32");
    assert_string_equal(text(json_array_get(missing, 2), "op"), "silu_mul");
    assert_string_equal(joined(json_object_get(json_array_get(missing, 2), "rows")), "1..8");
    json_decref(j);
    free(m);
    classes_free(c);
    fix_kernels_free(k);
}

/* gate and up each have a family with silu_mul in it, and none alone: each node has a match, and all together have
 * none. */
#define F_LINEAR_RULED(id, args)                                                                                       \
    "[[family]]\nid = \"" id                                                                                           \
    "\"\nformats = { \"l.weight\" = \"q4_1\" }\nlayout = \"n16\"\nargs = [\"y\", \"x\", " args                         \
    "\"w:l.weight\", \"rows\"]\nnumerics = \"f32\"\n" POINT(id "_1", "[1, 0]", "rows")
#define R_LINEAR(id, family, role, more)                                                                               \
    "[[rule]]\nid = \"" id "\"\nfamily = \"" family "\"\npattern = [" more "]\nwhere = { \"l.role\" = \"" role         \
    "\" }\nnumerics = { kind = \"reference\" }\n"
#define R_ALONE(role)                                                                                                  \
    R_LINEAR("alone_" role, "alone", role, "{ op = \"linear\", as = \"l\", in = [\"x\"], out = [\"y\"] }")
#define R_WITH_SILU(role, in)                                                                                          \
    R_LINEAR(role "_silu", role "_silu", role,                                                                         \
             "{ op = \"linear\", as = \"l\", in = [\"x\"], out = [\"p\"] }, "                                          \
             "{ op = \"silu_mul\", as = \"s\", in = [" in "], out = [\"y\"] }")

static void gap__says_where_each_op_is_covered_but_not_all_together(void **state)
{
    Kernels *k = tree(F_EMBED F_NORM("") F_ADD(INPLACE) F_QUANT F_ROPE F_KV F_ATTN F_HEAD F_LINEAR_RULED("alone", "")
                          F_LINEAR_RULED("gate_silu", "\"u\", ") F_LINEAR_RULED("up_silu", "\"g\", "),
                      R_ALONE("q") R_ALONE("k") R_ALONE("v") R_ALONE("o") R_ALONE("down")
                          R_WITH_SILU("gate", "\"p\", \"u\"") R_WITH_SILU("up", "\"g\", \"p\""),
                      true);
    Classes *c = classes(k);
    Model *m = fix_model(DT_Q4_1, DT_F32);
    bool open = false;
    json_t *j = gap(c, m, &open);

    (void)state;
    assert_true(open);
    assert_int_equal(json_array_size(json_object_get(j, "missing")), 0);
    assert_int_equal(json_array_size(json_object_get(j, "no_common_cover")), 3); /* of the layer, in each shape */
    assert_true(says(report_gap_text, j, "cover each op of block full, but none of their choices"));
    json_decref(j);
    free(m);
    classes_free(c);
    fix_kernels_free(k);
}

static void gap__a_class_that_covers_everything_is_closed(void **state)
{
    Kernels *k = tree(F_ALL, NULL, true);
    Classes *c = classes(k);
    Model *m = fix_model(DT_Q4_1, DT_F32);
    bool open = true;
    json_t *j = gap(c, m, &open);

    (void)state;
    assert_false(open);
    assert_int_equal(json_array_size(json_object_get(j, "missing")), 0);
    assert_true(says(report_gap_text, j, "every op has a family\n"));
    json_decref(j);
    free(m);
    classes_free(c);
    fix_kernels_free(k);
}

static void gap__without_a_target_asks_what_the_class_has_in_common(void **state)
{
    Kernels *k = tree(F_ALL, NULL, false);
    Classes *c = classes(k);
    Model *m = fix_model(DT_Q4_1, DT_F32);
    bool open = false;
    json_t *j = gap(c, m, &open);

    (void)state;
    assert_true(open); /* a directory with a MODEL.toml is missing */
    assert_string_equal(text(j, "target"), "");
    assert_string_equal(text(j, "no_target"), "no target of class cpu1 serves model_type 'small'");
    assert_int_equal(json_array_size(json_object_get(j, "missing")), 0);
    json_decref(j);
    free(m);
    classes_free(c);
    fix_kernels_free(k);
}

/* ---- classes, venn, lkb ------------------------------------------------------------------------------------------ */

/* cpu2 inherits cpu1, has norm_f anew and norm_g beside it, and shadows two files. */
static Kernels *two_classes(void)
{
    Kernels *k = tree(F_ALL, NULL, true);

    fix_file(k, "kernels/cpu2/HARDWARE.toml", CHILD_CPU);
    fix_file(k, "kernels/cpu2/common/FAMILIES.toml", F_NORM("") F_NORM_G);
    fix_file(k, "kernels/cpu2/common/KERNEL.toml", "[shadow]\n\"a.h\" = \"faster: r1\"\n\"b.c\" = \"faster: r2\"\n");
    return k;
}

static void classes__a_child_has_its_parents_targets_and_families_less_what_it_overrides(void **state)
{
    Kernels *k = two_classes();
    Classes *c = classes(k);
    const ReportClass *child = class_of(c, "cpu2");
    const ReportClass *none = NULL;
    Err err = {{0}};

    (void)state;
    assert_int_equal(c->n_classes, 2);
    assert_int_equal(class_of(c, "cpu1")->n_families, 10);
    assert_int_equal(child->n_families, 11);
    assert_string_equal(child->inherits, "cpu1");
    assert_int_equal(child->residual, 2);
    assert_false(child->built);
    assert_non_null(registry_target(&c->reg, "cpu2/small/any"));
    assert_int_equal(registry_target(&c->reg, "cpu2/small/any")->n_layers, 3);
    assert_int_equal(classes_find(c, "cpu3", &none, &err), ST_INVALID);
    assert_string_equal(err.msg, "\"cpu3\" is no hardware class; there are cpu1, cpu2");
    classes_free(c);
    fix_kernels_free(k);
}

static void classes__a_model_may_take_its_leaf_from_a_sibling(void **state)
{
    Kernels *k = tree(F_ALL, NULL, true);

    (void)state;
    fix_file(k, "kernels/cpu1/other/MODEL.toml",
             "[model]\nname = \"other\"\nkernel_source = \"small\"\n[match]\nmodel_type = \"other\"\n");
    Classes *c = classes(k);
    const KernelTarget *t = registry_target(&c->reg, "cpu1/other/any");
    assert_non_null(t);
    assert_string_equal(t->layers[0], "kernels/cpu1/small/any");
    classes_free(c);
    fix_kernels_free(k);
}

static void venn__tells_shared_definitions_from_families_of_one_name(void **state)
{
    Kernels *k = two_classes();
    Classes *c = classes(k);
    const ReportClass *hw[] = {class_of(c, "cpu1"), class_of(c, "cpu2")};
    json_t *j = NULL, *groups, *g;
    Err err = {{0}};

    (void)state;
    if (report_venn(&j, c, hw, 2, NULL, &err) != ST_OK)
        fail_msg("%s", err.msg);
    groups = json_object_get(j, "groups");
    assert_int_equal(json_array_size(groups), 3);
    g = json_array_get(groups, 0);
    assert_string_equal(joined(json_object_get(g, "classes")), "cpu1 cpu2");
    assert_true(json_is_true(json_object_get(g, "one_definition")));
    assert_int_equal(json_array_size(json_object_get(g, "families")), 9);
    g = json_array_get(groups, 1);
    assert_false(json_is_true(json_object_get(g, "one_definition")));
    assert_string_equal(text(json_array_get(json_object_get(g, "families"), 0), "family"), "norm_f");
    g = json_array_get(groups, 2);
    assert_string_equal(joined(json_object_get(g, "classes")), "cpu2");
    assert_string_equal(text(json_array_get(json_object_get(g, "families"), 0), "family"), "norm_g");
    assert_true(says(report_venn_text, j, "\nonly cpu2: 1\n  norm_g"));
    json_decref(j);
    classes_free(c);
    fix_kernels_free(k);
}

static void venn__of_a_model_has_only_what_can_cover_some_of_it(void **state)
{
    Kernels *k = two_classes();
    Classes *c = classes(k);
    Model *m = fix_model(DT_F32, DT_F32); /* no family reads its matrices */
    const ReportClass *hw[] = {class_of(c, "cpu1"), class_of(c, "cpu2")};
    const StepShape shape = fix_decode(1).shape;
    const ReportNeed need = {.in = &m->in, .shapes = &shape, .n_shapes = 1};
    json_t *j = NULL;
    Err err = {{0}};

    (void)state;
    if (report_venn(&j, c, hw, 2, &need, &err) != ST_OK)
        fail_msg("%s", err.msg);
    /* add, silu, rope, kv, attn, norm_f; the other class has norm_g, too */
    assert_int_equal(json_integer_value(json_object_get(json_array_get(json_object_get(j, "classes"), 0), "families")),
                     6);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(json_object_get(j, "classes"), 1), "families")),
                     7);
    json_decref(j);
    free(m);
    classes_free(c);
    fix_kernels_free(k);
}

static void lkb__counts_points_measurements_and_what_is_not_shared(void **state)
{
    Kernels *k = two_classes();
    Classes *c = classes(k);
    const ReportLines lines[] = {{"cpu2", 77}};
    json_t *j = NULL, *cls;
    Err err = {{0}};

    (void)state;
    if (report_lkb(&j, c, class_of(c, "cpu2"), lines, 1, &err) != ST_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(json_array_size(json_object_get(j, "classes")), 1);
    cls = json_array_get(json_object_get(j, "classes"), 0);
    assert_int_equal(json_integer_value(json_object_get(cls, "families")), 11);
    assert_int_equal(json_integer_value(json_object_get(cls, "own_families")), 2);
    assert_int_equal(json_integer_value(json_object_get(cls, "points")), 12); /* linear has two */
    assert_int_equal(json_integer_value(json_object_get(cls, "measured_points")), 1);
    assert_int_equal(json_integer_value(json_object_get(cls, "residual_files")), 2);
    assert_int_equal(json_integer_value(json_object_get(cls, "residual_lines")), 77);
    assert_string_equal(text(json_array_get(json_object_get(j, "families"), 0), "ops"), "embed");
    json_decref(j);
    assert_int_equal(report_lkb(&j, c, NULL, NULL, 0, &err), ST_OK);
    assert_int_equal(json_array_size(json_object_get(j, "classes")), 2);
    /* One line for each definition: ten of cpu1, and two of cpu2. */
    assert_int_equal(json_array_size(json_object_get(j, "families")), 12);
    assert_true(json_is_null(json_object_get(json_array_get(json_object_get(j, "classes"), 1), "residual_lines")));
    assert_true(says(report_lkb_text, j, "cpu2       cpu      more         cpu1"));
    json_decref(j);
    classes_free(c);
    fix_kernels_free(k);
}

/* ---- precision --------------------------------------------------------------------------------------------------- */

static bool twice(const InstanceWeight *w, const char *layout, uint64_t *bytes)
{
    *bytes = 2 * w->n * w->k;
    return layout != NULL;
}

static void precision__has_a_line_for_each_kind_of_weight_over_all_layers(void **state)
{
    Kernels *k = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k);
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Plan *p = fix_lower(&m->in, fs, fix_decode(1));
    json_t *j = NULL, *w, *list;
    Err err = {{0}};

    (void)state;
    if (report_precision(&j, p, twice, &err) != ST_OK)
        fail_msg("%s", err.msg);
    list = json_object_get(j, "weights");
    assert_int_equal(json_array_size(list), 1 + 9 + 2);
    assert_true(json_is_true(json_object_get(j, "tied_head")));
    w = json_array_get(list, 0);
    assert_string_equal(text(w, "activations"), "i32"); /* token ids */
    w = json_array_get(list, 2);
    assert_string_equal(text(w, "weight"), "q");
    assert_string_equal(text(w, "stored"), "q4_1");
    assert_string_equal(text(w, "layout"), "n16");
    assert_string_equal(text(w, "activations"), "i8/32");
    assert_string_equal(text(w, "accumulates"), "f32");
    assert_int_equal(json_integer_value(json_object_get(w, "count")), LAYERS);
    assert_int_equal(json_integer_value(json_object_get(w, "stored_bytes")), LAYERS * 64 * 64 / 32 * 20);
    assert_int_equal(json_integer_value(json_object_get(w, "device_bytes")), LAYERS * 2 * 64 * 64);
    assert_true(says(report_precision_text, j, "\nq                      3 q4_1     q4_1 n16     i8/32"));
    json_decref(j);
    plan_free(p);
    free(m);
    families_free(fs);
    fix_kernels_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gap__lists_each_op_that_nothing_covers_with_all_its_rows_shapes_and_nodes),
        cmocka_unit_test(gap__sees_rows_that_no_point_holds_and_formats_that_no_family_reads),
        cmocka_unit_test(gap__says_where_each_op_is_covered_but_not_all_together),
        cmocka_unit_test(gap__a_class_that_covers_everything_is_closed),
        cmocka_unit_test(gap__without_a_target_asks_what_the_class_has_in_common),
        cmocka_unit_test(classes__a_child_has_its_parents_targets_and_families_less_what_it_overrides),
        cmocka_unit_test(classes__a_model_may_take_its_leaf_from_a_sibling),
        cmocka_unit_test(venn__tells_shared_definitions_from_families_of_one_name),
        cmocka_unit_test(venn__of_a_model_has_only_what_can_cover_some_of_it),
        cmocka_unit_test(lkb__counts_points_measurements_and_what_is_not_shared),
        cmocka_unit_test(precision__has_a_line_for_each_kind_of_weight_over_all_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
