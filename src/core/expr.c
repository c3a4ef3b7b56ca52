/* expr.c - expressions compiled to postfix code once, run many times.
 *
 *   expression = sum [ ("==" | "!=" | "<" | "<=" | ">" | ">=") sum ]      comparisons do not chain
 *   sum        = product { ("+" | "-") product }
 *   product    = primary { ("*" | "/") primary }
 *   primary    = integer | name | "(" expression ")" | function "(" expression { "," expression } ")"
 *   name       = letters, digits, "_" and inner dots; a letter or "_" comes first
 *   function   = "ceil" (two arguments) | "min" | "max" (one or more)
 *
 * The parser descends recursively, EXPR_DEPTH_MAX parentheses deep at most; the code it writes is run by a loop over
 * a small stack. A text of EXPR_LENGTH_MAX bytes cannot hold more operands than half of that, which bounds both the
 * stack and the code. All arithmetic is checked 64-bit; division rounds toward minus infinity. */
#include "core/expr.h"
#include <string.h>

#define EXPR_LENGTH_MAX   1024
#define EXPR_DEPTH_MAX    64
#define EXPR_OPERANDS_MAX (EXPR_LENGTH_MAX / 2 + 1)

typedef enum {
    OP_CONST, /* push value */
    OP_NAME,  /* push the value of names[value] */
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_CEIL,
    OP_MIN,
    OP_MAX,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
} OpCode;

typedef struct Op {
    OpCode code;
    int64_t value;
} Op;

struct Expr {
    const char *text;
    const Op *ops;
    size_t n_ops;
    const char *const *names; /* each once, in order of appearance */
    size_t n_names;
};

typedef struct Parser {
    const char *text, *at;
    Arena *arena;
    unsigned depth;
    size_t n_ops, n_names;
    Op ops[2 * EXPR_OPERANDS_MAX]; /* operands and the operators between them */
    const char *names[EXPR_OPERANDS_MAX];
    Err *err;
} Parser;

static Status parse_expression(Parser *p);

/* The one form of a syntax error: the text, the column of p->at, what is wrong there. */
static Status parse_fail(const Parser *p, const char *what)
{
    return err_set(p->err, ST_FORMAT, "expression '%.200s', column %zu: %s", p->text, (size_t)(p->at - p->text) + 1,
                   what);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}
static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name_byte(char c)
{
    return is_name_start(c) || is_digit(c);
}

static void skip_space(Parser *p)
{
    p->at += strspn(p->at, " \t\r\n");
}

/* Takes token when it comes next. */
static bool take(Parser *p, const char *token)
{
    size_t n = strlen(token);

    skip_space(p);
    if (strncmp(p->at, token, n) != 0)
        return false;
    p->at += n;
    return true;
}

static void emit(Parser *p, OpCode code, int64_t value)
{
    p->ops[p->n_ops++] = (Op){code, value};
}

static Status parse_integer(Parser *p)
{
    const char *start = p->at;
    int64_t v = 0;

    for (; is_digit(*p->at); p->at++) {
        if (__builtin_mul_overflow(v, (int64_t)10, &v) || __builtin_add_overflow(v, (int64_t)(*p->at - '0'), &v)) {
            p->at = start;
            return parse_fail(p, "the number does not fit in 64 bits");
        }
    }
    if (is_name_start(*p->at))
        return parse_fail(p, "a letter follows a number directly; write an operator between them");
    emit(p, OP_CONST, v);
    return ST_OK;
}

static Status parse_call(Parser *p, const char *name, size_t len)
{
    static const struct {
        const char *name;
        OpCode code;
        unsigned args; /* exactly; 0: one or more, folded pairwise */
    } functions[] = {{"ceil", OP_CEIL, 2}, {"min", OP_MIN, 0}, {"max", OP_MAX, 0}};
    unsigned n = 0, f = 0;

    while (f < 3 && (strlen(functions[f].name) != len || strncmp(functions[f].name, name, len) != 0))
        f++;
    if (f == 3) {
        p->at = name;
        return parse_fail(p, "unknown function; there are ceil(a, b), min(a, ...) and max(a, ...)");
    }
    do {
        Status st = parse_expression(p);
        if (st != ST_OK)
            return st;
        if (++n > 1)
            emit(p, functions[f].code, 0);
    } while (take(p, ","));
    if (!take(p, ")"))
        return parse_fail(p, "expected ',' or ')' in a list of arguments");
    if (functions[f].args != 0 && n != functions[f].args) {
        p->at = name;
        return parse_fail(p, "ceil takes two arguments: ceil(a, b) is a / b rounded up");
    }
    return ST_OK;
}

static Status parse_name(Parser *p)
{
    const char *start = p->at;
    size_t len = 0, i = 0;

    /* A dot joins a name and a part of it: "gate.n" is a value of a named node. */
    while (is_name_byte(start[len]) || (start[len] == '.' && is_name_byte(start[len + 1])))
        len++;
    p->at += len;
    if (take(p, "("))
        return parse_call(p, start, len);

    while (i < p->n_names && (strlen(p->names[i]) != len || memcmp(p->names[i], start, len) != 0))
        i++;
    if (i == p->n_names) {
        p->names[i] = arena_strndup(p->arena, start, len);
        if (p->names[i] == NULL)
            return err_set(p->err, ST_NOMEM, "expression '%.200s': out of memory", p->text);
        p->n_names++;
    }
    emit(p, OP_NAME, (int64_t)i);
    return ST_OK;
}

static Status parse_primary(Parser *p)
{
    Status st;

    skip_space(p);
    if (is_digit(*p->at))
        return parse_integer(p);
    if (is_name_start(*p->at))
        return parse_name(p);
    if (!take(p, "("))
        return parse_fail(p, "expected a number, a name or '('");
    st = parse_expression(p);
    if (st == ST_OK && !take(p, ")"))
        st = parse_fail(p, "expected ')'");
    return st;
}

static Status parse_product(Parser *p)
{
    Status st = parse_primary(p);

    while (st == ST_OK) {
        OpCode code;
        if (take(p, "*"))
            code = OP_MUL;
        else if (take(p, "/"))
            code = OP_DIV;
        else
            break;
        st = parse_primary(p);
        if (st == ST_OK)
            emit(p, code, 0);
    }
    return st;
}

static Status parse_sum(Parser *p)
{
    Status st = parse_product(p);

    while (st == ST_OK) {
        OpCode code;
        if (take(p, "+"))
            code = OP_ADD;
        else if (take(p, "-"))
            code = OP_SUB;
        else
            break;
        st = parse_product(p);
        if (st == ST_OK)
            emit(p, code, 0);
    }
    return st;
}

static bool take_comparison(Parser *p, OpCode *code)
{
    /* The two-byte signs first: "<" begins "<=". */
    static const struct {
        const char *sign;
        OpCode code;
    } signs[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE}, {">=", OP_GE}, {"<", OP_LT}, {">", OP_GT}};

    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        if (take(p, signs[i].sign)) {
            *code = signs[i].code;
            return true;
        }
    }
    return false;
}

/* Every recursion passes here, so this is where depth is counted. */
static Status parse_expression(Parser *p)
{
    OpCode code;
    Status st;

    if (p->depth == EXPR_DEPTH_MAX)
        return parse_fail(p, "nested too deeply; write fewer parentheses");
    p->depth++;
    st = parse_sum(p);
    if (st == ST_OK && take_comparison(p, &code)) {
        st = parse_sum(p);
        if (st == ST_OK)
            emit(p, code, 0);
    }
    p->depth--;
    return st;
}

Status expr_parse(const char *text, Arena *a, Expr **out, Err *err)
{
    Parser p = {.text = text, .at = text, .arena = a, .err = err};
    const char **names;
    Status st;
    Expr *e;
    Op *ops;

    if (strnlen(text, EXPR_LENGTH_MAX + 1) > EXPR_LENGTH_MAX)
        return err_set(err, ST_FORMAT, "expression '%.60s...' is longer than %d bytes", text, EXPR_LENGTH_MAX);
    st = parse_expression(&p);
    if (st != ST_OK)
        return st;
    skip_space(&p);
    if (*p.at != '\0')
        return parse_fail(&p, "expected an operator or the end");

    e = ARENA_NEW(a, Expr);
    ops = ARENA_ARRAY(a, Op, p.n_ops);
    names = ARENA_ARRAY(a, const char *, p.n_names);
    text = arena_strdup(a, text);
    if (e == NULL || ops == NULL || names == NULL || text == NULL)
        return err_set(err, ST_NOMEM, "expression '%.200s': out of memory", p.text);
    memcpy(ops, p.ops, p.n_ops * sizeof *ops);
    memcpy(names, p.names, p.n_names * sizeof *names);
    *e = (Expr){.text = text, .ops = ops, .n_ops = p.n_ops, .names = names, .n_names = p.n_names};
    *out = e;
    return ST_OK;
}

/* a / b rounded toward minus infinity, or toward plus infinity when up; b is not 0 and the quotient fits. */
static int64_t divide(int64_t a, int64_t b, bool up)
{
    int64_t q = a / b;
    bool inexact = a % b != 0, negative = (a < 0) != (b < 0);

    if (inexact && up && !negative)
        q++;
    if (inexact && !up && negative)
        q--;
    return q;
}

/* a OP b into *r; NULL or what went wrong. */
static const char *apply(OpCode code, int64_t a, int64_t b, int64_t *r)
{
    bool overflow = false;

    switch (code) {
    case OP_ADD:
        overflow = __builtin_add_overflow(a, b, r);
        break;
    case OP_SUB:
        overflow = __builtin_sub_overflow(a, b, r);
        break;
    case OP_MUL:
        overflow = __builtin_mul_overflow(a, b, r);
        break;
    case OP_DIV:
    case OP_CEIL:
        if (b == 0)
            return "division by zero";
        overflow = a == INT64_MIN && b == -1;
        if (!overflow)
            *r = divide(a, b, code == OP_CEIL);
        break;
    case OP_MIN:
        *r = a < b ? a : b;
        break;
    case OP_MAX:
        *r = a > b ? a : b;
        break;
    case OP_EQ:
        *r = a == b;
        break;
    case OP_NE:
        *r = a != b;
        break;
    case OP_LT:
        *r = a < b;
        break;
    case OP_LE:
        *r = a <= b;
        break;
    case OP_GT:
        *r = a > b;
        break;
    case OP_GE:
        *r = a >= b;
        break;
    case OP_CONST:
    case OP_NAME:
        return "broken code";
    }
    return overflow ? "the result does not fit in 64 bits" : NULL;
}

Status expr_eval(const Expr *e, ExprLookup lookup, void *ctx, int64_t *out, Err *err)
{
    int64_t stack[EXPR_OPERANDS_MAX];
    size_t top = 0;

    for (size_t i = 0; i < e->n_ops; i++) {
        const Op *op = &e->ops[i];
        const char *wrong;

        if (op->code == OP_CONST) {
            stack[top++] = op->value;
        } else if (op->code == OP_NAME) {
            const char *name = e->names[op->value];
            if (lookup == NULL || !lookup(ctx, name, &stack[top]))
                return err_set(err, ST_NOTFOUND, "expression '%.200s': the name '%.100s' is not known here", e->text,
                               name);
            top++;
        } else {
            top--;
            wrong = apply(op->code, stack[top - 1], stack[top], &stack[top - 1]);
            if (wrong != NULL)
                return err_set(err, ST_INVALID, "expression '%.200s': %s", e->text, wrong);
        }
    }
    *out = stack[0];
    return ST_OK;
}

void expr_names(const Expr *e, void (*seen)(void *ctx, const char *name), void *ctx)
{
    for (size_t i = 0; i < e->n_names; i++)
        seen(ctx, e->names[i]);
}

const char *expr_text(const Expr *e)
{
    return e->text;
}
