/* jinja_internal.h - tokens, syntax tree, values and the interpreter's state; only jinja*.c include this.
 *
 * Functions that take an Interp return false when rendering has failed; the reason is then in its err. */
#ifndef METRALE_TEXT_JINJA_INTERNAL_H
#define METRALE_TEXT_JINJA_INTERNAL_H
#include <string.h>

#include "core/arena.h"
#include "text/jinja.h"

/* --- values (jinja_value.c) ------------------------------------------------------------------------------------- */

/* A string. mark, when not NULL, has one byte for each byte of p: 1 where the text is the user's. Without it the whole
 * text is (user) or is not. Bytes are valid UTF-8; lengths and positions that templates see count characters. */
typedef struct JText {
    const char *p;
    const unsigned char *mark;
    size_t len;
    bool user;
} JText;

typedef enum {
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_NAMESPACE,
    V_MACRO,
    V_LOOP,
    V_FUNCTION,
    V_METHOD,
} ValueKind;

typedef enum { FN_RANGE, FN_DICT, FN_NAMESPACE, FN_RAISE, FN_STRFTIME } FunctionId;

typedef struct Value Value;
typedef struct JList JList;
typedef struct JDict JDict;
typedef struct Macro Macro;
typedef struct Loop Loop;
typedef struct Method Method;

struct Value {
    ValueKind kind;
    union {
        const char *name; /* V_UNDEFINED: what was looked up, or NULL */
        bool b;
        int64_t i;
        double f;
        const JText *s;
        JList *list; /* V_LIST, V_TUPLE */
        JDict *dict; /* V_DICT, V_NAMESPACE */
        const Macro *macro;
        Loop *loop;
        FunctionId fn;
        const Method *method;
    };
};

struct JList {
    Value *v;
    size_t n, cap;
};
struct JDict { /* in order of insertion */
    Value *key, *val;
    size_t n, cap;
};
struct Method {
    Value self;
    const char *name;
};

/* --- syntax tree (jinja_parse.c) -------------------------------------------------------------------------------- */

typedef enum {
    /* expressions */
    N_CONST,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,  /* kids: key, value, key, value, ... */
    N_ATTR,  /* kid[0].name */
    N_ITEM,  /* kid[0][kid[1]] */
    N_SLICE, /* kid[0][kid[1]:kid[2]:kid[3]], each may be NULL */
    N_CALL,  /* kid[0](args) */
    N_FILTER,
    N_TEST,
    N_NOT,
    N_NEG,
    N_POS,
    N_BINARY,
    N_AND,
    N_OR,
    N_COMPARE, /* kid[0] ops[0] kid[1] ops[1] kid[2] ... */
    N_CONCAT,
    N_COND,     /* kid[0] if kid[1] else kid[2], which may be NULL */
    N_CAPTURED, /* the text of the block that a filter or set tag holds */
    /* statements */
    N_TEXT,
    N_OUTPUT,
    N_FOR, /* kid[0] target, kid[1] iterated, kid[2] condition or NULL */
    N_IF,  /* arms in body */
    N_ARM, /* kid[0] condition, NULL for else */
    N_SET, /* kid[0] target, kid[1] value; with a body, kid[1] is built on N_CAPTURED */
    N_MACRO,
    N_CALL_BLOCK,   /* kid[0] is the call; params and body are those of caller() */
    N_FILTER_BLOCK, /* kid[0] is built on N_CAPTURED */
    N_WITH,         /* kids: target, value, target, value, ... */
    N_BREAK,
    N_CONTINUE,
    N_SCOPE, /* a body printed as it is: generation */
} NodeKind;

typedef struct Node Node;
typedef struct Interp Interp;
typedef struct Args Args;
typedef bool (*FilterFn)(Interp *in, const Node *at, Value self, const Args *args, Value *out);
typedef bool (*TestFn)(Interp *in, const Node *at, Value self, const Args *args, bool *out);

typedef struct NodeList {
    Node **v;
    size_t n, cap;
} NodeList;

struct Node {
    NodeKind kind;
    uint16_t depth; /* of the tree below, bounded: evaluation recurses over it */
    int op;         /* N_BINARY: a TokenKind */
    uint32_t pos;   /* byte offset in the source */
    const char *name;
    Value value; /* N_CONST, N_TEXT */
    NodeList kid, body, orelse;
    bool negated;    /* N_TEST */
    const int *ops;  /* N_COMPARE */
    const char **kw; /* names of the last n_kw kids of a call, filter or test; names of a macro's parameters */
    size_t n_kw;     /* for a macro: kid[] are the defaults of the last kid.n parameters */
    FilterFn filter; /* NULL: unknown; reaching it fails */
    TestFn test;
};

struct Jinja {
    Arena *arena;
    const char *name;
    const char *src; /* newlines normalised */
    size_t len;
    NodeList body;
    const char *loop_name, *caller_name; /* interned */
};

/* --- tokens (jinja_lex.c) --------------------------------------------------------------------------------------- */

typedef enum {
    T_EOF,
    T_DATA,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_VAR_BEGIN,
    T_VAR_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_EQ,
    T_NE,
    T_LE,
    T_GE,
    T_POW,
    T_FLOORDIV,
    T_IN,     /* only as an operator of N_COMPARE */
    T_NOT_IN, /* likewise */
    /* single characters stand for themselves: + - * / % ~ [ ] ( ) { } < > = . : | , */
} TokenKind;

typedef struct Token {
    int kind;
    uint32_t pos;
    const char *text; /* T_DATA, T_NAME, T_STRING: NUL-terminated */
    size_t len;
    int64_t i;
    double f;
} Token;

typedef struct TokenArray {
    Token *v;
    size_t n;
} TokenArray;

/* Cuts the source into tokens; memory from t->arena. */
Status jinja_lex(const Jinja *t, TokenArray *out, Err *err);
/* Fills err with "name: row R, column C: ..." and returns st. */
Status jinja_error(const Jinja *t, size_t pos, Status st, Err *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

FilterFn jinja_filter_find(const char *name); /* NULL: none */
TestFn jinja_test_find(const char *name);

/* --- the interpreter (jinja_eval.c) ----------------------------------------------------------------------------- */

typedef struct Binding {
    struct Binding *next;
    const char *name; /* interned: compared by address */
    Value value;
} Binding;
typedef struct Scope {
    struct Scope *parent;
    Binding *first;
} Scope;

struct Macro {
    const Node *node;
    Scope *scope; /* where it was defined */
    Value caller; /* V_UNDEFINED when there is none */
};

struct Loop {
    const JList *items;
    size_t i, depth;
    Value last_changed;
    bool has_changed;
};

struct Args {
    const Value *v; /* positional, then those named by kw */
    size_t n, n_kw;
    const char *const *kw;
};

/* Text under construction. */
typedef struct Build {
    Interp *in;
    char *p;
    unsigned char *mark; /* NULL while no byte is marked */
    size_t len, cap;
} Build;

struct Interp {
    const Jinja *t;
    const JinjaEnv *env;
    Arena *arena;
    Err *err;
    Status st;
    const Node *at; /* the node being evaluated, for messages */
    uint64_t steps_left;
    size_t bytes_left, max_output;
    unsigned depth;
    Scope *scope;
    Build *sink;
    Value *var; /* env->vars as values */
    Value captured;
    size_t loop_depth;
    enum { FLOW_NORMAL, FLOW_BREAK, FLOW_CONTINUE } flow;
};

bool fail(Interp *in, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool fail_status(Interp *in, Status st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void *in_alloc(Interp *in, size_t n, size_t size); /* NULL when over the limit; the failure is recorded */
bool in_charge(Interp *in, size_t bytes);          /* counts work on that many bytes */
bool get_attr(Interp *in, Value self, const char *name, Value *out);
bool get_item(Interp *in, Value self, Value key, Value *out);
/* "a.b.0" as filters' attribute= takes it. */
bool get_path(Interp *in, Value self, Value path, Value *out);
bool apply_filter(Interp *in, Value name, Value self, const Args *args, Value *out);
bool apply_test(Interp *in, Value name, Value self, const Args *args, bool *out);

/* values */
static inline Value v_undefined(const char *name)
{
    return (Value){.kind = V_UNDEFINED, .name = name};
}
static inline Value v_none(void)
{
    return (Value){.kind = V_NONE};
}
static inline Value v_bool(bool b)
{
    return (Value){.kind = V_BOOL, .b = b};
}
static inline Value v_int(int64_t i)
{
    return (Value){.kind = V_INT, .i = i};
}
static inline Value v_float(double f)
{
    return (Value){.kind = V_FLOAT, .f = f};
}
bool v_str(Interp *in, JText text, Value *out);
bool v_cstr(Interp *in, const char *text, Value *out); /* trusted; borrows text */
bool v_list(Interp *in, ValueKind kind, size_t cap, Value *out);
bool list_add(Interp *in, JList *l, Value v);
bool v_dict(Interp *in, Value *out);
bool dict_set(Interp *in, JDict *d, Value key, Value val);
Value *dict_find(Interp *in, const JDict *d, Value key);
Value *dict_find_name(const JDict *d, const char *name, size_t len);
bool v_from_json(Interp *in, const json_t *json, bool user, Value *out);

const char *v_type_name(Value v);
bool v_truth(Value v);
bool v_equal(Interp *in, Value a, Value b, bool *out);
bool v_less(Interp *in, Value a, Value b, bool *out);
bool v_contains(Interp *in, Value container, Value item, bool *out);
bool v_length(Interp *in, Value v, size_t *out);
/* The items that a for loop sees: of lists themselves, of dicts the keys, of strings the characters. */
bool v_iterate(Interp *in, Value v, const JList **out);
bool v_to_text(Interp *in, Value v, JText *out); /* as {{ v }} prints it */
bool v_repr(Build *b, Value v, unsigned depth);  /* as Python's repr */
static inline bool is_number(Value v)
{
    return v.kind == V_INT || v.kind == V_FLOAT || v.kind == V_BOOL;
}
static inline int64_t as_int(Value v)
{
    return v.kind == V_BOOL ? v.b : v.i;
}
static inline double as_float(Value v)
{
    return v.kind == V_FLOAT ? v.f : (double)as_int(v);
}
static inline bool text_is(const JText *s, const char *c)
{
    return strlen(c) == s->len && memcmp(s->p, c, s->len) == 0;
}

/* text */
JText text_slice(JText s, size_t start, size_t end); /* bytes */
size_t text_chars(JText s);
size_t text_char_len(JText s, size_t at);           /* bytes of the character at byte `at` */
size_t text_find(JText s, JText part, size_t from); /* byte offset, or SIZE_MAX */
bool char_is_space(uint32_t cp);

bool build_init(Build *b, Interp *in);
bool build_text(Build *b, JText s);
bool build_bytes(Build *b, const char *p, size_t len, bool user);
bool build_chars(Build *b, const char *text); /* trusted, NUL-terminated */
bool build_value(Build *b, Value v);          /* as printed */
JText build_done(const Build *b);
void float_repr(double f, char out[48]);

/* arguments: by position (0 based) or name; NULL when not given */
const Value *arg_get(const Args *args, size_t index, const char *name);
/* Refuses more than max positional arguments and names that are not in `names` (separated by spaces). */
bool args_check(Interp *in, const char *what, const Args *args, size_t max, const char *names);

/* jinja_json.c: json.dumps */
bool json_dump(Build *b, Value v, const Args *args);
/* jinja_method.c */
bool method_exists(ValueKind kind, const char *name);
bool method_call(Interp *in, const Method *m, const Args *args, Value *out);
/* shared by filters and methods */
bool text_strip(Interp *in, JText s, const Value *chars, bool left, bool right, Value *out);
bool text_replace(Interp *in, JText s, JText from, JText to, int64_t count, Value *out);
bool text_case(Interp *in, JText s, int how,
               Value *out); /* how: u(pper), l(ower), c(apitalize), t(itle as str.title), j (title as Jinja) */
bool text_format(Interp *in, JText fmt, const Value *v, size_t n, Value *out); /* the % operator */
#endif
