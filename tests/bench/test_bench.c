/* What bench counts, on a real engine under a clock that moves by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/bench.h"
#include "support/open_model.h"

static void bench__copy_counts_bytes_both_ways(void **state)
{
    (void)state;
    Err e;
    double gb_s = 0;
    assert_int_equal(bench_copy(&gb_s, clock_system(), 2, 8 << 20, &e), ST_OK);
    assert_true(gb_s > 0.05 && gb_s < 10000);
}

static void bench__a_device_s_copy_is_timed_by_its_own_clock(void **state)
{
    (void)state;
    GpuBackend *gpu;
    double gb_s = 0;
    Err e;
    assert_int_equal(gpu_cpu_new(&gpu, "avx2", 1, &e), ST_OK);
    assert_int_equal(bench_copy_device(&gb_s, gpu, 8 << 20, &e), ST_OK);
    assert_true(gb_s > 0.05 && gb_s < 10000);
    gpu_free(gpu);
}

/* A clock that moves 1 ms at each reading: a step is then 1 ms, whatever it does. */
static uint64_t ticking_ns(Clock *c)
{
    ClockFake *f = (ClockFake *)(void *)c;
    return f->ns += 1000000;
}

static void bench__rates_are_tokens_over_the_time_of_their_steps(void **state)
{
    (void)state;
    const ModelOptions mo = {
        .max_rows = 16, .max_outs = 2, .max_seqs = 2, .max_len = 64, .kv_blocks = 8, .batch_invariant = true};
    const EngineOptions eo = {.queue_len = 2};
    const BenchWork work = {.prompt = 32, .gen = 9, .concurrency = 1, .repeat = 3, .seed = 7};
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &mo, NULL);
    Engine *engine;
    ClockFake still, ticking;
    BenchResult r, again;
    Err e;

    clock_fake_init(&still);
    clock_fake_init(&ticking);
    ticking.base.now_ns = ticking_ns;
    assert_int_equal(engine_new(&engine, m.model, &still.base, &eo, NULL, &e), ST_OK);
    if (bench_run(&r, engine, &ticking.base, &work, 10.0, &e) != ST_OK)
        fail_msg("%s", e.msg);
    /* 32 prompt tokens in two chunks of 16: two steps of 1 ms. 8 more tokens in 8 steps of 1 ms. */
    assert_float_equal(r.prefill_tok_s.median, 16000, 1);
    assert_float_equal(r.decode_tok_s.median, 1000, 1e-3);
    assert_float_equal(r.step_p50_ms.median, 1.0, 1e-6);
    assert_float_equal(r.step_p99_ms.most, 1.0, 1e-6);
    assert_true(r.decode_tok_s.least <= r.decode_tok_s.median && r.decode_tok_s.median <= r.decode_tok_s.most);
    assert_float_equal(r.share, r.bytes_token * 1000 / 10e9, 1e-9);
    assert_true(r.bytes_token > (double)model_step_weight_bytes(m.model));
    assert_int_equal(bench_run(&again, engine, &ticking.base, &work, 10.0, &e), ST_OK);
    assert_true(r.tokens_hash == again.tokens_hash);
    engine_free(engine);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bench__copy_counts_bytes_both_ways),
        cmocka_unit_test(bench__a_device_s_copy_is_timed_by_its_own_clock),
        cmocka_unit_test(bench__rates_are_tokens_over_the_time_of_their_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
