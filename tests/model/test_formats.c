/* Checkpoints in the formats of other quantisers against golden logits that an independent decoder made of the bytes on
 * disk, in double. The reference must agree to 1e-4: the same meaning of every code, scale, zero point and permutation,
 * since the mildest mistake moves the logits by more than 1e-2.
 *
 * Kernels that take activations in f32 differ by the order of f32 sums only, hence 1e-4 for plans of these; with
 * activations i8/32 the bound is 6e-2, as such models amplify rounding (llama.cpp's 8-bit activations give 2e-2 to 5e-2).
 * GPU classes have activations and KV in bf16: 3e-2; where their plan quantises inputs, 2.5 times what that alone comes to. */
#include "support/open_model.h"

static const ModelOptions options = {
    .max_rows = 64, .max_outs = 64, .max_seqs = 4, .max_len = 128, .kv_blocks = 16, .batch_invariant = true};

typedef struct Format {
    const char *name;
    double plan; /* bound of a CPU class's default plan with KV in f32 */
    double
        inputs; /* how far quantising inputs as the config asks moves the logits (the data's README); 0: it asks for none */
} Format;

static const Format formats[] = {
    {"fp8-block-qwen3", 1e-4, 0.043},
    {"fp8-block-ct-llama", 1e-4, 0.088},
    {"fp8-block-ue8m0-llama", 1e-4, 0.147},
    {"fp8-tensor-modelopt-llama", 1e-4, 0.064},
    {"fp8-tensor-static-mistral", 1e-4, 0.075},
    {"fp8-channel-ct-llama", 1e-4, 0.058},
    {"fp8-block-qwen3_moe", 1e-4, 0.056},
    {"nvfp4-modelopt-llama", 1e-4, 0.348},
    {"nvfp4-ct-qwen3", 1e-4, 0.504},
    {"nvfp4-modelopt-qwen3_moe", 1e-4, 0.157},
    {"mixed-modelopt-llama", 1e-4, 0.177},
    {"mixed-ct-qwen3_moe", 1e-4, 0.317},
    {"mxfp4-gpt_oss", 6e-2, 0},
    {"awq-g128-llama", 6e-2, 0},
    {"awq-g64-qwen3", 6e-2, 0},
    {"awq-qwen3_moe", 6e-2, 0},
    {"gptq4-g128-llama", 6e-2, 0},
    {"gptq4-v2-llama", 6e-2, 0},
    {"gptq4-actorder-llama", 1e-4, 0},
    {"gptq8-qwen3", 6e-2, 0},
    {"ct-int4-g128-qwen3", 6e-2, 0},
    {"ct-int4-asym-llama", 6e-2, 0},
    {"ct-int4-actorder-llama", 1e-4, 0},
    {"ct-int8-w8a8-llama", 6e-2, 0.017},
    {"bnb-nf4-llama", 1e-4, 0},
    {"bnb-nf4-plain-llama", 1e-4, 0},
};
enum { FORMATS = sizeof formats / sizeof *formats };

typedef Status (*AppendFn)(void *ctx, const int32_t *ids, uint32_t n, float *logits, Err *err);

static Status append_reference(void *ctx, const int32_t *ids, uint32_t n, float *logits, Err *err)
{
    return reference_forward(ctx, ids, n, logits, NULL, err);
}

static Status append_plan(void *ctx, const int32_t *ids, uint32_t n, float *logits, Err *err)
{
    return solo_append(ctx, ids, n, logits, err);
}

/* The prompt at once, then one token a step. */
static void check_golden(const char *dir, const char *who, AppendFn append, void *ctx, double bound)
{
    GoldenFile g = golden_open(dir);
    float *got = malloc(sizeof(float) * g.vocab * (g.n + g.n_decode));
    Err e;

    if (append(ctx, g.ids, g.n, got, &e) != ST_OK)
        fail_msg("%s by %s: %s", dir, who, e.msg);
    double far = worst_error(got, g.logits, (size_t)g.n * g.vocab);
    if (!(far <= bound))
        fail_msg("%s by %s: prefill is off by %g, bound %g", dir, who, far, bound);
    memcpy(got, got + (size_t)(g.n - 1) * g.vocab, sizeof(float) * g.vocab);
    for (uint32_t i = 1; i < g.n_decode; i++)
        assert_int_equal(append(ctx, g.decode_ids + i - 1, 1, got + (size_t)i * g.vocab, &e), ST_OK);
    far = worst_error(got, g.decode_logits, (size_t)g.n_decode * g.vocab);
    if (!(far <= bound))
        fail_msg("%s by %s: decode is off by %g, bound %g", dir, who, far, bound);
    free(got);
    golden_close(&g);
}

static bool quantises(const Plan *p)
{
    for (uint32_t b = 0; b < p->instance->n_blocks; b++)
        for (uint32_t i = 0; i < p->blocks[b].source->n_nodes; i++)
            if (p->blocks[b].source->nodes[i].op->kind == OP_ACT_QUANT)
                return true;
    return false;
}

static void check_gpu_plan(const Format *f, const char *dir, const char *hw)
{
    OpenModel m = open_model(dir, hw, DT_BF16, &options, NULL);
    double inputs = quantises(model_plan(m.model, 1)) ? 2.5 * f->inputs : 0;
    Solo *solo;
    Err e;

    assert_int_equal(solo_new(&solo, m.model, &e), ST_OK);
    check_golden(dir, hw, append_plan, solo, fmax(3e-2, inputs));
    solo_free(solo);
    close_model(&m);
}

static void check_plan(const char *dir, const char *hw, double bound)
{
    Solo *solo;
    Err e;

    if (!class_runs(hw))
        return;
    OpenModel m = open_model(dir, hw, DT_F32, &options, NULL);
    assert_int_equal(solo_new(&solo, m.model, &e), ST_OK);
    check_golden(dir, hw, append_plan, solo, bound);
    solo_free(solo);
    close_model(&m);
}

static void check_format(void **state)
{
    const Format *f = *state;
    char dir[96];
    Reference *ref;
    Err e;

    snprintf(dir, sizeof dir, "formats/%s", f->name);
    if (only_class == NULL) {
        OpenModel m = open_instance(dir, DT_F32);
        assert_int_equal(reference_new(&ref, m.in, m.store, 64, &e), ST_OK);
        check_golden(dir, "the reference", append_reference, ref, 1e-4);
        reference_free(ref);
        close_model(&m);
    }
    check_plan(dir, "avx2", f->plan);
    check_plan(dir, "avx512", f->plan);
    for (const char *hw = NULL; (hw = next_gpu_class(hw)) != NULL;)
        check_gpu_plan(f, dir, hw);
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[FORMATS];

    for (size_t i = 0; i < FORMATS; i++)
        tests[i] = (struct CMUnitTest){
            .name = formats[i].name, .test_func = check_format, .initial_state = (void *)(uintptr_t)&formats[i]};
    only_class = argc > 1 ? argv[1] : NULL;
    say_skipped_gpu_classes();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
