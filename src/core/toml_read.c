/* toml_read.c - typed reading of a TOML tree: each refusal names the file, the line, the key and what was expected.
 *
 * One function, toml_value(), looks a key up and checks its kind; the public readers are a line each on top of it. */
#include "core/str.h"
#include "core/toml.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const TomlNode *toml_find(const TomlNode *table, const char *key)
{
    if (table->kind != TOML_TABLE)
        return NULL;
    for (uint32_t i = 0; i < table->list.len; i++)
        if (strcmp(table->list.items[i].key, key) == 0)
            return &table->list.items[i];
    return NULL;
}

const char *toml_kind_name(TomlKind kind)
{
    switch (kind) {
    case TOML_TABLE:
        return "table";
    case TOML_ARRAY:
        return "array";
    case TOML_STRING:
        return "string";
    case TOML_INT:
        return "integer";
    case TOML_FLOAT:
        return "float";
    case TOML_BOOL:
        return "boolean";
    }
    return "unknown kind";
}

Status toml_err(const Toml *t, const TomlNode *at, Err *err, Status st, const char *fmt, ...)
{
    char what[sizeof err->msg];
    va_list ap;

    va_start(ap, fmt);
    if (vsnprintf(what, sizeof what, fmt, ap) < 0)
        what[0] = '\0';
    va_end(ap);
    return err_set(err, st, "%s:%u: %s", t->name, at->line, what);
}

/* *out is the value under key when it is of that kind and NULL when there is none; another kind is refused. */
static Status toml_value(const Toml *t, const TomlNode *table, const char *key, TomlKind kind, const TomlNode **out,
                         Err *err)
{
    const TomlNode *v = toml_find(table, key);

    if (v != NULL && v->kind != kind)
        return toml_err(t, v, err, ST_FORMAT, "'%s' is of type %s; write a value of type %s", key,
                        toml_kind_name(v->kind), toml_kind_name(kind));
    *out = v;
    return ST_OK;
}

Status toml_str(const Toml *t, const TomlNode *table, const char *key, const char **out, Err *err)
{
    const TomlNode *v = NULL;
    Status st = toml_value(t, table, key, TOML_STRING, &v, err);

    if (st == ST_OK && v != NULL)
        *out = v->str;
    return st;
}

Status toml_need_str(const Toml *t, const TomlNode *table, const char *key, const char **out, Err *err)
{
    if (toml_find(table, key) == NULL)
        return toml_err(t, table, err, ST_FORMAT, "'%s' is missing here; add %s = \"...\"", key, key);
    return toml_str(t, table, key, out, err);
}

Status toml_int(const Toml *t, const TomlNode *table, const char *key, int64_t *out, Err *err)
{
    const TomlNode *v = NULL;
    Status st = toml_value(t, table, key, TOML_INT, &v, err);

    if (st == ST_OK && v != NULL)
        *out = v->i;
    return st;
}

Status toml_float(const Toml *t, const TomlNode *table, const char *key, double *out, Err *err)
{
    const TomlNode *v = toml_find(table, key);
    Status st;

    if (v != NULL && v->kind == TOML_INT) {
        *out = (double)v->i;
        return ST_OK;
    }
    st = toml_value(t, table, key, TOML_FLOAT, &v, err);
    if (st == ST_OK && v != NULL)
        *out = v->f;
    return st;
}

Status toml_bool(const Toml *t, const TomlNode *table, const char *key, bool *out, Err *err)
{
    const TomlNode *v = NULL;
    Status st = toml_value(t, table, key, TOML_BOOL, &v, err);

    if (st == ST_OK && v != NULL)
        *out = v->b;
    return st;
}

Status toml_table(const Toml *t, const TomlNode *table, const char *key, const TomlNode **out, Err *err)
{
    return toml_value(t, table, key, TOML_TABLE, out, err);
}

Status toml_array(const Toml *t, const TomlNode *table, const char *key, const TomlNode **out, Err *err)
{
    return toml_value(t, table, key, TOML_ARRAY, out, err);
}

static bool toml_allowed(const char *key, const char *const *allowed)
{
    for (; *allowed != NULL; allowed++)
        if (strcmp(key, *allowed) == 0)
            return true;
    return false;
}

Status toml_only(const Toml *t, const TomlNode *table, const char *const *allowed, Err *err)
{
    if (table->kind != TOML_TABLE)
        return toml_err(t, table, err, ST_FORMAT, "a table is expected here, not a value of type %s",
                        toml_kind_name(table->kind));
    for (uint32_t i = 0; i < table->list.len; i++) {
        const TomlNode *v = &table->list.items[i];
        Str list = STR_INIT;
        Status st;

        if (toml_allowed(v->key, allowed))
            continue;
        for (size_t k = 0; allowed[k] != NULL; k++)
            str_addf(&list, "%s%s", k == 0 ? "" : ", ", allowed[k]);
        st = toml_err(t, v, err, ST_FORMAT, "unknown key '%s'; allowed here: %s", v->key, str_c(&list));
        str_release(&list);
        return st;
    }
    return ST_OK;
}
