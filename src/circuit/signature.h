/* signature.h - the closed set of ops: names, arity, weight slots, typed parameters. Data, no code.
 * Adding an op: its line here, its reference function (model/reference_ops.c), a family on every class, a test.
 * Owns: nothing; static data.   Thread: any. */
#ifndef METRALE_CIRCUIT_SIGNATURE_H
#define METRALE_CIRCUIT_SIGNATURE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    OP_EMBED,            /* x[hidden] = weight[token] * scale */
    OP_RMS_NORM,         /* y = x * (weight + offset) / sqrt(mean(x^2) + eps)            (Zhang, Sennrich 2019) */
    OP_QK_NORM,          /* rms_norm over each group of `group` elements; weight has `group` elements */
    OP_RESIDUAL_ADD,     /* y = in0 + scale * in1 */
    OP_LINEAR,           /* y[n] = weight[n][k] . x[k] + bias[n] */
    OP_ACT_QUANT,        /* the same values in a narrower format: as a class takes them, or as the checkpoint asks */
    OP_SILU_MUL,         /* y = silu(in0) * in1 */
    OP_ROPE,             /* rotates q and k by position; table of cos, sin               (Su et al. 2021) */
    OP_KV_WRITE,         /* state[slot(row)] = k, v */
    OP_PAGED_ATTENTION,  /* softmax(scale * q.K^T, causal, window) . V over the sequence's blocks */
    OP_LM_HEAD,          /* linear on the step's output rows only; logits = scale * y, then softcap */
    OP_SPLIT,            /* in `groups` equal parts: out0 has the first `first` elements of each, out1 the rest */
    OP_GELU_TANH_MUL,    /* y = gelu(in0) * in1, gelu by its tanh form                (Hendrycks, Gimpel 2016) */
    OP_SWIGLU_CLAMP,     /* y = g * sigmoid(alpha * g) * (u + 1), g = min(in0, limit), u = in1 within +-limit */
    OP_SIGMOID_GATE_MUL, /* y = in0 * sigmoid(in1); each element of in1 gates as many neighbours of in0 as fit */
    OP_TOP_K,            /* router logits -> ids (i32) and weights of the k experts of a row, best first */
    OP_EXPERT_LINEAR,    /* linear for each of a row's experts: in0 x (one, or one for each), in1 ids -> [k][n] */
    OP_BLEND,            /* y = sum over j = 0..k-1 of in1[j] * in0[j]: the experts' results by their weights */
    OP_CONCAT,           /* split backwards: each of `groups` parts is a part of in0, then one of in1 */
    OP_RELU2,            /* y = max(in0, 0)^2 */
    OP_L2_NORM,          /* y = x / sqrt(sum(x^2) + eps) over each group of `group` elements */
    OP_GATED_RMS_NORM,   /* rms_norm over each group, times silu(in1): behind the norm or in front of it */
    OP_CONV1D_UPDATE, /* y = silu(bias + the last `taps` rows of in0 by weight, channel by channel); keeps those rows */
    OP_GDN_GATES,     /* in0 a, in1 b -> each head's decay e^(-e^a_log softplus(a + dt_bias)), then its sigmoid(b) */
    OP_GDN_RECURRENCE,   /* gated delta rule on q, k, v, gates: one matrix a head            (Yang et al. 2024) */
    OP_SSM_UPDATE,       /* selective state space on x | B | C and dt, one decay a head     (Dao, Gu 2024) */
    OP_LATENT_WRITE,     /* state[slot(row)] = latent, key's rope part: one vector for all heads */
    OP_MLA_ATTENTION,    /* attention over the latents: keys and values are kv_b's halves of them (DeepSeek-AI 2024) */
    OP_EXPERT_ACT_QUANT, /* act_quant for each of a row's experts, by its scale: in0 x, in1 ids -> [k][row] */
    OP_SAMPLE,           /* logits after bias and penalties; their token to step.picks           (core/sample.h) */
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
    bool vector;  /* rank 1: widened to f32 at load */
    bool experts; /* one for each expert: a matrix [experts][n][k], a vector [experts][n] */
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
    uint32_t i32_out; /* bit i: out i holds i32 */
    uint32_t
        f32_out; /* bit i: out i holds f32 whatever the class's activations are: few numbers, and exact ones count */
} OpDef;

const OpDef *op_find(const char *name); /* NULL when unknown */
const OpDef *op_def(OpKind kind);
int op_param(const OpDef *op, const char *name);  /* index or -1 */
int op_weight(const OpDef *op, const char *name); /* index or -1 */
#endif
