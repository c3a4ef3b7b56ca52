/* jinja_test.c - what may follow "is". */
#include <utf8proc.h>

#include "core/utf8.h"
#include "text/jinja_internal.h"

static bool one_arg(Interp *in, const Node *at, const Args *args, const Value **out)
{
    (void)at;
    if (args->n != 1 || args->n_kw)
        return fail(in, "this test takes one argument");
    *out = &args->v[0];
    return true;
}

/* Tests that only look at the value. */
#define KIND_TEST(fn, condition)                                                                                       \
    static bool fn(Interp *in, const Node *at, Value v, const Args *args, bool *out)                                   \
    {                                                                                                                  \
        (void)at;                                                                                                      \
        *out = (condition);                                                                                            \
        return args->n == 0 || fail(in, "this test takes no argument");                                                \
    }
KIND_TEST(test_defined, v.kind != V_UNDEFINED)
KIND_TEST(test_undefined, v.kind == V_UNDEFINED)
KIND_TEST(test_none, v.kind == V_NONE)
KIND_TEST(test_string, v.kind == V_STR)
KIND_TEST(test_number, is_number(v))
KIND_TEST(test_integer, v.kind == V_INT)
KIND_TEST(test_float, v.kind == V_FLOAT)
KIND_TEST(test_boolean, v.kind == V_BOOL)
KIND_TEST(test_true, v.kind == V_BOOL && v.b)
KIND_TEST(test_false, v.kind == V_BOOL && !v.b)
KIND_TEST(test_mapping, v.kind == V_DICT)
KIND_TEST(test_iterable, v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_DICT ||
                             v.kind == V_UNDEFINED || v.kind == V_LOOP)
KIND_TEST(test_sequence,
          v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_DICT || v.kind == V_UNDEFINED)
KIND_TEST(test_callable, v.kind == V_MACRO || v.kind == V_FUNCTION || v.kind == V_METHOD)

static bool test_eq(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    const Value *arg = NULL;
    return one_arg(in, at, args, &arg) && v_equal(in, v, *arg, out);
}

static bool test_ne(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    bool ok = test_eq(in, at, v, args, out);
    *out = !*out;
    return ok;
}

static bool test_lt(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    const Value *arg = NULL;
    return one_arg(in, at, args, &arg) && v_less(in, v, *arg, out);
}

static bool test_gt(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    const Value *arg = NULL;
    return one_arg(in, at, args, &arg) && v_less(in, *arg, v, out);
}

static bool test_le(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    bool ok = test_gt(in, at, v, args, out);
    *out = !*out;
    return ok;
}

static bool test_ge(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    bool ok = test_lt(in, at, v, args, out);
    *out = !*out;
    return ok;
}

static bool test_in(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    const Value *arg = NULL;
    return one_arg(in, at, args, &arg) && v_contains(in, *arg, v, out);
}

static bool remainder_of(Interp *in, Value v, int64_t by, bool *out)
{
    if (v.kind != V_INT && v.kind != V_BOOL)
        return fail(in, "only integers are even, odd or divisible, not a value of type %s", v_type_name(v));
    *out = by == -1 || as_int(v) % by == 0; /* INT64_MIN % -1 overflows */
    return true;
}

static bool test_divisibleby(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    const Value *arg = NULL;
    if (!one_arg(in, at, args, &arg))
        return false;
    if (arg->kind != V_INT || arg->i == 0)
        return fail(in, "divisibleby needs an integer other than 0");
    return remainder_of(in, v, arg->i, out);
}

static bool test_even(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    (void)at, (void)args;
    return remainder_of(in, v, 2, out);
}

static bool test_odd(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    (void)at, (void)args;
    bool ok = remainder_of(in, v, 2, out);
    *out = !*out;
    return ok;
}

/* All cased characters are of that case, and there is one (str.isupper, str.islower). */
static bool all_case(Interp *in, Value v, bool upper, bool *out)
{
    JText s;
    bool cased = false;
    *out = false;
    if (!v_to_text(in, v, &s) || !in_charge(in, s.len))
        return false;
    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t cp = 0;
        n = text_char_len(s, i);
        utf8_decode(s.p + i, n, &cp);
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
        if (c == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU) || c == UTF8PROC_CATEGORY_LT)
            return true;
        cased |= c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LU;
    }
    *out = cased;
    return true;
}

static bool test_upper(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    (void)at, (void)args;
    return all_case(in, v, true, out);
}

static bool test_lower(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    (void)at, (void)args;
    return all_case(in, v, false, out);
}

static bool test_filter(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    (void)in, (void)at, (void)args;
    char name[64] = "";
    if (v.kind == V_STR && v.s->len < sizeof name)
        memcpy(name, v.s->p, v.s->len);
    *out = jinja_filter_find(name) != NULL;
    return true;
}

static bool test_test(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    (void)in, (void)at, (void)args;
    char name[64] = "";
    if (v.kind == V_STR && v.s->len < sizeof name)
        memcpy(name, v.s->p, v.s->len);
    *out = jinja_test_find(name) != NULL;
    return true;
}

static bool test_sameas(Interp *in, const Node *at, Value v, const Args *args, bool *out)
{
    const Value *arg = NULL;
    if (!one_arg(in, at, args, &arg))
        return false;
    *out = false;
    return v.kind != arg->kind || v_equal(in, v, *arg, out);
}

TestFn jinja_test_find(const char *name)
{
    static const struct {
        const char *name;
        TestFn fn;
    } tests[] = {
        {"defined", test_defined},
        {"undefined", test_undefined},
        {"none", test_none},
        {"string", test_string},
        {"number", test_number},
        {"integer", test_integer},
        {"float", test_float},
        {"boolean", test_boolean},
        {"true", test_true},
        {"false", test_false},
        {"mapping", test_mapping},
        {"iterable", test_iterable},
        {"sequence", test_sequence},
        {"callable", test_callable},
        {"eq", test_eq},
        {"equalto", test_eq},
        {"==", test_eq},
        {"ne", test_ne},
        {"!=", test_ne},
        {"lt", test_lt},
        {"lessthan", test_lt},
        {"<", test_lt},
        {"gt", test_gt},
        {"greaterthan", test_gt},
        {">", test_gt},
        {"le", test_le},
        {"<=", test_le},
        {"ge", test_ge},
        {">=", test_ge},
        {"in", test_in},
        {"even", test_even},
        {"odd", test_odd},
        {"divisibleby", test_divisibleby},
        {"upper", test_upper},
        {"lower", test_lower},
        {"filter", test_filter},
        {"test", test_test},
        {"sameas", test_sameas},
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(tests[i].name, name) == 0)
            return tests[i].fn;
    return NULL;
}
