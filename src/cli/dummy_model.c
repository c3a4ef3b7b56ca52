/* dummy_model.c - see dummy_model.h. The circuit is instantiated on the bare configuration, which says each weight's shape,
 * format and tensors; what a slot is for (which op reads it, as what) says its values. The store that comes out is then
 * opened like any checkpoint, by the tensors that it has. */
#include "cli/dummy_model.h"
#include "core/dtype.h"
#include "model/binding.h"
#include "weights/layout.h"
#include <stdio.h>
#include <string.h>

enum { SMALL_ROWS = 128 };

static const struct {
    const char *name, *rows; /* the choice, and the format that its rows are read as (dtype.h), which is taken too */
    const char *block;       /* quantization_config as checkpoints have it, less the modules that stay as they are */
} QUANTS[] = {{"fp8-block", "fp8/128",
               "{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", "
               "\"weight_block_size\": [128, 128]}"},
              {"nvfp4", "nvfp4",
               "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"config_groups\": {\"group_0\": {"
               "\"input_activations\": {\"dynamic\": false, \"num_bits\": 4, \"type\": \"float\", "
               "\"group_size\": 16}, \"weights\": {\"dynamic\": false, \"num_bits\": 4, \"type\": \"float\", "
               "\"group_size\": 16}, \"targets\": [\"Linear\"]}}}"}};

typedef struct Dummy {
    WeightStore *store;
    DType plain;     /* of matrices that the quantisation leaves out */
    bool small_stay; /* matrices of few rows are left out */
    Err *err;
} Dummy;

/* What the op that reads a weight makes of it. */
static DummyFill fill_of(const InstanceNode *n, uint32_t slot)
{
    const char *name = n->op->weights[slot].name;
    const int offset = op_param(n->op, "offset");

    switch (n->op->kind) {
    case OP_RMS_NORM:
    case OP_QK_NORM:
    case OP_GATED_RMS_NORM:
        return (DummyFill){.mean = 1.0f - (offset < 0 ? 0.0f : (float)n->param[offset]), .sigma = 0.02f};
    case OP_CONV1D_UPDATE: /* uniform within 1/sqrt(taps) at initialisation: deviation 0.29 for 4 */
        return (DummyFill){.sigma = strcmp(name, "weight") == 0 ? 0.29f : 0.02f};
    case OP_GDN_GATES:
    case OP_SSM_UPDATE:
        if (strcmp(name, "a_log") == 0) /* logarithms of 1 to 16 */
            return (DummyFill){.mean = 1.4f, .sigma = 0.4f};
        if (strcmp(name, "dt_bias") == 0) /* softplus of it is 0.001 to 0.1 */
            return (DummyFill){.mean = -4.6f, .sigma = 0.66f};
        return (DummyFill){.mean = 1.0f, .sigma = 0.02f};
    default:
        return (DummyFill){.sigma = 0.02f};
    }
}

static bool stays(const InstanceNode *n, const InstanceBlock *b)
{
    if (n->op->kind == OP_LM_HEAD)
        return true;
    for (uint32_t i = 0; n->op->kind == OP_LINEAR && i < b->n_nodes; i++)
        if (b->nodes[i].op->kind == OP_TOP_K && b->nodes[i].in[0] == n->out[0])
            return true;
    return false;
}

/* A tensor that is the weight itself, or one expert's, as the weight map's first form has it. */
static Status declare_plain(const Dummy *d, const InstanceWeight *w, const InstanceBinding *bind, const char *name,
                            DType format, const DummyFill *fill)
{
    uint64_t dims[3], rows = bind->of ? bind->of : weight_rows(w);
    uint32_t n = 0;

    if (store_find(d->store, name) != NULL) /* a tied or fused weight is declared once */
        return ST_OK;
    if (w->experts && bind->tensors == NULL)
        dims[n++] = w->experts;
    if (bind->columns)
        dims[n++] = w->k;
    dims[n++] = rows;
    if (!w->vector && !bind->columns)
        dims[n++] = w->k;
    if (bind->columns && dtype_block(format) > 1) /* blocks lie along k and cannot be turned */
        format = DT_BF16;
    return store_dummy_declare_as(d->store, name, format, n, dims, fill, d->err);
}

static Status declare_weight(const Dummy *d, const InstanceBlock *b, const InstanceNode *n, uint32_t slot,
                             const InstanceBinding *bindings)
{
    const InstanceWeight *w = &b->weights[n->weight[slot]];
    const InstanceBinding *bind = &bindings[n->weight[slot]];
    const DummyFill fill = fill_of(n, slot);
    const uint64_t rows = bind->of ? bind->of : weight_rows(w);
    const bool quant = bind->quant != NULL && !stays(n, b) && !(d->small_stay && rows < SMALL_ROWS);
    char name[512];
    Status st = ST_OK;

    for (uint32_t e = 0; e < (bind->tensors ? w->experts : 1); e++) {
        const char *tensor = bind->tensors ? bind->tensors[e] : bind->tensor;

        if (quant) {
            TRY(store_dummy_declare_quant(d->store, bind->quant, tensor, bind->tensors ? 0 : w->experts, rows, w->k,
                                          d->err));
            continue;
        }
        if (bind->quant != NULL) { /* it has the module's name */
            if (snprintf(name, sizeof name, "%s.weight", tensor) >= (int)sizeof name)
                TRY(err_set(d->err, ST_INVALID, "dummy weights: the name of %s is too long", tensor));
            tensor = name;
        }
        TRY(declare_plain(d, w, bind, tensor, bind->quant ? d->plain : w->stored, &fill));
    }
done:
    return st;
}

static Status declare_block(const Dummy *d, const InstanceBlock *b, const InstanceBinding *bindings)
{
    Status st = ST_OK;

    for (uint32_t i = 0; i < b->n_nodes; i++)
        for (uint32_t s = 0; s < b->nodes[i].op->n_weights; s++)
            if (b->nodes[i].weight[s] >= 0)
                TRY(declare_weight(d, b, &b->nodes[i], s, bindings));
done:
    return st;
}

/* The configuration's quantisation and the format of matrices, by the name of the choice. */
static Status choose(json_t *config, const char *name, const char *format, Dummy *d, DType *all, Err *err)
{
    json_t *block;

    *all = DT_NONE;
    if (strcmp(format, "config") == 0)
        return ST_OK;
    json_object_del(config, "quantization_config");
    json_object_del(json_object_get(config, "text_config"), "quantization_config");
    for (size_t i = 0; i < sizeof QUANTS / sizeof QUANTS[0]; i++)
        if (strcmp(format, QUANTS[i].name) == 0 || strcmp(format, QUANTS[i].rows) == 0) {
            d->small_stay = true;
            block = json_loads(QUANTS[i].block, 0, NULL);
            return json_object_set_new(config, "quantization_config", block) == 0
                       ? ST_OK
                       : err_set(err, ST_NOMEM, "%s: out of memory", name);
        }
    if (!dtype_parse(format, all) || !layout_takes(LAYOUT_N16, *all) || dtype_row(*all).bytes || dtype_row(*all).head)
        return err_set(err, ST_INVALID, "--dummy %s: no such weights; there are " DUMMY_FORMATS, format);
    return ST_OK;
}

Status dummy_model_new(WeightStore **out, const CircuitLibrary *lib, const json_t *config, const char *name,
                       const char *format, Err *err)
{
    Status st = ST_OK;
    Dummy d = {.err = err};
    Instance *in = NULL;
    InstanceSource src = {.name = name, .kv_format = DT_BF16};
    json_t *meta = json_deep_copy(config);

    if (meta == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory", name);
    TRY(choose(meta, name, format, &d, &src.fallback, err));
    src.meta = meta;
    TRY(instance_new(&in, lib, &src, err));
    TRY(store_dummy_new(&d.store, meta, 1, err));
    d.plain = in->stem.weights[0].stored;
    TRY(declare_block(&d, &in->stem, in->stem_bindings));
    for (uint32_t i = 0; i < in->n_layers; i++)
        TRY(declare_block(&d, &in->blocks[in->layers[i].block], in->layers[i].bindings));
    TRY(declare_block(&d, &in->head, in->head_bindings));
    *out = d.store;
    d.store = NULL;
done:
    store_free(d.store);
    instance_free(in);
    json_decref(meta);
    return st;
}
