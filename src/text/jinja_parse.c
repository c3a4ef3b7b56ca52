/* jinja_parse.c - tokens to syntax tree, by recursive descent in Jinja's own order of precedence:
 *   x if c else y  <  or  <  and  <  not  <  comparisons, in  <  + -  <  ~  <  * / // %  <  **  <  unary + -  <
 *   . [] ()  <  filters and tests
 *
 * Invariants: names are interned, so the interpreter compares them by address; the depth of every node is bounded, so
 * that evaluation cannot exhaust the stack; every filter and test name has been resolved. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/utf8.h"
#include "text/jinja_internal.h"

enum { MAX_TREE_DEPTH = 200, MAX_NESTING = 120, MAX_SOURCE = 4 << 20, MAX_NODES = 1 << 20 };

typedef struct Parser {
    Jinja *t;
    Arena *arena;
    TokenArray tokens;
    size_t at;
    unsigned nesting, in_loop;
    unsigned in_if; /* as in Jinja, an unknown filter or test in a branch fails only when it is reached */
    size_t n_nodes;
    const char **name; /* open addressing; interned */
    size_t n_names, name_mask;
    Err *err;
    Status st;
} Parser;

static const Token *peek(const Parser *p)
{
    return &p->tokens.v[p->at];
}

static bool failed_at(Parser *p, size_t pos, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool failed_at(Parser *p, size_t pos, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->st = jinja_error(p->t, pos, ST_FORMAT, p->err, "%s", text);
    return false;
}

static bool out_of_memory(Parser *p)
{
    p->st = err_set(p->err, ST_NOMEM, "%s: out of memory", p->t->name);
    return false;
}

static const char *token_text(const Token *k, char buf[64])
{
    static const char *const names[] = {"the end of the template",
                                        "text",
                                        "{%",
                                        "%}",
                                        "{{",
                                        "}}",
                                        "",
                                        "a string",
                                        "a number",
                                        "a number",
                                        "==",
                                        "!=",
                                        "<=",
                                        ">=",
                                        "**",
                                        "//"};
    if (k->kind == T_NAME)
        snprintf(buf, 64, "'%.50s'", k->text);
    else if (k->kind < T_IN)
        snprintf(buf, 64, "%s", names[k->kind]);
    else
        snprintf(buf, 64, "'%c'", (char)k->kind);
    return buf;
}

static bool unexpected(Parser *p, const char *wanted)
{
    char buf[64];
    return failed_at(p, peek(p)->pos, "expected %s, found %s", wanted, token_text(peek(p), buf));
}

static bool take(Parser *p, int kind)
{
    if (peek(p)->kind != kind)
        return false;
    p->at++;
    return true;
}

static bool is_word(const Parser *p, const char *word)
{
    return peek(p)->kind == T_NAME && strcmp(peek(p)->text, word) == 0;
}

static bool take_word(Parser *p, const char *word)
{
    if (!is_word(p, word))
        return false;
    p->at++;
    return true;
}

static bool need(Parser *p, int kind, const char *what)
{
    return take(p, kind) || unexpected(p, what);
}

static const char *intern(Parser *p, const char *name)
{
    if ((p->n_names + 1) * 2 > p->name_mask + 1 || !p->name) {
        size_t n = p->name ? (p->name_mask + 1) * 2 : 64;
        const char **grown = ARENA_ARRAY(p->arena, const char *, n);
        if (!grown) {
            out_of_memory(p);
            return NULL;
        }
        for (size_t i = 0; p->name && i <= p->name_mask; i++) {
            if (!p->name[i])
                continue;
            size_t h = 5381;
            for (const char *c = p->name[i]; *c; c++)
                h = h * 33 + (unsigned char)*c;
            while (grown[h & (n - 1)])
                h++;
            grown[h & (n - 1)] = p->name[i];
        }
        p->name = grown;
        p->name_mask = n - 1;
    }
    size_t h = 5381;
    for (const char *c = name; *c; c++)
        h = h * 33 + (unsigned char)*c;
    while (p->name[h & p->name_mask]) {
        if (strcmp(p->name[h & p->name_mask], name) == 0)
            return p->name[h & p->name_mask];
        h++;
    }
    const char *copy = arena_strdup(p->arena, name);
    if (!copy) {
        out_of_memory(p);
        return NULL;
    }
    p->name[h & p->name_mask] = copy;
    p->n_names++;
    return copy;
}

/* --- nodes ------------------------------------------------------------------------------------------------------ */

static Node *node_new(Parser *p, NodeKind kind, size_t pos)
{
    if (++p->n_nodes > MAX_NODES) {
        failed_at(p, pos, "the template has more than %d parts", MAX_NODES);
        return NULL;
    }
    Node *n = ARENA_NEW(p->arena, Node);
    if (!n) {
        out_of_memory(p);
        return NULL;
    }
    n->kind = kind;
    n->pos = (uint32_t)pos;
    n->depth = 1;
    return n;
}

static bool list_push(Parser *p, NodeList *l, Node *n)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        Node **grown = ARENA_ARRAY(p->arena, Node *, cap);
        if (!grown)
            return out_of_memory(p);
        if (l->n)
            memcpy(grown, l->v, l->n * sizeof *grown);
        l->v = grown;
        l->cap = cap;
    }
    l->v[l->n++] = n;
    return true;
}

/* Adds kid (NULL stands for an absent part) to one of parent's lists and keeps the depth. */
static bool adopt(Parser *p, Node *parent, NodeList *list, Node *kid)
{
    if (kid && kid->depth >= parent->depth)
        parent->depth = (uint16_t)(kid->depth + 1);
    if (parent->depth > MAX_TREE_DEPTH)
        return failed_at(p, parent->pos, "the template nests deeper than %d levels", MAX_TREE_DEPTH);
    return list_push(p, list, kid);
}

static Node *node1(Parser *p, NodeKind kind, size_t pos, Node *a)
{
    Node *n = a ? node_new(p, kind, pos) : NULL;
    return n && adopt(p, n, &n->kid, a) ? n : NULL;
}

static Node *node2(Parser *p, NodeKind kind, size_t pos, Node *a, Node *b)
{
    Node *n = a && b ? node1(p, kind, pos, a) : NULL;
    return n && adopt(p, n, &n->kid, b) ? n : NULL;
}

static Node *const_text(Parser *p, NodeKind kind, size_t pos, const char *text, size_t len)
{
    Node *n = node_new(p, kind, pos);
    JText *s = n ? ARENA_NEW(p->arena, JText) : NULL;
    if (!s) {
        if (n)
            out_of_memory(p);
        return NULL;
    }
    *s = (JText){.p = text, .len = len};
    n->value = (Value){.kind = V_STR, .s = s};
    return n;
}

/* --- expressions ------------------------------------------------------------------------------------------------ */

static Node *parse_expr(Parser *p);
static Node *parse_unary(Parser *p, bool with_filters);
static Node *parse_primary(Parser *p);
static Node *parse_postfix(Parser *p, Node *n);

/* The arguments behind an opening parenthesis, into n->kid and n->kw. */
static bool parse_args(Parser *p, Node *n)
{
    const char *kw[64];
    while (!take(p, ')')) {
        const Token *k = peek(p);
        if (k->kind == '*' || k->kind == T_POW)
            return failed_at(p, k->pos, "arguments spread by * are not supported");
        bool named = k->kind == T_NAME && p->tokens.v[p->at + 1].kind == '=';
        if (named) {
            if (n->n_kw == 64)
                return failed_at(p, k->pos, "more than 64 named arguments");
            kw[n->n_kw] = intern(p, k->text);
            if (!kw[n->n_kw])
                return false;
            n->n_kw++;
            p->at += 2;
        } else if (n->n_kw) {
            return failed_at(p, k->pos, "an argument without a name follows one with a name");
        }
        Node *arg = parse_expr(p);
        if (!arg || !adopt(p, n, &n->kid, arg))
            return false;
        if (peek(p)->kind == ')')
            continue;
        if (!need(p, ',', "',' or ')'"))
            return false;
    }
    if (n->n_kw) {
        n->kw = ARENA_ARRAY(p->arena, const char *, n->n_kw);
        if (!n->kw)
            return out_of_memory(p);
        memcpy(n->kw, kw, n->n_kw * sizeof *kw);
    }
    return true;
}

/* Items up to `close`; a comma may follow the last one. */
static bool parse_items(Parser *p, Node *n, int close, const char *close_text)
{
    while (!take(p, close)) {
        Node *item = parse_expr(p);
        if (!item || !adopt(p, n, &n->kid, item))
            return false;
        if (n->kind == N_DICT) {
            if (!need(p, ':', "':'"))
                return false;
            item = parse_expr(p);
            if (!item || !adopt(p, n, &n->kid, item))
                return false;
        }
        if (peek(p)->kind != close && !need(p, ',', close_text))
            return false;
    }
    return true;
}

static Node *parse_paren(Parser *p, size_t pos)
{
    if (take(p, ')'))
        return node_new(p, N_TUPLE, pos);
    Node *first = parse_expr(p);
    if (!first)
        return NULL;
    if (take(p, ')'))
        return first;
    Node *tuple = node1(p, N_TUPLE, pos, first);
    if (!tuple || !need(p, ',', "',' or ')'"))
        return NULL;
    return parse_items(p, tuple, ')', "',' or ')'") ? tuple : NULL;
}

static Node *parse_string(Parser *p)
{
    const Token *k = peek(p);
    size_t pos = k->pos, len = 0, first = p->at;
    while (take(p, T_STRING))
        len += p->tokens.v[p->at - 1].len;
    if (p->at == first + 1)
        return const_text(p, N_CONST, pos, k->text, k->len);
    char *joined = ARENA_ARRAY(p->arena, char, len + 1);
    if (!joined) {
        out_of_memory(p);
        return NULL;
    }
    size_t at = 0;
    for (size_t i = first; i < p->at; i++) {
        memcpy(joined + at, p->tokens.v[i].text, p->tokens.v[i].len);
        at += p->tokens.v[i].len;
    }
    return const_text(p, N_CONST, pos, joined, len);
}

static Node *parse_name(Parser *p)
{
    static const struct {
        const char *word;
        ValueKind kind;
        bool b;
    } constants[] = {{"true", V_BOOL, true},   {"True", V_BOOL, true},  {"false", V_BOOL, false},
                     {"False", V_BOOL, false}, {"none", V_NONE, false}, {"None", V_NONE, false}};
    static const char *const reserved[] = {"and", "or", "not", "in", "is", "if", "else"};
    const Token *k = peek(p);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(k->text, reserved[i]) == 0) {
            unexpected(p, "a value");
            return NULL;
        }
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (strcmp(k->text, constants[i].word) == 0) {
            Node *n = node_new(p, N_CONST, k->pos);
            if (n)
                n->value = (Value){.kind = constants[i].kind, .b = constants[i].b};
            p->at++;
            return n;
        }
    Node *n = node_new(p, N_NAME, k->pos);
    if (!n || !(n->name = intern(p, k->text)))
        return NULL;
    p->at++;
    return n;
}

static Node *parse_primary(Parser *p)
{
    const Token *k = peek(p);
    Node *n;
    switch (k->kind) {
    case T_NAME:
        return parse_name(p);
    case T_STRING:
        return parse_string(p);
    case T_INT:
    case T_FLOAT:
        n = node_new(p, N_CONST, k->pos);
        if (n)
            n->value = k->kind == T_INT ? v_int(k->i) : v_float(k->f);
        p->at++;
        return n;
    case '(':
        p->at++;
        return parse_paren(p, k->pos);
    case '[':
        p->at++;
        n = node_new(p, N_LIST, k->pos);
        return n && parse_items(p, n, ']', "',' or ']'") ? n : NULL;
    case '{':
        p->at++;
        n = node_new(p, N_DICT, k->pos);
        return n && parse_items(p, n, '}', "',' or '}'") ? n : NULL;
    default:
        unexpected(p, "a value");
        return NULL;
    }
}

/* Behind '[': an index or a slice. */
static Node *parse_subscript(Parser *p, Node *self, size_t pos)
{
    Node *part[3] = {NULL, NULL, NULL};
    int colons = 0;
    while (peek(p)->kind != ']') {
        if (peek(p)->kind == ':') {
            if (++colons > 2) {
                unexpected(p, "']'");
                return NULL;
            }
            p->at++;
            continue;
        }
        if (part[colons]) {
            unexpected(p, "':' or ']'");
            return NULL;
        }
        part[colons] = parse_expr(p);
        if (!part[colons])
            return NULL;
    }
    p->at++;
    if (!colons) {
        if (!part[0]) {
            failed_at(p, pos, "an index is missing between [ and ]");
            return NULL;
        }
        return node2(p, N_ITEM, pos, self, part[0]);
    }
    Node *n = node1(p, N_SLICE, pos, self);
    for (int i = 0; n && i < 3; i++)
        if (!adopt(p, n, &n->kid, part[i]))
            return NULL;
    return n;
}

static Node *parse_postfix(Parser *p, Node *n)
{
    while (n) {
        const Token *k = peek(p);
        if (take(p, '.')) {
            const Token *name = peek(p);
            if (name->kind == T_INT) { /* x.0 is x[0] */
                Node *index = node_new(p, N_CONST, name->pos);
                if (index)
                    index->value = v_int(name->i);
                n = node2(p, N_ITEM, k->pos, n, index);
            } else if (name->kind == T_NAME) {
                n = node1(p, N_ATTR, k->pos, n);
                if (n && !(n->name = intern(p, name->text)))
                    return NULL;
            } else {
                unexpected(p, "a name behind '.'");
                return NULL;
            }
            p->at++;
        } else if (take(p, '[')) {
            n = parse_subscript(p, n, k->pos);
        } else if (take(p, '(')) {
            n = node1(p, N_CALL, k->pos, n);
            if (n && !parse_args(p, n))
                return NULL;
        } else {
            break;
        }
    }
    return n;
}

/* "name" or "name(args)" behind '|'. */
static Node *parse_filter(Parser *p, Node *self)
{
    const Token *k = peek(p);
    if (k->kind != T_NAME) {
        unexpected(p, "the name of a filter");
        return NULL;
    }
    Node *n = node1(p, N_FILTER, k->pos, self);
    if (!n || !(n->name = intern(p, k->text)))
        return NULL;
    n->filter = jinja_filter_find(k->text);
    if (!n->filter && !p->in_if) {
        failed_at(p, k->pos, "there is no filter named '%.60s'", k->text);
        return NULL;
    }
    p->at++;
    return !take(p, '(') || parse_args(p, n) ? n : NULL;
}

/* Behind "is". */
static Node *parse_test(Parser *p, Node *self, size_t pos)
{
    bool negated = take_word(p, "not");
    const Token *k = peek(p);
    if (k->kind != T_NAME) {
        unexpected(p, "the name of a test");
        return NULL;
    }
    Node *n = node1(p, N_TEST, pos, self);
    if (!n || !(n->name = intern(p, k->text)))
        return NULL;
    n->test = jinja_test_find(k->text);
    n->negated = negated;
    if (!n->test && !p->in_if) {
        failed_at(p, k->pos, "there is no test named '%.60s'", k->text);
        return NULL;
    }
    p->at++;
    if (take(p, '('))
        return parse_args(p, n) ? n : NULL;
    int next = peek(p)->kind;
    bool starts_value = next == T_STRING || next == T_INT || next == T_FLOAT || next == '[' || next == '{' ||
                        (next == T_NAME && !is_word(p, "else") && !is_word(p, "or") && !is_word(p, "and") &&
                         !is_word(p, "is") && !is_word(p, "if") && !is_word(p, "in") && !is_word(p, "not"));
    if (starts_value) { /* "is divisibleby 3" */
        Node *arg = parse_postfix(p, parse_primary(p));
        if (!arg || !adopt(p, n, &n->kid, arg))
            return NULL;
    }
    return n;
}

static Node *parse_filters(Parser *p, Node *n)
{
    while (n) {
        size_t pos = peek(p)->pos;
        if (take(p, '|'))
            n = parse_filter(p, n);
        else if (take_word(p, "is"))
            n = parse_test(p, n, pos);
        else if (take(p, '(')) { /* the result of a filter, called */
            n = node1(p, N_CALL, pos, n);
            if (n && !parse_args(p, n))
                return NULL;
        } else
            break;
    }
    return n;
}

static Node *parse_unary(Parser *p, bool with_filters)
{
    const Token *k = peek(p);
    Node *n;
    if (++p->nesting > MAX_NESTING) {
        failed_at(p, k->pos, "the expression nests too deeply");
        return NULL;
    }
    if (take(p, '-'))
        n = node1(p, N_NEG, k->pos, parse_unary(p, false));
    else if (take(p, '+'))
        n = node1(p, N_POS, k->pos, parse_unary(p, false));
    else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    if (with_filters)
        n = parse_filters(p, n);
    p->nesting--;
    return n;
}

/* One left-associative level of binary operators. */
static Node *parse_level(Parser *p, int level)
{
    static const int ops[][5] = {{'+', '-', 0}, {0}, {'*', '/', T_FLOORDIV, '%', 0}, {T_POW, 0}};
    if (level == 4)
        return parse_unary(p, true);
    Node *left = parse_level(p, level + 1);
    if (level == 1) { /* a ~ b ~ c is one node */
        if (!left || peek(p)->kind != '~')
            return left;
        Node *n = node1(p, N_CONCAT, peek(p)->pos, left);
        while (n && take(p, '~')) {
            Node *right = parse_level(p, level + 1);
            if (!right || !adopt(p, n, &n->kid, right))
                return NULL;
        }
        return n;
    }
    while (left) {
        const Token *k = peek(p);
        int i = 0;
        while (ops[level][i] && ops[level][i] != k->kind)
            i++;
        if (!ops[level][i])
            break;
        p->at++;
        left = node2(p, N_BINARY, k->pos, left, parse_level(p, level + 1));
        if (left)
            left->op = k->kind;
    }
    return left;
}

/* The comparison at hand, or 0. */
static int take_comparison(Parser *p)
{
    int kind = peek(p)->kind;
    if (kind == T_EQ || kind == T_NE || kind == T_LE || kind == T_GE || kind == '<' || kind == '>') {
        p->at++;
        return kind;
    }
    if (take_word(p, "in"))
        return T_IN;
    const Token *next = &p->tokens.v[p->at + (peek(p)->kind != T_EOF)];
    if (is_word(p, "not") && next->kind == T_NAME && strcmp(next->text, "in") == 0) {
        p->at += 2;
        return T_NOT_IN;
    }
    return 0;
}

static Node *parse_compare(Parser *p)
{
    size_t pos = peek(p)->pos, n_ops = 0;
    int op, ops[32];
    Node *first = parse_level(p, 0), *n = NULL;
    while (first && (op = take_comparison(p)) != 0) {
        if (!n && !(n = node1(p, N_COMPARE, pos, first)))
            return NULL;
        if (n_ops == 32) {
            failed_at(p, pos, "more than 32 comparisons in a row");
            return NULL;
        }
        ops[n_ops++] = op;
        Node *right = parse_level(p, 0);
        if (!right || !adopt(p, n, &n->kid, right))
            return NULL;
    }
    if (!n)
        return first;
    int *copy = ARENA_ARRAY(p->arena, int, n_ops);
    if (!copy) {
        out_of_memory(p);
        return NULL;
    }
    memcpy(copy, ops, n_ops * sizeof *copy);
    n->ops = copy;
    return n;
}

static Node *parse_not(Parser *p)
{
    size_t pos = peek(p)->pos, n_nots = 0;
    while (take_word(p, "not"))
        n_nots++;
    Node *n = parse_compare(p);
    if (n_nots == 0)
        return n;
    n = node1(p, N_NOT, pos, n);
    return n && n_nots % 2 == 0 ? node1(p, N_NOT, pos, n) : n;
}

static Node *parse_and(Parser *p)
{
    Node *n = parse_not(p);
    if (!n || !is_word(p, "and"))
        return n;
    n = node1(p, N_AND, peek(p)->pos, n);
    while (n && take_word(p, "and")) {
        Node *right = parse_not(p);
        if (!right || !adopt(p, n, &n->kid, right))
            return NULL;
    }
    return n;
}

static Node *parse_or(Parser *p)
{
    Node *n = parse_and(p);
    if (!n || !is_word(p, "or"))
        return n;
    n = node1(p, N_OR, peek(p)->pos, n);
    while (n && take_word(p, "or")) {
        Node *right = parse_and(p);
        if (!right || !adopt(p, n, &n->kid, right))
            return NULL;
    }
    return n;
}

static Node *parse_expr(Parser *p)
{
    if (++p->nesting > MAX_NESTING) {
        failed_at(p, peek(p)->pos, "the expression nests too deeply");
        return NULL;
    }
    Node *n = parse_or(p);
    while (n && is_word(p, "if")) {
        size_t pos = peek(p)->pos;
        p->at++;
        n = node2(p, N_COND, pos, n, parse_or(p));
        Node *otherwise = NULL;
        if (n && take_word(p, "else") && !(otherwise = parse_expr(p)))
            return NULL;
        if (n && !adopt(p, n, &n->kid, otherwise))
            return NULL;
    }
    p->nesting--;
    return n;
}

/* An expression, or several with commas between them as a tuple. */
static Node *parse_tuple(Parser *p, Node *(*item)(Parser *))
{
    size_t pos = peek(p)->pos;
    Node *first = item(p);
    if (!first || peek(p)->kind != ',')
        return first;
    Node *n = node1(p, N_TUPLE, pos, first);
    while (n && take(p, ',')) {
        if (peek(p)->kind == T_BLOCK_END || peek(p)->kind == T_VAR_END || peek(p)->kind == '=' || is_word(p, "in"))
            break;
        Node *next = item(p);
        if (!next || !adopt(p, n, &n->kid, next))
            return NULL;
    }
    return n;
}

/* --- statements ------------------------------------------------------------------------------------------------- */

static bool parse_body(Parser *p, Node *owner, NodeList *body, const char *const *ends);

/* A name, a namespace attribute, or a parenthesis of them, as the target of set, for and with. */
static Node *parse_target_item(Parser *p)
{
    size_t pos = peek(p)->pos;
    if (take(p, '(')) {
        if (++p->nesting > MAX_NESTING) {
            failed_at(p, pos, "the target nests too deeply");
            return NULL;
        }
        Node *n = parse_tuple(p, parse_target_item);
        p->nesting--;
        return n && need(p, ')', "')'") ? n : NULL;
    }
    if (peek(p)->kind != T_NAME) {
        unexpected(p, "a name to assign to");
        return NULL;
    }
    Node *n = parse_name(p);
    if (!n)
        return NULL;
    if (n->kind != N_NAME) {
        failed_at(p, pos, "a constant cannot be assigned to");
        return NULL;
    }
    if (peek(p)->kind == '.' && p->tokens.v[p->at + 1].kind == T_NAME) {
        n = node1(p, N_ATTR, pos, n);
        if (!n || !(n->name = intern(p, p->tokens.v[p->at + 1].text)))
            return NULL;
        p->at += 2;
    }
    return n;
}

static bool end_tag(Parser *p)
{
    return need(p, T_BLOCK_END, "%}");
}

static Node *parse_for(Parser *p, size_t pos)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const ends2[] = {"endfor", NULL};
    Node *n = node1(p, N_FOR, pos, parse_tuple(p, parse_target_item));
    if (!n)
        return NULL;
    if (!take_word(p, "in")) {
        unexpected(p, "'in'");
        return NULL;
    }
    /* The iterated expression is no inline if: "for x in y if z" filters. */
    Node *iterated = parse_tuple(p, parse_or), *condition = NULL;
    if (!iterated || !adopt(p, n, &n->kid, iterated))
        return NULL;
    if (take_word(p, "if") && !(condition = parse_expr(p)))
        return NULL;
    if (!adopt(p, n, &n->kid, condition))
        return NULL;
    if (is_word(p, "recursive")) {
        failed_at(p, peek(p)->pos, "recursive loops are not supported; write a macro that calls itself");
        return NULL;
    }
    if (!end_tag(p))
        return NULL;
    p->in_loop++;
    bool ok = parse_body(p, n, &n->body, ends);
    p->in_loop--;
    if (!ok)
        return NULL;
    if (take_word(p, "else") && (!end_tag(p) || !parse_body(p, n, &n->orelse, ends2)))
        return NULL;
    p->at++; /* endfor */
    return end_tag(p) ? n : NULL;
}

static Node *parse_if(Parser *p, size_t pos)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const ends2[] = {"endif", NULL};
    Node *n = node_new(p, N_IF, pos);
    bool last = false;
    while (n) {
        Node *arm = node_new(p, N_ARM, n->body.n ? peek(p)->pos : pos), *condition = NULL;
        if (!arm || (!last && !(condition = parse_tuple(p, parse_expr))) || !adopt(p, arm, &arm->kid, condition) ||
            !end_tag(p))
            return NULL;
        p->in_if++;
        if (!parse_body(p, arm, &arm->body, last ? ends2 : ends) || !adopt(p, n, &n->body, arm))
            return NULL;
        p->in_if--;
        if (take_word(p, "endif"))
            break;
        last = is_word(p, "else");
        p->at++;
    }
    return n && end_tag(p) ? n : NULL;
}

static Node *parse_set(Parser *p, size_t pos)
{
    static const char *const ends[] = {"endset", NULL};
    Node *target = parse_tuple(p, parse_target_item);
    Node *n = node1(p, N_SET, pos, target);
    if (!n)
        return NULL;
    if (take(p, '=')) {
        Node *value = parse_tuple(p, parse_expr);
        return value && adopt(p, n, &n->kid, value) && end_tag(p) ? n : NULL;
    }
    Node *value = parse_filters(p, node_new(p, N_CAPTURED, pos));
    if (!value || !adopt(p, n, &n->kid, value) || !end_tag(p) || !parse_body(p, n, &n->body, ends))
        return NULL;
    n->negated = true; /* marks the block form, also of an empty block */
    p->at++;
    return end_tag(p) ? n : NULL;
}

/* "(a, b=1)" into names and defaults. */
static bool parse_params(Parser *p, Node *n)
{
    const char *names[64];
    if (!need(p, '(', "'('"))
        return false;
    while (!take(p, ')')) {
        const Token *k = peek(p);
        if (k->kind != T_NAME)
            return unexpected(p, "the name of a parameter");
        if (n->n_kw == 64)
            return failed_at(p, k->pos, "more than 64 parameters");
        p->at++;
        if (!(names[n->n_kw++] = intern(p, k->text)))
            return false;
        if (take(p, '=')) {
            Node *otherwise = parse_expr(p);
            if (!otherwise || !adopt(p, n, &n->kid, otherwise))
                return false;
        } else if (n->kid.n) {
            return failed_at(p, k->pos, "a parameter without a default follows one with a default");
        }
        if (peek(p)->kind != ')' && !need(p, ',', "',' or ')'"))
            return false;
    }
    n->kw = ARENA_ARRAY(p->arena, const char *, n->n_kw + 1);
    if (!n->kw)
        return out_of_memory(p);
    if (n->n_kw)
        memcpy(n->kw, names, n->n_kw * sizeof *names);
    return true;
}

/* The body of a macro: break and continue do not reach through it. */
static bool parse_macro_body(Parser *p, Node *n, const char *const *ends)
{
    unsigned loops = p->in_loop;
    p->in_loop = 0;
    bool ok = end_tag(p) && parse_body(p, n, &n->body, ends);
    p->in_loop = loops;
    p->at++;
    return ok && end_tag(p);
}

static Node *parse_macro(Parser *p, size_t pos)
{
    static const char *const ends[] = {"endmacro", NULL};
    Node *n = node_new(p, N_MACRO, pos);
    if (!n)
        return NULL;
    if (peek(p)->kind != T_NAME) {
        unexpected(p, "the name of the macro");
        return NULL;
    }
    if (!(n->name = intern(p, peek(p)->text)))
        return NULL;
    p->at++;
    return parse_params(p, n) && parse_macro_body(p, n, ends) ? n : NULL;
}

static Node *parse_call_block(Parser *p, size_t pos)
{
    static const char *const ends[] = {"endcall", NULL};
    Node *n = node_new(p, N_CALL_BLOCK, pos), *macro = node_new(p, N_MACRO, pos);
    if (!n || !macro || !(macro->name = intern(p, "caller")))
        return NULL;
    if (peek(p)->kind == '(' && !parse_params(p, macro))
        return NULL;
    Node *call = parse_unary(p, true);
    if (!call)
        return NULL;
    if (call->kind != N_CALL) {
        failed_at(p, pos, "a call block needs a call, as in {%% call name() %%}");
        return NULL;
    }
    return adopt(p, n, &n->kid, call) && parse_macro_body(p, macro, ends) && adopt(p, n, &n->body, macro) ? n : NULL;
}

static Node *parse_filter_block(Parser *p, size_t pos)
{
    static const char *const ends[] = {"endfilter", NULL};
    Node *n = node_new(p, N_FILTER_BLOCK, pos);
    Node *chain = n ? parse_filter(p, node_new(p, N_CAPTURED, pos)) : NULL;
    chain = parse_filters(p, chain);
    if (!chain || !adopt(p, n, &n->kid, chain) || !end_tag(p) || !parse_body(p, n, &n->body, ends))
        return NULL;
    p->at++;
    return end_tag(p) ? n : NULL;
}

static Node *parse_with(Parser *p, size_t pos)
{
    static const char *const ends[] = {"endwith", NULL};
    Node *n = node_new(p, N_WITH, pos);
    while (n && peek(p)->kind != T_BLOCK_END) {
        if (n->kid.n && !need(p, ',', "',' or %}"))
            return NULL;
        Node *target = parse_target_item(p);
        if (!target || !adopt(p, n, &n->kid, target) || !need(p, '=', "'='"))
            return NULL;
        Node *value = parse_expr(p);
        if (!value || !adopt(p, n, &n->kid, value))
            return NULL;
    }
    if (!n || !end_tag(p) || !parse_body(p, n, &n->body, ends))
        return NULL;
    p->at++;
    return end_tag(p) ? n : NULL;
}

/* Tags of Transformers' extension that marks what the assistant generated: the text counts, the tags do not. */
static Node *parse_generation(Parser *p, size_t pos)
{
    static const char *const ends[] = {"endgeneration", NULL};
    Node *n = node_new(p, N_SCOPE, pos);
    if (!n || !end_tag(p) || !parse_body(p, n, &n->body, ends))
        return NULL;
    p->at++;
    return end_tag(p) ? n : NULL;
}

static Node *parse_jump(Parser *p, size_t pos, NodeKind kind)
{
    if (!p->in_loop) {
        failed_at(p, pos, "break and continue belong inside a for loop");
        return NULL;
    }
    Node *n = node_new(p, kind, pos);
    return n && end_tag(p) ? n : NULL;
}

static Node *parse_statement(Parser *p)
{
    const Token *k = peek(p);
    size_t pos = k->pos;
    if (k->kind != T_NAME) {
        unexpected(p, "the name of a tag");
        return NULL;
    }
    p->at++;
    if (strcmp(k->text, "for") == 0)
        return parse_for(p, pos);
    if (strcmp(k->text, "if") == 0)
        return parse_if(p, pos);
    if (strcmp(k->text, "set") == 0)
        return parse_set(p, pos);
    if (strcmp(k->text, "macro") == 0)
        return parse_macro(p, pos);
    if (strcmp(k->text, "call") == 0)
        return parse_call_block(p, pos);
    if (strcmp(k->text, "filter") == 0)
        return parse_filter_block(p, pos);
    if (strcmp(k->text, "with") == 0)
        return parse_with(p, pos);
    if (strcmp(k->text, "generation") == 0)
        return parse_generation(p, pos);
    if (strcmp(k->text, "break") == 0)
        return parse_jump(p, pos, N_BREAK);
    if (strcmp(k->text, "continue") == 0)
        return parse_jump(p, pos, N_CONTINUE);
    failed_at(p, pos, "there is no tag named '%.60s'", k->text);
    return NULL;
}

static bool at_end_word(const Parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (is_word(p, *ends))
            return true;
    return false;
}

/* Statements up to a tag named in ends (its name is then at hand), or to the end when ends is NULL. */
static bool parse_body(Parser *p, Node *owner, NodeList *body, const char *const *ends)
{
    if (++p->nesting > MAX_NESTING)
        return failed_at(p, peek(p)->pos, "the tags nest too deeply");
    for (;;) {
        const Token *k = peek(p);
        Node *n = NULL;
        p->at++;
        switch (k->kind) {
        case T_EOF:
            p->at--;
            if (ends)
                return failed_at(p, owner->pos, "this tag is not closed; {%% %s %%} is missing",
                                 ends[1] && ends[2] ? ends[2]
                                 : ends[1]          ? ends[1]
                                                    : ends[0]);
            p->nesting--;
            return true;
        case T_DATA:
            n = const_text(p, N_TEXT, k->pos, k->text, k->len);
            break;
        case T_VAR_BEGIN:
            n = node1(p, N_OUTPUT, k->pos, parse_tuple(p, parse_expr));
            if (n && !need(p, T_VAR_END, "}}"))
                return false;
            break;
        default: /* T_BLOCK_BEGIN */
            if (at_end_word(p, ends)) {
                p->nesting--;
                return true;
            }
            n = parse_statement(p);
            break;
        }
        if (!n || !(owner ? adopt(p, owner, body, n) : list_push(p, body, n)))
            return false;
    }
}

/* --- front ------------------------------------------------------------------------------------------------------ */

/* Copies the source with one kind of newline and without the last one. */
static Status copy_source(Jinja *t, const char *source, size_t len, Err *err)
{
    char *copy = ARENA_ARRAY(t->arena, char, len + 1);
    size_t n = 0;
    if (!copy)
        return err_set(err, ST_NOMEM, "%s: out of memory", t->name);
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r') {
            copy[n++] = '\n';
            i += i + 1 < len && source[i + 1] == '\n';
        } else {
            copy[n++] = source[i];
        }
    }
    if (n && copy[n - 1] == '\n')
        n--;
    copy[n] = 0;
    t->src = copy;
    t->len = n;
    return ST_OK;
}

Status jinja_parse(Jinja **out, const char *source, size_t len, const char *name, Err *err)
{
    Status st = ST_OK;
    Parser p = {.err = err};
    Jinja *t = NULL;

    *out = NULL;
    if (len > MAX_SOURCE)
        return err_set(err, ST_FORMAT, "%s: the template has %zu bytes; at most %d are possible", name, len,
                       MAX_SOURCE);
    if (!utf8_valid(source, len))
        return err_set(err, ST_FORMAT, "%s: the template is not valid UTF-8", name);
    Arena *arena = arena_new();
    if (arena)
        t = ARENA_NEW(arena, Jinja);
    if (!t) {
        arena_free(arena);
        return err_set(err, ST_NOMEM, "%s: out of memory", name);
    }
    t->arena = arena;
    t->name = arena_strdup(arena, name);
    if (!t->name)
        TRY(err_set(err, ST_NOMEM, "%s: out of memory", name));
    TRY(copy_source(t, source, len, err));
    p.t = t;
    p.arena = arena;
    TRY(jinja_lex(t, &p.tokens, err));
    t->loop_name = intern(&p, "loop");
    t->caller_name = t->loop_name ? intern(&p, "caller") : NULL;
    if (!t->caller_name || !parse_body(&p, NULL, &t->body, NULL))
        TRY(p.st);
    *out = t;
    t = NULL;
done:
    jinja_free(t);
    return st;
}

void jinja_free(Jinja *t)
{
    if (t)
        arena_free(t->arena);
}
