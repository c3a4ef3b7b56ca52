/* toml_each.c - see toml_each.h. Copies are deep, in the document's arena; what has no braces is copied all the same, so that a table stays a plain
 * tree of its own. */
#include "core/toml_each.h"
#include "core/arena.h"
#include "core/str.h"
#include <string.h>

/* The lists of one `each`, and the number of the copy at hand. */
typedef struct Lists {
    const TomlNode *each; /* table of arrays of strings */
    uint32_t i;
} Lists;

/* The element that {name} stands for, or NULL. */
static const char *element(const Lists *l, const char *name, size_t len)
{
    for (uint32_t k = 0; k < l->each->list.len; k++) {
        const TomlNode *list = &l->each->list.items[k];
        if (strlen(list->key) == len && memcmp(list->key, name, len) == 0)
            return list->list.items[l->i].str;
    }
    return NULL;
}

static const char *fill(Arena *a, const Lists *l, const char *text)
{
    const char *copy, *p = text;
    Str s = STR_INIT;

    if (text == NULL)
        return NULL;
    while (*p) {
        size_t len = *p == '{' ? strcspn(p + 1, "{}") : 0;
        const char *value = *p == '{' && p[1 + len] == '}' ? element(l, p + 1, len) : NULL;
        if (value) {
            str_adds(&s, value);
            p += len + 2;
        } else
            str_addc(&s, *p++);
    }
    copy = str_ok(&s) ? arena_strdup(a, str_c(&s)) : NULL;
    str_release(&s);
    return copy;
}

static bool copy_node(Arena *a, const Lists *l, const TomlNode *from, TomlNode *to, const char *but)
{
    *to = *from;
    to->key = fill(a, l, from->key);
    if ((from->key && to->key == NULL) || (from->kind == TOML_STRING && (to->str = fill(a, l, from->str)) == NULL))
        return false;
    if (from->kind != TOML_TABLE && from->kind != TOML_ARRAY)
        return true;
    TomlNode *items = ARENA_ARRAY(a, TomlNode, from->list.len + 1u);
    uint32_t n = 0;
    if (items == NULL)
        return false;
    for (uint32_t i = 0; i < from->list.len; i++) {
        const TomlNode *item = &from->list.items[i];
        if (but && item->key && strcmp(item->key, but) == 0)
            continue;
        if (!copy_node(a, l, item, &items[n++], NULL))
            return false;
    }
    to->list.items = items;
    to->list.len = n;
    return true;
}

/* How many tables an item stands for: 1 without `each`. */
static Status count(const Toml *t, const TomlNode *item, uint32_t *n, Err *err)
{
    const TomlNode *each = item->kind == TOML_TABLE ? toml_find(item, "each") : NULL;

    *n = 1;
    if (each == NULL)
        return ST_OK;
    if (each->kind != TOML_TABLE || each->list.len == 0)
        return toml_err(t, each, err, ST_FORMAT,
                        "each must be a table of lists, as in each = { format = [\"f16\", \"bf16\"] }");
    for (uint32_t k = 0; k < each->list.len; k++) {
        const TomlNode *list = &each->list.items[k];
        if (list->kind != TOML_ARRAY || list->list.len == 0)
            return toml_err(t, list, err, ST_FORMAT, "each.%s must be a list of strings with at least one", list->key);
        if (k > 0 && list->list.len != *n)
            return toml_err(t, list, err, ST_FORMAT,
                            "each.%s has %u elements, the list before it %u; they go together one by one", list->key,
                            list->list.len, *n);
        *n = list->list.len;
        for (uint32_t i = 0; i < *n; i++)
            if (list->list.items[i].kind != TOML_STRING)
                return toml_err(t, &list->list.items[i], err, ST_FORMAT, "each.%s: element %u is no string", list->key,
                                i + 1);
    }
    return ST_OK;
}

static Status expand(Toml *t, const TomlNode *array, TomlNode *out, Err *err)
{
    Status st = ST_OK;
    uint32_t n, total = 0, at = 0;
    TomlNode *items;

    *out = *array;
    for (uint32_t i = 0; i < array->list.len; i++) {
        TRY(count(t, &array->list.items[i], &n, err));
        total += n;
    }
    items = ARENA_ARRAY(t->arena, TomlNode, total + 1u);
    if (items == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory", t->name);
    for (uint32_t i = 0; i < array->list.len; i++) {
        const TomlNode *item = &array->list.items[i];
        Lists l = {.each = item->kind == TOML_TABLE ? toml_find(item, "each") : NULL};
        TRY(count(t, item, &n, err));
        for (l.i = 0; l.i < n; l.i++, at++) {
            if (l.each == NULL)
                items[at] = *item;
            else if (!copy_node(t->arena, &l, item, &items[at], "each"))
                return err_set(err, ST_NOMEM, "%s: out of memory", t->name);
        }
    }
    out->list.items = items;
    out->list.len = total;
done:
    return st;
}

Status toml_each(Toml *t, Err *err)
{
    Status st = ST_OK;
    TomlNode *items = ARENA_ARRAY(t->arena, TomlNode, t->root.list.len + 1u);

    if (items == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory", t->name);
    for (uint32_t i = 0; i < t->root.list.len; i++) {
        items[i] = t->root.list.items[i];
        if (items[i].kind == TOML_ARRAY)
            TRY(expand(t, &t->root.list.items[i], &items[i], err));
    }
    t->root.list.items = items;
done:
    return st;
}
