/* signature.c - the table of ops. One entry for each op, in the order of OpKind, and nothing else: an op is known to the
 * reader of circuits, to the families and to the executor by what stands here.
 *
 * A float parameter that is off has the value at which it changes nothing (offset 0, scale 1) or 0 where the op reads
 * 0 as "none" (window, softcap). */
#include "circuit/signature.h"
#include <string.h>

#define INT(n)                                                                                                         \
    {                                                                                                                  \
        .name = (n), .type = PARAM_INT, .required = true                                                               \
    }
#define INT_OR(n, v)                                                                                                   \
    {                                                                                                                  \
        .name = (n), .type = PARAM_INT, .default_value = (v)                                                           \
    }
#define FLOAT(n)                                                                                                       \
    {                                                                                                                  \
        .name = (n), .type = PARAM_FLOAT, .required = true                                                             \
    }
#define FLOAT_OR(n, v)                                                                                                 \
    {                                                                                                                  \
        .name = (n), .type = PARAM_FLOAT, .default_value = (v)                                                         \
    }
#define ENUM(n, choices)                                                                                               \
    {                                                                                                                  \
        .name = (n), .type = PARAM_ENUM, .required = true, .names = (choices)                                          \
    }

#define ENUM_OR(n, choices) /* the first by default */                                                                 \
    {                                                                                                                  \
        .name = (n), .type = PARAM_ENUM, .names = (choices)                                                            \
    }

#define MATRIX(n)                                                                                                      \
    {                                                                                                                  \
        .name = (n)                                                                                                    \
    }
#define VECTOR(n)                                                                                                      \
    {                                                                                                                  \
        .name = (n), .vector = true                                                                                    \
    }
#define EXPERT_MATRIX(n)                                                                                               \
    {                                                                                                                  \
        .name = (n), .experts = true                                                                                   \
    }
#define EXPERT_VECTOR(n)                                                                                               \
    {                                                                                                                  \
        .name = (n), .vector = true, .experts = true                                                                   \
    }
#define OPTIONAL_EXPERT_VECTOR(n)                                                                                      \
    {                                                                                                                  \
        .name = (n), .vector = true, .optional = true, .experts = true                                                 \
    }
#define OPTIONAL_VECTOR(n)                                                                                             \
    {                                                                                                                  \
        .name = (n), .vector = true, .optional = true                                                                  \
    }

/* neox rotates elements (i, i + dims/2) of a head, interleaved (2i, 2i + 1). */
static const char *const rope_styles[] = {"neox", "interleaved", NULL};

static const char *const router_scores[] = {"softmax", "sigmoid", NULL};

/* Where the gate multiplies: the normed row, or the row to be normed. */
static const char *const gate_places[] = {"behind", "before", NULL};

/* What a vector of decays holds: A_log, or -e^A_log worked out already. */
static const char *const decay_forms[] = {"log", "value", NULL};

/* Which value heads read a key head: the neighbours of an equal group, or every k_heads-th one (GGUF). */
static const char *const head_shares[] = {"neighbours", "strided", NULL};

/* ActFormat of core/quant.h. */
static const char *const act_formats[] = {"narrow", "e4m3", "i8", "e2m1", NULL};

static const OpDef ops[OP_COUNT] = {
    [OP_EMBED] = {.kind = OP_EMBED,
                  .name = "embed",
                  .n_in = 1,
                  .n_out = 1,
                  .n_weights = 1,
                  .weights = {MATRIX("weight")},
                  .n_params = 1,
                  .params = {FLOAT_OR("scale", 1)}},
    [OP_RMS_NORM] = {.kind = OP_RMS_NORM,
                     .name = "rms_norm",
                     .n_in = 1,
                     .n_out = 1,
                     .n_weights = 1,
                     .weights = {VECTOR("weight")},
                     .n_params = 2,
                     .params = {FLOAT("eps"), FLOAT_OR("offset", 0)}},
    [OP_QK_NORM] = {.kind = OP_QK_NORM,
                    .name = "qk_norm",
                    .n_in = 1,
                    .n_out = 1,
                    .n_weights = 1,
                    .weights = {VECTOR("weight")},
                    .n_params = 3,
                    .params = {FLOAT("eps"), INT("group"), FLOAT_OR("offset", 0)}},
    [OP_RESIDUAL_ADD] = {.kind = OP_RESIDUAL_ADD,
                         .name = "residual_add",
                         .n_in = 2,
                         .n_out = 1,
                         .n_params = 1,
                         .params = {FLOAT_OR("scale", 1)}},
    [OP_LINEAR] = {.kind = OP_LINEAR,
                   .name = "linear",
                   .n_in = 1,
                   .n_out = 1,
                   .n_weights = 2,
                   .weights = {MATRIX("weight"), OPTIONAL_VECTOR("bias")}},
    /* Spans begin anew behind each `row` elements, which are the input of one matrix. core/quant.h has the rules;
     * `narrow` has none but the format of its output. */
    [OP_ACT_QUANT] = {.kind = OP_ACT_QUANT,
                      .name = "act_quant",
                      .n_in = 1,
                      .n_out = 1,
                      .n_weights = 1,
                      .weights = {OPTIONAL_VECTOR("scale")},
                      .n_params = 4,
                      .params = {ENUM_OR("to", act_formats), INT_OR("span", 0), INT_OR("row", 0),
                                 INT_OR("inverse", 0)}},
    [OP_SILU_MUL] = {.kind = OP_SILU_MUL, .name = "silu_mul", .n_in = 2, .n_out = 1},
    [OP_ROPE] = {.kind = OP_ROPE,
                 .name = "rope",
                 .n_in = 2,
                 .n_out = 2,
                 .n_params = 2,
                 .params = {INT("head_dim"), ENUM("style", rope_styles)},
                 .reads_table = true},
    [OP_KV_WRITE] = {.kind = OP_KV_WRITE,
                     .name = "kv_write",
                     .n_in = 2,
                     .n_out = 0,
                     .n_params = 2,
                     .params = {INT("n_kv_heads"), INT("head_dim")},
                     .writes_state = true},
    [OP_PAGED_ATTENTION] = {.kind = OP_PAGED_ATTENTION,
                            .name = "paged_attention",
                            .n_in = 1,
                            .n_out = 1,
                            .n_weights = 1,
                            .weights = {OPTIONAL_VECTOR("sinks")},
                            .n_params = 6,
                            .params = {FLOAT("scale"), INT_OR("window", 0), FLOAT_OR("softcap", 0), INT("n_heads"),
                                       INT("n_kv_heads"), INT("head_dim")},
                            .reads_state = true},
    [OP_LM_HEAD] = {.kind = OP_LM_HEAD,
                    .name = "lm_head",
                    .n_in = 1,
                    .n_out = 1,
                    .n_weights = 1,
                    .weights = {MATRIX("weight")},
                    .n_params = 2,
                    .params = {FLOAT_OR("scale", 1), FLOAT_OR("softcap", 0)},
                    .on_outputs = true,
                    .f32_out = 1},
    [OP_SPLIT] = {.kind = OP_SPLIT,
                  .name = "split",
                  .n_in = 1,
                  .n_out = 2,
                  .n_params = 2,
                  .params = {INT("first"), INT_OR("groups", 1)}},
    [OP_GELU_TANH_MUL] = {.kind = OP_GELU_TANH_MUL, .name = "gelu_tanh_mul", .n_in = 2, .n_out = 1},
    [OP_SWIGLU_CLAMP] = {.kind = OP_SWIGLU_CLAMP,
                         .name = "swiglu_clamp",
                         .n_in = 2,
                         .n_out = 1,
                         .n_params = 2,
                         .params = {FLOAT("alpha"), FLOAT("limit")}},
    [OP_SIGMOID_GATE_MUL] = {.kind = OP_SIGMOID_GATE_MUL, .name = "sigmoid_gate_mul", .n_in = 2, .n_out = 1},
    /* Scores are the softmax or the sigmoid of the logits. The bias moves the choice only. Groups: the experts of the
     * topk_group groups whose two best add up to most stay. renormalize 1: the k weights are divided by their sum +
     * sum_eps; then all are times scale. Softmax with renormalize is the softmax of the k chosen logits. */
    [OP_TOP_K] = {.kind = OP_TOP_K,
                  .name = "top_k",
                  .n_in = 1,
                  .n_out = 2,
                  .n_weights = 1,
                  .weights = {OPTIONAL_VECTOR("bias")},
                  .n_params = 7,
                  .params = {INT("k"), ENUM("scores", router_scores), INT_OR("renormalize", 0), FLOAT_OR("scale", 1),
                             FLOAT_OR("sum_eps", 0), INT_OR("n_group", 1), INT_OR("topk_group", 1)},
                  .i32_out = 1,
                  .f32_out = 2},
    [OP_EXPERT_LINEAR] = {.kind = OP_EXPERT_LINEAR,
                          .name = "expert_linear",
                          .n_in = 2,
                          .n_out = 1,
                          .n_weights = 2,
                          .weights = {EXPERT_MATRIX("weight"), OPTIONAL_EXPERT_VECTOR("bias")}},
    [OP_BLEND] = {.kind = OP_BLEND, .name = "blend", .n_in = 2, .n_out = 1},
    [OP_CONCAT] =
        {.kind = OP_CONCAT, .name = "concat", .n_in = 2, .n_out = 1, .n_params = 1, .params = {INT_OR("groups", 1)}},
    [OP_RELU2] = {.kind = OP_RELU2, .name = "relu2", .n_in = 1, .n_out = 1},
    [OP_L2_NORM] = {.kind = OP_L2_NORM,
                    .name = "l2_norm",
                    .n_in = 1,
                    .n_out = 1,
                    .n_params = 2,
                    .params = {FLOAT("eps"), INT("group")}},
    /* The weight has a group's elements, or the whole row's. */
    [OP_GATED_RMS_NORM] = {.kind = OP_GATED_RMS_NORM,
                           .name = "gated_rms_norm",
                           .n_in = 2,
                           .n_out = 1,
                           .n_weights = 1,
                           .weights = {VECTOR("weight")},
                           .n_params = 3,
                           .params = {FLOAT("eps"), INT("group"), ENUM("gate", gate_places)}},
    /* The state keeps the taps - 1 rows before the next one. Weight [channels][taps], the last tap meets the row. */
    [OP_CONV1D_UPDATE] = {.kind = OP_CONV1D_UPDATE,
                          .name = "conv1d_update",
                          .n_in = 1,
                          .n_out = 1,
                          .n_weights = 2,
                          .weights = {VECTOR("weight"), OPTIONAL_VECTOR("bias")},
                          .n_params = 1,
                          .params = {INT("taps")},
                          .reads_state = true,
                          .writes_state = true},
    [OP_GDN_GATES] = {.kind = OP_GDN_GATES,
                      .name = "gdn_gates",
                      .n_in = 2,
                      .n_out = 1,
                      .n_weights = 2,
                      .weights = {VECTOR("a_log"), VECTOR("dt_bias")},
                      .n_params = 1,
                      .params = {ENUM("decay", decay_forms)},
                      .f32_out = 1},
    /* A head's state S [k_dim][v_dim]: S' = decay S, S = S' + k (beta (v - S'^T k))^T, y = scale S^T q. Value heads
     * share key heads: h / (v_heads / k_heads) is h's, or h mod k_heads. */
    [OP_GDN_RECURRENCE] = {.kind = OP_GDN_RECURRENCE,
                           .name = "gdn_recurrence",
                           .n_in = 4,
                           .n_out = 1,
                           .n_params = 6,
                           .params = {INT("k_heads"), INT("v_heads"), INT("k_dim"), INT("v_dim"), FLOAT("scale"),
                                      ENUM_OR("share", head_shares)},
                           .reads_state = true,
                           .writes_state = true},
    /* d = softplus(dt + dt_bias); a head's state S [head_dim][state_dim]: S = e^(-e^a_log d) S + d x B^T,
     * y = S C + skip x. Neighbouring heads share the B and C of a group. */
    [OP_SSM_UPDATE] = {.kind = OP_SSM_UPDATE,
                       .name = "ssm_update",
                       .n_in = 2,
                       .n_out = 1,
                       .n_weights = 3,
                       .weights = {VECTOR("a_log"), VECTOR("dt_bias"), VECTOR("skip")},
                       .n_params = 5,
                       .params = {INT("n_heads"), INT("head_dim"), INT("n_groups"), INT("state_dim"),
                                  ENUM("decay", decay_forms)},
                       .reads_state = true,
                       .writes_state = true},
    [OP_LATENT_WRITE] = {.kind = OP_LATENT_WRITE,
                         .name = "latent_write",
                         .n_in = 2,
                         .n_out = 0,
                         .n_params = 2,
                         .params = {INT("latent_dim"), INT("rope_dim")},
                         .writes_state = true},
    /* in0 [n_heads][nope_dim], in1 [n_heads][rope_dim]; kv_b [n_heads][nope_dim + v_dim][latent_dim]. */
    [OP_MLA_ATTENTION] = {.kind = OP_MLA_ATTENTION,
                          .name = "mla_attention",
                          .n_in = 2,
                          .n_out = 1,
                          .n_weights = 1,
                          .weights = {MATRIX("kv_b")},
                          .n_params = 6,
                          .params = {FLOAT("scale"), INT("n_heads"), INT("nope_dim"), INT("rope_dim"), INT("v_dim"),
                                     INT("latent_dim")},
                          .reads_state = true},
    [OP_EXPERT_ACT_QUANT] = {.kind = OP_EXPERT_ACT_QUANT,
                             .name = "expert_act_quant",
                             .n_in = 2,
                             .n_out = 1,
                             .n_weights = 1,
                             .weights = {EXPERT_VECTOR("scale")},
                             .n_params = 4,
                             .params = {ENUM_OR("to", act_formats), INT_OR("span", 0), INT_OR("row", 0),
                                        INT_OR("inverse", 0)}},
    /* Works on the rows that lm_head made, one for each output. */
    [OP_SAMPLE] = {.kind = OP_SAMPLE, .name = "sample", .n_in = 1, .n_out = 1, .on_outputs = true, .f32_out = 1},
};

const OpDef *op_def(OpKind kind)
{
    return &ops[kind];
}

const OpDef *op_find(const char *name)
{
    for (size_t i = 0; i < OP_COUNT; i++)
        if (strcmp(ops[i].name, name) == 0)
            return &ops[i];
    return NULL;
}

int op_param(const OpDef *op, const char *name)
{
    for (uint32_t i = 0; i < op->n_params; i++)
        if (strcmp(op->params[i].name, name) == 0)
            return (int)i;
    return -1;
}

int op_weight(const OpDef *op, const char *name)
{
    for (uint32_t i = 0; i < op->n_weights; i++)
        if (strcmp(op->weights[i].name, name) == 0)
            return (int)i;
    return -1;
}
