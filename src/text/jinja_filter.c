/* jinja_filter.c - what may follow "|". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/utf8.h"
#include "text/jinja_internal.h"

#define FILTER(name) static bool name(Interp *in, const Node *at, Value v, const Args *args, Value *out)
#define UNUSED       ((void)in, (void)at, (void)args)

static const Args NO_ARGS = {0};

static bool as_text(Interp *in, Value v, JText *out)
{
    return v_to_text(in, v, out);
}

/* --- text ------------------------------------------------------------------------------------------------------- */

FILTER(f_string)
{
    UNUSED;
    JText s;
    return as_text(in, v, &s) && v_str(in, s, out);
}

FILTER(f_trim)
{
    UNUSED;
    JText s;
    return args_check(in, "trim", args, 1, "chars") && as_text(in, v, &s) &&
           text_strip(in, s, arg_get(args, 0, "chars"), true, true, out);
}

static bool cased(Interp *in, Value v, int how, Value *out)
{
    JText s;
    return as_text(in, v, &s) && text_case(in, s, how, out);
}
FILTER(f_upper)
{
    UNUSED;
    return cased(in, v, 'u', out);
}
FILTER(f_lower)
{
    UNUSED;
    return cased(in, v, 'l', out);
}
FILTER(f_capitalize)
{
    UNUSED;
    return cased(in, v, 'c', out);
}
FILTER(f_title)
{
    UNUSED;
    return cased(in, v, 'j', out);
}

FILTER(f_replace)
{
    UNUSED;
    const Value *from = arg_get(args, 0, "old"), *to = arg_get(args, 1, "new"), *count = arg_get(args, 2, "count");
    JText s, a, b;
    if (!from || !to)
        return fail(in, "replace needs two strings");
    return as_text(in, v, &s) && as_text(in, *from, &a) && as_text(in, *to, &b) &&
           text_replace(in, s, a, b, count && count->kind == V_INT ? count->i : -1, out);
}

FILTER(f_indent)
{
    UNUSED;
    const Value *width = arg_get(args, 0, "width"), *first = arg_get(args, 1, "first"),
                *blank = arg_get(args, 2, "blank");
    JText s, pad = {.p = "                                                                ", .len = 4};
    Build b;
    if (!args_check(in, "indent", args, 3, "width first blank") || !as_text(in, v, &s))
        return false;
    if (width && width->kind == V_STR)
        pad = *width->s;
    else if (width && width->kind == V_INT && width->i >= 0 && width->i <= 64)
        pad.len = (size_t)width->i;
    else if (width)
        return fail(in, "indent: the width must be a string or an integer up to 64");
    build_init(&b, in);
    for (size_t start = 0, line = 0; start <= s.len; line++) {
        const char *nl = start < s.len ? memchr(s.p + start, '\n', s.len - start) : NULL;
        size_t end = nl ? (size_t)(nl - s.p) : s.len;
        bool pads = line ? end > start || (blank && v_truth(*blank)) : first && v_truth(*first);
        if ((pads && !build_text(&b, pad)) || !build_text(&b, text_slice(s, start, nl ? end + 1 : end)))
            return false;
        if (!nl)
            break;
        start = end + 1;
    }
    return v_str(in, build_done(&b), out);
}

FILTER(f_escape)
{
    UNUSED;
    static const struct {
        char c;
        const char *text;
    } map[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    JText s;
    Build b;
    if (!as_text(in, v, &s))
        return false;
    build_init(&b, in);
    for (size_t i = 0; i < s.len; i++) {
        size_t k = 0;
        while (k < 5 && map[k].c != s.p[i])
            k++;
        bool user = s.mark ? s.mark[i] : s.user;
        if (k < 5 ? !build_bytes(&b, map[k].text, strlen(map[k].text), user) : !build_text(&b, text_slice(s, i, i + 1)))
            return false;
    }
    return v_str(in, build_done(&b), out);
}

FILTER(f_format)
{
    UNUSED;
    JText s;
    return as_text(in, v, &s) && text_format(in, s, args->v, args->n, out);
}

FILTER(f_tojson)
{
    UNUSED;
    Build b;
    build_init(&b, in);
    return json_dump(&b, v, args) && v_str(in, build_done(&b), out);
}

FILTER(f_wordcount)
{
    UNUSED;
    Value self, words;
    Method m = {.name = "split"};
    if (!f_string(in, at, v, args, &self))
        return false;
    m.self = self;
    if (!method_call(in, &m, &NO_ARGS, &words))
        return false;
    *out = v_int((int64_t)words.list->n);
    return true;
}

/* --- numbers ---------------------------------------------------------------------------------------------------- */

FILTER(f_int)
{
    UNUSED;
    const Value *otherwise = arg_get(args, 0, "default"), *base = arg_get(args, 1, "base");
    *out = otherwise ? *otherwise : v_int(0);
    if (v.kind == V_INT || v.kind == V_BOOL) {
        *out = v_int(as_int(v));
    } else if (v.kind == V_FLOAT) {
        if (v.f > -9.2e18 && v.f < 9.2e18)
            *out = v_int((int64_t)v.f);
    } else if (v.kind == V_STR) {
        char buf[64], *end;
        Value trimmed;
        if (!text_strip(in, *v.s, NULL, true, true, &trimmed))
            return false;
        size_t n = trimmed.s->len;
        if (n == 0 || n >= sizeof buf)
            return true;
        memcpy(buf, trimmed.s->p, n);
        buf[n] = 0;
        int radix = base && base->kind == V_INT && base->i >= 2 && base->i <= 36 ? (int)base->i : 10;
        long long i = strtoll(buf, &end, radix);
        if (end == buf + n) {
            *out = v_int(i);
            return true;
        }
        double f = strtod(buf, &end); /* "12.7" is 12 */
        if (end == buf + n && f > -9.2e18 && f < 9.2e18)
            *out = v_int((int64_t)f);
    }
    return true;
}

FILTER(f_float)
{
    UNUSED;
    const Value *otherwise = arg_get(args, 0, "default");
    *out = otherwise ? *otherwise : v_float(0);
    if (is_number(v)) {
        *out = v_float(as_float(v));
    } else if (v.kind == V_STR && v.s->len && v.s->len < 64) {
        char buf[64], *end;
        memcpy(buf, v.s->p, v.s->len);
        buf[v.s->len] = 0;
        double f = strtod(buf, &end);
        if (end == buf + v.s->len)
            *out = v_float(f);
    }
    return true;
}

FILTER(f_abs)
{
    UNUSED;
    if (!is_number(v) || (v.kind == V_INT && v.i == INT64_MIN))
        return fail(in, "abs needs a number, not a value of type %s", v_type_name(v));
    *out = v.kind == V_FLOAT ? v_float(fabs(v.f)) : v_int(llabs(as_int(v)));
    return true;
}

FILTER(f_round)
{
    UNUSED;
    const Value *precision = arg_get(args, 0, "precision"), *method = arg_get(args, 1, "method");
    int64_t digits = precision && precision->kind == V_INT ? precision->i : 0;
    char buf[400];
    if (!is_number(v) || digits < -15 || digits > 15)
        return fail(in, "round needs a number and a precision between -15 and 15");
    if (v.kind != V_FLOAT && digits >= 0 && !method) {
        *out = v_int(as_int(v)); /* an integer stays one */
        return true;
    }
    if (method && method->kind != V_STR)
        return fail(in, "round: the method must be 'common', 'ceil' or 'floor'");
    double f = as_float(v), scale = pow(10, (double)digits);
    if (method && text_is(method->s, "ceil"))
        f = ceil(f * scale) / scale;
    else if (method && text_is(method->s, "floor"))
        f = floor(f * scale) / scale;
    else if (digits < 0)
        f = rint(f * scale) / scale;
    else {
        snprintf(buf, sizeof buf, "%.*f", (int)digits, f); /* correctly rounded, as Python's round is */
        f = strtod(buf, NULL);
    }
    *out = v_float(f);
    return true;
}

FILTER(f_sum)
{
    UNUSED;
    const Value *attribute = arg_get(args, 0, "attribute"), *start = arg_get(args, 1, "start");
    const JList *l;
    Value total = start ? *start : v_int(0);
    if (!v_iterate(in, v, &l))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        Value item = l->v[i];
        int64_t sum = 0;
        if (attribute && !get_path(in, item, *attribute, &item))
            return false;
        if (!is_number(item) || !is_number(total))
            return fail(in, "sum needs numbers, not a value of type %s", v_type_name(item));
        if (item.kind == V_FLOAT || total.kind == V_FLOAT)
            total = v_float(as_float(total) + as_float(item));
        else if (__builtin_add_overflow(as_int(total), as_int(item), &sum))
            return fail(in, "sum: the result does not fit 64 bits");
        else
            total = v_int(sum);
    }
    *out = total;
    return true;
}

/* --- sequences -------------------------------------------------------------------------------------------------- */

FILTER(f_length)
{
    UNUSED;
    size_t n;
    if (!v_length(in, v, &n))
        return false;
    *out = v_int((int64_t)n);
    return true;
}

FILTER(f_default)
{
    UNUSED;
    const Value *otherwise = arg_get(args, 0, "default_value"), *boolean = arg_get(args, 1, "boolean");
    bool replace = v.kind == V_UNDEFINED || (boolean && v_truth(*boolean) && !v_truth(v));
    if (!args_check(in, "default", args, 2, "default_value boolean"))
        return false;
    if (!replace)
        *out = v;
    else if (otherwise)
        *out = *otherwise;
    else
        return v_cstr(in, "", out);
    return true;
}

FILTER(f_first)
{
    UNUSED;
    const JList *l;
    if (!v_iterate(in, v, &l))
        return false;
    *out = l->n ? l->v[0] : v_undefined("the first item of an empty sequence");
    return true;
}

FILTER(f_last)
{
    UNUSED;
    const JList *l;
    if (!v_iterate(in, v, &l))
        return false;
    *out = l->n ? l->v[l->n - 1] : v_undefined("the last item of an empty sequence");
    return true;
}

FILTER(f_list)
{
    UNUSED;
    const JList *l;
    if (!v_iterate(in, v, &l) || !v_list(in, V_LIST, l->n, out))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if (!list_add(in, out->list, l->v[i]))
            return false;
    return true;
}

FILTER(f_reverse)
{
    UNUSED;
    const JList *l;
    if (!v_iterate(in, v, &l))
        return false;
    if (v.kind == V_STR) {
        Build b;
        build_init(&b, in);
        for (size_t i = l->n; i-- > 0;)
            if (!build_text(&b, *l->v[i].s))
                return false;
        return v_str(in, build_done(&b), out);
    }
    if (!v_list(in, V_LIST, l->n, out))
        return false;
    for (size_t i = l->n; i-- > 0;)
        if (!list_add(in, out->list, l->v[i]))
            return false;
    return true;
}

FILTER(f_join)
{
    UNUSED;
    const Value *d = arg_get(args, 0, "d"), *attribute = arg_get(args, 1, "attribute");
    const JList *l;
    JText between = {.p = ""};
    Build b;
    if (!args_check(in, "join", args, 2, "d attribute") || !v_iterate(in, v, &l) || (d && !as_text(in, *d, &between)))
        return false;
    build_init(&b, in);
    for (size_t i = 0; i < l->n; i++) {
        Value item = l->v[i];
        if (attribute && !get_path(in, item, *attribute, &item))
            return false;
        if ((i && !build_text(&b, between)) || !build_value(&b, item))
            return false;
    }
    return v_str(in, build_done(&b), out);
}

FILTER(f_items)
{
    UNUSED;
    Method m = {.self = v, .name = "items"};
    if (v.kind == V_UNDEFINED)
        return v_list(in, V_LIST, 0, out);
    return v.kind == V_DICT ? method_call(in, &m, &NO_ARGS, out)
                            : fail(in, "items needs a dict, not a value of type %s", v_type_name(v));
}

FILTER(f_batch)
{
    UNUSED;
    const Value *size = arg_get(args, 0, "linecount"), *fill = arg_get(args, 1, "fill_with");
    const JList *l;
    if (!size || size->kind != V_INT || size->i < 1 || size->i > 1 << 20)
        return fail(in, "batch needs a size of at least 1");
    if (!v_iterate(in, v, &l) || !v_list(in, V_LIST, 0, out))
        return false;
    for (size_t i = 0; i < l->n;) {
        Value row;
        if (!v_list(in, V_LIST, 0, &row) || !list_add(in, out->list, row))
            return false;
        for (int64_t k = 0; k < size->i; k++, i++)
            if ((i < l->n || fill) && !list_add(in, row.list, i < l->n ? l->v[i] : *fill))
                return false;
    }
    return true;
}

/* The keys that sort, unique, min and max compare: the attribute, in lower case unless case counts. */
static bool sort_keys(Interp *in, const JList *l, const Value *attribute, bool case_sensitive, Value **out)
{
    Value *key = in_alloc(in, l->n, sizeof *key);
    *out = key;
    if (!key)
        return false;
    for (size_t i = 0; i < l->n; i++) {
        key[i] = l->v[i];
        if (attribute && attribute->kind != V_NONE && !get_path(in, l->v[i], *attribute, &key[i]))
            return false;
        if (!case_sensitive && key[i].kind == V_STR && !text_case(in, *key[i].s, 'l', &key[i]))
            return false;
    }
    return true;
}

/* Stable merge sort of an index by keys; reverse keeps equal items in their order, too. */
static bool sort_index(Interp *in, const Value *key, size_t n, bool reverse, size_t **out)
{
    size_t *a = in_alloc(in, n, sizeof *a), *b = a ? in_alloc(in, n, sizeof *b) : NULL;
    if (!b)
        return false;
    for (size_t i = 0; i < n; i++)
        a[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n, hi = mid + width < n ? mid + width : n;
            size_t i = lo, k = mid, at = lo;
            while (i < mid || k < hi) {
                bool right = i >= mid;
                if (i < mid && k < hi &&
                    !(reverse ? v_less(in, key[a[i]], key[a[k]], &right) : v_less(in, key[a[k]], key[a[i]], &right)))
                    return false;
                b[at++] = right ? a[k++] : a[i++];
            }
        }
        size_t *swap = a;
        a = b;
        b = swap;
    }
    *out = a;
    return true;
}

static bool truth_arg(const Args *args, size_t i, const char *name)
{
    const Value *v = arg_get(args, i, name);
    return v && v_truth(*v);
}

FILTER(f_sort)
{
    UNUSED;
    const JList *l;
    Value *key;
    size_t *index;
    if (!args_check(in, "sort", args, 3, "reverse case_sensitive attribute") || !v_iterate(in, v, &l) ||
        !sort_keys(in, l, arg_get(args, 2, "attribute"), truth_arg(args, 1, "case_sensitive"), &key) ||
        !sort_index(in, key, l->n, truth_arg(args, 0, "reverse"), &index) || !v_list(in, V_LIST, l->n, out))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if (!list_add(in, out->list, l->v[index[i]]))
            return false;
    return true;
}

FILTER(f_dictsort)
{
    UNUSED;
    const Value *by = arg_get(args, 1, "by");
    const Value by_value = v_int(1), by_key = v_int(0);
    Value items, *key;
    size_t *index;
    bool values = by && by->kind == V_STR && text_is(by->s, "value");
    if (!args_check(in, "dictsort", args, 3, "case_sensitive by reverse") || !f_items(in, at, v, &NO_ARGS, &items) ||
        !sort_keys(in, items.list, values ? &by_value : &by_key, truth_arg(args, 0, "case_sensitive"), &key) ||
        !sort_index(in, key, items.list->n, truth_arg(args, 2, "reverse"), &index) ||
        !v_list(in, V_LIST, items.list->n, out))
        return false;
    for (size_t i = 0; i < items.list->n; i++)
        if (!list_add(in, out->list, items.list->v[index[i]]))
            return false;
    return true;
}

FILTER(f_unique)
{
    UNUSED;
    const JList *l;
    Value *key;
    size_t kept = 0;
    if (!args_check(in, "unique", args, 2, "case_sensitive attribute") || !v_iterate(in, v, &l) ||
        !sort_keys(in, l, arg_get(args, 1, "attribute"), truth_arg(args, 0, "case_sensitive"), &key) ||
        !v_list(in, V_LIST, 0, out))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        bool seen = false;
        for (size_t k = 0; k < kept && !seen; k++)
            if (!v_equal(in, key[k], key[i], &seen))
                return false;
        if (seen)
            continue;
        key[kept++] = key[i];
        if (!list_add(in, out->list, l->v[i]))
            return false;
    }
    return true;
}

static bool extreme(Interp *in, Value v, const Args *args, bool max, Value *out)
{
    const JList *l;
    Value *key;
    size_t best = 0;
    if (!args_check(in, max ? "max" : "min", args, 2, "case_sensitive attribute") || !v_iterate(in, v, &l) ||
        !sort_keys(in, l, arg_get(args, 1, "attribute"), truth_arg(args, 0, "case_sensitive"), &key))
        return false;
    for (size_t i = 1; i < l->n; i++) {
        bool better;
        if (!(max ? v_less(in, key[best], key[i], &better) : v_less(in, key[i], key[best], &better)))
            return false;
        if (better)
            best = i;
    }
    *out = l->n ? l->v[best] : v_undefined("the extreme of an empty sequence");
    return true;
}
FILTER(f_min)
{
    UNUSED;
    return extreme(in, v, args, false, out);
}
FILTER(f_max)
{
    UNUSED;
    return extreme(in, v, args, true, out);
}

/* The arguments without the first `drop` positional ones. */
static Args rest_of(const Args *args, size_t drop)
{
    return (Args){.v = args->v + drop, .n = args->n - drop, .n_kw = args->n_kw, .kw = args->kw};
}

FILTER(f_map)
{
    UNUSED;
    const Value *attribute = arg_get(args, args->n, "attribute"), *otherwise = arg_get(args, args->n, "default");
    const JList *l;
    if (!attribute && args->n == args->n_kw)
        return fail(in, "map needs the name of a filter, or attribute=");
    if (!v_truth(v)) /* also none: Jinja looks no further */
        return v_list(in, V_LIST, 0, out);
    if (!v_iterate(in, v, &l) || !v_list(in, V_LIST, l->n, out))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        Value item;
        Args rest = attribute ? NO_ARGS : rest_of(args, 1);
        if (attribute ? !get_path(in, l->v[i], *attribute, &item)
                      : !apply_filter(in, args->v[0], l->v[i], &rest, &item))
            return false;
        if (attribute && otherwise && item.kind == V_UNDEFINED)
            item = *otherwise;
        if (!list_add(in, out->list, item))
            return false;
    }
    return true;
}

/* select, reject, selectattr, rejectattr: keep the items whose test (or truth) is `want`. */
static bool choose(Interp *in, Value v, const Args *args, bool by_attribute, bool want, Value *out)
{
    const JList *l;
    size_t n_pos = args->n - args->n_kw, used = by_attribute ? 1 : 0;
    if (n_pos < used)
        return fail(in, "this filter needs the name of an attribute");
    if (!v_truth(v)) /* also none: Jinja looks no further */
        return v_list(in, V_LIST, 0, out);
    if (!v_iterate(in, v, &l) || !v_list(in, V_LIST, 0, out))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        Value item = l->v[i];
        bool is;
        if (by_attribute && !get_path(in, item, args->v[0], &item))
            return false;
        if (n_pos > used) {
            Args rest = rest_of(args, used + 1);
            if (!apply_test(in, args->v[used], item, &rest, &is))
                return false;
        } else {
            is = v_truth(item);
        }
        if (is == want && !list_add(in, out->list, l->v[i]))
            return false;
    }
    return true;
}
FILTER(f_select)
{
    UNUSED;
    return choose(in, v, args, false, true, out);
}
FILTER(f_reject)
{
    UNUSED;
    return choose(in, v, args, false, false, out);
}
FILTER(f_selectattr)
{
    UNUSED;
    return choose(in, v, args, true, true, out);
}
FILTER(f_rejectattr)
{
    UNUSED;
    return choose(in, v, args, true, false, out);
}

FILTER(f_attr)
{
    UNUSED;
    const Value *name = arg_get(args, 0, "name");
    char buf[128];
    if (!name || name->kind != V_STR || name->s->len >= sizeof buf)
        return fail(in, "attr needs the name of an attribute");
    memcpy(buf, name->s->p, name->s->len);
    buf[name->s->len] = 0;
    return get_attr(in, v, buf, out);
}

FILTER(f_groupby)
{
    UNUSED;
    const Value *attribute = arg_get(args, 0, "attribute");
    const JList *l;
    Value *key;
    size_t *index;
    if (!attribute)
        return fail(in, "groupby needs the name of an attribute");
    if (!v_iterate(in, v, &l) || !sort_keys(in, l, attribute, true, &key) ||
        !sort_index(in, key, l->n, false, &index) || !v_list(in, V_LIST, 0, out))
        return false;
    for (size_t i = 0; i < l->n;) {
        Value pair, members;
        bool same = true;
        size_t first = index[i];
        if (!v_list(in, V_TUPLE, 2, &pair) || !v_list(in, V_LIST, 0, &members))
            return false;
        for (; i < l->n; i++) {
            if (!v_equal(in, key[index[i]], key[first], &same))
                return false;
            if (!same)
                break;
            if (!list_add(in, members.list, l->v[index[i]]))
                return false;
        }
        if (!list_add(in, pair.list, key[first]) || !list_add(in, pair.list, members) || !list_add(in, out->list, pair))
            return false;
    }
    return true;
}

FilterFn jinja_filter_find(const char *name)
{
    static const struct {
        const char *name;
        FilterFn fn;
    } filters[] = {
        {"abs", f_abs},
        {"attr", f_attr},
        {"batch", f_batch},
        {"capitalize", f_capitalize},
        {"count", f_length},
        {"d", f_default},
        {"default", f_default},
        {"dictsort", f_dictsort},
        {"e", f_escape},
        {"escape", f_escape},
        {"first", f_first},
        {"float", f_float},
        {"forceescape", f_escape},
        {"format", f_format},
        {"groupby", f_groupby},
        {"indent", f_indent},
        {"int", f_int},
        {"items", f_items},
        {"join", f_join},
        {"last", f_last},
        {"length", f_length},
        {"list", f_list},
        {"lower", f_lower},
        {"map", f_map},
        {"max", f_max},
        {"min", f_min},
        {"reject", f_reject},
        {"rejectattr", f_rejectattr},
        {"replace", f_replace},
        {"reverse", f_reverse},
        {"round", f_round},
        {"safe", f_string},
        {"select", f_select},
        {"selectattr", f_selectattr},
        {"sort", f_sort},
        {"string", f_string},
        {"sum", f_sum},
        {"title", f_title},
        {"tojson", f_tojson},
        {"trim", f_trim},
        {"unique", f_unique},
        {"upper", f_upper},
        {"wordcount", f_wordcount},
    };
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strcmp(filters[i].name, name) == 0)
            return filters[i].fn;
    return NULL;
}
