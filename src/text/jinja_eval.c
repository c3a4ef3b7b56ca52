/* jinja_eval.c - walks the syntax tree.
 *
 * Scopes are linked frames in the arena: a loop body has one for each turn, a macro call one whose parent is where the
 * macro was defined. Assignment binds in the innermost frame, so what is set in a loop is gone after its turn.
 * Invariants: the C stack is bounded by `depth`, time by steps_left, memory by bytes_left. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "text/jinja_internal.h"

enum { MAX_DEPTH = 600, MAX_RANGE = 100000 };

static bool eval(Interp *in, const Node *n, Value *out);
static bool exec_list(Interp *in, const NodeList *body);

/* --- failing ---------------------------------------------------------------------------------------------------- */

static bool fail_va(Interp *in, Status st, const char *fmt, va_list ap)
{
    char text[512];
    if (in->st != ST_OK)
        return false; /* the first failure is the cause */
    vsnprintf(text, sizeof text, fmt, ap);
    in->st = jinja_error(in->t, in->at ? in->at->pos : 0, st, in->err, "%s", text);
    return false;
}

bool fail(Interp *in, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail_va(in, ST_INVALID, fmt, ap);
    va_end(ap);
    return false;
}

bool fail_status(Interp *in, Status st, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail_va(in, st, fmt, ap);
    va_end(ap);
    return false;
}

static bool fail_undefined(Interp *in, Value v)
{
    return fail(in, "'%.80s' is undefined", v.name ? v.name : "the value");
}

/* --- scopes ----------------------------------------------------------------------------------------------------- */

static Scope *scope_new(Interp *in, Scope *parent)
{
    Scope *s = in_alloc(in, 1, sizeof *s);
    if (s)
        s->parent = parent;
    return s;
}

static bool bind(Interp *in, Scope *s, const char *name, Value v)
{
    for (Binding *b = s->first; b; b = b->next)
        if (b->name == name) {
            b->value = v;
            return true;
        }
    Binding *b = in_alloc(in, 1, sizeof *b);
    if (!b)
        return false;
    *b = (Binding){s->first, name, v};
    s->first = b;
    return true;
}

static Value lookup(Interp *in, const char *name)
{
    size_t seen = 0;
    static const char *const functions[] = {"range", "dict", "namespace", "raise_exception", "strftime_now"};
    for (const Scope *s = in->scope; s; s = s->parent)
        for (const Binding *b = s->first; b; b = b->next) {
            if (b->name == name)
                return b->value;
            if (++seen % 16 == 0 && in->steps_left) /* long frames cost steps, too */
                in->steps_left--;
        }
    for (size_t i = in->env->n_vars; i-- > 0;)
        if (in->env->vars[i].value && strcmp(in->env->vars[i].name, name) == 0)
            return in->var[i];
    for (int i = 0; i < 5; i++)
        if (strcmp(functions[i], name) == 0 && (i != FN_STRFTIME || in->env->has_time))
            return (Value){.kind = V_FUNCTION, .fn = (FunctionId)i};
    return v_undefined(name);
}

static bool assign(Interp *in, const Node *target, Value v)
{
    in->at = target;
    if (target->kind == N_NAME)
        return bind(in, in->scope, target->name, v);
    if (target->kind == N_ATTR) {
        Value ns, key;
        if (!eval(in, target->kid.v[0], &ns))
            return false;
        if (ns.kind != V_NAMESPACE)
            return fail(in, "only attributes of a namespace() can be set, not those of a value of type %s",
                        v_type_name(ns));
        return v_cstr(in, target->name, &key) && dict_set(in, ns.dict, key, v);
    }
    const JList *l;
    if (!v_iterate(in, v, &l))
        return false;
    if (l->n != target->kid.n)
        return fail(in, "%zu values for %zu names", l->n, target->kid.n);
    for (size_t i = 0; i < l->n; i++)
        if (!assign(in, target->kid.v[i], l->v[i]))
            return false;
    return true;
}

/* --- attributes and items --------------------------------------------------------------------------------------- */

static bool loop_attr(Interp *in, Value self, const char *name, Value *out)
{
    const Loop *l = self.loop;
    int64_t i = (int64_t)l->i, n = (int64_t)l->items->n;
    (void)in;
    *out = v_undefined(name);
    if (strcmp(name, "index") == 0)
        *out = v_int(i + 1);
    else if (strcmp(name, "index0") == 0)
        *out = v_int(i);
    else if (strcmp(name, "revindex") == 0)
        *out = v_int(n - i);
    else if (strcmp(name, "revindex0") == 0)
        *out = v_int(n - i - 1);
    else if (strcmp(name, "first") == 0)
        *out = v_bool(i == 0);
    else if (strcmp(name, "last") == 0)
        *out = v_bool(i == n - 1);
    else if (strcmp(name, "length") == 0)
        *out = v_int(n);
    else if (strcmp(name, "depth") == 0)
        *out = v_int((int64_t)l->depth);
    else if (strcmp(name, "depth0") == 0)
        *out = v_int((int64_t)l->depth - 1);
    else if (strcmp(name, "previtem") == 0 && i > 0)
        *out = l->items->v[i - 1];
    else if (strcmp(name, "nextitem") == 0 && i + 1 < n)
        *out = l->items->v[i + 1];
    return true;
}

bool get_attr(Interp *in, Value self, const char *name, Value *out)
{
    const Value *found = NULL;
    if (self.kind == V_UNDEFINED)
        return fail_undefined(in, self);
    if (method_exists(self.kind, name)) {
        Method *m = in_alloc(in, 1, sizeof *m);
        if (!m)
            return false;
        *m = (Method){self, arena_strdup(in->arena, name)};
        *out = (Value){.kind = V_METHOD, .method = m};
        return m->name ? true : fail_status(in, ST_NOMEM, "out of memory");
    }
    if (self.kind == V_LOOP)
        return loop_attr(in, self, name, out);
    if (self.kind == V_DICT || self.kind == V_NAMESPACE) {
        if (!in_charge(in, self.dict->n * 8))
            return false;
        found = dict_find_name(self.dict, name, strlen(name));
    }
    *out = found ? *found : v_undefined(name);
    return true;
}

/* The item of a sequence by an index that may count from the end. */
static bool get_index(Interp *in, Value self, int64_t i, Value *out)
{
    size_t n;
    if (!v_length(in, self, &n))
        return false;
    if (i < 0)
        i += (int64_t)n;
    *out = v_undefined("an item out of range");
    if (i < 0 || (uint64_t)i >= n)
        return true;
    if (self.kind != V_STR) {
        *out = self.list->v[i];
        return true;
    }
    size_t at = 0;
    while (i-- > 0)
        at += text_char_len(*self.s, at);
    return v_str(in, text_slice(*self.s, at, at + text_char_len(*self.s, at)), out);
}

bool get_item(Interp *in, Value self, Value key, Value *out)
{
    if (self.kind == V_UNDEFINED)
        return fail_undefined(in, self);
    if ((self.kind == V_LIST || self.kind == V_TUPLE || self.kind == V_STR) &&
        (key.kind == V_INT || key.kind == V_BOOL))
        return get_index(in, self, as_int(key), out);
    if (self.kind == V_DICT) {
        const Value *found = dict_find(in, self.dict, key);
        if (found || in->st != ST_OK) {
            *out = found ? *found : v_none();
            return in->st == ST_OK;
        }
    }
    *out = v_undefined("an item");
    if (key.kind != V_STR)
        return true;
    char *name = in_alloc(in, key.s->len + 1, 1);
    if (!name)
        return false;
    memcpy(name, key.s->p, key.s->len);
    return get_attr(in, self, name, out);
}

bool get_path(Interp *in, Value self, Value path, Value *out)
{
    *out = self;
    if (path.kind != V_STR)
        return get_item(in, self, path, out);
    for (size_t start = 0; start <= path.s->len;) {
        const char *dot = memchr(path.s->p + start, '.', path.s->len - start);
        size_t end = dot ? (size_t)(dot - path.s->p) : path.s->len;
        char number[20];
        Value key;
        if (!v_str(in, text_slice(*path.s, start, end), &key))
            return false;
        if (end > start && end - start < sizeof number) {
            memcpy(number, path.s->p + start, end - start);
            number[end - start] = 0;
            if (strspn(number, "0123456789") == end - start)
                key = v_int(strtoll(number, NULL, 10));
        }
        if (!get_item(in, *out, key, out))
            return false;
        start = end + 1;
    }
    return true;
}

/* Python's slice indices for a sequence of n items. */
static bool slice_bounds(Interp *in, const Value part[3], int64_t n, int64_t *start, int64_t *stop, int64_t *step)
{
    int64_t *to[3] = {start, stop, step};
    for (int i = 0; i < 3; i++)
        if (part[i].kind != V_NONE && part[i].kind != V_INT && part[i].kind != V_BOOL)
            return fail(in, "a slice needs integers, not a value of type %s", v_type_name(part[i]));
    *step = part[2].kind == V_NONE ? 1 : as_int(part[2]);
    if (*step == 0)
        return fail(in, "the step of a slice cannot be 0");
    if (*step > n + 1 || *step < -n - 1) /* the same items, without overflow below */
        *step = *step > 0 ? n + 1 : -n - 1;
    for (int i = 0; i < 2; i++) {
        int64_t low = *step > 0 ? 0 : -1, high = *step > 0 ? n : n - 1;
        if (part[i].kind == V_NONE) {
            *to[i] = (i == 0) == (*step > 0) ? low : high;
            continue;
        }
        int64_t v = as_int(part[i]);
        if (v < 0)
            v = v < -n ? low : v + n;
        *to[i] = v < low ? low : v > high ? high : v;
    }
    return true;
}

static bool eval_slice(Interp *in, const Node *n, Value *out)
{
    Value self, part[3];
    int64_t start, stop, step;
    size_t length;
    const JList *l;
    if (!eval(in, n->kid.v[0], &self))
        return false;
    for (int i = 0; i < 3; i++) {
        part[i] = v_none();
        if (n->kid.v[i + 1] && !eval(in, n->kid.v[i + 1], &part[i]))
            return false;
    }
    in->at = n;
    if (self.kind == V_UNDEFINED)
        return fail_undefined(in, self);
    if (self.kind != V_STR && self.kind != V_LIST && self.kind != V_TUPLE)
        return fail(in, "a value of type %s cannot be sliced", v_type_name(self));
    if (!v_length(in, self, &length) || !slice_bounds(in, part, (int64_t)length, &start, &stop, &step))
        return false;
    if (self.kind == V_STR && step == 1) { /* a stretch of the same bytes */
        size_t from = 0, to;
        int64_t i = 0;
        for (; i < start && from < self.s->len; i++)
            from += text_char_len(*self.s, from);
        for (to = from; i < stop && to < self.s->len; i++)
            to += text_char_len(*self.s, to);
        return v_str(in, text_slice(*self.s, from, to), out);
    }
    Build b;
    build_init(&b, in);
    if (!v_iterate(in, self, &l) || (self.kind != V_STR && !v_list(in, self.kind, 0, out)))
        return false;
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
        if (self.kind == V_STR ? !build_text(&b, *l->v[i].s) : !list_add(in, out->list, l->v[i]))
            return false;
    return self.kind != V_STR || v_str(in, build_done(&b), out);
}

/* --- operators -------------------------------------------------------------------------------------------------- */

static const char *op_name(int op)
{
    static const char *const names[] = {"+", "-", "*", "/", "%"};
    if (op == T_POW)
        return "**";
    return op == T_FLOORDIV ? "//" : names[op == '+' ? 0 : op == '-' ? 1 : op == '*' ? 2 : op == '/' ? 3 : 4];
}

static bool int_pow(Interp *in, int64_t base, int64_t exponent, Value *out)
{
    int64_t result = 1;
    if (exponent < 0) {
        *out = v_float(pow((double)base, (double)exponent));
        return true;
    }
    while (exponent) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            return fail(in, "the result of ** does not fit 64 bits");
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base))
            return fail(in, "the result of ** does not fit 64 bits");
    }
    *out = v_int(result);
    return true;
}

static bool int_arithmetic(Interp *in, int op, int64_t a, int64_t b, Value *out)
{
    int64_t r = 0;
    bool overflow = false;
    if ((op == T_FLOORDIV || op == '%') && b == 0)
        return fail(in, "division by zero");
    switch (op) {
    case '+':
        overflow = __builtin_add_overflow(a, b, &r);
        break;
    case '-':
        overflow = __builtin_sub_overflow(a, b, &r);
        break;
    case '*':
        overflow = __builtin_mul_overflow(a, b, &r);
        break;
    case T_FLOORDIV: /* rounds towards minus infinity */
        overflow = a == INT64_MIN && b == -1;
        r = overflow ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case '%': /* takes the sign of b */
        r = b == -1 ? 0 : a % b;
        r += r != 0 && (r < 0) != (b < 0) ? b : 0;
        break;
    default:
        return int_pow(in, a, b, out);
    }
    *out = v_int(r);
    return !overflow || fail(in, "the result of %s does not fit 64 bits", op_name(op));
}

static bool float_arithmetic(Interp *in, int op, double a, double b, Value *out)
{
    if ((op == '/' || op == T_FLOORDIV || op == '%') && b == 0)
        return fail(in, "division by zero");
    double m = op == '%' ? fmod(a, b) : 0;
    switch (op) {
    case '+':
        *out = v_float(a + b);
        break;
    case '-':
        *out = v_float(a - b);
        break;
    case '*':
        *out = v_float(a * b);
        break;
    case '/':
        *out = v_float(a / b);
        break;
    case T_FLOORDIV:
        *out = v_float(floor(a / b));
        break;
    case '%':
        *out = v_float(m != 0 && (m < 0) != (b < 0) ? m + b : m);
        break;
    default:
        *out = v_float(pow(a, b));
        break;
    }
    return true;
}

static bool join_lists(Interp *in, Value a, Value b, Value *out)
{
    if (!v_list(in, a.kind, a.list->n + b.list->n, out))
        return false;
    for (size_t i = 0; i < a.list->n + b.list->n; i++)
        if (!list_add(in, out->list, i < a.list->n ? a.list->v[i] : b.list->v[i - a.list->n]))
            return false;
    return true;
}

static bool repeat(Interp *in, Value v, int64_t times, Value *out)
{
    Build b;
    build_init(&b, in);
    if (v.kind != V_STR && !v_list(in, v.kind, 0, out))
        return false;
    if (v.kind == V_STR ? v.s->len == 0 : v.list->n == 0)
        times = 0;
    for (int64_t k = 0; k < times; k++) {
        if (v.kind == V_STR && !build_text(&b, *v.s))
            return false;
        for (size_t i = 0; v.kind != V_STR && i < v.list->n; i++)
            if (!in_charge(in, 1) || !list_add(in, out->list, v.list->v[i]))
                return false;
    }
    return v.kind != V_STR || v_str(in, build_done(&b), out);
}

static bool binary(Interp *in, int op, Value a, Value b, Value *out)
{
    bool a_seq = a.kind == V_STR || a.kind == V_LIST || a.kind == V_TUPLE;
    bool b_seq = b.kind == V_STR || b.kind == V_LIST || b.kind == V_TUPLE;
    if (is_number(a) && is_number(b)) {
        if (a.kind == V_FLOAT || b.kind == V_FLOAT || op == '/')
            return float_arithmetic(in, op, as_float(a), as_float(b), out);
        return int_arithmetic(in, op, as_int(a), as_int(b), out);
    }
    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED)
        return fail_undefined(in, a.kind == V_UNDEFINED ? a : b);
    if (op == '%' && a.kind == V_STR) {
        if (b.kind == V_TUPLE)
            return text_format(in, *a.s, b.list->v, b.list->n, out);
        return text_format(in, *a.s, &b, 1, out);
    }
    if (op == '+' && a.kind == V_STR && b.kind == V_STR) {
        Build text;
        build_init(&text, in);
        return build_text(&text, *a.s) && build_text(&text, *b.s) && v_str(in, build_done(&text), out);
    }
    if (op == '+' && a.kind == b.kind && a_seq)
        return join_lists(in, a, b, out);
    if (op == '*' && a_seq && (b.kind == V_INT || b.kind == V_BOOL))
        return repeat(in, a, as_int(b), out);
    if (op == '*' && b_seq && (a.kind == V_INT || a.kind == V_BOOL))
        return repeat(in, b, as_int(a), out);
    return fail(in, "'%s' does not work between values of type %s and %s", op_name(op), v_type_name(a), v_type_name(b));
}

static bool compare(Interp *in, int op, Value a, Value b, bool *out)
{
    bool ok;
    switch (op) {
    case T_EQ:
        return v_equal(in, a, b, out);
    case T_NE:
        ok = v_equal(in, a, b, out);
        *out = !*out;
        return ok;
    case '<':
        return v_less(in, a, b, out);
    case '>':
        return v_less(in, b, a, out);
    case T_LE:
    case T_GE: /* not "not greater": NaN is neither */
        if (!v_less(in, op == T_LE ? a : b, op == T_LE ? b : a, out))
            return false;
        return *out || v_equal(in, a, b, out);
    case T_IN:
        return v_contains(in, b, a, out);
    default:
        ok = v_contains(in, b, a, out);
        *out = !*out;
        return ok;
    }
}

static bool eval_compare(Interp *in, const Node *n, Value *out)
{
    Value left, right;
    bool is = true;
    if (!eval(in, n->kid.v[0], &left))
        return false;
    for (size_t i = 1; is && i < n->kid.n; i++, left = right) {
        if (!eval(in, n->kid.v[i], &right))
            return false;
        in->at = n;
        if (!compare(in, n->ops[i - 1], left, right, &is))
            return false;
    }
    *out = v_bool(is);
    return true;
}

/* --- calls ------------------------------------------------------------------------------------------------------ */

static bool eval_args(Interp *in, const Node *n, Args *args)
{
    size_t count = n->kid.n - 1;
    Value *v = count ? in_alloc(in, count, sizeof *v) : NULL;
    *args = (Args){.v = v, .n = count, .n_kw = n->n_kw, .kw = n->kw};
    if (count && !v)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!eval(in, n->kid.v[i + 1], &v[i]))
            return false;
    in->at = n;
    return true;
}

/* Runs body with its output caught. */
static bool capture(Interp *in, const NodeList *body, Scope *scope, JText *out)
{
    Build b, *sink = in->sink;
    Scope *outer = in->scope;
    build_init(&b, in);
    in->sink = &b;
    in->scope = scope;
    bool ok = exec_list(in, body);
    in->scope = outer;
    in->sink = sink;
    *out = build_done(&b);
    return ok;
}

static bool bind_params(Interp *in, const Macro *m, Scope *scope, const Args *args)
{
    const Node *n = m->node;
    size_t n_pos = args->n - args->n_kw, used = 0, n_required = n->n_kw - n->kid.n;
    if (n_pos > n->n_kw)
        return fail(in, "macro '%s' takes %zu arguments, not %zu", n->name, n->n_kw, n_pos);
    for (size_t i = 0; i < n->n_kw; i++) {
        const Value *v = arg_get(args, i, n->kw[i]);
        Value value = v_undefined(n->kw[i]);
        used += v != NULL;
        if (v)
            value = *v;
        else if (i >= n_required && !eval(in, n->kid.v[i - n_required], &value))
            return false;
        if (!bind(in, scope, n->kw[i], value))
            return false;
    }
    return used == args->n || fail(in, "macro '%s' got an argument it does not have, or one twice", n->name);
}

static bool call_macro(Interp *in, const Macro *m, const Args *args, Value caller, Value *out)
{
    JText text;
    Scope *scope = scope_new(in, m->scope), *outer = in->scope;
    if (!scope)
        return false;
    if (caller.kind != V_UNDEFINED && !bind(in, scope, in->t->caller_name, caller))
        return false;
    in->scope = scope; /* defaults may name the parameters before them */
    bool ok = bind_params(in, m, scope, args);
    in->scope = outer;
    return ok && capture(in, &m->node->body, scope, &text) && v_str(in, text, out);
}

static bool call_range(Interp *in, const Args *args, Value *out)
{
    int64_t a[3] = {0, 0, 1};
    if (args->n < 1 || args->n > 3 || args->n_kw)
        return fail(in, "range takes one to three integers");
    for (size_t i = 0; i < args->n; i++) {
        if (args->v[i].kind != V_INT && args->v[i].kind != V_BOOL)
            return fail(in, "range needs integers, not a value of type %s", v_type_name(args->v[i]));
        a[args->n == 1 ? 1 : i] = as_int(args->v[i]);
    }
    if (a[2] == 0)
        return fail(in, "the step of range cannot be 0");
    if (!v_list(in, V_LIST, 0, out))
        return false;
    for (int64_t i = a[0]; a[2] > 0 ? i < a[1] : i > a[1];) {
        if (out->list->n == MAX_RANGE)
            return fail(in, "range has more than %d items", MAX_RANGE);
        if (!list_add(in, out->list, v_int(i)))
            return false;
        if (__builtin_add_overflow(i, a[2], &i))
            break;
    }
    return true;
}

/* dict(a=1) and namespace(a=1); both also take a dictionary. */
static bool call_dict(Interp *in, const Args *args, ValueKind kind, Value *out)
{
    size_t n_pos = args->n - args->n_kw;
    if (n_pos > 1 || (n_pos == 1 && args->v[0].kind != V_DICT))
        return fail(in, "%s takes a dict and named values", kind == V_DICT ? "dict" : "namespace");
    if (!v_dict(in, out))
        return false;
    out->kind = kind;
    for (size_t i = 0; n_pos && i < args->v[0].dict->n; i++)
        if (!dict_set(in, out->dict, args->v[0].dict->key[i], args->v[0].dict->val[i]))
            return false;
    for (size_t i = 0; i < args->n_kw; i++) {
        Value key;
        if (!v_cstr(in, args->kw[i], &key) || !dict_set(in, out->dict, key, args->v[n_pos + i]))
            return false;
    }
    return true;
}

static bool call_raise(Interp *in, const Args *args)
{
    JText text = {.p = "the template raised an exception", .len = 32};
    if (args->n && !v_to_text(in, args->v[0], &text))
        return false;
    return fail(in, "%.*s", (int)(text.len < 400 ? text.len : 400), text.p);
}

static bool call_strftime(Interp *in, const Args *args, Value *out)
{
    char format[256], text[512];
    time_t seconds = (time_t)in->env->time_s;
    struct tm tm;
    if (args->n != 1 || args->v[0].kind != V_STR || args->v[0].s->len >= sizeof format - 1)
        return fail(in, "strftime_now takes one format string");
    /* A space in front, taken off again, tells an empty result from one that does not fit. */
    format[0] = ' ';
    memcpy(format + 1, args->v[0].s->p, args->v[0].s->len);
    format[args->v[0].s->len + 1] = 0;
    if (!gmtime_r(&seconds, &tm) || strftime(text, sizeof text, format, &tm) == 0)
        return fail(in, "strftime_now: the format gives more than %zu bytes", sizeof text - 2);
    char *copy = arena_strdup(in->arena, text + 1);
    return copy ? v_cstr(in, copy, out) : fail_status(in, ST_NOMEM, "out of memory");
}

static bool call_with(Interp *in, Value callee, const Args *args, Value caller, Value *out)
{
    switch (callee.kind) {
    case V_MACRO:
        return call_macro(in, callee.macro, args, caller, out);
    case V_METHOD:
        return method_call(in, callee.method, args, out);
    case V_FUNCTION:
        switch (callee.fn) {
        case FN_RANGE:
            return call_range(in, args, out);
        case FN_DICT:
            return call_dict(in, args, V_DICT, out);
        case FN_NAMESPACE:
            return call_dict(in, args, V_NAMESPACE, out);
        case FN_RAISE:
            return call_raise(in, args);
        case FN_STRFTIME:
            return call_strftime(in, args, out);
        }
        return false;
    case V_UNDEFINED:
        return fail(in, "'%.80s' is undefined, so it cannot be called", callee.name ? callee.name : "the value");
    default:
        return fail(in, "a value of type %s cannot be called", v_type_name(callee));
    }
}

static bool eval_call(Interp *in, const Node *n, Value caller, Value *out)
{
    Value callee;
    Args args;
    return eval(in, n->kid.v[0], &callee) && eval_args(in, n, &args) && call_with(in, callee, &args, caller, out);
}

static bool name_of(Interp *in, Value v, char buf[64])
{
    if (v.kind != V_STR || v.s->len >= 64)
        return fail(in, "the name of a filter or test must be a string");
    memcpy(buf, v.s->p, v.s->len);
    buf[v.s->len] = 0;
    return true;
}

bool apply_filter(Interp *in, Value name, Value self, const Args *args, Value *out)
{
    char buf[64];
    if (!name_of(in, name, buf) || !in_charge(in, 1))
        return false;
    FilterFn fn = jinja_filter_find(buf);
    return fn ? fn(in, in->at, self, args, out) : fail(in, "there is no filter named '%s'", buf);
}

bool apply_test(Interp *in, Value name, Value self, const Args *args, bool *out)
{
    char buf[64];
    if (!name_of(in, name, buf) || !in_charge(in, 1))
        return false;
    TestFn fn = jinja_test_find(buf);
    return fn ? fn(in, in->at, self, args, out) : fail(in, "there is no test named '%s'", buf);
}

/* --- expressions ------------------------------------------------------------------------------------------------ */

static bool eval_items(Interp *in, const Node *n, Value *out)
{
    if (n->kind == N_DICT) {
        if (!v_dict(in, out))
            return false;
        for (size_t i = 0; i < n->kid.n; i += 2) {
            Value key, val;
            if (!eval(in, n->kid.v[i], &key) || !eval(in, n->kid.v[i + 1], &val) || !dict_set(in, out->dict, key, val))
                return false;
        }
        return true;
    }
    if (!v_list(in, n->kind == N_LIST ? V_LIST : V_TUPLE, n->kid.n, out))
        return false;
    for (size_t i = 0; i < n->kid.n; i++) {
        Value item;
        if (!eval(in, n->kid.v[i], &item) || !list_add(in, out->list, item))
            return false;
    }
    return true;
}

static bool eval_sign(Interp *in, const Node *n, Value v, Value *out)
{
    if (v.kind == V_UNDEFINED)
        return fail_undefined(in, v);
    if (!is_number(v))
        return fail(in, "a sign in front of a value of type %s", v_type_name(v));
    if (v.kind == V_FLOAT)
        *out = v_float(n->kind == N_NEG ? -v.f : v.f);
    else
        return int_arithmetic(in, n->kind == N_NEG ? '-' : '+', 0, as_int(v), out);
    return true;
}

static bool eval_node(Interp *in, const Node *n, Value *out)
{
    Node *const *kid = n->kid.v;
    Value a, b;
    Args args;
    bool is;
    switch (n->kind) {
    case N_CONST:
        *out = n->value;
        return true;
    case N_NAME:
        *out = lookup(in, n->name);
        return true;
    case N_CAPTURED:
        *out = in->captured;
        return true;
    case N_LIST:
    case N_TUPLE:
    case N_DICT:
        return eval_items(in, n, out);
    case N_ATTR:
        if (!eval(in, kid[0], &a))
            return false;
        in->at = n;
        return get_attr(in, a, n->name, out);
    case N_ITEM:
        if (!eval(in, kid[0], &a) || !eval(in, kid[1], &b))
            return false;
        in->at = n;
        return get_item(in, a, b, out);
    case N_SLICE:
        return eval_slice(in, n, out);
    case N_CALL:
        return eval_call(in, n, v_undefined("caller"), out);
    case N_FILTER:
        if (!n->filter)
            return fail(in, "there is no filter named '%.60s'", n->name);
        return eval(in, kid[0], &a) && eval_args(in, n, &args) && n->filter(in, n, a, &args, out);
    case N_TEST:
        if (!n->test)
            return fail(in, "there is no test named '%.60s'", n->name);
        if (!eval(in, kid[0], &a) || !eval_args(in, n, &args) || !n->test(in, n, a, &args, &is))
            return false;
        *out = v_bool(is != n->negated);
        return true;
    case N_NOT:
        if (!eval(in, kid[0], &a))
            return false;
        *out = v_bool(!v_truth(a));
        return true;
    case N_NEG:
    case N_POS:
        if (!eval(in, kid[0], &a))
            return false;
        in->at = n;
        return eval_sign(in, n, a, out);
    case N_BINARY:
        if (!eval(in, kid[0], &a) || !eval(in, kid[1], &b))
            return false;
        in->at = n;
        return binary(in, n->op, a, b, out);
    case N_AND:
    case N_OR:
        for (size_t i = 0; i < n->kid.n; i++) {
            if (!eval(in, kid[i], out))
                return false;
            if (v_truth(*out) == (n->kind == N_OR))
                break;
        }
        return true;
    case N_COMPARE:
        return eval_compare(in, n, out);
    case N_CONCAT: {
        Build text;
        build_init(&text, in);
        for (size_t i = 0; i < n->kid.n; i++)
            if (!eval(in, kid[i], &a) || !build_value(&text, a))
                return false;
        return v_str(in, build_done(&text), out);
    }
    case N_COND:
        if (!eval(in, kid[1], &a))
            return false;
        *out = v_undefined("the value of an if without else");
        return v_truth(a) ? eval(in, kid[0], out) : !kid[2] || eval(in, kid[2], out);
    default:
        return fail(in, "a statement stands where a value belongs");
    }
}

static bool eval(Interp *in, const Node *n, Value *out)
{
    in->at = n;
    if (in->depth >= MAX_DEPTH)
        return fail_status(in, ST_BUSY, "calls nest deeper than %d levels", MAX_DEPTH);
    if (!in_charge(in, 1))
        return false;
    in->depth++;
    bool ok = eval_node(in, n, out);
    in->depth--;
    return ok;
}

/* --- statements ------------------------------------------------------------------------------------------------- */

/* The items whose condition holds. */
static bool filter_items(Interp *in, const Node *n, const JList *all, const JList **out)
{
    Value kept, is;
    Scope *outer = in->scope;
    if (!v_list(in, V_LIST, 0, &kept))
        return false;
    for (size_t i = 0; i < all->n; i++) {
        Scope *scope = scope_new(in, outer);
        if (!scope)
            return false;
        in->scope = scope;
        bool ok = assign(in, n->kid.v[0], all->v[i]) && eval(in, n->kid.v[2], &is);
        in->scope = outer;
        if (!ok || (v_truth(is) && !list_add(in, kept.list, all->v[i])))
            return false;
    }
    *out = kept.list;
    return true;
}

static bool exec_for(Interp *in, const Node *n)
{
    Value iterated;
    Scope *outer = in->scope;
    const JList *items;
    bool ok = eval(in, n->kid.v[1], &iterated);
    in->at = n;
    if (!ok || !v_iterate(in, iterated, &items) || (n->kid.v[2] && !filter_items(in, n, items, &items)))
        return false;
    if (items->n == 0) {
        Scope *scope = scope_new(in, outer);
        if (!scope)
            return false;
        in->scope = scope;
        ok = exec_list(in, &n->orelse);
        in->scope = outer;
        return ok;
    }
    Loop *loop = in_alloc(in, 1, sizeof *loop);
    if (!loop)
        return false;
    *loop = (Loop){.items = items, .depth = ++in->loop_depth};
    for (; ok && loop->i < items->n; loop->i++) {
        in->scope = scope_new(in, outer);
        ok = in->scope && bind(in, in->scope, in->t->loop_name, (Value){.kind = V_LOOP, .loop = loop}) &&
             assign(in, n->kid.v[0], items->v[loop->i]) && exec_list(in, &n->body);
        bool stop = in->flow == FLOW_BREAK;
        in->flow = FLOW_NORMAL;
        if (stop)
            break;
    }
    in->loop_depth--;
    in->scope = outer;
    return ok;
}

static bool exec_if(Interp *in, const Node *n)
{
    for (size_t i = 0; i < n->body.n; i++) {
        const Node *arm = n->body.v[i];
        Value is = v_bool(true);
        if (arm->kid.v[0] && !eval(in, arm->kid.v[0], &is))
            return false;
        if (v_truth(is))
            return exec_list(in, &arm->body);
    }
    return true;
}

/* Evaluates an expression built on N_CAPTURED over the output of body. */
static bool eval_captured(Interp *in, const NodeList *body, const Node *expr, Value *out)
{
    JText text;
    Value outer = in->captured;
    Scope *scope = scope_new(in, in->scope);
    if (!scope || !capture(in, body, scope, &text) || !v_str(in, text, &in->captured))
        return false;
    bool ok = eval(in, expr, out);
    in->captured = outer;
    return ok;
}

static bool define_macro(Interp *in, const Node *n, Value *out)
{
    Macro *m = in_alloc(in, 1, sizeof *m);
    if (!m)
        return false;
    *m = (Macro){.node = n, .scope = in->scope};
    *out = (Value){.kind = V_MACRO, .macro = m};
    return true;
}

static bool exec_with(Interp *in, const Node *n)
{
    Scope *outer = in->scope, *scope = scope_new(in, outer);
    bool ok = scope != NULL;
    for (size_t i = 0; ok && i < n->kid.n; i += 2) {
        Value v;
        ok = eval(in, n->kid.v[i + 1], &v); /* values see the scope outside */
        in->scope = scope;
        ok = ok && assign(in, n->kid.v[i], v);
        in->scope = outer;
    }
    in->scope = scope;
    ok = ok && exec_list(in, &n->body);
    in->scope = outer;
    return ok;
}

static bool exec(Interp *in, const Node *n)
{
    Value v;
    in->at = n;
    switch (n->kind) {
    case N_TEXT:
        return build_text(in->sink, *n->value.s);
    case N_OUTPUT:
        if (!eval(in, n->kid.v[0], &v))
            return false;
        in->at = n;
        return build_value(in->sink, v);
    case N_FOR:
        return exec_for(in, n);
    case N_IF:
        return exec_if(in, n);
    case N_SET:
        return (n->negated ? eval_captured(in, &n->body, n->kid.v[1], &v) : eval(in, n->kid.v[1], &v)) &&
               assign(in, n->kid.v[0], v);
    case N_MACRO:
        return define_macro(in, n, &v) && bind(in, in->scope, n->name, v);
    case N_CALL_BLOCK: {
        Value caller;
        return define_macro(in, n->body.v[0], &caller) && eval_call(in, n->kid.v[0], caller, &v) &&
               build_value(in->sink, v);
    }
    case N_FILTER_BLOCK:
        return eval_captured(in, &n->body, n->kid.v[0], &v) && build_value(in->sink, v);
    case N_WITH:
        return exec_with(in, n);
    case N_SCOPE:
        return exec_list(in, &n->body);
    case N_BREAK:
        in->flow = FLOW_BREAK;
        return true;
    case N_CONTINUE:
        in->flow = FLOW_CONTINUE;
        return true;
    default:
        return fail(in, "a value stands where a statement belongs");
    }
}

static bool exec_list(Interp *in, const NodeList *body)
{
    if (in->depth >= MAX_DEPTH)
        return fail_status(in, ST_BUSY, "calls nest deeper than %d levels", MAX_DEPTH);
    in->depth++;
    bool ok = true;
    for (size_t i = 0; ok && i < body->n && in->flow == FLOW_NORMAL; i++)
        ok = in_charge(in, 1) && exec(in, body->v[i]);
    in->depth--;
    return ok;
}

/* --- front ------------------------------------------------------------------------------------------------------ */

static Status deliver(const Build *b, Str *out, TextSpans *user, const char *name, Err *err)
{
    size_t base = out->len, n_spans = user ? user->n : 0;
    str_add(out, b->p, b->len);
    bool ok = str_ok(out);
    for (size_t i = 0; ok && user && b->mark && i < b->len;) {
        size_t end = i;
        while (end < b->len && b->mark[end] == b->mark[i])
            end++;
        if (b->mark[i])
            ok = text_spans_add(user, base + i, base + end);
        i = end;
    }
    if (ok)
        return ST_OK;
    if (user)
        user->n = n_spans;
    if (str_ok(out) && out->p) {
        out->len = base;
        out->p[base] = 0;
    }
    return err_set(err, ST_NOMEM, "%s: out of memory", name);
}

Status jinja_render(const Jinja *t, const JinjaEnv *env, Str *out, TextSpans *user, Err *err)
{
    Status st = ST_OK;
    Build sink;
    Interp in = {
        .t = t,
        .env = env,
        .err = err,
        .steps_left = env->limits.steps ? env->limits.steps : 20u * 1000 * 1000,
        .bytes_left = env->limits.bytes ? env->limits.bytes : (size_t)512 << 20,
        .max_output = env->limits.output ? env->limits.output : (size_t)64 << 20,
        .sink = &sink,
        .captured = v_undefined(NULL),
    };
    in.arena = arena_new();
    if (!in.arena)
        return err_set(err, ST_NOMEM, "%s: out of memory", t->name);
    build_init(&sink, &in);
    in.scope = scope_new(&in, NULL);
    in.var = in.scope ? in_alloc(&in, env->n_vars + 1, sizeof *in.var) : NULL;
    if (!in.var)
        TRY(in.st);
    for (size_t i = 0; i < env->n_vars; i++)
        if (env->vars[i].value && !v_from_json(&in, env->vars[i].value, env->vars[i].user, &in.var[i]))
            TRY(in.st);
    if (!exec_list(&in, &t->body))
        TRY(in.st);
    TRY(deliver(&sink, out, user, t->name, err));
done:
    arena_free(in.arena);
    return st;
}
