/* load.c - see load.h. Rows are read in runs of whole pieces (16 rows for n16, whole heads where rows are permuted), checked, put in order
 * and laid out one piece at a time, straight into device memory where the host can write it. */
#include "model/load.h"
#include "model/binding.h"
#include "weights/decode.h"
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
    return p->layout == layout && p->weight->n == w->n && p->weight->k == w->k && p->binding->row == b->row &&
           p->binding->order == b->order && strcmp(p->binding->tensor, b->tensor) == 0;
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
                           "layout \"%s\" of weight %s is unknown; FAMILIES.toml may name row, f32 or n16",
                           wants[s].layout, w->name);
        while (p < bu->n && !same_bytes(&bu->places[p], &bindings[s], w, layout))
            p++;
        if (p == bu->n) {
            LoadPlace *place = &bu->places[bu->n];
            *place = (LoadPlace){.binding = &bindings[s], .weight = w, .layout = layout, .offset = bu->lp->bytes};
            if (!layout_takes(layout, w->stored) || !layout_bytes(layout, w->stored, w->n, w->k, &place->bytes))
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

/* Rows that are read at once: whole pieces, whole heads where rows are permuted, about STAGING_BYTES. */
static uint64_t run_rows(const LoadPlace *p, uint64_t row_bytes)
{
    uint64_t unit = layout_rows(p->layout), rows;

    if (p->binding->order != ROWS_AS_STORED)
        unit = p->binding->head_dim % unit == 0 ? p->binding->head_dim : unit * p->binding->head_dim;
    rows = STAGING_BYTES / row_bytes / unit * unit;
    return rows ? rows : unit;
}

static Status check_rows(const LoadPlace *p, const uint8_t *rows, uint64_t first, uint64_t n, uint64_t row_bytes,
                         const char *path, Err *err)
{
    for (uint64_t r = 0; r < n; r++) {
        uint64_t at;
        if (!dtype_row_finite(p->weight->stored, rows + r * row_bytes, p->weight->k, &at))
            return err_set(
                err, ST_FORMAT,
                "%s: tensor %s holds a value that is not finite at row %llu, element %llu; the file is damaged", path,
                p->binding->tensor, (unsigned long long)(first + r), (unsigned long long)at);
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

static Status load_place(const LoadPlace *p, WeightStore *store, GpuBackend *gpu, bool host, uint8_t *dst, Staging *sg,
                         Err *err)
{
    Status st = ST_OK;
    const InstanceBinding *b = p->binding;
    const TensorInfo *t = store_find(store, b->tensor);
    uint64_t n = p->weight->n, row_bytes, piece_bytes, piece = layout_rows(p->layout);

    if (t == NULL)
        return err_set(err, ST_NOTFOUND, "%s: tensor %s is missing; the checkpoint is incomplete", store->path,
                       b->tensor);
    if (t->dtype != p->weight->stored || !dtype_row_bytes(t->dtype, p->weight->k, &row_bytes) ||
        !layout_bytes(p->layout, t->dtype, piece, p->weight->k, &piece_bytes) || t->bytes / row_bytes < b->row + n)
        return err_set(err, ST_FORMAT, "%s: tensor %s changed while it was being opened", store->path, b->tensor);

    uint64_t step = run_rows(p, row_bytes);
    TRY(grow(&sg->read, &sg->read_cap, (step < n ? step : n) * row_bytes, err));
    if (b->order != ROWS_AS_STORED)
        TRY(grow(&sg->ordered, &sg->ordered_cap, (step < n ? step : n) * row_bytes, err));
    if (!host)
        TRY(grow(&sg->laid, &sg->laid_cap, (step + piece - 1) / piece * piece_bytes, err));

    for (uint64_t first = 0; first < n; first += step) {
        uint64_t rows = n - first < step ? n - first : step;
        const uint8_t *src = sg->read;
        uint8_t *to = host ? dst + first / piece * piece_bytes : sg->laid;

        TRY(store_read(store, t, (b->row + first) * row_bytes, sg->read, rows * row_bytes, err));
        TRY(check_rows(p, sg->read, b->row + first, rows, row_bytes, store->path, err));
        if (b->order != ROWS_AS_STORED) {
            for (uint64_t r = 0; r < rows; r++)
                memcpy(sg->ordered + r * row_bytes, sg->read + (binding_row(b, first + r) - b->row - first) * row_bytes,
                       row_bytes);
            src = sg->ordered;
        }
        for (uint64_t r = 0; r < rows; r += piece)
            layout_piece(p->layout, t->dtype, p->weight->k, (uint32_t)(rows - r < piece ? rows - r : piece),
                         src + r * row_bytes, to + r / piece * piece_bytes);
        if (!host) {
            TRY(gpu_upload(gpu, dst + first / piece * piece_bytes, to, (rows + piece - 1) / piece * piece_bytes, err));
            TRY(gpu_sync(gpu, err));
        }
    }
done:
    return st;
}

Status load_run(const LoadPlan *lp, WeightStore *store, GpuBackend *gpu, GpuBuf weights, Err *err)
{
    Status st = ST_OK;
    Staging sg = {0};
    GpuFacts facts;

    gpu_facts(gpu, &facts);
    for (uint32_t i = 0; i < lp->n_places; i++) {
        const LoadPlace *p = &lp->places[i];
        TRY(load_place(p, store, gpu, facts.host_memory, (uint8_t *)weights.ptr + p->offset, &sg, err));
    }
done:
    free(sg.read);
    free(sg.ordered);
    free(sg.laid);
    return st;
}
