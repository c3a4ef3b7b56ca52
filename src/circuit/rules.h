/* rules.h - rules as patterns: reading RULES.toml, and what the names inside a rule mean. Private to the room.
 *
 * A name is looked up against a rule: "VAR" is a value that flows between the pattern's nodes, "alias.x" is something
 * of one node. The implied rule of a one-op family has one node without alias, so that its names stand alone: "weight",
 * "n", "in". Its variables are in (or in0, in1 ... when the op has several inputs) and out (or out0, out1 ...). */
#ifndef METRALE_CIRCUIT_RULES_H
#define METRALE_CIRCUIT_RULES_H
#include "circuit/families.h"
#include "core/toml.h"

enum { RULE_MAX_VARS = RULE_MAX_NODES * (OP_MAX_IN + OP_MAX_OUT) };

/* A variable of a rule. Inner: made and read inside the pattern, and not kept: it needs no memory. */
typedef struct RuleVar {
    const char *name;
    bool made, read, inner;
    uint32_t node, slot; /* where it is made, or first read */
} RuleVar;

/* Every variable once, in order of appearance; returns how many. */
uint32_t rule_vars(const Rule *r, RuleVar out[RULE_MAX_VARS]);
/* Index into vars of name, or -1. */
int rule_var_find(const RuleVar *vars, uint32_t n, const char *name);
/* Splits "alias.rest" (or "rest", for the implied rule); false when the text names no node. */
bool rule_node(const Rule *r, const char *text, uint32_t *node, const char **rest);

typedef enum {
    BIND_VAR,
    BIND_WEIGHT,
    BIND_STATE,
    BIND_TABLE,
    BIND_STEP,
    BIND_WORKSPACE,
    BIND_PARAM,
    BIND_EXPR,
} BindKind;

/* What an argument of a family is bound to. */
typedef struct Binding {
    BindKind kind;
    uint32_t node;    /* pattern node of WEIGHT, STATE, TABLE, PARAM */
    uint32_t index;   /* variable, weight slot, StepTable or parameter */
    const char *part; /* STATE: the part's name */
    Expr *expr;
} Binding;

/* Expressions are compiled into a. */
Status binding_parse(Binding *out, const Rule *r, const char *text, Arena *a, Err *err);

/* The format that the family gives a variable or slot, or DT_NONE when it lists none. name as in FAMILIES.toml. */
DType family_format(const Family *f, const char *name);
/* The name under which FAMILIES.toml lists a thing of a node: "slot" or "alias.slot". */
bool rule_slot_name(const Rule *r, uint32_t node, const char *slot, char *out, size_t size);

/* The implied rule of a family with an op. */
Status rule_imply(Rule *out, const Family *f, Arena *a, Err *err);
/* Reads one [[rule]] table; families are those already merged. */
Status rule_read(Rule *out, const Toml *t, const TomlNode *table, const Family *families, uint32_t n_families, Arena *a,
                 Err *err);
/* Every name that the rule's family uses must mean something in the pattern, and every matrix and state must have a
 * format. The message has no position: the caller puts it in front. */
Status rule_check(const Rule *r, Arena *a, Err *err);
#endif
