/* test_stop.c - stop strings over streamed text: nothing of a stop leaks, nothing else is lost. */
#include "text/stop.h"

#include "text_fixture.h"

static StopMatcher *matcher(const char *const *stops, size_t n)
{
    StopMatcher *s;
    Err err = {""};
    if (stop_new(&s, stops, n, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return s;
}

static void stop__string_over_several_pieces_is_cut_out(void **state)
{
    (void)state;
    const char *stops[] = {"two three"}, *pieces[] = {"one ", "two", " thr", "ee four"};
    StopMatcher *s = matcher(stops, 1);
    Str out = STR_INIT;
    for (int i = 0; i < 4; i++) {
        bool stopped = stop_add(s, pieces[i], strlen(pieces[i]), &out);
        assert_int_equal(stopped, i == 3);
        assert_string_equal(str_c(&out), "one ");
    }
    assert_true(stop_add(s, "more", 4, &out));
    stop_end(s, &out);
    assert_string_equal(str_c(&out), "one ");
    assert_string_equal(stop_found(s), "two three");
    str_release(&out);
    stop_free(s);
}

/* All 2^(n-1) ways to cut the text. */
static void stop__answer_does_not_depend_on_the_cut(void **state)
{
    (void)state;
    static const struct {
        const char *stops[3];
        size_t n;
        const char *text, *want, *found;
    } rows[] = {
        {{"two thr"}, 1, "on two three", "on ", "two thr"}, {{"aab"}, 1, "aaaab c", "aa", "aab"},
        {{"abab", "ba"}, 2, "xababy", "xa", "ba"},          {{"abcd", "bc"}, 2, "zabcd", "za", "bc"},
        {{"c", "abc"}, 2, "zzabcd", "zz", "abc"},           {{"ABX", "BC"}, 2, "ABABD", "ABABD", NULL},
        {{"\n\n"}, 1, "a\nb\n\nc", "a\nb", "\n\n"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        size_t len = strlen(rows[r].text);
        for (unsigned cuts = 0; cuts < 1u << (len - 1); cuts++) {
            StopMatcher *s = matcher(rows[r].stops, rows[r].n);
            Str out = STR_INIT;
            for (size_t from = 0, to = 1; to <= len; to++)
                if (to == len || (cuts >> (to - 1) & 1)) {
                    stop_add(s, rows[r].text + from, to - from, &out);
                    assert_true(strncmp(str_c(&out), rows[r].want, out.len) == 0);
                    from = to;
                }
            stop_end(s, &out);
            assert_string_equal(str_c(&out), rows[r].want);
            if (rows[r].found)
                assert_string_equal(stop_found(s), rows[r].found);
            else
                assert_null(stop_found(s));
            str_release(&out);
            stop_free(s);
        }
    }
}

static void stop__held_text_comes_out_at_the_end(void **state)
{
    (void)state;
    const char *stops[] = {"STOPPED"};
    StopMatcher *s = matcher(stops, 1);
    Str out = STR_INIT;
    stop_add(s, "AB", 2, &out);
    assert_string_equal(str_c(&out), "AB");
    stop_add(s, "ST", 2, &out);
    assert_string_equal(str_c(&out), "AB");
    stop_end(s, &out);
    assert_string_equal(str_c(&out), "ABST");
    str_release(&out);
    stop_free(s);
}

static void stop__no_strings_pass_everything(void **state)
{
    (void)state;
    StopMatcher *s = matcher(NULL, 0);
    Str out = STR_INIT;
    assert_false(stop_add(s, "a\0b", 3, &out));
    assert_int_equal(out.len, 3);
    str_release(&out);
    stop_free(s);
}

static void stop__bad_lists_are_refused(void **state)
{
    (void)state;
    const char *empty[] = {"a", ""}, *many[STOP_MAX_STRINGS + 1];
    StopMatcher *s;
    Err err = {""};
    assert_int_equal(stop_new(&s, empty, 2, &err), ST_INVALID);
    assert_non_null(strstr(err.msg, "string 1"));
    for (size_t i = 0; i < STOP_MAX_STRINGS + 1; i++)
        many[i] = "x";
    assert_int_equal(stop_new(&s, many, STOP_MAX_STRINGS + 1, &err), ST_INVALID);
    char *large = malloc(STOP_MAX_BYTES + 2);
    memset(large, 'x', STOP_MAX_BYTES + 1);
    large[STOP_MAX_BYTES + 1] = 0;
    const char *one[] = {large};
    assert_int_equal(stop_new(&s, one, 1, &err), ST_INVALID);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop__string_over_several_pieces_is_cut_out),
        cmocka_unit_test(stop__answer_does_not_depend_on_the_cut),
        cmocka_unit_test(stop__held_text_comes_out_at_the_end),
        cmocka_unit_test(stop__no_strings_pass_everything),
        cmocka_unit_test(stop__bad_lists_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
