/* What a launch moves and computes, and the times of launches, on real plans: the arithmetic is done again by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/steps.h"
#include "support/open_model.h"

static const ModelOptions bounds = {
    .max_rows = 64, .max_outs = 4, .max_seqs = 4, .max_len = 128, .kv_blocks = 32, .batch_invariant = true};

/* tests/data/oracles/llama: hidden 64, 2 heads of 32, as many of KV, ffn 192, 2 layers, vocab 256; bf16. */
enum { LAYERS = 2, MATRICES = 4 * 64 * 64 + 3 * 64 * 192, HEAD = 64 * 256, KV_TOKEN = 2 * 64 * 2 };

static void traffic__a_decode_step_reads_weights_once_and_each_sequence_s_kv(void **state)
{
    (void)state;
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &bounds, NULL);
    const StepLoad load = {.rows = 4, .seqs = 4, .outs = 4, .first = 99};
    const Traffic t = traffic_of_step(model_plan(m.model, 4), &load);

    assert_float_equal(t.weights, (double)model_step_weight_bytes(m.model), 0);
    assert_float_equal(t.states, LAYERS * 4 * 100 * KV_TOKEN, 0);
    assert_float_equal(t.flops, 2.0 * 4 * (LAYERS * MATRICES + HEAD) + LAYERS * 4.0 * 4 * 100 * 64, 0);
    assert_true(t.edges > 0);
    close_model(&m);
}

static void traffic__a_chunk_s_rows_see_what_is_before_them(void **state)
{
    (void)state;
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &bounds, NULL);
    const StepLoad load = {.rows = 32, .seqs = 1, .outs = 1, .first = 50};
    const Traffic t = traffic_of_step(model_plan(m.model, 0), &load);
    const double pairs = 32 * 50 + 32 * 33 / 2;

    assert_float_equal(t.states, LAYERS * 82 * KV_TOKEN, 0);
    assert_float_equal(t.flops, 2.0 * (32 * LAYERS * MATRICES + HEAD) + LAYERS * 4 * pairs * 64, 0);
    close_model(&m);
}

static void traffic__a_window_bounds_what_is_seen(void **state)
{
    (void)state;
    OpenModel m = open_model_window("oracles/mistral", "avx2", DT_BF16, 16, &bounds, NULL);
    const Plan *p = model_plan(m.model, 0);
    const StepLoad at_8 = {.rows = 32, .seqs = 1, .outs = 0, .first = 8}, at_50 = {.rows = 32, .seqs = 1, .first = 50};
    double token = 0;

    for (uint32_t g = 0; g < model_memory(m.model)->n_groups; g++)
        token += (double)model_memory(m.model)->group_bytes[g] / KV_BLOCK_TOKENS;
    /* from position 8 all 40 tokens are seen; from 50 the 15 before the chunk, and it */
    assert_float_equal(traffic_of_step(p, &at_8).states, 40 * token, 0);
    assert_float_equal(traffic_of_step(p, &at_50).states, 47 * token, 0);
    /* Rows 0..7 behind 8 see 9..16 tokens, the others 16; behind 50 all see 16: less by 8 + 7 + .. + 1 - 8 = 28 pairs. */
    int64_t heads = 0, head_dim = 0, layers = 0;
    assert_true(instance_dim(m.in, "n_heads", &heads) && instance_dim(m.in, "head_dim", &head_dim) &&
                instance_dim(m.in, "n_layers", &layers));
    assert_float_equal(traffic_of_step(p, &at_50).flops - traffic_of_step(p, &at_8).flops,
                       4.0 * (double)(heads * head_dim * layers) * 28, 0);
    close_model(&m);
}

static void traffic__of_experts_those_that_uniform_routing_is_expected_to_choose(void **state)
{
    (void)state;
    OpenModel m = open_model("oracles/qwen3_moe", "avx2", DT_BF16, &bounds, NULL);
    double each[2];

    /* 8 experts, 2 chosen, each of 3 matrices of 32 x 64 in bf16, 2 layers; only experts depend on the rows */
    for (uint32_t i = 0; i < 2; i++) {
        const StepLoad load = {.rows = i ? 4 : 1, .seqs = i ? 4 : 1, .outs = i ? 4 : 1};
        each[i] = traffic_of_step(model_plan(m.model, load.rows), &load).weights;
    }
    const double expert = 3 * 32 * 64 * 2, four = 8 * (1 - pow(1 - 2 / 8.0, 4));
    assert_float_equal(each[1] - each[0], 2 * expert * (four - 2), 1e-6);
    close_model(&m);
}

static void steps__every_launch_of_a_plan_is_timed_once_for_each_kind(void **state)
{
    (void)state;
    const StepLoad decode = {.rows = 3, .seqs = 3, .outs = 3, .first = 40}, chunk = {.rows = 64, .seqs = 1, .outs = 1};
    GpuBackend *mock;
    StepTimes t;
    Err e;

    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &bounds, mock);
    for (int i = 0; i < 2; i++) {
        uint32_t launches = 0;
        if (bench_steps(&t, m.model, i ? &chunk : &decode, 5, &e) != ST_OK)
            fail_msg("%s", e.msg);
        assert_ptr_equal(t.plan, model_plan(m.model, i ? 0 : 3));
        for (uint32_t k = 0; k < t.n; k++) {
            /* the mock's clock: a launch takes 1 us, whatever it is */
            assert_float_equal(t.launch[k].us, 1.0, 1e-9);
            assert_int_equal(t.launch[k].launches,
                             t.launch[k].block == &t.plan->stem || t.launch[k].block == &t.plan->head ? 1 : LAYERS);
            launches += t.launch[k].launches;
        }
        assert_float_equal(t.step_us, launches, 1e-9);
        step_times_release(&t);
    }
    close_model(&m);
}

/* Real kernels, also those whose inputs are indexes that others computed: nothing may be read outside (a sanitizer sees it). */
static void steps__launches_out_of_their_order_find_inputs_that_they_can_follow(void **state)
{
    (void)state;
    static const char *const models[] = {"oracles/qwen3_moe", "oracles/qwen3_next", "oracles/deepseek_v3",
                                         "oracles/gpt_oss", "oracles/nemotron_h"};
    const StepLoad decode = {.rows = 4, .seqs = 4, .outs = 4, .first = 20},
                   chunk = {.rows = 24, .seqs = 1, .outs = 1, .first = 3};
    StepTimes t;
    Err e;

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        OpenModel m = open_model(models[i], "avx2", DT_BF16, &bounds, NULL);
        if (bench_steps(&t, m.model, &decode, 1, &e) != ST_OK)
            fail_msg("%s: %s", models[i], e.msg);
        assert_true(t.n > 5 && t.step_us > 0);
        step_times_release(&t);
        if (bench_steps(&t, m.model, &chunk, 1, &e) != ST_OK)
            fail_msg("%s: %s", models[i], e.msg);
        step_times_release(&t);
        close_model(&m);
    }
}

static void steps__a_device_that_fails_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    const StepLoad load = {.rows = 2, .seqs = 2, .outs = 2}, beyond = {.rows = 5, .seqs = 5, .outs = 5};
    GpuBackend *mock;
    StepTimes t;
    uint32_t call = 1;
    Err e;

    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &bounds, mock);
    for (;; call += 7) {
        gpu_mock_fail_at(mock, call);
        Status st = bench_steps(&t, m.model, &load, 1, &e);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_DEVICE);
    }
    assert_true(call > 100);
    step_times_release(&t);
    gpu_mock_fail_at(mock, 0);
    assert_int_equal(bench_steps(&t, m.model, &beyond, 1, &e), ST_INVALID);
    assert_non_null(strstr(e.msg, "--max-seqs 4"));
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traffic__a_decode_step_reads_weights_once_and_each_sequence_s_kv),
        cmocka_unit_test(traffic__a_chunk_s_rows_see_what_is_before_them),
        cmocka_unit_test(traffic__a_window_bounds_what_is_seen),
        cmocka_unit_test(traffic__of_experts_those_that_uniform_routing_is_expected_to_choose),
        cmocka_unit_test(steps__every_launch_of_a_plan_is_timed_once_for_each_kind),
        cmocka_unit_test(steps__launches_out_of_their_order_find_inputs_that_they_can_follow),
        cmocka_unit_test(steps__a_device_that_fails_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
