/* test_dummy.c - seeded weights: the same bytes in any order of reading, and numbers a model can run on. */
#include "bytes.h"
#include "core/thread.h"
#include "weights/decode.h"
#include <math.h>

enum { N = 64, K = 1024 };

static WeightStore *dummy(uint64_t seed)
{
    json_t *config = json_pack("{s:i}", "hidden_size", K);
    WeightStore *s = NULL;
    Err err;

    assert_int_equal(store_dummy_new(&s, config, seed, &err), ST_OK);
    json_decref(config); /* the store has its own */
    return s;
}

static const TensorInfo *declared(WeightStore *s, const char *name, DType t, uint32_t n_dims, uint64_t n, uint64_t k)
{
    uint64_t dims[2] = {n, k};
    Err err;

    if (store_dummy_declare(s, name, t, n_dims, n_dims == 1 ? &k : dims, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return store_find(s, name);
}

static const DType TYPES[] = {DT_F32,    DT_F16,   DT_BF16, DT_Q8_0, DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1,
                              DT_IQ4_NL, DT_MXFP4, DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_IQ4_XS};

/* 65,536 values: the mean's own deviation is 0.02 / 256; the steps of 4 bits add at most 3% to sigma, those of 2 and 3 bits
 * are chosen for it. */
static void dummy__weights_are_normal_with_sigma_0_02(void **state)
{
    WeightStore *s = dummy(1);
    float *v = malloc(K * sizeof *v);
    Err err;

    (void)state;
    assert_int_equal(json_integer_value(json_object_get(store_meta(s), "hidden_size")), K);
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        const TensorInfo *t = declared(s, dtype_name(TYPES[i]), TYPES[i], 2, N, K);
        unsigned char *p = malloc(t->bytes);
        double sum = 0, squares = 0, above = 0;

        assert_int_equal(store_read(s, t, 0, p, t->bytes, &err), ST_OK);
        for (int r = 0; r < N; r++) {
            assert_true(dtype_row_to_f32(TYPES[i], p + r * (t->bytes / N), K, v));
            for (int k = 0; k < K; k++) {
                sum += v[k];
                squares += (double)v[k] * v[k];
                above += v[k] > 0.02 || v[k] < -0.02;
            }
        }
        assert_true(fabs(sum / (N * K)) < 4 * 0.02 / 256);
        assert_true(fabs(sqrt(squares / (N * K)) - 0.02) < 0.001);
        if (dtype_block(TYPES[i]) == 1) /* 31.7% of a normal distribution lie outside one sigma */
            assert_true(fabs(above / (N * K) - 0.317) < 0.02);
        free(p);
    }
    free(v);
    store_free(s);
}

/* The same name and seed are the same values in every format, up to its steps: half of a step inside the outermost levels.
 * Blocks begin at whole blocks, so that they may begin up to a block less one earlier than floats do. */
static void dummy__formats_hold_the_same_values(void **state)
{
    static const struct {
        DType t;
        float step, reach; /* values beyond +-reach are cut; steps between */
    } formats[] = {{DT_Q8_0, 0.07f / 127, 0.069f}, {DT_Q4_0, 0.01f, 0.069f},   {DT_Q4_1, 0.01f, 0.069f},
                   {DT_Q5_0, 0.005f, 0.069f},      {DT_Q5_1, 0.005f, 0.069f},  {DT_IQ4_NL, 0.0148f, 0.069f},
                   {DT_MXFP4, 0.0313f, 0.069f},    {DT_Q2_K, 0.0233f, 0.034f}, {DT_Q3_K, 0.0141f, 0.042f},
                   {DT_Q4_K, 0.01f, 0.069f},       {DT_Q5_K, 0.005f, 0.069f},  {DT_Q6_K, 0.07f / 31, 0.069f},
                   {DT_IQ4_XS, 0.0148f, 0.069f}};
    WeightStore *a = dummy(3);
    float want[K], got[K];
    unsigned char p[K * 4];
    Err err;

    (void)state;
    assert_int_equal(store_read(a, declared(a, "w", DT_F32, 2, 1, K), 0, want, sizeof want, &err), ST_OK);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        WeightStore *b = dummy(3);
        const TensorInfo *t = declared(b, "w", formats[i].t, 2, 1, K);
        const int block = (int)dtype_block(formats[i].t);
        int shift = -1, k = 0;

        assert_int_equal(store_read(b, t, 0, p, t->bytes, &err), ST_OK);
        assert_true(dtype_row_to_f32(formats[i].t, p, K, got));
        while (k < K - block && ++shift < block)
            for (k = 0; k < K - block && (fabsf(want[k]) >= formats[i].reach ||
                                          fabsf(got[k + shift] - want[k]) <= formats[i].step * 0.51f);
                 k++)
                ;
        if (k < K - block)
            fail_msg("%s: not the values of f32", dtype_name(formats[i].t));
        store_free(b);
    }
    store_free(a);
}

/* Threads read as one does. */
typedef struct Reading {
    WeightStore *s;
    unsigned char bytes[3 * 4096];
} Reading;

static void *read_piecewise(void *arg)
{
    Reading *r = arg;
    Err err;

    for (uint64_t at = sizeof r->bytes; at > 0; at -= 96)
        if (store_read(r->s, store_find(r->s, "w"), at - 96, r->bytes + at - 96, 96, &err) != ST_OK)
            return r;
    return NULL;
}

static void dummy__threads_read_what_one_reads(void **state)
{
    WeightStore *s = dummy(5);
    static Reading r[3];
    Thread threads[2];
    Err err;

    (void)state;
    declared(s, "w", DT_BF16, 2, 6, 1024);
    r[2].s = s;
    assert_null(read_piecewise(&r[2]));
    for (int i = 0; i < 2; i++) {
        r[i].s = s;
        assert_int_equal(thread_start(&threads[i], "reader", read_piecewise, &r[i], &err), ST_OK);
    }
    for (int i = 0; i < 2; i++) {
        thread_join(threads[i]);
        assert_memory_equal(r[i].bytes, r[2].bytes, sizeof r[2].bytes);
    }
    store_free(s);
}

/* Rows and columns are not repeated: a repeat of a whole segment of 4096 elements has odds of 1 in a million a pair. */
static void dummy__rows_differ(void **state)
{
    WeightStore *s = dummy(1);
    unsigned char *p;
    const TensorInfo *t = declared(s, "w", DT_BF16, 2, 200, 4096);
    Err err;

    (void)state;
    p = malloc(t->bytes);
    assert_int_equal(store_read(s, t, 0, p, t->bytes, &err), ST_OK);
    for (int i = 0; i < 200; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(p + i * 8192, p + j * 8192, 8192);
    free(p);
    store_free(s);
}

static void dummy__norms_are_near_one(void **state)
{
    WeightStore *s = dummy(1);
    float v[K];
    Err err;

    (void)state;
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0] && dtype_block(TYPES[i]) == 1; i++) {
        const TensorInfo *t = declared(s, dtype_name(TYPES[i]), TYPES[i], 1, 0, K);
        unsigned char p[K * 4];

        assert_int_equal(t->n_dims, 1);
        assert_int_equal(store_read(s, t, 0, p, t->bytes, &err), ST_OK);
        assert_true(dtype_row_to_f32(TYPES[i], p, K, v));
        for (int k = 0; k < K; k++)
            assert_true(fabsf(v[k] - 1) < 0.075f); /* 0.07, and half an ulp of bf16 */
    }
    store_free(s);
}

static void dummy__any_range_reads_like_the_whole(void **state)
{
    static const size_t cuts[] = {1, 2, 7, 34, 100, 333};
    WeightStore *s = dummy(7);
    Err err;

    (void)state;
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        const TensorInfo *t = declared(s, dtype_name(TYPES[i]), TYPES[i], 2, 3, 512);
        unsigned char whole[3 * 512 * 4], part[3 * 512 * 4];

        assert_int_equal(store_read(s, t, 0, whole, t->bytes, &err), ST_OK);
        for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
            for (uint64_t at = 0; at < t->bytes; at += cuts[c]) {
                size_t n = t->bytes - at < cuts[c] ? t->bytes - at : cuts[c];
                assert_int_equal(store_read(s, t, at, part + at, n, &err), ST_OK);
            }
            assert_memory_equal(whole, part, t->bytes);
        }
        assert_int_equal(store_read(s, t, t->bytes, part, 1, &err), ST_INVALID);
    }
    store_free(s);
}

static void dummy__seed_and_name_decide_the_values(void **state)
{
    WeightStore *a = dummy(1), *b = dummy(1), *c = dummy(2);
    float x[32], y[32];
    Err err;

    (void)state;
    declared(b, "first", DT_F32, 2, 1, 32); /* the order of declaring does not matter */
    declared(a, "w", DT_F32, 2, 1, 32);
    declared(b, "w", DT_F32, 2, 1, 32);
    declared(c, "w", DT_F32, 2, 1, 32);
    assert_int_equal(store_read(a, store_find(a, "w"), 0, x, sizeof x, &err), ST_OK);
    assert_int_equal(store_read(b, store_find(b, "w"), 0, y, sizeof y, &err), ST_OK);
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(store_read(c, store_find(c, "w"), 0, y, sizeof y, &err), ST_OK);
    assert_memory_not_equal(x, y, sizeof x);
    assert_int_equal(store_read(b, store_find(b, "first"), 0, y, sizeof y, &err), ST_OK);
    assert_memory_not_equal(x, y, sizeof x);
    store_free(a);
    store_free(b);
    store_free(c);
}

static void dummy__finds_what_was_declared_among_many(void **state)
{
    WeightStore *s = dummy(1);
    char name[32];

    (void)state;
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "t%d", i * 7919 % 3000);
        declared(s, name, DT_F32, 1, 0, 8);
    }
    assert_int_equal(store_count(s), 3000);
    assert_string_equal(store_at(s, 1)->name, "t1919");
    assert_string_equal(store_find(s, "t2999")->name, "t2999");
    assert_null(store_find(s, "t3000"));
    store_free(s);
}

static void dummy__refuses_impossible_declarations(void **state)
{
    static const uint64_t zero[] = {4, 0}, large[] = {1ull << 40, 1ull << 40}, odd[] = {2, 33}, fine[] = {2, 32};
    WeightStore *s = dummy(1);
    Err err;

    (void)state;
    assert_int_equal(store_dummy_declare(s, "a", DT_F32, 2, zero, &err), ST_INVALID);
    assert_int_equal(store_dummy_declare(s, "a", DT_F32, 2, large, &err), ST_INVALID);
    assert_int_equal(store_dummy_declare(s, "a", DT_Q8_0, 2, odd, &err), ST_INVALID);
    assert_non_null(strstr(err.msg, "tensor a has rows of 33"));
    assert_int_equal(store_dummy_declare(s, "a", DT_I64, 2, fine, &err), ST_UNSUPPORTED);
    assert_int_equal(store_dummy_declare(s, "a", DT_I8_32, 2, fine, &err), ST_UNSUPPORTED);
    assert_int_equal(store_dummy_declare(s, "a", DT_W4_32, 2, fine, &err), ST_UNSUPPORTED);
    assert_int_equal(store_dummy_declare(s, "a", DT_FP8_128, 2, fine, &err), ST_UNSUPPORTED); /* a quantised matrix */
    assert_int_equal(store_dummy_declare(s, "a", DT_Q8_0, 1, fine + 1, &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "f32, f16 or bf16 for vectors"));
    assert_int_equal(store_dummy_declare(s, "a", DT_Q4_K, 2, fine, &err), ST_INVALID);
    assert_int_equal(store_dummy_declare(s, "a", DT_F32, 0, fine, &err), ST_INVALID);
    assert_int_equal(store_dummy_declare(s, "a", DT_F32, 5, fine, &err), ST_INVALID);
    assert_int_equal(store_dummy_declare(s, "", DT_F32, 2, fine, &err), ST_INVALID);
    assert_int_equal(store_dummy_declare(s, "a", DT_F32, 2, fine, &err), ST_OK);
    assert_int_equal(store_dummy_declare(s, "a", DT_F32, 2, fine, &err), ST_INVALID);
    assert_int_equal(store_count(s), 1);
    store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dummy__weights_are_normal_with_sigma_0_02),
        cmocka_unit_test(dummy__formats_hold_the_same_values),
        cmocka_unit_test(dummy__threads_read_what_one_reads),
        cmocka_unit_test(dummy__rows_differ),
        cmocka_unit_test(dummy__norms_are_near_one),
        cmocka_unit_test(dummy__any_range_reads_like_the_whole),
        cmocka_unit_test(dummy__seed_and_name_decide_the_values),
        cmocka_unit_test(dummy__finds_what_was_declared_among_many),
        cmocka_unit_test(dummy__refuses_impossible_declarations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
