/* scan.c - a lexer that knows just enough C and CUDA to find entry points and includes.
 *
 * The structure checks must run where no compiler is, so they read sources as tokens: identifiers, punctuation and
 * string literals, with comments and preprocessor lines dropped. Brace depth tells file scope from a body;
 * the braces of `extern "C" { }` do not count, since what is inside is file scope too. */
#include "closure/scan.h"
#include <ctype.h>
#include <stdint.h>
#include <string.h>

bool name_list_has(const NameList *l, const char *name)
{
    for (size_t i = 0; i < l->len; i++)
        if (!strcmp(l->items[i], name))
            return true;
    return false;
}

bool name_list_add(NameList *l, Arena *a, const char *name, size_t len)
{
    if (l->len == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        const char **items = ARENA_ARRAY(a, const char *, cap);
        if (!items)
            return false;
        if (l->len)
            memcpy(items, l->items, l->len * sizeof *items);
        l->items = items;
        l->cap = cap;
    }
    char *copy = arena_strndup(a, name, len);
    if (!copy)
        return false;
    l->items[l->len++] = copy;
    return true;
}

static bool name_list_add_once(NameList *l, Arena *a, const char *name, size_t len)
{
    for (size_t i = 0; i < l->len; i++)
        if (strlen(l->items[i]) == len && !memcmp(l->items[i], name, len))
            return true;
    return name_list_add(l, a, name, len);
}

typedef struct Token {
    enum { TK_END, TK_IDENT, TK_STRING, TK_PUNCT } kind;
    const char *p;
    size_t len;
} Token;

typedef struct Lexer {
    const char *p, *end;
    bool line_start; /* only white space so far on this line */
} Lexer;

static bool ident_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* p is behind a '#' that starts a line: moves to the line's end, over continued lines. */
static void skip_directive(Lexer *x)
{
    while (x->p < x->end && *x->p != '\n') {
        if (*x->p == '\\' && x->p + 1 < x->end)
            x->p++;
        x->p++;
    }
    if (x->p > x->end)
        x->p = x->end;
}

/* p is on the opening quote. */
static Token quoted(Lexer *x)
{
    char q = *x->p;
    const char *from = ++x->p;
    while (x->p < x->end && *x->p != q && *x->p != '\n') {
        if (*x->p == '\\' && x->p + 1 < x->end)
            x->p++;
        x->p++;
    }
    Token t = {TK_STRING, from, (size_t)(x->p - from)};
    if (x->p < x->end)
        x->p++;
    return t;
}

static Token next_token(Lexer *x)
{
    while (x->p < x->end) {
        char c = *x->p;
        size_t left = (size_t)(x->end - x->p);
        if (c == '\n') {
            x->line_start = true;
            x->p++;
        } else if (isspace((unsigned char)c)) {
            x->p++;
        } else if (left >= 2 && c == '/' && x->p[1] == '/') {
            const char *nl = memchr(x->p, '\n', left);
            x->p = nl ? nl : x->end;
        } else if (left >= 2 && c == '/' && x->p[1] == '*') {
            const char *close = memmem(x->p + 2, left - 2, "*/", 2);
            x->p = close ? close + 2 : x->end;
        } else if (c == '#' && x->line_start) {
            skip_directive(x);
        } else {
            x->line_start = false;
            if (c == '"' || c == '\'')
                return quoted(x);
            const char *from = x->p++;
            if (!ident_char(c))
                return (Token){TK_PUNCT, from, 1};
            while (x->p < x->end && ident_char(*x->p))
                x->p++;
            return (Token){isdigit((unsigned char)c) ? TK_PUNCT : TK_IDENT, from, (size_t)(x->p - from)};
        }
    }
    return (Token){TK_END, x->end, 0};
}

static bool token_is(Token t, const char *text)
{
    return t.len == strlen(text) && !memcmp(t.p, text, t.len);
}

static bool upper_name(Token t)
{
    if (t.kind != TK_IDENT || !isupper((unsigned char)t.p[0]))
        return false;
    for (size_t i = 0; i < t.len; i++)
        if (islower((unsigned char)t.p[i]))
            return false;
    return true;
}

/* Behind an opening parenthesis: moves behind its closing one. */
static void skip_parens(Lexer *x)
{
    for (int depth = 1; depth > 0;) {
        Token t = next_token(x);
        if (t.kind == TK_END)
            return;
        depth += token_is(t, "(") ? 1 : token_is(t, ")") ? -1 : 0;
    }
}

/* Attributes that may stand between __global__ and the name and take arguments. */
static bool is_attribute(Token t)
{
    return token_is(t, "__launch_bounds__") || token_is(t, "__cluster_dims__") || token_is(t, "__maxnreg__") ||
           token_is(t, "__block_size__") || token_is(t, "__attribute__");
}

/* Behind __global__: the identifier in front of the parameter list. */
static bool global_name(Lexer *x, Arena *a, NameList *out)
{
    Token name = {TK_END, NULL, 0};
    for (;;) {
        Token t = next_token(x);
        if (t.kind == TK_IDENT) {
            name = t;
        } else if (token_is(t, "(") && name.kind == TK_IDENT) {
            if (!is_attribute(name))
                return name_list_add_once(out, a, name.p, name.len);
            skip_parens(x);
            name.kind = TK_END;
        } else if (t.kind == TK_END || token_is(t, ";") || token_is(t, "{")) {
            return true;
        }
    }
}

bool scan_entries(const char *text, size_t len, Arena *a, NameList *out)
{
    Lexer x = {text, text + len, true};
    int depth = 0;
    Token before = {TK_END, NULL, 0}, last = before; /* the two tokens in front of t */
    for (Token t = next_token(&x); t.kind != TK_END; t = next_token(&x)) {
        if (token_is(t, "{")) {
            bool linkage = last.kind == TK_STRING && before.kind == TK_IDENT && token_is(before, "extern");
            depth += !linkage;
        } else if (token_is(t, "}")) {
            depth -= depth > 0;
        } else if (t.kind == TK_IDENT && token_is(t, "__global__")) {
            if (!global_name(&x, a, out))
                return false;
        } else if (depth == 0 && t.kind == TK_PUNCT && token_is(t, "(") && upper_name(last)) {
            Token arg = next_token(&x);
            if (arg.kind == TK_IDENT && !name_list_add_once(out, a, arg.p, arg.len))
                return false;
            before = last;
            last = arg;
            continue;
        }
        before = last;
        last = t;
    }
    return true;
}

bool scan_includes(const char *text, size_t len, Arena *a, NameList *out)
{
    const char *end = text + len;
    for (const char *line = text; line < end;) {
        const char *nl = memchr(line, '\n', (size_t)(end - line));
        const char *stop = nl ? nl : end, *p = line;
        while (p < stop && (*p == ' ' || *p == '\t'))
            p++;
        if (p < stop && *p == '#') {
            p++;
            while (p < stop && (*p == ' ' || *p == '\t'))
                p++;
            if (stop - p > 7 && !memcmp(p, "include", 7)) {
                p += 7;
                while (p < stop && (*p == ' ' || *p == '\t'))
                    p++;
                char close = p < stop && *p == '"' ? '"' : p < stop && *p == '<' ? '>' : 0;
                const char *to = close && p + 1 < stop ? memchr(p + 1, close, (size_t)(stop - p - 1)) : NULL;
                if (to && !name_list_add_once(out, a, p + 1, (size_t)(to - p - 1)))
                    return false;
            }
        }
        line = nl ? nl + 1 : end;
    }
    return true;
}
