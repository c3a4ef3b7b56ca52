/* jinja_value.c - values with Python's behaviour, and text whose bytes remember whether they are the user's.
 *
 * Everything lives in the arena of one rendering. Every allocation and every pass over text is charged against the
 * rendering's limits, so that no template can take more than a bounded time or memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "core/utf8.h"
#include "text/jinja_internal.h"

enum { MAX_VALUE_DEPTH = 200 };

/* --- limits ----------------------------------------------------------------------------------------------------- */

bool in_charge(Interp *in, size_t bytes)
{
    uint64_t steps = 1 + bytes / 32;
    if (steps > in->steps_left)
        return fail_status(in, ST_BUSY, "the template runs longer than its limit of steps");
    in->steps_left -= steps;
    return true;
}

void *in_alloc(Interp *in, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / 2 / size) {
        fail_status(in, ST_NOMEM, "out of memory");
        return NULL;
    }
    size_t bytes = n * size + 16;
    if (bytes > in->bytes_left) {
        fail_status(in, ST_BUSY, "the template needs more memory than its limit");
        return NULL;
    }
    in->bytes_left -= bytes;
    void *p = in_charge(in, bytes) ? arena_alloc(in->arena, n ? n : 1, size) : NULL;
    if (!p && in->st == ST_OK)
        fail_status(in, ST_NOMEM, "out of memory");
    return p;
}

/* --- text ------------------------------------------------------------------------------------------------------- */

bool char_is_space(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x1f) || cp == 0x85 || c == UTF8PROC_CATEGORY_ZS ||
           c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

JText text_slice(JText s, size_t start, size_t end)
{
    return (JText){.p = s.p + start, .mark = s.mark ? s.mark + start : NULL, .len = end - start, .user = s.user};
}

size_t text_char_len(JText s, size_t at)
{
    unsigned char c = (unsigned char)s.p[at];
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    return n <= s.len - at ? n : s.len - at;
}

size_t text_chars(JText s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
    return n;
}

size_t text_find(JText s, JText part, size_t from)
{
    if (from > s.len || part.len > s.len - from)
        return SIZE_MAX;
    if (part.len == 0)
        return from;
    const char *hit = memmem(s.p + from, s.len - from, part.p, part.len);
    return hit ? (size_t)(hit - s.p) : SIZE_MAX;
}

bool build_init(Build *b, Interp *in)
{
    *b = (Build){.in = in};
    return true;
}

static bool build_reserve(Build *b, size_t extra)
{
    if (extra <= b->cap - b->len)
        return true;
    size_t cap = b->cap ? b->cap * 2 : 64;
    if (cap < b->len + extra)
        cap = b->len + extra;
    char *p = in_alloc(b->in, cap, 1);
    unsigned char *mark = p && b->mark ? in_alloc(b->in, cap, 1) : NULL;
    if (!p || (b->mark && !mark))
        return false;
    if (b->len)
        memcpy(p, b->p, b->len);
    if (mark)
        memcpy(mark, b->mark, b->len);
    b->p = p;
    b->mark = mark;
    b->cap = cap;
    return true;
}

static bool build_marks(Build *b) /* arena memory is zeroed, so all bytes so far become unmarked */
{
    if (!b->mark)
        b->mark = in_alloc(b->in, b->cap, 1);
    return b->mark != NULL;
}

bool build_bytes(Build *b, const char *p, size_t len, bool user)
{
    return build_text(b, (JText){.p = p, .len = len, .user = user});
}

bool build_chars(Build *b, const char *text)
{
    return build_bytes(b, text, strlen(text), false);
}

bool build_text(Build *b, JText s)
{
    if (s.len == 0)
        return true;
    if (!in_charge(b->in, s.len) || !build_reserve(b, s.len))
        return false;
    if ((s.mark || s.user || b->mark) && !build_marks(b))
        return false;
    memcpy(b->p + b->len, s.p, s.len);
    if (b->mark && s.mark)
        memcpy(b->mark + b->len, s.mark, s.len);
    else if (b->mark)
        memset(b->mark + b->len, s.user, s.len);
    b->len += s.len;
    if (b == b->in->sink && b->len > b->in->max_output)
        return fail_status(b->in, ST_BUSY, "the template prints more text than its limit");
    return true;
}

JText build_done(const Build *b)
{
    return (JText){.p = b->p ? b->p : "", .mark = b->mark, .len = b->len};
}

bool build_value(Build *b, Value v)
{
    JText s;
    return v_to_text(b->in, v, &s) && build_text(b, s);
}

/* --- making values ---------------------------------------------------------------------------------------------- */

bool v_str(Interp *in, JText text, Value *out)
{
    JText *s = in_alloc(in, 1, sizeof *s);
    if (!s)
        return false;
    *s = text;
    *out = (Value){.kind = V_STR, .s = s};
    return true;
}

bool v_cstr(Interp *in, const char *text, Value *out)
{
    return v_str(in, (JText){.p = text, .len = strlen(text)}, out);
}

bool v_list(Interp *in, ValueKind kind, size_t cap, Value *out)
{
    JList *l = in_alloc(in, 1, sizeof *l);
    if (!l)
        return false;
    if (cap && !(l->v = in_alloc(in, cap, sizeof *l->v)))
        return false;
    l->cap = cap;
    *out = (Value){.kind = kind, .list = l};
    return true;
}

bool list_add(Interp *in, JList *l, Value v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        Value *grown = in_alloc(in, cap, sizeof *grown);
        if (!grown)
            return false;
        if (l->n)
            memcpy(grown, l->v, l->n * sizeof *grown);
        l->v = grown;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return true;
}

bool v_dict(Interp *in, Value *out)
{
    JDict *d = in_alloc(in, 1, sizeof *d);
    *out = (Value){.kind = V_DICT, .dict = d};
    return d != NULL;
}

static bool dict_append(Interp *in, JDict *d, Value key, Value val)
{
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 8;
        Value *k = in_alloc(in, cap, sizeof *k), *v = k ? in_alloc(in, cap, sizeof *v) : NULL;
        if (!v)
            return false;
        if (d->n) {
            memcpy(k, d->key, d->n * sizeof *k);
            memcpy(v, d->val, d->n * sizeof *v);
        }
        d->key = k;
        d->val = v;
        d->cap = cap;
    }
    d->key[d->n] = key;
    d->val[d->n++] = val;
    return true;
}

Value *dict_find_name(const JDict *d, const char *name, size_t len)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->key[i].kind == V_STR && d->key[i].s->len == len && memcmp(d->key[i].s->p, name, len) == 0)
            return &d->val[i];
    return NULL;
}

Value *dict_find(Interp *in, const JDict *d, Value key)
{
    if (!in_charge(in, d->n * 8))
        return NULL;
    if (key.kind == V_STR)
        return dict_find_name(d, key.s->p, key.s->len);
    for (size_t i = 0; i < d->n; i++) {
        bool same = false;
        if (d->key[i].kind != V_STR && v_equal(in, d->key[i], key, &same) && same)
            return &d->val[i];
    }
    return NULL;
}

bool dict_set(Interp *in, JDict *d, Value key, Value val)
{
    if (key.kind == V_LIST || key.kind == V_DICT || key.kind == V_UNDEFINED)
        return fail(in, "a value of type %s cannot be a dictionary's key", v_type_name(key));
    Value *old = dict_find(in, d, key);
    if (in->st != ST_OK)
        return false;
    if (old) {
        *old = val;
        return true;
    }
    return dict_append(in, d, key, val);
}

static bool from_json(Interp *in, const json_t *json, bool user, unsigned depth, Value *out)
{
    if (depth > 512)
        return fail(in, "a value nests deeper than 512 levels");
    if (!in_charge(in, 8))
        return false;
    switch (json_typeof(json)) {
    case JSON_NULL:
        *out = v_none();
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = v_bool(json_is_true(json));
        return true;
    case JSON_INTEGER:
        *out = v_int(json_integer_value(json));
        return true;
    case JSON_REAL:
        *out = v_float(json_real_value(json));
        return true;
    case JSON_STRING:
        return v_str(in, (JText){.p = json_string_value(json), .len = json_string_length(json), .user = user}, out);
    case JSON_ARRAY: {
        size_t n = json_array_size(json);
        if (!v_list(in, V_LIST, n, out))
            return false;
        for (size_t i = 0; i < n; i++) {
            Value item;
            if (!from_json(in, json_array_get(json, i), user, depth + 1, &item) || !list_add(in, out->list, item))
                return false;
        }
        return true;
    }
    default: {
        json_t *object = (json_t *)(uintptr_t)json; /* iteration only reads, but jansson's signature is not const */
        const char *key;
        json_t *v;
        if (!v_dict(in, out))
            return false;
        json_object_foreach(object, key, v)
        {
            Value k, item;
            if (!v_str(in, (JText){.p = key, .len = strlen(key), .user = user}, &k) ||
                !from_json(in, v, user, depth + 1, &item) || !dict_append(in, out->dict, k, item))
                return false;
        }
        return true;
    }
    }
}

bool v_from_json(Interp *in, const json_t *json, bool user, Value *out)
{
    return from_json(in, json, user, 0, out);
}

/* --- asking values ---------------------------------------------------------------------------------------------- */

const char *v_type_name(Value v)
{
    static const char *const names[] = {"undefined", "none", "bool",      "int",   "float", "string",   "list",
                                        "tuple",     "dict", "namespace", "macro", "loop",  "function", "method"};
    return names[v.kind];
}

bool v_truth(Value v)
{
    switch (v.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.b;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
        return v.s->len != 0;
    case V_LIST:
    case V_TUPLE:
        return v.list->n != 0;
    case V_DICT:
        return v.dict->n != 0;
    default:
        return true;
    }
}

static bool equal(Interp *in, Value a, Value b, unsigned depth, bool *out)
{
    *out = false;
    if (depth > MAX_VALUE_DEPTH)
        return fail(in, "the values nest too deeply to compare");
    if (!in_charge(in, 8))
        return false;
    if (is_number(a) && is_number(b)) {
        *out = a.kind == V_FLOAT || b.kind == V_FLOAT ? as_float(a) == as_float(b) : as_int(a) == as_int(b);
        return true;
    }
    if (a.kind != b.kind)
        return true;
    switch (a.kind) {
    case V_UNDEFINED:
    case V_NONE:
        *out = true;
        return true;
    case V_STR:
        *out = a.s->len == b.s->len && memcmp(a.s->p, b.s->p, a.s->len) == 0;
        return in_charge(in, a.s->len);
    case V_LIST:
    case V_TUPLE:
        if (a.list->n != b.list->n)
            return true;
        for (size_t i = 0; i < a.list->n; i++)
            if (!equal(in, a.list->v[i], b.list->v[i], depth + 1, out))
                return false;
            else if (!*out)
                return true;
        *out = true;
        return true;
    case V_DICT:
        if (a.dict->n != b.dict->n)
            return true;
        for (size_t i = 0; i < a.dict->n; i++) {
            const Value *other = dict_find(in, b.dict, a.dict->key[i]);
            *out = false;
            if (in->st != ST_OK)
                return false;
            if (!other)
                return true;
            if (!equal(in, a.dict->val[i], *other, depth + 1, out))
                return false;
            if (!*out)
                return true;
        }
        *out = true;
        return true;
    case V_FUNCTION:
        *out = a.fn == b.fn;
        return true;
    default:
        *out = a.dict == b.dict; /* the same object */
        return true;
    }
}

bool v_equal(Interp *in, Value a, Value b, bool *out)
{
    return equal(in, a, b, 0, out);
}

static bool less(Interp *in, Value a, Value b, unsigned depth, bool *out)
{
    *out = false;
    if (!in_charge(in, 8))
        return false;
    if (is_number(a) && is_number(b)) {
        *out = a.kind == V_FLOAT || b.kind == V_FLOAT ? as_float(a) < as_float(b) : as_int(a) < as_int(b);
        return true;
    }
    if (a.kind == V_STR && b.kind == V_STR) { /* the order of UTF-8 bytes is that of characters */
        size_t n = a.s->len < b.s->len ? a.s->len : b.s->len;
        int c = n ? memcmp(a.s->p, b.s->p, n) : 0;
        *out = c < 0 || (c == 0 && a.s->len < b.s->len);
        return in_charge(in, n);
    }
    if (a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE) && depth < MAX_VALUE_DEPTH) {
        for (size_t i = 0; i < a.list->n && i < b.list->n; i++) {
            bool same;
            if (!v_equal(in, a.list->v[i], b.list->v[i], &same))
                return false;
            if (!same)
                return less(in, a.list->v[i], b.list->v[i], depth + 1, out);
        }
        *out = a.list->n < b.list->n;
        return true;
    }
    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED) {
        const char *name = a.kind == V_UNDEFINED ? a.name : b.name;
        return fail(in, "'%.80s' is undefined and cannot be compared", name ? name : "a value");
    }
    return fail(in, "values of type %s and %s have no order", v_type_name(a), v_type_name(b));
}

bool v_less(Interp *in, Value a, Value b, bool *out)
{
    return less(in, a, b, 0, out);
}

bool v_contains(Interp *in, Value container, Value item, bool *out)
{
    *out = false;
    switch (container.kind) {
    case V_STR:
        if (item.kind != V_STR)
            return fail(in, "only a string can be in a string, not a value of type %s", v_type_name(item));
        *out = text_find(*container.s, *item.s, 0) != SIZE_MAX;
        return in_charge(in, container.s->len);
    case V_LIST:
    case V_TUPLE:
        for (size_t i = 0; i < container.list->n && !*out; i++)
            if (!v_equal(in, container.list->v[i], item, out))
                return false;
        return true;
    case V_DICT:
        *out = dict_find(in, container.dict, item) != NULL;
        return in->st == ST_OK;
    case V_UNDEFINED:
        return true;
    default:
        return fail(in, "'in' needs a string, list or dict on its right, not a value of type %s",
                    v_type_name(container));
    }
}

bool v_length(Interp *in, Value v, size_t *out)
{
    switch (v.kind) {
    case V_STR:
        *out = text_chars(*v.s);
        return in_charge(in, v.s->len);
    case V_LIST:
    case V_TUPLE:
        *out = v.list->n;
        return true;
    case V_DICT:
        *out = v.dict->n;
        return true;
    case V_LOOP:
        *out = v.loop->items->n;
        return true;
    case V_UNDEFINED:
        *out = 0;
        return true;
    default:
        return fail(in, "a value of type %s has no length", v_type_name(v));
    }
}

bool v_iterate(Interp *in, Value v, const JList **out)
{
    Value list;
    switch (v.kind) {
    case V_LIST:
    case V_TUPLE:
        *out = v.list;
        return true;
    case V_UNDEFINED:
        if (!v_list(in, V_LIST, 0, &list))
            return false;
        break;
    case V_DICT:
        if (!v_list(in, V_LIST, v.dict->n, &list))
            return false;
        for (size_t i = 0; i < v.dict->n; i++)
            if (!list_add(in, list.list, v.dict->key[i]))
                return false;
        break;
    case V_STR:
        if (!v_list(in, V_LIST, 0, &list))
            return false;
        for (size_t i = 0, n; i < v.s->len; i += n) {
            Value c;
            n = text_char_len(*v.s, i);
            if (!v_str(in, text_slice(*v.s, i, i + n), &c) || !list_add(in, list.list, c))
                return false;
        }
        break;
    default:
        return fail(in, "a value of type %s cannot be iterated", v_type_name(v));
    }
    *out = list.list;
    return true;
}

/* --- printing --------------------------------------------------------------------------------------------------- */

/* The shortest decimal that reads back as f, in Python's form. */
void float_repr(double f, char out[48])
{
    char digits[32];
    int precision = 0, exponent;
    if (isnan(f) || isinf(f)) {
        snprintf(out, 48, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    do
        snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (strtod(digits, NULL) != f && precision++ < 17);
    exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent >= 16 || exponent < -4) {
        char *e = strchr(digits, 'e');
        *e = 0;
        snprintf(out, 48, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent) % 1000);
        return;
    }
    int decimals = precision - exponent;
    snprintf(out, 48, "%.*f", decimals > 1 ? decimals : 1, f);
}

static bool repr_text(Build *b, JText s)
{
    bool single = memchr(s.p, '\'', s.len) != NULL, twice = memchr(s.p, '"', s.len) != NULL;
    char quote = single && !twice ? '"' : '\'';
    if (!build_bytes(b, &quote, 1, false))
        return false;
    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t cp = 0;
        char esc[16] = "";
        n = text_char_len(s, i);
        utf8_decode(s.p + i, n, &cp);
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
        bool printable =
            cp == ' ' || (c != UTF8PROC_CATEGORY_CC && c != UTF8PROC_CATEGORY_CF && c != UTF8PROC_CATEGORY_CN &&
                          c != UTF8PROC_CATEGORY_CO && c != UTF8PROC_CATEGORY_CS && c != UTF8PROC_CATEGORY_ZL &&
                          c != UTF8PROC_CATEGORY_ZP && c != UTF8PROC_CATEGORY_ZS);
        if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(esc, sizeof esc, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (cp == '\\' || cp == (unsigned char)quote)
            snprintf(esc, sizeof esc, "\\%c", (char)cp);
        else if (!printable)
            snprintf(esc, sizeof esc, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        bool user = s.mark ? s.mark[i] : s.user;
        if (!(*esc ? build_bytes(b, esc, strlen(esc), user) : build_text(b, text_slice(s, i, i + n))))
            return false;
    }
    return build_bytes(b, &quote, 1, false);
}

static bool repr_list(Build *b, Value v, unsigned depth)
{
    bool tuple = v.kind == V_TUPLE;
    if (!build_chars(b, tuple ? "(" : "["))
        return false;
    for (size_t i = 0; i < v.list->n; i++)
        if ((i && !build_chars(b, ", ")) || !v_repr(b, v.list->v[i], depth + 1))
            return false;
    return build_chars(b, !tuple ? "]" : v.list->n == 1 ? ",)" : ")");
}

static bool repr_dict(Build *b, const JDict *d, unsigned depth)
{
    if (!build_chars(b, "{"))
        return false;
    for (size_t i = 0; i < d->n; i++)
        if ((i && !build_chars(b, ", ")) || !v_repr(b, d->key[i], depth + 1) || !build_chars(b, ": ") ||
            !v_repr(b, d->val[i], depth + 1))
            return false;
    return build_chars(b, "}");
}

bool v_repr(Build *b, Value v, unsigned depth)
{
    char buf[48];
    if (depth > MAX_VALUE_DEPTH)
        return fail(b->in, "the value nests too deeply to print");
    switch (v.kind) {
    case V_UNDEFINED:
        return build_chars(b, "Undefined");
    case V_NONE:
        return build_chars(b, "None");
    case V_BOOL:
        return build_chars(b, v.b ? "True" : "False");
    case V_INT:
        snprintf(buf, sizeof buf, "%lld", (long long)v.i);
        return build_chars(b, buf);
    case V_FLOAT:
        float_repr(v.f, buf);
        return build_chars(b, buf);
    case V_STR:
        return repr_text(b, *v.s);
    case V_LIST:
    case V_TUPLE:
        return repr_list(b, v, depth);
    case V_DICT:
        return repr_dict(b, v.dict, depth);
    case V_NAMESPACE:
        return build_chars(b, "<Namespace ") && repr_dict(b, v.dict, depth) && build_chars(b, ">");
    case V_MACRO:
        return build_chars(b, "<Macro '") && build_chars(b, v.macro->node->name) && build_chars(b, "'>");
    default:
        return build_chars(b, "<") && build_chars(b, v_type_name(v)) && build_chars(b, ">");
    }
}

bool v_to_text(Interp *in, Value v, JText *out)
{
    Build b;
    if (v.kind == V_STR) {
        *out = *v.s;
        return true;
    }
    build_init(&b, in);
    if (v.kind != V_UNDEFINED && !v_repr(&b, v, 0))
        return false;
    *out = build_done(&b);
    return true;
}

/* --- arguments -------------------------------------------------------------------------------------------------- */

const Value *arg_get(const Args *args, size_t index, const char *name)
{
    size_t n_pos = args->n - args->n_kw;
    if (index < n_pos)
        return &args->v[index];
    for (size_t i = 0; i < args->n_kw; i++)
        if (strcmp(args->kw[i], name) == 0)
            return &args->v[n_pos + i];
    return NULL;
}

bool args_check(Interp *in, const char *what, const Args *args, size_t max, const char *names)
{
    if (args->n - args->n_kw > max)
        return fail(in, "%s takes at most %zu arguments, not %zu", what, max, args->n - args->n_kw);
    for (size_t i = 0; i < args->n_kw; i++) {
        size_t len = strlen(args->kw[i]);
        const char *hit = names;
        while ((hit = strstr(hit, args->kw[i])) != NULL) {
            if ((hit == names || hit[-1] == ' ') && (hit[len] == ' ' || !hit[len]))
                break;
            hit += len;
        }
        if (!hit)
            return fail(in, "%s has no argument named '%.60s'", what, args->kw[i]);
    }
    return true;
}
