/* signature.h - the closed set of ops: names, arity, weight slots, typed parameters. Data, no code.
 * Adding an op: its line here, its reference function (model/reference_ops.c), a family on every class, a test.
 * Owns: nothing; static data.   Thread: any. */
#ifndef METRALE_CIRCUIT_SIGNATURE_H
#define METRALE_CIRCUIT_SIGNATURE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    OP_EMBED,           /* x[hidden] = weight[token] * scale */
    OP_RMS_NORM,        /* y = x * (weight + offset) / sqrt(mean(x^2) + eps)            (Zhang, Sennrich 2019) */
    OP_QK_NORM,         /* rms_norm over each group of `group` elements; weight has `group` elements */
    OP_RESIDUAL_ADD,    /* y = in0 + scale * in1 */
    OP_LINEAR,          /* y[n] = weight[n][k] . x[k] + bias[n] */
    OP_ACT_QUANT,       /* the same values in a narrower format; put in by lowering */
    OP_SILU_MUL,        /* y = silu(in0) * in1 */
    OP_ROPE,            /* rotates q and k by position; table of cos, sin               (Su et al. 2021) */
    OP_KV_WRITE,        /* state[slot(row)] = k, v */
    OP_PAGED_ATTENTION, /* softmax(scale * q.K^T, causal, window) . V over the sequence's blocks */
    OP_LM_HEAD,         /* linear on the step's output rows only; logits = scale * y, then softcap */
    OP_COUNT
} OpKind;

typedef enum { PARAM_INT, PARAM_FLOAT, PARAM_ENUM } ParamType;

enum { OP_MAX_IN = 4, OP_MAX_OUT = 4, OP_MAX_WEIGHTS = 4, OP_MAX_PARAMS = 10 };

typedef struct ParamDef {
    const char *name;
    ParamType type;
    bool required;
    double default_value;     /* of an optional one; for enums the index */
    const char *const *names; /* PARAM_ENUM: NULL-terminated */
} ParamDef;

typedef struct WeightDef {
    const char *name; /* slot: "weight", "bias" */
    bool optional;
    bool vector; /* rank 1: widened to f32 at load */
} WeightDef;

typedef struct OpDef {
    OpKind kind;
    const char *name; /* as in TOML: "rms_norm" */
    uint32_t n_in, n_out;
    uint32_t n_weights, n_params;
    WeightDef weights[OP_MAX_WEIGHTS];
    ParamDef params[OP_MAX_PARAMS];
    bool reads_state, writes_state;
    bool reads_table; /* a rope table */
    bool on_outputs;  /* works on the step's output rows (outs), not on all rows */
} OpDef;

const OpDef *op_find(const char *name); /* NULL when unknown */
const OpDef *op_def(OpKind kind);
int op_param(const OpDef *op, const char *name);  /* index or -1 */
int op_weight(const OpDef *op, const char *name); /* index or -1 */
#endif
