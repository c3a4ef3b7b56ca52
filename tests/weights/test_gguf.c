/* test_gguf.c - GGUF headers: metadata as JSON, tensors in row-major order, and every hostile field refused by name. */
#include "bytes.h"
#include "weights/tensors.h"
#include <sys/resource.h>

/* 10 MiB; ThreadSanitizer keeps up to four bytes of shadow for each byte that is touched. */
#if defined(__SANITIZE_THREAD__)
#define LITTLE_KIB (5 * 10 * 1024)
#else
#define LITTLE_KIB (10 * 1024)
#endif

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 }; /* GGUF's value types */

typedef struct Spec {
    const char *name;
    uint32_t n_dims;
    uint64_t dims[9]; /* as in the file: fastest first */
    uint32_t type;
    uint64_t offset;
} Spec;

static void head(Str *s, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    str_clear(s);
    str_adds(s, "GGUF");
    put_u32(s, version);
    put_u64(s, n_tensors);
    put_u64(s, n_keys);
}

static void key(Str *s, const char *name, uint32_t type)
{
    put_string(s, name);
    put_u32(s, type);
}

static void tensor(Str *s, const Spec *t)
{
    put_string(s, t->name);
    put_u32(s, t->n_dims);
    for (uint32_t i = 0; i < t->n_dims && i < 9; i++)
        put_u64(s, t->dims[i]);
    put_u32(s, t->type);
    put_u64(s, t->offset);
}

static void data(Str *s, size_t alignment, size_t n)
{
    while (s->len % alignment != 0)
        str_addc(s, '\0');
    for (size_t i = 0; i < n; i++)
        str_addc(s, (char)i);
    assert_true(str_ok(s));
}

static WeightStore *loads(const Str *s, void **copy)
{
    WeightStore *w;
    Err err;

    if (parse_exact(store_gguf_parse, s->p, s->len, &w, copy, &err) != ST_OK)
        fail_msg("refused: %s", err.msg);
    return w;
}

static void refuses_gguf(const Str *s, const char *part1, const char *part2)
{
    refuses(store_gguf_parse, s->p, s->len, part1, part2);
}

static void gguf__metadata_becomes_one_json_object(void **state)
{
    Str s = STR_INIT;
    WeightStore *w;
    void *copy;
    const json_t *m, *list;

    (void)state;
    head(&s, 2, 0, 16);
    key(&s, "u8", U8), str_addc(&s, '\xff');
    key(&s, "i8", I8), str_addc(&s, '\xff');
    key(&s, "u16", U16), str_add(&s, "\xfe\xff", 2);
    key(&s, "i16", I16), str_add(&s, "\xfe\xff", 2);
    key(&s, "u32", U32), put_u32(&s, 0xffffffffu);
    key(&s, "i32", I32), put_u32(&s, 0xffffffffu);
    key(&s, "f32", F32), put_f32(&s, 0.25f);
    key(&s, "nan", F32), put_u32(&s, 0x7fc00000u);
    key(&s, "yes", BOOL), str_addc(&s, '\1');
    key(&s, "text", STRING), put_string(&s, "d\xc3\xa9j\xc3\xa0 vu");
    key(&s, "u64", U64), put_u64(&s, 1ull << 62);
    key(&s, "large", U64), put_u64(&s, UINT64_MAX);
    key(&s, "i64", I64), put_u64(&s, UINT64_MAX);
    key(&s, "f64", F64), put_u64(&s, 0x3fb999999999999aull);
    key(&s, "tokens", ARRAY), put_u32(&s, STRING), put_u64(&s, 3);
    put_string(&s, "a"), put_string(&s, ""), put_string(&s, "\xc4\xa0t");
    key(&s, "nested", ARRAY), put_u32(&s, ARRAY), put_u64(&s, 2);
    put_u32(&s, U8), put_u64(&s, 1), str_addc(&s, '\7');
    put_u32(&s, U8), put_u64(&s, 0);
    w = loads(&s, &copy);
    m = store_meta(w);
    assert_int_equal(w->kind, STORE_GGUF);
    assert_int_equal(json_object_size(m), 16);
    assert_int_equal(json_integer_value(json_object_get(m, "u8")), 255);
    assert_int_equal(json_integer_value(json_object_get(m, "i8")), -1);
    assert_int_equal(json_integer_value(json_object_get(m, "u16")), 65534);
    assert_int_equal(json_integer_value(json_object_get(m, "i16")), -2);
    assert_int_equal(json_integer_value(json_object_get(m, "u32")), 4294967295);
    assert_int_equal(json_integer_value(json_object_get(m, "i32")), -1);
    assert_true(json_real_value(json_object_get(m, "f32")) == 0.25);
    assert_true(json_is_null(json_object_get(m, "nan")));
    assert_true(json_is_true(json_object_get(m, "yes")));
    assert_string_equal(json_string_value(json_object_get(m, "text")), "d\xc3\xa9j\xc3\xa0 vu");
    assert_int_equal(json_integer_value(json_object_get(m, "u64")), 1ll << 62);
    assert_true(json_real_value(json_object_get(m, "large")) == 18446744073709551616.0);
    assert_int_equal(json_integer_value(json_object_get(m, "i64")), -1);
    assert_true(json_real_value(json_object_get(m, "f64")) == 0.1);
    list = json_object_get(m, "tokens");
    assert_int_equal(json_array_size(list), 3);
    assert_string_equal(json_string_value(json_array_get(list, 2)), "\xc4\xa0t");
    list = json_object_get(m, "nested");
    assert_int_equal(json_integer_value(json_array_get(json_array_get(list, 0), 0)), 7);
    assert_int_equal(json_array_size(json_array_get(list, 1)), 0);
    store_free(w);
    free(copy);
    str_release(&s);
}

static void gguf__dims_are_turned_to_row_major(void **state)
{
    static const Spec specs[] = {{"w", 2, {32, 3}, 8, 0},
                                 {"norm", 1, {4}, 0, 128},
                                 {"experts", 3, {32, 2, 5}, 2, 192},
                                 {"scalar", 0, {0}, 0, 384}};
    Str s = STR_INIT;
    WeightStore *w;
    void *copy;
    Err err;
    const TensorInfo *t;
    unsigned char got[3];

    (void)state;
    head(&s, 3, 4, 0);
    for (int i = 0; i < 4; i++)
        tensor(&s, &specs[i]);
    data(&s, 32, 388);
    w = loads(&s, &copy);
    t = store_find(w, "w");
    assert_int_equal(t->dtype, DT_Q8_0);
    assert_string_equal(t->stored, "Q8_0");
    assert_int_equal(t->dims[0], 3);
    assert_int_equal(t->dims[1], 32);
    assert_int_equal(t->bytes, 3 * 34);
    assert_int_equal(store_read(w, t, 33, got, 3, &err), ST_OK);
    assert_memory_equal(got, "\x21\x22\x23", 3);
    t = store_find(w, "experts");
    assert_int_equal(t->dims[0], 5);
    assert_int_equal(t->dims[1], 2);
    assert_int_equal(t->dims[2], 32);
    assert_int_equal(t->bytes, 180);
    assert_int_equal(store_read(w, t, 0, got, 1, &err), ST_OK);
    assert_int_equal(got[0], 192);
    assert_int_equal(store_find(w, "scalar")->bytes, 4);
    store_free(w);
    free(copy);
    str_release(&s);
}

static void gguf__alignment_moves_the_data(void **state)
{
    static const Spec a = {"a", 1, {4}, 0, 0}, b = {"b", 1, {4}, 0, 256};
    Str s = STR_INIT;
    WeightStore *w;
    void *copy;
    Err err;
    unsigned char got;

    (void)state;
    head(&s, 3, 2, 1);
    key(&s, "general.alignment", U32), put_u32(&s, 256);
    tensor(&s, &a);
    tensor(&s, &b);
    data(&s, 256, 300);
    w = loads(&s, &copy);
    assert_int_equal(store_read(w, store_find(w, "a"), 5, &got, 1, &err), ST_OK);
    assert_int_equal(got, 5);
    store_free(w);
    free(copy);

    for (uint32_t bad = 0; bad < 100; bad = bad ? bad * 3 : 33) { /* 0, 33, 99 */
        head(&s, 3, 0, 1);
        key(&s, "general.alignment", U32), put_u32(&s, bad);
        refuses_gguf(&s, "general.alignment", "power of two");
    }
    head(&s, 3, 0, 1);
    key(&s, "general.alignment", STRING), put_string(&s, "32");
    refuses_gguf(&s, "general.alignment", "power of two");
    str_release(&s);
}

static void gguf__refuses_wrong_tensor_fields_by_name(void **state)
{
    static const struct {
        Spec spec;
        const char *part;
    } cases[] = {
        {{"the.weight", 5, {32, 1, 1, 1, 1}, 0, 0}, "5 dimensions"},
        {{"the.weight", 9, {32, 1, 1, 1, 1, 1, 1, 1, 1}, 0, 0}, "9 dimensions"},
        {{"the.weight", UINT32_MAX, {32}, 0, 0}, "4294967295 dimensions"},
        {{"the.weight", 2, {32, 0}, 0, 0}, "dimension of 0"},
        {{"the.weight", 2, {0, 32}, 0, 0}, "dimension of 0"},
        {{"the.weight", 2, {32, (uint64_t)-1}, 0, 0}, "dimension of -1"},
        {{"the.weight", 1, {1ull << 63}, 0, 0}, "dimension of -9223372036854775808"},
        {{"the.weight", 2, {4398046511105, 1 << 22}, 0, 0}, "multiply past"},
        {{"the.weight", 4, {65536, 65536, 65536, 65536}, 0, 0}, "multiply past"},
        {{"the.weight", 2, {1ull << 32, 1ull << 31}, 0, 0}, "multiply past"},
        {{"the.weight", 2, {1ull << 32, 1ull << 30}, 0, 0}, "64 bits of bytes"},
        {{"the.weight", 2, {1ull << 31, 1ull << 30}, 0, 0}, "past any file"},
        {{"the.weight", 2, {1ull << 30, 1ull << 30}, 0, 0}, "needs bytes"},
        {{"the.weight", 2, {40, 32}, 2, 0}, "rows of 40 values"},
        {{"the.weight", 2, {16, 64}, 8, 0}, "rows of 16 values"},
        {{"the.weight", 0, {0}, 3, 0}, "rows of 1 values"},
        {{"the.weight", 1, {32}, 77, 0}, "type 77"},
        {{"the.weight", 1, {32}, UINT32_MAX, 0}, "type 4294967295"},
        {{"the.weight", 1, {32}, 4, 0}, "Q4_2"},
        {{"the.weight", 1, {256}, 19, 0}, "IQ1_S, which this build does not read"},
        {{"the.weight", 2, {128, 2}, 14, 0}, "rows of 128 values, not a multiple of the 256 of a Q6_K block"},
        {{"the.weight", 1, {64}, 40, 0}, "NVFP4, which this build does not read"},
        {{"the.weight", 1, {32}, 26, 0}, "I32, which this build does not read"},
        {{"the.weight", 1, {32}, 0, 4}, "offset 4, not a multiple"},
        {{"the.weight", 1, {33}, 0, 0}, "needs bytes"},
        {{"the.weight", 1, {32}, 0, 32}, "needs bytes"},
        {{"the.weight", 1, {32}, 0, 1 << 30}, "needs bytes"},
        {{"the.weight", 1, {32}, 0, UINT64_MAX - 31}, "past any file"},
    };
    Str s = STR_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        head(&s, 3, 1, 0);
        tensor(&s, &cases[i].spec);
        data(&s, 32, 128);
        refuses_gguf(&s, "the.weight", cases[i].part);
    }
    str_release(&s);
}

static void gguf__refuses_shared_bytes_and_double_names(void **state)
{
    static const Spec a = {"a", 1, {16}, 0, 0}, b = {"b", 1, {16}, 0, 32}, a2 = {"a", 1, {8}, 0, 64};
    Str s = STR_INIT;

    (void)state;
    head(&s, 3, 2, 0);
    tensor(&s, &b);
    tensor(&s, &a);
    data(&s, 32, 128);
    refuses_gguf(&s, "tensors a and b share", "");
    head(&s, 3, 2, 0);
    tensor(&s, &a);
    tensor(&s, &a2);
    data(&s, 32, 128);
    refuses_gguf(&s, "tensor a is there twice", "");
    str_release(&s);
}

static void gguf__refuses_wrong_tensor_names_by_number(void **state)
{
    static const char *const names[] = {"", "\xff", "a\nb", "\xc3"};
    Str s = STR_INIT;
    char longest[TENSOR_NAME_MAX + 2];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        Spec t = {names[i], 1, {8}, 0, 0};
        head(&s, 3, 1, 0);
        tensor(&s, &t);
        data(&s, 32, 32);
        refuses_gguf(&s, "the name of tensor 1", "");
    }
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    Spec t = {longest, 1, {8}, 0, 0};
    head(&s, 3, 1, 0);
    tensor(&s, &t);
    data(&s, 32, 32);
    refuses_gguf(&s, "the name of tensor 1", "above the limit");
    str_release(&s);
}

static void gguf__refuses_wrong_heads(void **state)
{
    Str s = STR_INIT;

    (void)state;
    refuses(store_gguf_parse, "", 0, "magic", "cut off");
    head(&s, 3, 0, 0);
    s.p[3] = 'A';
    refuses_gguf(&s, "does not begin with", "");
    head(&s, 1, 0, 0);
    refuses_gguf(&s, "version 1", "");
    head(&s, 99, 0, 0);
    refuses_gguf(&s, "version 99", "");
    head(&s, 3u << 24, 0, 0);
    refuses_gguf(&s, "big-endian", "");
    head(&s, 3, 1ull << 60, 0);
    refuses_gguf(&s, "1152921504606846976 tensors", "");
    head(&s, 3, 0, 1ull << 61);
    refuses_gguf(&s, "2305843009213693952 metadata keys", "");
    head(&s, 3, 1, 0);
    refuses_gguf(&s, "claims 1 tensors", "");
    str_release(&s);
}

static void gguf__refuses_wrong_metadata_by_key(void **state)
{
    Str s = STR_INIT;

    (void)state;
    /* Each case fills one key's value; padding keeps the counts plausible. */
    head(&s, 3, 0, 1);
    key(&s, "a.key", 13), data(&s, 1, 32);
    refuses_gguf(&s, "a.key", "value type 13");
    head(&s, 3, 0, 1);
    key(&s, "a.key", BOOL), str_addc(&s, '\2'), data(&s, 1, 32);
    refuses_gguf(&s, "a.key", "bool of value 2");
    head(&s, 3, 0, 1);
    key(&s, "a.key", STRING), put_u64(&s, 1ull << 62), data(&s, 1, 32);
    refuses_gguf(&s, "a.key", "4611686018427387904");
    head(&s, 3, 0, 1);
    key(&s, "a.key", STRING), put_string(&s, "ab\xff"), data(&s, 1, 32);
    refuses_gguf(&s, "a.key", "UTF-8");
    head(&s, 3, 0, 1);
    key(&s, "a.key", ARRAY), put_u32(&s, STRING), put_u64(&s, 2), put_string(&s, "ok"), put_string(&s, "\xed\xa0\x80");
    refuses_gguf(&s, "a.key[1]", "UTF-8");
    head(&s, 3, 0, 1);
    key(&s, "a.key", STRING), put_u64(&s, 3), str_add(&s, "a\0b", 3);
    refuses_gguf(&s, "a.key", "NUL");
    head(&s, 3, 0, 1);
    key(&s, "a.key", ARRAY), put_u32(&s, U8), put_u64(&s, 1ull << 61), data(&s, 1, 32);
    refuses_gguf(&s, "a.key", "2305843009213693952 elements");
    head(&s, 3, 0, 1);
    key(&s, "a.key", ARRAY), put_u32(&s, U64), put_u64(&s, 5), data(&s, 1, 32);
    refuses_gguf(&s, "a.key", "5 elements");
    head(&s, 3, 0, 1);
    key(&s, "a.key", ARRAY), put_u32(&s, 99), put_u64(&s, 1), data(&s, 1, 32);
    refuses_gguf(&s, "a.key", "type 99");
    head(&s, 3, 0, 1);
    key(&s, "a.key", ARRAY);
    for (int i = 0; i < 10000; i++)
        put_u32(&s, ARRAY), put_u64(&s, 1);
    refuses_gguf(&s, "a.key", "nested deeper");
    head(&s, 3, 0, 2);
    key(&s, "a.key", U32), put_u32(&s, 1), key(&s, "a.key", U32), put_u32(&s, 1);
    refuses_gguf(&s, "a.key", "twice");
    head(&s, 3, 0, 1);
    put_u64(&s, 1ull << 62), data(&s, 1, 32);
    refuses_gguf(&s, "metadata key 1 of 1", "4611686018427387904");
    head(&s, 3, 0, 1);
    key(&s, "\xff", U32), put_u32(&s, 1);
    refuses_gguf(&s, "metadata key 1 of 1", "UTF-8");
    str_release(&s);
}

static void gguf__refuses_a_file_cut_anywhere(void **state)
{
    static const Spec a = {"a", 2, {32, 2}, 3, 0};
    Str s = STR_INIT;
    void *copy;

    (void)state;
    head(&s, 3, 1, 2);
    key(&s, "general.name", STRING), put_string(&s, "x");
    key(&s, "tokens", ARRAY), put_u32(&s, STRING), put_u64(&s, 2), put_string(&s, "a"), put_string(&s, "b");
    tensor(&s, &a);
    data(&s, 32, 40);
    for (size_t len = 0; len < s.len; len++)
        refuses(store_gguf_parse, s.p, len, "download it again", "");
    store_free(loads(&s, &copy));
    free(copy);
    str_release(&s);
}

/* What is really in the file may cost its own size many times over in JSON, so the elements are counted. */
static void gguf__hostile_counts_cost_little_memory(void **state)
{
    Str s = STR_INIT;
    struct rusage before, after;

    (void)state;
    head(&s, 3, 0, 1);
    key(&s, "a.key", ARRAY), put_u32(&s, U8), put_u64(&s, (4u << 20) + 1);
    for (uint32_t i = 0; i <= 4u << 20; i++)
        str_addc(&s, 'x');
    getrusage(RUSAGE_SELF, &before);
    refuses_gguf(&s, "a.key", "limit");
    getrusage(RUSAGE_SELF, &after);
    if (after.ru_maxrss - before.ru_maxrss > LITTLE_KIB) /* with the test's own copy */
        fail_msg("cost %ld KiB", after.ru_maxrss - before.ru_maxrss);
    str_release(&s);
}

static void write_file(const char *path, const void *p, size_t len)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* Planning needs names and shapes of files that cannot be served, and of files whose data is elsewhere. */
static void gguf__metadata_opens_for_other_types_and_without_data(void **state)
{
    static const Spec a = {"a", 2, {256, 2}, 18, 0}, b = {"b", 2, {64, 2}, 42, 512};
    Str s = STR_INIT;
    WeightStore *w = NULL;
    const TensorInfo *t;
    Err err;

    (void)state;
    head(&s, 3, 2, 1);
    key(&s, "general.name", STRING), put_string(&s, "x");
    tensor(&s, &a);
    tensor(&s, &b);
    write_file("other.gguf", s.p, s.len);
    assert_int_equal(store_open(&w, "other.gguf", &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "other.gguf: tensor a is IQ3_XXS"));
    assert_int_equal(store_open_config(&w, "other.gguf", &err), ST_OK);
    assert_string_equal(json_string_value(json_object_get(store_meta(w), "general.name")), "x");
    assert_int_equal(store_count(w), 2);
    t = store_find(w, "a");
    assert_int_equal(t->dtype, DT_NONE);
    assert_string_equal(t->stored, "IQ3_XXS");
    assert_int_equal(t->bytes, 196);
    assert_int_equal(store_need(w, "a", &t, &err), ST_UNSUPPORTED);
    assert_string_equal(store_find(w, "b")->stored, "Q2_0");
    store_free(w);
    str_release(&s);
}

/* The window over a file must not be seen: one value is larger than it, others cross its edges. */
static void gguf__a_file_reads_like_the_same_bytes_in_memory(void **state)
{
    static const Spec a = {"a", 1, {16}, 0, 0};
    Str s = STR_INIT;
    WeightStore *w = NULL, *m;
    void *copy;
    Err err;
    char name[32];
    unsigned char x[64], y[64];

    (void)state;
    head(&s, 3, 1, 3002);
    key(&s, "template", STRING), put_u64(&s, 200000);
    for (int i = 0; i < 200000; i++)
        str_addc(&s, (char)('a' + i % 26));
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "key.%d", i * i);
        key(&s, name, STRING), put_string(&s, name);
    }
    key(&s, "ids", ARRAY), put_u32(&s, I32), put_u64(&s, 40000);
    for (uint32_t i = 0; i < 40000; i++)
        put_u32(&s, i * 2654435761u);
    tensor(&s, &a);
    data(&s, 32, 64);
    write_file("window.gguf", s.p, s.len);
    m = loads(&s, &copy);
    if (store_open(&w, "window.gguf", &err) != ST_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(json_equal(store_meta(w), store_meta(m)), 1);
    assert_int_equal(store_read(w, store_find(w, "a"), 0, x, 64, &err), ST_OK);
    assert_int_equal(store_read(m, store_find(m, "a"), 0, y, 64, &err), ST_OK);
    assert_memory_equal(x, y, 64);
    store_free(w);
    store_free(m);
    free(copy);
    str_release(&s);
}

/* Values that straddle the end of the first window, by every number of bytes. */
static void gguf__a_value_may_straddle_the_window_anywhere(void **state)
{
    Str s = STR_INIT;
    WeightStore *w = NULL;
    Err err;

    (void)state;
    for (uint64_t pad = 0; pad < 8; pad++) {
        head(&s, 3, 0, 2);
        key(&s, "pad", STRING), put_u64(&s, pad), str_add(&s, "........", pad);
        key(&s, "values", ARRAY), put_u32(&s, U64), put_u64(&s, 10000);
        for (uint64_t i = 0; i < 10000; i++)
            put_u64(&s, 0x0101010101010101u * (i % 100 + 1));
        write_file("straddle.gguf", s.p, s.len);
        assert_int_equal(store_open_config(&w, "straddle.gguf", &err), ST_OK);
        const json_t *values = json_object_get(store_meta(w), "values");
        for (uint64_t i = 0; i < 10000; i++)
            assert_int_equal(json_integer_value(json_array_get(values, i)), 0x0101010101010101u * (i % 100 + 1));
        store_free(w);
    }
    str_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf__hostile_counts_cost_little_memory), /* first: it watches a high-water mark */
        cmocka_unit_test(gguf__metadata_becomes_one_json_object),
        cmocka_unit_test(gguf__dims_are_turned_to_row_major),
        cmocka_unit_test(gguf__alignment_moves_the_data),
        cmocka_unit_test(gguf__refuses_wrong_tensor_fields_by_name),
        cmocka_unit_test(gguf__refuses_shared_bytes_and_double_names),
        cmocka_unit_test(gguf__refuses_wrong_tensor_names_by_number),
        cmocka_unit_test(gguf__refuses_wrong_heads),
        cmocka_unit_test(gguf__refuses_wrong_metadata_by_key),
        cmocka_unit_test(gguf__refuses_a_file_cut_anywhere),
        cmocka_unit_test(gguf__metadata_opens_for_other_types_and_without_data),
        cmocka_unit_test(gguf__a_file_reads_like_the_same_bytes_in_memory),
        cmocka_unit_test(gguf__a_value_may_straddle_the_window_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
