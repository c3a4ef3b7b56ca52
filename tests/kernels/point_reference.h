/* point_reference.h - what the reference functions make of a case of point_case.h: each node of its rule, row by row and in
 * program order, in double, from the values that the inputs' bytes mean. */
#ifndef METRALE_TESTS_POINT_REFERENCE_H
#define METRALE_TESTS_POINT_REFERENCE_H
#include "model/reference_ops.h"
#include "model/reference_recurrent.h"
#include "point_case.h"
#include "sampling/row.h"

static double *case_at(const PointCase *c, uint32_t edge, uint32_t row)
{
    return c->value[edge] + (size_t)row * c->edges[edge].width;
}

static double case_get(const InstanceNode *n, const char *param)
{
    return n->param[op_param(n->op, param)];
}

static void reference_attention(const PointCase *c, const InstanceNode *n, uint32_t r)
{
    const PointShape *s = c->shape;
    uint32_t width = s->n_kv * s->head_dim, pos = (uint32_t)c->positions[r], window = (uint32_t)case_get(n, "window");
    uint32_t first = window > 0 && pos + 1 > window ? pos + 1 - window : 0;
    double *score = malloc(sizeof(double) * (pos + 1));

    assert_non_null(score);
    for (uint32_t h = 0; h < s->n_heads; h++) {
        size_t at =
            ((size_t)c->row_seq[r] * c->max_blocks * 16 + first) * width + h / (s->n_heads / s->n_kv) * s->head_dim;
        ref_attention(case_at(c, n->out[0], r) + (size_t)h * s->head_dim,
                      case_at(c, n->in[0], r) + (size_t)h * s->head_dim, c->kv[0] + at, c->kv[1] + at, pos + 1 - first,
                      width, s->head_dim, case_get(n, "scale"), case_get(n, "softcap"),
                      n->weight[0] >= 0 ? (double)c->dense[n->weight[0]][h] : -INFINITY, score);
    }
    free(score);
}

static void reference_kv_write(PointCase *c, const InstanceNode *n, uint32_t r)
{
    uint32_t width = c->shape->n_kv * c->shape->head_dim;

    for (int part = 0; part < 2; part++) {
        double *kept = c->kv[part] + ((size_t)c->row_seq[r] * c->max_blocks * 16 + (size_t)c->positions[r]) * width;
        pool_put_row(c, c->expected_pool[part], part, c->slots[r], case_at(c, n->in[part], r));
        for (uint32_t i = 0; i < width; i++) {
            float x = (float)case_at(c, n->in[part], r)[i];
            kept[i] = pool_keeps(c, x);
        }
    }
}

static void reference_top_k(PointCase *c, const InstanceNode *n, uint32_t r)
{
    RefRouter router = {.k = (uint32_t)case_get(n, "k"),
                        .n_group = (uint32_t)case_get(n, "n_group"),
                        .topk_group = (uint32_t)case_get(n, "topk_group"),
                        .sigmoid = case_get(n, "scores") != 0,
                        .renormalize = case_get(n, "renormalize") != 0,
                        .scale = case_get(n, "scale"),
                        .sum_eps = case_get(n, "sum_eps")};
    uint32_t experts = c->edges[n->in[0]].width;
    double *scratch = case_alloc(c, 2 * experts, sizeof *scratch);

    ref_top_k(case_at(c, n->out[0], r), case_at(c, n->out[1], r), case_at(c, n->in[0], r), experts,
              n->weight[0] >= 0 ? c->dense[n->weight[0]] : NULL, &router, scratch);
}

static void reference_experts(PointCase *c, const InstanceNode *n, uint32_t r)
{
    uint32_t k = case_k(c), out = c->shape->n, own = c->edges[n->in[0]].width == k ? 0 : k;

    for (uint32_t j = 0; j < c->edges[n->in[1]].width; j++) {
        uint32_t e = (uint32_t)case_at(c, n->in[1], r)[j];
        for (uint32_t i = 0; i < out; i++)
            case_at(c, n->out[0], r)[j * out + i] =
                ref_dot(case_at(c, n->in[0], r) + j * own, c->dense[n->weight[0]] + ((size_t)e * out + i) * k, k) +
                (n->weight[1] >= 0 ? (double)c->dense[n->weight[1]][e * out + i] : 0);
    }
}

static void reference_recurrence(PointCase *c, const InstanceNode *n, uint32_t r)
{
    const PointShape *s = c->shape;
    uint32_t heads = s->n_heads, groups = s->n_kv, odd = case_odd(s);
    uint32_t dim = n->op->kind == OP_SSM_UPDATE ? case_ssm_dim(s) : s->head_dim;
    double *y = case_at(c, n->out[0], r), *x = case_at(c, n->in[0], r);
    double *state = c->kv[0] + (size_t)c->row_seq[r] * c->state.parts[0].heads * c->state.parts[0].width;

    if (n->op->kind == OP_CONV1D_UPDATE) {
        ref_conv1d(y, state, x, c->dense[n->weight[0]], n->weight[1] >= 0 ? c->dense[n->weight[1]] : NULL,
                   c->edges[n->in[0]].width, case_taps(s));
        return;
    }
    for (uint32_t h = 0; h < heads; h++, state += (size_t)dim * odd) {
        uint32_t g = h / (heads / groups);
        if (n->op->kind == OP_GDN_RECURRENCE) {
            g = case_get(n, "share") != 0 ? h % groups : g;
            const double *gates = case_at(c, n->in[3], r);
            ref_gdn_step(y + (size_t)h * odd, state, x + (size_t)g * dim, case_at(c, n->in[1], r) + (size_t)g * dim,
                         case_at(c, n->in[2], r) + (size_t)h * odd, gates[h], gates[heads + h], dim, odd,
                         case_get(n, "scale"));
        } else {
            const double *b = x + (size_t)heads * dim + (size_t)g * odd;
            ref_ssm_step(y + (size_t)h * dim, state, x + (size_t)h * dim, b, b + (size_t)groups * odd,
                         ref_softplus(case_at(c, n->in[1], r)[h] + (double)c->dense[n->weight[1]][h]),
                         ref_decay_rate((double)c->dense[n->weight[0]][h], case_get(n, "decay") != 0),
                         (double)c->dense[n->weight[2]][h], dim, odd);
        }
    }
}

static void reference_latent(PointCase *c, const InstanceNode *n, uint32_t r)
{
    uint32_t width = c->state.parts[0].width, latent = case_latent(c->shape), pos = (uint32_t)c->positions[r];
    double *past = c->kv[0] + (size_t)c->row_seq[r] * c->max_blocks * 16 * width;
    RefMla m = {MLA_NOPE, c->shape->rotary, MLA_V, latent, n->op->kind == OP_MLA_ATTENTION ? case_get(n, "scale") : 0};

    if (n->op->kind == OP_LATENT_WRITE) {
        double *kept = past + (size_t)pos * width;
        ref_concat(kept, case_at(c, n->in[0], r), case_at(c, n->in[1], r), latent, m.rope, 1);
        for (uint32_t i = 0; i < width; i++)
            pool_put(c, c->expected_pool[0], (size_t)c->slots[r] * width + i, (float)kept[i]);
        return;
    }
    double *score = case_alloc(c, pos + 1, sizeof *score);
    for (uint32_t h = 0; h < c->shape->n_heads; h++)
        ref_mla(case_at(c, n->out[0], r) + (size_t)h * MLA_V, case_at(c, n->in[0], r) + (size_t)h * MLA_NOPE,
                case_at(c, n->in[1], r) + (size_t)h * m.rope, past,
                c->dense[n->weight[0]] + (size_t)h * (MLA_NOPE + MLA_V) * latent, pos + 1, &m, score);
}

/* The input of one matrix, or of several, by scale `e`. */
static void reference_round(const PointCase *c, const InstanceNode *n, double *y, const double *x, uint32_t width,
                            uint32_t e)
{
    RefActQuant q = {.to = case_to(c),
                     .span = (uint32_t)case_get(n, "span"),
                     .row = (uint32_t)case_get(n, "row"),
                     .scaled = n->weight[0] >= 0};

    if (q.scaled)
        q.scale = case_get(n, "inverse") != 0 ? 1 / c->dense[n->weight[0]][e] : c->dense[n->weight[0]][e];
    ref_act_quant(y, x, width, &q);
}

static void reference_sample(PointCase *c, const InstanceNode *n, uint32_t r)
{
    uint32_t width = c->edges[n->in[0]].width;
    float *row = case_alloc(c, width, sizeof *row);
    uint64_t *scratch = case_alloc(c, width, sizeof *scratch);

    for (uint32_t i = 0; i < width; i++)
        row[i] = (float)case_at(c, n->in[0], r)[i];
    c->expected_pick[r] = c->picks[r];
    sampling_row(&c->samples[r], c->edits, c->tokens[c->out_rows[r]], row, width, scratch, &c->expected_pick[r]);
    for (uint32_t i = 0; i < width; i++)
        case_at(c, n->out[0], r)[i] = (double)row[i];
}

static void reference_node(PointCase *c, const InstanceNode *n, uint32_t r)
{
    uint32_t src = n->op->on_outputs ? (uint32_t)c->out_rows[r] : r, in = c->edges[n->in[0]].width;
    const double *x = n->op->kind == OP_EMBED ? NULL : case_at(c, n->in[0], src);
    double *y = n->op->n_out ? case_at(c, n->out[0], r) : NULL;
    const float *w = n->op->n_weights && n->weight[0] >= 0 ? c->dense[n->weight[0]] : NULL;
    double freq[256], scale;
    Err err;

    switch (n->op->kind) {
    case OP_EMBED:
        ref_embed(y, w + (size_t)c->tokens[r] * c->edges[n->out[0]].width, c->edges[n->out[0]].width,
                  case_get(n, "scale"));
        break;
    case OP_RMS_NORM:
        ref_rms_norm(y, x, w, in, case_get(n, "eps"), case_get(n, "offset"));
        break;
    case OP_QK_NORM:
        ref_qk_norm(y, x, w, in, (uint32_t)case_get(n, "group"), case_get(n, "eps"), case_get(n, "offset"));
        break;
    case OP_RESIDUAL_ADD:
        ref_residual_add(y, x, case_at(c, n->in[1], r), in, case_get(n, "scale"));
        break;
    case OP_LINEAR:
    case OP_LM_HEAD:
        for (uint32_t i = 0; i < c->edges[n->out[0]].width; i++) {
            y[i] = ref_dot(x, w + (size_t)i * in, in);
            if (n->op->kind == OP_LM_HEAD)
                y[i] = ref_logit(y[i], case_get(n, "scale"), case_get(n, "softcap"));
            else if (n->weight[1] >= 0)
                y[i] += (double)c->dense[n->weight[1]][i];
        }
        break;
    case OP_ACT_QUANT:
        if (case_to(c) == ACT_NARROW)
            ref_act_quant_i8(y, x, in);
        else
            reference_round(c, n, y, x, in, 0);
        break;
    case OP_EXPERT_ACT_QUANT:
        for (uint32_t j = 0, k = case_k(c); j < c->edges[n->in[1]].width; j++)
            reference_round(c, n, y + j * k, x + (in == k ? 0 : j * k), k, (uint32_t)case_at(c, n->in[1], src)[j]);
        break;
    case OP_SILU_MUL:
        ref_silu_mul(y, x, case_at(c, n->in[1], r), in);
        break;
    case OP_ROPE:
        assert_true(rope_frequencies(&c->rope, freq, &scale, &err) == ST_OK);
        for (int j = 0; j < 2; j++) {
            uint32_t width = c->edges[n->in[j]].width;
            memcpy(case_at(c, n->out[j], r), case_at(c, n->in[j], r), sizeof(double) * width);
            ref_rope(case_at(c, n->out[j], r), width, c->shape->head_dim, c->rope.dims / 2, freq, scale,
                     (uint32_t)c->positions[r], case_get(n, "style") != 0);
        }
        break;
    case OP_KV_WRITE:
        reference_kv_write(c, n, r);
        break;
    case OP_GELU_TANH_MUL:
        ref_gelu_tanh_mul(y, x, case_at(c, n->in[1], r), in);
        break;
    case OP_SWIGLU_CLAMP:
        ref_swiglu_clamp(y, x, case_at(c, n->in[1], r), in, case_get(n, "alpha"), case_get(n, "limit"));
        break;
    case OP_SIGMOID_GATE_MUL:
        ref_sigmoid_gate_mul(y, x, case_at(c, n->in[1], r), in, c->edges[n->in[1]].width);
        break;
    case OP_SPLIT:
        ref_split(y, case_at(c, n->out[1], r), x, in, (uint32_t)case_get(n, "groups"), (uint32_t)case_get(n, "first"));
        break;
    case OP_TOP_K:
        reference_top_k(c, n, r);
        break;
    case OP_EXPERT_LINEAR:
        reference_experts(c, n, r);
        break;
    case OP_BLEND:
        ref_blend(y, x, case_at(c, n->in[1], r), c->edges[n->out[0]].width, c->edges[n->in[1]].width);
        break;
    case OP_PAGED_ATTENTION:
        reference_attention(c, n, r);
        break;
    case OP_CONCAT:
        ref_concat(y, x, case_at(c, n->in[1], r), in, c->edges[n->in[1]].width, (uint32_t)case_get(n, "groups"));
        break;
    case OP_RELU2:
        ref_relu2(y, x, in);
        break;
    case OP_L2_NORM:
        ref_l2_norm(y, x, in, (uint32_t)case_get(n, "group"), case_get(n, "eps"));
        break;
    case OP_GATED_RMS_NORM:
        ref_gated_rms_norm(y, x, case_at(c, n->in[1], r), w, (uint32_t)c->weights[n->weight[0]].k, in,
                           (uint32_t)case_get(n, "group"), case_get(n, "eps"), case_get(n, "gate") != 0);
        break;
    case OP_GDN_GATES:
        ref_gdn_gates(y, x, case_at(c, n->in[1], r), w, c->dense[n->weight[1]], in, case_get(n, "decay") != 0);
        break;
    case OP_CONV1D_UPDATE:
    case OP_GDN_RECURRENCE:
    case OP_SSM_UPDATE:
        reference_recurrence(c, n, r);
        break;
    case OP_LATENT_WRITE:
    case OP_MLA_ATTENTION:
        reference_latent(c, n, r);
        break;
    case OP_SAMPLE:
        reference_sample(c, n, r);
        break;
    case OP_COUNT:
        break;
    }
}

/* Fills value[] of all that the nodes make, and expected_pool; once for a case, whose states move on. */
static void case_reference(PointCase *c)
{
    if (c->computed)
        return;
    case_matrices(c);
    for (uint32_t i = 0; i < c->rule->n_nodes; i++)
        for (uint32_t r = 0; r < (c->nodes[i].op->on_outputs ? c->shape->outs : c->shape->rows); r++)
            reference_node(c, &c->nodes[i], r);
    c->computed = true;
}
#endif
