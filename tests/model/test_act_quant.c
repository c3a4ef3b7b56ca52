/* Inputs rounded as checkpoints ask, against tests/data/formats/NAME/act_linear.safetensors, which an independent
 * implementation made: for some modules x, x after rounding, and that times the decoded weight; among x are a value
 * beyond the static range and a row of zeros.
 *
 * Each module becomes a model of its own: the rows of x are the embedding of four tokens, the head is the module with the
 * act_quant node that its checkpoint's circuit has in front of it. So reference, lowering and kernels are those of a
 * whole model. With the identity in the place of the weight the logits are the rounded x.
 *
 * Bounds, relative to the largest value. x: 1e-6, since one side multiplies code and scale in f32, the other in double;
 * one value of int8 lies on a tie, where the last bit of x / d decides: it may be off by one step, 1/127. y: 1e-5, the
 * order of f32 sums; where that value enters 2e-3. */
#include "support/open_model.h"

enum { ROWS = 4 };

static const ModelOptions options = {
    .max_rows = 16, .max_outs = 16, .max_seqs = 4, .max_len = 16, .kv_blocks = 4, .batch_invariant = true};

/* ---- a store over two: the checkpoint's, and the file of inputs with an identity ----------------------------------- */
typedef struct Overlay {
    WeightStore base;
    WeightStore *model, *inputs;
    TensorInfo eye;
} Overlay;

static const TensorInfo *overlay_find(const WeightStore *s, const char *name)
{
    const Overlay *o = (const Overlay *)s;
    const TensorInfo *t = store_find(o->inputs, name);

    return t ? t : strcmp(name, "eye") == 0 ? &o->eye : store_find(o->model, name);
}

static Status overlay_read(WeightStore *s, const TensorInfo *t, uint64_t offset, void *dst, size_t len, Err *err)
{
    Overlay *o = (Overlay *)s;

    if (t == &o->eye) {
        float *out = dst;
        for (uint64_t i = offset / 4; i < (offset + len) / 4; i++)
            *out++ = i % (o->eye.dims[1] + 1) == 0;
        return ST_OK;
    }
    return store_read(store_find(o->inputs, t->name) == t ? o->inputs : o->model, t, offset, dst, len, err);
}

static const WeightOps overlay_ops = {.name = "overlay", .find = overlay_find, .read = overlay_read};

/* ---- one module as a model ----------------------------------------------------------------------------------------- */
typedef struct Found {
    const InstanceBlock *block;
    const InstanceBinding *bindings;
    const InstanceNode *linear, *quant;
} Found;

static Found find_module(const Instance *in, const char *module)
{
    for (uint32_t l = 0; l < in->n_layers; l++) {
        const InstanceBlock *b = &in->blocks[in->layers[l].block];
        const InstanceBinding *bind = in->layers[l].bindings;
        for (uint32_t i = 0; i < b->n_nodes; i++) {
            const InstanceNode *n = &b->nodes[i];
            int32_t maker = b->edges[n->in[0]].producer;
            if (n->weight[0] >= 0 && bind[n->weight[0]].quant != NULL && maker >= 0 &&
                strcmp(bind[n->weight[0]].tensor, module) == 0)
                return (Found){b, bind, n, &b->nodes[maker]};
        }
    }
    fail_msg("no node reads %s", module);
    return (Found){0};
}

typedef struct Solitary {
    Instance in;
    InstanceNode stem[1], head[2];
    InstanceEdge stem_edges[2], head_edges[3];
    InstanceWeight table, weights[2];
    InstanceBinding table_binding, bindings[2];
    InstanceDim dims[1];
} Solitary;

static void no_weights(InstanceNode *n)
{
    for (uint32_t i = 0; i < OP_MAX_WEIGHTS; i++)
        n->weight[i] = -1;
    n->state = n->table = -1;
    n->role = "";
}

/* identity: in the place of the weight. x: name of the inputs. Of experts the first is taken, as a plain matrix. */
static void solitary(Solitary *s, const Instance *in, const Found *f, const char *x, bool identity)
{
    const InstanceWeight *w = &f->block->weights[f->linear->weight[0]];
    const uint32_t k = (uint32_t)w->k, n = identity ? k : (uint32_t)(w->n / (w->experts ? w->experts : 1));
    const OpDef *head = op_def(OP_LM_HEAD);

    *s = (Solitary){.table = {.name = "x", .n = ROWS, .k = k, .stored = DT_BF16},
                    .table_binding = {.tensor = x, .step = 1},
                    .stem_edges = {{"token", 1, -1}, {"x", k, 0}},
                    .head_edges = {{"x", k, -1}, {"q", k, 0}, {"logits", n, 1}},
                    .dims = {{"vocab", n}}};
    s->stem[0] = (InstanceNode){.id = "embed", .op = op_def(OP_EMBED), .in = {0}, .out = {1}, .param = {1}};
    no_weights(&s->stem[0]);
    s->stem[0].weight[0] = 0;
    assert_true(f->quant->op->kind == OP_ACT_QUANT || f->quant->op->kind == OP_EXPERT_ACT_QUANT);
    s->head[0] = (InstanceNode){.id = "act", .op = op_def(OP_ACT_QUANT), .in = {0}, .out = {1}};
    memcpy(s->head[0].param, f->quant->param, sizeof s->head[0].param);
    no_weights(&s->head[0]);
    s->head[1] = (InstanceNode){.id = "linear", .op = head, .in = {1}, .out = {2}};
    for (uint32_t i = 0; i < head->n_params; i++)
        s->head[1].param[i] = head->params[i].default_value;
    no_weights(&s->head[1]);
    s->head[1].weight[0] = 0;
    s->weights[0] = (InstanceWeight){.name = "w", .n = n, .k = k, .stored = identity ? DT_F32 : w->stored};
    s->bindings[0] = (InstanceBinding){.tensor = "eye", .step = 1};
    if (!identity) {
        s->bindings[0] = f->bindings[f->linear->weight[0]];
        s->bindings[0].tensors = NULL;
    }
    if (f->quant->weight[0] >= 0) {
        s->head[0].weight[0] = 1;
        s->weights[1] = f->block->weights[f->quant->weight[0]];
        s->weights[1].k = 1;
        s->weights[1].experts = 0;
        s->bindings[1] = f->bindings[f->quant->weight[0]];
        s->bindings[1].tensors = NULL;
    }
    s->in = (Instance){.arch = in->arch,
                       .model_type = in->model_type,
                       .source = in->source,
                       .dims = s->dims,
                       .n_dims = 1,
                       .n_kv_groups = 1,
                       .kv_format = DT_F32,
                       .bos_id = -1,
                       .stem_bindings = &s->table_binding,
                       .head_bindings = s->bindings};
    s->in.stem = (InstanceBlock){.name = "stem",
                                 .n_nodes = 1,
                                 .n_edges = 2,
                                 .n_weights = 1,
                                 .nodes = s->stem,
                                 .edges = s->stem_edges,
                                 .weights = &s->table,
                                 .out_edge = 1};
    s->in.head = (InstanceBlock){.name = "head",
                                 .n_nodes = 2,
                                 .n_edges = 3,
                                 .n_weights = s->head[0].weight[0] >= 0 ? 2 : 1,
                                 .nodes = s->head,
                                 .edges = s->head_edges,
                                 .weights = s->weights,
                                 .out_edge = 2};
}

static const int32_t all_rows[ROWS] = {0, 1, 2, 3};

static void run_reference(Solitary *s, Overlay *o, float *y)
{
    Reference *r;
    Err e;

    if (reference_new(&r, &s->in, &o->base, ROWS, &e) != ST_OK ||
        reference_forward(r, all_rows, ROWS, y, NULL, &e) != ST_OK)
        fail_msg("%s", e.msg);
    reference_free(r);
}

static void run_plan(Solitary *s, Overlay *o, const Instance *whole, const char *hw, float *y)
{
    const KernelTarget *target;
    FamilySet *fs = NULL;
    GpuBackend *gpu = NULL;
    Model *model = NULL;
    Solo *solo = NULL;
    Err e;

    if (target_choose(&target, &metrale_registry, hw, whole, NULL, &e) != ST_OK ||
        families_load(&fs, &metrale_registry, target, &e) != ST_OK || gpu_cpu_new(&gpu, hw, 2, &e) != ST_OK ||
        model_new(&model, &s->in, fs, &o->base, gpu, &options, NULL, &e) != ST_OK ||
        solo_new(&solo, model, &e) != ST_OK || solo_append(solo, all_rows, ROWS, y, &e) != ST_OK)
        fail_msg("%s", e.msg);
    solo_free(solo);
    model_free(model);
    gpu_free(gpu);
    families_free(fs);
}

/* ---- the files ----------------------------------------------------------------------------------------------------- */
static float *expected(WeightStore *s, const char *kind, const char *module)
{
    char name[300];
    uint64_t n;

    snprintf(name, sizeof name, "%s.%s", kind, module);
    return golden_tensor(s, name, &n);
}

/* Values that are off by more than 1e-6 of the largest; none may be off by more than a step of int8. */
static uint32_t count_ties(const float *got, const float *want, size_t n, const char *what)
{
    double top = 0;
    uint32_t ties = 0;

    for (size_t i = 0; i < n; i++)
        top = fmax(top, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]) / top;
        ties += !(d <= 1e-6);
        if (!(d <= 1.0 / 127))
            fail_msg("%s: value %zu is %g, not %g", what, i, (double)got[i], (double)want[i]);
    }
    return ties;
}

static void check_one(const Instance *in, Overlay *o, const Found *f, const char *module, const char *hw)
{
    char x[300], what[400];
    Solitary s;
    const size_t k = f->block->weights[f->linear->weight[0]].k;
    float *x_want = expected(o->inputs, "x_quant", module), *y_want = expected(o->inputs, "y", module);
    const uint32_t allowed = (ActFormat)f->quant->param[op_param(f->quant->op, "to")] == ACT_I8;

    snprintf(x, sizeof x, "x.%s", module);
    snprintf(what, sizeof what, "%s of %s on %s", module, in->source, hw ? hw : "the reference");
    o->eye = (TensorInfo){.name = "eye", .dtype = DT_F32, .n_dims = 2, .dims = {k, k}, .bytes = 4 * k * k};
    solitary(&s, in, f, x, true);
    float *got = malloc(sizeof(float) * ROWS * k);
    if (hw)
        run_plan(&s, o, in, hw, got);
    else
        run_reference(&s, o, got);
    uint32_t ties = count_ties(got, x_want, ROWS * k, what);
    if (ties > allowed)
        fail_msg("%s: %u inputs are rounded otherwise", what, ties);
    free(got);

    solitary(&s, in, f, x, false);
    const size_t n = (size_t)s.dims[0].value;
    got = malloc(sizeof(float) * ROWS * n);
    if (hw)
        run_plan(&s, o, in, hw, got);
    else
        run_reference(&s, o, got);
    double far = worst_error(got, y_want, ROWS * n);
    if (!(far <= (ties ? 2e-3 : 1e-5)))
        fail_msg("%s: y is off by %g", what, far);
    free(got);
    free(x_want);
    free(y_want);
}

static void check_file(void **state)
{
    char dir[96], path[1024], *bytes;
    Overlay o = {.base = {.ops = &overlay_ops, .kind = STORE_SAFETENSORS, .path = "overlay"}};
    uint32_t modules = 0;
    size_t len;
    Err e;

    snprintf(dir, sizeof dir, "formats/%s", *(const char *const *)*state);
    snprintf(path, sizeof path, "%s/tests/data/%s/act_linear.safetensors", test_root(), dir);
    OpenModel m = open_instance_inputs(dir, DT_F32, true);
    if (file_read(path, 1 << 20, &bytes, &len, &e) != ST_OK ||
        store_safetensors_parse(&o.inputs, bytes, len, path, &e) != ST_OK)
        fail_msg("%s", e.msg);
    o.model = m.store;
    for (size_t i = 0; i < store_count(o.inputs); i++) {
        const char *name = store_at(o.inputs, i)->name;
        if (strncmp(name, "x.", 2) != 0)
            continue;
        Found f = find_module(m.in, name + 2);
        modules++;
        check_one(m.in, &o, &f, name + 2, NULL);
        if (class_runs("avx2"))
            check_one(m.in, &o, &f, name + 2, "avx2");
        if (class_runs("avx512"))
            check_one(m.in, &o, &f, name + 2, "avx512");
    }
    assert_int_equal(modules, 2);
    store_free(o.inputs);
    free(bytes);
    close_model(&m);
}

/* ---- whole models -------------------------------------------------------------------------------------------------- */

/* How far a correct implementation moves the logits of the prompt: such models amplify rounding, so twice that. The
 * reference and a plan round the same values but where f32 and double fall on two sides of a tie; such a row is off at
 * once, and so are those behind it that attend to it. By a wrong rule every row would be. */
typedef struct Whole {
    const char *name;
    double moved;
} Whole;

static const Whole wholes[] = {
    {"fp8-block-qwen3", 0.043},       {"fp8-block-qwen3_moe", 0.056},       {"fp8-block-ct-llama", 0.088},
    {"fp8-block-ue8m0-llama", 0.147}, {"fp8-tensor-modelopt-llama", 0.064}, {"fp8-tensor-static-mistral", 0.075},
    {"fp8-channel-ct-llama", 0.058},  {"nvfp4-modelopt-llama", 0.348},      {"nvfp4-modelopt-qwen3_moe", 0.157},
    {"nvfp4-ct-qwen3", 0.504},        {"mixed-ct-qwen3_moe", 0.317},        {"mixed-modelopt-llama", 0.177},
    {"ct-int8-w8a8-llama", 0.017},
};
enum { WHOLES = sizeof wholes / sizeof *wholes };

static void check_whole(void **state)
{
    const Whole *w = *state;
    const char *const classes[] = {"avx2", "avx512"};
    char dir[96];
    Reference *ref;
    Err e;

    snprintf(dir, sizeof dir, "formats/%s", w->name);
    GoldenFile g = golden_open(dir);
    const size_t n = (size_t)g.n * g.vocab;
    float *want = malloc(sizeof(float) * n), *got = malloc(sizeof(float) * n);
    OpenModel m = open_instance_inputs(dir, DT_F32, true);

    assert_int_equal(reference_new(&ref, m.in, m.store, 64, &e), ST_OK);
    assert_int_equal(reference_forward(ref, g.ids, g.n, want, NULL, &e), ST_OK);
    double far = worst_error(want, g.logits, n);
    if (!(far <= 2 * w->moved) || far < w->moved / 4)
        fail_msg("%s by the reference: off by %g, %g is usual", dir, far, w->moved);
    reference_free(ref);
    close_model(&m);
    for (int c = 0; c < 2; c++) {
        Solo *solo;
        uint32_t same = 0;
        if (!class_runs(classes[c]))
            continue;
        m = open_model_inputs(dir, classes[c], DT_F32, true,
                              &(ModelOptions){.max_rows = 64,
                                              .max_outs = 64,
                                              .max_seqs = 4,
                                              .max_len = 128,
                                              .kv_blocks = 16,
                                              .batch_invariant = true},
                              NULL);
        assert_int_equal(solo_new(&solo, m.model, &e), ST_OK);
        assert_int_equal(solo_append(solo, g.ids, g.n, got, &e), ST_OK);
        far = worst_error(got, g.logits, n);
        if (!(far <= 2 * w->moved) || far < w->moved / 4)
            fail_msg("%s on %s: off by %g, %g is usual", dir, classes[c], far, w->moved);
        for (uint32_t r = 0; r < g.n; r++)
            same += worst_error(got + (size_t)r * g.vocab, want + (size_t)r * g.vocab, g.vocab) <= 1e-5;
        if (same == 0)
            fail_msg("%s on %s: every row differs from the reference", dir, classes[c]);
        solo_free(solo);
        close_model(&m);
    }
    free(want);
    free(got);
    golden_close(&g);
}

int main(void)
{
    static struct CMUnitTest tests[2 * WHOLES];
    static char names[2 * WHOLES][64];

    for (size_t i = 0; i < WHOLES; i++) {
        snprintf(names[2 * i], sizeof names[0], "linears__of_%s", wholes[i].name);
        snprintf(names[2 * i + 1], sizeof names[0], "logits__of_%s", wholes[i].name);
        tests[2 * i] = (struct CMUnitTest){
            .name = names[2 * i], .test_func = check_file, .initial_state = (void *)(uintptr_t)&wholes[i].name};
        tests[2 * i + 1] = (struct CMUnitTest){
            .name = names[2 * i + 1], .test_func = check_whole, .initial_state = (void *)(uintptr_t)&wholes[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
