/* Whole models against reference logits: prefill of 24 tokens, then 8 decode steps, on every CPU class that runs here.
 *
 * Bounds. Reference (double on the stored weights): 1e-5; the golden's own f32 arithmetic is about 1e-6 away. Plan with f32 KV and f32 activations:
 * 1e-4, ten times what f32 sums of a few hundred terms through two layers come to (1e-6 is seen). bf16 KV: 2e-2, since rounding KV alone moves
 * these tiny models by 4e-3 to 9e-3. Formats with 8-bit activations: 6e-2, as llama.cpp's own 8-bit activations give 2e-2 to 5e-2 there. */
#include "support/open_model.h"

static const ModelOptions options = {
    .max_rows = 64, .max_outs = 64, .max_seqs = 4, .max_len = 128, .kv_blocks = 16, .batch_invariant = true};

static void check_plan(const char *path, const char *dir, const char *hw, DType kv, double bound)
{
    if (!class_runs(hw))
        return;
    GoldenFile g = golden_open(dir);
    OpenModel m = open_model(path, hw, kv, &options, NULL);
    float *got = malloc(sizeof(float) * g.vocab * (g.n + g.n_decode));
    Solo *solo;
    Err e;

    assert_int_equal(model_vocab(m.model), g.vocab);
    assert_int_equal(solo_new(&solo, m.model, &e), ST_OK);
    assert_int_equal(solo_append(solo, g.ids, g.n, got, &e), ST_OK);
    double far = worst_error(got, g.logits, (size_t)g.n * g.vocab);
    if (!(far <= bound))
        fail_msg("%s on %s: prefill is off by %g, bound %g", path, hw, far, bound);
    memcpy(got, got + (size_t)(g.n - 1) * g.vocab, sizeof(float) * g.vocab);
    for (uint32_t i = 1; i < g.n_decode; i++)
        assert_int_equal(solo_append(solo, g.decode_ids + i - 1, 1, got + (size_t)i * g.vocab, &e), ST_OK);
    far = worst_error(got, g.decode_logits, (size_t)g.n_decode * g.vocab);
    if (!(far <= bound))
        fail_msg("%s on %s: decode is off by %g, bound %g", path, hw, far, bound);
    solo_free(solo);
    free(got);
    close_model(&m);
    golden_close(&g);
}

static void check_reference(const char *path, const char *dir, double bound)
{
    GoldenFile g = golden_open(dir);
    OpenModel m = open_instance(path, DT_F32);
    Reference *ref;
    float *got = malloc(sizeof(float) * g.vocab * (g.n + g.n_decode));
    Err e;

    assert_int_equal(reference_new(&ref, m.in, m.store, 64, &e), ST_OK);
    assert_int_equal(reference_forward(ref, g.ids, g.n, got, NULL, &e), ST_OK);
    double far = worst_error(got, g.logits, (size_t)g.n * g.vocab);
    if (!(far <= bound))
        fail_msg("%s by the reference: prefill is off by %g, bound %g", path, far, bound);
    memcpy(got, got + (size_t)(g.n - 1) * g.vocab, sizeof(float) * g.vocab);
    for (uint32_t i = 1; i < g.n_decode; i++)
        assert_int_equal(reference_forward(ref, g.decode_ids + i - 1, 1, got + (size_t)i * g.vocab, NULL, &e), ST_OK);
    far = worst_error(got, g.decode_logits, (size_t)g.n_decode * g.vocab);
    if (!(far <= bound))
        fail_msg("%s by the reference: decode is off by %g, bound %g", path, far, bound);
    reference_free(ref);
    free(got);
    close_model(&m);
    golden_close(&g);
}

/* One test for each oracle: the reference, and both classes with f32 and bf16 KV. */
static void check_oracle(void **state)
{
    char dir[64];
    snprintf(dir, sizeof dir, "oracles/%s", (const char *)*state);
    check_reference(dir, dir, 1e-5);
    check_plan(dir, dir, "avx2", DT_F32, 1e-4);
    check_plan(dir, dir, "avx512", DT_F32, 1e-4);
    check_plan(dir, dir, "avx2", DT_BF16, 2e-2);
    check_plan(dir, dir, "avx512", DT_BF16, 2e-2);
}

/* name: of the folder after gguf-. */
static void check_format(const char *name, double bound)
{
    char dir[64], file[96];
    snprintf(dir, sizeof dir, "formats/gguf-%s", name);
    snprintf(file, sizeof file, "%s/model.gguf", dir);
    check_reference(file, dir, 1e-5);
    check_plan(file, dir, "avx2", DT_F32, bound);
    check_plan(file, dir, "avx512", DT_F32, bound);
}

static void oracles__float_ggufs_are_exact_and_rows_of_q_and_k_are_put_in_order(void **state)
{
    (void)state;
    check_format("f32-llama", 1e-4);
    check_format("f16-llama", 1e-4);
    check_format("bf16-llama", 1e-4);
}

static void oracles__block_formats_decode_exactly_and_run_with_8_bit_activations(void **state)
{
    static const char *const names[] = {"q8_0-llama", "q4_0-llama", "q4_1-llama", "q8_0-qwen3", "q8_0-llama3rope"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_format(names[i], 6e-2);
}

static void oracles__every_gguf_type_decodes_exactly(void **state)
{
    static const char *const names[] = {"q5_0-llama", "q5_1-llama",   "iq4_nl-llama", "mxfp4-llama",
                                        "q2_k-llama", "q3_k-llama",   "q4_k-llama",   "q5_k-llama",
                                        "q6_k-llama", "iq4_xs-llama", "q4_k_m-qwen3"};
    char dir[64], file[96];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(dir, sizeof dir, "formats/gguf-%s", names[i]);
        snprintf(file, sizeof file, "%s/model.gguf", dir);
        check_reference(file, dir, 1e-5);
    }
}

static void oracles__a_sharded_checkpoint_loads_like_a_whole_one(void **state)
{
    (void)state;
    check_reference("weights/sharded-llama", "weights/sharded-llama", 1e-5);
    check_plan("weights/sharded-llama", "weights/sharded-llama", "avx2", DT_F32, 1e-4);
}

int main(void)
{
    static const char *const names[] = {"llama", "llama3-rope", "mistral", "qwen2", "qwen3", "qwen3-yarn"};
    struct CMUnitTest tests[6 + 4] = {
        [6] = cmocka_unit_test(oracles__float_ggufs_are_exact_and_rows_of_q_and_k_are_put_in_order),
        [7] = cmocka_unit_test(oracles__block_formats_decode_exactly_and_run_with_8_bit_activations),
        [8] = cmocka_unit_test(oracles__every_gguf_type_decodes_exactly),
        [9] = cmocka_unit_test(oracles__a_sharded_checkpoint_loads_like_a_whole_one),
    };
    for (size_t i = 0; i < 6; i++)
        tests[i] = (struct CMUnitTest){
            .name = names[i], .test_func = check_oracle, .initial_state = (void *)(uintptr_t)names[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
