/* weight_map.c - reads <arch>.weights.toml and finds each weight slot's bytes in a checkpoint.
 *
 * A slot has forms, in order; the first whose condition holds and whose tensor exists wins. A name may hold {l}, the
 * layer, {e}, an expert (one tensor for each), and {p}, the prefix: the first of the listed prefixes under which the stem's first tensor exists, so that a
 * checkpoint is read under one prefix throughout. Without a list of tensors (a bare configuration) the first form whose
 * condition holds stands for what a checkpoint would have.
 *
 * Everything that is bound is remembered: a tensor that nothing reads and no rule ignores refuses the checkpoint, for it
 * may be a bias or a norm that the circuit does not have. */
#include "circuit/circuit_parts.h"
#include "circuit/quant_bind.h"
#include "circuit/quant_config.h"
#include "core/str.h"
#include <stdlib.h>
#include <string.h>

/* A tensor that gives some rows of each group of a slot. */
typedef struct WeightPiece {
    const char *name;
    const Expr *rows; /* of a group */
    bool columns;     /* stored with rows and columns exchanged */
} WeightPiece;

typedef struct WeightForm {
    const char *name;     /* of pieces: the first's */
    const Expr *when;     /* NULL: always */
    const Expr *row, *of; /* a part of a larger tensor: first row, and rows of the whole; NULL: all of it */
    const Expr *per;      /* rows of a head, for ROWS_ROPE_INTERLEAVED */
    RowOrder order;
    uint32_t step; /* from one row of the part to the next */
    bool flat;     /* stored with more dims or fewer */
    bool columns;  /* stored with rows and columns exchanged */
    bool optional;
    const WeightPiece *pieces; /* put together from several tensors ... */
    uint32_t n_pieces;
    const Expr *groups; /* ... which take turns so many times */
} WeightForm;

typedef struct WeightEntry {
    const char *slot;
    WeightPart part;
    const WeightForm *forms;
    uint32_t n_forms;
    const Toml *toml;
    const TomlNode *at;
} WeightEntry;

typedef struct WeightIgnored {
    const char *name, *because;
    const Expr *when;
} WeightIgnored;

typedef struct WeightRope {
    const char *rope, *name;
} WeightRope;

/* The names of one kind of file. */
typedef struct WeightNames {
    const char *const *prefixes;
    uint32_t n_prefixes;
    WeightEntry *entries;
    WeightIgnored *ignored;
    WeightRope *ropes;
    uint32_t n_entries, n_ignored, n_ropes;
} WeightNames;

struct WeightMap {
    const Toml *toml;
    WeightNames names[2]; /* safetensors, gguf */
};

static const char *const part_names[PART_COUNT] = {"stem", "layer", "head"};

/* ---- reading ----------------------------------------------------------------------------------------------------- */
/* { pieces = [{ name, rows, columns }, ...], groups = "n_heads" } */
static Status read_pieces(const Reader *r, const TomlNode *v, WeightForm *out)
{
    static const char *const keys[] = {"pieces", "groups", "when", NULL};
    static const char *const piece_keys[] = {"name", "rows", "columns", NULL};
    const TomlNode *list, *columns;
    WeightPiece *pieces;
    Status st = ST_OK;

    TRY(read_only(r, v, keys));
    TRY(read_list(r, v, "pieces", TOML_ARRAY, &list));
    TRY(read_expr(r, v, "groups", &out->groups));
    TRY(read_expr(r, v, "when", &out->when));
    if (out->groups == NULL || list->list.len < 2)
        return read_err(r, v, "'pieces' are two or more, and 'groups' says how many times they take turns");
    pieces = ARENA_ARRAY(r->arena, WeightPiece, list->list.len);
    if (pieces == NULL)
        return read_nomem(r);
    for (uint32_t i = 0; i < list->list.len; i++) {
        const TomlNode *p = &list->list.items[i];

        TRY(read_kind(r, p, TOML_TABLE, "a piece of a weight"));
        TRY(read_only(r, p, piece_keys));
        TRY(read_need_str(r, p, "name", &pieces[i].name));
        TRY(read_expr(r, p, "rows", &pieces[i].rows));
        TRY(read_list(r, p, "columns", TOML_BOOL, &columns));
        if (pieces[i].rows == NULL)
            return read_err(r, p, "a piece needs 'rows': how many of each group are in %s", pieces[i].name);
        pieces[i].columns = columns != NULL && columns->b;
    }
    out->name = pieces[0].name;
    out->pieces = pieces;
    out->n_pieces = list->list.len;
done:
    return st;
}

static Status read_form(const Reader *r, const TomlNode *v, WeightForm *out)
{
    static const char *const keys[] = {"name", "when", "row", "of",       "step", "columns",
                                       "flat", "rows", "per", "optional", NULL};
    const TomlNode *optional, *columns, *flat, *step;
    const char *rows = NULL;
    Status st = ST_OK;

    out->step = 1;
    if (v->kind == TOML_STRING) {
        out->name = v->str;
        return ST_OK;
    }
    TRY(read_kind(r, v, TOML_TABLE, "a form of a weight"));
    if (toml_find(v, "pieces") != NULL)
        return read_pieces(r, v, out);
    TRY(read_only(r, v, keys));
    TRY(read_need_str(r, v, "name", &out->name));
    TRY(read_expr(r, v, "when", &out->when));
    TRY(read_expr(r, v, "row", &out->row));
    TRY(read_expr(r, v, "of", &out->of));
    TRY(read_expr(r, v, "per", &out->per));
    TRY(read_str(r, v, "rows", &rows));
    TRY(read_list(r, v, "optional", TOML_BOOL, &optional));
    TRY(read_list(r, v, "columns", TOML_BOOL, &columns));
    TRY(read_list(r, v, "flat", TOML_BOOL, &flat));
    TRY(read_list(r, v, "step", TOML_INT, &step));
    out->optional = optional != NULL && optional->b;
    out->columns = columns != NULL && columns->b;
    out->flat = flat != NULL && flat->b;
    if (step != NULL && (step->i < 1 || step->i > 16 || out->row == NULL))
        return read_err(r, step,
                        "'step' is from 1 to 16 and goes with 'row' and 'of': every how many rows are the part");
    if (step != NULL)
        out->step = (uint32_t)step->i;
    if ((out->row == NULL) != (out->of == NULL))
        return read_err(r, v,
                        "'row' and 'of' go together: the first row of the part, and the rows of the whole tensor");
    if (rows != NULL && strcmp(rows, "rope_interleaved") != 0)
        return read_err(r, toml_find(v, "rows"), "'rows' can only be \"rope_interleaved\"");
    if ((rows != NULL) != (out->per != NULL))
        return read_err(r, v, "'rows' and 'per' go together: the order of rows, and how many rows a head has");
    out->order = rows != NULL ? ROWS_ROPE_INTERLEAVED : ROWS_AS_STORED;
done:
    return st;
}

static Status read_entry(const Reader *r, const TomlNode *v, WeightPart part, WeightEntry *out)
{
    uint32_t n = v->kind == TOML_ARRAY ? v->list.len : 1;
    WeightForm *forms = ARENA_ARRAY(r->arena, WeightForm, n);
    Status st = ST_OK;

    if (forms == NULL)
        return read_nomem(r);
    if (n == 0)
        return read_err(r, v, "slot %s needs at least one form", v->key);
    *out = (WeightEntry){.slot = v->key, .part = part, .forms = forms, .n_forms = n, .toml = r->toml, .at = v};
    for (uint32_t i = 0; st == ST_OK && i < n; i++)
        st = read_form(r, v->kind == TOML_ARRAY ? &v->list.items[i] : v, &forms[i]);
    return st;
}

static const WeightEntry *find_entry(const WeightNames *names, WeightPart part, const char *slot)
{
    for (uint32_t i = 0; i < names->n_entries; i++)
        if (names->entries[i].part == part && strcmp(names->entries[i].slot, slot) == 0)
            return &names->entries[i];
    return NULL;
}

static Status read_part(const Reader *r, const TomlNode *table, WeightPart part, const Toml *own, WeightNames *names)
{
    const TomlNode *t;
    Status st = read_list(r, table, part_names[part], TOML_TABLE, &t);

    for (uint32_t i = 0; st == ST_OK && t != NULL && i < t->list.len; i++) {
        const TomlNode *v = &t->list.items[i];
        const WeightEntry *old = find_entry(names, part, v->key);

        if (old != NULL && old->toml != own)
            return read_err(r, v, "slot %s is mapped already, at %s:%u", v->key, old->toml->name, old->at->line);
        if (old == NULL)
            st = read_entry(r, v, part, &names->entries[names->n_entries++]);
    }
    return st;
}

static Status read_ignored(const Reader *r, const TomlNode *table, WeightNames *names)
{
    static const char *const keys[] = {"because", "when", NULL};
    const TomlNode *t;
    Status st = read_list(r, table, "ignored", TOML_TABLE, &t);

    for (uint32_t i = 0; st == ST_OK && t != NULL && i < t->list.len; i++) {
        const TomlNode *v = &t->list.items[i];
        WeightIgnored *g = &names->ignored[names->n_ignored++];

        g->name = v->key;
        TRY(read_kind(r, v, TOML_TABLE, v->key));
        TRY(read_only(r, v, keys));
        TRY(read_need_str(r, v, "because", &g->because));
        TRY(read_expr(r, v, "when", &g->when));
    }
done:
    return st;
}

static Status read_names(const Reader *r, const char *key, const Toml *own, WeightNames *names)
{
    static const char *const keys[] = {"prefix", "stem", "layer", "head", "rope", "ignored", NULL};
    const TomlNode *t, *ropes;
    Status st = ST_OK;

    TRY(read_list(r, &r->toml->root, key, TOML_TABLE, &t));
    if (t == NULL)
        return ST_OK;
    TRY(read_only(r, t, keys));
    if (names->n_prefixes == 0)
        TRY(read_strings(r, t, "prefix", false, &names->prefixes, &names->n_prefixes));
    for (int part = 0; part < PART_COUNT; part++)
        TRY(read_part(r, t, (WeightPart)part, own, names));
    TRY(read_list(r, t, "rope", TOML_TABLE, &ropes));
    for (uint32_t i = 0; ropes != NULL && i < ropes->list.len; i++) {
        TRY(read_kind(r, &ropes->list.items[i], TOML_STRING, ropes->list.items[i].key));
        names->ropes[names->n_ropes++] =
            (WeightRope){.rope = ropes->list.items[i].key, .name = ropes->list.items[i].str};
    }
    TRY(read_ignored(r, t, names));
done:
    return st;
}

static Status read_file(const Reader *r, const Toml *own, WeightMap *map)
{
    static const char *const keys[] = {"use", "safetensors", "gguf", NULL};
    Status st = ST_OK;

    TRY(read_only(r, &r->toml->root, r->toml == own ? keys : keys + 1));
    TRY(read_names(r, "safetensors", own, &map->names[0]));
    TRY(read_names(r, "gguf", own, &map->names[1]));
done:
    return st;
}

static uint32_t count_nodes(const TomlNode *n)
{
    uint32_t total = 1;

    if (n->kind == TOML_TABLE || n->kind == TOML_ARRAY)
        for (uint32_t i = 0; i < n->list.len; i++)
            total += count_nodes(&n->list.items[i]);
    return total;
}

Status weight_map_read(const Reader *own, const Toml *const *parts, uint32_t n_parts, const WeightMap **out)
{
    WeightMap *map = ARENA_NEW(own->arena, WeightMap);
    uint32_t most = count_nodes(&own->toml->root); /* more nodes than entries, in every kind of list */
    Reader r = *own;
    Status st;

    if (map == NULL)
        return read_nomem(own);
    map->toml = own->toml;
    for (uint32_t i = 0; i < n_parts; i++)
        most += count_nodes(&parts[i]->root);
    for (int i = 0; i < 2; i++) {
        map->names[i].entries = ARENA_ARRAY(own->arena, WeightEntry, most);
        map->names[i].ignored = ARENA_ARRAY(own->arena, WeightIgnored, most);
        map->names[i].ropes = ARENA_ARRAY(own->arena, WeightRope, most);
        if (map->names[i].entries == NULL || map->names[i].ignored == NULL || map->names[i].ropes == NULL)
            return read_nomem(own);
    }
    st = read_file(&r, own->toml, map);
    for (uint32_t i = 0; st == ST_OK && i < n_parts; i++) {
        r.toml = parts[i];
        st = read_file(&r, own->toml, map);
    }
    *out = map;
    return st;
}

bool weight_map_declares(const WeightMap *map, bool gguf, WeightPart part, const char *slot)
{
    return find_entry(&map->names[gguf], part, slot) != NULL;
}

bool weight_map_serves(const WeightMap *map, bool gguf)
{
    return map->names[gguf].n_entries > 0;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */
static Status binder_nomem(const WeightBinder *b, Err *err)
{
    return err_set(err, ST_NOMEM, "%s: out of memory", b->src->name);
}

/* pattern with {p}, {l} and {e} filled in. */
static Status expand_name(const WeightBinder *b, const char *pattern, const char *prefix, uint32_t layer,
                          uint32_t expert, const char **out, Err *err)
{
    Str s = STR_INIT;
    Status st = ST_OK;

    for (const char *p = pattern; *p != '\0'; p++) {
        if (strncmp(p, "{p}", 3) == 0) {
            str_adds(&s, prefix);
            p += 2;
        } else if (strncmp(p, "{l}", 3) == 0) {
            str_addf(&s, "%u", layer);
            p += 2;
        } else if (strncmp(p, "{e}", 3) == 0) {
            str_addf(&s, "%u", expert);
            p += 2;
        } else {
            str_addc(&s, *p);
        }
    }
    *out = str_ok(&s) ? arena_strndup(b->arena, str_c(&s), s.len) : NULL;
    if (*out == NULL)
        st = binder_nomem(b, err);
    str_release(&s);
    return st;
}

/* Takes a number from the front of *name. */
static bool take_number(const char **name, uint64_t *out)
{
    const char *from = *name;

    for (*out = 0; **name >= '0' && **name <= '9' && *name - from < 10; (*name)++)
        *out = *out * 10 + (uint64_t)(**name - '0');
    return *name != from;
}

/* Layers behind the last that belong to the heads for several tokens ahead (MTP). */
static int64_t extra_layers(const WeightBinder *b)
{
    Scope scope = *b->scope;
    int64_t n;

    return scope_lookup(&scope, "mtp_layers", &n) ? n : 0;
}

/* Does name match pattern? {p} is the prefix, {l} any layer of the model, {mtp} one of the layers behind, {e} any expert,
 * a * at the end anything. */
static bool match_name(const WeightBinder *b, const char *pattern, const char *name)
{
    while (*pattern != '\0') {
        uint64_t v;

        if (strcmp(pattern, "*") == 0)
            return true;
        if (strncmp(pattern, "{p}", 3) == 0) {
            size_t n = strlen(b->prefix);

            if (strncmp(name, b->prefix, n) != 0)
                return false;
            name += n;
            pattern += 3;
        } else if (strncmp(pattern, "{l}", 3) == 0) {
            if (!take_number(&name, &v) || v >= b->n_layers)
                return false;
            pattern += 3;
        } else if (strncmp(pattern, "{mtp}", 5) == 0) {
            if (!take_number(&name, &v) || v < b->n_layers || v >= b->n_layers + (uint64_t)extra_layers(b))
                return false;
            pattern += 5;
        } else if (strncmp(pattern, "{e}", 3) == 0) {
            if (!take_number(&name, &v))
                return false;
            pattern += 3;
        } else if (*pattern++ != *name++) {
            return false;
        }
    }
    return *name == '\0';
}

static bool tensor_exists(const WeightBinder *b, const char *name)
{
    TensorDesc desc;

    return b->src->find(b->src->ctx, name, &desc);
}

/* How the linear that `name` is the weight of is stored; NULL: as itself. module: its name. */
static const QuantScheme *name_scheme(const WeightBinder *b, const char *name, uint32_t experts, char *module)
{
    const QuantScheme *s =
        b->linear && quant_module(name, module) ? quant_config_find(b->quant, module, experts > 0) : NULL;

    return s != NULL && quant_stored(b->src, s, module) ? s : NULL;
}

static bool form_exists(const WeightBinder *b, const char *name, uint32_t experts)
{
    char module[QUANT_NAME_MAX];

    return tensor_exists(b, name) || name_scheme(b, name, experts, module) != NULL;
}

static Status mark_used(WeightBinder *b, const char *name, Err *err)
{
    if (b->n_used == b->cap_used) {
        size_t cap = b->cap_used ? b->cap_used * 2 : 256;
        const char **grown = realloc(b->used, cap * sizeof *grown);

        if (grown == NULL)
            return binder_nomem(b, err);
        b->used = grown;
        b->cap_used = cap;
    }
    b->used[b->n_used++] = name;
    return ST_OK;
}

static Status mark_part(void *binder, const char *tensor, Err *err)
{
    WeightBinder *b = binder;
    const char *name = arena_strdup(b->arena, tensor);

    return name != NULL ? mark_used(b, name, err) : binder_nomem(b, err);
}

/* Turns a binding that has its tensors' names into one that has their modules', when they are quantised. */
static Status bind_quant(WeightBinder *b, InstanceBinding *out, uint32_t experts, Err *err)
{
    char module[QUANT_NAME_MAX];
    const QuantScheme *s = name_scheme(b, out->tensor, experts, module), *other;
    const uint32_t n = out->tensors != NULL ? experts : 1;
    QuantScheme *own = s != NULL ? ARENA_NEW(b->arena, QuantScheme) : NULL;
    const char **modules = ARENA_ARRAY(b->arena, const char *, n);
    Status st = ST_OK;

    if (modules == NULL || (s != NULL && own == NULL))
        return binder_nomem(b, err);
    if (s != NULL)
        *own = quant_spelling(b->src, s, module);
    for (uint32_t e = 0; e < n; e++) {
        const char *name = out->tensors != NULL ? out->tensors[e] : out->tensor;

        other = name_scheme(b, name, experts, module);
        if (other != s)
            return err_set(err, ST_UNSUPPORTED, "%s: %s is %s, but %s is %s; the experts of a layer need one format",
                           b->src->name, out->tensor, s ? s->name : "not quantised", name,
                           other ? other->name : "not quantised");
        if (s == NULL) {
            TRY(mark_used(b, name, err));
            continue;
        }
        modules[e] = arena_strdup(b->arena, module);
        if (modules[e] == NULL)
            return binder_nomem(b, err);
        TRY(quant_each(b->src, own, module, mark_part, b, err));
    }
    if (s == NULL)
        return ST_OK;
    out->quant = own;
    out->tensor = modules[0];
    out->tensors = out->tensors != NULL ? modules : NULL;
    out->columns = false; /* quantisers keep the inputs of an output together */
done:
    return st;
}

/* ---- binding ----------------------------------------------------------------------------------------------------- */
static Status eval_in(const WeightBinder *b, const Expr *e, int64_t *out, Err *err)
{
    Scope scope = *b->scope;
    Err inner;
    Status st = expr_eval(e, scope_lookup, &scope, out, &inner);

    return st == ST_OK ? ST_OK : err_set(err, st, "%s: %s", b->src->name, inner.msg);
}

static Status form_applies(const WeightBinder *b, const Expr *when, bool *applies, Err *err)
{
    int64_t v = 1;
    Status st = when != NULL ? eval_in(b, when, &v, err) : ST_OK;

    *applies = v != 0;
    return st;
}

Status weight_binder_init(WeightBinder *b, const WeightMap *map, const InstanceSource *src, const Scope *scope,
                          uint32_t n_layers, Arena *arena, Err *err)
{
    const WeightNames *names = &map->names[src->gguf];
    const char *probe = NULL;

    *b = (WeightBinder){.map = map, .src = src, .scope = scope, .arena = arena, .prefix = "", .n_layers = n_layers};
    if (names->n_prefixes == 0)
        return ST_OK;
    b->prefix = names->prefixes[0];
    for (uint32_t i = 0; i < names->n_entries && probe == NULL; i++)
        if (names->entries[i].part == PART_STEM)
            probe = names->entries[i].forms[0].name;
    for (uint32_t i = 0; src->find != NULL && probe != NULL && i < names->n_prefixes; i++) {
        const char *name = NULL;
        Status st = expand_name(b, probe, names->prefixes[i], 0, 0, &name, err);

        if (st != ST_OK)
            return st;
        if (tensor_exists(b, name)) {
            b->prefix = names->prefixes[i];
            break;
        }
    }
    return ST_OK;
}

void weight_binder_release(WeightBinder *b)
{
    free(b->used);
    b->used = NULL;
}

/* One tensor for each expert; tensor is expert 0's. */
static Status bind_experts(WeightBinder *b, const WeightForm *f, uint32_t layer, uint32_t experts, const char *tensor,
                           InstanceBinding *out, Err *err)
{
    const char **names = ARENA_ARRAY(b->arena, const char *, experts);
    Status st = ST_OK;

    if (names == NULL)
        return binder_nomem(b, err);
    names[0] = tensor;
    for (uint32_t e = 1; e < experts; e++) {
        TRY(expand_name(b, f->name, b->prefix, layer, e, &names[e], err));
        if (b->src->find != NULL && !form_exists(b, names[e], experts))
            return err_set(err, ST_NOTFOUND, "%s: tensor %s is missing; there must be one for each of the %u experts",
                           b->src->name, names[e], experts);
    }
    out->tensors = names;
done:
    return st;
}

/* tensor is the first piece's, which is there. */
static Status bind_pieces(WeightBinder *b, const WeightForm *f, uint32_t layer, const char *tensor,
                          InstanceBinding *out, Err *err)
{
    InstancePiece *pieces = ARENA_ARRAY(b->arena, InstancePiece, f->n_pieces);
    int64_t groups, rows;
    Status st = ST_OK;

    if (pieces == NULL)
        return binder_nomem(b, err);
    TRY(eval_in(b, f->groups, &groups, err));
    for (uint32_t i = 0; i < f->n_pieces; i++) {
        TRY(eval_in(b, f->pieces[i].rows, &rows, err));
        TRY(expand_name(b, f->pieces[i].name, b->prefix, layer, 0, &pieces[i].tensor, err));
        if (groups < 1 || rows < 1 || groups > INT32_MAX || rows > INT32_MAX)
            return err_set(err, ST_FORMAT, "%s: %lld groups of %lld rows cannot be taken of tensor %s (%s, %s)",
                           b->src->name, (long long)groups, (long long)rows, pieces[i].tensor, expr_text(f->groups),
                           expr_text(f->pieces[i].rows));
        if (b->src->find != NULL && !tensor_exists(b, pieces[i].tensor))
            return err_set(err, ST_NOTFOUND, "%s: tensor %s is missing; it belongs to %s", b->src->name,
                           pieces[i].tensor, tensor);
        TRY(mark_used(b, pieces[i].tensor, err));
        pieces[i].rows = (uint64_t)rows;
        pieces[i].columns = f->pieces[i].columns;
    }
    *out = (InstanceBinding){
        .tensor = tensor, .step = 1, .pieces = pieces, .n_pieces = f->n_pieces, .groups = (uint64_t)groups};
done:
    return st;
}

static Status bind_form(WeightBinder *b, const WeightForm *f, uint32_t layer, uint32_t experts, const char *tensor,
                        InstanceBinding *out, Err *err)
{
    int64_t row = 0, of = 0, per = 0;
    Status st = ST_OK;

    if (f->pieces != NULL && experts == 0)
        return bind_pieces(b, f, layer, tensor, out, err);
    if (f->pieces != NULL)
        return err_set(err, ST_FORMAT, "%s: %s: experts of a weight cannot be put together from pieces (tensor %s)",
                       b->src->name, b->map->toml->name, tensor);
    if (f->row != NULL) {
        TRY(eval_in(b, f->row, &row, err));
        TRY(eval_in(b, f->of, &of, err));
        if (row < 0 || of <= row)
            return err_set(err, ST_FORMAT, "%s: rows %lld of %lld of tensor %s cannot be taken (%s, of = %s)",
                           b->src->name, (long long)row, (long long)of, tensor, expr_text(f->row), expr_text(f->of));
    }
    if (f->per != NULL) {
        TRY(eval_in(b, f->per, &per, err));
        if (per < 2 || per > INT32_MAX || per % 2 != 0)
            return err_set(err, ST_FORMAT, "%s: a head of %lld rows has no pairs to reorder (tensor %s)", b->src->name,
                           (long long)per, tensor);
    }
    *out = (InstanceBinding){.tensor = tensor,
                             .order = f->order,
                             .head_dim = (uint32_t)per,
                             .row = (uint64_t)row,
                             .step = f->step,
                             .of = (uint64_t)of,
                             .columns = f->columns,
                             .flat = f->flat};
    if (strstr(f->name, "{e}") != NULL)
        TRY(bind_experts(b, f, layer, experts, tensor, out, err));
    TRY(bind_quant(b, out, experts, err));
done:
    return st;
}

Status weight_bind(WeightBinder *b, WeightPart part, const char *slot, uint32_t layer, uint32_t experts, bool optional,
                   InstanceBinding *out, bool *found, Err *err)
{
    const WeightEntry *e = find_entry(&b->map->names[b->src->gguf], part, slot);
    const char *first = NULL;
    bool may_lack = optional;
    Status st = ST_OK;

    *found = false;
    for (uint32_t i = 0; e != NULL && i < e->n_forms; i++) {
        const WeightForm *f = &e->forms[i];
        const char *name = NULL;
        bool applies;

        TRY(form_applies(b, f->when, &applies, err));
        if (!applies)
            continue;
        may_lack &= f->optional;
        if (b->src->find == NULL && f->optional)
            continue; /* nothing says that it is there */
        TRY(expand_name(b, f->name, b->prefix, layer, 0, &name, err));
        if (first == NULL)
            first = name;
        if (b->src->find == NULL || form_exists(b, name, experts)) {
            *found = true;
            if (experts == 0 && strstr(f->name, "{e}") != NULL)
                return err_set(err, ST_FORMAT, "%s: %s names a tensor for each expert, but weight %s has no experts",
                               b->src->name, b->map->toml->name, slot);
            return bind_form(b, f, layer, experts, name, out, err);
        }
    }
    if (may_lack)
        return ST_OK;
    if (first == NULL)
        return err_set(err, ST_FORMAT, "%s: %s maps no tensor to weight %s of the %s; add it", b->src->name,
                       b->map->toml->name, slot, part_names[part]);
    st = err_set(err, ST_NOTFOUND, "%s: tensor %s is missing; the checkpoint is incomplete or of another architecture",
                 b->src->name, first);
done:
    return st;
}

Status weight_bind_rope(WeightBinder *b, const char *rope, const char **tensor, Err *err)
{
    const WeightNames *names = &b->map->names[b->src->gguf];

    *tensor = NULL;
    for (uint32_t i = 0; i < names->n_ropes && b->src->find != NULL; i++) {
        const char *name = NULL;
        Status st;

        if (strcmp(names->ropes[i].rope, rope) != 0)
            continue;
        st = expand_name(b, names->ropes[i].name, b->prefix, 0, 0, &name, err);
        if (st != ST_OK)
            return st;
        if (!tensor_exists(b, name))
            continue;
        *tensor = name;
        return mark_used(b, name, err);
    }
    return ST_OK;
}

/* ---- nothing is left over ---------------------------------------------------------------------------------------- */
static int name_order(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The rule that lets a tensor go unread, or NULL. */
static Status is_ignored(const WeightBinder *b, const char *name, const WeightIgnored **rule, Err *err)
{
    const WeightNames *names = &b->map->names[b->src->gguf];
    Status st = ST_OK;

    *rule = NULL;
    for (uint32_t i = 0; i < names->n_ignored && *rule == NULL && st == ST_OK; i++) {
        bool applies = false;

        if (match_name(b, names->ignored[i].name, name))
            st = form_applies(b, names->ignored[i].when, &applies, err);
        if (applies)
            *rule = &names->ignored[i];
    }
    return st;
}

/* Counts a tensor under its reason. The instance owns its texts. */
static Status count_unread(WeightBinder *b, const char *because, InstanceUnread *list, uint32_t *n, Err *err)
{
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(list[i].because, because) == 0) {
            list[i].tensors++;
            return ST_OK;
        }
    list[*n] = (InstanceUnread){.because = arena_strdup(b->arena, because), .tensors = 1};
    return list[(*n)++].because != NULL ? ST_OK : binder_nomem(b, err);
}

Status weight_check_all(WeightBinder *b, const InstanceUnread **unread, uint32_t *n_unread, Err *err)
{
    InstanceUnread *list = ARENA_ARRAY(b->arena, InstanceUnread, b->map->names[b->src->gguf].n_ignored);
    const char *name;

    *n_unread = 0;
    *unread = list;
    if (list == NULL)
        return binder_nomem(b, err);
    if (b->src->tensor_at == NULL)
        return ST_OK;
    if (b->n_used > 0)
        qsort(b->used, b->n_used, sizeof *b->used, name_order);
    for (size_t i = 0; (name = b->src->tensor_at(b->src->ctx, i)) != NULL; i++) {
        const WeightIgnored *rule;
        Status st;

        if (b->n_used > 0 && bsearch(&name, b->used, b->n_used, sizeof *b->used, name_order) != NULL)
            continue;
        st = is_ignored(b, name, &rule, err);
        if (st == ST_OK && rule != NULL)
            st = count_unread(b, rule->because, list, n_unread, err);
        if (st != ST_OK)
            return st;
        if (rule == NULL)
            return err_set(
                err, ST_UNSUPPORTED,
                "%s: nothing reads tensor %s, so it may change the model; map it in %s, or ignore it there with a "
                "reason",
                b->src->name, name, b->map->toml->name);
    }
    return ST_OK;
}
