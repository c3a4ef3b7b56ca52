/* quant_match.c - see quant_match.h.
 *
 * Patterns are not compiled: each part of one maps a set of places in the name to the set of places behind a match, and
 * a sequence is the maps one after the other. A repeated part is applied until its set stops growing, so that the work
 * is bounded by (pattern * name), whatever the pattern says. */
#include "circuit/quant_match.h"
#include <ctype.h>
#include <stdint.h>
#include <string.h>

/* ---- names and wildcards ------------------------------------------------------------------------------------------ */
/* The places behind name[0 .. len) ... of a glob: true when it can end at a component's end. */
static bool glob_here(const char *pattern, const char *name)
{
    const char *star = NULL, *resume = NULL;

    for (;;) {
        if (*pattern == '\0' && (*name == '\0' || *name == '.'))
            return true;
        if (*pattern == '*') {
            star = ++pattern;
            resume = name;
        } else if (*pattern != '\0' && *pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL && *resume != '\0') {
            pattern = star;
            name = ++resume;
        } else {
            return false;
        }
    }
}

static bool match_parts(const char *entry, const char *module)
{
    for (const char *p = module; p != NULL; p = strchr(p, '.')) {
        p += p != module;
        if (glob_here(entry, p))
            return true;
    }
    return false;
}

/* ---- patterns ----------------------------------------------------------------------------------------------------- */
enum { SET_WORDS = (MODULE_NAME_MAX + 64) / 64, DEPTH_MAX = 16, COUNT_MAX = 64 };

typedef struct Places {
    uint64_t w[SET_WORDS];
} Places;

typedef struct Pattern {
    const char *p;
    const char *name;
    size_t len;
    int depth;
    const char *bad; /* what is not understood */
} Pattern;

static bool has(const Places *s, size_t i)
{
    return s->w[i / 64] >> i % 64 & 1;
}

static void put(Places *s, size_t i)
{
    s->w[i / 64] |= UINT64_C(1) << i % 64;
}

/* Adds b to a; did a grow? */
static bool join(Places *a, const Places *b)
{
    bool grew = false;

    for (int i = 0; i < SET_WORDS; i++) {
        grew |= (b->w[i] & ~a->w[i]) != 0;
        a->w[i] |= b->w[i];
    }
    return grew;
}

static bool escape_holds(char e, char c)
{
    switch (e) {
    case 'd':
        return isdigit((unsigned char)c);
    case 'w':
        return isalnum((unsigned char)c) || c == '_';
    case 's':
        return isspace((unsigned char)c);
    default:
        return e == c;
    }
}

static bool escape_known(char e)
{
    return e == 'd' || e == 'w' || e == 's' || ispunct((unsigned char)e);
}

/* [...] at x->p, read past; does c belong to it? */
static bool in_class(Pattern *x, char c)
{
    bool inside = false, negated = x->p[1] == '^';
    const char *p = x->p + (negated ? 2 : 1), *first = p;

    for (; *p != '\0' && (*p != ']' || p == first); p++) {
        if (*p == '\\' && escape_known(p[1])) {
            inside |= escape_holds(*++p, c);
        } else if (*p == '\\') {
            x->bad = p;
            return false;
        } else if (p[1] == '-' && p[2] != ']' && p[2] != '\0') {
            inside |= p[0] <= c && c <= p[2];
            p += 2;
        } else {
            inside |= *p == c;
        }
    }
    if (*p != ']')
        x->bad = x->p;
    x->p = p + (*p == ']');
    return inside != negated;
}

static Places alternatives(Pattern *x, const Places *from);

/* One unit without its repetition. */
static Places unit(Pattern *x, const Places *from)
{
    const char *start = x->p;
    Places out = {{0}};

    if (*start == '(') {
        x->p += strncmp(start, "(?:", 3) == 0 ? 3 : 1;
        if (*x->p == '?' || ++x->depth > DEPTH_MAX) {
            x->bad = start;
            return out;
        }
        out = alternatives(x, from);
        x->depth--;
        if (x->bad == NULL && *x->p++ != ')')
            x->bad = start;
        return out;
    }
    if (*start == '^' || *start == '$') {
        size_t at = *start == '^' ? 0 : x->len;
        if (has(from, at))
            put(&out, at);
        x->p++;
        return out;
    }
    if (strchr("*+?{)|", *start) != NULL || (*start == '\\' && !escape_known(start[1]))) {
        x->bad = start;
        return out;
    }
    for (size_t i = 0; i <= x->len && x->bad == NULL; i++) { /* at the end of the name nothing matches; p moves on */
        const char c = x->name[i];
        bool holds;

        x->p = start;
        if (*start == '[')
            holds = in_class(x, c);
        else if (*start == '\\')
            holds = escape_holds(start[1], c);
        else
            holds = *start == '.' || *start == c;
        if (holds && i < x->len && has(from, i))
            put(&out, i + 1);
    }
    if (*start != '[')
        x->p = start + (*start == '\\' ? 2 : 1);
    return out;
}

/* A unit with its repetition. */
static Places repeated(Pattern *x, const Places *from)
{
    const char *start = x->p;
    Places once = unit(x, from), out = once;
    char op = x->bad == NULL ? *x->p : '\0';

    if (op == '{') {
        const char *p = x->p + 1;
        int n = 0;
        while (isdigit((unsigned char)*p) && n <= COUNT_MAX)
            n = n * 10 + (*p++ - '0');
        if (*p != '}' || n < 1 || n > COUNT_MAX) {
            x->bad = x->p;
            return out;
        }
        for (int i = 1; i < n && x->bad == NULL; i++) {
            Places next = out;
            x->p = start;
            out = unit(x, &next);
        }
        x->p = p + 1;
        return out;
    }
    if (op != '*' && op != '+' && op != '?')
        return out;
    for (bool grew = true; grew && op != '?';) {
        Places all = out, more;
        x->p = start;
        more = unit(x, &all);
        grew = join(&out, &more);
    }
    if (op != '+')
        join(&out, from);
    x->p++;
    if (*x->p == '?') /* as little as possible: the same set */
        x->p++;
    return out;
}

static Places alternatives(Pattern *x, const Places *from)
{
    Places out = {{0}}, at = *from;

    for (;;) {
        while (x->bad == NULL && *x->p != '\0' && *x->p != '|' && *x->p != ')')
            at = repeated(x, &at);
        join(&out, &at);
        if (x->bad != NULL || *x->p != '|')
            return out;
        x->p++;
        at = *from;
    }
}

static bool match_pattern(Pattern *x)
{
    Places from = {{1}}, out = alternatives(x, &from);
    uint64_t any = 0;

    if (x->bad == NULL && *x->p != '\0')
        x->bad = x->p;
    for (int i = 0; i < SET_WORDS; i++)
        any |= out.w[i];
    return x->bad == NULL && any != 0;
}

bool quant_match(const char *entry, const char *module)
{
    Pattern x = {.p = entry + 3, .name = module, .len = strlen(module)};

    if (x.len > MODULE_NAME_MAX)
        return false;
    return strncmp(entry, "re:", 3) == 0 ? match_pattern(&x) : match_parts(entry, module);
}

Status quant_match_check(const char *entry, Err *err)
{
    Pattern x = {.p = entry + 3, .name = ""};

    if (strncmp(entry, "re:", 3) != 0)
        return ST_OK;
    match_pattern(&x);
    if (x.bad != NULL)
        return err_set(err, ST_UNSUPPORTED, "pattern \"%s\" is not understood at \"%s\"", entry, x.bad);
    return ST_OK;
}
