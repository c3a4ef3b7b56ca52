/* config_map.h - the parsed form of <arch>.config.toml, between its reader (config_map.c) and its evaluator
 * (config_eval.c). circuits/README.md describes the language. */
#ifndef METRALE_CIRCUIT_CONFIG_MAP_H
#define METRALE_CIRCUIT_CONFIG_MAP_H
#include "circuit/circuit_parts.h"

typedef enum { SOURCE_JSON, SOURCE_GGUF, SOURCE_COUNT } SourceKind;
typedef enum { AS_IS, AS_RSQRT, AS_RECIPROCAL } RowAs;

/* The default of a list: for each layer the first item whose condition holds. */
typedef struct ListDefault {
    const char **items;
    const Expr **when;
    uint32_t n;
} ListDefault;

/* One value: where it is read, what it may be, what it is when it is not given. */
typedef struct ConfigRow {
    const char *name;
    ValueType type;
    bool dim;
    const char *const *keys[SOURCE_COUNT]; /* all that are present must agree */
    uint32_t n_keys[SOURCE_COUNT];
    const char *counts[SOURCE_COUNT]; /* the length of this array is one more spelling; or NULL */
    bool top;                         /* a switch: the file's own level has the last word over the nested one */
    /* The default, in GGUF if that differs; the value of null, the value while `when` is 0. */
    const TomlNode *literal, *gguf_literal, *null_value, *off;
    const Expr *expr, *sqrt, *rsqrt, *needs, *when; /* default = expression, its root, 1 / root; its condition */
    const Expr *gguf_expr;                          /* the default in GGUF, if that differs and is an expression */
    const char *const
        *yarn; /* float rows factor and mscale: the default is times (0.1 mscale ln(factor) + 1)^2; or NULL */
    const char *fraction;   /* a float row: the default is the whole part of expression * fraction; or NULL */
    const char *tensor;     /* in GGUF, a switch: on when this tensor is there; layers: those that have it; or NULL */
    double gguf_times;      /* a float in GGUF: what the file gives is multiplied by this */
    double min, max, above; /* of a value that is given: min <= v <= max, v > above */
    RowAs as;
    const TomlNode *names; /* texts: from the checkpoint's word to ours; NULL for none */
    const char *const *allowed;
    uint32_t n_allowed;
    const char *length; /* the row that says how many items a list has, or how many layers there are */
    bool by_char;       /* a string stands for the list of its characters */
    ListDefault list[SOURCE_COUNT];
    const Toml *toml;
    const TomlNode *at;
} ConfigRow;

/* A key that is ignored, or refused unless it has one of some values. */
typedef struct ConfigKey {
    const char *path;
    bool tree; /* path and everything below it */
    bool refused;
    const char *because;
    const TomlNode *unless; /* array of the values that are fine; NULL: none is */
    const Toml *toml;
    const TomlNode *at;
} ConfigKey;

typedef struct ConfigIds {
    const char *const *keys[SOURCE_COUNT];
    uint32_t n_keys[SOURCE_COUNT];
} ConfigIds;

typedef struct ConfigRope {
    const char *name;
    const TomlNode *fields;
    const Toml *toml;
} ConfigRope;

struct ConfigMap {
    const Toml *toml;   /* <arch>.config.toml */
    const char *nested; /* config.json: an object under this key holds the model's own keys; NULL: none does */
    const char *const *match[SOURCE_COUNT];
    uint32_t n_match[SOURCE_COUNT];
    const ConfigRow *rows;
    uint32_t n_rows;
    const ConfigKey *keys[SOURCE_COUNT];
    uint32_t n_keys[SOURCE_COUNT];
    const char *const *groups; /* GGUF: first components of keys that are no architecture's */
    uint32_t n_groups;
    ConfigIds bos, eos;
    const ConfigRope *ropes;
    uint32_t n_ropes;
    const CircuitCheck *checks;
    uint32_t n_checks;
};

/* How a path of the checkpoint is classified. */
typedef enum { KEY_UNKNOWN, KEY_VALUE, KEY_RULE, KEY_ABOVE } KeyClass;
/* KEY_ABOVE: something below the path is classified. *rule is set for KEY_RULE. */
KeyClass config_classify(const ConfigMap *map, SourceKind source, const char *path, const ConfigKey **rule);
/* NULL when unknown; the index is rows - map->rows. */
const ConfigRow *config_row(const ConfigMap *map, const char *name);
#endif
