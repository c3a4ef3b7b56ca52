/* reference.c - walks the instance's blocks in program order, one node at a time, all rows of the call in each node.
 *
 * Values live in one array of doubles per edge, freed with the block. Weights are read and decoded at each use, a row at a time from
 * one whole-tensor buffer: slow, small and independent of every layout. KV is kept in double for every token so far. */
#include "model/reference.h"
#include "core/numeric.h"
#include "model/binding.h"
#include "model/pieces.h"
#include "model/reference_ops.h"
#include "model/reference_recurrent.h"
#include "model/rope_table.h"
#include "weights/decode.h"
#include "weights/quant.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A state's one or two parts. Paged ones have a row for each token so far, recurrent ones one row. */
typedef struct KvArray {
    double *k, *v;
    uint32_t k_row, v_row; /* elements */
} KvArray;

typedef struct RopeTable {
    double *inv_freq, scale;
} RopeTable;

struct Reference {
    const Instance *in;
    WeightStore *store;
    uint32_t max_len, len;
    DType edges;      /* DT_F32: exact */
    uint64_t seed;    /* state of the generator of small moves; 0: none */
    KvArray *kv;      /* [n_states] */
    RopeTable *ropes; /* [n_ropes] */
};

/* The bytes of one expert of a weight, or of a plain weight, while a node uses it: stored rows 0 .. of its part of the
 * tensor. */
typedef struct Matrix {
    uint8_t *bytes;
    DType dtype;
    const InstanceBinding *binding;
    uint64_t row_bytes, k, of; /* of: elements a stored row when the slot's rows are its columns */
} Matrix;

static void matrix_release(Matrix *m)
{
    free(m->bytes);
    m->bytes = NULL;
}

/* Elements of a tensor. */
static uint64_t tensor_elements(const TensorInfo *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    return n;
}

/* All rows of a quantised matrix, put together. */
static Status matrix_open_quant(Reference *r, const InstanceBinding *b, const InstanceWeight *w, uint32_t expert,
                                Matrix *out, Err *err)
{
    Status st = ST_OK;
    Matrix m = {.binding = b, .k = w->k, .dtype = w->stored};
    const uint64_t rows = b->of ? b->of : weight_rows(w);
    uint64_t base;
    const char *module = binding_tensor(b, w, expert, &base);
    QuantReader *q = NULL;

    dtype_row_bytes(m.dtype, m.k, &m.row_bytes);
    TRY(quant_open(&q, r->store, b->quant, module, b->tensors ? rows : rows * weight_experts(w), m.k, m.dtype, err));
    m.bytes = malloc(rows * m.row_bytes);
    if (m.bytes == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for %s", module));
    TRY(quant_read(q, base, rows, m.bytes, err));
    *out = m;
    m.bytes = NULL;
done:
    quant_close(q);
    matrix_release(&m);
    return st;
}

/* All rows of a matrix that is put together from pieces. */
static Status matrix_open_pieces(Reference *r, const InstanceBinding *b, const InstanceWeight *w, Matrix *out, Err *err)
{
    Matrix m = {.binding = b, .k = w->k, .dtype = w->stored};
    Status st;

    dtype_row_bytes(m.dtype, m.k, &m.row_bytes);
    m.bytes = malloc(w->n * m.row_bytes);
    if (m.bytes == NULL)
        return err_set(err, ST_NOMEM, "out of memory for tensor %s", b->tensor);
    st = pieces_read(r->store, b, w, 0, w->n, m.bytes, err);
    if (st == ST_OK)
        *out = m;
    else
        matrix_release(&m);
    return st;
}

/* A vector is a matrix of rows of one element. */
static Status matrix_open(Reference *r, const InstanceBinding *b, const InstanceWeight *w, uint32_t expert, Matrix *out,
                          Err *err)
{
    Status st = ST_OK;
    Matrix m = {.binding = b, .k = w->vector ? 1 : w->k};
    uint64_t base, rows = b->of, width = m.k, bytes;
    const char *name = binding_tensor(b, w, expert, &base);
    const TensorInfo *info = NULL;

    if (b->quant != NULL)
        return matrix_open_quant(r, b, w, expert, out, err);
    if (b->pieces != NULL)
        return matrix_open_pieces(r, b, w, out, err);
    TRY(store_need(r->store, name, &info, err));
    if (rows == 0)
        rows = weight_rows(w);
    if (b->columns) {
        m.of = rows;
        base = base / rows * m.k;
        width = rows;
        rows = m.k;
    }
    m.dtype = info->dtype;
    if (!dtype_row_bytes(m.dtype, width, &m.row_bytes) || tensor_elements(info) / width < base + rows)
        return err_set(err, ST_FORMAT, "%s: tensor %s: rows of %llu do not fit format %s", r->store->path, name,
                       (unsigned long long)width, dtype_name(m.dtype));
    bytes = rows * m.row_bytes;
    m.bytes = malloc(bytes ? bytes : 1);
    if (m.bytes == NULL)
        return err_set(err, ST_NOMEM, "out of memory for tensor %s", name);
    TRY(store_read(r->store, info, base * m.row_bytes, m.bytes, bytes, err));
    *out = m;
    return ST_OK;
done:
    matrix_release(&m);
    return st;
}

static void matrix_row(const Matrix *m, uint64_t row, float *out)
{
    uint64_t at = binding_row(m->binding, row), element = m->of ? m->row_bytes / m->of : 0;

    if (m->of == 0)
        dtype_row_to_f32(m->dtype, m->bytes + at * m->row_bytes, m->k, out);
    for (uint64_t i = 0; m->of != 0 && i < m->k; i++)
        dtype_row_to_f32(m->dtype, m->bytes + i * m->row_bytes + at * element, 1, out + i);
}

/* A vector slot of a node as floats (of one expert), or NULL when absent. *out is malloc'd. */
static Status node_vector(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                          const char *slot, uint32_t expert, float **out, Err *err)
{
    Status st = ST_OK;
    Matrix m = {0};
    int s = op_weight(n->op, slot), w = s < 0 ? -1 : n->weight[s];
    uint64_t rows;

    *out = NULL;
    if (w < 0)
        return ST_OK;
    rows = weight_rows(&b->weights[w]);
    TRY(matrix_open(r, &bind[w], &b->weights[w], expert, &m, err));
    *out = malloc(sizeof(float) * rows);
    if (*out == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for tensor %s", bind[w].tensor));
    for (uint64_t i = 0; i < rows; i++)
        matrix_row(&m, i, *out + i);
done:
    matrix_release(&m);
    return st;
}

static Status run_linear(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                         uint32_t rows, const double *x, double *y, Err *err)
{
    Status st = ST_OK;
    Matrix m = {0};
    float *row = NULL, *bias = NULL;
    int w = n->weight[op_weight(n->op, "weight")];
    uint32_t width = b->edges[n->out[0]].width, k = (uint32_t)b->weights[w].k;
    bool head = n->op->kind == OP_LM_HEAD;
    double scale = head ? node_param(n, "scale") : 1.0, cap = head ? node_param(n, "softcap") : 0.0;

    TRY(matrix_open(r, &bind[w], &b->weights[w], 0, &m, err));
    TRY(node_vector(r, b, bind, n, "bias", 0, &bias, err));
    row = malloc(sizeof(float) * k);
    if (row == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for a row of %s", bind[w].tensor));
    for (uint32_t i = 0; i < width; i++) {
        matrix_row(&m, i, row);
        for (uint32_t t = 0; t < rows; t++) {
            double v = ref_dot(x + (size_t)t * k, row, k) + (bias ? (double)bias[i] : 0.0);
            y[(size_t)t * width + i] = ref_logit(v, scale, cap);
        }
    }
done:
    free(row);
    free(bias);
    matrix_release(&m);
    return st;
}

/* Expert by expert, so that each one's matrix is read once. */
static Status run_experts(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                          uint32_t rows, const double *x, const double *ids, double *y, Err *err)
{
    Status st = ST_OK;
    Matrix m = {0};
    float *row = NULL, *bias = NULL;
    const InstanceWeight *w = &b->weights[n->weight[0]];
    uint32_t k = (uint32_t)w->k, width = b->edges[n->in[0]].width, chosen = b->edges[n->in[1]].width;
    uint32_t out = (uint32_t)weight_rows(w),
             own = width == k ? 0 : k; /* own: elements from one expert's x to the next's */

    row = malloc(sizeof(float) * k);
    if (row == NULL)
        return err_set(err, ST_NOMEM, "out of memory for a row of %s", bind[n->weight[0]].tensor);
    for (uint32_t e = 0; e < weight_experts(w); e++) {
        bool wanted = false;
        for (uint32_t i = 0; i < rows * chosen; i++)
            wanted |= ids[i] == e;
        if (!wanted)
            continue;
        TRY(matrix_open(r, &bind[n->weight[0]], w, e, &m, err));
        TRY(node_vector(r, b, bind, n, "bias", e, &bias, err));
        for (uint32_t i = 0; i < out; i++) {
            matrix_row(&m, i, row);
            for (uint32_t p = 0; p < rows * chosen; p++)
                if (ids[p] == e)
                    y[(size_t)p * out + i] =
                        ref_dot(x + (size_t)(p / chosen) * width + (size_t)(p % chosen) * own, row, k) +
                        (bias ? (double)bias[i] : 0.0);
        }
        matrix_release(&m);
        free(bias);
        bias = NULL;
    }
done:
    free(row);
    free(bias);
    matrix_release(&m);
    return st;
}

static Status run_top_k(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                        uint32_t rows, const double *x, double *ids, double *weights, Err *err)
{
    Status st = ST_OK;
    uint32_t experts = b->edges[n->in[0]].width;
    RefRouter router = {.k = (uint32_t)node_param(n, "k"),
                        .n_group = (uint32_t)node_param(n, "n_group"),
                        .topk_group = (uint32_t)node_param(n, "topk_group"),
                        .sigmoid = node_param(n, "scores") != 0,
                        .renormalize = node_param(n, "renormalize") != 0,
                        .scale = node_param(n, "scale"),
                        .sum_eps = node_param(n, "sum_eps")};
    double *scratch = malloc(sizeof(double) * 2 * experts);
    float *bias = NULL;

    if (scratch == NULL)
        return err_set(err, ST_NOMEM, "out of memory for router scores");
    TRY(node_vector(r, b, bind, n, "bias", 0, &bias, err));
    for (uint32_t t = 0; t < rows; t++)
        ref_top_k(ids + (size_t)t * router.k, weights + (size_t)t * router.k, x + (size_t)t * experts, experts, bias,
                  &router, scratch);
done:
    free(scratch);
    free(bias);
    return st;
}

static Status run_embed(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                        uint32_t rows, const int32_t *ids, double *y, Err *err)
{
    Status st = ST_OK;
    Matrix m = {0};
    int w = n->weight[0];
    uint32_t width = b->edges[n->out[0]].width;
    float *row = malloc(sizeof(float) * width);

    if (row == NULL)
        return err_set(err, ST_NOMEM, "out of memory for an embedding row");
    TRY(matrix_open(r, &bind[w], &b->weights[w], 0, &m, err));
    for (uint32_t t = 0; t < rows; t++) {
        matrix_row(&m, (uint64_t)ids[t], row);
        ref_embed(y + (size_t)t * width, row, width, node_param(n, "scale"));
    }
done:
    free(row);
    matrix_release(&m);
    return st;
}

static Status run_norm(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                       uint32_t rows, const double *x, double *y, Err *err)
{
    Status st = ST_OK;
    float *w = NULL;
    uint32_t width = b->edges[n->out[0]].width;
    uint32_t group = n->op->kind == OP_QK_NORM ? (uint32_t)node_param(n, "group") : width;

    TRY(node_vector(r, b, bind, n, "weight", 0, &w, err));
    for (uint32_t t = 0; t < rows; t++)
        ref_qk_norm(y + (size_t)t * width, x + (size_t)t * width, w, width, group, node_param(n, "eps"),
                    node_param(n, "offset"));
done:
    free(w);
    return st;
}

/* ids NULL: one scale for all rows; otherwise each row's experts have their own. */
static Status run_act_quant(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                            uint32_t rows, const double *x, const double *ids, double *y, Err *err)
{
    Status st = ST_OK;
    float *scale = NULL;
    const InstanceWeight *w = n->weight[0] >= 0 ? &b->weights[n->weight[0]] : NULL;
    uint32_t in = b->edges[n->in[0]].width, width = b->edges[n->out[0]].width;
    uint32_t part = ids ? (uint32_t)node_param(n, "row") : width, parts = width / part;
    RefActQuant q = {.to = (ActFormat)node_param(n, "to"),
                     .span = (uint32_t)node_param(n, "span"),
                     .row = (uint32_t)node_param(n, "row"),
                     .scaled = w != NULL};

    for (uint32_t e = 0; e < (w ? weight_experts(w) : 1); e++) {
        TRY(node_vector(r, b, bind, n, "scale", e, &scale, err));
        if (scale)
            q.scale = node_param(n, "inverse") != 0 ? 1.0f / scale[0] : scale[0];
        for (uint32_t p = 0; p < rows * parts; p++)
            if (ids == NULL || ids[p] == e)
                ref_act_quant(y + (size_t)p * part, x + (size_t)(p / parts) * in + (in == width ? p % parts * part : 0),
                              part, &q);
        free(scale);
        scale = NULL;
    }
done:
    return st;
}

static Status run_attention(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                            const KvArray *kv, uint32_t rows, const double *q, double *y, Err *err)
{
    Status st = ST_OK;
    float *sinks = NULL;
    double *score = malloc(sizeof(double) * r->max_len);
    uint32_t heads = (uint32_t)node_param(n, "n_heads"), kv_heads = (uint32_t)node_param(n, "n_kv_heads");
    uint32_t hd = (uint32_t)node_param(n, "head_dim"), window = (uint32_t)node_param(n, "window");

    if (score == NULL)
        return err_set(err, ST_NOMEM, "out of memory for attention scores");
    TRY(node_vector(r, b, bind, n, "sinks", 0, &sinks, err));
    for (uint32_t t = 0; t < rows; t++) {
        uint32_t end = r->len + t + 1, first = window && end > window ? end - window : 0;
        for (uint32_t h = 0; h < heads; h++) {
            size_t kvh = h / (heads / kv_heads), at = (size_t)t * heads * hd + (size_t)h * hd;
            ref_attention(y + at, q + at, kv->k + (size_t)first * kv->k_row + kvh * hd,
                          kv->v + (size_t)first * kv->v_row + kvh * hd, end - first, kv->k_row, hd,
                          node_param(n, "scale"), node_param(n, "softcap"), sinks ? (double)sinks[h] : -INFINITY,
                          score);
        }
    }
done:
    free(score);
    free(sinks);
    return st;
}

static Status run_gated_norm(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                             uint32_t rows, const double *x, const double *z, double *y, Err *err)
{
    Status st = ST_OK;
    float *w = NULL;
    uint32_t width = b->edges[n->out[0]].width;

    TRY(node_vector(r, b, bind, n, "weight", 0, &w, err));
    for (uint32_t t = 0; t < rows; t++)
        ref_gated_rms_norm(y + (size_t)t * width, x + (size_t)t * width, z + (size_t)t * width, w,
                           (uint32_t)b->weights[n->weight[0]].k, width, (uint32_t)node_param(n, "group"),
                           node_param(n, "eps"), node_param(n, "gate") != 0);
done:
    free(w);
    return st;
}

static Status run_conv1d(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                         KvArray *state, uint32_t rows, const double *x, double *y, Err *err)
{
    Status st = ST_OK;
    float *w = NULL, *bias = NULL;
    uint32_t width = b->edges[n->out[0]].width;

    TRY(node_vector(r, b, bind, n, "weight", 0, &w, err));
    TRY(node_vector(r, b, bind, n, "bias", 0, &bias, err));
    for (uint32_t t = 0; t < rows; t++)
        ref_conv1d(y + (size_t)t * width, state->k, x + (size_t)t * width, w, bias, width,
                   (uint32_t)node_param(n, "taps"));
done:
    free(w);
    free(bias);
    return st;
}

static Status run_gdn_gates(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                            uint32_t rows, const double *a, const double *beta, double *y, Err *err)
{
    Status st = ST_OK;
    float *a_log = NULL, *dt_bias = NULL;
    uint32_t heads = b->edges[n->in[0]].width;

    TRY(node_vector(r, b, bind, n, "a_log", 0, &a_log, err));
    TRY(node_vector(r, b, bind, n, "dt_bias", 0, &dt_bias, err));
    for (uint32_t t = 0; t < rows; t++)
        ref_gdn_gates(y + (size_t)t * 2 * heads, a + (size_t)t * heads, beta + (size_t)t * heads, a_log, dt_bias, heads,
                      node_param(n, "decay") != 0);
done:
    free(a_log);
    free(dt_bias);
    return st;
}

static void run_gdn(const InstanceNode *n, KvArray *state, uint32_t rows, double *const *values, double *y)
{
    uint32_t k_heads = (uint32_t)node_param(n, "k_heads"), heads = (uint32_t)node_param(n, "v_heads");
    uint32_t k_dim = (uint32_t)node_param(n, "k_dim"), v_dim = (uint32_t)node_param(n, "v_dim");
    bool strided = node_param(n, "share") != 0;

    for (uint32_t t = 0; t < rows; t++)
        for (uint32_t h = 0; h < heads; h++) {
            uint32_t shared = strided ? h % k_heads : h / (heads / k_heads);
            size_t key = ((size_t)t * k_heads + shared) * k_dim, at = ((size_t)t * heads + h) * v_dim;
            const double *gates = values[n->in[3]] + (size_t)t * 2 * heads;
            ref_gdn_step(y + at, state->k + (size_t)h * k_dim * v_dim, values[n->in[0]] + key, values[n->in[1]] + key,
                         values[n->in[2]] + at, gates[h], gates[heads + h], k_dim, v_dim, node_param(n, "scale"));
        }
}

static Status run_ssm(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                      KvArray *state, uint32_t rows, const double *x, const double *dt, double *y, Err *err)
{
    Status st = ST_OK;
    float *a_log = NULL, *dt_bias = NULL, *skip = NULL;
    uint32_t heads = (uint32_t)node_param(n, "n_heads"), dim = (uint32_t)node_param(n, "head_dim");
    uint32_t groups = (uint32_t)node_param(n, "n_groups"), size = (uint32_t)node_param(n, "state_dim");

    TRY(node_vector(r, b, bind, n, "a_log", 0, &a_log, err));
    TRY(node_vector(r, b, bind, n, "dt_bias", 0, &dt_bias, err));
    TRY(node_vector(r, b, bind, n, "skip", 0, &skip, err));
    for (uint32_t t = 0; t < rows; t++, x += heads * dim + 2 * groups * size)
        for (uint32_t h = 0; h < heads; h++) {
            const double *bc = x + (size_t)heads * dim + (size_t)(h / (heads / groups)) * size;
            ref_ssm_step(y + ((size_t)t * heads + h) * dim, state->k + (size_t)h * dim * size, x + (size_t)h * dim, bc,
                         bc + (size_t)groups * size, ref_softplus(dt[(size_t)t * heads + h] + (double)dt_bias[h]),
                         ref_decay_rate((double)a_log[h], node_param(n, "decay") != 0), (double)skip[h], dim, size);
        }
done:
    free(a_log);
    free(dt_bias);
    free(skip);
    return st;
}

/* What the instance's format keeps of a state's values; f32 is taken as exact. */
static void keep(const Reference *r, double *values, size_t n)
{
    for (size_t i = 0; r->in->kv_format == DT_BF16 && i < n; i++)
        values[i] = (double)bf16_to_f32(f32_to_bf16((float)values[i]));
    for (size_t i = 0; r->in->kv_format == DT_F16 && i < n; i++)
        values[i] = (double)f16_to_f32(f32_to_f16_saturated((float)values[i]));
}

/* The latent and the key's rope part of each row, side by side. */
static void run_latent_write(const Reference *r, const InstanceNode *n, KvArray *kv, uint32_t rows, const double *x,
                             const double *rope)
{
    uint32_t latent = (uint32_t)node_param(n, "latent_dim"), rest = (uint32_t)node_param(n, "rope_dim");

    ref_concat(kv->k + (size_t)r->len * kv->k_row, x, rope, rows * latent, rows * rest, rows);
    keep(r, kv->k + (size_t)r->len * kv->k_row, (size_t)rows * kv->k_row);
}

static Status run_mla(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, const InstanceNode *n,
                      const KvArray *kv, uint32_t rows, const double *q_nope, const double *q_rope, double *y, Err *err)
{
    Status st = ST_OK;
    Matrix m = {0};
    RefMla head = {.nope = (uint32_t)node_param(n, "nope_dim"),
                   .rope = (uint32_t)node_param(n, "rope_dim"),
                   .v_dim = (uint32_t)node_param(n, "v_dim"),
                   .latent = (uint32_t)node_param(n, "latent_dim"),
                   .scale = node_param(n, "scale")};
    uint32_t heads = (uint32_t)node_param(n, "n_heads"), part = head.nope + head.v_dim;
    float *w = malloc(sizeof(float) * part * head.latent);
    double *score = malloc(sizeof(double) * r->max_len);

    if (w == NULL || score == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for attention scores"));
    TRY(matrix_open(r, &bind[n->weight[0]], &b->weights[n->weight[0]], 0, &m, err));
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t i = 0; i < part; i++)
            matrix_row(&m, (uint64_t)h * part + i, w + (size_t)i * head.latent);
        for (uint32_t t = 0; t < rows; t++) {
            size_t at = (size_t)t * heads + h;
            ref_mla(y + at * head.v_dim, q_nope + at * head.nope, q_rope + at * head.rope, kv->k, w, r->len + t + 1,
                    &head, score);
        }
    }
done:
    free(w);
    free(score);
    matrix_release(&m);
    return st;
}

static Status run_node(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, uint32_t state_base,
                       const InstanceNode *n, uint32_t rows, const int32_t *ids, double **values, Err *err)
{
    const double *x = values[n->in[0]], *x1 = n->op->n_in > 1 ? values[n->in[1]] : NULL;
    double *y = n->op->n_out ? values[n->out[0]] : NULL;
    uint32_t width = n->op->n_out ? b->edges[n->out[0]].width : 0;
    KvArray *kv = n->state >= 0 ? &r->kv[state_base + (uint32_t)n->state] : NULL;

    switch (n->op->kind) {
    case OP_EMBED:
        return run_embed(r, b, bind, n, rows, ids, y, err);
    case OP_RMS_NORM:
    case OP_QK_NORM:
        return run_norm(r, b, bind, n, rows, x, y, err);
    case OP_LINEAR:
    case OP_LM_HEAD:
        return run_linear(r, b, bind, n, rows, x, y, err);
    case OP_RESIDUAL_ADD:
        ref_residual_add(y, x, x1, rows * width, node_param(n, "scale"));
        return ST_OK;
    case OP_SILU_MUL:
        ref_silu_mul(y, x, x1, rows * width);
        return ST_OK;
    case OP_ROPE:
        for (uint32_t o = 0; o < 2; o++) {
            uint32_t w = b->edges[n->out[o]].width;
            const RopeTable *table = &r->ropes[n->table];
            memcpy(values[n->out[o]], values[n->in[o]], sizeof(double) * rows * w);
            for (uint32_t t = 0; t < rows; t++)
                ref_rope(values[n->out[o]] + (size_t)t * w, w, (uint32_t)node_param(n, "head_dim"),
                         r->in->ropes[n->table].dims / 2, table->inv_freq, table->scale, r->len + t,
                         node_param(n, "style") != 0);
        }
        return ST_OK;
    case OP_KV_WRITE:
        memcpy(kv->k + (size_t)r->len * kv->k_row, x, sizeof(double) * rows * kv->k_row);
        memcpy(kv->v + (size_t)r->len * kv->v_row, x1, sizeof(double) * rows * kv->v_row);
        keep(r, kv->k + (size_t)r->len * kv->k_row, (size_t)rows * kv->k_row);
        keep(r, kv->v + (size_t)r->len * kv->v_row, (size_t)rows * kv->v_row);
        return ST_OK;
    case OP_PAGED_ATTENTION:
        return run_attention(r, b, bind, n, kv, rows, x, y, err);
    case OP_GELU_TANH_MUL:
        ref_gelu_tanh_mul(y, x, x1, rows * width);
        return ST_OK;
    case OP_SWIGLU_CLAMP:
        ref_swiglu_clamp(y, x, x1, rows * width, node_param(n, "alpha"), node_param(n, "limit"));
        return ST_OK;
    case OP_SIGMOID_GATE_MUL:
        ref_sigmoid_gate_mul(y, x, x1, rows * width, rows * b->edges[n->in[1]].width);
        return ST_OK;
    case OP_SPLIT:
        ref_split(y, values[n->out[1]], x, rows * b->edges[n->in[0]].width, rows * (uint32_t)node_param(n, "groups"),
                  (uint32_t)node_param(n, "first"));
        return ST_OK;
    case OP_TOP_K:
        return run_top_k(r, b, bind, n, rows, x, y, values[n->out[1]], err);
    case OP_EXPERT_LINEAR:
        return run_experts(r, b, bind, n, rows, x, x1, y, err);
    case OP_BLEND:
        for (uint32_t t = 0; t < rows; t++) {
            uint32_t k = b->edges[n->in[1]].width;
            ref_blend(y + (size_t)t * width, x + (size_t)t * width * k, x1 + (size_t)t * k, width, k);
        }
        return ST_OK;
    case OP_CONCAT:
        ref_concat(y, x, x1, rows * b->edges[n->in[0]].width, rows * b->edges[n->in[1]].width,
                   rows * (uint32_t)node_param(n, "groups"));
        return ST_OK;
    case OP_RELU2:
        ref_relu2(y, x, rows * width);
        return ST_OK;
    case OP_SAMPLE: /* nobody asks for a token here; sampling/row.h has what happens then */
        memcpy(y, x, sizeof(double) * rows * width);
        return ST_OK;
    case OP_L2_NORM:
        ref_l2_norm(y, x, rows * width, (uint32_t)node_param(n, "group"), node_param(n, "eps"));
        return ST_OK;
    case OP_GATED_RMS_NORM:
        return run_gated_norm(r, b, bind, n, rows, x, x1, y, err);
    case OP_CONV1D_UPDATE:
        return run_conv1d(r, b, bind, n, kv, rows, x, y, err);
    case OP_GDN_GATES:
        return run_gdn_gates(r, b, bind, n, rows, x, x1, y, err);
    case OP_GDN_RECURRENCE:
        run_gdn(n, kv, rows, values, y);
        return ST_OK;
    case OP_SSM_UPDATE:
        return run_ssm(r, b, bind, n, kv, rows, x, x1, y, err);
    case OP_LATENT_WRITE:
        run_latent_write(r, n, kv, rows, x, x1);
        return ST_OK;
    case OP_MLA_ATTENTION:
        return run_mla(r, b, bind, n, kv, rows, x, x1, y, err);
    case OP_ACT_QUANT:
    case OP_EXPERT_ACT_QUANT:
        return run_act_quant(r, b, bind, n, rows, x, x1, y, err);
    case OP_COUNT:
        break;
    }
    return err_set(err, ST_UNSUPPORTED, "the reference has no function for op %s (node %s)", n->op->name, n->id);
}

/* Uniform in -1 .. 1 (xorshift64). */
static double next_move(Reference *r)
{
    r->seed ^= r->seed << 13;
    r->seed ^= r->seed >> 7;
    r->seed ^= r->seed << 17;
    return (double)(r->seed >> 11) / 4503599627370496.0 - 1;
}

/* What a plan's edges keep of a node's outputs; see reference_round_edges. */
static void keep_outputs(Reference *r, const InstanceBlock *b, const InstanceNode *n, uint32_t rows, double **values)
{
    for (uint32_t o = 0; r->edges != DT_F32 && !n->op->on_outputs && o < n->op->n_out; o++) {
        double *v = values[n->out[o]];
        bool integer = n->op->i32_out >> o & 1, exact = n->op->f32_out >> o & 1;
        for (size_t i = 0; !integer && i < (size_t)rows * b->edges[n->out[o]].width; i++) {
            if (r->seed != 0)
                v[i] *= 1 + 1e-6 * next_move(r);
            if (!exact)
                v[i] = (double)bf16_to_f32(f32_to_bf16((float)v[i]));
        }
    }
}

/* Runs a block on x (NULL for the stem) and hands back its out edge, malloc'd. */
static Status run_block(Reference *r, const InstanceBlock *b, const InstanceBinding *bind, uint32_t state_base,
                        uint32_t rows, const int32_t *ids, const double *x, double **out, Err *err)
{
    Status st = ST_OK;
    double **values = calloc(b->n_edges, sizeof *values);

    if (values == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the values of block %s", b->name);
    for (uint32_t i = 0; i < b->n_edges; i++) {
        values[i] = calloc((size_t)rows * (b->edges[i].width ? b->edges[i].width : 1), sizeof(double));
        if (values[i] == NULL)
            TRY(err_set(err, ST_NOMEM, "out of memory for the values of block %s", b->name));
    }
    if (x)
        memcpy(values[b->in_edge], x, sizeof(double) * rows * b->edges[b->in_edge].width);
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        TRY(run_node(r, b, bind, state_base, &b->nodes[i], rows, ids, values, err));
        keep_outputs(r, b, &b->nodes[i], rows, values);
    }
    *out = values[b->out_edge];
    values[b->out_edge] = NULL;
done:
    for (uint32_t i = 0; i < b->n_edges; i++)
        free(values[i]);
    free(values);
    return st;
}

Status reference_new(Reference **out, const Instance *in, WeightStore *store, uint32_t max_len, Err *err)
{
    Status st = ST_OK;
    Reference *r = calloc(1, sizeof *r);

    if (r == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the reference interpreter");
    *r = (Reference){.in = in, .store = store, .max_len = max_len, .edges = DT_F32};
    r->kv = calloc(in->n_states ? in->n_states : 1, sizeof *r->kv);
    r->ropes = calloc(in->n_ropes ? in->n_ropes : 1, sizeof *r->ropes);
    if (r->kv == NULL || r->ropes == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for the reference interpreter"));
    for (uint32_t l = 0; l < in->n_layers; l++) {
        const InstanceBlock *b = &in->blocks[in->layers[l].block];
        for (uint32_t s = 0; s < b->n_states; s++) {
            KvArray *kv = &r->kv[in->layers[l].state_base + s];
            size_t kept = b->states[s].kind == STATE_PAGED ? max_len : 1;
            kv->k_row = b->states[s].parts[0].heads * b->states[s].parts[0].width;
            kv->v_row = b->states[s].n_parts > 1 ? b->states[s].parts[1].heads * b->states[s].parts[1].width : 0;
            kv->k = calloc(kept * kv->k_row, sizeof(double));
            kv->v = calloc(kept * kv->v_row + 1, sizeof(double));
            if (kv->k == NULL || kv->v == NULL)
                TRY(err_set(err, ST_NOMEM, "out of memory for the reference's KV of %u tokens", max_len));
        }
    }
    for (uint32_t i = 0; i < in->n_ropes; i++) {
        r->ropes[i].inv_freq = calloc(in->ropes[i].dims / 2, sizeof(double));
        if (r->ropes[i].inv_freq == NULL)
            TRY(err_set(err, ST_NOMEM, "out of memory for the rope frequencies"));
        TRY(rope_table_frequencies(&in->ropes[i], store, r->ropes[i].inv_freq, &r->ropes[i].scale, err));
    }
    *out = r;
    r = NULL;
done:
    reference_free(r);
    return st;
}

void reference_round_edges(Reference *r, DType format, uint64_t seed)
{
    r->edges = format;
    r->seed = seed * UINT64_C(0x9E3779B97F4A7C15); /* odd: 0 for 0 only */
}

void reference_free(Reference *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = 0; r->kv && i < r->in->n_states; i++) {
        free(r->kv[i].k);
        free(r->kv[i].v);
    }
    for (uint32_t i = 0; r->ropes && i < r->in->n_ropes; i++)
        free(r->ropes[i].inv_freq);
    free(r->kv);
    free(r->ropes);
    free(r);
}

Status reference_forward(Reference *r, const int32_t *ids, uint32_t n, float *logits, float *hidden, Err *err)
{
    Status st = ST_OK;
    const Instance *in = r->in;
    double *x = NULL, *y = NULL;
    int64_t vocab = 0;

    if (n == 0 || n > r->max_len - r->len)
        return err_set(err, ST_INVALID, "the reference holds %u tokens; %u more do not fit behind %u", r->max_len, n,
                       r->len);
    instance_dim(in, "vocab", &vocab);
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return err_set(err, ST_INVALID, "token %d is outside the vocabulary of %lld", ids[i], (long long)vocab);

    TRY(run_block(r, &in->stem, in->stem_bindings, 0, n, ids, NULL, &x, err));
    for (uint32_t l = 0; l < in->n_layers; l++) {
        const InstanceLayer *layer = &in->layers[l];
        const InstanceBlock *b = &in->blocks[layer->block];
        TRY(run_block(r, b, layer->bindings, layer->state_base, n, ids, x, &y, err));
        free(x);
        x = y;
        y = NULL;
        size_t count = (size_t)n * b->edges[b->out_edge].width;
        for (size_t i = 0; hidden && i < count; i++)
            hidden[l * count + i] = (float)x[i];
    }
    TRY(run_block(r, &in->head, in->head_bindings, 0, n, ids, x, &y, err));
    for (size_t i = 0; i < (size_t)n * (size_t)vocab; i++)
        logits[i] = (float)y[i];
    r->len += n;
done:
    free(x);
    free(y);
    return st;
}
