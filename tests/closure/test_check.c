/* test_check.c - every way in which a kernel tree can be wrong: one test each, holding the fault's file, line and remedy. */
#include "closure/layout.h"
#include "support/tree.h"

/* The tree has this fault, and no other. */
static void expect_fault(const char *file, uint32_t line, const char *what, const char *remedy)
{
    Tree *t = NULL;
    Err err;
    assert_int_equal(tree_read(&t, TREE, &err), ST_OK);
    for (size_t i = 0; t->faults.len != 1 && i < t->faults.len; i++)
        print_message("%s:%u: %s: %s\n", t->faults.items[i].file, t->faults.items[i].line, t->faults.items[i].what,
                      t->faults.items[i].remedy);
    assert_int_equal(t->faults.len, 1);
    const Fault *f = &t->faults.items[0];
    assert_string_equal(f->file, file);
    assert_int_equal(f->line, line);
    assert_non_null(strstr(f->what, what));
    assert_non_null(strstr(f->remedy, remedy));
    tree_free(t);
}

static void expect_no_fault(void)
{
    Tree *t = NULL;
    Err err;
    assert_int_equal(tree_read(&t, TREE, &err), ST_OK);
    for (size_t i = 0; i < t->faults.len; i++)
        print_message("%s:%u: %s\n", t->faults.items[i].file, t->faults.items[i].line, t->faults.items[i].what);
    assert_int_equal(t->faults.len, 0);
    tree_free(t);
}

#define OTHER_SCALE_C "#include \"kernel_abi.h\"\nKERNEL(scale)\n{\n    PTR(0, float)[b->x] += 1.0f;\n}\n"

/* ---- shadows ---- */

static void check__the_planted_tree_is_clean(void **state)
{
    (void)state;
    tree_plant();
    expect_no_fault();
}

static void check__declared_shadow_is_clean(void **state)
{
    (void)state;
    tree_plant();
    put("high/common/scale.c", OTHER_SCALE_C);
    put("high/common/KERNEL.toml", "[shadow]\n\"scale.c\" = \"twice as fast: docs/perf.md\"\n");
    expect_no_fault();
}

static void check__undeclared_shadow_of_a_source_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("high/common/scale.c", OTHER_SCALE_C);
    expect_fault("high/common/scale.c", 1, "undeclared shadow of low/common/scale.c",
                 "under [shadow] in high/common/KERNEL.toml");
}

static void check__undeclared_shadow_of_a_header_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy/any/factor.h", "#define FACTOR 3.0f\n");
    expect_fault("low/toy/any/factor.h", 1, "undeclared shadow of low/common/factor.h", "\"factor.h\" = ");
}

static void check__undeclared_shadow_in_a_sub_directory_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/detail/tile.h", "#define TILE 1\n");
    put("high/common/detail/tile.h", "#define TILE 2\n");
    expect_fault("high/common/detail/tile.h", 1, "undeclared shadow of low/common/detail/tile.h",
                 "\"detail/tile.h\" = ");
}

static void check__each_win_in_a_chain_needs_its_own_declaration(void **state)
{
    (void)state;
    tree_plant();
    put("high/common/factor.h", "#define FACTOR 3.0f\n");
    put("high/common/KERNEL.toml", "[shadow]\n\"factor.h\" = \"measured\"\n");
    put("high/toy/any/KERNEL.toml", "# nothing\n");
    put("high/toy/any/factor.h", "#define FACTOR 4.0f\n");
    expect_fault("high/toy/any/factor.h", 1, "undeclared shadow of high/common/factor.h", "high/toy/any/KERNEL.toml");
}

static void check__declaration_without_a_file_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy/any/KERNEL.toml", "[shadow]\n\n\"gone.c\" = \"was fast\"\n");
    expect_fault("low/toy/any/KERNEL.toml", 3, "'gone.c' shadows nothing", "remove the declaration");
}

static void check__declaration_that_hides_nothing_in_any_target_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/KERNEL.toml", "[shadow]\n\n\"scale.c\" = \"there is nothing below common\"\n");
    expect_fault("low/common/KERNEL.toml", 3, "'scale.c' shadows nothing in any target", "remove the declaration");
}

static void check__shadow_of_itself_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy/any/KERNEL.toml",
        "[sources]\nuse = [\n  \"low/common/scale.c\",\n]\n[shadow]\n\"scale.c\" = \"mine\"\n");
    expect_fault("low/toy/any/KERNEL.toml", 3, "'scale.c' is a shadow of itself", "remove it from [sources] use");
}

static void check__byte_identical_shadow_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("high/common/scale.c", SCALE_C);
    put("high/common/KERNEL.toml", "[shadow]\n\"scale.c\" = \"a copy\"\n");
    expect_fault("high/common/scale.c", 1, "byte-identical to low/common/scale.c", "line 2 of high/common/KERNEL.toml");
}

static void check__two_files_with_one_name_and_the_same_bytes_are_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy2/MODEL.toml", MODEL_TOML);
    put("low/toy2/any/KERNEL.toml", "# nothing\n");
    put("low/toy/any/extra.c", OTHER_SCALE_C);
    put("low/toy2/any/extra.c", OTHER_SCALE_C);
    expect_fault("low/toy2/any/extra.c", 1, "same name and same bytes as low/toy/any/extra.c", "[sources] use");
}

static void check__same_bytes_under_another_name_are_fine(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy/any/extra.c", OTHER_SCALE_C);
    put("low/common/other.c", OTHER_SCALE_C);
    expect_no_fault();
}

static void check__entry_point_lost_by_a_shadow_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("high/common/scale.c", "KERNEL(scale_fast)\n{\n}\n");
    put("high/common/KERNEL.toml", "[shadow]\n\"scale.c\" = \"measured\"\n");
    expect_fault("high/common/scale.c", 1, "entry point 'scale' is lost: low/common/scale.c defines it",
                 "override family 'scale'");
}

static void check__entry_point_that_no_family_names_may_go(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/scale.c", SCALE_C "KERNEL(unnamed)\n{\n}\n");
    put("high/common/scale.c", OTHER_SCALE_C);
    put("high/common/KERNEL.toml", "[shadow]\n\"scale.c\" = \"measured\"\n");
    expect_no_fault();
}

static void check__overriding_the_family_releases_its_entry(void **state)
{
    (void)state;
    tree_plant();
    put("high/common/scale.c", "KERNEL(scale_fast)\n{\n}\n");
    put("high/common/KERNEL.toml", "[shadow]\n\"scale.c\" = \"measured\"\n");
    put("high/common/FAMILIES.toml",
        "[[family]]\nid = \"scale\"\n[[family.point]]\nentry = \"scale_fast\"\nmodule = \"scale\"\n");
    expect_no_fault();
}

static void check__shadow_without_a_reason_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("high/common/scale.c", OTHER_SCALE_C);
    put("high/common/KERNEL.toml", "[shadow]\n\"scale.c\" = \" \"\n");
    expect_fault("high/common/KERNEL.toml", 2, "the shadow of 'scale.c' has no reason", "names the measurement");
}

static void check__shadow_by_use_is_reported_at_the_use(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy2/MODEL.toml", MODEL_TOML);
    put("low/toy2/any/KERNEL.toml", "# nothing\n");
    put("low/toy2/any/parts/factor.h", "#define FACTOR 9.0f\n");
    put("low/toy/any/KERNEL.toml", "[sources]\nuse = [\"low/toy2/any/parts\"]\n");
    expect_fault("low/toy/any/KERNEL.toml", 2, "undeclared shadow of low/common/factor.h",
                 "under [shadow] in low/toy/any/KERNEL.toml");
}

/* ---- sources ---- */

static void check__use_outside_the_tree_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put_in(".", "outside.c", OTHER_SCALE_C);
    put("low/common/KERNEL.toml", "[sources]\nuse = [\"low/../../outside.c\"]\n");
    expect_fault("low/common/KERNEL.toml", 2, "leads outside the tree", "from its root");
    put("low/common/KERNEL.toml", "[sources]\nuse = [\"/etc/passwd\"]\n");
    expect_fault("low/common/KERNEL.toml", 2, "'/etc/passwd' leads outside the tree", "from its root");
}

static void check__use_of_a_missing_file_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/KERNEL.toml", "[sources]\nuse = [\n    \"low/common/factor.inc\",\n]\n");
    expect_fault("low/common/KERNEL.toml", 3, "'low/common/factor.inc' names a missing file",
                 "name a file or a directory");
}

/* The link is a fault of the tree, and so is its use: each names its own line. */
static void check__use_of_a_link_is_refused(void **state)
{
    Tree *t = NULL;
    Err err;
    (void)state;
    tree_plant();
    assert_int_equal(symlink("factor.h", TREE "/low/common/link.h"), 0);
    put("low/toy/any/KERNEL.toml", "[sources]\nuse = [\"low/common/link.h\"]\n");
    assert_int_equal(tree_read(&t, TREE, &err), ST_OK);
    assert_int_equal(t->faults.len, 2);
    assert_string_equal(t->faults.items[0].file, "low/common/link.h");
    assert_string_equal(t->faults.items[1].file, "low/toy/any/KERNEL.toml");
    assert_int_equal(t->faults.items[1].line, 2);
    assert_non_null(strstr(t->faults.items[1].what, "goes through a symbolic link"));
    assert_non_null(strstr(t->faults.items[1].remedy, "name the file that the link points at"));
    tree_free(t);
}

static void check__symbolic_link_is_refused(void **state)
{
    (void)state;
    tree_plant();
    assert_int_equal(symlink("low/toy", TREE "/low/toy3"), 0);
    expect_fault("low/toy3", 1, "a symbolic link", "replace it by the file");
}

static void check__name_collision_by_use_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy2/MODEL.toml", MODEL_TOML);
    put("low/toy2/any/KERNEL.toml", "# nothing\n");
    put("low/toy2/any/extra.c", OTHER_SCALE_C);
    put("low/toy/any/extra.c", SCALE_C);
    put("low/toy/any/KERNEL.toml", "[sources]\nuse = [\"low/toy2/any/extra.c\"]\n");
    expect_fault("low/toy/any/KERNEL.toml", 2, "name collision in the layer low/toy/any",
                 "remove it from [sources] use");
}

static void check__use_of_a_table_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy/any/KERNEL.toml", "[sources]\nuse = [\"low/common/FAMILIES.toml\"]\n");
    expect_fault("low/toy/any/KERNEL.toml", 2, "names a table", "tables come from the layers");
}

static void check__file_that_nothing_reads_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/scale.cu", "// a CPU class compiles C\n");
    expect_fault("low/common/scale.cu", 1, "no part of a layer of vendor 'cpu'", "a source (*.c)");
}

/* ---- tables ---- */

static void check__unknown_key_in_hardware_toml_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("high/HARDWARE.toml", HARDWARE_TOML("high", "inherits = \"low\"\ncolour = \"red\"\n"));
    expect_fault("high/HARDWARE.toml", 8, "unknown key 'colour' in [hardware]", "use one of name, vendor, arch");
}

static void check__unknown_key_in_model_toml_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy/MODEL.toml", MODEL_TOML "[sampling]\ntemprature = 0.7\n");
    expect_fault("low/toy/MODEL.toml", 6, "unknown key 'temprature' in [sampling]", "temperature");
}

static void check__unknown_key_in_kernel_toml_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/KERNEL.toml", "[build]\nflag = [\"-O2\"]\n");
    expect_fault("low/common/KERNEL.toml", 2, "unknown key 'flag' in [build]", "flags, modules");
    put("low/common/KERNEL.toml", "# a\n[shadows]\n\"x.c\" = \"r\"\n");
    expect_fault("low/common/KERNEL.toml", 2, "unknown key 'shadows' in the file", "build, sources, shadow");
}

static void check__value_of_another_kind_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/KERNEL.toml", "[build]\nflags = \"-O2\"\n");
    expect_fault("low/common/KERNEL.toml", 2, "'flags' in [build] is of type string", "array");
}

static void check__missing_key_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy/MODEL.toml", "[model]\nname = \"toy\"\n[match]\n");
    expect_fault("low/toy/MODEL.toml", 3, "no 'model_type' in [match]", "add model_type");
}

static void check__malformed_toml_is_refused_at_its_line(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy/any/KERNEL.toml", "# fine\n[build\n");
    expect_fault("low/toy/any/KERNEL.toml", 2, "", "valid TOML");
}

static void check__unknown_vendor_is_refused(void **state)
{
    (void)state;
    tree_plant();
    drop("high");
    put("low/HARDWARE.toml",
        "[hardware]\nname = \"low\"\nvendor = \"abacus\"\narch = \"x\"\nbandwidth = 1\nactivation = \"f32\"\n");
    expect_fault("low/HARDWARE.toml", 3, "unknown vendor 'abacus'", "cpu, nvidia, amd, hip, apple");
}

static void check__unknown_parent_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("high/HARDWARE.toml", HARDWARE_TOML("high", "inherits = \"lowest\"\n"));
    expect_fault("high/HARDWARE.toml", 7, "unknown parent 'lowest'", "name the directory of a class");
}

static void check__chained_inherits_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("top/HARDWARE.toml", HARDWARE_TOML("top", "inherits = \"high\"\n"));
    expect_fault("top/HARDWARE.toml", 7, "chained inherits: the parent 'high' inherits 'low'", "inherit 'low'");
}

static void check__class_that_inherits_itself_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("high/HARDWARE.toml", HARDWARE_TOML("high", "inherits = \"high\"\n"));
    expect_fault("high/HARDWARE.toml", 7, "inherits itself", "remove inherits");
}

static void check__parent_of_another_vendor_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("high/HARDWARE.toml",
        "[hardware]\nname = \"high\"\nvendor = \"nvidia\"\narch = \"x\"\nbandwidth = 1\nactivation = \"bf16\"\n"
        "inherits = \"low\"\n");
    expect_fault("high/HARDWARE.toml", 7, "is of vendor 'cpu', this class of 'nvidia'", "the same compiler");
}

static void check__class_named_unlike_its_directory_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("high/HARDWARE.toml", HARDWARE_TOML("hihg", "inherits = \"low\"\n"));
    expect_fault("high/HARDWARE.toml", 2, "the class is named 'hihg'", "name = \"high\"");
}

static void check__model_without_a_model_toml_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/lost/any/KERNEL.toml", "# nothing\n");
    expect_fault("low/lost/MODEL.toml", 1, "a model directory without MODEL.toml", "add MODEL.toml");
}

static void check__quantization_without_a_kernel_toml_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy/q4/extra.c", OTHER_SCALE_C);
    expect_fault("low/toy/q4", 1, "a quantization directory without KERNEL.toml", "add KERNEL.toml");
}

static void check__kernel_source_without_a_sibling_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy2/MODEL.toml", "[model]\nname = \"toy2\"\nkernel_source = \"toy9\"\n[match]\nmodel_type = \"toy\"\n");
    expect_fault("low/toy2/MODEL.toml", 3, "kernel_source names no model 'toy9'", "sibling");
}

static void check__kernel_source_and_leaves_of_its_own_are_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy2/MODEL.toml", "[model]\nname = \"toy2\"\nkernel_source = \"toy\"\n[match]\nmodel_type = \"toy\"\n");
    put("low/toy2/any/KERNEL.toml", "# nothing\n");
    expect_fault("low/toy2/MODEL.toml", 3, "has leaves of its own", "remove kernel_source or");
}

/* ---- families ---- */

static void check__entry_in_two_families_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/FAMILIES.toml",
        FAMILIES "[[family]]\nid = \"other\"\n[[family.point]]\nentry = \"scale\"\nmodule = \"scale\"\n");
    expect_fault("low/common/FAMILIES.toml", 8, "entry 'scale' belongs to two families, 'scale'", "keep it in one");
}

static void check__module_without_a_source_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/FAMILIES.toml",
        "[[family]]\nid = \"scale\"\n[[family.point]]\nentry = \"scale\"\nmodule = \"scales\"\n");
    expect_fault("low/common/FAMILIES.toml", 3, "names the module 'scales', which has no source",
                 "add scales.c to a layer of");
}

static void check__modules_entry_without_a_source_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/toy/any/KERNEL.toml", "[build]\nmodules = [\n  \"scale\",\n  \"gone\",\n]\n");
    drop("high");
    expect_fault("low/toy/any/KERNEL.toml", 4, "[build] modules names 'gone'", "or remove the name");
}

static void check__rule_of_an_unknown_family_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/RULES.toml", "# rules\n[[rule]]\nid = \"r\"\nfamily = \"scail\"\n");
    expect_fault("low/common/RULES.toml", 2, "a rule names the unknown family 'scail'", "name a family");
}

static void check__constant_that_is_no_integer_is_refused(void **state)
{
    (void)state;
    tree_plant();
    put("low/common/FAMILIES.toml", FAMILIES "constants = { TILE = \"x\" }\n");
    expect_fault("low/common/FAMILIES.toml", 6, "constant 'TILE' of entry 'scale'", "NAME = integer");
}

static void check__all_faults_are_reported_in_one_run(void **state)
{
    Tree *t = NULL;
    Err err;
    (void)state;
    tree_plant();
    put("high/common/scale.c", OTHER_SCALE_C);
    put("low/common/RULES.toml", "[[rule]]\nfamily = \"scail\"\n");
    put("low/toy/MODEL.toml", MODEL_TOML "[tools]\nparsers = \"x\"\n");
    assert_int_equal(tree_read(&t, TREE, &err), ST_OK);
    assert_int_equal(t->faults.len, 3);
    tree_free(t);
}

static void check__directory_that_is_not_there_is_an_error(void **state)
{
    Tree *t = NULL;
    Err err;
    (void)state;
    assert_int_equal(tree_read(&t, "no-such-tree", &err), ST_NOTFOUND);
    assert_null(t);
    assert_non_null(strstr(err.msg, "no-such-tree is no directory"));
}

/* The repository's own tree. */
static void check__the_real_tree_has_no_fault(void **state)
{
    Tree *t = NULL;
    Err err;
    (void)state;
    assert_int_equal(tree_read(&t, METRALE_SOURCE_DIR "/kernels", &err), ST_OK);
    for (size_t i = 0; i < t->faults.len; i++)
        print_message("%s:%u: %s\n", t->faults.items[i].file, t->faults.items[i].line, t->faults.items[i].what);
    assert_int_equal(t->faults.len, 0);
    assert_true(t->n_targets > 0);
    tree_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check__the_planted_tree_is_clean),
        cmocka_unit_test(check__declared_shadow_is_clean),
        cmocka_unit_test(check__undeclared_shadow_of_a_source_is_refused),
        cmocka_unit_test(check__undeclared_shadow_of_a_header_is_refused),
        cmocka_unit_test(check__undeclared_shadow_in_a_sub_directory_is_refused),
        cmocka_unit_test(check__each_win_in_a_chain_needs_its_own_declaration),
        cmocka_unit_test(check__declaration_without_a_file_is_refused),
        cmocka_unit_test(check__declaration_that_hides_nothing_in_any_target_is_refused),
        cmocka_unit_test(check__shadow_of_itself_is_refused),
        cmocka_unit_test(check__byte_identical_shadow_is_refused),
        cmocka_unit_test(check__two_files_with_one_name_and_the_same_bytes_are_refused),
        cmocka_unit_test(check__same_bytes_under_another_name_are_fine),
        cmocka_unit_test(check__entry_point_lost_by_a_shadow_is_refused),
        cmocka_unit_test(check__entry_point_that_no_family_names_may_go),
        cmocka_unit_test(check__overriding_the_family_releases_its_entry),
        cmocka_unit_test(check__shadow_without_a_reason_is_refused),
        cmocka_unit_test(check__shadow_by_use_is_reported_at_the_use),
        cmocka_unit_test(check__use_outside_the_tree_is_refused),
        cmocka_unit_test(check__use_of_a_missing_file_is_refused),
        cmocka_unit_test(check__use_of_a_link_is_refused),
        cmocka_unit_test(check__symbolic_link_is_refused),
        cmocka_unit_test(check__name_collision_by_use_is_refused),
        cmocka_unit_test(check__use_of_a_table_is_refused),
        cmocka_unit_test(check__file_that_nothing_reads_is_refused),
        cmocka_unit_test(check__unknown_key_in_hardware_toml_is_refused),
        cmocka_unit_test(check__unknown_key_in_model_toml_is_refused),
        cmocka_unit_test(check__unknown_key_in_kernel_toml_is_refused),
        cmocka_unit_test(check__value_of_another_kind_is_refused),
        cmocka_unit_test(check__missing_key_is_refused),
        cmocka_unit_test(check__malformed_toml_is_refused_at_its_line),
        cmocka_unit_test(check__unknown_vendor_is_refused),
        cmocka_unit_test(check__unknown_parent_is_refused),
        cmocka_unit_test(check__chained_inherits_is_refused),
        cmocka_unit_test(check__class_that_inherits_itself_is_refused),
        cmocka_unit_test(check__parent_of_another_vendor_is_refused),
        cmocka_unit_test(check__class_named_unlike_its_directory_is_refused),
        cmocka_unit_test(check__model_without_a_model_toml_is_refused),
        cmocka_unit_test(check__quantization_without_a_kernel_toml_is_refused),
        cmocka_unit_test(check__kernel_source_without_a_sibling_is_refused),
        cmocka_unit_test(check__kernel_source_and_leaves_of_its_own_are_refused),
        cmocka_unit_test(check__entry_in_two_families_is_refused),
        cmocka_unit_test(check__module_without_a_source_is_refused),
        cmocka_unit_test(check__modules_entry_without_a_source_is_refused),
        cmocka_unit_test(check__rule_of_an_unknown_family_is_refused),
        cmocka_unit_test(check__constant_that_is_no_integer_is_refused),
        cmocka_unit_test(check__all_faults_are_reported_in_one_run),
        cmocka_unit_test(check__directory_that_is_not_there_is_an_error),
        cmocka_unit_test(check__the_real_tree_has_no_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
