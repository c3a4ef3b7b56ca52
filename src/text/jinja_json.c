/* jinja_json.c - the filter tojson as Transformers defines it: Python's json.dumps without HTML escapes.
 *
 * Separators are ", " and ": " on one line; with an indent each item stands on a line of its own, and empty containers
 * stay closed. Keys keep their order unless sort_keys. */
#include <math.h>
#include <stdio.h>

#include "core/utf8.h"
#include "text/jinja_internal.h"

enum { MAX_DEPTH = 200 };

typedef struct Dumper {
    Build *b;
    bool ascii, sort;
    JText indent; /* one level; len 0 with `lines` off: on one line */
    bool lines;
    JText item_separator, key_separator;
} Dumper;

static bool dump(Dumper *d, Value v, unsigned depth);

static bool dump_text(Dumper *d, JText s)
{
    size_t plain = 0; /* start of the stretch that needs no escape */
    if (!build_chars(d->b, "\""))
        return false;
    for (size_t i = 0, n; i < s.len; i += n) {
        unsigned char c = (unsigned char)s.p[i];
        char esc[16] = "";
        n = 1;
        if (c == '"' || c == '\\') {
            snprintf(esc, sizeof esc, "\\%c", c);
        } else if (c < 0x20) {
            const char *simple = c ? strchr("\bb\ff\nn\rr\tt", c) : NULL;
            if (simple)
                snprintf(esc, sizeof esc, "\\%c", simple[1]);
            else
                snprintf(esc, sizeof esc, "\\u%04x", c);
        } else if (d->ascii && c >= 0x7f) {
            uint32_t cp = 0;
            n = text_char_len(s, i);
            utf8_decode(s.p + i, n, &cp);
            if (cp < 0x10000)
                snprintf(esc, sizeof esc, "\\u%04x", cp);
            else
                snprintf(esc, sizeof esc, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10), 0xdc00 + (cp & 0x3ff));
        }
        if (!*esc)
            continue;
        if (!build_text(d->b, text_slice(s, plain, i)) ||
            !build_bytes(d->b, esc, strlen(esc), s.mark ? s.mark[i] : s.user))
            return false;
        plain = i + n;
    }
    return build_text(d->b, text_slice(s, plain, s.len)) && build_chars(d->b, "\"");
}

static bool new_line(Dumper *d, unsigned depth)
{
    if (!d->lines)
        return true;
    if (!build_chars(d->b, "\n"))
        return false;
    for (unsigned i = 0; i < depth; i++)
        if (!build_text(d->b, d->indent))
            return false;
    return true;
}

static bool dump_number(Dumper *d, Value v)
{
    char buf[48];
    if (v.kind == V_INT)
        snprintf(buf, sizeof buf, "%lld", (long long)v.i);
    else if (isnan(v.f) || isinf(v.f))
        snprintf(buf, sizeof buf, "%s", isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
    else
        float_repr(v.f, buf);
    return build_chars(d->b, buf);
}

static bool dump_key(Dumper *d, Value key)
{
    if (key.kind == V_STR)
        return dump_text(d, *key.s);
    if (key.kind != V_NONE && !is_number(key))
        return fail(d->b->in, "tojson: a key of type %s is not possible in JSON", v_type_name(key));
    return build_chars(d->b, "\"") && dump(d, key, 0) && build_chars(d->b, "\"");
}

/* The order of the keys: as they are, or sorted (insertion sort: stable, and sort_keys is rare and small). */
static bool key_order(Dumper *d, const JDict *dict, size_t *order)
{
    for (size_t i = 0; i < dict->n; i++) {
        size_t k = i;
        bool before = false;
        while (d->sort && k > 0) {
            if (!v_less(d->b->in, dict->key[i], dict->key[order[k - 1]], &before))
                return false;
            if (!before)
                break;
            order[k] = order[k - 1];
            k--;
        }
        order[k] = i;
    }
    return true;
}

static bool dump_dict(Dumper *d, const JDict *dict, unsigned depth)
{
    if (dict->n == 0)
        return build_chars(d->b, "{}");
    size_t *order = in_alloc(d->b->in, dict->n, sizeof *order);
    if (!order || !key_order(d, dict, order) || !build_chars(d->b, "{"))
        return false;
    for (size_t i = 0; i < dict->n; i++)
        if ((i && !build_text(d->b, d->item_separator)) || !new_line(d, depth + 1) ||
            !dump_key(d, dict->key[order[i]]) || !build_text(d->b, d->key_separator) ||
            !dump(d, dict->val[order[i]], depth + 1))
            return false;
    return new_line(d, depth) && build_chars(d->b, "}");
}

static bool dump_list(Dumper *d, const JList *l, unsigned depth)
{
    if (l->n == 0)
        return build_chars(d->b, "[]");
    if (!build_chars(d->b, "["))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if ((i && !build_text(d->b, d->item_separator)) || !new_line(d, depth + 1) || !dump(d, l->v[i], depth + 1))
            return false;
    return new_line(d, depth) && build_chars(d->b, "]");
}

static bool dump(Dumper *d, Value v, unsigned depth)
{
    if (depth > MAX_DEPTH)
        return fail(d->b->in, "tojson: the value nests deeper than %d levels", MAX_DEPTH);
    switch (v.kind) {
    case V_NONE:
        return build_chars(d->b, "null");
    case V_BOOL:
        return build_chars(d->b, v.b ? "true" : "false");
    case V_INT:
    case V_FLOAT:
        return dump_number(d, v);
    case V_STR:
        return dump_text(d, *v.s);
    case V_LIST:
    case V_TUPLE:
        return dump_list(d, v.list, depth);
    case V_DICT:
        return dump_dict(d, v.dict, depth);
    case V_UNDEFINED:
        return fail(d->b->in, "tojson: '%.80s' is undefined", v.name ? v.name : "the value");
    default:
        return fail(d->b->in, "tojson: a value of type %s is not possible in JSON", v_type_name(v));
    }
}

bool json_dump(Build *b, Value v, const Args *args)
{
    static const char spaces[] = "                                ";
    Dumper d = {.b = b, .item_separator = {.p = ", ", .len = 2}, .key_separator = {.p = ": ", .len = 2}};
    if (!args_check(b->in, "tojson", args, 4, "ensure_ascii indent separators sort_keys"))
        return false;
    /* In the order of Transformers' own definition. */
    const Value *ascii = arg_get(args, 0, "ensure_ascii"), *indent = arg_get(args, 1, "indent");
    const Value *separators = arg_get(args, 2, "separators"), *sort = arg_get(args, 3, "sort_keys");
    d.ascii = ascii && v_truth(*ascii);
    d.sort = sort && v_truth(*sort);
    if (indent && indent->kind != V_NONE) {
        d.lines = true;
        d.item_separator.len = 1; /* no space in front of a new line */
        if (indent->kind == V_STR)
            d.indent = *indent->s;
        else if (indent->kind == V_INT && indent->i <= (int64_t)sizeof spaces - 1)
            d.indent = (JText){.p = spaces, .len = indent->i > 0 ? (size_t)indent->i : 0};
        else
            return fail(b->in, "tojson: indent must be an integer up to %zu or a string", sizeof spaces - 1);
    }
    if (separators && separators->kind != V_NONE) {
        bool pair = (separators->kind == V_TUPLE || separators->kind == V_LIST) && separators->list->n == 2 &&
                    separators->list->v[0].kind == V_STR && separators->list->v[1].kind == V_STR;
        if (!pair)
            return fail(b->in, "tojson: separators must be two strings");
        d.item_separator = *separators->list->v[0].s;
        d.key_separator = *separators->list->v[1].s;
    }
    return dump(&d, v, 0);
}
