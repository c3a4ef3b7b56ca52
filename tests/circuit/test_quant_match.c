/* test_quant_match.c - which modules an entry of a quantiser's list means. The names are those of checkpoints. */
#include "circuit/quant_match.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct Case {
    const char *entry, *module;
    bool matches;
} Case;

static void check(const Case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (quant_match(cases[i].entry, cases[i].module) != cases[i].matches)
            fail_msg("\"%s\" must%s match %s", cases[i].entry, cases[i].matches ? "" : " not", cases[i].module);
}

static void quant_match__takes_whole_components_of_a_name(void **state)
{
    static const Case cases[] = {
        {"lm_head", "lm_head", true},
        {"lm_head", "lm_head2", false},
        {"mlp.gate", "model.layers.0.mlp.gate", true},
        {"mlp.gate", "model.layers.0.mlp.gate_proj", false},
        {"mlp.gate", "model.layers.0.xmlp.gate", false},
        {"model.layers.1", "model.layers.1.self_attn.q_proj", true},
        {"model.layers.1", "model.layers.11.self_attn.q_proj", false},
        {"visual", "model.visual.blocks.0.attn", true},
        {"", "lm_head", false},
    };

    (void)state;
    check(cases, sizeof cases / sizeof *cases);
}

static void quant_match__knows_wildcards(void **state)
{
    static const Case cases[] = {
        {"model.layers.1.self_attn*", "model.layers.1.self_attn.q_proj", true},
        {"model.layers.1.self_attn*", "model.layers.1.self_attn", true},
        {"model.layers.1.self_attn*", "model.layers.10.self_attn.q_proj", false},
        {"model.layers.*.mlp.router", "model.layers.17.mlp.router", true},
        {"model.layers.*.mlp.router", "model.layers.17.mlp.experts", false},
        {"*lm_head", "lm_head", true},
        {"*a*b*c", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", false},
    };

    (void)state;
    check(cases, sizeof cases / sizeof *cases);
}

static void quant_match__runs_patterns_from_the_start_of_the_name(void **state)
{
    static const Case cases[] = {
        {"re:.*mlp\\.gate$", "model.layers.3.mlp.gate", true},
        {"re:.*mlp\\.gate$", "model.layers.3.mlp.gate_proj", false},
        {"re:mlp\\.gate", "model.layers.3.mlp.gate", false},
        {"re:.*self_attn\\.(q|k|v|o)_proj$", "model.layers.0.self_attn.v_proj", true},
        {"re:.*self_attn\\.(q|k|v|o)_proj$", "model.layers.0.self_attn.x_proj", false},
        {"re:.*mlp\\.experts\\.\\d+\\.(?:gate|up|down)_proj$", "model.layers.0.mlp.experts.127.down_proj", true},
        {"re:.*mlp\\.experts\\.\\d+\\.(?:gate|up|down)_proj$", "model.layers.0.mlp.experts.x.down_proj", false},
        {"re:model\\.layers\\.[0-4]\\.", "model.layers.4.mlp", true},
        {"re:model\\.layers\\.[^0-4]\\.", "model.layers.4.mlp", false},
        {"re:^lm_head$", "lm_head", true},
        {"re:a{3}b?c+", "aaacc", true},
        {"re:a{3}b?c+$", "aacc", false},
        {"re:(a|b)*c$", "ababbac", true},
        {"re:(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false}, /* no backtracking to be slow */
        {"re:vision_model.*", "model.vision_model", false},
        {"re:", "lm_head", true},
    };

    (void)state;
    check(cases, sizeof cases / sizeof *cases);
}

static void quant_match__refuses_what_it_does_not_understand(void **state)
{
    static const char *const bad[] = {"re:(?!lm_head)", "re:(a",   "re:a)",     "re:[a",
                                      "re:*a",          "re:\\bx", "re:a{2,3}", "re:a\\"};
    char deep[64] = "re:";
    Err err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(quant_match_check(bad[i], &err), ST_UNSUPPORTED);
        assert_non_null(strstr(err.msg, bad[i]));
        assert_false(quant_match(bad[i], "lm_head"));
    }
    memset(deep + 3, '(', 40);
    assert_int_equal(quant_match_check(deep, &err), ST_UNSUPPORTED);
    assert_int_equal(quant_match_check("re:.*\\.(q|k)_proj$", &err), ST_OK);
    assert_int_equal(quant_match_check("(not a pattern", &err), ST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quant_match__takes_whole_components_of_a_name),
        cmocka_unit_test(quant_match__knows_wildcards),
        cmocka_unit_test(quant_match__runs_patterns_from_the_start_of_the_name),
        cmocka_unit_test(quant_match__refuses_what_it_does_not_understand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
