/* circuit_read.c - typed reading of the circuit files: each refusal names file, line and column, the key and what was
 * expected. Also the named values that all three kinds of file speak of. */
#include "circuit/circuit_parts.h"
#include "core/str.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- values ------------------------------------------------------------------------------------------------------ */
const char *value_type_name(ValueType t)
{
    static const char *const names[] = {
        "integer", "number", "switch", "text", "list", "list of layers", "number for each layer"};

    return names[t];
}

const Value *values_find(const ValueSet *set, const char *name)
{
    for (uint32_t i = 0; i < set->n; i++)
        if (strcmp(set->items[i].name, name) == 0)
            return &set->items[i];
    return NULL;
}

const Value *scope_find(const Scope *s, const char *name)
{
    if (s->extra != NULL && strcmp(s->extra->name, name) == 0)
        return s->extra;
    for (uint32_t i = 0; i < s->n; i++) {
        const Value *v = values_find(s->sets[i], name);

        if (v == NULL)
            continue;
        if (v->type != VALUE_TEXT || v->text[0] != '$')
            return v;
        /* A reference looks below its own set only, so that chains end. */
        name = v->text + 1;
    }
    return NULL;
}

bool scope_lookup(void *scope, const char *name, int64_t *out)
{
    const Value *v = scope_find(scope, name);

    if (v == NULL || (v->type != VALUE_INT && v->type != VALUE_SWITCH))
        return false;
    *out = v->type == VALUE_INT ? v->i : v->b;
    return true;
}

/* ---- typed readers ----------------------------------------------------------------------------------------------- */
Status read_err(const Reader *r, const TomlNode *at, const char *fmt, ...)
{
    char what[sizeof r->err->msg];
    va_list ap;

    va_start(ap, fmt);
    if (vsnprintf(what, sizeof what, fmt, ap) < 0)
        what[0] = '\0';
    va_end(ap);
    return err_set(r->err, ST_FORMAT, "%s:%u:%u: %s", r->toml->name, at->line, at->col, what);
}

Status read_nomem(const Reader *r)
{
    return err_set(r->err, ST_NOMEM, "%s: out of memory", r->toml->name);
}

Status read_kind(const Reader *r, const TomlNode *node, TomlKind kind, const char *what)
{
    if (node->kind == kind)
        return ST_OK;
    return read_err(r, node, "%s is of type %s; write a value of type %s", what, toml_kind_name(node->kind),
                    toml_kind_name(kind));
}

Status read_only(const Reader *r, const TomlNode *table, const char *const *allowed)
{
    Str list = STR_INIT;
    Status st = ST_OK;

    for (uint32_t i = 0; i < table->list.len && st == ST_OK; i++) {
        const TomlNode *item = &table->list.items[i];
        bool known = false;

        for (const char *const *a = allowed; *a != NULL; a++)
            known |= strcmp(item->key, *a) == 0;
        if (known)
            continue;
        for (const char *const *a = allowed; *a != NULL; a++)
            str_addf(&list, "%s%s", a == allowed ? "" : ", ", *a);
        st = read_err(r, item, "unknown key '%s'; known here: %s", item->key, str_c(&list));
    }
    str_release(&list);
    return st;
}

Status read_str(const Reader *r, const TomlNode *table, const char *key, const char **out)
{
    const TomlNode *v = toml_find(table, key);
    Status st;

    if (v == NULL)
        return ST_OK;
    st = read_kind(r, v, TOML_STRING, key);
    if (st == ST_OK)
        *out = v->str;
    return st;
}

Status read_need_str(const Reader *r, const TomlNode *table, const char *key, const char **out)
{
    if (toml_find(table, key) == NULL)
        return read_err(r, table, "'%s' is missing here; add %s = \"...\"", key, key);
    return read_str(r, table, key, out);
}

Status read_expr_text(const Reader *r, const TomlNode *at, const char *text, const Expr **out)
{
    Expr *e = NULL;
    Err inner;
    Status st = expr_parse(text, r->arena, &e, &inner);

    if (st == ST_NOMEM)
        return read_nomem(r);
    if (st != ST_OK)
        return read_err(r, at, "%s", inner.msg);
    *out = e;
    return ST_OK;
}

Status read_expr(const Reader *r, const TomlNode *table, const char *key, const Expr **out)
{
    const char *text = NULL;
    Status st = read_str(r, table, key, &text);

    if (st != ST_OK || text == NULL)
        return st;
    return read_expr_text(r, toml_find(table, key), text, out);
}

Status read_list(const Reader *r, const TomlNode *table, const char *key, TomlKind kind, const TomlNode **out)
{
    *out = toml_find(table, key);
    return *out == NULL ? ST_OK : read_kind(r, *out, kind, key);
}

Status read_strings(const Reader *r, const TomlNode *table, const char *key, bool one, const char *const **out,
                    uint32_t *n)
{
    const TomlNode *v = toml_find(table, key);
    const char **items;
    Status st = ST_OK;

    *n = 0;
    if (v == NULL)
        return ST_OK;
    if (!one || v->kind != TOML_STRING)
        st = read_kind(r, v, TOML_ARRAY, key);
    if (st != ST_OK)
        return st;
    *n = v->kind == TOML_STRING ? 1 : v->list.len;
    items = ARENA_ARRAY(r->arena, const char *, *n);
    if (items == NULL)
        return read_nomem(r);
    if (v->kind == TOML_STRING)
        items[0] = v->str;
    for (uint32_t i = 0; v->kind == TOML_ARRAY && i < *n; i++) {
        st = read_kind(r, &v->list.items[i], TOML_STRING, key);
        if (st != ST_OK)
            return st;
        items[i] = v->list.items[i].str;
    }
    *out = items;
    return ST_OK;
}

Status read_values(const Reader *r, const TomlNode *table, const char *key, ValueSet *out)
{
    const TomlNode *t;
    Status st = read_list(r, table, key, TOML_TABLE, &t);
    Value *items;

    *out = (ValueSet){0};
    if (st != ST_OK || t == NULL)
        return st;
    items = ARENA_ARRAY(r->arena, Value, t->list.len);
    if (items == NULL)
        return read_nomem(r);
    for (uint32_t i = 0; i < t->list.len; i++) {
        const TomlNode *v = &t->list.items[i];

        items[i].name = v->key;
        switch (v->kind) {
        case TOML_INT:
            items[i].type = VALUE_INT;
            items[i].i = v->i;
            break;
        case TOML_FLOAT:
            items[i].type = VALUE_FLOAT;
            items[i].f = v->f;
            break;
        case TOML_BOOL:
            items[i].type = VALUE_SWITCH;
            items[i].b = v->b;
            break;
        case TOML_STRING:
            items[i].type = VALUE_TEXT;
            items[i].text = v->str;
            break;
        case TOML_TABLE:
        case TOML_ARRAY:
            return read_err(r, v, "'%s' must be one number, boolean or string", v->key);
        }
    }
    *out = (ValueSet){.items = items, .n = t->list.len};
    return ST_OK;
}
