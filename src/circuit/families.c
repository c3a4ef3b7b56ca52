/* families.c - a target's FAMILIES.toml, RULES.toml and the facts of its HARDWARE.toml, read out of the embedded files.
 *
 * Layers are read first-wins: a family or rule whose id an upper layer has is read, checked for form and dropped. The
 * order of what remains - upper layers first, each in file order - is the order in which ties are decided later.
 * After load every name of every family resolves and every (entry, constants) is an object of the target. */
#include "circuit/families.h"
#include "circuit/rules.h"
#include "core/arena.h"
#include "core/toml_each.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Loader {
    const KernelRegistry *reg;
    const KernelTarget *target;
    Arena *arena;
    Toml **families, **rules; /* by layer; NULL where a layer has no such file */
    FamilySet *set;
    Family *family; /* [set->n_families] */
    Rule *rule;     /* [set->n_rules] */
} Loader;

static Status no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "out of memory while reading kernel families");
}

/* DIR/FILE among the embedded files; *out is NULL when the layer has no such file. */
static Status layer_toml(const KernelRegistry *reg, const char *dir, const char *file, Toml **out, Err *err)
{
    char path[512];
    const EmbeddedFile *f;
    int n = snprintf(path, sizeof path, "%s/%s", dir, file);

    *out = NULL;
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, ST_INVALID, "the layer directory %s has too long a name", dir);
    f = registry_file(reg, path);
    if (f == NULL)
        return ST_OK;
    Status st = toml_parse(f->text, f->len, path, out, err);
    return st == ST_OK ? toml_each(*out, err) : st;
}

/* ---- HARDWARE.toml ---------------------------------------------------------------------------------------------- */

typedef struct RawFacts {
    const char *activation, *inherits;   /* in arena */
    double bandwidth, launch_us, memory; /* 0, -1, 0: not given */
} RawFacts;

static Status read_hardware(Loader *l, const char *hw, RawFacts *out, Err *err)
{
    static const char *const tables[] = {"hardware", "build", "defaults", NULL};
    static const char *const keys[] = {"name",   "vendor",    "arch",       "compute_capability", "sm_count", "cores",
                                       "memory", "bandwidth", "activation", "launch_us",          "inherits", NULL};
    char dir[256];
    Toml *t = NULL;
    const TomlNode *h;
    const char *activation = NULL, *inherits = NULL;
    Status st = ST_OK;
    int n = snprintf(dir, sizeof dir, "kernels/%s", hw);

    *out = (RawFacts){.launch_us = -1};
    if (n < 0 || (size_t)n >= sizeof dir)
        return err_set(err, ST_INVALID, "hardware class '%.64s...' has too long a name", hw);
    TRY(layer_toml(l->reg, dir, "HARDWARE.toml", &t, err));
    if (t == NULL)
        return err_set(err, ST_NOTFOUND, "%s/HARDWARE.toml is not in this binary; target %s cannot be planned", dir,
                       l->target->name);
    TRY(toml_only(t, &t->root, tables, err));
    TRY(toml_table(t, &t->root, "hardware", &h, err));
    if (h == NULL) {
        st = toml_err(t, &t->root, err, ST_FORMAT, "the table [hardware] is missing");
        goto done;
    }
    TRY(toml_only(t, h, keys, err));
    TRY(toml_str(t, h, "activation", &activation, err));
    TRY(toml_str(t, h, "inherits", &inherits, err));
    TRY(toml_float(t, h, "bandwidth", &out->bandwidth, err));
    TRY(toml_float(t, h, "launch_us", &out->launch_us, err));
    TRY(toml_float(t, h, "memory", &out->memory, err));
    if (activation != NULL && (out->activation = arena_strdup(l->arena, activation)) == NULL)
        TRY(no_memory(err));
    if (inherits != NULL && (out->inherits = arena_strdup(l->arena, inherits)) == NULL)
        TRY(no_memory(err));
done:
    toml_free(t);
    return st;
}

static Status read_facts(Loader *l, ClassFacts *out, Err *err)
{
    RawFacts own, parent;
    const char *hw = l->target->hw;
    Status st = read_hardware(l, hw, &own, err);

    if (st == ST_OK && own.inherits != NULL) {
        st = read_hardware(l, own.inherits, &parent, err);
        if (own.activation == NULL)
            own.activation = parent.activation;
        if (own.bandwidth == 0)
            own.bandwidth = parent.bandwidth;
        if (own.memory == 0)
            own.memory = parent.memory;
        if (own.launch_us < 0)
            own.launch_us = parent.launch_us;
    }
    if (st != ST_OK)
        return st;
    if (own.activation == NULL || !dtype_parse(own.activation, &out->activation))
        return err_set(err, ST_FORMAT,
                       "kernels/%s/HARDWARE.toml: [hardware] activation must name the format of "
                       "activations, as in activation = \"f32\"",
                       hw);
    if (!(own.bandwidth > 0) || !(own.launch_us >= 0))
        return err_set(err, ST_FORMAT,
                       "kernels/%s/HARDWARE.toml: [hardware] needs bandwidth (GB/s, above 0) and "
                       "launch_us (0 or more) for the cost model",
                       hw);
    out->name = hw;
    out->bandwidth = own.bandwidth * 1e9;
    out->launch_s = own.launch_us * 1e-6;
    out->memory = own.memory * 1e9;
    return ST_OK;
}

/* ---- a point ---------------------------------------------------------------------------------------------------- */

typedef struct NamedInt {
    const char *name;
    int64_t value;
} NamedInt;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const NamedInt *)a)->name, ((const NamedInt *)b)->name);
}

/* A table of integers, sorted by name, as two arrays. */
static Status read_ints(Loader *l, const Toml *t, const TomlNode *table, const char *key, uint32_t *n,
                        const char *const **names, const int64_t **values, Err *err)
{
    const TomlNode *ints;
    NamedInt *sorted;
    const char **name_list;
    int64_t *value_list;
    Status st = toml_table(t, table, key, &ints, err);

    *n = 0;
    if (st != ST_OK || ints == NULL)
        return st;
    sorted = ARENA_ARRAY(l->arena, NamedInt, ints->list.len);
    name_list = ARENA_ARRAY(l->arena, const char *, ints->list.len);
    value_list = ARENA_ARRAY(l->arena, int64_t, ints->list.len);
    if (sorted == NULL || name_list == NULL || value_list == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < ints->list.len; i++) {
        const TomlNode *v = &ints->list.items[i];
        if (v->kind != TOML_INT)
            return toml_err(t, v, err, ST_FORMAT, "'%s.%s' must be an integer", key, v->key);
        sorted[i] = (NamedInt){arena_strdup(l->arena, v->key), v->i};
        if (sorted[i].name == NULL)
            return no_memory(err);
    }
    qsort(sorted, ints->list.len, sizeof *sorted, by_name);
    for (uint32_t i = 0; i < ints->list.len; i++) {
        name_list[i] = sorted[i].name;
        value_list[i] = sorted[i].value;
    }
    *n = ints->list.len;
    *names = name_list;
    *values = value_list;
    return ST_OK;
}

/* "A=1 B=2", sorted by name: the text by which the build named the instance. */
static const char *canonical_constants(Arena *a, const FamilyPoint *p)
{
    const char *text = "";

    for (uint32_t i = 0; text != NULL && i < p->n_constants; i++)
        text = arena_printf(a, "%s%s%s=%lld", text, i > 0 ? " " : "", p->constant_names[i],
                            (long long)p->constant_values[i]);
    return text;
}

static Status read_expr(Loader *l, const Toml *t, const TomlNode *at, const char *text, const Expr **out, Err *err)
{
    Err inner;
    Expr *e = NULL;
    Status st = expr_parse(text, l->arena, &e, &inner);

    if (st != ST_OK)
        return toml_err(t, at, err, st, "%s", inner.msg);
    *out = e;
    return ST_OK;
}

static Status read_geometry(Loader *l, const Toml *t, const TomlNode *table, FamilyPoint *out, Err *err)
{
    const TomlNode *grid;
    const char *smem = "0", *workspace = "0";
    int64_t block = 0;
    Status st = ST_OK;

    TRY(toml_array(t, table, "grid", &grid, err));
    if (grid == NULL || grid->list.len != 3)
        return toml_err(t, grid == NULL ? table : grid, err, ST_FORMAT,
                        "'grid' must list three expressions, as in "
                        "grid = [\"rows\", \"1\", \"1\"]");
    for (uint32_t i = 0; i < 3; i++) {
        const TomlNode *v = &grid->list.items[i];
        if (v->kind != TOML_STRING)
            return toml_err(t, v, err, ST_FORMAT, "'grid' holds expressions as strings");
        TRY(read_expr(l, t, v, v->str, &out->grid[i], err));
    }
    TRY(toml_str(t, table, "smem", &smem, err));
    TRY(read_expr(l, t, table, smem, &out->smem, err));
    TRY(toml_str(t, table, "workspace", &workspace, err));
    TRY(read_expr(l, t, table, workspace, &out->workspace, err));
    TRY(toml_int(t, table, "block", &block, err));
    if (block < 1 || block > 1024)
        return toml_err(t, table, err, ST_FORMAT, "'block' must be 1 to 1024 threads");
    out->block = (uint32_t)block;
done:
    return st;
}

static Status read_rows(const Toml *t, const TomlNode *table, FamilyPoint *out, Err *err)
{
    const TomlNode *rows;
    int64_t v[2];
    Status st = toml_array(t, table, "rows", &rows, err);

    if (st != ST_OK)
        return st;
    if (rows == NULL || rows->list.len != 2 || rows->list.items[0].kind != TOML_INT ||
        rows->list.items[1].kind != TOML_INT)
        return toml_err(t, rows == NULL ? table : rows, err, ST_FORMAT, "'rows' must be [lo, hi]; hi 0 means no bound");
    v[0] = rows->list.items[0].i;
    v[1] = rows->list.items[1].i;
    if (v[0] < 1 || v[1] < 0 || v[0] > INT32_MAX || v[1] > INT32_MAX || (v[1] != 0 && v[0] > v[1]))
        return toml_err(t, rows, err, ST_FORMAT, "'rows' is [%lld, %lld]; lo must be at least 1 and at most hi",
                        (long long)v[0], (long long)v[1]);
    out->rows_lo = (uint32_t)v[0];
    out->rows_hi = (uint32_t)v[1];
    return ST_OK;
}

static Status read_point(Loader *l, const Toml *t, const TomlNode *table, FamilyPoint *out, Err *err)
{
    static const char *const keys[] = {"entry", "module",    "rows",    "where",    "constants", "grid", "block",
                                       "smem",  "workspace", "overlap", "evidence", "spills",    NULL};
    const char *entry = NULL, *module = NULL, *evidence = NULL, *spills = NULL;
    Status st = ST_OK;

    TRY(toml_only(t, table, keys, err));
    TRY(toml_need_str(t, table, "entry", &entry, err));
    TRY(toml_need_str(t, table, "module", &module, err));
    TRY(toml_str(t, table, "evidence", &evidence, err));
    TRY(toml_str(t, table, "spills", &spills, err));
    TRY(toml_bool(t, table, "overlap", &out->overlap, err));
    out->entry = arena_strdup(l->arena, entry);
    out->module = arena_strdup(l->arena, module);
    if (evidence != NULL && (out->evidence = arena_strdup(l->arena, evidence)) == NULL)
        return no_memory(err);
    TRY(read_rows(t, table, out, err));
    TRY(read_ints(l, t, table, "where", &out->n_where, &out->where_names, &out->where_values, err));
    TRY(read_ints(l, t, table, "constants", &out->n_constants, &out->constant_names, &out->constant_values, err));
    TRY(read_geometry(l, t, table, out, err));
    out->constants = canonical_constants(l->arena, out);
    if (out->entry == NULL || out->module == NULL || out->constants == NULL)
        return no_memory(err);
done:
    return st;
}

/* ---- a family --------------------------------------------------------------------------------------------------- */

static Status read_formats(Loader *l, const Toml *t, const TomlNode *table, Family *out, Err *err)
{
    const TomlNode *list;
    FamilyFormat *formats;
    Status st = toml_table(t, table, "formats", &list, err);

    if (st != ST_OK || list == NULL)
        return st;
    formats = ARENA_ARRAY(l->arena, FamilyFormat, list->list.len);
    if (formats == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < list->list.len; i++) {
        const TomlNode *v = &list->list.items[i];
        if (v->kind != TOML_STRING || !dtype_parse(v->str, &formats[i].dtype))
            return toml_err(t, v, err, ST_FORMAT, "'formats.%s' names no format; write one such as \"f32\" or \"q4_1\"",
                            v->key);
        formats[i].name = arena_strdup(l->arena, v->key);
        if (formats[i].name == NULL)
            return no_memory(err);
    }
    out->n_formats = list->list.len;
    out->formats = formats;
    return ST_OK;
}

/* "NAME:BINDING", or one word for both. */
static Status read_args(Loader *l, const Toml *t, const TomlNode *table, Family *out, Err *err)
{
    const TomlNode *list;
    FamilyArg *args;
    Status st = toml_array(t, table, "args", &list, err);

    if (st != ST_OK)
        return st;
    if (list == NULL || list->list.len == 0)
        return toml_err(t, table, err, ST_FORMAT, "'args' is missing; list the kernel's arguments in order");
    args = ARENA_ARRAY(l->arena, FamilyArg, list->list.len);
    if (args == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < list->list.len; i++) {
        const TomlNode *v = &list->list.items[i];
        const char *colon = v->kind == TOML_STRING ? strchr(v->str, ':') : NULL;
        if (v->kind != TOML_STRING || v->str[0] == '\0' || colon == v->str || (colon != NULL && colon[1] == '\0'))
            return toml_err(t, v, err, ST_FORMAT, "an argument is \"NAME:BINDING\" or one word");
        args[i].name =
            colon == NULL ? arena_strdup(l->arena, v->str) : arena_strndup(l->arena, v->str, (size_t)(colon - v->str));
        args[i].binding = arena_strdup(l->arena, colon == NULL ? v->str : colon + 1);
        if (args[i].name == NULL || args[i].binding == NULL)
            return no_memory(err);
    }
    out->n_args = list->list.len;
    out->args = args;
    return ST_OK;
}

static Status read_inplace(Loader *l, const Toml *t, const TomlNode *table, Family *out, Err *err)
{
    const TomlNode *list;
    const char **texts;
    Status st = toml_array(t, table, "inplace", &list, err);

    if (st != ST_OK || list == NULL)
        return st;
    texts = ARENA_ARRAY(l->arena, const char *, list->list.len);
    if (texts == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < list->list.len; i++) {
        const TomlNode *v = &list->list.items[i];
        if (v->kind != TOML_STRING)
            return toml_err(t, v, err, ST_FORMAT, "'inplace' holds strings \"OUT=IN\"");
        texts[i] = arena_strdup(l->arena, v->str);
        if (texts[i] == NULL)
            return no_memory(err);
    }
    out->n_inplace = list->list.len;
    out->inplace = texts;
    return ST_OK;
}

static Status read_points(Loader *l, const Toml *t, const TomlNode *table, Family *out, Err *err)
{
    const TomlNode *list;
    FamilyPoint *points;
    Status st = toml_array(t, table, "point", &list, err);

    if (st != ST_OK)
        return st;
    if (list == NULL || list->list.len == 0)
        return toml_err(t, table, err, ST_FORMAT, "family %s has no [[family.point]]", out->id);
    points = ARENA_ARRAY(l->arena, FamilyPoint, list->list.len);
    if (points == NULL)
        return no_memory(err);
    for (uint32_t i = 0; st == ST_OK && i < list->list.len; i++)
        st = read_point(l, t, &list->list.items[i], &points[i], err);
    out->n_points = list->list.len;
    out->points = points;
    return st;
}

static Status read_family(Loader *l, const Toml *t, const TomlNode *table, Family *out, Err *err)
{
    static const char *const keys[] = {"id",   "op",      "formats",  "layout", "inplace",
                                       "args", "compute", "numerics", "point",  NULL};
    const char *id = NULL, *op = NULL, *layout = "row", *compute = "vector", *numerics = NULL;
    Status st = ST_OK;

    *out = (Family){.line = table->line};
    TRY(toml_only(t, table, keys, err));
    TRY(toml_need_str(t, table, "id", &id, err));
    TRY(toml_str(t, table, "op", &op, err));
    TRY(toml_str(t, table, "layout", &layout, err));
    TRY(toml_str(t, table, "compute", &compute, err));
    TRY(toml_need_str(t, table, "numerics", &numerics, err));
    if (op != NULL && (out->op = op_find(op)) == NULL)
        return toml_err(t, table, err, ST_FORMAT, "family %s: there is no op '%s'", id, op);
    if (strcmp(compute, "tensor") != 0 && strcmp(compute, "vector") != 0 && strcmp(compute, "memory") != 0)
        return toml_err(t, table, err, ST_FORMAT, "family %s: compute is \"tensor\", \"vector\" or \"memory\"", id);
    out->id = arena_strdup(l->arena, id);
    out->layout = arena_strdup(l->arena, layout);
    out->numerics = arena_strdup(l->arena, numerics);
    out->file = arena_strdup(l->arena, t->name);
    if (out->id == NULL || out->layout == NULL || out->numerics == NULL || out->file == NULL)
        return no_memory(err);
    TRY(read_formats(l, t, table, out, err));
    TRY(read_args(l, t, table, out, err));
    TRY(read_inplace(l, t, table, out, err));
    TRY(read_points(l, t, table, out, err));
done:
    return st;
}

/* ---- merging ---------------------------------------------------------------------------------------------------- */

/* The [[key]] items of one layer's file, whose only top-level key that is. */
static Status items_of(const Toml *t, const char *key, const TomlNode **out, Err *err)
{
    const char *const keys[] = {key, NULL};
    Status st = toml_only(t, &t->root, keys, err);

    return st == ST_OK ? toml_array(t, &t->root, key, out, err) : st;
}

static Status parse_layers(Loader *l, uint32_t *n_families, uint32_t *n_rules, Err *err)
{
    const TomlNode *items;
    Status st = ST_OK;

    for (size_t i = 0; i < l->target->n_layers; i++) {
        TRY(layer_toml(l->reg, l->target->layers[i], "FAMILIES.toml", &l->families[i], err));
        TRY(layer_toml(l->reg, l->target->layers[i], "RULES.toml", &l->rules[i], err));
        if (l->families[i] != NULL) {
            TRY(items_of(l->families[i], "family", &items, err));
            *n_families += items == NULL ? 0 : items->list.len;
        }
        if (l->rules[i] != NULL) {
            TRY(items_of(l->rules[i], "rule", &items, err));
            *n_rules += items == NULL ? 0 : items->list.len;
        }
    }
done:
    return st;
}

static Status merge_families(Loader *l, Err *err)
{
    const TomlNode *items;
    Status st = ST_OK;

    for (size_t i = 0; i < l->target->n_layers; i++) {
        uint32_t upper = l->set->n_families;
        if (l->families[i] == NULL)
            continue;
        TRY(items_of(l->families[i], "family", &items, err));
        for (uint32_t j = 0; items != NULL && j < items->list.len; j++) {
            Family *f = &l->family[l->set->n_families];
            bool hidden = false;
            TRY(read_family(l, l->families[i], &items->list.items[j], f, err));
            for (uint32_t k = 0; k < l->set->n_families; k++) {
                if (strcmp(l->family[k].id, f->id) != 0)
                    continue;
                if (k >= upper)
                    return toml_err(l->families[i], &items->list.items[j], err, ST_FORMAT,
                                    "family %s is defined a second time; the first is in line %u", f->id,
                                    l->family[k].line);
                hidden = true;
            }
            l->set->n_families += !hidden;
        }
    }
done:
    return st;
}

static Status merge_rules(Loader *l, Err *err)
{
    const TomlNode *items;
    Status st = ST_OK;

    for (size_t i = 0; i < l->target->n_layers; i++) {
        uint32_t upper = l->set->n_rules;
        if (l->rules[i] == NULL)
            continue;
        TRY(items_of(l->rules[i], "rule", &items, err));
        for (uint32_t j = 0; items != NULL && j < items->list.len; j++) {
            const TomlNode *item = &items->list.items[j];
            const char *id = NULL;
            bool hidden = false;
            TRY(toml_need_str(l->rules[i], item, "id", &id, err));
            for (uint32_t k = 0; k < l->set->n_rules; k++) {
                if (strcmp(l->rule[k].id, id) != 0)
                    continue;
                if (k >= upper)
                    return toml_err(l->rules[i], item, err, ST_FORMAT, "rule %s is defined a second time", id);
                hidden = true;
            }
            if (hidden) /* its family may be gone with it */
                continue;
            TRY(rule_read(&l->rule[l->set->n_rules], l->rules[i], item, l->family, l->set->n_families, l->arena, err));
            l->set->n_rules++;
        }
    }
    for (uint32_t i = 0; i < l->set->n_families; i++) {
        const Family *f = &l->family[i];
        Err inner;
        if (f->op == NULL)
            continue;
        TRY(rule_imply(&l->rule[l->set->n_rules], f, l->arena, err));
        st = rule_check(&l->rule[l->set->n_rules], l->arena, &inner);
        if (st != ST_OK)
            return err_set(err, st, "%s:%u: family %s: %s", f->file, f->line, f->id, inner.msg);
        l->set->n_rules++;
    }
done:
    return st;
}

/* ---- what must hold over all families --------------------------------------------------------------------------- */

static bool has_rule(const FamilySet *fs, const Family *f)
{
    for (uint32_t i = 0; i < fs->n_rules; i++)
        if (fs->rules[i].family == f)
            return true;
    return false;
}

static Status check_entry_owner(const FamilySet *fs, const Family *f, const FamilyPoint *p, Err *err)
{
    for (const Family *g = fs->families; g < f; g++)
        for (uint32_t i = 0; i < g->n_points; i++)
            if (strcmp(g->points[i].entry, p->entry) == 0)
                return err_set(err, ST_FORMAT,
                               "%s:%u: entry %s belongs to family %s and, in %s:%u, to family %s; an entry "
                               "has one family",
                               f->file, f->line, p->entry, f->id, g->file, g->line, g->id);
    return ST_OK;
}

static Status check_object(const KernelTarget *t, const Family *f, const FamilyPoint *p, Err *err)
{
    const KernelObject *o = target_object(t, p->entry, p->constants);

    if (t->hash == NULL) /* described, not built */
        return ST_OK;
    if (o == NULL)
        return err_set(err, ST_NOTFOUND, "%s:%u: family %s: target %s has no kernel %s[%s]; build it or drop the point",
                       f->file, f->line, f->id, t->name, p->entry, p->constants);
    if (strcmp(o->module, p->module) != 0)
        return err_set(err, ST_FORMAT, "%s:%u: family %s: kernel %s comes from module %s, not %s", f->file, f->line,
                       f->id, p->entry, o->module, p->module);
    return ST_OK;
}

static Status check_set(const FamilySet *fs, Err *err)
{
    Status st = ST_OK;

    for (const Family *f = fs->families; f < fs->families + fs->n_families; f++) {
        if (!has_rule(fs, f))
            return err_set(err, ST_FORMAT, "%s:%u: family %s has no op and no rule of RULES.toml uses it", f->file,
                           f->line, f->id);
        for (uint32_t i = 0; i < f->n_points; i++) {
            TRY(check_entry_owner(fs, f, &f->points[i], err));
            TRY(check_object(fs->target, f, &f->points[i], err));
        }
    }
done:
    return st;
}

Status families_load(FamilySet **out, const KernelRegistry *reg, const KernelTarget *t, Err *err)
{
    Loader l = {.reg = reg, .target = t, .arena = arena_new()};
    uint32_t n_families = 0, n_rules = 0;
    Status st = ST_OK;

    if (l.arena == NULL)
        return no_memory(err);
    l.set = ARENA_NEW(l.arena, FamilySet);
    l.families = ARENA_ARRAY(l.arena, Toml *, t->n_layers);
    l.rules = ARENA_ARRAY(l.arena, Toml *, t->n_layers);
    if (l.set == NULL || l.families == NULL || l.rules == NULL) {
        st = no_memory(err);
        l.families = NULL;
        goto done;
    }
    TRY(parse_layers(&l, &n_families, &n_rules, err));
    l.family = ARENA_ARRAY(l.arena, Family, n_families);
    l.rule = ARENA_ARRAY(l.arena, Rule, (size_t)n_families + n_rules);
    if (l.family == NULL || l.rule == NULL)
        TRY(no_memory(err));
    l.set->target = t;
    l.set->families = l.family;
    l.set->rules = l.rule;
    TRY(read_facts(&l, &l.set->facts, err));
    TRY(merge_families(&l, err));
    TRY(merge_rules(&l, err));
    TRY(check_set(l.set, err));
    l.set->arena = l.arena;
    *out = l.set;
    l.arena = NULL;
done:
    for (size_t i = 0; l.families != NULL && i < t->n_layers; i++) {
        toml_free(l.families[i]);
        toml_free(l.rules[i]);
    }
    arena_free(l.arena);
    return st;
}

void families_free(FamilySet *fs)
{
    if (fs != NULL)
        arena_free(fs->arena);
}
