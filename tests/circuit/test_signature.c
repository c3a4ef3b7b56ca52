/* The table of ops: what the language and the kernels rely on. */
#include "circuit/signature.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void signature__every_op_is_found_by_its_name(void **state)
{
    (void)state;
    for (int k = 0; k < OP_COUNT; k++) {
        const OpDef *op = op_def((OpKind)k);

        assert_non_null(op->name);
        assert_int_equal(op->kind, k);
        assert_ptr_equal(op_find(op->name), op);
    }
    assert_null(op_find("conv9d"));
}

static void signature__arity_and_counts_stay_inside_the_arrays(void **state)
{
    (void)state;
    for (int k = 0; k < OP_COUNT; k++) {
        const OpDef *op = op_def((OpKind)k);

        assert_in_range(op->n_in, 1, OP_MAX_IN);
        assert_in_range(op->n_out, 0, OP_MAX_OUT);
        assert_in_range(op->n_weights, 0, OP_MAX_WEIGHTS);
        assert_in_range(op->n_params, 0, OP_MAX_PARAMS);
        for (uint32_t i = 0; i < op->n_params; i++) {
            assert_int_equal(op_param(op, op->params[i].name), i);
            assert_true((op->params[i].type == PARAM_ENUM) == (op->params[i].names != NULL));
            assert_int_equal(op_weight(op, op->params[i].name), -1); /* a TOML key is one or the other */
        }
        for (uint32_t i = 0; i < op->n_weights; i++)
            assert_int_equal(op_weight(op, op->weights[i].name), i);
    }
}

static void signature__defaults_change_nothing(void **state)
{
    static const struct {
        const char *op, *param;
        double value;
    } want[] = {{"embed", "scale", 1},        {"rms_norm", "offset", 0},        {"qk_norm", "offset", 0},
                {"residual_add", "scale", 1}, {"paged_attention", "window", 0}, {"paged_attention", "softcap", 0},
                {"lm_head", "scale", 1},      {"lm_head", "softcap", 0}};

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const OpDef *op = op_find(want[i].op);
        int p = op_param(op, want[i].param);

        assert_true(p >= 0);
        assert_false(op->params[p].required);
        assert_true(op->params[p].default_value == want[i].value);
    }
}

static void signature__vectors_are_what_is_widened(void **state)
{
    (void)state;
    assert_true(op_find("rms_norm")->weights[0].vector);
    assert_true(op_find("linear")->weights[1].vector && op_find("linear")->weights[1].optional);
    assert_true(op_find("paged_attention")->weights[0].optional);
    assert_false(op_find("linear")->weights[0].vector || op_find("embed")->weights[0].vector ||
                 op_find("lm_head")->weights[0].vector);
    assert_true(op_find("lm_head")->on_outputs && !op_find("linear")->on_outputs);
    assert_true(op_find("kv_write")->writes_state && op_find("paged_attention")->reads_state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signature__every_op_is_found_by_its_name),
        cmocka_unit_test(signature__arity_and_counts_stay_inside_the_arrays),
        cmocka_unit_test(signature__defaults_change_nothing),
        cmocka_unit_test(signature__vectors_are_what_is_widened),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
