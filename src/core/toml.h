/* toml.h - a TOML file as a plain C tree with positions. The parser is tomlplusplus (core/toml.cc is the only C++
 * file). */
#ifndef METRALE_CORE_TOML_H
#define METRALE_CORE_TOML_H
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum { TOML_TABLE, TOML_ARRAY, TOML_STRING, TOML_INT, TOML_FLOAT, TOML_BOOL } TomlKind;

typedef struct TomlNode TomlNode;
struct TomlNode {
    TomlKind kind;
    const char *key;    /* NULL for array items and the root */
    uint32_t line, col; /* 1-based, of the value */
    union {
        struct {
            const TomlNode *items; /* table: in file order; array: in order */
            uint32_t len;
        } list;
        const char *str; /* NUL-terminated UTF-8 */
        int64_t i;
        double f;
        bool b;
    };
};

typedef struct Toml {
    TomlNode root;
    const char *name; /* the file name, for messages */
    struct Arena *arena;
} Toml;

/* name is copied. Dates and times are refused. Messages read "NAME:LINE:COL: what". */
Status toml_parse(const char *text, size_t len, const char *name, Toml **out, Err *err);
void toml_free(Toml *t); /* NULL is fine */

const TomlNode *toml_find(const TomlNode *table, const char *key); /* NULL when absent */
const char *toml_kind_name(TomlKind kind);

/* Typed readers. A missing key leaves *out as it is and returns ST_OK (toml_need_* refuses instead); a value of the
 * wrong kind is an error with file:line. toml_float takes integers too. */
Status toml_str(const Toml *t, const TomlNode *table, const char *key, const char **out, Err *err);
Status toml_need_str(const Toml *t, const TomlNode *table, const char *key, const char **out, Err *err);
Status toml_int(const Toml *t, const TomlNode *table, const char *key, int64_t *out, Err *err);
Status toml_float(const Toml *t, const TomlNode *table, const char *key, double *out, Err *err);
Status toml_bool(const Toml *t, const TomlNode *table, const char *key, bool *out, Err *err);
/* *out is NULL when absent. */
Status toml_table(const Toml *t, const TomlNode *table, const char *key, const TomlNode **out, Err *err);
Status toml_array(const Toml *t, const TomlNode *table, const char *key, const TomlNode **out, Err *err);

/* Refuses every key of table that is not in the NULL-terminated list, naming file:line, the key and the allowed ones.
 */
Status toml_only(const Toml *t, const TomlNode *table, const char *const *allowed, Err *err);

/* "FILE:LINE: " + sentence into err; returns st. */
Status toml_err(const Toml *t, const TomlNode *at, Err *err, Status st, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
#ifdef __cplusplus
}
#endif
#endif
