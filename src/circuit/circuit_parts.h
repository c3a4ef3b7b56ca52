/* circuit_parts.h - the parsed circuits, config maps and weight maps: what the files of this room share and nobody else
 * includes. circuits/README.md describes the language; the structs below are its syntax tree, with the TOML nodes kept
 * for messages.
 *
 * Owns: nothing; all of it lives in the arena of the CircuitLibrary.   Thread: immutable after load. */
#ifndef METRALE_CIRCUIT_PARTS_H
#define METRALE_CIRCUIT_PARTS_H
#include "circuit/circuit.h"
#include "circuit/instance.h"
#include "circuit/rope.h"
#include "circuit/signature.h"
#include "core/arena.h"
#include "core/expr.h"
#include "core/toml.h"

/* ---- values ------------------------------------------------------------------------------------------------------ */
typedef enum { VALUE_INT, VALUE_FLOAT, VALUE_SWITCH, VALUE_TEXT, VALUE_LIST, VALUE_LAYERS, VALUE_EACH } ValueType;

typedef struct Value {
    const char *name;
    ValueType type;
    union {
        int64_t i;
        double f;
        bool b;
        const char *text; /* in a `set` table: "$name" stands for the value of that name */
        struct {
            const char *const *items;
            uint32_t n;
        } list;
        struct {
            const int64_t *items; /* VALUE_LAYERS: numbers of layers; VALUE_EACH: a number for each layer */
            uint32_t n;
        } layers;
    };
} Value;

typedef struct ValueSet {
    const Value *items;
    uint32_t n;
} ValueSet;

/* A chain of sets, the first that has the name wins: kind, architecture, checkpoint, defaults of the block. */
enum { SCOPE_MAX = 4 };
typedef struct Scope {
    const ValueSet *sets[SCOPE_MAX];
    uint32_t n;
    const Value *extra; /* one more value, looked up first; may be NULL */
} Scope;

const Value *values_find(const ValueSet *set, const char *name);
/* Follows "$name"; NULL when unknown. */
const Value *scope_find(const Scope *s, const char *name);
/* ExprLookup over a Scope: integers, and switches as 0 or 1. */
bool scope_lookup(void *scope, const char *name, int64_t *out);
const char *value_type_name(ValueType t);

/* ---- reading TOML with file, line and column --------------------------------------------------------------------- */
typedef struct Reader {
    const Toml *toml;
    Arena *arena;
    Err *err;
} Reader;

/* "FILE:LINE:COL: sentence" */
Status read_err(const Reader *r, const TomlNode *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
Status read_nomem(const Reader *r);
Status read_kind(const Reader *r, const TomlNode *node, TomlKind kind, const char *what);
/* Refuses other keys than the NULL-terminated ones. */
Status read_only(const Reader *r, const TomlNode *table, const char *const *allowed);
/* Missing: *out stays as it is. */
Status read_str(const Reader *r, const TomlNode *table, const char *key, const char **out);
Status read_need_str(const Reader *r, const TomlNode *table, const char *key, const char **out);
Status read_expr(const Reader *r, const TomlNode *table, const char *key, const Expr **out);
Status read_expr_text(const Reader *r, const TomlNode *at, const char *text, const Expr **out);
/* A table or array under key, NULL when missing. */
Status read_list(const Reader *r, const TomlNode *table, const char *key, TomlKind kind, const TomlNode **out);
/* An array of strings, or one string where `one` is allowed. Missing: n is 0. */
Status read_strings(const Reader *r, const TomlNode *table, const char *key, bool one, const char *const **out,
                    uint32_t *n);
/* Scalars of a table as values. */
Status read_values(const Reader *r, const TomlNode *table, const char *key, ValueSet *out);

/* ---- circuit ----------------------------------------------------------------------------------------------------- */
typedef enum { PARAM_ABSENT, PARAM_LITERAL, PARAM_VALUE, PARAM_EXPR } ParamForm;
typedef struct CircuitParam {
    ParamForm form;
    double literal;   /* enums: the index */
    const char *name; /* PARAM_VALUE: of a value */
    const Expr *expr; /* PARAM_EXPR: over integers */
    const TomlNode *at;
} CircuitParam;

typedef struct CircuitNode {
    const char *id, *role;
    const OpDef *op;
    const char *in[OP_MAX_IN], *out[OP_MAX_OUT];
    const Expr *when;                   /* NULL: always there */
    const char *weight[OP_MAX_WEIGHTS]; /* slot of the block; NULL: absent */
    CircuitParam param[OP_MAX_PARAMS];
    const char *state;
    const char *table; /* a rope of the config map, or "$name" of a text value that names one */
    const TomlNode *at;
} CircuitNode;

typedef struct CircuitSlot {
    const char *name;
    const Expr *n, *k;   /* vectors have no n */
    const Expr *experts; /* how many of this shape; NULL: a plain weight */
    const TomlNode *at;
} CircuitSlot;

typedef struct CircuitState {
    const char *name;
    StateKind kind;
    const Expr *window; /* last tokens that it keeps; NULL: all */
    uint32_t n_parts;
    const char *part_names[4];
    const Expr *heads[4], *widths[4];
} CircuitState;

/* A condition over integers that a checkpoint must meet, and the sentence for one that does not. */
typedef struct CircuitCheck {
    const Expr *that, *when;
    const char *otherwise;
    const TomlNode *at;
} CircuitCheck;

typedef struct CircuitBlock {
    const char *name; /* of the file: "attention" */
    const Toml *toml;
    const char *in, *out;
    const CircuitNode *nodes;
    const CircuitSlot *slots;
    const CircuitState *states;
    const CircuitCheck *checks;
    uint32_t n_nodes, n_slots, n_states, n_checks;
    ValueSet defaults;
} CircuitBlock;

/* A sequence of blocks with the values that are set for it: a kind of layer, the stem or the head. */
typedef struct CircuitKind {
    const char *name;
    const CircuitBlock **blocks;
    uint32_t n_blocks;
    ValueSet set;
} CircuitKind;

typedef struct CircuitLayout {
    const char *layers;   /* the dim that counts them */
    const char *kind;     /* of every layer, or NULL: */
    const char *kinds[3]; /* list values that have one item for each layer ... */
    uint32_t n_kinds;
    const char *const *from; /* ... items, of several lists joined by '/' ... */
    const uint32_t *to;      /* ... and the kinds they stand for */
    uint32_t n_names, uniform;
} CircuitLayout;

typedef struct ConfigMap ConfigMap;
typedef struct WeightMap WeightMap;

typedef struct Circuit {
    const char *arch;
    const Toml *toml;
    ValueSet set;
    CircuitKind stem, head;
    const CircuitKind *kinds;
    uint32_t n_kinds;
    CircuitLayout layout;
    const ConfigMap *config;
    const WeightMap *weights;
} Circuit;

Status block_read(const Reader *r, const char *name, CircuitBlock *out);
/* blocks: all of the library, n_blocks of them. config and weights are set by the caller. */
Status circuit_read(const Reader *r, const char *arch, const CircuitBlock *blocks, uint32_t n_blocks, Circuit *out);
Status check_read(const Reader *r, const TomlNode *table, const CircuitCheck **out, uint32_t *n);
/* The circuits of a library, for instance_new. */
const Circuit *library_circuit(const CircuitLibrary *lib, size_t i);

/* ---- config map -------------------------------------------------------------------------------------------------- */
/* What a checkpoint's configuration comes to. */
typedef struct ConfigValues {
    ValueSet values;
    const InstanceDim *dims; /* sorted */
    uint32_t n_dims;
    const RopeSpec *ropes; /* one for each [rope.NAME], in order; factors_tensor is not set yet */
    const char *const *rope_names;
    const uint32_t *rope_of; /* the first of the ropes that is equal: instance_new sets it */
    uint32_t n_ropes;
    int64_t bos_id, eos_ids[8];
    uint32_t n_eos;
} ConfigValues;

/* own is <arch>.config.toml; its `use` names parts, circuits/config/NAME.toml. */
Status config_map_read(const Reader *own, const Toml *const *parts, uint32_t n_parts, const ConfigMap **out);
bool config_map_matches(const ConfigMap *map, bool gguf, const char *model_type);
/* Whether the map is for this kind of file at all. */
bool config_map_serves(const ConfigMap *map, bool gguf);
Status config_map_eval(const ConfigMap *map, const InstanceSource *src, Arena *a, ConfigValues *out, Err *err);
/* Whether the map can give a value of this name, and its type. */
bool config_map_declares(const ConfigMap *map, const char *name, ValueType *type);
bool config_map_declares_rope(const ConfigMap *map, const char *name);

/* One sentence with the values of the names in c->that: "FILE: n_heads = 3, n_kv_heads = 2: query heads ...". */
Status check_run(const CircuitCheck *c, const Scope *scope, const char *file, Err *err);

/* ---- weight map -------------------------------------------------------------------------------------------------- */
typedef enum { PART_STEM, PART_LAYER, PART_HEAD, PART_COUNT } WeightPart;

Status weight_map_read(const Reader *own, const Toml *const *parts, uint32_t n_parts, const WeightMap **out);

/* A weight map at work on one checkpoint. */
typedef struct WeightBinder {
    const WeightMap *map;
    const InstanceSource *src;
    const Scope *scope;
    Arena *arena;
    const char *prefix;
    uint32_t n_layers;
    const struct QuantConfig *quant; /* NULL: no weight is quantised */
    bool linear;                     /* the slot at hand is a matrix that quantisers take */
    const char **used;               /* names of tensors that something reads, growing */
    size_t n_used, cap_used;
} WeightBinder;

Status weight_binder_init(WeightBinder *b, const WeightMap *map, const InstanceSource *src, const Scope *scope,
                          uint32_t n_layers, Arena *arena, Err *err);
void weight_binder_release(WeightBinder *b);
/* *found is false for an optional slot that the map or the checkpoint has not. experts: of the slot, 0 for a plain one. */
Status weight_bind(WeightBinder *b, WeightPart part, const char *slot, uint32_t layer, uint32_t experts, bool optional,
                   InstanceBinding *out, bool *found, Err *err);
/* The tensor of divisors for a rope, NULL for none. */
Status weight_bind_rope(WeightBinder *b, const char *rope, const char **tensor, Err *err);
/* Every tensor of the checkpoint is read by something or known and ignored; those are counted by reason. */
Status weight_check_all(WeightBinder *b, const InstanceUnread **unread, uint32_t *n_unread, Err *err);
bool weight_map_declares(const WeightMap *map, bool gguf, WeightPart part, const char *slot);
/* Whether the map has names for this kind of file at all. */
bool weight_map_serves(const WeightMap *map, bool gguf);

/* ---- expansion --------------------------------------------------------------------------------------------------- */
/* The nodes of a kind for given values: `when` applied, names made SSA, parameters resolved, widths checked. weights
 * are those that the layer has, in order. Memory from a. */
typedef struct ExpandInput {
    const Circuit *circuit;
    const CircuitKind *kind;
    const ConfigValues *config;
    const InstanceWeight *weights;
    const InstanceBinding *bindings; /* of the weights; read for what quantisers say */
    uint32_t n_weights;
    DType kv_format;
    bool act_quant;    /* linears round their inputs as the configuration asks */
    const char *file;  /* the checkpoint's, for messages */
    uint32_t in_width; /* of the edge that comes in */
} ExpandInput;
Status kind_expand(const ExpandInput *x, Arena *a, InstanceBlock *out, Err *err);
/* The scope of one block of a kind. */
Scope kind_scope(const Circuit *c, const CircuitKind *kind, const CircuitBlock *block, const ConfigValues *config);
/* Whether a node is there. */
Status node_active(const CircuitNode *n, const Scope *scope, const char *file, bool *active, Err *err);

bool input_equal(const QuantInput *a, const QuantInput *b);
/* Equal structure, formats and parameters (parameters as f32, which is what kernels get). */
bool block_equal(const InstanceBlock *a, const InstanceBlock *b);
#endif
