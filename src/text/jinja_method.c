/* jinja_method.c - methods of strings, lists and dictionaries, as Python has them.
 *
 * Methods that change a list or dictionary in place do not exist: Transformers renders in an immutable sandbox. */
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "core/utf8.h"
#include "text/jinja_internal.h"

typedef bool (*MethodFn)(Interp *in, Value self, const Args *args, Value *out);

static bool str_arg(Interp *in, const char *what, const Args *args, size_t i, const char *name, const JText **out)
{
    const Value *v = arg_get(args, i, name);
    if (!v || v->kind != V_STR)
        return fail(in, "%s needs a string, not a value of type %s", what, v ? v_type_name(*v) : "none");
    *out = v->s;
    return true;
}

static bool int_arg(Interp *in, const char *what, const Args *args, size_t i, const char *name, int64_t otherwise,
                    int64_t *out)
{
    const Value *v = arg_get(args, i, name);
    *out = otherwise;
    if (!v || v->kind == V_NONE)
        return true;
    if (v->kind != V_INT && v->kind != V_BOOL)
        return fail(in, "%s needs an integer, not a value of type %s", what, v_type_name(*v));
    *out = as_int(*v);
    return true;
}

/* --- strings ---------------------------------------------------------------------------------------------------- */

static bool strips(JText s, size_t at, size_t n, const JText *chars)
{
    if (chars) /* one of the characters given */
        for (size_t i = 0, k; i < chars->len; i += k) {
            k = text_char_len(*chars, i);
            if (k == n && memcmp(chars->p + i, s.p + at, n) == 0)
                return true;
        }
    uint32_t cp = 0;
    return !chars && utf8_decode(s.p + at, n, &cp) > 0 && char_is_space(cp);
}

bool text_strip(Interp *in, JText s, const Value *chars, bool left, bool right, Value *out)
{
    size_t start = 0, end = s.len;
    const JText *set = NULL;
    if (chars && chars->kind != V_NONE) {
        if (chars->kind != V_STR)
            return fail(in, "strip needs a string of characters, not a value of type %s", v_type_name(*chars));
        set = chars->s;
    }
    if (!in_charge(in, set ? s.len * (1 + set->len / 64) : s.len))
        return false;
    while (left && start < end) {
        size_t n = text_char_len(s, start);
        if (!strips(s, start, n, set))
            break;
        start += n;
    }
    while (right && end > start) {
        size_t c = end - 1;
        while (c > start && ((unsigned char)s.p[c] & 0xc0) == 0x80)
            c--;
        if (!strips(s, c, end - c, set))
            break;
        end = c;
    }
    return v_str(in, text_slice(s, start, end), out);
}

static bool m_strip(Interp *in, Value self, const Args *args, Value *out)
{
    return text_strip(in, *self.s, arg_get(args, 0, "chars"), true, true, out);
}
static bool m_lstrip(Interp *in, Value self, const Args *args, Value *out)
{
    return text_strip(in, *self.s, arg_get(args, 0, "chars"), true, false, out);
}
static bool m_rstrip(Interp *in, Value self, const Args *args, Value *out)
{
    return text_strip(in, *self.s, arg_get(args, 0, "chars"), false, true, out);
}

bool text_replace(Interp *in, JText s, JText from, JText to, int64_t count, Value *out)
{
    Build b;
    size_t done = 0, at = 0;
    build_init(&b, in);
    for (; count != 0; count--) {
        size_t hit = text_find(s, from, at);
        if (hit == SIZE_MAX)
            break;
        if (!build_text(&b, text_slice(s, done, hit)) || !build_text(&b, to) || !in_charge(in, 1))
            return false;
        done = hit + from.len;
        at = done;
        if (from.len == 0) { /* between all characters */
            if (hit >= s.len)
                break;
            at = hit + text_char_len(s, hit);
        }
    }
    return in_charge(in, s.len) && build_text(&b, text_slice(s, done, s.len)) && v_str(in, build_done(&b), out);
}

static bool m_replace(Interp *in, Value self, const Args *args, Value *out)
{
    const JText *from = NULL, *to = NULL;
    int64_t count;
    return str_arg(in, "replace", args, 0, "old", &from) && str_arg(in, "replace", args, 1, "new", &to) &&
           int_arg(in, "replace", args, 2, "count", -1, &count) && text_replace(in, *self.s, *from, *to, count, out);
}

/* Appends one character in the case wanted; marks follow the source. */
static bool build_case(Build *b, JText s, size_t at, size_t n, bool upper)
{
    uint32_t cp = 0;
    char buf[4];
    bool user = s.mark ? s.mark[at] : s.user;
    utf8_decode(s.p + at, n, &cp);
    if (upper && cp == 0xdf) /* sharp s has no single capital */
        return build_bytes(b, "SS", 2, user);
    cp = (uint32_t)(upper ? utf8proc_toupper((utf8proc_int32_t)cp) : utf8proc_tolower((utf8proc_int32_t)cp));
    return build_bytes(b, buf, (size_t)utf8_encode(cp, buf), user);
}

static bool is_letter(JText s, size_t at, size_t n)
{
    uint32_t cp = 0;
    utf8_decode(s.p + at, n, &cp);
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool text_case(Interp *in, JText s, int how, Value *out)
{
    Build b;
    bool inside = false; /* of a word */
    build_init(&b, in);
    for (size_t i = 0, n; i < s.len; i += n) {
        n = text_char_len(s, i);
        bool upper = how == 'u' || (!inside && how != 'l');
        inside = how == 'c' || (how == 't' && is_letter(s, i, n)) ||
                 (how == 'j' && !strchr("- ([{<\t\n\r\f\v", s.p[i])); /* Jinja's title: words begin behind these */
        if (!build_case(&b, s, i, n, upper))
            return false;
    }
    return v_str(in, build_done(&b), out);
}

static bool m_upper(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    return text_case(in, *self.s, 'u', out);
}
static bool m_lower(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    return text_case(in, *self.s, 'l', out);
}
static bool m_title(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    return text_case(in, *self.s, 't', out);
}
static bool m_capitalize(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    return text_case(in, *self.s, 'c', out);
}

/* A string, or any of a tuple of strings. */
static bool affix(Interp *in, Value self, const Args *args, bool start, Value *out)
{
    const Value *v = arg_get(args, 0, start ? "prefix" : "suffix");
    Value single = v ? *v : v_none();
    const Value *each = &single;
    size_t n = 1;
    if (single.kind == V_TUPLE) {
        each = single.list->v;
        n = single.list->n;
    }
    bool hit = false;
    for (size_t i = 0; i < n; i++) {
        if (each[i].kind != V_STR)
            return fail(in, "%s needs a string or a tuple of strings", start ? "startswith" : "endswith");
        const JText *a = each[i].s, *s = self.s;
        hit |= a->len <= s->len && memcmp(start ? s->p : s->p + s->len - a->len, a->p, a->len) == 0;
    }
    *out = v_bool(hit);
    return true;
}
static bool m_startswith(Interp *in, Value self, const Args *args, Value *out)
{
    return affix(in, self, args, true, out);
}
static bool m_endswith(Interp *in, Value self, const Args *args, Value *out)
{
    return affix(in, self, args, false, out);
}

static bool remove_affix(Interp *in, Value self, const Args *args, bool start, Value *out)
{
    Value has;
    const JText *a = NULL;
    if (!str_arg(in, start ? "removeprefix" : "removesuffix", args, 0, "affix", &a) ||
        !affix(in, self, args, start, &has))
        return false;
    JText s = *self.s;
    if (has.b)
        s = start ? text_slice(s, a->len, s.len) : text_slice(s, 0, s.len - a->len);
    return v_str(in, s, out);
}
static bool m_removeprefix(Interp *in, Value self, const Args *args, Value *out)
{
    return remove_affix(in, self, args, true, out);
}
static bool m_removesuffix(Interp *in, Value self, const Args *args, Value *out)
{
    return remove_affix(in, self, args, false, out);
}

static bool add_part(Interp *in, JList *l, JText s, size_t start, size_t end)
{
    Value v;
    return v_str(in, text_slice(s, start, end), &v) && list_add(in, l, v);
}

static bool is_space_at(JText s, size_t at, size_t n)
{
    return strips(s, at, n, NULL);
}

/* Splits at runs of white space from the left; the rest after max cuts keeps its inner space. */
static bool split_space(Interp *in, JText s, int64_t max, JList *l)
{
    size_t i = 0;
    for (;;) {
        while (i < s.len && is_space_at(s, i, text_char_len(s, i)))
            i += text_char_len(s, i);
        if (i >= s.len)
            return true;
        size_t start = i;
        if (max-- == 0) {
            Value rest;
            return text_strip(in, text_slice(s, start, s.len), NULL, false, true, &rest) && list_add(in, l, rest);
        }
        while (i < s.len && !is_space_at(s, i, text_char_len(s, i)))
            i += text_char_len(s, i);
        if (!add_part(in, l, s, start, i))
            return false;
    }
}

static bool split(Interp *in, Value self, const Args *args, bool from_right, Value *out)
{
    JText s = *self.s;
    const Value *sep = arg_get(args, 0, "sep");
    int64_t max;
    if (!int_arg(in, "split", args, 1, "maxsplit", -1, &max) || !v_list(in, V_LIST, 0, out) || !in_charge(in, s.len))
        return false;
    if (!sep || sep->kind == V_NONE) {
        if (from_right && max >= 0)
            return fail(in, "rsplit at white space with a limit is not supported; name the separator");
        return split_space(in, s, max, out->list);
    }
    if (sep->kind != V_STR || sep->s->len == 0)
        return fail(in, "split needs a separator that is a string and not empty");
    /* Count the cuts first; from the right, the first ones are then left out. */
    size_t n = 0, skip = 0, start = 0;
    for (size_t at = 0; (at = text_find(s, *sep->s, at)) != SIZE_MAX; at += sep->s->len)
        n++;
    if (max >= 0 && n > (uint64_t)max) {
        skip = from_right ? n - (size_t)max : 0;
        n = (size_t)max;
    }
    for (size_t at = 0; n && (at = text_find(s, *sep->s, at)) != SIZE_MAX; at += sep->s->len) {
        if (skip) {
            skip--;
            continue;
        }
        if (!add_part(in, out->list, s, start, at))
            return false;
        start = at + sep->s->len;
        n--;
    }
    return add_part(in, out->list, s, start, s.len);
}
static bool m_split(Interp *in, Value self, const Args *args, Value *out)
{
    return split(in, self, args, false, out);
}
static bool m_rsplit(Interp *in, Value self, const Args *args, Value *out)
{
    return split(in, self, args, true, out);
}

static bool m_splitlines(Interp *in, Value self, const Args *args, Value *out)
{
    JText s = *self.s;
    const Value *keep = arg_get(args, 0, "keepends");
    bool keeps = keep && v_truth(*keep);
    if (!v_list(in, V_LIST, 0, out) || !in_charge(in, s.len))
        return false;
    for (size_t start = 0; start < s.len;) {
        size_t end = start;
        while (end < s.len && s.p[end] != '\n' && s.p[end] != '\r')
            end++;
        size_t next = end < s.len ? end + 1 : end;
        if (next < s.len && s.p[end] == '\r' && s.p[next] == '\n')
            next++;
        if (!add_part(in, out->list, s, start, keeps ? next : end))
            return false;
        start = next;
    }
    return true;
}

static bool m_join(Interp *in, Value self, const Args *args, Value *out)
{
    const JList *l;
    const Value *v = arg_get(args, 0, "iterable");
    Build b;
    if (!v)
        return fail(in, "join needs a list");
    if (!v_iterate(in, *v, &l))
        return false;
    build_init(&b, in);
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].kind != V_STR)
            return fail(in, "join: item %zu is of type %s, not a string", i, v_type_name(l->v[i]));
        if ((i && !build_text(&b, *self.s)) || !build_text(&b, *l->v[i].s))
            return false;
    }
    return v_str(in, build_done(&b), out);
}

static bool find(Interp *in, Value self, const Args *args, bool last, bool must, Value *out)
{
    const JText *part = NULL;
    JText s = *self.s;
    if (!str_arg(in, "find", args, 0, "sub", &part) || !in_charge(in, s.len))
        return false;
    size_t hit = text_find(s, *part, 0);
    for (size_t next = hit; last && next != SIZE_MAX;) {
        hit = next;
        next = part->len ? text_find(s, *part, next + 1) : next < s.len ? s.len : SIZE_MAX;
    }
    if (hit == SIZE_MAX && must)
        return fail(in, "index: the text is not in the string");
    *out = v_int(hit == SIZE_MAX ? -1 : (int64_t)text_chars(text_slice(s, 0, hit)));
    return true;
}
static bool m_find(Interp *in, Value self, const Args *args, Value *out)
{
    return find(in, self, args, false, false, out);
}
static bool m_rfind(Interp *in, Value self, const Args *args, Value *out)
{
    return find(in, self, args, true, false, out);
}
static bool m_index(Interp *in, Value self, const Args *args, Value *out)
{
    return find(in, self, args, false, true, out);
}

static bool m_count(Interp *in, Value self, const Args *args, Value *out)
{
    const JText *part = NULL;
    int64_t n = 0;
    if (!str_arg(in, "count", args, 0, "sub", &part) || !in_charge(in, self.s->len))
        return false;
    if (part->len == 0)
        n = (int64_t)text_chars(*self.s) + 1;
    else
        for (size_t at = 0; (at = text_find(*self.s, *part, at)) != SIZE_MAX; at += part->len)
            n++;
    *out = v_int(n);
    return true;
}

/* All characters are of the kind, and there is one. */
static bool all_chars(Interp *in, Value self, int kind, Value *out)
{
    JText s = *self.s;
    bool all = s.len > 0;
    for (size_t i = 0, n; all && i < s.len; i += n) {
        uint32_t cp = 0;
        n = text_char_len(s, i);
        utf8_decode(s.p + i, n, &cp);
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
        bool letter = is_letter(s, i, n), digit = c == UTF8PROC_CATEGORY_ND;
        all = kind == 'd' ? digit : kind == 'a' ? letter : kind == 's' ? char_is_space(cp) : letter || digit;
    }
    *out = v_bool(all);
    return in_charge(in, s.len);
}
static bool m_isdigit(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    return all_chars(in, self, 'd', out);
}
static bool m_isalpha(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    return all_chars(in, self, 'a', out);
}
static bool m_isalnum(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    return all_chars(in, self, 'n', out);
}
static bool m_isspace(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    return all_chars(in, self, 's', out);
}
static bool is_case(Interp *in, Value self, const char *test, Value *out)
{
    Args none = {0};
    bool is = false;
    bool ok = jinja_test_find(test)(in, NULL, self, &none, &is);
    *out = v_bool(is);
    return ok;
}
static bool m_isupper(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    return is_case(in, self, "upper", out);
}
static bool m_islower(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    return is_case(in, self, "lower", out);
}

/* str.format with {}, {0} and {name}; conversions and widths are refused. */
static bool m_format(Interp *in, Value self, const Args *args, Value *out)
{
    JText s = *self.s;
    Build b;
    size_t next = 0, plain = 0;
    build_init(&b, in);
    for (size_t i = 0; i < s.len; i++) {
        if (s.p[i] != '{' && s.p[i] != '}')
            continue;
        if (!build_text(&b, text_slice(s, plain, i)))
            return false;
        if (i + 1 < s.len && s.p[i + 1] == s.p[i]) { /* {{ or }} */
            plain = ++i;
            continue;
        }
        const char *close = s.p[i] == '{' ? memchr(s.p + i, '}', s.len - i) : NULL;
        size_t n = close ? (size_t)(close - s.p) - i - 1 : 0;
        char name[64];
        if (!close || n >= sizeof name)
            return fail(in, "format: a brace has no partner");
        memcpy(name, s.p + i + 1, n);
        name[n] = 0;
        size_t index = SIZE_MAX;
        if (n == 0)
            index = next++;
        else if (strspn(name, "0123456789") == n && n < 6)
            index = (size_t)strtoul(name, NULL, 10);
        const Value *v = arg_get(args, index, name);
        if (!v)
            return fail(in, "format: there is no value for {%s} (only {}, {0} and {name} are supported)", name);
        if (!build_value(&b, *v))
            return false;
        i = (size_t)(close - s.p);
        plain = i + 1;
    }
    return build_text(&b, text_slice(s, plain, s.len)) && v_str(in, build_done(&b), out);
}

/* One %-conversion of a number with at most a precision. */
static bool format_number(Interp *in, char conversion, int precision, Value v, char *buf, size_t cap)
{
    if (!is_number(v))
        return fail(in, "%%%c needs a number, not a value of type %s", conversion, v_type_name(v));
    if (conversion == 'd' || conversion == 'i' || conversion == 'x')
        snprintf(buf, cap, conversion == 'x' ? "%llx" : "%lld",
                 v.kind == V_FLOAT ? (v.f > -9e18 && v.f < 9e18 ? (long long)v.f : 0) : (long long)as_int(v));
    else
        snprintf(buf, cap, conversion == 'f' ? "%.*f" : conversion == 'e' ? "%.*e" : "%.*g", precision, as_float(v));
    return true;
}

bool text_format(Interp *in, JText fmt, const Value *v, size_t n, Value *out)
{
    Build b;
    size_t used = 0, plain = 0;
    build_init(&b, in);
    for (size_t i = 0; i < fmt.len; i++) {
        if (fmt.p[i] != '%')
            continue;
        if (!build_text(&b, text_slice(fmt, plain, i)))
            return false;
        int precision = 6;
        i++;
        if (i + 1 < fmt.len && fmt.p[i] == '.') {
            precision = 0;
            for (i++; i < fmt.len && fmt.p[i] >= '0' && fmt.p[i] <= '9' && precision < 10; i++)
                precision = precision * 10 + (fmt.p[i] - '0');
        }
        char c = i < fmt.len ? fmt.p[i] : 0, buf[400];
        plain = i + 1;
        if (c == '%') {
            if (!build_chars(&b, "%"))
                return false;
            continue;
        }
        if (!c || !strchr("sdixfeg", c))
            return fail(in, "the format %%%c is not supported (%%s %%d %%x %%f %%e %%g %%%% are)", c ? c : ' ');
        if (used >= n)
            return fail(in, "the format has more places than the %zu values", n);
        Value value = v[used++];
        if (c == 's' ? !build_value(&b, value)
                     : !format_number(in, c, precision > 50 ? 50 : precision, value, buf, sizeof buf) ||
                           !build_chars(&b, buf))
            return false;
    }
    if (used < n)
        return fail(in, "the format has %zu places for %zu values", used, n);
    if (plain < fmt.len && !build_text(&b, text_slice(fmt, plain, fmt.len)))
        return false;
    return v_str(in, build_done(&b), out);
}

/* --- lists and dictionaries ------------------------------------------------------------------------------------- */

static bool m_list_index(Interp *in, Value self, const Args *args, Value *out)
{
    const Value *v = arg_get(args, 0, "value");
    bool same = false;
    for (size_t i = 0; v && i < self.list->n; i++) {
        if (!v_equal(in, self.list->v[i], *v, &same))
            return false;
        *out = v_int((int64_t)i);
        if (same)
            return true;
    }
    return fail(in, "index: the value is not in the list");
}

static bool m_list_count(Interp *in, Value self, const Args *args, Value *out)
{
    const Value *v = arg_get(args, 0, "value");
    int64_t n = 0;
    bool same = false;
    for (size_t i = 0; v && i < self.list->n; i++) {
        if (!v_equal(in, self.list->v[i], *v, &same))
            return false;
        n += same;
    }
    *out = v_int(n);
    return true;
}

static bool m_get(Interp *in, Value self, const Args *args, Value *out)
{
    const Value *key = arg_get(args, 0, "key"), *otherwise = arg_get(args, 1, "default");
    if (!key)
        return fail(in, "get needs a key");
    const Value *found = dict_find(in, self.dict, *key);
    *out = found ? *found : otherwise ? *otherwise : v_none();
    return in->st == ST_OK;
}

static bool m_keys(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    if (!v_list(in, V_LIST, self.dict->n, out))
        return false;
    for (size_t i = 0; i < self.dict->n; i++)
        if (!list_add(in, out->list, self.dict->key[i]))
            return false;
    return true;
}

static bool m_values(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    if (!v_list(in, V_LIST, self.dict->n, out))
        return false;
    for (size_t i = 0; i < self.dict->n; i++)
        if (!list_add(in, out->list, self.dict->val[i]))
            return false;
    return true;
}

static bool m_items(Interp *in, Value self, const Args *args, Value *out)
{
    (void)args;
    if (!v_list(in, V_LIST, self.dict->n, out))
        return false;
    for (size_t i = 0; i < self.dict->n; i++) {
        Value pair;
        if (!v_list(in, V_TUPLE, 2, &pair) || !list_add(in, pair.list, self.dict->key[i]) ||
            !list_add(in, pair.list, self.dict->val[i]) || !list_add(in, out->list, pair))
            return false;
    }
    return true;
}

static bool m_copy(Interp *in, Value self, const Args *args, Value *out)
{
    (void)in, (void)args;
    *out = self; /* nothing changes in place, so the copy may be the thing itself */
    return true;
}

/* --- loop ------------------------------------------------------------------------------------------------------- */

static bool m_cycle(Interp *in, Value self, const Args *args, Value *out)
{
    if (args->n == 0)
        return fail(in, "cycle needs values");
    *out = args->v[self.loop->i % args->n];
    return true;
}

static bool m_changed(Interp *in, Value self, const Args *args, Value *out)
{
    Value now;
    bool same = false;
    if (!v_list(in, V_TUPLE, args->n, &now))
        return false;
    for (size_t i = 0; i < args->n; i++)
        if (!list_add(in, now.list, args->v[i]))
            return false;
    if (self.loop->has_changed && !v_equal(in, self.loop->last_changed, now, &same))
        return false;
    self.loop->last_changed = now;
    self.loop->has_changed = true;
    *out = v_bool(!same);
    return true;
}

static const struct {
    ValueKind kind;
    const char *name;
    MethodFn fn;
} METHODS[] = {
    {V_STR, "strip", m_strip},
    {V_STR, "lstrip", m_lstrip},
    {V_STR, "rstrip", m_rstrip},
    {V_STR, "split", m_split},
    {V_STR, "rsplit", m_rsplit},
    {V_STR, "splitlines", m_splitlines},
    {V_STR, "startswith", m_startswith},
    {V_STR, "endswith", m_endswith},
    {V_STR, "removeprefix", m_removeprefix},
    {V_STR, "removesuffix", m_removesuffix},
    {V_STR, "upper", m_upper},
    {V_STR, "lower", m_lower},
    {V_STR, "title", m_title},
    {V_STR, "capitalize", m_capitalize},
    {V_STR, "replace", m_replace},
    {V_STR, "join", m_join},
    {V_STR, "find", m_find},
    {V_STR, "rfind", m_rfind},
    {V_STR, "index", m_index},
    {V_STR, "count", m_count},
    {V_STR, "format", m_format},
    {V_STR, "isdigit", m_isdigit},
    {V_STR, "isnumeric", m_isdigit},
    {V_STR, "isalpha", m_isalpha},
    {V_STR, "isalnum", m_isalnum},
    {V_STR, "isspace", m_isspace},
    {V_STR, "isupper", m_isupper},
    {V_STR, "islower", m_islower},
    {V_LIST, "index", m_list_index},
    {V_LIST, "count", m_list_count},
    {V_LIST, "copy", m_copy},
    {V_TUPLE, "index", m_list_index},
    {V_TUPLE, "count", m_list_count},
    {V_DICT, "get", m_get},
    {V_DICT, "keys", m_keys},
    {V_DICT, "values", m_values},
    {V_DICT, "items", m_items},
    {V_DICT, "copy", m_copy},
    {V_LOOP, "cycle", m_cycle},
    {V_LOOP, "changed", m_changed},
};

static MethodFn method_find(ValueKind kind, const char *name)
{
    for (size_t i = 0; i < sizeof METHODS / sizeof *METHODS; i++)
        if (METHODS[i].kind == kind && strcmp(METHODS[i].name, name) == 0)
            return METHODS[i].fn;
    return NULL;
}

bool method_exists(ValueKind kind, const char *name)
{
    return method_find(kind, name) != NULL;
}

bool method_call(Interp *in, const Method *m, const Args *args, Value *out)
{
    return method_find(m->self.kind, m->name)(in, m->self, args, out);
}
