/* load.c - see load.h. Rows are read in runs of whole pieces (16 rows for n16, whole heads where rows are permuted), checked, put in order
 * and laid out one piece at a time, straight into device memory where the host can write it. The experts of a weight lie
 * one behind the other, each laid out as if it were alone. */
#include "model/load.h"
#include "model/binding.h"
#include "weights/decode.h"
#include "weights/quant.h"
#include <stdlib.h>
#include <string.h>

enum { STAGING_BYTES = 4 << 20, PLACE_ALIGN = 256 };

typedef struct Builder {
    LoadPlan *lp;
    LoadPlace *places;
    uint32_t n, cap;
    const Instance *in;
} Builder;

static bool same_bytes(const LoadPlace *p, const InstanceBinding *b, const InstanceWeight *w, WeightLayout layout)
{
    return p->layout == layout && p->weight->n == w->n && p->weight->k == w->k && p->weight->experts == w->experts &&
           p->binding->row == b->row && p->binding->step == b->step && p->binding->order == b->order &&
           strcmp(p->binding->tensor, b->tensor) == 0;
}

bool load_bytes(WeightLayout layout, const InstanceWeight *w, uint64_t *bytes)
{
    uint64_t n = w->vector ? 1 : weight_rows(w), experts = w->vector ? 1 : weight_experts(w);

    return layout_takes(layout, w->stored) && layout_bytes(layout, w->stored, n, w->k, bytes) &&
           !__builtin_mul_overflow(*bytes, experts, bytes);
}

/* Places the slots of one block; adds new places as needed. */
static Status place_block(Builder *bu, const InstanceBlock *block, const InstanceBinding *bindings,
                          const PlanWeight *wants, const uint32_t **out, Err *err)
{
    uint32_t *slots = ARENA_ARRAY(bu->lp->arena, uint32_t, block->n_weights + 1);

    if (slots == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the load plan");
    for (uint32_t s = 0; s < block->n_weights; s++) {
        const InstanceWeight *w = &block->weights[s];
        WeightLayout layout;
        uint32_t p = 0;

        slots[s] = UINT32_MAX;
        if (wants[s].layout == NULL)
            continue;
        if (!layout_parse(wants[s].layout, &layout))
            return err_set(err, ST_UNSUPPORTED,
                           "layout \"%s\" of weight %s is unknown; FAMILIES.toml may name row, f32, n16 or frag",
                           wants[s].layout, w->name);
        while (p < bu->n && !same_bytes(&bu->places[p], &bindings[s], w, layout))
            p++;
        if (p == bu->n) {
            LoadPlace *place = &bu->places[bu->n];
            *place = (LoadPlace){.binding = &bindings[s], .weight = w, .layout = layout, .offset = bu->lp->bytes};
            if (!load_bytes(layout, w, &place->bytes))
                return err_set(err, ST_UNSUPPORTED, "tensor %s (%llu x %llu %s) cannot be laid out as %s",
                               bindings[s].tensor, (unsigned long long)w->n, (unsigned long long)w->k,
                               dtype_name(w->stored), layout_name(layout));
            bu->lp->bytes += (place->bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
            if (layout_dtype(layout, w->stored) != w->stored)
                bu->lp->converted += place->bytes;
            bu->n++;
        }
        slots[s] = p;
    }
    *out = slots;
    return ST_OK;
}

static Status same_layouts(const InstanceBlock *b, const PlanWeight *a, const PlanWeight *c, Err *err)
{
    for (uint32_t s = 0; s < b->n_weights; s++) {
        const char *x = a[s].layout, *y = c[s].layout;
        if ((x == NULL) != (y == NULL) || (x && strcmp(x, y) != 0))
            return err_set(err, ST_UNSUPPORTED,
                           "block %s: weight %s is wanted as %s by one step shape and as %s by another; give the "
                           "families one layout",
                           b->name, b->weights[s].name, x ? x : "nothing", y ? y : "nothing");
    }
    return ST_OK;
}

Status load_plan_new(LoadPlan **out, const Plan *const *plans, size_t n_plans, Err *err)
{
    Status st = ST_OK;
    const Plan *plan = plans[0];
    const Instance *in = plan->instance;
    Arena *arena = arena_new();
    LoadPlan *lp = arena ? ARENA_NEW(arena, LoadPlan) : NULL;
    const uint32_t **layers = NULL;
    size_t cap = in->stem.n_weights + in->head.n_weights;

    for (uint32_t l = 0; l < in->n_layers; l++)
        cap += in->blocks[in->layers[l].block].n_weights;
    Builder bu = {.lp = lp, .in = in};
    if (lp) {
        lp->arena = arena;
        bu.places = ARENA_ARRAY(arena, LoadPlace, cap + 1);
        layers = ARENA_ARRAY(arena, const uint32_t *, in->n_layers + 1);
    }
    if (layers == NULL || bu.places == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for the load plan"));

    for (size_t i = 1; i < n_plans; i++) {
        TRY(same_layouts(&in->stem, plan->stem_weights, plans[i]->stem_weights, err));
        TRY(same_layouts(&in->head, plan->head_weights, plans[i]->head_weights, err));
        for (uint32_t b = 0; b < in->n_blocks; b++)
            TRY(same_layouts(&in->blocks[b], plan->block_weights[b], plans[i]->block_weights[b], err));
    }
    TRY(place_block(&bu, &in->stem, in->stem_bindings, plan->stem_weights, &lp->stem, err));
    for (uint32_t l = 0; l < in->n_layers; l++) {
        uint32_t b = in->layers[l].block;
        TRY(place_block(&bu, &in->blocks[b], in->layers[l].bindings, plan->block_weights[b], &layers[l], err));
    }
    TRY(place_block(&bu, &in->head, in->head_bindings, plan->head_weights, &lp->head, err));
    lp->places = bu.places;
    lp->n_places = bu.n;
    lp->layers = layers;
    *out = lp;
    arena = NULL;
done:
    arena_free(arena);
    return st;
}

void load_plan_free(LoadPlan *lp)
{
    if (lp)
        arena_free(lp->arena);
}

/* Rows that are laid out at once: whole pieces, whole heads where rows are permuted, about STAGING_BYTES of the file. */
static uint64_t run_rows(const LoadPlace *p, uint64_t row_bytes)
{
    uint64_t unit = layout_rows(p->layout), rows;

    if (p->binding->order != ROWS_AS_STORED)
        unit = p->binding->head_dim % unit == 0 ? p->binding->head_dim : unit * p->binding->head_dim;
    rows = STAGING_BYTES / (row_bytes * (p->binding->step > 1 ? p->binding->step : 1)) / unit * unit;
    return rows ? rows : unit;
}

/* One part of a place: the rows of one expert, or all rows of a plain weight; of a vector its elements. */
typedef struct PartSource {
    const LoadPlace *place;
    WeightStore *store;
    const TensorInfo *tensor;
    QuantReader *quant;    /* instead of the tensor, for a quantised weight */
    uint64_t base;         /* the part's first row in the tensor, or with columns its first element */
    uint64_t rows, of;     /* of the slot's part; of the tensor's */
    uint64_t k, row_bytes; /* a row: elements and bytes. Vectors: 1 element */
} PartSource;

static Status check_rows(const PartSource *s, const uint8_t *rows, uint64_t first, uint64_t n, Err *err)
{
    for (uint64_t r = 0; r < n; r++) {
        uint64_t at;
        if (!dtype_row_finite(s->tensor->dtype, rows + r * s->row_bytes, s->k, &at))
            return err_set(
                err, ST_FORMAT,
                "%s: tensor %s holds a value that is not finite at row %llu, element %llu; the file is damaged",
                s->store->path, s->tensor->name, (unsigned long long)(first + r), (unsigned long long)at);
    }
    return ST_OK;
}

typedef struct Staging {
    uint8_t *read, *ordered, *laid; /* each grows to what the largest place needs */
    size_t read_cap, ordered_cap, laid_cap;
} Staging;

static Status grow(uint8_t **p, size_t *cap, size_t want, Err *err)
{
    if (want <= *cap)
        return ST_OK;
    uint8_t *q = realloc(*p, want);
    if (q == NULL)
        return err_set(err, ST_NOMEM, "out of memory for %zu bytes of load staging", want);
    *p = q;
    *cap = want;
    return ST_OK;
}

static Status part_open(PartSource *s, const LoadPlace *p, WeightStore *store, uint32_t expert, Err *err)
{
    const InstanceBinding *b = p->binding;
    uint64_t base, elements = 1;
    const char *name = binding_tensor(b, p->weight, expert, &base);
    const TensorInfo *t = NULL;

    if (b->quant != NULL) {
        const uint64_t rows = b->of ? b->of : weight_rows(p->weight);
        *s = (PartSource){.place = p, .store = store, .base = base, .rows = weight_rows(p->weight), .of = rows};
        s->k = p->weight->k;
        dtype_row_bytes(p->weight->stored, s->k, &s->row_bytes);
        return quant_open(&s->quant, store, b->quant, name, b->tensors ? rows : rows * weight_experts(p->weight), s->k,
                          p->weight->stored, err);
    }
    Status st = store_need(store, name, &t, err);
    if (st != ST_OK)
        return st;
    *s = (PartSource){.place = p, .store = store, .tensor = t, .rows = weight_rows(p->weight)};
    s->k = p->weight->vector ? 1 : p->weight->k;
    s->of = b->of ? b->of : s->rows;
    s->base = b->columns ? base * s->k : base;
    for (uint32_t i = 0; i < t->n_dims; i++)
        elements *= t->dims[i];
    if (t->dtype != p->weight->stored || !dtype_row_bytes(t->dtype, s->k, &s->row_bytes) ||
        elements / s->k < base + s->of)
        return err_set(err, ST_FORMAT, "%s: tensor %s changed while it was being opened", store->path, name);
    return ST_OK;
}

/* Rows [first, first + n) of the part, one behind the other, at *out. Columns are turned: the part is read whole. */
static Status part_columns(const PartSource *s, uint64_t first, uint64_t n, Staging *sg, const uint8_t **out, Err *err)
{
    Status st = ST_OK;
    const uint64_t size = s->row_bytes / s->k;

    TRY(grow(&sg->read, &sg->read_cap, s->of * s->row_bytes, err));
    TRY(grow(&sg->ordered, &sg->ordered_cap, n * s->row_bytes, err));
    if (first == 0)
        TRY(store_read(s->store, s->tensor, s->base * size, sg->read, s->of * s->row_bytes, err));
    for (uint64_t r = 0; r < n; r++)
        for (uint64_t i = 0; i < s->k; i++)
            memcpy(sg->ordered + r * s->row_bytes + i * size,
                   sg->read + (i * s->of + binding_row(s->place->binding, first + r)) * size, size);
    *out = sg->ordered;
    TRY(check_rows(s, *out, first, n, err));
done:
    return st;
}

/* The same of rows that are stored as rows: a run holds whole heads where they are permuted. */
static Status part_rows(const PartSource *s, uint64_t first, uint64_t n, Staging *sg, const uint8_t **out, Err *err)
{
    Status st = ST_OK;
    const InstanceBinding *b = s->place->binding;
    const uint64_t step = b->step > 1 ? b->step : 1, from = b->row + first * step, span = (n - 1) * step + 1;

    TRY(grow(&sg->read, &sg->read_cap, span * s->row_bytes, err));
    TRY(s->quant
            ? quant_read(s->quant, s->base + from, span, sg->read, err)
            : store_read(s->store, s->tensor, (s->base + from) * s->row_bytes, sg->read, span * s->row_bytes, err));
    *out = sg->read;
    if (b->order != ROWS_AS_STORED || step > 1) {
        TRY(grow(&sg->ordered, &sg->ordered_cap, n * s->row_bytes, err));
        for (uint64_t r = 0; r < n; r++)
            memcpy(sg->ordered + r * s->row_bytes, sg->read + (binding_row(b, first + r) - from) * s->row_bytes,
                   s->row_bytes);
        *out = sg->ordered;
    }
    if (s->quant == NULL)
        TRY(check_rows(s, *out, from, n, err));
done:
    return st;
}

static Status part_read(const PartSource *s, uint64_t first, uint64_t n, Staging *sg, const uint8_t **out, Err *err)
{
    return s->place->binding->columns ? part_columns(s, first, n, sg, out, err) : part_rows(s, first, n, sg, out, err);
}

/* Lays rows out and brings them to dst. Host memory is written in place. */
static Status lay_out(const LoadPlace *p, GpuBackend *gpu, bool host, uint64_t rows, uint64_t k, const uint8_t *src,
                      uint8_t *dst, Staging *sg, Err *err)
{
    Status st = ST_OK;
    uint64_t piece = layout_rows(p->layout), piece_bytes, row_bytes, pieces = (rows + piece - 1) / piece;
    uint8_t *to = dst;

    if (gpu == NULL) /* read to be checked */
        return ST_OK;
    if (!layout_bytes(p->layout, p->weight->stored, piece, k, &piece_bytes) ||
        !dtype_row_bytes(p->weight->stored, k, &row_bytes))
        return err_set(err, ST_FORMAT, "weight %s has no whole rows of %llu", p->weight->name, (unsigned long long)k);
    if (!host) {
        TRY(grow(&sg->laid, &sg->laid_cap, pieces * piece_bytes, err));
        to = sg->laid;
    }
    for (uint64_t r = 0; r < rows; r += piece)
        layout_piece(p->layout, p->weight->stored, k, (uint32_t)(rows - r < piece ? rows - r : piece),
                     src + r * row_bytes, to + r / piece * piece_bytes);
    if (!host) {
        TRY(gpu_upload(gpu, dst, to, pieces * piece_bytes, err));
        TRY(gpu_sync(gpu, err));
    }
done:
    return st;
}

static Status load_part(const PartSource *s, GpuBackend *gpu, bool host, uint8_t *dst, Staging *sg, Err *err)
{
    Status st = ST_OK;
    const LoadPlace *p = s->place;
    const uint8_t *src;
    uint64_t piece = layout_rows(p->layout), step = run_rows(p, s->row_bytes), piece_bytes;

    if (p->weight->vector) { /* one row */
        TRY(part_read(s, 0, s->rows, sg, &src, err));
        return lay_out(p, gpu, host, 1, s->rows, src, dst, sg, err);
    }
    if (!layout_bytes(p->layout, p->weight->stored, piece, s->k, &piece_bytes))
        return err_set(err, ST_FORMAT, "weight %s cannot be laid out", p->weight->name);
    for (uint64_t first = 0; first < s->rows; first += step) {
        uint64_t rows = s->rows - first < step ? s->rows - first : step;
        TRY(part_read(s, first, rows, sg, &src, err));
        TRY(lay_out(p, gpu, host, rows, s->k, src, dst ? dst + first / piece * piece_bytes : NULL, sg, err));
    }
done:
    return st;
}

Status load_run(const LoadPlan *lp, WeightStore *store, GpuBackend *gpu, GpuBuf weights, Err *err)
{
    Status st = ST_OK;
    Staging sg = {0};
    GpuFacts facts = {0};

    if (gpu)
        gpu_facts(gpu, &facts);
    for (uint32_t i = 0; i < lp->n_places; i++) {
        const LoadPlace *p = &lp->places[i];
        uint32_t experts = weight_experts(p->weight);
        for (uint32_t e = 0; e < experts; e++) {
            PartSource s;
            TRY(part_open(&s, p, store, e, err));
            uint8_t *dst = gpu ? (uint8_t *)weights.ptr + p->offset + p->bytes / experts * e : NULL;
            st = load_part(&s, gpu, facts.host_memory, dst, &sg, err);
            quant_close(s.quant);
            TRY(st);
        }
    }
done:
    free(sg.read);
    free(sg.ordered);
    free(sg.laid);
    return st;
}
