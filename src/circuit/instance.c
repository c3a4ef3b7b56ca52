/* instance.c - a checkpoint's configuration and tensors become an instance of a circuit.
 *
 * In order: the circuit that serves the checkpoint, the values that its configuration comes to, the rope tables, then
 * for each layer the tensors of its weight slots. What a layer is made of follows from its kind and from which tensors
 * it has in which format, so a kind is expanded once for each such combination; expansions that come out equal share one
 * block. Last, every tensor of the checkpoint must have been read by something. */
#include "circuit/circuit_parts.h"
#include "circuit/quant_bind.h"
#include "circuit/quant_config.h"
#include "core/str.h"
#include <stdlib.h>
#include <string.h>

/* A kind with the weights of one layer, and the block that it became. */
typedef struct Variant {
    const CircuitKind *kind;
    const InstanceWeight *weights;
    uint32_t n_weights, block;
} Variant;

typedef struct Build {
    const InstanceSource *src;
    const Circuit *circuit;
    Arena *arena;
    Instance *in;
    Err *err;
    ConfigValues config;
    DType vector_format; /* of a bare config */
    WeightBinder binder;
    InstanceWeight *weights; /* of the layer at hand */
    InstanceBinding *bindings;
    uint32_t n_weights;
    Variant *variants;
    InstanceBlock *blocks;
    uint32_t n_variants;
} Build;

/* The arena is behind the public struct, so that instance_free finds it. */
typedef struct OwnedInstance {
    Instance base;
    Arena *arena;
} OwnedInstance;

static Status build_nomem(const Build *b)
{
    return err_set(b->err, ST_NOMEM, "%s: out of memory", b->src->name);
}

/* ---- which circuit ------------------------------------------------------------------------------------------------ */
static Status unknown_circuit(const CircuitLibrary *lib, const InstanceSource *src, const char *key, const char *value,
                              Err *err)
{
    const json_t *classes = json_object_get(src->meta, "architectures");
    const char *first = json_string_value(json_array_get(classes, 0));
    Str known = STR_INIT;
    Status st;

    for (size_t i = 0; i < circuit_library_count(lib); i++)
        str_addf(&known, "%s%s", i ? ", " : "", circuit_library_arch(lib, i));
    st = err_set(err, ST_UNSUPPORTED, "%s: no circuit serves %s \"%s\"%s%s%s; there are circuits for %s", src->name,
                 key, value, first ? " (" : "", first ? first : "", first ? ")" : "", str_c(&known));
    str_release(&known);
    return st;
}

static Status choose_circuit(Build *b, const CircuitLibrary *lib)
{
    const char *key = b->src->gguf ? "general.architecture" : "model_type";
    const json_t *v = json_object_get(b->src->meta, key);

    if (!json_is_object(b->src->meta))
        return err_set(b->err, ST_FORMAT, "%s: the configuration must be a JSON object", b->src->name);
    if (!json_is_string(v))
        return err_set(b->err, ST_FORMAT, "%s: key %s is missing or no string; it says which architecture this is",
                       b->src->name, key);
    for (size_t i = 0; i < circuit_library_count(lib); i++)
        if (config_map_matches(library_circuit(lib, i)->config, b->src->gguf, json_string_value(v)))
            b->circuit = library_circuit(lib, i);
    if (b->circuit == NULL)
        return unknown_circuit(lib, b->src, key, json_string_value(v), b->err);
    b->in->arch = arena_strdup(b->arena, b->circuit->arch);
    b->in->model_type = arena_strdup(b->arena, json_string_value(v));
    b->in->source = arena_strdup(b->arena, b->src->name);
    return b->in->arch && b->in->model_type && b->in->source ? ST_OK : build_nomem(b);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------ */
static void add_dims(Str *s, const uint64_t *dims, uint32_t n)
{
    str_addc(s, '[');
    for (uint32_t i = 0; i < n; i++)
        str_addf(s, "%s%llu", i ? ", " : "", (unsigned long long)dims[i]);
    str_addc(s, ']');
}

static Status wrong_shape(const Build *b, const CircuitSlot *slot, const InstanceBinding *bind, const TensorDesc *got,
                          const uint64_t *dims, uint32_t n)
{
    Str s = STR_INIT;
    Status st;

    str_adds(&s, "has shape ");
    add_dims(&s, got->dims, got->n_dims < 4 ? got->n_dims : 4);
    str_adds(&s, ", but must have ");
    add_dims(&s, dims, n);
    if (slot->n != NULL)
        str_addf(&s, " (%s by %s)", expr_text(slot->n), expr_text(slot->k));
    else
        str_addf(&s, " (%s)", expr_text(slot->k));
    st = err_set(b->err, ST_FORMAT, "%s: tensor %s %s; the configuration and the weights do not belong together",
                 b->src->name, bind->tensor, str_c(&s));
    str_release(&s);
    return st;
}

static bool is_float(DType t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16;
}

/* Floats and every block format, but for that of activations. */
static bool is_weight(DType t)
{
    return is_float(t) || (dtype_block(t) > 1 && t != DT_I8_32);
}

/* The stored format must be one that a slot of this rank can have, and whole blocks must fill its rows. */
static Status check_format(const Build *b, const InstanceBinding *bind, const TensorDesc *got, const InstanceWeight *w)
{
    uint64_t bytes;

    if (got->dtype == DT_NONE || !(w->vector ? is_float(got->dtype) : is_weight(got->dtype)))
        return err_set(b->err, ST_UNSUPPORTED, "%s: tensor %s is stored as %s; a %s can be stored as %s", b->src->name,
                       bind->tensor, got->dtype == DT_NONE && got->stored ? got->stored : dtype_name(got->dtype),
                       w->vector ? "vector" : "matrix",
                       w->vector ? "f32, f16 or bf16" : "f32, f16, bf16 or a block format such as q8_0 or q4_k");
    if (!dtype_row_bytes(got->dtype, w->k, &bytes))
        return err_set(b->err, ST_FORMAT,
                       "%s: rows of tensor %s are %llu elements, no multiple of the %u of a %s block", b->src->name,
                       bind->tensor, (unsigned long long)w->k, dtype_block(got->dtype), dtype_name(got->dtype));
    return ST_OK;
}

/* The dims of a tensor that holds the slot, or one expert of it. */
static uint32_t stored_dims(const InstanceBinding *bind, const InstanceWeight *w, uint64_t dims[4])
{
    uint64_t rows = bind->of ? bind->of : (w->vector ? w->k : w->n) / (w->experts ? w->experts : 1);
    uint32_t n = 0;

    if (w->experts && bind->tensors == NULL)
        dims[n++] = w->experts;
    if (bind->columns)
        dims[n++] = w->k;
    dims[n++] = rows;
    if (!w->vector && !bind->columns)
        dims[n++] = w->k;
    return n;
}

static Status check_parts(const Build *b, const InstanceBinding *bind, const InstanceWeight *w)
{
    uint64_t rows = (w->vector ? w->k : w->n) / (w->experts ? w->experts : 1),
             last = bind->row + (rows - 1) * bind->step;

    if (bind->of > 0 && last >= bind->of)
        return err_set(b->err, ST_FORMAT, "%s: weight %s takes rows %llu to %llu of tensor %s, which has %llu",
                       b->src->name, w->name, (unsigned long long)bind->row, (unsigned long long)last + 1, bind->tensor,
                       (unsigned long long)bind->of);
    if (bind->order == ROWS_ROPE_INTERLEAVED && rows % bind->head_dim != 0)
        return err_set(b->err, ST_FORMAT, "%s: the %llu rows of tensor %s are no whole heads of %u", b->src->name,
                       (unsigned long long)rows, bind->tensor, bind->head_dim);
    if (bind->flat && (w->experts || bind->of))
        return err_set(b->err, ST_FORMAT,
                       "%s: weight %s is no whole tensor, so it cannot be flat; correct the weight map", b->src->name,
                       w->name);
    if (bind->columns && w->vector)
        return err_set(b->err, ST_FORMAT, "%s: weight %s is a vector, which has no columns; correct the weight map",
                       b->src->name, w->name);
    return ST_OK;
}

/* The static scales of a weight's inputs, one for each expert, as a vector slot "NAME.input" behind it. quant_check has
 * seen their shapes. */
static Status bind_inputs(Build *b)
{
    const InstanceWeight *of = &b->weights[b->n_weights - 1];
    const InstanceBinding *from = &b->bindings[b->n_weights - 1];
    const uint32_t n = from->tensors ? of->experts : 1;
    const char **names = ARENA_ARRAY(b->arena, const char *, n);
    InstanceWeight *w = &b->weights[b->n_weights];

    *w = (InstanceWeight){.name = arena_printf(b->arena, "%s.input", of->name),
                          .n = 1,
                          .k = of->experts ? of->experts : 1,
                          .experts = of->experts,
                          .vector = true,
                          .stored = DT_F32};
    if (w->name == NULL || names == NULL)
        return build_nomem(b);
    for (uint32_t e = 0; e < n; e++) {
        TensorDesc got = {.dtype = DT_F32};

        names[e] = arena_printf(b->arena, "%s%s", from->tensors ? from->tensors[e] : from->tensor,
                                from->quant->sides[SIDE_INPUT]);
        if (names[e] == NULL)
            return build_nomem(b);
        if (b->src->find != NULL && !b->src->find(b->src->ctx, names[e], &got))
            return err_set(b->err, ST_NOTFOUND,
                           "%s: tensor %s is missing; the configuration says that inputs have one "
                           "static scale",
                           b->src->name, names[e]);
        if (!is_float(got.dtype) || (e > 0 && got.dtype != w->stored))
            return err_set(b->err, ST_UNSUPPORTED,
                           "%s: tensor %s is stored as %s; scales of inputs are f32, f16 or "
                           "bf16, of all experts alike",
                           b->src->name, names[e], dtype_name(got.dtype));
        w->stored = got.dtype;
    }
    b->bindings[b->n_weights++] =
        (InstanceBinding){.tensor = names[0], .tensors = from->tensors ? names : NULL, .step = 1, .flat = true};
    return ST_OK;
}

/* A quantised weight: each expert's tensors, or all of them in one. */
static Status check_quant(const Build *b, const InstanceBinding *bind, InstanceWeight *w)
{
    uint64_t rows = bind->of ? bind->of : w->n / (w->experts ? w->experts : 1);
    uint32_t together = w->experts && bind->tensors == NULL ? w->experts : 0;
    Status st = check_parts(b, bind, w);

    for (uint32_t e = 0; st == ST_OK && e < (bind->tensors ? w->experts : 1); e++)
        st = quant_check(b->src, bind->quant, bind->tensors ? bind->tensors[e] : bind->tensor, together, rows, w->k,
                         &w->stored, b->err);
    return st;
}

static uint64_t elements(const TensorDesc *t)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(n, t->dims[i], &n))
            return UINT64_MAX;
    return n;
}

static Status check_tensor(Build *b, const CircuitSlot *slot, const InstanceBinding *bind, InstanceWeight *w)
{
    uint64_t dims[4];
    uint32_t n = stored_dims(bind, w, dims);
    InstanceBinding one = *bind; /* of the expert at hand, for messages */
    Status st = check_parts(b, bind, w);

    for (uint32_t e = 0; st == ST_OK && e < (bind->tensors ? w->experts : 1); e++) {
        TensorDesc got = {.dtype = w->vector || b->src->fallback == DT_NONE ? b->vector_format : b->src->fallback};
        bool same = true;

        one.tensor = bind->tensors ? bind->tensors[e] : bind->tensor;
        if (b->src->find != NULL) {
            if (!b->src->find(b->src->ctx, one.tensor, &got))
                return err_set(b->err, ST_NOTFOUND, "%s: tensor %s is missing", b->src->name, one.tensor);
            same = bind->flat ? elements(&got) == w->n * w->k : got.n_dims == n;
            for (uint32_t i = 0; same && !bind->flat && i < n; i++)
                same = got.dims[i] == dims[i];
        }
        if (!same)
            return wrong_shape(b, slot, &one, &got, dims, n);
        if (e > 0 && got.dtype != w->stored)
            return err_set(b->err, ST_UNSUPPORTED,
                           "%s: tensor %s is stored as %s, but %s as %s; the experts of a layer need one format",
                           b->src->name, one.tensor, dtype_name(got.dtype), bind->tensor, dtype_name(w->stored));
        w->stored = got.dtype;
        st = check_format(b, &one, &got, w);
        if (st == ST_OK && bind->columns && dtype_block(got.dtype) > 1)
            st = err_set(b->err, ST_UNSUPPORTED, "%s: tensor %s is stored as %s, whose blocks cannot be turned",
                         b->src->name, one.tensor, dtype_name(got.dtype));
    }
    return st;
}

/* A matrix that is put together from pieces: of one float format where they have one, else what holds any. Blocks lie
 * along a row of the file and rows are turned, so they become floats; their codes have 8 bits at most, f16 has 11. */
static Status check_pieces(Build *b, const CircuitSlot *slot, const InstanceBinding *bind, InstanceWeight *w)
{
    uint64_t rows = 0;
    Status st = ST_OK;

    w->stored = b->src->fallback == DT_NONE || !is_float(b->src->fallback) ? b->vector_format : b->src->fallback;
    for (uint32_t i = 0; st == ST_OK && i < bind->n_pieces; i++) {
        const InstancePiece *p = &bind->pieces[i];
        uint64_t dims[3] = {bind->groups, p->columns ? w->k : p->rows, p->columns ? p->rows : w->k};
        InstanceWeight as_read = {.name = w->name, .n = bind->groups * dims[1], .k = dims[2]};
        InstanceBinding one = {.tensor = p->tensor};
        TensorDesc got;

        rows += bind->groups * p->rows;
        if (b->src->find == NULL)
            continue;
        if (!b->src->find(b->src->ctx, p->tensor, &got))
            return err_set(b->err, ST_NOTFOUND, "%s: tensor %s is missing", b->src->name, p->tensor);
        if (got.n_dims != 3 || memcmp(got.dims, dims, sizeof dims) != 0)
            return wrong_shape(b, slot, &one, &got, dims, 3);
        st = check_format(b, &one, &got, &as_read);
        if (i == 0)
            w->stored = is_float(got.dtype) ? got.dtype : DT_F16;
        else if (got.dtype != w->stored && is_float(got.dtype))
            w->stored = DT_F32;
    }
    if (st == ST_OK && (w->vector || rows != w->n))
        st = err_set(b->err, ST_FORMAT, "%s: the pieces of weight %s have %llu rows, but it has %llu; correct the map",
                     b->src->name, w->name, (unsigned long long)rows, (unsigned long long)w->n);
    return st;
}

static Status slot_size(Build *b, Scope *scope, const CircuitSlot *slot, const Expr *e, uint64_t *out)
{
    int64_t v;
    Err inner;
    Status st = expr_eval(e, scope_lookup, scope, &v, &inner);

    if (st != ST_OK)
        return err_set(b->err, st, "%s: weight %s: %s", b->src->name, slot->name, inner.msg);
    if (v < 1 || v > INT32_MAX)
        return err_set(b->err, ST_FORMAT, "%s: weight %s: %s is %lld; it must be from 1 to 2147483647", b->src->name,
                       slot->name, expr_text(e), (long long)v);
    *out = (uint64_t)v;
    return ST_OK;
}

static Status bind_slot(Build *b, WeightPart part, uint32_t layer, Scope *scope, const CircuitSlot *slot, bool optional)
{
    InstanceWeight *w = &b->weights[b->n_weights];
    InstanceBinding *bind = &b->bindings[b->n_weights];
    uint64_t experts = 0;
    bool found;
    Status st = ST_OK;

    for (uint32_t i = 0; i < b->n_weights; i++)
        if (strcmp(b->weights[i].name, slot->name) == 0)
            return ST_OK;
    b->binder.scope = scope;
    b->binder.linear = slot->n != NULL && part != PART_STEM;
    if (slot->experts != NULL)
        TRY(slot_size(b, scope, slot, slot->experts, &experts));
    TRY(weight_bind(&b->binder, part, slot->name, layer, (uint32_t)experts, optional, bind, &found, b->err));
    if (!found)
        return ST_OK;
    *w = (InstanceWeight){.n = 1, .vector = slot->n == NULL, .experts = (uint32_t)experts};
    w->name = arena_strdup(b->arena, slot->name);
    if (w->name == NULL)
        return build_nomem(b);
    if (slot->n != NULL)
        TRY(slot_size(b, scope, slot, slot->n, &w->n));
    TRY(slot_size(b, scope, slot, slot->k, &w->k));
    if (experts > 0 && w->vector)
        w->k *= experts;
    else if (experts > 0)
        w->n *= experts;
    TRY(bind->pieces != NULL  ? check_pieces(b, slot, bind, w)
        : bind->quant != NULL ? check_quant(b, bind, w)
                              : check_tensor(b, slot, bind, w));
    b->n_weights++;
    if (bind->quant != NULL)
        w->input = bind->quant->input;
    if (b->src->act_quant && w->input.scaled)
        TRY(bind_inputs(b));
done:
    return st;
}

static const CircuitSlot *find_slot(const CircuitBlock *block, const char *name)
{
    const CircuitSlot *s = block->slots;

    while (strcmp(s->name, name) != 0) /* block_read made sure that it is there */
        s++;
    return s;
}

/* The weights of one layer, in order of first use, into b->weights and b->bindings. */
static Status bind_layer(Build *b, const CircuitKind *kind, WeightPart part, uint32_t layer)
{
    Status st = ST_OK;

    b->n_weights = 0;
    for (uint32_t i = 0; i < kind->n_blocks; i++) {
        const CircuitBlock *block = kind->blocks[i];
        Scope scope = kind_scope(b->circuit, kind, block, &b->config);

        /* Checks come first: a head count that does not divide says more than a shape that differs. */
        for (uint32_t k = 0; k < block->n_checks; k++)
            TRY(check_run(&block->checks[k], &scope, b->src->name, b->err));
        for (uint32_t k = 0; k < block->n_nodes; k++) {
            const CircuitNode *n = &block->nodes[k];
            bool active;

            TRY(node_active(n, &scope, b->src->name, &active, b->err));
            for (uint32_t s = 0; active && s < n->op->n_weights; s++)
                if (n->weight[s] != NULL)
                    TRY(bind_slot(b, part, layer, &scope, find_slot(block, n->weight[s]), n->op->weights[s].optional));
        }
    }
done:
    return st;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------- */
static uint32_t count_slots(const CircuitKind *kind)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < kind->n_blocks; i++)
        n += kind->blocks[i]->n_slots;
    return n;
}

static Status expand(Build *b, const CircuitKind *kind, uint32_t in_width, InstanceBlock *out)
{
    InstanceWeight *weights = ARENA_ARRAY(b->arena, InstanceWeight, b->n_weights);
    ExpandInput x = {.circuit = b->circuit,
                     .kind = kind,
                     .config = &b->config,
                     .weights = weights,
                     .n_weights = b->n_weights,
                     .bindings = b->bindings,
                     .kv_format = b->src->kv_format,
                     .act_quant = b->src->act_quant,
                     .file = b->src->name,
                     .in_width = in_width};

    if (weights == NULL)
        return build_nomem(b);
    memcpy(weights, b->weights, b->n_weights * sizeof *weights);
    return kind_expand(&x, b->arena, out, b->err);
}

static Status keep_bindings(Build *b, const InstanceBinding **out)
{
    InstanceBinding *copy = ARENA_ARRAY(b->arena, InstanceBinding, b->n_weights);

    if (copy == NULL)
        return build_nomem(b);
    memcpy(copy, b->bindings, b->n_weights * sizeof *copy);
    *out = copy;
    return ST_OK;
}

static bool same_weights(const Build *b, const Variant *v, const CircuitKind *kind)
{
    if (v->kind != kind || v->n_weights != b->n_weights)
        return false;
    for (uint32_t i = 0; i < b->n_weights; i++)
        if (strcmp(v->weights[i].name, b->weights[i].name) != 0 || v->weights[i].stored != b->weights[i].stored ||
            !input_equal(&v->weights[i].input, &b->weights[i].input))
            return false;
    return true;
}

/* The block of the layer at hand: an earlier layer's, or a new one. */
static Status layer_block(Build *b, const CircuitKind *kind, uint32_t width, uint32_t *out)
{
    InstanceBlock block;
    Variant *v;
    uint32_t i = 0;
    Status st;

    for (uint32_t k = 0; k < b->n_variants; k++)
        if (same_weights(b, &b->variants[k], kind)) {
            *out = b->variants[k].block;
            return ST_OK;
        }
    st = expand(b, kind, width, &block);
    if (st != ST_OK)
        return st;
    if (block.edges[block.out_edge].width != width)
        return err_set(b->err, ST_FORMAT, "%s: a layer of kind %s takes rows of %u elements and yields rows of %u",
                       b->src->name, kind->name, width, block.edges[block.out_edge].width);
    while (i < b->in->n_blocks && !block_equal(&b->blocks[i], &block))
        i++;
    if (i == b->in->n_blocks)
        b->blocks[b->in->n_blocks++] = block;
    v = &b->variants[b->n_variants++];
    *v = (Variant){.kind = kind, .weights = block.weights, .n_weights = block.n_weights, .block = i};
    *out = i;
    return ST_OK;
}

/* Does name consist of the items that the lists have for the layer, joined by '/'? */
static bool kind_named(const char *name, const Value *const *lists, uint32_t n, uint32_t layer)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *item = lists[i]->list.items[layer];
        size_t len = strlen(item);

        if (strncmp(name, item, len) != 0 || name[len] != (i + 1 < n ? '/' : '\0'))
            return false;
        name += len + 1;
    }
    return true;
}

static Status layer_kind(const Build *b, uint32_t layer, const CircuitKind **out)
{
    const CircuitLayout *l = &b->circuit->layout;
    const Value *lists[3];

    *out = &b->circuit->kinds[l->uniform];
    for (uint32_t i = 0; i < l->n_kinds; i++) {
        lists[i] = values_find(&b->config.values, l->kinds[i]);
        if (lists[i] == NULL || layer >= lists[i]->list.n)
            return err_set(b->err, ST_FORMAT, "%s: %s has no item for layer %u", b->src->name, l->kinds[i], layer);
    }
    for (uint32_t i = 0; i < l->n_names; i++)
        if (kind_named(l->from[i], lists, l->n_kinds, layer)) {
            *out = &b->circuit->kinds[l->to[i]];
            return ST_OK;
        }
    return l->kind != NULL ? ST_OK
                           : err_set(b->err, ST_FORMAT, "%s: layer %u is of kind \"%s\"%s, which %s does not name",
                                     b->src->name, layer, lists[0]->list.items[layer],
                                     l->n_kinds > 1 ? " (with its other lists)" : "", b->circuit->toml->name);
}

static Status build_layers(Build *b, uint32_t width)
{
    InstanceLayer *layers = ARENA_ARRAY(b->arena, InstanceLayer, b->in->n_layers);
    Status st = ST_OK;

    b->blocks = ARENA_ARRAY(b->arena, InstanceBlock, b->in->n_layers);
    b->variants = ARENA_ARRAY(b->arena, Variant, b->in->n_layers);
    if (layers == NULL || b->blocks == NULL || b->variants == NULL)
        return build_nomem(b);
    b->in->layers = layers;
    b->in->blocks = b->blocks;
    for (uint32_t i = 0; i < b->in->n_layers; i++) {
        const CircuitKind *kind = NULL;

        TRY(layer_kind(b, i, &kind));
        TRY(bind_layer(b, kind, PART_LAYER, i));
        TRY(layer_block(b, kind, width, &layers[i].block));
        TRY(keep_bindings(b, &layers[i].bindings));
        layers[i].state_base = b->in->n_states;
        b->in->n_states += b->blocks[layers[i].block].n_states;
    }
done:
    return st;
}

/* A group for each window of a paged state, ascending. A model without any has one group of nothing. */
static Status build_kv_groups(Build *b)
{
    Instance *in = b->in;

    for (uint32_t i = 0; i < in->n_blocks; i++)
        for (uint32_t s = 0; s < b->blocks[i].n_states; s++) {
            const InstanceState *state = &b->blocks[i].states[s];
            uint32_t at = 0;

            if (state->kind != STATE_PAGED)
                continue;
            while (at < in->n_kv_groups && in->kv_windows[at] < state->window)
                at++;
            if (at < in->n_kv_groups && in->kv_windows[at] == state->window)
                continue;
            if (in->n_kv_groups == KV_MAX_GROUPS)
                return err_set(b->err, ST_UNSUPPORTED, "%s: its layers have more than %d different windows",
                               b->src->name, KV_MAX_GROUPS);
            memmove(in->kv_windows + at + 1, in->kv_windows + at, (in->n_kv_groups - at) * sizeof in->kv_windows[0]);
            in->kv_windows[at] = state->window;
            in->n_kv_groups++;
        }
    if (in->n_kv_groups == 0)
        in->n_kv_groups = 1;
    return ST_OK;
}

/* The stem or the head: a block of its own. */
static Status build_end(Build *b, const CircuitKind *kind, WeightPart part, uint32_t in_width, InstanceBlock *block,
                        const InstanceBinding **bindings)
{
    Status st = ST_OK;

    TRY(bind_layer(b, kind, part, 0));
    TRY(expand(b, kind, in_width, block));
    TRY(keep_bindings(b, bindings));
    if (block->n_states > 0)
        return err_set(b->err, ST_FORMAT, "%s: the %s cannot have a state; states belong to layers",
                       b->circuit->toml->name, kind->name);
done:
    return st;
}

/* ---- ropes -------------------------------------------------------------------------------------------------------- */
static bool rope_equal(const RopeSpec *a, const RopeSpec *b)
{
    return a->kind == b->kind && a->dims == b->dims && a->theta == b->theta && a->factor == b->factor &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           a->original_max_position == b->original_max_position && a->beta_fast == b->beta_fast &&
           a->beta_slow == b->beta_slow && a->attention_factor == b->attention_factor && a->truncate == b->truncate &&
           (a->factors_tensor == b->factors_tensor ||
            (a->factors_tensor && b->factors_tensor && strcmp(a->factors_tensor, b->factors_tensor) == 0));
}

static Status check_factors(const Build *b, const RopeSpec *spec)
{
    TensorDesc got;

    if (spec->factors_tensor == NULL || !b->src->find(b->src->ctx, spec->factors_tensor, &got))
        return ST_OK;
    if (got.dtype != DT_F32 || got.n_dims != 1 || got.dims[0] != spec->dims / 2)
        return err_set(b->err, ST_FORMAT, "%s: tensor %s must be a vector of %u f32, one for each pair that rope turns",
                       b->src->name, spec->factors_tensor, spec->dims / 2);
    return ST_OK;
}

static Status build_ropes(Build *b)
{
    uint32_t *rope_of = ARENA_ARRAY(b->arena, uint32_t, b->config.n_ropes);
    RopeSpec *ropes = ARENA_ARRAY(b->arena, RopeSpec, b->config.n_ropes);
    Status st = ST_OK;

    if (rope_of == NULL || ropes == NULL)
        return build_nomem(b);
    for (uint32_t i = 0; i < b->config.n_ropes; i++) {
        RopeSpec spec = b->config.ropes[i];
        uint32_t k = 0;

        TRY(weight_bind_rope(&b->binder, b->config.rope_names[i], &spec.factors_tensor, b->err));
        TRY(check_factors(b, &spec));
        while (k < b->in->n_ropes && !rope_equal(&ropes[k], &spec))
            k++;
        if (k == b->in->n_ropes)
            ropes[b->in->n_ropes++] = spec;
        rope_of[i] = k;
    }
    b->config.ropes = ropes;
    b->config.rope_of = rope_of;
    b->in->ropes = ropes;
done:
    return st;
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */
static Status build_values(Build *b)
{
    const Value *layers, *storage;
    Status st = config_map_eval(b->circuit->config, b->src, b->arena, &b->config, b->err);

    if (st != ST_OK)
        return st;
    layers = values_find(&b->config.values, b->circuit->layout.layers);
    storage = values_find(&b->config.values, "storage");
    if (layers == NULL || layers->type != VALUE_INT || layers->i < 1 || layers->i > INT32_MAX)
        return err_set(b->err, ST_FORMAT, "%s: %s is no count of layers", b->src->name, b->circuit->layout.layers);
    b->vector_format = DT_BF16;
    if (storage != NULL && storage->type == VALUE_TEXT && !dtype_parse(storage->text, &b->vector_format))
        return err_set(b->err, ST_FORMAT, "%s: '%s' is no format; correct storage in the config map", b->src->name,
                       storage->text);
    b->in->n_layers = (uint32_t)layers->i;
    b->in->kv_format = b->src->kv_format;
    b->in->act_quant = b->src->act_quant;
    b->in->bos_id = b->config.bos_id;
    b->in->n_eos = b->config.n_eos;
    memcpy(b->in->eos_ids, b->config.eos_ids, sizeof b->in->eos_ids);
    return ST_OK;
}

/* Names of dims belong to the library; the instance outlives it, so it has its own. */
static Status build_dims(Build *b)
{
    InstanceDim *dims = ARENA_ARRAY(b->arena, InstanceDim, b->config.n_dims);

    if (dims == NULL)
        return build_nomem(b);
    for (uint32_t i = 0; i < b->config.n_dims; i++) {
        dims[i] =
            (InstanceDim){.name = arena_strdup(b->arena, b->config.dims[i].name), .value = b->config.dims[i].value};
        if (dims[i].name == NULL)
            return build_nomem(b);
    }
    b->in->dims = dims;
    b->in->n_dims = b->config.n_dims;
    return ST_OK;
}

static Status build_scratch(Build *b)
{
    uint32_t n = count_slots(&b->circuit->stem), more = count_slots(&b->circuit->head);

    n = more > n ? more : n;
    for (uint32_t i = 0; i < b->circuit->n_kinds; i++) {
        more = count_slots(&b->circuit->kinds[i]);
        n = more > n ? more : n;
    }
    n = 2 * n + 1; /* each may have scales of its inputs */
    b->weights = calloc(n, sizeof *b->weights);
    b->bindings = calloc(n, sizeof *b->bindings);
    return b->weights != NULL && b->bindings != NULL ? ST_OK : build_nomem(b);
}

static Status build(Build *b, const CircuitLibrary *lib)
{
    Scope scope;
    uint32_t width;
    Status st = ST_OK;

    TRY(choose_circuit(b, lib));
    TRY(build_values(b));
    TRY(build_dims(b));
    TRY(build_scratch(b));
    scope = (Scope){.sets = {&b->circuit->set, &b->config.values}, .n = 2};
    TRY(weight_binder_init(&b->binder, b->circuit->weights, b->src, &scope, b->in->n_layers, b->arena, b->err));
    TRY(quant_config_read(&b->binder.quant, b->src, b->arena, b->err));
    TRY(build_ropes(b));
    TRY(build_end(b, &b->circuit->stem, PART_STEM, 1, &b->in->stem, &b->in->stem_bindings));
    width = b->in->stem.edges[b->in->stem.out_edge].width;
    TRY(build_layers(b, width));
    TRY(build_kv_groups(b));
    TRY(build_end(b, &b->circuit->head, PART_HEAD, width, &b->in->head, &b->in->head_bindings));
    b->binder.scope = &scope;
    TRY(weight_check_all(&b->binder, &b->in->unread, &b->in->n_unread, b->err));
done:
    return st;
}

Status instance_new(Instance **out, const CircuitLibrary *lib, const InstanceSource *src, Err *err)
{
    Arena *arena = arena_new();
    OwnedInstance *owned = arena != NULL ? ARENA_NEW(arena, OwnedInstance) : NULL;
    Build b = {.src = src, .arena = arena, .err = err};
    Status st;

    if (owned == NULL) {
        arena_free(arena);
        return err_set(err, ST_NOMEM, "%s: out of memory", src->name);
    }
    owned->arena = arena;
    b.in = &owned->base;
    st = build(&b, lib);
    weight_binder_release(&b.binder);
    free(b.weights);
    free(b.bindings);
    if (st == ST_OK)
        *out = &owned->base;
    else
        arena_free(arena);
    return st;
}

void instance_free(Instance *in)
{
    if (in != NULL)
        arena_free(((OwnedInstance *)in)->arena);
}

uint32_t instance_kv_group(const Instance *in, const InstanceState *s)
{
    uint32_t g = 0;

    while (g + 1 < in->n_kv_groups && in->kv_windows[g] != s->window)
        g++;
    return g;
}

bool instance_dim(const Instance *in, const char *name, int64_t *value)
{
    for (uint32_t i = 0; i < in->n_dims; i++)
        if (strcmp(in->dims[i].name, name) == 0) {
            *value = in->dims[i].value;
            return true;
        }
    return false;
}
