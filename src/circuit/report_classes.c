/* report_classes.c - every class of kernels/ as its TOML files describe it, and what the reports share.
 *
 * Targets are put together by the rule that the build driver follows (a model's own leaf, own common/, then the
 * parent's), but of directories that hold TOML files, which every leaf and every common/ does. */
#include "circuit/report_parts.h"
#include "circuit/target.h"
#include "core/toml.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CLASSES = 64, MAX_TARGETS = 4096, MAX_SETS = 256 };

typedef struct Builder {
    const KernelRegistry *reg;
    Classes *c;
    Arena *arena;
    KernelTarget *targets;
    size_t n_targets;
} Builder;

static Status no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "out of memory for the report");
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Is there a file below the directory? */
static bool has_dir(const KernelRegistry *reg, const char *dir)
{
    const size_t len = strlen(dir);

    for (size_t i = 0; i < reg->n_files; i++)
        if (strncmp(reg->files[i].path, dir, len) == 0 && reg->files[i].path[len] == '/')
            return true;
    return false;
}

/* Part i of a path, counted from 0, or NULL. */
static const char *path_part(Arena *a, const char *path, int i)
{
    for (; i > 0 && path; i--) {
        path = strchr(path, '/');
        path = path ? path + 1 : NULL;
    }
    return path ? arena_strndup(a, path, strcspn(path, "/")) : NULL;
}

static Status open_file(const KernelRegistry *reg, const char *path, Toml **out, Err *err)
{
    const EmbeddedFile *f = path ? registry_file(reg, path) : NULL;

    *out = NULL;
    return f ? toml_parse(f->text, f->len, f->path, out, err) : ST_OK;
}

/* The string KEY of [TABLE] in a file, in the arena; "" when there is none. */
static Status read_text(Builder *b, const char *path, const char *table, const char *key, const char **out, Err *err)
{
    Toml *t = NULL;
    const TomlNode *node = NULL;
    const char *text = "";
    Status st = ST_OK;

    TRY(open_file(b->reg, path, &t, err));
    if (t)
        TRY(toml_table(t, &t->root, table, &node, err));
    if (node)
        TRY(toml_str(t, node, key, &text, err));
    *out = arena_strdup(b->arena, text);
    if (*out == NULL)
        TRY(no_memory(err));
done:
    toml_free(t);
    return st;
}

/* How many shadows the KERNEL.toml files below kernels/HW declare. */
static Status count_shadows(Builder *b, ReportClass *hw, Err *err)
{
    const char *dir = arena_printf(b->arena, "kernels/%s/", hw->name);
    Status st = ST_OK;
    Toml *t = NULL;

    if (dir == NULL)
        return no_memory(err);
    for (size_t i = 0; i < b->reg->n_files; i++) {
        const TomlNode *shadow = NULL;
        const char *path = b->reg->files[i].path;
        if (!str_starts(path, dir) || !str_ends(path, "/KERNEL.toml"))
            continue;
        TRY(open_file(b->reg, path, &t, err));
        TRY(toml_table(t, &t->root, "shadow", &shadow, err));
        hw->residual += shadow ? shadow->list.len : 0;
        toml_free(t);
        t = NULL;
    }
done:
    toml_free(t);
    return st;
}

/* ---- targets ----------------------------------------------------------------------------------------------------- */

/* Appends DIR to the target's layers when it exists. */
static Status add_layer(Builder *b, KernelTarget *t, const char **layers, const char *dir, Err *err)
{
    if (dir == NULL)
        return no_memory(err);
    if (has_dir(b->reg, dir))
        layers[t->n_layers++] = dir;
    return ST_OK;
}

/* leaf NULL: common layers only. */
static Status describe(Builder *b, KernelTarget *t, const ReportClass *hw, const char *leaf, Err *err)
{
    const char **layers = ARENA_ARRAY(b->arena, const char *, 4);
    const char *classes[2] = {hw->name, *hw->inherits ? hw->inherits : NULL};
    Status st = ST_OK;

    if (layers == NULL)
        return no_memory(err);
    for (int i = 0; i < 2 && classes[i]; i++) {
        if (leaf)
            TRY(add_layer(b, t, layers, arena_printf(b->arena, "kernels/%s/%s", classes[i], leaf), err));
        TRY(add_layer(b, t, layers, arena_printf(b->arena, "kernels/%s/common", classes[i]), err));
    }
    t->hw = hw->name;
    t->arch = hw->arch;
    t->vendor = hw->vendor;
    t->layers = layers;
done:
    return st;
}

static bool has_target(const Builder *b, const char *name)
{
    for (size_t i = 0; i < b->n_targets; i++)
        if (strcmp(b->targets[i].name, name) == 0)
            return true;
    return false;
}

/* The targets of one model of hw: a quant directory for each leaf of its source, in the class or its parent. */
static Status add_model(Builder *b, const ReportClass *hw, const char *model, const char *source, Err *err)
{
    Status st = ST_OK;

    for (size_t i = 0; i < b->reg->n_files; i++) {
        const char *path = b->reg->files[i].path, *of = path_part(b->arena, path, 1),
                   *dir = path_part(b->arena, path, 2), *quant = path_part(b->arena, path, 3), *name;
        KernelTarget *t = &b->targets[b->n_targets];
        if (!str_starts(path, "kernels/") || !of || !dir || !quant || path_part(b->arena, path, 4) == NULL ||
            strcmp(dir, source) != 0 || (strcmp(of, hw->name) != 0 && strcmp(of, hw->inherits) != 0))
            continue;
        name = arena_printf(b->arena, "%s/%s/%s", hw->name, model, quant);
        if (name == NULL)
            return no_memory(err);
        if (has_target(b, name))
            continue;
        if (b->n_targets == MAX_TARGETS)
            return err_set(err, ST_UNSUPPORTED, "the kernel tree has more than %d targets", MAX_TARGETS);
        *t = (KernelTarget){.name = name, .model = model, .quant = quant};
        TRY(describe(b, t, hw, arena_printf(b->arena, "%s/%s", source, quant), err));
        b->n_targets++;
    }
done:
    return st;
}

static Status add_models(Builder *b, const ReportClass *hw, Err *err)
{
    Status st = ST_OK;

    for (size_t i = 0; i < b->reg->n_files; i++) {
        const char *path = b->reg->files[i].path, *of, *model, *source;
        if (!str_starts(path, "kernels/") || !str_ends(path, "/MODEL.toml"))
            continue;
        of = path_part(b->arena, path, 1);
        model = path_part(b->arena, path, 2);
        if (of == NULL || model == NULL)
            return no_memory(err);
        if (strcmp(of, hw->name) != 0 && strcmp(of, hw->inherits) != 0)
            continue;
        TRY(read_text(b, path, "model", "kernel_source", &source, err));
        TRY(add_model(b, hw, model, *source ? source : model, err));
    }
done:
    return st;
}

/* ---- families ---------------------------------------------------------------------------------------------------- */

static bool same_tables(const KernelRegistry *reg, const KernelTarget *a, const KernelTarget *b)
{
    size_t i = 0, j = 0;

    for (;;) { /* layers without tables do not count */
        char path[512];
        for (; i < a->n_layers; i++)
            if (snprintf(path, sizeof path, "%s/FAMILIES.toml", a->layers[i]) < (int)sizeof path &&
                registry_file(reg, path))
                break;
        for (; j < b->n_layers; j++)
            if (snprintf(path, sizeof path, "%s/FAMILIES.toml", b->layers[j]) < (int)sizeof path &&
                registry_file(reg, path))
                break;
        if (i == a->n_layers || j == b->n_layers)
            return i == a->n_layers && j == b->n_layers;
        if (strcmp(a->layers[i++], b->layers[j++]) != 0)
            return false;
    }
}

static const Rule *rule_of(const FamilySet *fs, const Family *f)
{
    for (uint32_t i = 0; i < fs->n_rules; i++)
        if (fs->rules[i].family == f)
            return &fs->rules[i];
    return NULL;
}

/* Adds what the class does not have yet: a definition is known by its place. */
static Status add_families(Builder *b, ReportClass *hw, const FamilySet *fs, Err *err)
{
    const Family **families = ARENA_ARRAY(b->arena, const Family *, (size_t)hw->n_families + fs->n_families + 1);
    const Rule **rules = ARENA_ARRAY(b->arena, const Rule *, (size_t)hw->n_families + fs->n_families + 1);

    if (families == NULL || rules == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < hw->n_families; i++) {
        families[i] = hw->families[i];
        rules[i] = hw->rules[i];
    }
    hw->families = families;
    hw->rules = rules;
    for (uint32_t i = 0; i < fs->n_families; i++) {
        const Family *f = &fs->families[i];
        bool known = false;
        for (uint32_t k = 0; k < hw->n_families; k++)
            known |= hw->families[k]->line == f->line && strcmp(hw->families[k]->file, f->file) == 0;
        if (known)
            continue;
        families[hw->n_families] = f;
        rules[hw->n_families++] = rule_of(fs, f);
    }
    return ST_OK;
}

static Status load_set(Builder *b, ReportClass *hw, const KernelTarget *t, Err *err)
{
    Classes *c = b->c;
    Status st = ST_OK;

    for (size_t i = 0; i < c->n_sets; i++)
        if (strcmp(c->sets[i]->target->hw, t->hw) == 0 && same_tables(b->reg, c->sets[i]->target, t))
            return ST_OK;
    if (c->n_sets == MAX_SETS)
        return err_set(err, ST_UNSUPPORTED, "the kernel tree has more than %d different sets of families", MAX_SETS);
    TRY(families_load(&c->sets[c->n_sets], b->reg, t, err));
    c->n_sets++;
    TRY(add_families(b, hw, c->sets[c->n_sets - 1], err));
done:
    return st;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

static Status add_class(Builder *b, ReportClass *hw, const char *path, Err *err)
{
    Status st = ST_OK;
    const size_t first = b->n_targets;

    *hw = (ReportClass){.name = path_part(b->arena, path, 1)};
    if (hw->name == NULL)
        return no_memory(err);
    TRY(read_text(b, path, "hardware", "vendor", &hw->vendor, err));
    TRY(read_text(b, path, "hardware", "arch", &hw->arch, err));
    TRY(read_text(b, path, "hardware", "inherits", &hw->inherits, err));
    for (size_t i = 0; i < b->reg->n_targets; i++)
        hw->built |= strcmp(b->reg->targets[i].hw, hw->name) == 0;
    hw->common = (KernelTarget){.name = hw->name, .model = "", .quant = ""};
    TRY(describe(b, &hw->common, hw, NULL, err));
    TRY(count_shadows(b, hw, err));
    TRY(add_models(b, hw, err));
    TRY(load_set(b, hw, &hw->common, err));
    for (size_t i = first; i < b->n_targets; i++)
        TRY(load_set(b, hw, &b->targets[i], err));
done:
    return st;
}

Status classes_new(Classes **out, const KernelRegistry *reg, Err *err)
{
    Builder b = {.reg = reg, .arena = arena_new()};
    Status st = ST_OK;

    if (b.arena == NULL)
        return no_memory(err);
    b.c = ARENA_NEW(b.arena, Classes);
    b.targets = ARENA_ARRAY(b.arena, KernelTarget, MAX_TARGETS);
    if (b.c == NULL || b.targets == NULL) {
        arena_free(b.arena);
        return no_memory(err);
    }
    b.c->arena = b.arena;
    b.c->classes = ARENA_ARRAY(b.arena, ReportClass, MAX_CLASSES);
    b.c->sets = ARENA_ARRAY(b.arena, FamilySet *, MAX_SETS);
    if (b.c->classes == NULL || b.c->sets == NULL)
        TRY(no_memory(err));
    for (size_t i = 0; i < reg->n_files; i++) {
        if (!str_starts(reg->files[i].path, "kernels/") || !str_ends(reg->files[i].path, "/HARDWARE.toml"))
            continue;
        if (b.c->n_classes == MAX_CLASSES)
            TRY(err_set(err, ST_UNSUPPORTED, "the kernel tree has more than %d classes", MAX_CLASSES));
        TRY(add_class(&b, &b.c->classes[b.c->n_classes], reg->files[i].path, err));
        b.c->n_classes++;
    }
    b.c->reg =
        (KernelRegistry){.targets = b.targets, .n_targets = b.n_targets, .files = reg->files, .n_files = reg->n_files};
    *out = b.c;
    b.c = NULL;
done:
    classes_free(b.c);
    return st;
}

void classes_free(Classes *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->n_sets; i++)
        families_free(c->sets[i]);
    arena_free(c->arena);
}

Status classes_find(const Classes *c, const char *name, const ReportClass **out, Err *err)
{
    Str list = STR_INIT;

    for (size_t i = 0; i < c->n_classes; i++) {
        if (strcmp(c->classes[i].name, name) == 0) {
            *out = &c->classes[i];
            str_release(&list);
            return ST_OK;
        }
        str_addf(&list, "%s%s", i ? ", " : "", c->classes[i].name);
    }
    err_set(err, ST_INVALID, "\"%s\" is no hardware class; there are %s", name, str_c(&list));
    str_release(&list);
    return ST_INVALID;
}

/* ---- shared by the reports --------------------------------------------------------------------------------------- */

Status report_families(FamilySet **out, const KernelTarget **target, Str *why, const Classes *c, const ReportClass *hw,
                       const Instance *in, Err *err)
{
    Err none;
    Status st = target_choose(target, &c->reg, hw->name, in, NULL, &none);

    if (st == ST_UNSUPPORTED) {
        *target = NULL;
        str_addf(why, "no target of class %s serves model_type '%s'", hw->name, in->model_type);
        return families_load(out, &c->reg, &hw->common, err);
    }
    return st == ST_OK ? families_load(out, &c->reg, *target, err) : err_set(err, st, "%s", none.msg);
}

static Status visit_block(Lowering *l, const InstanceBlock *src, BlockRole role, ReportVisit visit, void *ctx, Err *err)
{
    LowerBlock b;
    Match **matches = NULL;
    uint32_t n = 0;
    Status st = ST_OK;

    TRY(quantize_block(&b, l, src, role, err));
    TRY(match_all(&matches, &n, l, &b, err));
    TRY(visit(ctx, l, &b, matches, n, err));
done:
    free(matches);
    return st;
}

Status report_each_block(const FamilySet *fs, const ReportNeed *need, ReportVisit visit, void *ctx, Err *err)
{
    Status st = ST_OK;
    Arena *arena = NULL;

    for (uint32_t s = 0; s < need->n_shapes; s++) {
        const LowerOptions opt = {.shape = need->shapes[s], .batch_invariant = need->batch_invariant};
        arena_free(arena);
        arena = arena_new();
        if (arena == NULL)
            TRY(no_memory(err));
        Lowering l = {.in = need->in, .fs = fs, .opt = &opt, .arena = arena};
        TRY(visit_block(&l, &need->in->stem, BLOCK_STEM, visit, ctx, err));
        for (uint32_t i = 0; i < need->in->n_blocks; i++)
            TRY(visit_block(&l, &need->in->blocks[i], BLOCK_LAYER, visit, ctx, err));
        TRY(visit_block(&l, &need->in->head, BLOCK_HEAD, visit, ctx, err));
    }
done:
    arena_free(arena);
    return st;
}

void report_say_family_formats(const Family *f, Str *out)
{
    for (uint32_t i = 0; i < f->n_formats; i++)
        str_addf(out, "%s%s %s", i ? ", " : "", f->formats[i].name, dtype_name(f->formats[i].dtype));
}

void report_say_ops(const Rule *r, Str *out)
{
    for (uint32_t i = 0; r && i < r->n_nodes; i++)
        str_addf(out, "%s%s", i ? " + " : "", r->nodes[i].op->name);
}

const char *report_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

long long report_int(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

json_t *report_json_text(Str *s)
{
    json_t *j = str_ok(s) ? json_string(str_c(s)) : NULL;

    str_release(s);
    return j;
}

bool report_add_once(json_t *list, const char *text)
{
    size_t i;
    json_t *item;

    json_array_foreach(list, i, item)
    {
        if (strcmp(json_string_value(item), text) == 0)
            return true;
    }
    return json_array_append_new(list, json_string(text)) == 0;
}

void report_join(const json_t *list, const char *sep, Str *out)
{
    size_t i;
    const json_t *item;

    json_array_foreach(list, i, item) str_addf(out, "%s%s", i ? sep : "", json_string_value(item));
}
