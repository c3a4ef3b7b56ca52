/* rules: what names mean inside a rule, and that RULES.toml is read strictly. */
#include "circuit/rules.h"
#include "lower_fixture.h"

#define NORM_QUANT_FAMILY(args)                                                                                        \
    "[[family]]\nid = \"nq\"\nformats = { y = \"i8/32\" }\nnumerics = \"f32\"\nargs = [" args                          \
    "]\n" POINT("nq_1", "[1, 0]", "rows")
#define PATTERN                                                                                                        \
    "pattern = [ { op = \"rms_norm\", as = \"n\", in = [\"x\"], out = [\"h\"] }, "                                     \
    "{ op = \"act_quant\", in = [\"h\"], out = [\"y\"] } ]\n"
#define HEAD     "[[rule]]\nid = \"r\"\nfamily = \"nq\"\n"
#define NUMERICS "numerics = { kind = \"reference\" }\n"

static const Rule *rule(const FamilySet *fs, const char *id)
{
    for (uint32_t i = 0; i < fs->n_rules; i++)
        if (strcmp(fs->rules[i].id, id) == 0)
            return &fs->rules[i];
    fail_msg("no rule %s", id);
    return NULL;
}

static void rules__reads_a_pattern_with_aliases_and_inner_variables(void **state)
{
    Kernels *k = fix_cpu(F_SILU NORM_QUANT_FAMILY("\"y\", \"x\", \"w:n.weight\", \"eps:n.eps\""),
                         HEAD PATTERN "where = { \"n.k\" = 64 }\n" NUMERICS);
    FamilySet *fs = fix_load(k);
    const Rule *r = rule(fs, "r");
    RuleVar vars[RULE_MAX_VARS];
    const char *rest;
    uint32_t node;

    (void)state;
    assert_ptr_equal(r, &fs->rules[0]); /* explicit rules come before implied ones */
    assert_int_equal(r->n_nodes, 2);
    assert_string_equal(r->nodes[1].as, "act_quant"); /* the op's name when none is given */
    assert_int_equal(rule_vars(r, vars), 3);
    assert_true(!vars[0].made && vars[0].read && !vars[0].inner);
    assert_true(vars[1].inner);
    assert_true(vars[2].made && !vars[2].read && !vars[2].inner);
    assert_true(rule_node(r, "n.weight", &node, &rest));
    assert_int_equal(node, 0);
    assert_string_equal(rest, "weight");
    assert_false(rule_node(r, "weight", &node, &rest));
    assert_string_equal(r->where_values[0], "64");
    families_free(fs);
    fix_kernels_free(k);
}

static void rules__the_implied_rule_names_single_and_several_variables(void **state)
{
    Kernels *k = fix_cpu(F_NORM("") F_ROPE, NULL);
    FamilySet *fs = fix_load(k);
    const Rule *norm = rule(fs, "norm_f"), *rope = rule(fs, "rope_f");
    const char *rest;
    uint32_t node;

    (void)state;
    assert_string_equal(norm->nodes[0].in[0], "in");
    assert_string_equal(norm->nodes[0].out[0], "out");
    assert_string_equal(rope->nodes[0].in[1], "in1");
    assert_string_equal(rope->nodes[0].out[0], "out0");
    assert_true(rule_node(norm, "weight", &node, &rest));
    assert_string_equal(rest, "weight");
    families_free(fs);
    fix_kernels_free(k);
}

static void rules__a_binding_is_the_first_thing_its_name_means(void **state)
{
    Kernels *k = fix_cpu(F_NORM("") F_ATTN F_ROPE, NULL);
    FamilySet *fs = fix_load(k);
    const Rule *norm = rule(fs, "norm_f"), *attn = rule(fs, "attn_f"), *rope = rule(fs, "rope_f");
    const struct {
        const Rule *rule;
        const char *text;
        BindKind kind;
    } cases[] = {
        {norm, "in", BIND_VAR},
        {norm, "weight", BIND_WEIGHT},
        {norm, "eps", BIND_PARAM},
        {norm, "workspace", BIND_WORKSPACE},
        {norm, "in.width", BIND_EXPR},
        {norm, "k", BIND_EXPR},
        {norm, "rows * k", BIND_EXPR},
        {attn, "state.v", BIND_STATE},
        {attn, "step.row_seq", BIND_STEP},
        {attn, "sinks", BIND_WEIGHT},
        {rope, "table", BIND_TABLE},
        {rope, "table.dims", BIND_EXPR},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Binding b;
        Err err = {{0}};
        if (binding_parse(&b, cases[i].rule, cases[i].text, k->arena, &err) != ST_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(b.kind, cases[i].kind);
    }
    families_free(fs);
    fix_kernels_free(k);
}

static void rules__each_fault_names_file_line_and_what_is_wrong(void **state)
{
    static const char good[] = NORM_QUANT_FAMILY("\"y\", \"x\", \"w:n.weight\"");
    static const struct {
        const char *families, *rules, *message;
    } faults[] = {
        {good, HEAD PATTERN NUMERICS "speed = 1\n", "kernels/cpu1/common/RULES.toml:"},
        {good, HEAD PATTERN, "RULES.toml:1: 'numerics' is missing"},
        {good, HEAD PATTERN "numerics = { kind = \"bit_identical\" }\n", "RULES.toml:5: 'numerics' is kind"},
        {good, HEAD PATTERN "numerics = { kind = \"differs\" }\n", "'numerics' is kind"},
        {good, HEAD NUMERICS, "'pattern' must list 1 to 8 ops"},
        {good, "[[rule]]\nid = \"r\"\nfamily = \"none\"\n" PATTERN NUMERICS, "asks for family 'none'"},
        {F_SILU NORM_QUANT_FAMILY("\"y\""), "[[rule]]\nid = \"r\"\nfamily = \"silu_f\"\n" PATTERN NUMERICS,
         "has an op and so a rule of its own"},
        {good, HEAD PATTERN NUMERICS HEAD PATTERN NUMERICS, "RULES.toml:6: rule r is defined a second time"},
        {good, HEAD "pattern = [ { op = \"rms_norm\", in = [\"x\"] } ]\n" NUMERICS, "'out' must list 1 variables"},
        {good, HEAD "pattern = [ { op = \"norm\", in = [\"x\"], out = [\"y\"] } ]\n" NUMERICS, "there is no op 'norm'"},
        {good, HEAD "pattern = [ { op = \"rms_norm\", in = [\"x\"], out = [\"x\"] } ]\n" NUMERICS,
         "both input and output of one op"},
        {good,
         HEAD
         "pattern = [ { op = \"rms_norm\", in = [\"x\"], out = [\"h\"] }, { op = \"rms_norm\", in = [\"h\"], out = "
         "[\"y\"] } ]\n" NUMERICS,
         "two ops of the pattern are called 'rms_norm'"},
        {good,
         HEAD
         "pattern = [ { op = \"rms_norm\", as = \"a\", in = [\"x\"], out = [\"h\"] }, { op = \"rms_norm\", as = \"b\", "
         "in = [\"h\"], out = [\"x\"] } ]\n" NUMERICS,
         "variable 'x' is made by this op but was used before it"},
        {good, HEAD PATTERN "keep = [\"x\"]\n" NUMERICS,
         "'keep' lists variables that the pattern both makes and reads"},
        {good, HEAD PATTERN "where = { \"m.k\" = 1 }\n" NUMERICS, "'where' names 'm.k'"},
        {NORM_QUANT_FAMILY("\"y\", \"h\""), HEAD PATTERN NUMERICS,
         "rule r, family nq (kernels/cpu1/common/FAMILIES.toml:1): argument 'h': the argument is bound to 'h', which "
         "stays "
         "inside rule r"},
        {NORM_QUANT_FAMILY("\"y\", \"w:m.weight\""), HEAD PATTERN NUMERICS, "names 'm.weight'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        fix_load_fails(fix_cpu(faults[i].families, faults[i].rules), faults[i].message);
}

static void rules__an_upper_layer_s_rule_wins_by_id(void **state)
{
    Kernels *k = fix_kernels();
    FamilySet *fs;

    (void)state;
    fix_file(k, "kernels/cpu1/HARDWARE.toml", HARDWARE_CPU);
    fix_layer_files(k, "kernels/cpu1/small/any", NULL,
                    HEAD PATTERN "numerics = { kind = \"differs\", lever = \"fast\" }\n");
    fix_layer_files(k, "kernels/cpu1/common", NORM_QUANT_FAMILY("\"y\", \"x\", \"w:n.weight\""), HEAD PATTERN NUMERICS);
    fs = fix_load(k);
    assert_int_equal(fs->n_rules, 1);
    assert_int_equal(fs->rules[0].numerics, NUMERICS_DIFFERS);
    assert_string_equal(fs->rules[0].lever, "fast");
    families_free(fs);
    fix_kernels_free(k);
}

/* A rule's `where` on a role, on a shape and on an enum by word. */
static void rules__where_narrows_a_rule_by_role_shape_and_word(void **state)
{
    static const struct {
        const char *where;
        uint32_t fused; /* steps of the layer that the rule covers */
    } cases[] = {{"", 7},
                 {"where = { \"l.role\" = \"gate\" }\n", 1},
                 {"where = { \"l.n\" = 96 }\n", 2},
                 {"where = { \"l.n\" = 96, \"l.role\" = \"up\" }\n", 1},
                 {"where = { hidden = 65 }\n", 0}};
    Model *m = fix_model(DT_Q4_1, DT_F32);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        Kernels *k;
        FamilySet *fs;
        Plan *p;
        uint32_t fused = 0;
        snprintf(text, sizeof text,
                 "[[rule]]\nid = \"special\"\nfamily = \"lin2\"\npattern = [ { op = \"linear\", as = \"l\", in = "
                 "[\"x\"], out "
                 "= [\"y\"] } ]\n%s" NUMERICS,
                 cases[i].where);
        k = fix_cpu(F_ALL "[[family]]\nid = \"lin2\"\nformats = { x = \"i8/32\", \"l.weight\" = \"q4_1\" }\nlayout = "
                          "\"n16\"\nargs = [\"y\", \"x\", \"w:l.weight\"]\nnumerics = \"f32\"\n" POINT(
                              "lin2_1", "[1, 0]", "rows"),
                    text);
        fs = fix_load(k);
        p = fix_lower(&m->in, fs, fix_decode(1));
        for (uint32_t s = 0; s < p->blocks[0].n_steps; s++)
            fused += strcmp(p->blocks[0].steps[s].rule->id, "special") == 0;
        assert_int_equal(fused, cases[i].fused); /* equal cost: explicit rules come first */
        plan_free(p);
        families_free(fs);
        fix_kernels_free(k);
    }
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules__reads_a_pattern_with_aliases_and_inner_variables),
        cmocka_unit_test(rules__the_implied_rule_names_single_and_several_variables),
        cmocka_unit_test(rules__a_binding_is_the_first_thing_its_name_means),
        cmocka_unit_test(rules__each_fault_names_file_line_and_what_is_wrong),
        cmocka_unit_test(rules__an_upper_layer_s_rule_wins_by_id),
        cmocka_unit_test(rules__where_narrows_a_rule_by_role_shape_and_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
