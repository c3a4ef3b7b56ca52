/* levers.c - see levers.h. Values are kept as checked text; the typed readers cannot fail any more. */
#include "cli/levers.h"
#include "circuit/target.h"
#include "core/str.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { INT, BOOL, TEXT, CHOICE } LeverKind;
typedef struct LeverDef {
    const char *name;
    LeverKind kind;
    const char *value;
    int64_t least, most;
    const char *choices, *help;
} LeverDef;

static const LeverDef defs[LEVER_COUNT] = {
#define X(id, name, kind, value, least, most, choices, help) {name, kind, value, least, most, choices, help},
    LEVER_MAP(X)
#undef X
};

/* METRALE_* names that belong to the build, not to a run. */
static const char *const build_names[] = {"METRALE_TARGET_HW", "METRALE_TARGET_MODEL", "METRALE_TARGET_QUANT",
                                          "METRALE_SKIP_BUILD", "METRALE_NVCC"};

static bool one_of(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *p = choices; *p; p += strcspn(p, "|"), p += *p == '|')
        if (strcspn(p, "|") == n && memcmp(p, text, n) == 0)
            return true;
    return false;
}

static bool parse_bool(const char *text, bool *out)
{
    *out = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    return *out || strcmp(text, "false") == 0 || strcmp(text, "0") == 0;
}

/* Sets a lever if nothing stronger is set. `where` names the flag, variable or file in the message. */
static Status set(Levers *l, LeverId id, const char *text, LeverOrigin origin, const char *where, Err *err)
{
    const LeverDef *d = &defs[id];
    bool b;
    char *end;

    if (d->kind == INT) {
        errno = 0;
        long long v = strtoll(text, &end, 10);
        if (errno || end == text || *end || v < d->least || v > d->most)
            return err_set(err, ST_INVALID, "%s: \"%s\" is no whole number from %lld to %lld", where, text,
                           (long long)d->least, (long long)d->most);
    }
    if (d->kind == BOOL && !parse_bool(text, &b))
        return err_set(err, ST_INVALID, "%s: \"%s\" is neither true nor false", where, text);
    if (d->kind == CHOICE && !one_of(d->choices, text))
        return err_set(err, ST_INVALID, "%s: \"%s\" is none of %s", where, text, d->choices);
    if (l->value[id].text && l->value[id].origin > origin)
        return ST_OK;
    char *copy = strdup(text);
    if (copy == NULL)
        return err_set(err, ST_NOMEM, "out of memory for %s", where);
    free(l->value[id].text);
    l->value[id].text = copy;
    l->value[id].origin = origin;
    return ST_OK;
}

static void spell(const char *name, char *out, char dash, bool upper)
{
    for (; *name; name++)
        *out++ = *name == '_' ? dash : (char)(upper ? toupper((unsigned char)*name) : *name);
    *out = '\0';
}

enum { KEY_FIRST = 0x1000 };

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    Levers *l = state->input;
    char flag[40] = "--";
    Err err;

    if (key < KEY_FIRST || key >= KEY_FIRST + LEVER_COUNT)
        return ARGP_ERR_UNKNOWN;
    LeverId id = (LeverId)(key - KEY_FIRST);
    spell(defs[id].name, flag + 2, '-', false);
    if (set(l, id, arg ? arg : "true", FROM_FLAG, flag, &err) != ST_OK)
        argp_error(state, "%s", err.msg);
    return 0;
}

void levers_init(Levers *l)
{
    memset(l, 0, sizeof *l);
    for (int i = 0; i < LEVER_COUNT; i++) {
        const LeverDef *d = &defs[i];
        spell(d->name, l->flags[i], '-', false);
        l->options[i] = (struct argp_option){.name = l->flags[i],
                                             .key = KEY_FIRST + i,
                                             .arg = d->kind == INT      ? "N"
                                                    : d->kind == BOOL   ? "BOOL"
                                                    : d->kind == CHOICE ? d->choices
                                                                        : "TEXT",
                                             .flags = d->kind == BOOL ? OPTION_ARG_OPTIONAL : 0,
                                             .doc = d->help,
                                             .group = 1};
    }
    l->parser = (struct argp){.options = l->options, .parser = parse_option};
}

void levers_release(Levers *l)
{
    for (int i = 0; i < LEVER_COUNT; i++) {
        free(l->value[i].text);
        l->value[i].text = NULL;
    }
}

static const char *names_of_levers(Str *s)
{
    char name[40];
    for (int i = 0; i < LEVER_COUNT; i++) {
        spell(defs[i].name, name, '_', true);
        str_addf(s, "%sMETRALE_%s", i ? ", " : "", name);
    }
    return str_c(s);
}

Status levers_environment(Levers *l, char **environ, Err *err)
{
    Status st = ST_OK;
    Str known = STR_INIT;
    char name[64], upper[40];

    for (char **e = environ; e && *e; e++) {
        size_t n = strcspn(*e, "=");
        bool ours = str_starts(*e, "METRALE_"), declared = false;

        if (!ours || (*e)[n] != '=')
            continue;
        if (n >= sizeof name)
            n = sizeof name - 1;
        memcpy(name, *e, n);
        name[n] = '\0';
        for (size_t b = 0; b < sizeof build_names / sizeof *build_names; b++)
            declared = declared || strcmp(name, build_names[b]) == 0;
        for (int i = 0; i < LEVER_COUNT && !declared; i++) {
            spell(defs[i].name, upper, '_', true);
            if (strcmp(name + 8, upper) != 0)
                continue;
            declared = true;
            TRY(set(l, (LeverId)i, *e + n + 1, FROM_VARIABLE, name, err));
        }
        if (!declared)
            TRY(err_set(err, ST_INVALID, "the environment variable %s is no setting of metrale; there are %s", name,
                        names_of_levers(&known)));
    }
done:
    str_release(&known);
    return st;
}

Status levers_class(Levers *l, const KernelRegistry *reg, const char *hw, Err *err)
{
    Status st = ST_OK;
    Str text = STR_INIT;
    char where[160];

    for (int i = 0; i < LEVER_COUNT; i++) {
        bool found = false;
        str_clear(&text);
        TRY(target_default(reg, hw, defs[i].name, &text, &found, err));
        snprintf(where, sizeof where, "kernels/%.80s/HARDWARE.toml: [defaults] %.40s", hw, defs[i].name);
        if (found)
            TRY(set(l, (LeverId)i, str_c(&text), FROM_CLASS, where, err));
    }
done:
    str_release(&text);
    return st;
}

const char *lever_text(const Levers *l, LeverId id)
{
    return l->value[id].text ? l->value[id].text : defs[id].value;
}

int64_t lever_int(const Levers *l, LeverId id)
{
    return strtoll(lever_text(l, id), NULL, 10);
}

bool lever_bool(const Levers *l, LeverId id)
{
    bool b;
    parse_bool(lever_text(l, id), &b);
    return b;
}

LeverOrigin lever_origin(const Levers *l, LeverId id)
{
    return l->value[id].text ? l->value[id].origin : FROM_BUILTIN;
}

void levers_log(const Levers *l, const Log *log)
{
    static const char *const origins[] = {"built in", "class", "environment", "flag"};
    Str s = STR_INIT;

    for (int i = 0; i < LEVER_COUNT; i++) {
        LeverOrigin o = lever_origin(l, (LeverId)i);
        const char *text = lever_text(l, (LeverId)i);
        str_addf(&s, "%s%s=%s (%s)", i ? ", " : "", defs[i].name, *text ? text : "-", origins[o]);
    }
    log_info(log, "settings: %s", str_c(&s));
    str_release(&s);
}
