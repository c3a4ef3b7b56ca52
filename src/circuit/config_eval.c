/* config_eval.c - a config map applied to one checkpoint's configuration.
 *
 * First every key of the checkpoint is classified; one that is not refuses the checkpoint, so that nothing which changes
 * the model is passed over. Then each row of the map gets its value: the spellings that are present, which must agree,
 * else its default. Rows are evaluated on demand, so a default may speak of any other row; a cycle is refused.
 *
 * config.json is a tree with dotted paths; GGUF metadata is flat, and "<arch>." stands in front of the architecture's
 * own keys. A multimodal config.json keeps the keys of its language model in an object of their own; they are looked up
 * there and beside it, and classified alike. */
#include "circuit/config_map.h"
#include "core/str.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { ROW_NEW, ROW_BUSY, ROW_DONE } RowState;

typedef struct Eval {
    const ConfigMap *map;
    const InstanceSource *src;
    SourceKind source;
    const char *arch;       /* GGUF: general.architecture */
    const json_t *roots[2]; /* where keys of config.json are: the nested object, then the file; without one the file */
    uint32_t n_roots, root; /* root: the one at hand, for messages */
    Arena *arena;
    Err *err;
    Value *values; /* one for each row */
    RowState *state;
    int64_t layer; /* the layer that a list's default is asked for; -1 outside of one */
    Status st;     /* of a row that an expression asked for */
} Eval;

static Status eval_row(Eval *ev, uint32_t row);

static Status eval_nomem(Eval *ev)
{
    return err_set(ev->err, ST_NOMEM, "%s: out of memory", ev->src->name);
}

/* ---- looking into the checkpoint --------------------------------------------------------------------------------- */
/* The full name of a key: GGUF keys of the architecture carry its name. */
static const char *full_key(Eval *ev, const char *path, char *buf, size_t size)
{
    size_t head = strcspn(path, ".");
    Str s = STR_INIT;

    if (ev->source == SOURCE_JSON && ev->root + 1 == ev->n_roots)
        return path;
    if (ev->source == SOURCE_JSON) {
        snprintf(buf, size, "%s.%s", ev->map->nested, path);
        return buf;
    }
    for (uint32_t i = 0; i < ev->map->n_groups; i++)
        if (strlen(ev->map->groups[i]) == head && strncmp(ev->map->groups[i], path, head) == 0)
            return path;
    str_addf(&s, "%s.%s", ev->arch, path);
    /* A key that does not fit is longer than any that the map knows. */
    strncpy(buf, str_c(&s), size - 1);
    buf[size - 1] = '\0';
    str_release(&s);
    return buf;
}

static const json_t *find_value(Eval *ev, const char *path)
{
    char buf[256];

    if (ev->source == SOURCE_JSON)
        return json_at(ev->roots[ev->root], path);
    return json_object_get(ev->src->meta, full_key(ev, path, buf, sizeof buf));
}

/* A value as a message shows it: text quoted, long ones cut. */
static void add_json(Str *s, const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    size_t len = text != NULL ? strlen(text) : 0;

    if (len > 60)
        str_addf(s, "%.57s...", text);
    else
        str_adds(s, text != NULL ? text : "?");
    free(text);
}

static Status bad_value(Eval *ev, const char *path, const json_t *v, const char *want)
{
    char buf[256];
    Str s = STR_INIT;
    Status st;

    add_json(&s, v);
    st = err_set(ev->err, ST_FORMAT, "%s: %s is %s; it must be %s", ev->src->name, full_key(ev, path, buf, sizeof buf),
                 str_c(&s), want);
    str_release(&s);
    return st;
}

/* ---- every key has a meaning -------------------------------------------------------------------------------------- */
/* A number, also as newer files write an infinite one: {"__float__": "Infinity"} (core/json.h reads the older way). */
static bool number_equals(const json_t *v, double want)
{
    const char *word = json_string_value(json_object_get(v, "__float__"));

    if (word != NULL)
        return json_object_size(v) == 1 && strcmp(word, "Infinity") == 0 && want == 1.79e308;
    return json_is_number(v) && json_number_value(v) == want;
}

static bool literal_equals(const TomlNode *want, const json_t *v)
{
    switch (want->kind) {
    case TOML_INT:
        return number_equals(v, (double)want->i);
    case TOML_FLOAT:
        return number_equals(v, want->f);
    case TOML_BOOL:
        return json_is_boolean(v) && json_is_true(v) == want->b;
    case TOML_STRING:
        return json_is_string(v) && strcmp(json_string_value(v), want->str) == 0;
    case TOML_TABLE:
    case TOML_ARRAY:
        break;
    }
    return false;
}

static void add_literal(Str *s, const TomlNode *v)
{
    if (v->kind == TOML_INT)
        str_addf(s, "%lld", (long long)v->i);
    else if (v->kind == TOML_FLOAT)
        str_addf(s, "%g", v->f);
    else if (v->kind == TOML_BOOL)
        str_adds(s, v->b ? "true" : "false");
    else if (v->kind == TOML_STRING)
        str_addf(s, "\"%s\"", v->str);
}

static Status refuse_key(Eval *ev, const char *path, const json_t *v, const ConfigKey *rule)
{
    char buf[256];
    Str s = STR_INIT;
    Status st;

    add_json(&s, v);
    if (rule->unless != NULL) {
        str_adds(&s, ", not ");
        for (uint32_t i = 0; i < rule->unless->list.len; i++) {
            str_adds(&s, i ? " or " : "");
            add_literal(&s, &rule->unless->list.items[i]);
        }
    }
    st = err_set(ev->err, ST_UNSUPPORTED, "%s: %s is %s: %s (%s:%u)", ev->src->name,
                 full_key(ev, path, buf, sizeof buf), str_c(&s), rule->because, rule->toml->name, rule->at->line);
    str_release(&s);
    return st;
}

/* Each item of an array must be one of the values that are fine. */
static bool rule_allows(const ConfigKey *rule, const json_t *v)
{
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            if (!rule_allows(rule, json_array_get(v, i)))
                return false;
        return json_array_size(v) > 0;
    }
    for (uint32_t i = 0; i < rule->unless->list.len; i++)
        if (literal_equals(&rule->unless->list.items[i], v))
            return true;
    return false;
}

static Status apply_rule(Eval *ev, const char *path, const json_t *v, const ConfigKey *rule)
{
    char buf[256];

    if (json_is_null(v))
        return ST_OK;
    if (rule->refused)
        return rule->unless != NULL && rule_allows(rule, v) ? ST_OK : refuse_key(ev, path, v, rule);
    if (json_is_object(v) && json_object_size(v) > 0 && !rule->tree)
        return err_set(ev->err, ST_UNSUPPORTED,
                       "%s: %s is an object, but %s:%u ignores a plain value; write \"%s.*\" there to ignore all of it",
                       ev->src->name, full_key(ev, path, buf, sizeof buf), rule->toml->name, rule->at->line, path);
    return ST_OK;
}

static Status unknown_key(Eval *ev, const char *path)
{
    char buf[256];

    return err_set(
        ev->err, ST_UNSUPPORTED,
        "%s: key %s is not classified, so it may change the model; say in %s what it is: a value, or ignored or "
        "refused with a reason",
        ev->src->name, full_key(ev, path, buf, sizeof buf), ev->map->toml->name);
}

static Status classify_tree(Eval *ev, const json_t *object, const char *prefix)
{
    const char *key;
    json_t *v;
    Status st = ST_OK;

    json_object_foreach((json_t *)(uintptr_t)object, key, v)
    { /* the iterator's type has no const; nothing is changed */
        const ConfigKey *rule = NULL;
        Str path = STR_INIT;

        if (v == ev->roots[0] && object == ev->src->meta)
            continue; /* the nested object: classify_roots goes through it */
        str_addf(&path, "%s%s", prefix, key);
        switch (config_classify(ev->map, SOURCE_JSON, str_c(&path), &rule)) {
        case KEY_VALUE:
            break;
        case KEY_RULE:
            st = apply_rule(ev, str_c(&path), v, rule);
            break;
        case KEY_ABOVE: /* as deep as the longest path of the map */
            if (json_is_object(v)) {
                str_addc(&path, '.');
                st = classify_tree(ev, v, str_c(&path));
            } else if (!json_is_null(v)) {
                st = bad_value(ev, str_c(&path), v, "an object or null");
            }
            break;
        case KEY_UNKNOWN:
            st = unknown_key(ev, str_c(&path));
            break;
        }
        if (st == ST_OK && !str_ok(&path))
            st = eval_nomem(ev);
        str_release(&path);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

static Status classify_roots(Eval *ev)
{
    Status st = ST_OK;

    for (ev->root = 0; st == ST_OK && ev->root < ev->n_roots; ev->root++)
        st = classify_tree(ev, ev->roots[ev->root], "");
    ev->root = ev->n_roots - 1;
    return st;
}

static Status classify_gguf(Eval *ev)
{
    size_t n = strlen(ev->arch);
    const char *key;
    json_t *v;
    Status st = ST_OK;

    json_object_foreach((json_t *)(uintptr_t)ev->src->meta, key, v)
    { /* as above */
        const ConfigKey *rule = NULL;
        bool group = false;

        for (uint32_t i = 0; i < ev->map->n_groups; i++) {
            size_t len = strlen(ev->map->groups[i]);

            group |= strncmp(key, ev->map->groups[i], len) == 0 && key[len] == '.';
        }
        if (group)
            continue;
        if (strncmp(key, ev->arch, n) != 0 || key[n] != '.')
            return err_set(ev->err, ST_UNSUPPORTED,
                           "%s: key %s belongs to no known group; if it cannot change the model, add its first word to "
                           "groups under [gguf] in %s",
                           ev->src->name, key, ev->map->toml->name);
        switch (config_classify(ev->map, SOURCE_GGUF, key + n + 1, &rule)) {
        case KEY_VALUE:
            break;
        case KEY_RULE:
            st = apply_rule(ev, key + n + 1, v, rule);
            break;
        case KEY_ABOVE:
        case KEY_UNKNOWN:
            st = unknown_key(ev, key + n + 1);
            break;
        }
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

/* ---- one value --------------------------------------------------------------------------------------------------- */
static Status out_of_range(Eval *ev, const ConfigRow *row, const char *path, const json_t *v)
{
    char want[160];

    if (row->above > -INFINITY && row->max < INFINITY)
        snprintf(want, sizeof want, "above %g and at most %g", row->above, row->max);
    else if (row->above > -INFINITY)
        snprintf(want, sizeof want, "above %g", row->above);
    else
        snprintf(want, sizeof want, "from %.17g to %.17g", row->min, row->max);
    return bad_value(ev, path, v, want);
}

static Status read_json_number(Eval *ev, const ConfigRow *row, const char *path, const json_t *v, Value *out)
{
    double d = json_number_value(v);

    if (row->type == VALUE_INT && !json_is_integer(v))
        return bad_value(ev, path, v, "an integer");
    if (!json_is_number(v) || !isfinite(d))
        return bad_value(ev, path, v, "a finite number");
    if (d < row->min || d > row->max || d <= row->above)
        return out_of_range(ev, row, path, v);
    if (row->type == VALUE_INT) {
        out->i = json_integer_value(v);
        return ST_OK;
    }
    if (row->as != AS_IS && d <= 0)
        return bad_value(ev, path, v, "above 0");
    d *= ev->source == SOURCE_GGUF ? row->gguf_times : 1;
    out->f = row->as == AS_RSQRT ? 1 / sqrt(d) : row->as == AS_RECIPROCAL ? 1 / d : d;
    return ST_OK;
}

/* The map's own copy of a word, so that nothing points into the checkpoint. */
static Status known_word(Eval *ev, const ConfigRow *row, const char *path, const char *word, const json_t *v,
                         const char **out)
{
    Str s = STR_INIT;
    Status st;

    for (uint32_t i = 0; row->names != NULL && i < row->names->list.len; i++)
        if (strcmp(row->names->list.items[i].key, word) == 0) {
            *out = row->names->list.items[i].str;
            return ST_OK;
        }
    for (uint32_t i = 0; i < row->n_allowed; i++)
        if (strcmp(row->allowed[i], word) == 0) {
            *out = row->allowed[i];
            return ST_OK;
        }
    str_adds(&s, "one of ");
    for (uint32_t i = 0; row->names != NULL && i < row->names->list.len; i++)
        str_addf(&s, "%s%s", i ? ", " : "", row->names->list.items[i].key);
    for (uint32_t i = 0; i < row->n_allowed; i++)
        str_addf(&s, "%s%s", i ? ", " : "", row->allowed[i]);
    st = bad_value(ev, path, v, str_c(&s));
    str_release(&s);
    return st;
}

static Status list_length(Eval *ev, const ConfigRow *row, uint32_t *out)
{
    const ConfigRow *length = row->length != NULL ? config_row(ev->map, row->length) : NULL;
    Status st;

    *out = UINT32_MAX;
    if (length == NULL)
        return ST_OK;
    st = eval_row(ev, (uint32_t)(length - ev->map->rows));
    if (st == ST_OK)
        *out = (uint32_t)ev->values[length - ev->map->rows].i;
    return st;
}

static Status read_json_list(Eval *ev, const ConfigRow *row, const char *path, const json_t *v, Value *out)
{
    bool chars = row->by_char && json_is_string(v);
    size_t n = chars ? json_string_length(v) : json_array_size(v);
    const char **items;
    uint32_t want;
    Status st = list_length(ev, row, &want);
    char buf[256];

    if (st != ST_OK)
        return st;
    if (!chars && !json_is_array(v))
        return bad_value(ev, path, v, "an array of strings or of integers");
    if (want != UINT32_MAX && n != want)
        return err_set(ev->err, ST_FORMAT, "%s: %s has %zu items; it must have one for each of the %u layers",
                       ev->src->name, full_key(ev, path, buf, sizeof buf), n, want);
    items = ARENA_ARRAY(ev->arena, const char *, n);
    if (items == NULL)
        return eval_nomem(ev);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = chars ? v : json_array_get(v, i);
        char word[24] = {chars ? json_string_value(v)[i] : '\0', '\0'};
        bool digits = json_is_integer(item); /* an integer is the word that its digits make, for 'names' to name */

        if (!digits && !json_is_string(item))
            return bad_value(ev, path, v, "an array of strings or of integers");
        if (digits)
            snprintf(word, sizeof word, "%lld", (long long)json_integer_value(item));
        st = known_word(ev, row, path, chars || digits ? word : json_string_value(item), item, &items[i]);
        if (st != ST_OK)
            return st;
    }
    out->list.items = items;
    out->list.n = (uint32_t)n;
    return ST_OK;
}

static Status read_json_layers(Eval *ev, const char *path, const json_t *v, Value *out)
{
    size_t n = json_array_size(v);
    int64_t *items = ARENA_ARRAY(ev->arena, int64_t, n);

    if (!json_is_array(v))
        return bad_value(ev, path, v, "an array of numbers of layers");
    if (items == NULL)
        return eval_nomem(ev);
    for (size_t i = 0; i < n; i++) {
        items[i] = json_integer_value(json_array_get(v, i));
        if (!json_is_integer(json_array_get(v, i)) || items[i] < 0)
            return bad_value(ev, path, v, "an array of numbers of layers");
    }
    out->layers.items = items;
    out->layers.n = (uint32_t)n;
    return ST_OK;
}

/* A number for each layer; one number stands for all of them. */
static Status read_json_each(Eval *ev, const ConfigRow *row, const char *path, const json_t *v, Value *out)
{
    int64_t *items;
    uint32_t n;
    Status st = list_length(ev, row, &n);
    char buf[256];

    if (st != ST_OK)
        return st;
    if (json_is_array(v) && json_array_size(v) != n)
        return err_set(ev->err, ST_FORMAT, "%s: %s has %zu items; it must have one for each of the %u layers",
                       ev->src->name, full_key(ev, path, buf, sizeof buf), json_array_size(v), n);
    items = ARENA_ARRAY(ev->arena, int64_t, n);
    if (items == NULL)
        return eval_nomem(ev);
    for (uint32_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;

        if (!json_is_integer(item))
            return bad_value(ev, path, v, "an integer, or an array with one for each layer");
        items[i] = json_integer_value(item);
        if ((double)items[i] < row->min || (double)items[i] > row->max)
            return out_of_range(ev, row, path, item);
    }
    out->layers.items = items;
    out->layers.n = n;
    return ST_OK;
}

static Status read_json(Eval *ev, const ConfigRow *row, const char *path, const json_t *v, Value *out)
{
    switch (row->type) {
    case VALUE_INT:
    case VALUE_FLOAT:
        return read_json_number(ev, row, path, v, out);
    case VALUE_SWITCH:
        if (!json_is_boolean(v))
            return bad_value(ev, path, v, "true or false");
        out->b = json_is_true(v);
        return ST_OK;
    case VALUE_TEXT:
        if (!json_is_string(v))
            return bad_value(ev, path, v, "a string");
        return known_word(ev, row, path, json_string_value(v), v, &out->text);
    case VALUE_LAYERS:
        return read_json_layers(ev, path, v, out);
    case VALUE_EACH:
        return read_json_each(ev, row, path, v, out);
    case VALUE_LIST:
        break;
    }
    return read_json_list(ev, row, path, v, out);
}

static bool value_equal(const Value *a, const Value *b)
{
    switch (a->type) {
    case VALUE_INT:
        return a->i == b->i;
    case VALUE_FLOAT:
        return a->f == b->f;
    case VALUE_SWITCH:
        return a->b == b->b;
    case VALUE_TEXT:
        return strcmp(a->text, b->text) == 0;
    case VALUE_LAYERS:
    case VALUE_EACH:
        return a->layers.n == b->layers.n &&
               (a->layers.n == 0 || memcmp(a->layers.items, b->layers.items, a->layers.n * sizeof(int64_t)) == 0);
    case VALUE_LIST:
        break;
    }
    for (uint32_t i = 0; i < a->list.n && a->list.n == b->list.n; i++)
        if (strcmp(a->list.items[i], b->list.items[i]) != 0)
            return false;
    return a->list.n == b->list.n;
}

static void set_literal(Value *out, const TomlNode *v)
{
    if (out->type == VALUE_INT)
        out->i = v->i;
    else if (out->type == VALUE_FLOAT)
        out->f = v->kind == TOML_INT ? (double)v->i : v->f;
    else if (out->type == VALUE_SWITCH)
        out->b = v->b;
    else
        out->text = v->str;
}

/* ---- defaults ---------------------------------------------------------------------------------------------------- */
/* What a value comes to in an expression: of layers, whether this one is among them; of a number for each layer, this
 * one's, and outside of a list's default the largest. */
static int64_t value_integer(const Value *v, int64_t layer)
{
    int64_t n = 0;

    switch (v->type) {
    case VALUE_INT:
        return v->i;
    case VALUE_LAYERS:
        for (uint32_t i = 0; i < v->layers.n; i++)
            n |= v->layers.items[i] == layer;
        return n;
    case VALUE_EACH:
        if (layer >= 0)
            return layer < v->layers.n ? v->layers.items[layer] : 0;
        for (uint32_t i = 0; i < v->layers.n; i++)
            n = v->layers.items[i] > n ? v->layers.items[i] : n;
        return n;
    default: /* a switch */
        return v->b;
    }
}

static bool eval_lookup(void *ctx, const char *name, int64_t *out)
{
    Eval *ev = ctx;
    const ConfigRow *row;

    if (ev->layer >= 0 && strcmp(name, "layer") == 0) {
        *out = ev->layer;
        return true;
    }
    row = config_row(ev->map, name);
    if (row == NULL || (row->type != VALUE_INT && row->type != VALUE_SWITCH && row->type != VALUE_EACH &&
                        (row->type != VALUE_LAYERS || ev->layer < 0)))
        return false;
    ev->st = eval_row(ev, (uint32_t)(row - ev->map->rows));
    if (ev->st != ST_OK)
        return false;
    *out = value_integer(&ev->values[row - ev->map->rows], ev->layer);
    return true;
}

/* The row's file and line stand in front of what is wrong with the expression itself. */
static Status eval_expr(Eval *ev, const ConfigRow *row, const Expr *e, int64_t *out)
{
    Err inner;
    Status st;

    ev->st = ST_OK;
    st = expr_eval(e, eval_lookup, ev, out, &inner);
    if (ev->st != ST_OK)
        return ev->st; /* a row that was asked for has filled ev->err */
    if (st != ST_OK)
        return err_set(ev->err, st, "%s: %s (%s:%u)", ev->src->name, inner.msg, row->toml->name, row->at->line);
    return ST_OK;
}

typedef struct NameValues {
    Str *s;
    ExprLookup lookup;
    void *ctx;
} NameValues;

static void add_name_value(void *ctx, const char *name)
{
    NameValues *nv = ctx;
    int64_t v;

    if (nv->lookup(nv->ctx, name, &v))
        str_addf(nv->s, "%s%s = %lld", nv->s->len ? ", " : "", name, (long long)v);
}

static Status missing(Eval *ev, const ConfigRow *row)
{
    Str s = STR_INIT;
    Status st;
    char buf[256];

    for (uint32_t i = 0; i < row->n_keys[ev->source]; i++)
        str_addf(&s, "%s%s", i ? " or " : "", full_key(ev, row->keys[ev->source][i], buf, sizeof buf));
    if (s.len == 0)
        st = err_set(ev->err, ST_FORMAT, "%s: nothing gives %s here; add a key or a default at %s:%u", ev->src->name,
                     row->name, row->toml->name, row->at->line);
    else
        st = err_set(ev->err, ST_FORMAT,
                     "%s: key %s is missing; the model cannot be built without it, so complete the file", ev->src->name,
                     str_c(&s));
    str_release(&s);
    return st;
}

/* 0.1 m ln(factor) + 1, as in rope.c but with a weight (DeepSeek's mscale keys). */
static double yarn_mscale(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

static Status check_dim(Eval *ev, const ConfigRow *row, const Expr *e, const Value *v)
{
    if (!row->dim || (v->i >= 1 && v->i <= INT32_MAX))
        return ST_OK;
    return err_set(ev->err, ST_FORMAT, "%s: %s comes out as %lld (%s); it must be from 1 to 2147483647", ev->src->name,
                   row->name, (long long)v->i, expr_text(e));
}

static Status default_number(Eval *ev, const ConfigRow *row, Value *out)
{
    const Expr *root;
    int64_t v = 0;
    Status st = ST_OK;

    if (row->needs != NULL) {
        TRY(eval_expr(ev, row, row->needs, &v));
        if (v == 0) {
            Str s = STR_INIT;
            NameValues nv = {.s = &s, .lookup = eval_lookup, .ctx = ev};

            expr_names(row->needs, add_name_value, &nv);
            st = err_set(ev->err, ST_FORMAT, "%s: %s is not given, and %s does not come out even (%s); add the key %s",
                         ev->src->name, row->name, expr_text(row->expr), str_c(&s),
                         row->n_keys[ev->source] ? row->keys[ev->source][0] : row->name);
            str_release(&s);
            return st;
        }
    }
    root = row->rsqrt != NULL ? row->rsqrt : row->sqrt;
    TRY(eval_expr(ev, row, root != NULL ? root : row->expr, &v));
    if (row->fraction != NULL) {
        uint32_t f = (uint32_t)(config_row(ev->map, row->fraction) - ev->map->rows);

        TRY(eval_row(ev, f));
        v = (int64_t)floor((double)v * ev->values[f].f + 1e-6); /* 0.3 of 10 is 3, whatever binary says */
    }
    for (int k = 0; row->yarn != NULL && k < 2; k++)
        TRY(eval_row(ev, (uint32_t)(config_row(ev->map, row->yarn[k]) - ev->map->rows)));
    if (row->type == VALUE_INT)
        out->i = v;
    else if (root == NULL)
        out->f = (double)v;
    else if (v > 0)
        out->f = row->rsqrt != NULL ? 1 / sqrt((double)v) : sqrt((double)v);
    else
        return err_set(ev->err, ST_FORMAT, "%s: %s is %lld; it must be above 0", ev->src->name, expr_text(root),
                       (long long)v);
    if (row->yarn != NULL) {
        double factor = ev->values[config_row(ev->map, row->yarn[0]) - ev->map->rows].f;
        double mscale = ev->values[config_row(ev->map, row->yarn[1]) - ev->map->rows].f;

        out->f *= yarn_mscale(factor, mscale) * yarn_mscale(factor, mscale);
    }
    st = check_dim(ev, row, row->expr, out);
done:
    return st;
}

/* The default that only GGUF files have. */
static Status default_gguf(Eval *ev, const ConfigRow *row, Value *out)
{
    int64_t v;
    Status st = eval_expr(ev, row, row->gguf_expr, &v);

    if (st != ST_OK)
        return st;
    if (row->type == VALUE_FLOAT)
        out->f = (double)v;
    else
        out->i = v;
    return check_dim(ev, row, row->gguf_expr, out);
}

static Status default_list(Eval *ev, const ConfigRow *row, Value *out)
{
    const ListDefault *list = &row->list[ev->source];
    const char **items;
    uint32_t n;
    Status st = list_length(ev, row, &n);

    if (st != ST_OK)
        return st;
    if (n == UINT32_MAX)
        return missing(ev, row);
    items = ARENA_ARRAY(ev->arena, const char *, n);
    if (items == NULL)
        return eval_nomem(ev);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < list->n && items[i] == NULL; k++) {
            int64_t holds = 0;

            ev->layer = i;
            st = eval_expr(ev, row, list->when[k], &holds);
            ev->layer = -1;
            if (st != ST_OK)
                return st;
            if (holds)
                items[i] = list->items[k];
        }
        if (items[i] == NULL)
            return err_set(ev->err, ST_FORMAT, "%s: the default of %s (%s:%u) has no item for layer %u", ev->src->name,
                           row->name, row->toml->name, row->at->line, i);
    }
    out->list.items = items;
    out->list.n = n;
    return ST_OK;
}

/* The layers that have the row's tensor; without a list of tensors, none. */
static Status layers_with(Eval *ev, const ConfigRow *row, Value *out)
{
    const char *hole = strstr(row->tensor, "{l}");
    int64_t *items;
    uint32_t n, found = 0;
    Status st = list_length(ev, row, &n);

    if (st != ST_OK)
        return st;
    items = ARENA_ARRAY(ev->arena, int64_t, n);
    if (items == NULL)
        return eval_nomem(ev);
    for (uint32_t l = 0; l < n && hole != NULL && ev->src->find != NULL; l++) {
        TensorDesc desc;
        Str name = STR_INIT;

        str_addf(&name, "%.*s%u%s", (int)(hole - row->tensor), row->tensor, l, hole + 3);
        if (str_ok(&name) && ev->src->find(ev->src->ctx, str_c(&name), &desc))
            items[found++] = l;
        str_release(&name);
    }
    out->layers.items = items;
    out->layers.n = found;
    return ST_OK;
}

static Status set_default(Eval *ev, const ConfigRow *row, Value *out)
{
    if (row->type == VALUE_LAYERS && ev->source == SOURCE_GGUF && row->tensor != NULL)
        return layers_with(ev, row, out);
    if (row->type == VALUE_LAYERS || (row->type == VALUE_EACH && row->n_keys[ev->source] == 0))
        return ST_OK; /* none; 0 for each */
    if (row->type == VALUE_LIST && row->list[ev->source].n > 0)
        return default_list(ev, row, out);
    if (ev->source == SOURCE_GGUF && row->tensor != NULL && ev->src->find != NULL) {
        TensorDesc desc;

        out->b = ev->src->find(ev->src->ctx, row->tensor, &desc);
        return ST_OK;
    }
    if (ev->source == SOURCE_GGUF && row->gguf_literal != NULL) {
        set_literal(out, row->gguf_literal);
        return ST_OK;
    }
    if (ev->source == SOURCE_GGUF && row->gguf_expr != NULL)
        return default_gguf(ev, row, out);
    if (row->expr != NULL || row->rsqrt != NULL || row->sqrt != NULL)
        return default_number(ev, row, out);
    if (row->literal == NULL)
        return missing(ev, row);
    set_literal(out, row->literal);
    return ST_OK;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */
/* One spelling, where it is present; *found is the key that gave the value so far. */
static Status read_spelling(Eval *ev, const ConfigRow *row, const char *path, Value *out, const char **found,
                            bool *null)
{
    char buf[256];
    const json_t *v = find_value(ev, path);
    const char *name = full_key(ev, path, buf, sizeof buf);
    Value other = *out;
    Status st;

    *null |= json_is_null(v);
    if (v == NULL || json_is_null(v))
        return ST_OK;
    st = read_json(ev, row, path, v, &other);
    if (st != ST_OK)
        return st;
    if (*found != NULL && !value_equal(out, &other))
        return err_set(ev->err, ST_FORMAT, "%s: %s and %s disagree; delete the one that is wrong", ev->src->name,
                       *found, name);
    *out = other;
    *found = arena_strdup(ev->arena, name);
    return *found != NULL ? ST_OK : eval_nomem(ev);
}

/* The spellings that are present. *found is NULL when none is, else the full key that gave the value. */
static Status read_spellings(Eval *ev, const ConfigRow *row, Value *out, const char **found, bool *null)
{
    const char *counted = row->counts[ev->source];
    const json_t *count = counted != NULL ? find_value(ev, counted) : NULL;
    Status st = ST_OK;

    *found = NULL;
    *null = false;
    for (uint32_t r = 0; st == ST_OK && r < ev->n_roots && !(row->top && *found != NULL); r++) {
        ev->root = row->top ? ev->n_roots - 1 - r : r;
        for (uint32_t i = 0; st == ST_OK && i < row->n_keys[ev->source]; i++)
            st = read_spelling(ev, row, row->keys[ev->source][i], out, found, null);
    }
    ev->root = ev->n_roots - 1;
    if (st == ST_OK && json_is_array(count)) {
        int64_t n = (int64_t)json_array_size(count);

        if (*found != NULL && out->i != n)
            return err_set(ev->err, ST_FORMAT,
                           "%s: %s is %lld, but %s has %lld items; the file is damaged or badly converted",
                           ev->src->name, *found, (long long)out->i, counted, (long long)n);
        if (n < 1 || n > INT32_MAX)
            return err_set(ev->err, ST_FORMAT, "%s: %s has %lld items; it must have at least 1", ev->src->name, counted,
                           (long long)n);
        out->i = n;
        *found = counted;
    }
    return st;
}

static Status eval_row(Eval *ev, uint32_t i)
{
    const ConfigRow *row = &ev->map->rows[i];
    Value *out = &ev->values[i];
    const char *found;
    int64_t on = 1, layer = ev->layer;
    uint32_t root = ev->root;
    bool null;
    Status st = ST_OK;

    if (ev->state[i] == ROW_DONE)
        return ST_OK;
    for (uint32_t k = 0; ev->state[i] == ROW_BUSY && k < ev->map->n_rows; k++)
        if (ev->state[k] == ROW_BUSY && ev->map->rows[k].n_keys[ev->source] > 0)
            return missing(ev, &ev->map->rows[k]); /* rows that stand in for each other, and none is given */
    if (ev->state[i] == ROW_BUSY)
        return err_set(ev->err, ST_FORMAT, "%s:%u: the default of %s depends on itself", row->toml->name, row->at->line,
                       row->name);
    ev->state[i] = ROW_BUSY;
    ev->layer = -1;
    *out = (Value){.name = row->name, .type = row->type};
    TRY(read_spellings(ev, row, out, &found, &null));
    if (row->when != NULL)
        TRY(eval_expr(ev, row, row->when, &on));
    if (!on)
        set_literal(out, row->off);
    else if (found == NULL && null && row->null_value != NULL)
        set_literal(out, row->null_value);
    else if (found == NULL)
        TRY(set_default(ev, row, out));
    ev->state[i] = ROW_DONE;
done:
    ev->layer = layer;
    ev->root = root;
    return st;
}

/* ---- ropes ------------------------------------------------------------------------------------------------------- */
static const Value *rope_value(Eval *ev, const TomlNode *field)
{
    const ConfigRow *row =
        field->kind == TOML_STRING && field->str[0] == '$' ? config_row(ev->map, field->str + 1) : NULL;

    return row != NULL ? &ev->values[row - ev->map->rows] : NULL;
}

/* A field is a number, "$value", or an expression over integers; *out stays as it is when the field is missing. */
static Status rope_number(Eval *ev, const ConfigRope *rope, const char *key, double *out)
{
    const TomlNode *f = toml_find(rope->fields, key);
    const Value *v = f != NULL ? rope_value(ev, f) : NULL;
    ConfigRow at = {.toml = rope->toml, .at = f};
    Expr *e = NULL;
    int64_t n = 0;
    Err inner;
    Status st;

    if (f == NULL)
        return ST_OK;
    if (f->kind == TOML_INT || f->kind == TOML_FLOAT) {
        *out = f->kind == TOML_INT ? (double)f->i : f->f;
        return ST_OK;
    }
    if (v != NULL && (v->type == VALUE_INT || v->type == VALUE_FLOAT)) {
        *out = v->type == VALUE_INT ? (double)v->i : v->f;
        return ST_OK;
    }
    if (f->kind != TOML_STRING || f->str[0] == '$')
        return err_set(ev->err, ST_FORMAT, "%s:%u:%u: '%s' of rope %s must be a number or name one", rope->toml->name,
                       f->line, f->col, key, rope->name);
    st = expr_parse(f->str, ev->arena, &e, &inner);
    if (st != ST_OK)
        return err_set(ev->err, st, "%s:%u:%u: %s", rope->toml->name, f->line, f->col, inner.msg);
    st = eval_expr(ev, &at, e, &n);
    *out = (double)n;
    return st;
}

static Status rope_word(Eval *ev, const ConfigRope *rope, RopeKind *kind)
{
    static const char *const names[] = {
        [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn"};
    const TomlNode *f = toml_find(rope->fields, "kind");
    const Value *v = rope_value(ev, f);
    const char *word = v != NULL && v->type == VALUE_TEXT ? v->text : f->kind == TOML_STRING ? f->str : "";

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], word) == 0) {
            *kind = (RopeKind)i;
            return ST_OK;
        }
    return err_set(ev->err, ST_FORMAT,
                   "%s:%u:%u: rope %s cannot be of kind \"%s\"; known are default, linear, llama3, yarn",
                   rope->toml->name, f->line, f->col, rope->name, word);
}

/* A field that this kind cannot do without; 0 stands for "not given". */
static Status rope_need(Eval *ev, const ConfigRope *rope, const char *key, double value)
{
    const TomlNode *f = toml_find(rope->fields, key);
    const ConfigRow *row;
    char buf[256];

    if (value != 0)
        return ST_OK;
    row = f != NULL && f->kind == TOML_STRING && f->str[0] == '$' ? config_row(ev->map, f->str + 1) : NULL;
    if (row != NULL && row->n_keys[ev->source] > 0)
        return err_set(ev->err, ST_FORMAT, "%s: key %s is missing, but this kind of rope scaling needs it; add it",
                       ev->src->name, full_key(ev, row->keys[ev->source][0], buf, sizeof buf));
    return err_set(ev->err, ST_UNSUPPORTED, "%s: this kind of rope scaling needs %s, which no key of such a file gives",
                   ev->src->name, key);
}

/* What a kind does not read stays 0, so that equal tables have equal specs. */
static Status eval_rope(Eval *ev, const ConfigRope *rope, RopeSpec *out)
{
    const TomlNode *truncate = toml_find(rope->fields, "truncate");
    double dims = 0, mscale = 0, mscale_all = 0;
    Status st = ST_OK;

    TRY(rope_word(ev, rope, &out->kind));
    TRY(rope_number(ev, rope, "dims", &dims));
    TRY(rope_number(ev, rope, "theta", &out->theta));
    out->dims = (uint32_t)dims;
    if (out->kind != ROPE_DEFAULT) {
        TRY(rope_number(ev, rope, "factor", &out->factor));
        TRY(rope_need(ev, rope, "factor", out->factor));
    }
    if (out->kind == ROPE_LLAMA3 || out->kind == ROPE_YARN) {
        TRY(rope_number(ev, rope, "original_max_position", &out->original_max_position));
        TRY(rope_need(ev, rope, "original_max_position", out->original_max_position));
    }
    if (out->kind == ROPE_LLAMA3) {
        TRY(rope_number(ev, rope, "low_freq_factor", &out->low_freq_factor));
        TRY(rope_need(ev, rope, "low_freq_factor", out->low_freq_factor));
        TRY(rope_number(ev, rope, "high_freq_factor", &out->high_freq_factor));
        TRY(rope_need(ev, rope, "high_freq_factor", out->high_freq_factor));
    }
    if (out->kind == ROPE_YARN) {
        const Value *v = truncate != NULL ? rope_value(ev, truncate) : NULL;

        out->beta_fast = 32;
        out->beta_slow = 1;
        TRY(rope_number(ev, rope, "beta_fast", &out->beta_fast));
        TRY(rope_number(ev, rope, "beta_slow", &out->beta_slow));
        TRY(rope_number(ev, rope, "attention_factor", &out->attention_factor));
        TRY(rope_number(ev, rope, "mscale", &mscale));
        TRY(rope_number(ev, rope, "mscale_all_dim", &mscale_all));
        if (out->attention_factor == 0 && mscale > 0 && mscale_all > 0)
            out->attention_factor = yarn_mscale(out->factor, mscale) / yarn_mscale(out->factor, mscale_all);
        out->truncate = v != NULL && v->type == VALUE_SWITCH ? v->b : truncate == NULL || truncate->b;
    }
    st = rope_validate(out, ev->err);
    if (st != ST_OK)
        st = err_wrap(ev->err, st, "%s: ", ev->src->name);
done:
    return st;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */
static Status add_id(Eval *ev, const char *path, const json_t *v, int64_t *ids, uint32_t *n, uint32_t most)
{
    int64_t id = json_integer_value(v);

    if (!json_is_integer(v) || id < 0 || id > INT32_MAX)
        return bad_value(ev, path, v, "a token id (or a list of them)");
    for (uint32_t i = 0; i < *n; i++)
        if (ids[i] == id)
            return ST_OK;
    if (*n == most)
        return bad_value(ev, path, v, most == 1 ? "one token id" : "at most 8 token ids in all");
    ids[(*n)++] = id;
    return ST_OK;
}

/* All keys together: a file may name its ends of sequence one by one. */
static Status eval_ids(Eval *ev, const ConfigIds *def, int64_t *ids, uint32_t *n, uint32_t most)
{
    Status st = ST_OK;

    for (ev->root = 0; ev->root < ev->n_roots; ev->root++)
        for (uint32_t i = 0; i < def->n_keys[ev->source]; i++) {
            const char *path = def->keys[ev->source][i];
            const json_t *v = find_value(ev, path);

            if (v == NULL || json_is_null(v))
                continue;
            if (!json_is_array(v)) {
                TRY(add_id(ev, path, v, ids, n, most));
                continue;
            }
            for (size_t k = 0; k < json_array_size(v); k++)
                TRY(add_id(ev, path, json_array_get(v, k), ids, n, most));
        }
    ev->root = ev->n_roots - 1;
done:
    return st;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */
Status check_run(const CircuitCheck *c, const Scope *scope, const char *file, Err *err)
{
    Scope s = *scope;
    NameValues nv = {.lookup = scope_lookup, .ctx = &s};
    Str text = STR_INIT;
    int64_t v = 1;
    Status st = ST_OK;
    Err inner;

    if (c->when != NULL)
        st = expr_eval(c->when, scope_lookup, &s, &v, &inner);
    if (st == ST_OK && v != 0)
        st = expr_eval(c->that, scope_lookup, &s, &v, &inner);
    else if (st == ST_OK)
        return ST_OK;
    if (st != ST_OK)
        return err_set(err, st, "%s: %s", file, inner.msg);
    if (v != 0)
        return ST_OK;
    nv.s = &text;
    expr_names(c->that, add_name_value, &nv);
    st = err_set(err, ST_FORMAT, "%s: %s: %s", file, str_c(&text), c->otherwise);
    str_release(&text);
    return st;
}

static int dim_order(const void *a, const void *b)
{
    return strcmp(((const InstanceDim *)a)->name, ((const InstanceDim *)b)->name);
}

static Status collect_dims(Eval *ev, ConfigValues *out)
{
    InstanceDim *dims = ARENA_ARRAY(ev->arena, InstanceDim, ev->map->n_rows);

    if (dims == NULL)
        return eval_nomem(ev);
    for (uint32_t i = 0; i < ev->map->n_rows; i++)
        if (ev->map->rows[i].dim)
            dims[out->n_dims++] = (InstanceDim){.name = ev->values[i].name, .value = ev->values[i].i};
    qsort(dims, out->n_dims, sizeof *dims, dim_order);
    out->dims = dims;
    return ST_OK;
}

Status config_map_eval(const ConfigMap *map, const InstanceSource *src, Arena *a, ConfigValues *out, Err *err)
{
    Eval ev = {.map = map, .src = src, .arena = a, .err = err, .layer = -1, .st = ST_OK};
    RopeSpec *ropes = ARENA_ARRAY(a, RopeSpec, map->n_ropes);
    const char **names = ARENA_ARRAY(a, const char *, map->n_ropes);
    uint32_t n_bos = 0;
    Scope scope;
    Status st = ST_OK;

    *out = (ConfigValues){.bos_id = -1};
    ev.source = src->gguf ? SOURCE_GGUF : SOURCE_JSON;
    ev.roots[0] = src->meta;
    ev.n_roots = 1;
    if (!src->gguf && map->nested != NULL && json_is_object(json_object_get(src->meta, map->nested))) {
        ev.roots[0] = json_object_get(src->meta, map->nested);
        ev.roots[1] = src->meta;
        ev.n_roots = 2;
    }
    ev.root = ev.n_roots - 1;
    ev.values = ARENA_ARRAY(a, Value, map->n_rows);
    ev.state = ARENA_ARRAY(a, RowState, map->n_rows);
    if (ropes == NULL || names == NULL || ev.values == NULL || ev.state == NULL)
        return eval_nomem(&ev);
    if (src->gguf) {
        ev.arch = json_string_value(json_object_get(src->meta, "general.architecture"));
        TRY(classify_gguf(&ev));
    } else {
        TRY(classify_roots(&ev));
    }
    for (uint32_t i = 0; i < map->n_rows; i++)
        TRY(eval_row(&ev, i));
    out->values = (ValueSet){.items = ev.values, .n = map->n_rows};
    TRY(collect_dims(&ev, out));
    scope = (Scope){.sets = {&out->values}, .n = 1};
    for (uint32_t i = 0; i < map->n_checks; i++)
        TRY(check_run(&map->checks[i], &scope, src->name, err));
    for (uint32_t i = 0; i < map->n_ropes; i++) {
        names[i] = map->ropes[i].name;
        TRY(eval_rope(&ev, &map->ropes[i], &ropes[i]));
    }
    out->ropes = ropes;
    out->rope_names = names;
    out->n_ropes = map->n_ropes;
    TRY(eval_ids(&ev, &map->bos, &out->bos_id, &n_bos, 1));
    TRY(eval_ids(&ev, &map->eos, out->eos_ids, &out->n_eos, 8));
done:
    return st;
}
