/* test_safetensors.c - one file's header: what loads, and that every hostile one is refused by a cheap, clear error. */
#include "bytes.h"
#include <sys/resource.h>

/* 10 MiB; ThreadSanitizer keeps up to four bytes of shadow for each byte that is touched. */
#if defined(__SANITIZE_THREAD__)
#define LITTLE_KIB (5 * 10 * 1024)
#else
#define LITTLE_KIB (10 * 1024)
#endif

/* length | header | n_data bytes 0, 1, 2, ... */
static void make(Str *s, uint64_t claimed, const char *header, size_t n_data)
{
    str_clear(s);
    put_u64(s, claimed);
    str_adds(s, header);
    for (size_t i = 0; i < n_data; i++)
        str_addc(s, (char)i);
    assert_true(str_ok(s));
}

static void refuses_header(const char *header, size_t n_data, const char *part1, const char *part2)
{
    Str s = STR_INIT;

    make(&s, strlen(header), header, n_data);
    refuses(store_safetensors_parse, s.p, s.len, part1, part2);
    str_release(&s);
}

static const char TWO[] = "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"a } and a \\\" in text\"},"
                          "\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                          "\"n\\u006frm\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[24,28]}}";

static void safetensors__lists_and_reads_tensors_of_a_padded_header(void **state)
{
    Str s = STR_INIT;
    WeightStore *w;
    void *copy;
    Err err;
    unsigned char got[5];
    const TensorInfo *t;

    (void)state;
    str_adds(&s, TWO);
    for (int i = 0; i < 5; i++)
        str_adds(&s, " ");
    char *header = str_take(&s);
    make(&s, strlen(header), header, 28);
    assert_int_equal(parse_exact(store_safetensors_parse, s.p, s.len, &w, &copy, &err), ST_OK);
    assert_int_equal(store_count(w), 2);
    assert_int_equal(w->kind, STORE_SAFETENSORS);
    t = store_find(w, "w");
    assert_ptr_equal(t, store_at(w, 0));
    assert_int_equal(t->dtype, DT_F32);
    assert_string_equal(t->stored, "F32");
    assert_string_equal(t->file, "the-file");
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->bytes, 24);
    t = store_find(w, "norm"); /* the escape in its name is text */
    assert_non_null(t);
    assert_int_equal(store_read(w, t, 1, got, 3, &err), ST_OK);
    assert_memory_equal(got, "\x19\x1a\x1b", 3);
    assert_int_equal(store_read(w, t, 1, got, 4, &err), ST_INVALID); /* past the end of the tensor */
    assert_null(store_find(w, "__metadata__"));
    store_free(w);
    free(copy);
    free(header);
    str_release(&s);
}

static void safetensors__keeps_other_types_until_a_weight_needs_one(void **state)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F8_E5M2\",\"shape\":[4],\"data_offsets\":[0,4]},"
                                 "\"scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]},"
                                 "\"half\":{\"dtype\":\"F4\",\"shape\":[2,4],\"data_offsets\":[8,12]},"
                                 "\"empty\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[8,8]},"
                                 "\"video\":{\"dtype\":\"BF16\",\"shape\":[1,1,1,1,2],\"data_offsets\":[12,16]}}";
    Str s = STR_INIT;
    WeightStore *w;
    void *copy;
    Err err;
    const TensorInfo *t;

    (void)state;
    make(&s, strlen(header), header, 16);
    assert_int_equal(parse_exact(store_safetensors_parse, s.p, s.len, &w, &copy, &err), ST_OK);
    assert_int_equal(store_count(w), 5);
    assert_int_equal(store_need(w, "a", &t, &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "the-file: tensor a is stored as F8_E5M2"));
    assert_int_equal(store_need(w, "video", &t, &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "BF16 of 5 dimensions"));
    assert_int_equal(store_need(w, "b", &t, &err), ST_NOTFOUND);
    assert_non_null(strstr(err.msg, "tensor b is missing"));
    assert_int_equal(store_need(w, "scale", &t, &err), ST_OK);
    assert_int_equal(t->n_dims, 0);
    assert_int_equal(t->bytes, 4);
    assert_int_equal(store_find(w, "empty")->bytes, 0);
    store_free(w);
    free(copy);
    str_release(&s);
}

static void safetensors__refuses_a_file_cut_anywhere(void **state)
{
    Str s = STR_INIT;
    WeightStore *w;
    void *copy;
    Err err;

    (void)state;
    make(&s, strlen(TWO), TWO, 28);
    for (size_t len = 0; len < s.len; len++)
        refuses(store_safetensors_parse, s.p, len, "cut off", "download it again");
    assert_int_equal(parse_exact(store_safetensors_parse, s.p, s.len, &w, &copy, &err), ST_OK);
    store_free(w);
    free(copy);
    str_release(&s);
}

static void safetensors__refuses_impossible_header_lengths(void **state)
{
    Str s = STR_INIT;
    size_t above = ((size_t)32 << 20) + 1;
    unsigned char *big;

    (void)state;
    make(&s, 0, "", 0);
    refuses(store_safetensors_parse, s.p, s.len, "not a JSON object", "");
    make(&s, 7, TWO, 28);
    refuses(store_safetensors_parse, s.p, s.len, "not valid JSON", "");
    make(&s, (uint64_t)1 << 63, TWO, 28);
    refuses(store_safetensors_parse, s.p, s.len, "9223372036854775808", "cut off");
    make(&s, UINT64_MAX, TWO, 28);
    refuses(store_safetensors_parse, s.p, s.len, "18446744073709551615", "cut off");
    make(&s, strlen(TWO) + 29, TWO, 28);
    refuses(store_safetensors_parse, s.p, s.len, "claims a header", "cut off");
    str_release(&s);

    /* Above the cap and inside the file: refused before a byte of it is read. */
    big = calloc(1, 8 + above);
    assert_non_null(big);
    for (int i = 0; i < 8; i++)
        big[i] = (unsigned char)(above >> 8 * i);
    WeightStore *w = NULL;
    Err err = {{0}};
    assert_int_equal(store_safetensors_parse(&w, big, 8 + above, "the-file", &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "above the limit"));
    free(big);
}

static void safetensors__refuses_malformed_headers_by_place(void **state)
{
    static const struct {
        const char *header, *part1, *part2;
    } cases[] = {
        {"nonsense", "not a JSON object", ""},
        {"[1,2]", "not a JSON object", ""},
        {"\"text\"", "not a JSON object", ""},
        {"{\"a\":{}", "tensor a", "dtype"},
        {"{\"a\" {}}", "expected ':'", ""},
        {"{,}", "expected a name", ""},
        {"{a:1}", "expected a name", ""},
        {"{\"a\":1}", "tensor a", "dtype"},
        {"{\"a\":nope}", "not valid JSON", "(a)"},
        {"{} {}", "text behind the object", ""},
        {"{\"__metadata__\":[]}", "__metadata__", "object of strings"},
        {"{\"__metadata__\":{\"a\":1}}", "__metadata__", "object of strings"},
        {"{\"__metadata__\":{\"a\":\"b\"", "__metadata__", "expected ','"},
        {"{\"\xff\":{}}", "not valid JSON", "0xff"},
        {"{\"a\xc3\":{}}", "not valid JSON", ""},
        {"{\"a\\u0000b\":{}}", "not valid JSON", ""},
        {"{\"a\\nb\":{}}", "tensor number 0", "control"},
        {"{\"\":{}}", "tensor number 0", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuses_header(cases[i].header, 8, cases[i].part1, cases[i].part2);
}

static void safetensors__refuses_wrong_entries_by_tensor(void **state)
{
    static const struct {
        const char *entry, *part;
    } cases[] = {
        {"{\"shape\":[2],\"data_offsets\":[0,8]}", "no \"dtype\""},
        {"{\"dtype\":\"F7\",\"shape\":[2],\"data_offsets\":[0,8]}", "dtype F7"},
        {"{\"dtype\":\"F32\",\"data_offsets\":[0,8]}", "\"shape\""},
        {"{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}", "\"shape\""},
        {"{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}", "\"shape\""},
        {"{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}", "\"shape\""},
        {"{\"dtype\":\"F32\",\"shape\":[2]}", "\"data_offsets\""},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}", "\"data_offsets\""},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}", "\"data_offsets\""},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}", "\"data_offsets\""},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}", "begins at 8, after its end at 0"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}", "has only 8"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[9223372036854775799,9223372036854775807]}", "has only 8"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,18446744073709551615]}", "too big integer"},
        {"{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}", "needs 12 bytes"},
        {"{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,8]}", "needs 4 bytes"},
        {"{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,8]}", "needs 0 bytes"},
        {"{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]}", "needs 0 bytes"},
        {"{\"dtype\":\"F32\",\"shape\":[4398046511105,4194304],\"data_offsets\":[0,8]}", "overflows"},
        {"{\"dtype\":\"F32\",\"shape\":[0,4398046511105,4194304],\"data_offsets\":[0,0]}", "overflows"},
        {"{\"dtype\":\"F32\",\"shape\":[576460752303423489],\"data_offsets\":[0,32]}", "overflows"},
        {"{\"dtype\":\"F32\",\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,8]}", "duplicate"},
    };
    char header[512];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(header, sizeof header, "{\"the.weight\":%s}", cases[i].entry);
        refuses_header(header, 8, "the.weight", cases[i].part);
    }
}

static void safetensors__refuses_shared_bytes_and_double_names(void **state)
{
    (void)state;
    refuses_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                   8, "tensors a and b share", "");
    refuses_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                   8, "share", "");
    refuses_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                   "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                   8, "tensor a is there twice", "");
}

static void safetensors__refuses_ten_thousand_levels_and_long_entries(void **state)
{
    Str s = STR_INIT;
    char *header;

    (void)state;
    str_adds(&s, "{\"a\":");
    for (int i = 0; i < 10000; i++)
        str_addc(&s, '[');
    header = str_take(&s);
    refuses_header(header, 0, "not valid JSON", "(a)");
    free(header);

    str_adds(&s, "{\"__metadata__\":{\"a\":");
    for (int i = 0; i < 10000; i++)
        str_adds(&s, "{\"a\":");
    header = str_take(&s);
    refuses_header(header, 0, "object of strings", "");
    free(header);

    str_adds(&s, "{\"");
    for (int i = 0; i < 100000; i++)
        str_addc(&s, 'n');
    str_adds(&s, "\":{}}");
    header = str_take(&s);
    refuses_header(header, 0, "not valid JSON", "");
    free(header);
    str_release(&s);
}

/* A megabyte of the text that costs most as a JSON tree must not become one. */
static void safetensors__hostile_headers_cost_little_memory(void **state)
{
    Str s = STR_INIT;
    struct rusage before, after;
    char *header;

    (void)state;
    str_adds(&s, "{\"a\":{\"shape\":[0");
    for (int i = 0; i < 500000; i++)
        str_adds(&s, ",0");
    str_adds(&s, "]}}");
    header = str_take(&s);
    make(&s, strlen(header), header, 0);
    getrusage(RUSAGE_SELF, &before);
    refuses(store_safetensors_parse, s.p, s.len, "not valid JSON", "(a)");
    getrusage(RUSAGE_SELF, &after);
    /* The test's own copy of the file is one of the ten. */
    if (after.ru_maxrss - before.ru_maxrss > LITTLE_KIB)
        fail_msg("cost %ld KiB", after.ru_maxrss - before.ru_maxrss);
    free(header);
    str_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safetensors__hostile_headers_cost_little_memory), /* first: it watches a high-water mark */
        cmocka_unit_test(safetensors__lists_and_reads_tensors_of_a_padded_header),
        cmocka_unit_test(safetensors__keeps_other_types_until_a_weight_needs_one),
        cmocka_unit_test(safetensors__refuses_a_file_cut_anywhere),
        cmocka_unit_test(safetensors__refuses_impossible_header_lengths),
        cmocka_unit_test(safetensors__refuses_malformed_headers_by_place),
        cmocka_unit_test(safetensors__refuses_wrong_entries_by_tensor),
        cmocka_unit_test(safetensors__refuses_shared_bytes_and_double_names),
        cmocka_unit_test(safetensors__refuses_ten_thousand_levels_and_long_entries),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
