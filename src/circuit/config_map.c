/* config_map.c - reads <arch>.config.toml and the shared parts that it uses.
 *
 * Files are read in order, own first. A row of the architecture's own file replaces a part's row of the same name, and
 * an own rule for a key replaces a part's rule for it; anything else that classifies one key twice is refused, so that
 * each key has exactly one meaning. */
#include "circuit/config_map.h"
#include "core/str.h"
#include <math.h>
#include <string.h>

typedef struct MapReader {
    Reader r; /* of the file that is being read */
    bool own;
    ConfigMap *map;
    ConfigRow *rows;
    ConfigKey *keys[SOURCE_COUNT];
    ConfigRope *ropes;
    CircuitCheck *checks;
} MapReader;

static const struct Section {
    const char *name;
    ValueType type;
    bool dim;
} sections[] = {
    {"dim", VALUE_INT, true},        {"int", VALUE_INT, false},   {"float", VALUE_FLOAT, false},
    {"switch", VALUE_SWITCH, false}, {"text", VALUE_TEXT, false}, {"list", VALUE_LIST, false},
    {"layers", VALUE_LAYERS, false}, {"each", VALUE_EACH, false},
};
enum { N_SECTIONS = sizeof sections / sizeof sections[0] };

static const char *const int_keys[] = {"key",           "key_count",    "gguf",     "gguf_count", "default",
                                       "default_needs", "gguf_default", "fraction", "null",       "min",
                                       "max",           "when",         "off",      NULL};
static const char *const float_keys[] = {
    "key", "gguf",  "default", "default_rsqrt", "default_sqrt", "gguf_default", "null",       "min",
    "max", "above", "as",      "when",          "off",          "yarn",         "gguf_times", NULL};
static const char *const switch_keys[] = {"key", "gguf", "default", "gguf_default", "gguf_tensor", "top", NULL};
static const char *const text_keys[] = {"key", "gguf", "default", "gguf_default", "names", "values", NULL};
static const char *const layers_keys[] = {"key", "gguf", "gguf_tensor", "length", NULL};
static const char *const each_keys[] = {"key", "gguf", "min", "max", "length", NULL};
static const char *const list_keys[] = {"key",    "gguf", "default", "gguf_default", "values", "names",
                                        "length", "by",   NULL};

static const char *const *row_keys(ValueType t)
{
    switch (t) {
    case VALUE_INT:
        return int_keys;
    case VALUE_FLOAT:
        return float_keys;
    case VALUE_SWITCH:
        return switch_keys;
    case VALUE_TEXT:
        return text_keys;
    case VALUE_LAYERS:
        return layers_keys;
    case VALUE_EACH:
        return each_keys;
    case VALUE_LIST:
        break;
    }
    return list_keys;
}

const ConfigRow *config_row(const ConfigMap *map, const char *name)
{
    for (uint32_t i = 0; i < map->n_rows; i++)
        if (strcmp(map->rows[i].name, name) == 0)
            return &map->rows[i];
    return NULL;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */
static Status read_number(const Reader *r, const TomlNode *t, const char *key, double *out)
{
    const TomlNode *v = toml_find(t, key);

    if (v == NULL)
        return ST_OK;
    if (v->kind != TOML_INT && v->kind != TOML_FLOAT)
        return read_err(r, v, "'%s' is of type %s; write a number", key, toml_kind_name(v->kind));
    *out = v->kind == TOML_INT ? (double)v->i : v->f;
    return ST_OK;
}

/* A default, null or off value: of the row's own type; numbers may be an expression instead. */
static Status read_literal(const Reader *r, const TomlNode *t, const char *key, const ConfigRow *row,
                           const TomlNode **out)
{
    static const TomlKind kinds[] = {TOML_INT, TOML_FLOAT, TOML_BOOL, TOML_STRING, TOML_TABLE, TOML_ARRAY, TOML_ARRAY};
    const TomlNode *v = toml_find(t, key);

    if (v == NULL)
        return ST_OK;
    if (v->kind != kinds[row->type] && !(row->type == VALUE_FLOAT && v->kind == TOML_INT))
        return read_err(r, v, "'%s' of %s is of type %s; write a value of type %s", key, row->name,
                        toml_kind_name(v->kind), toml_kind_name(kinds[row->type]));
    *out = v;
    return ST_OK;
}

/* key: "default", or "gguf_default". */
static Status read_default(const Reader *r, const TomlNode *t, const char *key, ConfigRow *row, const Expr **expr,
                           const TomlNode **literal, ListDefault *list)
{
    const TomlNode *v = toml_find(t, key);
    Status st = ST_OK;

    if (v == NULL)
        return ST_OK;
    if ((row->type == VALUE_INT || row->type == VALUE_FLOAT) && v->kind == TOML_STRING)
        return read_expr_text(r, v, v->str, expr);
    TRY(read_literal(r, t, key, row, literal));
    if (row->type != VALUE_LIST)
        return ST_OK;
    list->n = v->list.len;
    list->items = ARENA_ARRAY(r->arena, const char *, list->n);
    list->when = ARENA_ARRAY(r->arena, const Expr *, list->n);
    if (list->items == NULL || list->when == NULL)
        return read_nomem(r);
    for (uint32_t i = 0; i < list->n; i++) {
        list->items[i] = v->list.items[i].key;
        TRY(read_expr(r, v, list->items[i], &list->when[i]));
    }
done:
    return st;
}

static Status read_as(const Reader *r, const TomlNode *t, ConfigRow *row)
{
    const char *as = "is";
    Status st = read_str(r, t, "as", &as);

    if (st != ST_OK)
        return st;
    if (strcmp(as, "rsqrt") == 0)
        row->as = AS_RSQRT;
    else if (strcmp(as, "reciprocal") == 0)
        row->as = AS_RECIPROCAL;
    else if (strcmp(as, "is") != 0)
        return read_err(r, toml_find(t, "as"), "'as' cannot be \"%s\"; write \"rsqrt\" or \"reciprocal\"", as);
    return ST_OK;
}

static Status read_row(const Reader *r, const TomlNode *t, const struct Section *s, ConfigRow *row)
{
    const TomlNode *by = toml_find(t, "by"), *top;
    uint32_t n_yarn;
    Status st = ST_OK;

    *row = (ConfigRow){.name = t->key, .type = s->type, .dim = s->dim, .toml = r->toml, .at = t};
    row->min = s->dim ? 1 : -INFINITY;
    /* INFINITY is a float, and so would be INT32_MAX beside it, rounded up to 2^31. */
    row->max = s->type == VALUE_INT || s->type == VALUE_EACH ? (double)INT32_MAX : (double)INFINITY;
    row->above = -INFINITY;
    row->gguf_times = 1;
    TRY(read_kind(r, t, TOML_TABLE, t->key));
    TRY(read_only(r, t, row_keys(s->type)));
    TRY(read_strings(r, t, "key", true, &row->keys[SOURCE_JSON], &row->n_keys[SOURCE_JSON]));
    TRY(read_strings(r, t, "gguf", true, &row->keys[SOURCE_GGUF], &row->n_keys[SOURCE_GGUF]));
    TRY(read_str(r, t, "key_count", &row->counts[SOURCE_JSON]));
    TRY(read_str(r, t, "gguf_count", &row->counts[SOURCE_GGUF]));
    TRY(read_default(r, t, "default", row, &row->expr, &row->literal, &row->list[SOURCE_JSON]));
    TRY(read_default(r, t, "gguf_default", row, &row->gguf_expr, &row->gguf_literal, &row->list[SOURCE_GGUF]));
    if (row->list[SOURCE_GGUF].n == 0)
        row->list[SOURCE_GGUF] = row->list[SOURCE_JSON];
    TRY(read_expr(r, t, "default_rsqrt", &row->rsqrt));
    TRY(read_expr(r, t, "default_sqrt", &row->sqrt));
    TRY(read_number(r, t, "gguf_times", &row->gguf_times));
    TRY(read_str(r, t, "gguf_tensor", &row->tensor));
    TRY(read_str(r, t, "fraction", &row->fraction));
    if (row->fraction != NULL && row->expr == NULL)
        return read_err(r, t, "%s: 'fraction' is of a default that is an expression", row->name);
    TRY(read_strings(r, t, "yarn", false, &row->yarn, &n_yarn));
    if (row->yarn != NULL && (n_yarn != 2 || row->rsqrt == NULL))
        return read_err(r, t, "%s: 'yarn' names two float rows, the factor and mscale, beside 'default_rsqrt'",
                        row->name);
    TRY(read_list(r, t, "top", TOML_BOOL, &top));
    row->top = top != NULL && top->b;
    TRY(read_expr(r, t, "default_needs", &row->needs));
    TRY(read_literal(r, t, "null", row, &row->null_value));
    TRY(read_literal(r, t, "off", row, &row->off));
    TRY(read_expr(r, t, "when", &row->when));
    if ((row->when == NULL) != (row->off == NULL))
        return read_err(r, t, "%s: 'when' and 'off' go together: the value while the condition is 0", row->name);
    TRY(read_number(r, t, "min", &row->min));
    TRY(read_number(r, t, "max", &row->max));
    TRY(read_number(r, t, "above", &row->above));
    TRY(read_as(r, t, row));
    TRY(read_list(r, t, "names", TOML_TABLE, &row->names));
    for (uint32_t i = 0; row->names != NULL && i < row->names->list.len; i++)
        TRY(read_kind(r, &row->names->list.items[i], TOML_STRING, row->names->list.items[i].key));
    TRY(read_strings(r, t, "values", false, &row->allowed, &row->n_allowed));
    if (s->type == VALUE_TEXT && row->names == NULL && row->n_allowed == 0)
        return read_err(r, t, "text %s needs 'names' or 'values': a word of a checkpoint is never taken as it comes",
                        row->name);
    if (s->type == VALUE_LIST && row->n_allowed == 0)
        return read_err(r, t, "list %s needs 'values': the words that may stand in it", row->name);
    TRY(read_str(r, t, "length", &row->length));
    if (row->length == NULL && (s->type == VALUE_EACH || (s->type == VALUE_LAYERS && row->tensor != NULL)))
        return read_err(r, t, "%s needs 'length': the row that says how many layers there are", row->name);
    if (by != NULL && (by->kind != TOML_STRING || strcmp(by->str, "char") != 0))
        return read_err(r, by, "'by' of %s can only be \"char\"", row->name);
    row->by_char = by != NULL;
done:
    return st;
}

static Status read_section(MapReader *m, const struct Section *s)
{
    const TomlNode *t;
    Status st = read_list(&m->r, &m->r.toml->root, s->name, TOML_TABLE, &t);

    for (uint32_t i = 0; st == ST_OK && t != NULL && i < t->list.len; i++) {
        const ConfigRow *old = config_row(m->map, t->list.items[i].key);

        if (old != NULL && (m->own || old->toml != m->map->toml))
            return read_err(&m->r, &t->list.items[i], "%s is declared already, at %s:%u", old->name, old->toml->name,
                            old->at->line);
        if (old != NULL && (old->type != s->type || old->dim != s->dim))
            return read_err(&m->r, &t->list.items[i], "%s is in another section at %s:%u", old->name, old->toml->name,
                            old->at->line);
        if (old == NULL)
            st = read_row(&m->r, &t->list.items[i], s, &m->rows[m->map->n_rows++]);
    }
    return st;
}

/* ---- keys that give no value -------------------------------------------------------------------------------------- */
/* A rule for a key; a part's rule gives way to whatever the architecture's own file says of the key. */
static Status add_key(MapReader *m, SourceKind source, const TomlNode *at, const char *path, ConfigKey key)
{
    size_t len = strlen(path);
    const ConfigKey *old;

    key.toml = m->r.toml;
    key.at = at;
    key.tree = str_ends(path, ".*");
    key.path = arena_strndup(m->r.arena, path, key.tree ? len - 2 : len);
    if (key.path == NULL)
        return read_nomem(&m->r);
    if (!m->own && config_classify(m->map, source, key.path, &old) == KEY_RULE && old->toml == m->map->toml)
        return ST_OK;
    for (uint32_t i = 0; !m->own && i < m->map->n_rows; i++)
        for (uint32_t j = 0; j < m->rows[i].n_keys[source]; j++)
            if (m->rows[i].toml == m->map->toml && strcmp(m->rows[i].keys[source][j], key.path) == 0)
                return ST_OK;
    m->keys[source][m->map->n_keys[source]++] = key;
    return ST_OK;
}

static Status read_ignored(MapReader *m, SourceKind source, const TomlNode *parent)
{
    const TomlNode *t;
    Status st = read_list(&m->r, parent, "ignored", TOML_TABLE, &t);

    for (uint32_t i = 0; st == ST_OK && t != NULL && i < t->list.len; i++) {
        const char *const *paths = NULL;
        const TomlNode *v = &t->list.items[i];
        uint32_t n;

        TRY(read_strings(&m->r, t, v->key, false, &paths, &n));
        for (uint32_t j = 0; j < n; j++)
            TRY(add_key(m, source, &v->list.items[j], paths[j], (ConfigKey){.because = v->key}));
    }
done:
    return st;
}

static Status read_refused(MapReader *m, SourceKind source, const TomlNode *parent)
{
    static const char *const keys[] = {"unless", "because", NULL};
    const TomlNode *t;
    Status st = read_list(&m->r, parent, "refused", TOML_TABLE, &t);

    for (uint32_t i = 0; st == ST_OK && t != NULL && i < t->list.len; i++) {
        const TomlNode *v = &t->list.items[i];
        ConfigKey key = {.refused = true};

        TRY(read_kind(&m->r, v, TOML_TABLE, v->key));
        TRY(read_only(&m->r, v, keys));
        TRY(read_need_str(&m->r, v, "because", &key.because));
        TRY(read_list(&m->r, v, "unless", TOML_ARRAY, &key.unless));
        TRY(add_key(m, source, v, v->key, key));
    }
done:
    return st;
}

/* path equals key, or lies below it. */
static bool path_below(const char *path, const char *key)
{
    size_t n = strlen(key);

    return strncmp(path, key, n) == 0 && (path[n] == '\0' || path[n] == '.');
}

KeyClass config_classify(const ConfigMap *map, SourceKind source, const char *path, const ConfigKey **rule)
{
    KeyClass c = KEY_UNKNOWN;

    if (source == SOURCE_JSON && strcmp(path, "model_type") == 0) /* [match] reads it */
        return KEY_VALUE;
    for (uint32_t i = 0; i < map->n_rows; i++)
        for (uint32_t j = 0; j < map->rows[i].n_keys[source]; j++) {
            if (strcmp(map->rows[i].keys[source][j], path) == 0)
                return KEY_VALUE;
            if (path_below(map->rows[i].keys[source][j], path))
                c = KEY_ABOVE;
        }
    for (uint32_t i = 0; i < map->bos.n_keys[source]; i++)
        if (strcmp(map->bos.keys[source][i], path) == 0)
            return KEY_VALUE;
    for (uint32_t i = 0; i < map->eos.n_keys[source]; i++)
        if (strcmp(map->eos.keys[source][i], path) == 0)
            return KEY_VALUE;
    for (uint32_t i = 0; i < map->n_keys[source]; i++) {
        const ConfigKey *k = &map->keys[source][i];

        if (strcmp(k->path, path) == 0 || (k->tree && path_below(path, k->path))) {
            *rule = k;
            return KEY_RULE;
        }
        if (path_below(k->path, path))
            c = KEY_ABOVE;
    }
    return c;
}

/* One meaning for each key. */
static Status check_unique(const Reader *r, const ConfigMap *map, SourceKind source)
{
    for (uint32_t i = 0; i < map->n_keys[source]; i++) {
        const ConfigKey *k = &map->keys[source][i];
        Reader at = {.toml = k->toml, .arena = r->arena, .err = r->err};
        const ConfigKey *rule = k;

        if (config_classify(map, source, k->path, &rule) != KEY_RULE || rule != k)
            return read_err(&at, k->at, "key %s is classified twice in what %s uses", k->path, map->toml->name);
    }
    for (uint32_t i = 0; i < map->n_rows; i++)
        for (uint32_t j = 0; j < map->rows[i].n_keys[source]; j++)
            for (uint32_t k = 0; k <= i; k++)
                for (uint32_t l = 0; l < (k == i ? j : map->rows[k].n_keys[source]); l++)
                    if (strcmp(map->rows[i].keys[source][j], map->rows[k].keys[source][l]) == 0) {
                        Reader at = {.toml = map->rows[i].toml, .arena = r->arena, .err = r->err};

                        return read_err(&at, map->rows[i].at, "key %s gives both %s and %s",
                                        map->rows[i].keys[source][j], map->rows[k].name, map->rows[i].name);
                    }
    return ST_OK;
}

static Status check_row_names(const Reader *r, const ConfigMap *map)
{
    for (uint32_t i = 0; i < map->n_rows; i++) {
        const ConfigRow *row = &map->rows[i], *f = row->fraction != NULL ? config_row(map, row->fraction) : NULL;
        Reader at = {.toml = row->toml, .arena = r->arena, .err = r->err};

        for (int k = 0; row->yarn != NULL && k < 2; k++) {
            const ConfigRow *v = config_row(map, row->yarn[k]);

            if (v == NULL || v->type != VALUE_FLOAT)
                return read_err(&at, row->at, "%s is to be scaled by '%s', but there is no such row under [float]",
                                row->name, row->yarn[k]);
        }
        if (row->length != NULL && (config_row(map, row->length) == NULL || !config_row(map, row->length)->dim))
            return read_err(&at, row->at, "%s has as many items as '%s' says, but there is no such row under [dim]",
                            row->name, row->length);
        if (row->fraction != NULL && (f == NULL || f->type != VALUE_FLOAT))
            return read_err(&at, row->at, "%s is to be a fraction '%s', but there is no such row under [float]",
                            row->name, row->fraction);
    }
    return ST_OK;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */
static Status read_ids(const Reader *r, const TomlNode *table, const char *key, ConfigIds *out)
{
    static const char *const keys[] = {"key", "gguf", NULL};
    const TomlNode *t;
    Status st = read_list(r, table, key, TOML_TABLE, &t);

    if (st != ST_OK || t == NULL)
        return st;
    TRY(read_only(r, t, keys));
    TRY(read_strings(r, t, "key", true, &out->keys[SOURCE_JSON], &out->n_keys[SOURCE_JSON]));
    TRY(read_strings(r, t, "gguf", true, &out->keys[SOURCE_GGUF], &out->n_keys[SOURCE_GGUF]));
done:
    return st;
}

static Status read_ropes(MapReader *m)
{
    static const char *const keys[] = {"kind",
                                       "dims",
                                       "theta",
                                       "factor",
                                       "low_freq_factor",
                                       "high_freq_factor",
                                       "original_max_position",
                                       "beta_fast",
                                       "beta_slow",
                                       "attention_factor",
                                       "mscale",
                                       "mscale_all_dim",
                                       "truncate",
                                       NULL};
    const TomlNode *t;
    Status st = read_list(&m->r, &m->r.toml->root, "rope", TOML_TABLE, &t);

    for (uint32_t i = 0; st == ST_OK && t != NULL && i < t->list.len; i++) {
        const TomlNode *v = &t->list.items[i];

        TRY(read_kind(&m->r, v, TOML_TABLE, v->key));
        TRY(read_only(&m->r, v, keys));
        for (uint32_t k = 0; k < 3; k++)
            if (toml_find(v, keys[k]) == NULL)
                return read_err(&m->r, v, "rope %s needs '%s'", v->key, keys[k]);
        if (config_map_declares_rope(m->map, v->key))
            continue; /* the architecture's own */
        m->ropes[m->map->n_ropes++] = (ConfigRope){.name = v->key, .fields = v, .toml = m->r.toml};
    }
done:
    return st;
}

static Status read_file(MapReader *m)
{
    static const char *const own_keys[] = {"use",   "match",   "dim",     "int",  "float", "switch",
                                           "text",  "list",    "layers",  "each", "ids",   "rope",
                                           "check", "ignored", "refused", "gguf", NULL};
    static const char *const gguf_keys[] = {"groups", "ignored", "refused", NULL};
    static const char *const ids_keys[] = {"bos", "eos", NULL};
    const TomlNode *root = &m->r.toml->root, *gguf, *ids;
    const CircuitCheck *checks = NULL;
    ConfigMap *map = m->map;
    uint32_t n = 0;
    Status st = ST_OK;

    TRY(read_only(&m->r, root, m->own ? own_keys : own_keys + 2));
    for (size_t i = 0; i < N_SECTIONS; i++)
        TRY(read_section(m, &sections[i]));
    TRY(read_list(&m->r, root, "ids", TOML_TABLE, &ids));
    if (ids != NULL) {
        TRY(read_only(&m->r, ids, ids_keys));
        if (map->bos.n_keys[SOURCE_JSON] + map->bos.n_keys[SOURCE_GGUF] == 0)
            TRY(read_ids(&m->r, ids, "bos", &map->bos));
        if (map->eos.n_keys[SOURCE_JSON] + map->eos.n_keys[SOURCE_GGUF] == 0)
            TRY(read_ids(&m->r, ids, "eos", &map->eos));
    }
    TRY(read_ropes(m));
    TRY(check_read(&m->r, root, &checks, &n));
    for (uint32_t i = 0; i < n; i++)
        m->checks[map->n_checks++] = checks[i];
    TRY(read_ignored(m, SOURCE_JSON, root));
    TRY(read_refused(m, SOURCE_JSON, root));
    TRY(read_list(&m->r, root, "gguf", TOML_TABLE, &gguf));
    if (gguf == NULL)
        return ST_OK;
    TRY(read_only(&m->r, gguf, gguf_keys));
    if (map->n_groups == 0)
        TRY(read_strings(&m->r, gguf, "groups", false, &map->groups, &map->n_groups));
    TRY(read_ignored(m, SOURCE_GGUF, gguf));
    TRY(read_refused(m, SOURCE_GGUF, gguf));
done:
    return st;
}

/* The number of nodes in a tree: an upper bound for everything that can be read from it. */
static uint32_t count_nodes(const TomlNode *n)
{
    uint32_t total = 1;

    if (n->kind == TOML_TABLE || n->kind == TOML_ARRAY)
        for (uint32_t i = 0; i < n->list.len; i++)
            total += count_nodes(&n->list.items[i]);
    return total;
}

Status config_map_read(const Reader *own, const Toml *const *parts, uint32_t n_parts, const ConfigMap **out)
{
    static const char *const match_keys[] = {"model_type", "gguf_arch", "nested", NULL};
    ConfigMap *map = ARENA_NEW(own->arena, ConfigMap);
    MapReader m = {.r = *own, .own = true, .map = map};
    uint32_t most = count_nodes(&own->toml->root);
    const TomlNode *match;
    Status st = ST_OK;

    for (uint32_t i = 0; i < n_parts; i++)
        most += count_nodes(&parts[i]->root);
    m.rows = ARENA_ARRAY(own->arena, ConfigRow, most);
    m.keys[SOURCE_JSON] = ARENA_ARRAY(own->arena, ConfigKey, most);
    m.keys[SOURCE_GGUF] = ARENA_ARRAY(own->arena, ConfigKey, most);
    m.ropes = ARENA_ARRAY(own->arena, ConfigRope, most);
    m.checks = ARENA_ARRAY(own->arena, CircuitCheck, most);
    if (map == NULL || m.rows == NULL || m.keys[SOURCE_JSON] == NULL || m.keys[SOURCE_GGUF] == NULL ||
        m.ropes == NULL || m.checks == NULL)
        return read_nomem(own);
    map->toml = own->toml;
    map->rows = m.rows;
    map->keys[SOURCE_JSON] = m.keys[SOURCE_JSON];
    map->keys[SOURCE_GGUF] = m.keys[SOURCE_GGUF];
    map->ropes = m.ropes;
    map->checks = m.checks;

    TRY(read_list(own, &own->toml->root, "match", TOML_TABLE, &match));
    if (match == NULL)
        return read_err(own, &own->toml->root, "[match] is missing: it says which checkpoints this circuit serves");
    TRY(read_only(own, match, match_keys));
    TRY(read_strings(own, match, "model_type", false, &map->match[SOURCE_JSON], &map->n_match[SOURCE_JSON]));
    TRY(read_strings(own, match, "gguf_arch", false, &map->match[SOURCE_GGUF], &map->n_match[SOURCE_GGUF]));
    TRY(read_str(own, match, "nested", &map->nested));
    TRY(read_file(&m));
    m.own = false;
    for (uint32_t i = 0; i < n_parts; i++) {
        m.r.toml = parts[i];
        TRY(read_file(&m));
    }
    TRY(check_row_names(own, map));
    TRY(check_unique(own, map, SOURCE_JSON));
    TRY(check_unique(own, map, SOURCE_GGUF));
    *out = map;
done:
    return st;
}

bool config_map_serves(const ConfigMap *map, bool gguf)
{
    return map->n_match[gguf ? SOURCE_GGUF : SOURCE_JSON] > 0;
}

bool config_map_matches(const ConfigMap *map, bool gguf, const char *model_type)
{
    SourceKind s = gguf ? SOURCE_GGUF : SOURCE_JSON;

    for (uint32_t i = 0; i < map->n_match[s]; i++)
        if (strcmp(map->match[s][i], model_type) == 0)
            return true;
    return false;
}

bool config_map_declares(const ConfigMap *map, const char *name, ValueType *type)
{
    const ConfigRow *row = config_row(map, name);

    if (row != NULL)
        *type = row->type;
    return row != NULL;
}

bool config_map_declares_rope(const ConfigMap *map, const char *name)
{
    for (uint32_t i = 0; i < map->n_ropes; i++)
        if (strcmp(map->ropes[i].name, name) == 0)
            return true;
    return false;
}
