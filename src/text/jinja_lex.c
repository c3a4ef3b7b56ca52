/* jinja_lex.c - template source to tokens, with the white-space rules of trim_blocks and lstrip_blocks.
 *
 * Text between tags is one T_DATA token, already trimmed. A tag ends at its closing mark only while no bracket is open,
 * so that {{ {"a": {}} }} is one tag. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/utf8.h"
#include "text/jinja_internal.h"

enum { MAX_OPEN = 128 };

Status jinja_error(const Jinja *t, size_t pos, Status st, Err *err, const char *fmt, ...)
{
    size_t row = 1, col = 1;
    char text[512];
    va_list ap;
    for (size_t i = 0; i < pos && i < t->len; i++) {
        if (t->src[i] == '\n') {
            row++;
            col = 1;
        } else if (((unsigned char)t->src[i] & 0xc0) != 0x80) {
            col++;
        }
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(err, st, "%s: row %zu, column %zu: %s", t->name, row, col, text);
}

typedef struct Lexer {
    const Jinja *t;
    const char *s;
    size_t len, at;
    Token *v; /* grows in the arena by doubling */
    size_t n, cap;
    Err *err;
} Lexer;

static Status push(Lexer *lx, Token token)
{
    if (lx->n == lx->cap) {
        size_t cap = lx->cap ? lx->cap * 2 : 256;
        Token *grown = ARENA_ARRAY(lx->t->arena, Token, cap);
        if (!grown)
            return err_set(lx->err, ST_NOMEM, "%s: out of memory", lx->t->name);
        if (lx->n)
            memcpy(grown, lx->v, lx->n * sizeof *grown);
        lx->v = grown;
        lx->cap = cap;
    }
    lx->v[lx->n++] = token;
    return ST_OK;
}

static Status push_text(Lexer *lx, int kind, size_t pos, const char *text, size_t len)
{
    char *copy = arena_strndup(lx->t->arena, text, len);
    if (!copy)
        return err_set(lx->err, ST_NOMEM, "%s: out of memory", lx->t->name);
    return push(lx, (Token){.kind = kind, .pos = (uint32_t)pos, .text = copy, .len = len});
}

static bool here(const Lexer *lx, const char *text)
{
    size_t n = strlen(text);
    return lx->len - lx->at >= n && memcmp(lx->s + lx->at, text, n) == 0;
}

static size_t space_len(const Lexer *lx, size_t at)
{
    uint32_t cp;
    int n = at < lx->len ? utf8_decode(lx->s + at, lx->len - at, &cp) : 0;
    return n > 0 && char_is_space(cp) ? (size_t)n : 0;
}

static void skip_spaces(Lexer *lx)
{
    size_t n;
    while ((n = space_len(lx, lx->at)) > 0)
        lx->at += n;
}

static bool all_space(const Lexer *lx, size_t from, size_t to)
{
    size_t n;
    while (from < to && (n = space_len(lx, from)) > 0)
        from += n;
    return from >= to;
}

/* The end of s[from..to) without the white space at its end. */
static size_t rstrip(const Lexer *lx, size_t from, size_t to)
{
    while (to > from) {
        size_t c = to - 1;
        while (c > from && ((unsigned char)lx->s[c] & 0xc0) == 0x80)
            c--;
        if (!space_len(lx, c))
            break;
        to = c;
    }
    return to;
}

/* After a closing mark: `sign` is what stood before it. */
static void after_end(Lexer *lx, char sign, bool trims)
{
    if (sign == '-')
        skip_spaces(lx);
    else if (trims && sign != '+' && lx->at < lx->len && lx->s[lx->at] == '\n')
        lx->at++;
}

/* At the mark `end` ("%}", "}}", "#}") or a sign and the mark? Returns its length; *sign gets '-', '+' or 0. */
static size_t end_here(const Lexer *lx, const char *end, char *sign)
{
    *sign = 0;
    if (here(lx, end))
        return 2;
    if (lx->at + 3 <= lx->len && (lx->s[lx->at] == '-' || (lx->s[lx->at] == '+' && end[0] != '}')) &&
        memcmp(lx->s + lx->at + 1, end, 2) == 0) {
        *sign = lx->s[lx->at];
        return 3;
    }
    return 0;
}

/* --- inside tags ------------------------------------------------------------------------------------------------ */

static bool is_name_start(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes the escape behind a backslash at s[i]; returns how many bytes it takes, 0 for none that is known. */
static size_t escape(const char *s, size_t len, uint32_t *cp)
{
    static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
    const char *simple = len && s[0] ? strchr(from, s[0]) : NULL;
    if (simple) {
        *cp = (unsigned char)to[simple - from];
        return 1;
    }
    size_t digits = !len ? 0 : s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    *cp = 0;
    if (digits) {
        for (size_t i = 1; i <= digits; i++) {
            if (i >= len || hex_value(s[i]) < 0)
                return 0;
            *cp = *cp << 4 | (uint32_t)hex_value(s[i]);
        }
        return digits + 1;
    }
    size_t n = 0;
    while (n < 3 && n < len && s[n] >= '0' && s[n] <= '7')
        *cp = *cp << 3 | (uint32_t)(s[n++] - '0');
    return n;
}

static Status lex_string(Lexer *lx)
{
    Status st = ST_OK;
    Str text = STR_INIT;
    size_t pos = lx->at;
    char quote = lx->s[lx->at++];
    for (;;) {
        if (lx->at >= lx->len)
            TRY(jinja_error(lx->t, pos, ST_FORMAT, lx->err, "this string has no end"));
        char c = lx->s[lx->at++];
        if (c == quote)
            break;
        if (c != '\\') {
            str_addc(&text, c);
            continue;
        }
        uint32_t cp = 0;
        char utf8[4];
        size_t n = escape(lx->s + lx->at, lx->len - lx->at, &cp);
        if (n) {
            if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
                cp = 0xfffd;
            str_add(&text, utf8, (size_t)utf8_encode(cp, utf8));
            lx->at += n;
        } else if (lx->at < lx->len && lx->s[lx->at] == '\n') {
            lx->at++; /* a line goes on */
        } else {
            str_addc(&text, '\\');
        }
    }
    if (!str_ok(&text))
        TRY(err_set(lx->err, ST_NOMEM, "%s: out of memory", lx->t->name));
    TRY(push_text(lx, T_STRING, pos, str_c(&text), text.len));
done:
    str_release(&text);
    return st;
}

static Status lex_number(Lexer *lx)
{
    size_t pos = lx->at;
    char buf[64];
    size_t n = 0;
    bool is_float = false;
    int base = 10;
    bool after_dot = lx->n && lx->v[lx->n - 1].kind == '.' && lx->v[lx->n - 1].pos + 1 == pos;
    if (lx->s[lx->at] == '0' && lx->at + 1 < lx->len) {
        char c = (char)(lx->s[lx->at + 1] | 0x20);
        base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
        lx->at += base == 10 ? 0 : 2;
    }
    while (lx->at < lx->len) {
        char c = lx->s[lx->at], next = lx->at + 1 < lx->len ? lx->s[lx->at + 1] : 0;
        if (c == '_' && n) {
            lx->at++;
            continue;
        }
        bool digit = base == 16 ? hex_value(c) >= 0 : is_digit(c);
        bool dot = base == 10 && c == '.' && is_digit(next) && !is_float && !after_dot;
        char next2 = lx->at + 2 < lx->len ? lx->s[lx->at + 2] : 0;
        bool exponent = base == 10 && (c == 'e' || c == 'E') && n && !after_dot &&
                        (is_digit(next) || ((next == '+' || next == '-') && is_digit(next2)));
        if (!digit && !dot && !exponent)
            break;
        if (n + 3 >= sizeof buf)
            return jinja_error(lx->t, pos, ST_FORMAT, lx->err, "this number is too long");
        is_float |= dot || exponent;
        buf[n++] = c;
        lx->at++;
        if (exponent && !is_digit(next)) {
            buf[n++] = next;
            lx->at++;
        }
        if (exponent)
            after_dot = true; /* no second dot or exponent */
    }
    buf[n] = 0;
    Token token = {.kind = is_float ? T_FLOAT : T_INT, .pos = (uint32_t)pos};
    char *end = buf;
    errno = 0;
    if (is_float)
        token.f = strtod(buf, &end);
    else
        token.i = strtoll(buf, &end, base);
    if (n == 0 || *end || (errno && !is_float))
        return jinja_error(lx->t, pos, ST_FORMAT, lx->err, "this number is malformed or over 64 bits");
    return push(lx, token);
}

static Status lex_operator(Lexer *lx, char *open, size_t *n_open)
{
    static const struct {
        const char *text;
        int kind;
    } pairs[] = {{"==", T_EQ}, {"!=", T_NE}, {"<=", T_LE}, {">=", T_GE}, {"**", T_POW}, {"//", T_FLOORDIV}};
    size_t pos = lx->at;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (here(lx, pairs[i].text)) {
            lx->at += 2;
            return push(lx, (Token){.kind = pairs[i].kind, .pos = (uint32_t)pos});
        }
    char c = lx->s[lx->at];
    if (!c || !strchr("+-*/%~[](){}<>=.:|,", c))
        return jinja_error(lx->t, pos, ST_FORMAT, lx->err, "the character '%c' has no meaning inside a tag",
                           c >= 0x20 && c < 0x7f ? c : '?');
    if (strchr("[({", c)) {
        if (*n_open == MAX_OPEN)
            return jinja_error(lx->t, pos, ST_FORMAT, lx->err, "brackets nest deeper than %d", MAX_OPEN);
        open[(*n_open)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (strchr("])}", c)) {
        if (*n_open == 0 || open[*n_open - 1] != c)
            return jinja_error(lx->t, pos, ST_FORMAT, lx->err, "'%c' closes nothing", c);
        (*n_open)--;
    }
    lx->at++;
    return push(lx, (Token){.kind = c, .pos = (uint32_t)pos});
}

/* From behind the opening mark to behind the closing one. */
static Status lex_tag(Lexer *lx, bool block, size_t begin)
{
    Status st = ST_OK;
    char open[MAX_OPEN], sign;
    size_t n_open = 0, n;
    for (;;) {
        skip_spaces(lx);
        if (lx->at >= lx->len)
            return jinja_error(lx->t, begin, ST_FORMAT, lx->err, "this tag is not closed; %s is missing",
                               block ? "%}" : "}}");
        if (n_open == 0 && (n = end_here(lx, block ? "%}" : "}}", &sign)) > 0) {
            size_t pos = lx->at;
            lx->at += n;
            after_end(lx, sign, block);
            return push(lx, (Token){.kind = block ? T_BLOCK_END : T_VAR_END, .pos = (uint32_t)pos});
        }
        char c = lx->s[lx->at];
        if (is_name_start((unsigned char)c)) {
            size_t pos = lx->at;
            while (lx->at < lx->len && (is_name_start((unsigned char)lx->s[lx->at]) || is_digit(lx->s[lx->at])))
                lx->at++;
            st = push_text(lx, T_NAME, pos, lx->s + pos, lx->at - pos);
        } else if (is_digit(c)) {
            st = lex_number(lx);
        } else if (c == '"' || c == '\'') {
            st = lex_string(lx);
        } else {
            st = lex_operator(lx, open, &n_open);
        }
        if (st != ST_OK)
            return st;
    }
}

/* --- between tags ----------------------------------------------------------------------------------------------- */

/* Behind "{%": is this the word, alone in its tag? Moves behind the closing mark when it is. */
static bool lone_word(Lexer *lx, const char *word, bool trims)
{
    size_t keep = lx->at, n;
    char sign;
    if (lx->at < lx->len && (lx->s[lx->at] == '-' || lx->s[lx->at] == '+'))
        lx->at++;
    skip_spaces(lx);
    if (here(lx, word)) {
        lx->at += strlen(word);
        skip_spaces(lx);
        n = end_here(lx, "%}", &sign);
        if (n) {
            lx->at += n;
            after_end(lx, sign, trims);
            return true;
        }
    }
    lx->at = keep;
    return false;
}

/* Where the text before the tag at `tag` ends once white space is taken from it. */
static size_t trim_before(const Lexer *lx, size_t from, size_t tag, bool variable)
{
    char sign = tag + 2 < lx->len ? lx->s[tag + 2] : 0;
    if (sign == '-')
        return rstrip(lx, from, tag);
    if (sign == '+' || variable)
        return tag;
    size_t line = tag;
    while (line > from && lx->s[line - 1] != '\n')
        line--;
    bool starts_line = line > from || from == 0 || lx->s[from - 1] == '\n';
    return starts_line && all_space(lx, line, tag) ? line : tag;
}

static Status lex_raw(Lexer *lx, size_t begin)
{
    size_t from = lx->at;
    for (; lx->at + 1 < lx->len; lx->at++) {
        size_t tag = lx->at;
        if (!here(lx, "{%"))
            continue;
        lx->at += 2;
        if (lone_word(lx, "endraw", true)) {
            size_t end = trim_before(lx, from, tag, false);
            return end > from ? push_text(lx, T_DATA, from, lx->s + from, end - from) : ST_OK;
        }
        lx->at = tag;
    }
    return jinja_error(lx->t, begin, ST_FORMAT, lx->err, "this raw block has no endraw");
}

static Status lex_comment(Lexer *lx, size_t begin)
{
    char sign;
    size_t n;
    for (; lx->at < lx->len; lx->at++)
        if ((n = end_here(lx, "#}", &sign)) > 0) {
            lx->at += n;
            after_end(lx, sign, true);
            return ST_OK;
        }
    return jinja_error(lx->t, begin, ST_FORMAT, lx->err, "this comment is not closed; #} is missing");
}

Status jinja_lex(const Jinja *t, TokenArray *out, Err *err)
{
    Status st = ST_OK;
    Lexer lx = {.t = t, .s = t->src, .len = t->len, .err = err};
    while (lx.at < lx.len) {
        size_t from = lx.at, tag = from;
        while (tag + 1 < lx.len && !(lx.s[tag] == '{' && strchr("{%#", lx.s[tag + 1]) && lx.s[tag + 1]))
            tag++;
        bool found = tag + 1 < lx.len;
        char kind = found ? lx.s[tag + 1] : 0;
        size_t end = found ? trim_before(&lx, from, tag, kind == '{') : lx.len;
        if (end > from)
            TRY(push_text(&lx, T_DATA, from, lx.s + from, end - from));
        if (!found)
            break;
        lx.at = tag + 2;
        if (kind == '#') {
            TRY(lex_comment(&lx, tag));
            continue;
        }
        if (kind == '%' && lone_word(&lx, "raw", false)) {
            TRY(lex_raw(&lx, tag));
            continue;
        }
        char sign = lx.at < lx.len ? lx.s[lx.at] : 0;
        if (sign == '-' || (sign == '+' && kind == '%'))
            lx.at++;
        TRY(push(&lx, (Token){.kind = kind == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN, .pos = (uint32_t)tag}));
        TRY(lex_tag(&lx, kind == '%', tag));
    }
    TRY(push(&lx, (Token){.kind = T_EOF, .pos = (uint32_t)t->len}));
    *out = (TokenArray){lx.v, lx.n};
done:
    return st;
}
