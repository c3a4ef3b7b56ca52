/* Records: what is in one, that it survives its own text, and what two of them say side by side. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/record.h"
#include "support/open_model.h"

static const ModelOptions bounds = {
    .max_rows = 16, .max_outs = 3, .max_seqs = 3, .max_len = 64, .kv_blocks = 16, .batch_invariant = true};
static const BenchWork work = {.prompt = 8, .gen = 4, .concurrency = 2, .repeat = 3};

static json_t *a_record(const OpenModel *m, const char *flag, double decode)
{
    char *argv[] = {(char *)(uintptr_t) "metrale bench", (char *)(uintptr_t)flag, NULL};
    const GpuClocks clocks = {.cores = 1755, .cores_max = 1980};
    const BenchResult row = {.decode_tok_s = {decode, decode - 1, decode + 1}, .bytes_step = 5e6, .tokens_hash = 77};
    GpuFacts facts;
    json_t *r;
    Err e;

    gpu_facts(m->gpu, &facts);
    const RecordFacts f = {.unix_s = 1800000000,
                           .argc = 2,
                           .argv = argv,
                           .version = "1.2",
                           .commit = "0123456789abcdef",
                           .host = "host",
                           .model = "model",
                           .target = m->target,
                           .device = &facts,
                           .clocks = clocks,
                           .copy_gb_s = 10,
                           .ready_s = 2};
    assert_int_equal(record_new(&r, &f, m->model, &e), ST_OK);
    assert_int_equal(record_add_row(r, &work, &row, &clocks, &e), ST_OK);
    return r;
}

static void record__says_what_was_measured(void **state)
{
    (void)state;
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &bounds, NULL);
    json_t *r = a_record(&m, "it's; one", 100), *read = NULL, *plans = json_object_get(r, "plans");
    Str text = STR_INIT, people = STR_INIT;
    Err e;

    assert_string_equal(json_string_value(json_object_get(r, "date")), "2027-01-15T08:00:00Z");
    assert_string_equal(json_string_value(json_object_get(r, "command")), "metrale bench 'it'\\''s; one'");
    assert_int_equal(json_array_size(plans), 4); /* 1, 2, 4, extend */
    for (uint32_t i = 0; i < 4; i++)
        assert_string_equal(json_string_value(json_at(json_array_get(plans, i), "digest")),
                            model_plan(m.model, i < 3 ? 1u << i : 0)->digest);
    assert_int_equal(json_string_length(json_object_get(r, "kernels")), 32);
    assert_int_equal(json_integer_value(json_at(r, "device.clocks.cores_mhz")), 1755);
    assert_float_equal(json_number_value(json_at(r, "start.rest_s")), 2, 1e-6); /* no clock: the load took 0 */

    record_print(r, &text);
    assert_int_equal(record_parse(&read, str_c(&text), text.len, "file", &e), ST_OK);
    assert_true(json_equal(r, read));
    assert_non_null(strstr(str_c(&text), "\n {\"name\": \"8+4 x 2\", ")); /* a row is a line */
    record_show(read, &people);
    assert_non_null(strstr(str_c(&people), "cores at 1755 MHz"));
    assert_non_null(strstr(str_c(&people), "8+4 x 2"));
    str_release(&people);
    str_release(&text);
    json_decref(read);
    json_decref(r);
    close_model(&m);
}

static void record__two_side_by_side_give_ratios_and_what_differs(void **state)
{
    (void)state;
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &bounds, NULL);
    json_t *a = a_record(&m, "--x", 100), *b = a_record(&m, "--y", 150);
    Str out = STR_INIT;

    record_compare(a, a, &out);
    assert_null(strstr(str_c(&out), "differs"));
    assert_null(strstr(str_c(&out), "has it"));
    str_clear(&out);
    json_object_set_new(json_array_get(json_object_get(b, "plans"), 1), "digest", json_string("fedc"));
    json_array_append_new(json_object_get(b, "rows"), json_pack("{s:s}", "name", "9+9 x 9"));
    record_compare(a, b, &out);
    assert_non_null(strstr(str_c(&out), "differs  command      \"metrale bench --x\""));
    assert_non_null(strstr(str_c(&out), "differs  plan         decode 2: "));
    assert_non_null(strstr(str_c(&out), "1.500x"));
    assert_non_null(strstr(str_c(&out), "(99..101)"));
    assert_non_null(strstr(str_c(&out), "only the second has it"));
    str_release(&out);
    json_decref(a);
    json_decref(b);
    close_model(&m);
}

static void record__a_file_is_not_trusted(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "[]", "{}", "{\"record\": 2, \"rows\": []}",
                                        "{\"record\": 1, \"rows\": 5}"};
    static const char odd[] =
        "{\"record\": 1, \"rows\": [7, {\"name\": 4}, {\"name\": \"r\", \"x\": {\"median\": \"m\"}, \"y\": "
        "{\"median\": 0.0}}], \"plans\": {\"name\": 1}, \"launches\": \"no\", \"start\": []}";
    json_t *j = NULL;
    Str out = STR_INIT;
    Err e;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(record_parse(&j, wrong[i], strlen(wrong[i]), "old.json", &e), ST_FORMAT);
        assert_non_null(strstr(e.msg, "old.json"));
    }
    assert_int_equal(record_parse(&j, odd, sizeof odd - 1, "odd.json", &e), ST_OK);
    record_show(j, &out);
    record_compare(j, j, &out);
    assert_true(str_ok(&out));
    str_release(&out);
    json_decref(j);
}

static void record__launches_are_summed_by_family(void **state)
{
    (void)state;
    const StepLoad load = {.rows = 2, .seqs = 2, .outs = 2, .first = 5};
    GpuBackend *mock;
    StepTimes t;
    Err e;

    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &bounds, mock);
    json_t *r = a_record(&m, "--steps", 1), *launches = json_object_get(r, "launches"), *l;
    double whole = 0, all = 0, families = 0, each = 0, mb[3] = {0};
    size_t i;

    assert_int_equal(bench_steps(&t, m.model, &load, 2, &e), ST_OK);
    assert_int_equal(record_add_steps(r, &t, &load, 10, &e), ST_OK);
    json_array_foreach(launches, i, l)
    {
        const char *nodes = json_string_value(json_object_get(l, "nodes"));
        const double n = json_number_value(json_object_get(l, "launches"));
        const double us = n * json_number_value(json_at(l, "us.median")),
                     b = n * json_number_value(json_object_get(l, "mb"));
        assert_string_equal(json_string_value(json_object_get(l, "at")), "2 x 1 rows behind 5");
        if (strcmp(nodes, "step") == 0)
            whole = us, mb[0] = b;
        else if (strcmp(nodes, "launches") == 0)
            all = us;
        else if (strcmp(json_string_value(json_object_get(l, "block")), "all") == 0)
            families += us, mb[1] += b;
        else
            each += us, mb[2] += b;
    }
    assert_float_equal(all, whole, 1e-6);
    assert_float_equal(families, whole, 1e-6);
    assert_float_equal(each, whole, 1e-6);
    assert_float_equal(mb[1], mb[0], 1e-9);
    assert_float_equal(mb[2], mb[0], 1e-9);
    step_times_release(&t);
    json_decref(r);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record__says_what_was_measured),
        cmocka_unit_test(record__two_side_by_side_give_ratios_and_what_differs),
        cmocka_unit_test(record__a_file_is_not_trusted),
        cmocka_unit_test(record__launches_are_summed_by_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
