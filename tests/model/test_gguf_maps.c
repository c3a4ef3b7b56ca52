/* test_gguf_maps.c - every GGUF map against reference logits: each oracle is written as a GGUF file by rules that are data, read through
 * the store, the map and the plan, and must give the logits of the checkpoint that it was made of.
 *
 * Bounds. F32 files hold the oracle's bf16 weights exactly, so they have the oracle's own bound (tests/model/test_oracles.c), and a plan
 * with f32 KV 1e-4. What -e^A_log is rounded to in f32 is 1e-7 away. F16 files: bf16 has 8 bits, f16 11, so that only what is below 2^-14
 * is rounded, to 2^-25; 1e-3. Q8_0 files: weights are half a step of 2^-7 of their block's largest away, which takes rows of tiny models
 * to other experts; what is compared is the plan with the reference on the same file. 8-bit activations come to 6e-2 there,
 * and to twice that through three recurrences; they too take rows to other experts, so the bound is the middle row's. */
#include "support/gguf_writer.h"
#include "support/open_model.h"

static const ModelOptions options = {
    .max_rows = 64, .max_outs = 64, .max_seqs = 4, .max_len = 128, .kv_blocks = 16, .batch_invariant = true};

/* A set of rules and the checkpoint that they are for. */
typedef struct Maps {
    Toml *rules;
    WeightStore *from;
    const char *oracle;
    double bound;
} Maps;

static Maps maps_open(const char *name)
{
    Maps m = {0};
    char path[1024], *text;
    size_t len;
    Err e;

    snprintf(path, sizeof path, "%s/tests/data/gguf_maps/%s.toml", test_root(), name);
    if (file_read(path, 1 << 20, &text, &len, &e) != ST_OK || toml_parse(text, len, name, &m.rules, &e) != ST_OK)
        fail_msg("%s", e.msg);
    free(text);
    m.oracle = rules_find(m.rules, "oracle")->str;
    m.bound = rules_find(m.rules, "bound")->f;
    snprintf(path, sizeof path, "%s/tests/data/oracles/%s", test_root(), m.oracle);
    if (store_open(&m.from, path, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return m;
}

static void maps_close(Maps *m)
{
    store_free(m->from);
    toml_free(m->rules);
}

static WeightStore *maps_store(const Str *file, const char *name)
{
    WeightStore *s = NULL;
    Err e;

    if (store_gguf_parse(&s, str_c(file), file->len, name, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return s;
}

/* Logits of the prompt, then of each decode step but the first, as the golden file has them. */
static void by_reference(const OpenModel *m, const GoldenFile *g, float *prompt, float *decode)
{
    Reference *ref;
    Err e;

    if (reference_new(&ref, m->in, m->store, 64, &e) != ST_OK ||
        reference_forward(ref, g->ids, g->n, prompt, NULL, &e) != ST_OK)
        fail_msg("%s", e.msg);
    memcpy(decode, prompt + (size_t)(g->n - 1) * g->vocab, sizeof(float) * g->vocab);
    for (uint32_t i = 1; i < g->n_decode; i++)
        assert_int_equal(reference_forward(ref, g->decode_ids + i - 1, 1, decode + (size_t)i * g->vocab, NULL, &e),
                         ST_OK);
    reference_free(ref);
}

static void by_plan(const OpenModel *m, const GoldenFile *g, float *prompt, float *decode)
{
    Solo *solo;
    Err e;

    assert_int_equal(solo_new(&solo, m->model, &e), ST_OK);
    assert_int_equal(solo_append(solo, g->ids, g->n, prompt, &e), ST_OK);
    memcpy(decode, prompt + (size_t)(g->n - 1) * g->vocab, sizeof(float) * g->vocab);
    for (uint32_t i = 1; i < g->n_decode; i++)
        assert_int_equal(solo_append(solo, g->decode_ids + i - 1, 1, decode + (size_t)i * g->vocab, &e), ST_OK);
    solo_free(solo);
}

static int error_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The largest error of the middle one of n rows. */
static double middle_error(const float *got, const float *want, uint32_t n, uint32_t vocab)
{
    double errors[64];

    assert_true(n <= 64);
    for (uint32_t r = 0; r < n; r++)
        errors[r] = worst_error(got + (size_t)r * vocab, want + (size_t)r * vocab, vocab);
    qsort(errors, n, sizeof *errors, error_order);
    return errors[n / 2];
}

/* [0] of each pair: rows of the prompt, [1]: of decode steps. */
static void check_near(const char *name, const char *what, const GoldenFile *g, const float *const got[2],
                       const float *const want[2], bool middle, double bound)
{
    double far =
        middle ? middle_error(got[0], want[0], g->n, g->vocab) : worst_error(got[0], want[0], (size_t)g->n * g->vocab);
    double later = middle ? middle_error(got[1], want[1], g->n_decode, g->vocab)
                          : worst_error(got[1], want[1], (size_t)g->n_decode * g->vocab);

    if (!(far <= bound) || !(later <= bound))
        fail_msg("%s, %s: prefill is off by %g, decode by %g, bound %g", name, what, far, later, bound);
}

static void check_type(const Maps *m, const char *name, const char *arch, WriteType type, double bound)
{
    static const char *const classes[] = {"avx2", "avx512"};
    char dir[128], label[160];
    Str file = gguf_write(m->rules, arch, m->from, type, NULL, NULL);
    GoldenFile g = (snprintf(dir, sizeof dir, "oracles/%s", m->oracle), golden_open(dir));
    float *prompt = malloc(sizeof(float) * g.vocab * g.n), *decode = malloc(sizeof(float) * g.vocab * g.n_decode);
    float *want_prompt = malloc(sizeof(float) * g.vocab * g.n),
          *want_decode = malloc(sizeof(float) * g.vocab * g.n_decode);
    const float *const got[2] = {prompt, decode}, *const want[2] = {want_prompt, want_decode},
                       *const golden[2] = {g.logits, g.decode_logits};
    OpenModel ref = open_store(maps_store(&file, name), DT_F32);

    snprintf(label, sizeof label, "%s as %s of %s", name, arch,
             type == WRITE_F32   ? "f32"
             : type == WRITE_F16 ? "f16"
                                 : "q8_0");
    by_reference(&ref, &g, want_prompt, want_decode);
    if (type != WRITE_Q8_0)
        check_near(label, "the reference", &g, want, golden, false, bound);
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (!class_runs(classes[i]))
            continue;
        OpenModel plan = open_store(maps_store(&file, name), DT_F32);
        open_on(&plan, classes[i], &options, NULL);
        by_plan(&plan, &g, prompt, decode);
        check_near(label, classes[i], &g, got, want, type == WRITE_Q8_0, type == WRITE_Q8_0 ? bound : 1e-4);
        close_model(&plan);
    }
    close_model(&ref);
    free(prompt);
    free(decode);
    free(want_prompt);
    free(want_decode);
    golden_close(&g);
    str_release(&file);
}

/* The file without a key, or with one that nobody knows, is refused by the key's name. */
static void check_refused(const Maps *m, const char *name, const char *arch, const char *drop, const char *add)
{
    Str file = gguf_write(m->rules, arch, m->from, WRITE_F32, drop, add);
    WeightStore *s = maps_store(&file, name);
    CircuitLibrary *lib = NULL;
    Instance *in = NULL;
    Err e = {{0}};

    assert_int_equal(circuit_library_new(&lib, metrale_registry.files, metrale_registry.n_files, &e), ST_OK);
    InstanceSource src = {.name = s->path,
                          .meta = store_meta(s),
                          .gguf = true,
                          .find = open_model_find,
                          .tensor_at = open_model_at,
                          .ctx = s,
                          .kv_format = DT_F32};
    if (instance_new(&in, lib, &src, &e) == ST_OK)
        fail_msg("%s as %s was taken %s %s", name, arch, drop ? "without" : "with", drop ? drop : add);
    if (strstr(e.msg, drop ? drop : add) == NULL)
        fail_msg("%s as %s %s %s was refused with: %s", name, arch, drop ? "without" : "with", drop ? drop : add,
                 e.msg);
    circuit_library_free(lib);
    store_free(s);
    str_release(&file);
}

static void check_map(void **state)
{
    const char *name = *state;
    Maps m = maps_open(name);
    const TomlNode *archs = rules_find(m.rules, "arch"), *needed = rules_find(m.rules, "needed");

    for (uint32_t i = 0; i < archs->list.len; i++) {
        const char *arch = archs->list.items[i].str;

        check_type(&m, name, arch, WRITE_F32, m.bound);
        if (i > 0)
            continue;
        check_type(&m, name, arch, WRITE_F16, 1e-3);
        check_type(&m, name, arch, WRITE_Q8_0, 1.2e-1);
        check_refused(&m, name, arch, NULL, "surprise");
        for (uint32_t k = 0; k < needed->list.len; k++)
            check_refused(&m, name, arch, needed->list.items[k].str, NULL);
    }
    maps_close(&m);
}

int main(void)
{
    static const char *const names[] = {"granite",     "olmoe",      "gemma3",      "glm4_moe",
                                        "minimax_m2",  "qwen3_next", "gpt_oss",     "nemotron_h",
                                        "deepseek_v3", "qwen3_5",    "qwen3_5_moe", "deepseek_v3-fused"};
    enum { N = sizeof names / sizeof names[0] };
    struct CMUnitTest tests[N];

    for (size_t i = 0; i < N; i++)
        tests[i] =
            (struct CMUnitTest){.name = names[i], .test_func = check_map, .initial_state = (void *)(uintptr_t)names[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
