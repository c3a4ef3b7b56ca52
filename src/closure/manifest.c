/* manifest.c - strict readers of HARDWARE.toml, MODEL.toml and KERNEL.toml; FAMILIES.toml and RULES.toml as far as the tree needs.
 *
 * Which keys exist is data: a table of (key, kinds) for each TOML table. check_keys() holds a table against it and adds faults;
 * after that the readers look values up by key and kind and skip what does not fit, because it is reported already.
 * What a family or a rule means is the circuit room's matter: here they are ids, entries, modules and constants. */
#include "closure/manifest.h"
#include "core/str.h"
#include "core/toml_each.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define K(kind)  (1u << (kind))
#define K_NUMBER (K(TOML_INT) | K(TOML_FLOAT))
#define K_SCALAR (K_NUMBER | K(TOML_STRING) | K(TOML_BOOL))
#define LEN(a)   (sizeof(a) / sizeof *(a))

typedef struct KeySpec {
    const char *key;
    unsigned kinds; /* K() bits that the value may have */
    unsigned items; /* when the value is an array: K() bits of its items */
    bool needed;
} KeySpec;

/* One file being read. */
typedef struct Manifest {
    Tree *t;
    const char *path;
    Toml *toml;
} Manifest;

const char *tree_say(Tree *t, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *copy = arena_strdup(t->arena, text);
    if (!copy)
        t->faults.failed = true;
    return copy;
}

void *tree_alloc(Tree *t, size_t n, size_t size)
{
    void *p = arena_alloc(t->arena, n ? n : 1, size);
    if (!p)
        t->faults.failed = true;
    return p;
}

static const char *copy_text(Tree *t, const char *s)
{
    return s ? tree_say(t, "%s", s) : NULL;
}

/* toml_parse says "PATH:LINE:COL: what"; a fault keeps the line apart. */
static bool manifest_open(Manifest *m, Tree *t, const TreeFile *f)
{
    Err err;
    *m = (Manifest){t, f->path, NULL};
    if (toml_parse(f->text, f->len, f->path, &m->toml, &err) == ST_OK && toml_each(m->toml, &err) == ST_OK)
        return true;
    toml_free(m->toml);
    m->toml = NULL;
    const char *what = err.msg;
    uint32_t line = 1;
    size_t n = strlen(f->path);
    if (!strncmp(what, f->path, n) && what[n] == ':') {
        char *end;
        line = (uint32_t)strtoul(what + n + 1, &end, 10);
        if (*end == ':' && isdigit((unsigned char)end[1]))
            strtoul(end + 1, &end, 10);
        what = *end == ':' ? end + 1 + strspn(end + 1, " ") : end;
    }
    faults_add(&t->faults, f->path, line ? line : 1, copy_text(t, what), "write it as valid TOML");
    return false;
}

static const char *kinds_text(Manifest *m, unsigned kinds)
{
    Str s = STR_INIT;
    for (int k = TOML_TABLE; k <= TOML_BOOL; k++)
        if (kinds & K(k))
            str_addf(&s, "%s%s", s.len ? " or " : "", toml_kind_name((TomlKind)k));
    const char *copy = str_ok(&s) ? copy_text(m->t, str_c(&s)) : NULL;
    str_release(&s);
    return copy ? copy : "another kind";
}

static const char *keys_text(Manifest *m, const KeySpec *spec, size_t n)
{
    Str s = STR_INIT;
    for (size_t i = 0; i < n; i++)
        str_addf(&s, "%s%s", i ? ", " : "", spec[i].key);
    const char *copy = str_ok(&s) ? copy_text(m->t, str_c(&s)) : NULL;
    str_release(&s);
    return copy;
}

/* where: "[hardware]", or "the file" for the root. */
static void check_keys(Manifest *m, const TomlNode *table, const char *where, const KeySpec *spec, size_t n)
{
    Faults *f = &m->t->faults;
    for (uint32_t i = 0; i < table->list.len; i++) {
        const TomlNode *v = &table->list.items[i];
        const KeySpec *s = NULL;
        for (size_t j = 0; j < n && !s; j++)
            s = strcmp(spec[j].key, v->key) ? NULL : &spec[j];
        if (!s) {
            faults_add(f, m->path, v->line, tree_say(m->t, "unknown key '%s' in %s", v->key, where),
                       tree_say(m->t, "use one of %s, or remove it", keys_text(m, spec, n)));
            continue;
        }
        if (!(s->kinds & K(v->kind))) {
            faults_add(f, m->path, v->line,
                       tree_say(m->t, "'%s' in %s is of type %s", v->key, where, toml_kind_name(v->kind)),
                       tree_say(m->t, "write a value of type %s", kinds_text(m, s->kinds)));
            continue;
        }
        for (uint32_t j = 0; v->kind == TOML_ARRAY && j < v->list.len; j++)
            if (!(s->items & K(v->list.items[j].kind)))
                faults_add(f, m->path, v->list.items[j].line,
                           tree_say(m->t, "item %u of '%s' in %s is of type %s", j + 1, v->key, where,
                                    toml_kind_name(v->list.items[j].kind)),
                           tree_say(m->t, "write items of type %s", kinds_text(m, s->items)));
    }
    for (size_t j = 0; j < n; j++)
        if (spec[j].needed && !toml_find(table, spec[j].key))
            faults_add(f, m->path, table->line ? table->line : 1, tree_say(m->t, "no '%s' in %s", spec[j].key, where),
                       tree_say(m->t, "add %s, a value of type %s", spec[j].key, kinds_text(m, spec[j].kinds)));
}

/* The table under key after checking its keys; NULL when absent or no table. */
static const TomlNode *section(Manifest *m, const char *key, const KeySpec *spec, size_t n)
{
    const TomlNode *v = toml_find(&m->toml->root, key);
    if (!v || v->kind != TOML_TABLE)
        return NULL;
    check_keys(m, v, tree_say(m->t, "[%s]", key), spec, n);
    return v;
}

static const TomlNode *value(const TomlNode *table, const char *key, TomlKind kind)
{
    const TomlNode *v = table ? toml_find(table, key) : NULL;
    return v && v->kind == kind ? v : NULL;
}

static const char *text_value(Manifest *m, const TomlNode *table, const char *key)
{
    const TomlNode *v = value(table, key, TOML_STRING);
    return v ? copy_text(m->t, v->str) : NULL;
}

/* The strings of an array; lines may be NULL. True when the key is there. */
static bool text_list(Manifest *m, const TomlNode *table, const char *key, const char ***out, uint32_t **lines,
                      size_t *n)
{
    const TomlNode *v = value(table, key, TOML_ARRAY);
    if (!v)
        return false;
    *out = tree_alloc(m->t, v->list.len, sizeof **out);
    if (lines)
        *lines = tree_alloc(m->t, v->list.len, sizeof **lines);
    if (!*out || (lines && !*lines))
        return false;
    for (uint32_t i = 0; i < v->list.len; i++) {
        const TomlNode *item = &v->list.items[i];
        if (item->kind != TOML_STRING)
            continue;
        if (lines)
            (*lines)[*n] = item->line;
        (*out)[*n] = copy_text(m->t, item->str);
        if (!(*out)[*n])
            return false;
        ++*n;
    }
    return true;
}

void hardware_toml_read(Tree *t, const TreeFile *f, HwClass *c)
{
    static const KeySpec root[] = {{"hardware", K(TOML_TABLE), 0, true},
                                   {"build", K(TOML_TABLE), 0, false},
                                   {"defaults", K(TOML_TABLE), 0, false}};
    static const KeySpec hardware[] = {
        {"name", K(TOML_STRING), 0, true},       {"vendor", K(TOML_STRING), 0, true},
        {"arch", K(TOML_STRING), 0, true},       {"compute_capability", K(TOML_STRING) | K_NUMBER, 0, false},
        {"sm_count", K(TOML_INT), 0, false},     {"cores", K(TOML_INT), 0, false},
        {"memory", K_NUMBER, 0, false},          {"bandwidth", K_NUMBER, 0, true},
        {"activation", K(TOML_STRING), 0, true}, {"inherits", K(TOML_STRING), 0, false},
        {"launch_us", K_NUMBER, 0, false},
    };
    static const KeySpec build[] = {{"flags", K(TOML_ARRAY), K(TOML_STRING), false}};
    Manifest m;
    if (!manifest_open(&m, t, f))
        return;
    check_keys(&m, &m.toml->root, "the file", root, LEN(root));
    const TomlNode *hw = section(&m, "hardware", hardware, LEN(hardware));
    const char *name = text_value(&m, hw, "name");
    if (name && strcmp(name, c->name))
        faults_add(&t->faults, f->path, value(hw, "name", TOML_STRING)->line,
                   tree_say(t, "the class is named '%s' in the directory '%s'", name, c->name),
                   tree_say(t, "write name = \"%s\"", c->name));
    c->vendor_name = text_value(&m, hw, "vendor");
    c->vendor = c->vendor_name ? vendor_find(c->vendor_name) : NULL;
    if (c->vendor_name && !c->vendor)
        faults_add(&t->faults, f->path, value(hw, "vendor", TOML_STRING)->line,
                   tree_say(t, "unknown vendor '%s'", c->vendor_name), tree_say(t, "use one of %s", vendor_names()));
    c->arch = text_value(&m, hw, "arch");
    c->inherits = text_value(&m, hw, "inherits");
    if (c->inherits)
        c->inherits_line = value(hw, "inherits", TOML_STRING)->line;
    c->has_flags = text_list(&m, section(&m, "build", build, LEN(build)), "flags", &c->flags, NULL, &c->n_flags);
    /* [defaults] holds levers: which exist is declared by the program that reads them. Here each is a plain value. */
    const TomlNode *defaults = value(&m.toml->root, "defaults", TOML_TABLE);
    for (uint32_t i = 0; defaults && i < defaults->list.len; i++) {
        const TomlNode *v = &defaults->list.items[i];
        if (!(K_SCALAR & K(v->kind)))
            faults_add(&t->faults, f->path, v->line,
                       tree_say(t, "'%s' in [defaults] is of type %s", v->key, toml_kind_name(v->kind)),
                       "write a lever's value: a string, a number or a boolean");
    }
    toml_free(m.toml);
}

void model_toml_read(Tree *t, const TreeFile *f, TreeModel *model)
{
    static const KeySpec root[] = {
        {"model", K(TOML_TABLE), 0, true},     {"match", K(TOML_TABLE), 0, true},
        {"sampling", K(TOML_TABLE), 0, false}, {"thinking", K(TOML_TABLE), 0, false},
        {"tools", K(TOML_TABLE), 0, false},    {"drafts", K(TOML_TABLE), 0, false},
    };
    static const KeySpec about[] = {{"name", K(TOML_STRING), 0, true}, {"kernel_source", K(TOML_STRING), 0, false}};
    static const KeySpec match[] = {{"model_type", K(TOML_STRING) | K(TOML_ARRAY), K(TOML_STRING), true},
                                    {"dims", K(TOML_TABLE), 0, false}};
    static const KeySpec sampling[] = {
        {"temperature", K_NUMBER, 0, false},        {"top_p", K_NUMBER, 0, false},
        {"top_k", K(TOML_INT), 0, false},           {"min_p", K_NUMBER, 0, false},
        {"repetition_penalty", K_NUMBER, 0, false}, {"presence_penalty", K_NUMBER, 0, false},
        {"frequency_penalty", K_NUMBER, 0, false},
    };
    static const KeySpec thinking[] = {{"budget", K(TOML_INT), 0, false}, {"enabled", K(TOML_BOOL), 0, false}};
    static const KeySpec tools[] = {{"parser", K(TOML_STRING), 0, false}};
    static const KeySpec drafts[] = {{"model", K(TOML_STRING), 0, false}, {"tokens", K(TOML_INT), 0, false}};
    Manifest m;
    if (!manifest_open(&m, t, f))
        return;
    check_keys(&m, &m.toml->root, "the file", root, LEN(root));
    const TomlNode *about_node = section(&m, "model", about, LEN(about));
    model->kernel_source = text_value(&m, about_node, "kernel_source");
    if (model->kernel_source)
        model->kernel_source_line = value(about_node, "kernel_source", TOML_STRING)->line;
    const TomlNode *dims = value(section(&m, "match", match, LEN(match)), "dims", TOML_TABLE);
    for (uint32_t i = 0; dims && i < dims->list.len; i++)
        if (dims->list.items[i].kind != TOML_INT)
            faults_add(&t->faults, f->path, dims->list.items[i].line,
                       tree_say(t, "dim '%s' in [match.dims] is of type %s", dims->list.items[i].key,
                                toml_kind_name(dims->list.items[i].kind)),
                       "write an integer, the dim's exact value");
    section(&m, "sampling", sampling, LEN(sampling));
    section(&m, "thinking", thinking, LEN(thinking));
    section(&m, "tools", tools, LEN(tools));
    section(&m, "drafts", drafts, LEN(drafts));
    toml_free(m.toml);
}

static void shadows_read(Manifest *m, const TomlNode *table, TreeLayer *l)
{
    if (!table)
        return;
    l->shadows = tree_alloc(m->t, table->list.len, sizeof *l->shadows);
    for (uint32_t i = 0; l->shadows && i < table->list.len; i++) {
        const TomlNode *v = &table->list.items[i];
        if (v->kind == TOML_TABLE) {
            faults_add(&m->t->faults, m->path, v->line, tree_say(m->t, "[shadow] key '%s' is split at its dot", v->key),
                       tree_say(m->t, "quote the file's name: \"%s.…\" = \"the reason\"", v->key));
            continue;
        }
        if (v->kind != TOML_STRING || !v->str[strspn(v->str, " \t")]) {
            faults_add(&m->t->faults, m->path, v->line, tree_say(m->t, "the shadow of '%s' has no reason", v->key),
                       "write a sentence that names the measurement");
        }
        l->shadows[l->n_shadows++] = (ShadowDecl){
            .name = copy_text(m->t, v->key),
            .reason = v->kind == TOML_STRING ? copy_text(m->t, v->str) : "",
            .line = v->line,
        };
        if (!l->shadows[l->n_shadows - 1].name)
            l->n_shadows--;
    }
}

void kernel_toml_read(Tree *t, const TreeFile *f, TreeLayer *l)
{
    static const KeySpec root[] = {
        {"build", K(TOML_TABLE), 0, false}, {"sources", K(TOML_TABLE), 0, false}, {"shadow", K(TOML_TABLE), 0, false}};
    static const KeySpec build[] = {{"flags", K(TOML_ARRAY), K(TOML_STRING), false},
                                    {"modules", K(TOML_ARRAY), K(TOML_STRING), false}};
    static const KeySpec sources[] = {{"use", K(TOML_ARRAY), K(TOML_STRING), true}};
    Manifest m;
    if (!manifest_open(&m, t, f))
        return;
    check_keys(&m, &m.toml->root, "the file", root, LEN(root));
    const TomlNode *b = section(&m, "build", build, LEN(build));
    text_list(&m, b, "flags", &l->flags, NULL, &l->n_flags);
    l->has_modules = text_list(&m, b, "modules", &l->modules, &l->module_lines, &l->n_modules);
    text_list(&m, section(&m, "sources", sources, LEN(sources)), "use", &l->uses, &l->use_lines, &l->n_uses);
    shadows_read(&m, value(&m.toml->root, "shadow", TOML_TABLE), l);
    toml_free(m.toml);
}

static bool is_identifier(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_')
            return false;
    return true;
}

static int by_key(const void *a, const void *b)
{
    const TomlNode *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

/* "A=1 B=2": the form in which constants name an instance. NULL when out of memory or not all integers. */
static const char *constants_text(Manifest *m, const TomlNode *table, const char *entry)
{
    if (!table || !table->list.len)
        return "";
    const TomlNode **sorted = tree_alloc(m->t, table->list.len, sizeof *sorted);
    if (!sorted)
        return NULL;
    for (uint32_t i = 0; i < table->list.len; i++) {
        sorted[i] = &table->list.items[i];
        if (sorted[i]->kind != TOML_INT || !is_identifier(sorted[i]->key)) {
            faults_add(&m->t->faults, m->path, sorted[i]->line,
                       tree_say(m->t, "constant '%s' of entry '%s' is no named integer", sorted[i]->key, entry),
                       "write NAME = integer; it becomes -DNAME=integer");
            return NULL;
        }
    }
    qsort(sorted, table->list.len, sizeof *sorted, by_key);
    Str s = STR_INIT;
    for (uint32_t i = 0; i < table->list.len; i++)
        str_addf(&s, "%s%s=%lld", i ? " " : "", sorted[i]->key, (long long)sorted[i]->i);
    const char *copy = str_ok(&s) ? copy_text(m->t, str_c(&s)) : NULL;
    str_release(&s);
    return copy;
}

static void point_read(Manifest *m, const TomlNode *v, TreeFamily *family)
{
    Faults *f = &m->t->faults;
    const char *entry = text_value(m, v, "entry"), *module = text_value(m, v, "module");
    if (!entry || !is_identifier(entry)) {
        faults_add(f, m->path, v->line, tree_say(m->t, "a point of family '%s' names no entry", family->id),
                   "write entry = \"name\", an identifier that the module defines");
        return;
    }
    if (!module || !*module || strpbrk(module, "/\\")) {
        faults_add(f, m->path, v->line, tree_say(m->t, "point '%s' of family '%s' names no module", entry, family->id),
                   "write module = \"stem\", the name of its source without the extension");
        return;
    }
    const TomlNode *constants = toml_find(v, "constants");
    if (constants && constants->kind != TOML_TABLE) {
        faults_add(f, m->path, constants->line, tree_say(m->t, "the constants of entry '%s' are no table", entry),
                   "write constants = { NAME = 1 }");
        return;
    }
    const char *text = constants_text(m, constants, entry);
    if (!text)
        return;
    const char *spills = text_value(m, v, "spills");
    family->points[family->n_points++] = (TreePoint){entry, module, text, spills, v->line};
}

void families_toml_read(Tree *t, const TreeFile *f, TreeLayer *l)
{
    Manifest m;
    if (!manifest_open(&m, t, f))
        return;
    const TomlNode *list = value(&m.toml->root, "family", TOML_ARRAY);
    for (uint32_t i = 0; i < m.toml->root.list.len; i++)
        if (&m.toml->root.list.items[i] != list)
            faults_add(&t->faults, f->path, m.toml->root.list.items[i].line,
                       tree_say(t, "unknown key '%s' in the file", m.toml->root.list.items[i].key),
                       "write [[family]] tables only");
    l->families = tree_alloc(t, list ? list->list.len : 0, sizeof *l->families);
    for (uint32_t i = 0; list && l->families && i < list->list.len; i++) {
        const TomlNode *v = &list->list.items[i];
        TreeFamily fam = {.id = text_value(&m, v, "id"), .path = f->path, .line = v->line};
        if (!fam.id) {
            faults_add(&t->faults, f->path, v->line, "a family without an id", "write id = \"name\"");
            continue;
        }
        bool twice = false;
        for (size_t j = 0; j < l->n_families; j++)
            twice |= !strcmp(l->families[j].id, fam.id);
        if (twice) {
            faults_add(&t->faults, f->path, v->line, tree_say(t, "family '%s' is in this file twice", fam.id),
                       "rename one of them");
            continue;
        }
        const TomlNode *points = value(v, "point", TOML_ARRAY);
        fam.points = tree_alloc(t, points ? points->list.len : 0, sizeof *fam.points);
        for (uint32_t j = 0; points && fam.points && j < points->list.len; j++)
            point_read(&m, &points->list.items[j], &fam);
        l->families[l->n_families++] = fam;
    }
    toml_free(m.toml);
}

void rules_toml_read(Tree *t, const TreeFile *f, TreeLayer *l)
{
    Manifest m;
    if (!manifest_open(&m, t, f))
        return;
    const TomlNode *list = value(&m.toml->root, "rule", TOML_ARRAY);
    l->rules = tree_alloc(t, list ? list->list.len : 0, sizeof *l->rules);
    for (uint32_t i = 0; list && l->rules && i < list->list.len; i++) {
        const TomlNode *v = &list->list.items[i];
        TreeRule r = {text_value(&m, v, "id"), text_value(&m, v, "family"), f->path, v->line};
        if (r.family)
            l->rules[l->n_rules++] = r;
        else
            faults_add(&t->faults, f->path, v->line, "a rule without a family", "write family = \"id\"");
    }
    toml_free(m.toml);
}
