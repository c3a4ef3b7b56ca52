/* load.c - see load.h. Rows are read in runs of whole pieces (16 rows for n16, whole heads where rows are permuted), checked, put in order
 * and laid out one piece at a time, straight into device memory where the host can write it. The experts of a weight lie
 * one behind the other, each laid out as if it were alone.
 *
 * Reading and laying out is what takes the time (2 GB/s or so a core, where a bus takes 50), so it is shared by threads: each
 * takes the next slice of a part. A device whose memory the host cannot write gets the pieces out of two pinned buffers that
 * each thread has: one is filled while the device copies the other. One thread at a time talks to the device. */
#include "model/load.h"
#include "core/thread.h"
#include "model/binding.h"
#include "model/pieces.h"
#include "weights/decode.h"
#include "weights/quant.h"
#include <stdlib.h>
#include <string.h>

enum { STAGING_BYTES = 4 << 20, PINNED_BYTES = 8 << 20, PLACE_ALIGN = 256, MAX_THREADS = 16 };
/* What one thread takes at a time, and the least that is worth another thread. */
enum { SLICE_BYTES = 32 << 20 };

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

    uint64_t whole = p->binding->pieces != NULL            ? pieces_group_rows(p->binding)
                     : p->binding->order != ROWS_AS_STORED ? p->binding->head_dim
                                                           : 1;

    unit = whole % unit == 0 ? whole : unit * whole;
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

/* A piece of a part: rows [first, first + rows). */
typedef struct Slice {
    uint32_t place, expert;
    uint64_t first, rows;
} Slice;

/* One load: what its threads share. */
typedef struct Load {
    const LoadPlan *plan;
    WeightStore *store;
    GpuBackend *gpu; /* NULL: read to be checked */
    uint8_t *weights;
    bool host; /* device memory may be written in place */
    Slice *slices;
    size_t n_slices;
    Mutex lock;    /* of what follows, and of gpu */
    size_t next;   /* slice to be taken */
    size_t failed; /* the first slice that failed; later ones are given up, so that the error is always the same one */
    Status st;
    Err err;
} Load;

/* What one thread has for itself. */
typedef struct Staging {
    Load *load;
    uint8_t *read, *ordered, *laid; /* each grows to what the largest slice needs */
    size_t read_cap, ordered_cap, laid_cap;
    uint8_t *pinned[2];
    GpuEvent *copied[2]; /* behind the last copy out of it */
    uint32_t turn;
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

/* For the slice's rows alone. */
static Status part_open(PartSource *s, const LoadPlace *p, WeightStore *store, const Slice *slice, Err *err)
{
    const InstanceBinding *b = p->binding;
    uint64_t base, elements = 1;
    const char *name = binding_tensor(b, p->weight, slice->expert, &base);
    const TensorInfo *t = NULL;

    if (b->quant != NULL) {
        const uint64_t rows = b->of ? b->of : weight_rows(p->weight), step = b->step > 1 ? b->step : 1;
        *s = (PartSource){.place = p, .store = store, .base = base, .rows = weight_rows(p->weight), .of = rows};
        s->k = p->weight->k;
        dtype_row_bytes(p->weight->stored, s->k, &s->row_bytes);
        return quant_open_rows(&s->quant, store, b->quant, name, b->tensors ? rows : rows * weight_experts(p->weight),
                               s->k, p->weight->stored, base + b->row + slice->first * step,
                               (slice->rows - 1) * step + 1, err);
    }
    if (b->pieces != NULL) {
        *s = (PartSource){.place = p, .store = store, .rows = p->weight->n, .of = p->weight->n, .k = p->weight->k};
        dtype_row_bytes(p->weight->stored, s->k, &s->row_bytes);
        return ST_OK;
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
    if (s->place->binding->pieces != NULL) {
        Status st = grow(&sg->read, &sg->read_cap, n * s->row_bytes, err);

        *out = sg->read;
        return st != ST_OK ? st : pieces_read(s->store, s->place->binding, s->place->weight, first, n, sg->read, err);
    }
    return s->place->binding->columns ? part_columns(s, first, n, sg, out, err) : part_rows(s, first, n, sg, out, err);
}

static void lay_out_host(const LoadPlace *p, uint64_t rows, uint64_t k, uint64_t row_bytes, uint64_t piece_bytes,
                         const uint8_t *src, uint8_t *to)
{
    const uint64_t piece = layout_rows(p->layout);
    for (uint64_t r = 0; r < rows; r += piece)
        layout_piece(p->layout, p->weight->stored, k, (uint32_t)(rows - r < piece ? rows - r : piece),
                     src + r * row_bytes, to + r / piece * piece_bytes);
}

/* A pinned buffer that no copy reads any more. */
static Status next_pinned(Staging *sg, Err *err)
{
    Status st = ST_OK;
    Load *l = sg->load;
    void *p = sg->pinned[sg->turn];

    mutex_lock(&l->lock);
    if (p == NULL)
        st = gpu_host_alloc(l->gpu, PINNED_BYTES, "load staging", &p, err);
    else if (sg->copied[sg->turn])
        st = gpu_event_wait(l->gpu, sg->copied[sg->turn], err);
    gpu_event_free(l->gpu, sg->copied[sg->turn]);
    mutex_unlock(&l->lock);
    sg->copied[sg->turn] = NULL;
    sg->pinned[sg->turn] = p;
    return st;
}

static Status send(Staging *sg, uint8_t *dst, const uint8_t *src, uint64_t bytes, GpuEvent **copied, Err *err)
{
    Load *l = sg->load;

    mutex_lock(&l->lock);
    Status st = gpu_upload(l->gpu, dst, src, bytes, err);
    if (st == ST_OK && copied)
        st = gpu_event_record(l->gpu, copied, err);
    mutex_unlock(&l->lock);
    return st;
}

/* Lays rows out and brings them to dst. Host memory is written in place. */
static Status lay_out(const LoadPlace *p, uint64_t rows, uint64_t k, const uint8_t *src, uint8_t *dst, Staging *sg,
                      Err *err)
{
    Status st = ST_OK;
    const uint64_t piece = layout_rows(p->layout);
    uint64_t piece_bytes, row_bytes;

    if (sg->load->gpu == NULL)
        return ST_OK;
    if (!layout_bytes(p->layout, p->weight->stored, piece, k, &piece_bytes) ||
        !dtype_row_bytes(p->weight->stored, k, &row_bytes))
        return err_set(err, ST_FORMAT, "weight %s has no whole rows of %llu", p->weight->name, (unsigned long long)k);
    if (sg->load->host) {
        lay_out_host(p, rows, k, row_bytes, piece_bytes, src, dst);
        return ST_OK;
    }
    if (piece_bytes > PINNED_BYTES) { /* rare: the driver has a buffer of its own */
        uint64_t bytes = (rows + piece - 1) / piece * piece_bytes;
        TRY(grow(&sg->laid, &sg->laid_cap, bytes, err));
        lay_out_host(p, rows, k, row_bytes, piece_bytes, src, sg->laid);
        return send(sg, dst, sg->laid, bytes, NULL, err);
    }
    for (uint64_t r = 0, most = PINNED_BYTES / piece_bytes * piece; r < rows; r += most) {
        uint64_t n = rows - r < most ? rows - r : most;
        TRY(next_pinned(sg, err));
        lay_out_host(p, n, k, row_bytes, piece_bytes, src + r * row_bytes, sg->pinned[sg->turn]);
        TRY(send(sg, dst + r / piece * piece_bytes, sg->pinned[sg->turn], (n + piece - 1) / piece * piece_bytes,
                 &sg->copied[sg->turn], err));
        sg->turn ^= 1;
    }
done:
    return st;
}

static Status load_rows(const PartSource *s, const Slice *slice, uint8_t *dst, Staging *sg, Err *err)
{
    Status st = ST_OK;
    const LoadPlace *p = s->place;
    const uint8_t *src;
    uint64_t piece = layout_rows(p->layout), step = run_rows(p, s->row_bytes), piece_bytes;

    if (p->weight->vector) { /* one row */
        TRY(part_read(s, 0, s->rows, sg, &src, err));
        return lay_out(p, 1, s->rows, src, dst, sg, err);
    }
    if (!layout_bytes(p->layout, p->weight->stored, piece, s->k, &piece_bytes))
        return err_set(err, ST_FORMAT, "weight %s cannot be laid out", p->weight->name);
    for (uint64_t first = slice->first, end = first + slice->rows; first < end; first += step) {
        uint64_t rows = end - first < step ? end - first : step;
        TRY(part_read(s, first, rows, sg, &src, err));
        TRY(lay_out(p, rows, s->k, src, dst ? dst + first / piece * piece_bytes : NULL, sg, err));
    }
done:
    return st;
}

static Status load_slice(Staging *sg, const Slice *slice, Err *err)
{
    Status st = ST_OK;
    const Load *l = sg->load;
    const LoadPlace *p = &l->plan->places[slice->place];
    uint8_t *dst = l->gpu ? l->weights + p->offset + p->bytes / weight_experts(p->weight) * slice->expert : NULL;
    PartSource s = {0};

    TRY(part_open(&s, p, l->store, slice, err));
    st = load_rows(&s, slice, dst, sg, err);
done:
    quant_close(s.quant);
    return st;
}

/* What a thread does: slices until there are none, or until one of the earlier ones has failed. */
static void *load_slices(void *arg)
{
    Load *l = arg;
    Staging sg = {.load = l};
    Err err;

    for (;;) {
        mutex_lock(&l->lock);
        size_t i = l->next < l->failed ? l->next++ : l->n_slices;
        mutex_unlock(&l->lock);
        if (i >= l->n_slices)
            break;
        Status st = load_slice(&sg, &l->slices[i], &err);
        if (st == ST_OK)
            continue;
        mutex_lock(&l->lock);
        if (i < l->failed) {
            l->failed = i;
            l->st = st;
            l->err = err;
        }
        mutex_unlock(&l->lock);
    }
    mutex_lock(&l->lock);
    for (int i = 0; i < 2; i++) { /* a copy may still read the buffer */
        if (sg.copied[i] && gpu_event_wait(l->gpu, sg.copied[i], &err) != ST_OK && l->st == ST_OK) {
            l->st = ST_DEVICE;
            l->err = err;
        }
        gpu_event_free(l->gpu, sg.copied[i]);
        gpu_host_free(l->gpu, sg.pinned[i]);
    }
    mutex_unlock(&l->lock);
    free(sg.read);
    free(sg.ordered);
    free(sg.laid);
    return NULL;
}

/* Rows of a part that are one slice: whole runs. What is turned by columns, is one row, or has its codes stored by column
 * (the reader takes all of them) is whole. */
static uint64_t slice_rows(const LoadPlace *p, uint64_t rows)
{
    const QuantScheme *q = p->binding->quant;
    uint64_t row_bytes = 0, run;

    if (p->weight->vector || p->binding->columns || (q && (q->store == QUANT_AWQ || q->store == QUANT_GPTQ)) ||
        !dtype_row_bytes(p->weight->stored, p->weight->k, &row_bytes) || row_bytes == 0)
        return rows;
    run = run_rows(p, row_bytes);
    return SLICE_BYTES / row_bytes / run ? SLICE_BYTES / row_bytes / run * run : run;
}

/* Counts the slices, and writes them where there is room for them. */
static size_t cut(const LoadPlan *lp, Slice *out)
{
    size_t n = 0;

    for (uint32_t i = 0; i < lp->n_places; i++) {
        const LoadPlace *p = &lp->places[i];
        const uint64_t rows = weight_rows(p->weight), most = slice_rows(p, rows);
        for (uint32_t e = 0; e < weight_experts(p->weight); e++)
            for (uint64_t first = 0; first < rows; first += most, n++)
                if (out)
                    out[n] = (Slice){i, e, first, rows - first < most ? rows - first : most};
    }
    return n;
}

Status load_run(const LoadPlan *lp, WeightStore *store, GpuBackend *gpu, GpuBuf weights, Err *err)
{
    Load l = {.plan = lp, .store = store, .gpu = gpu, .weights = weights.ptr, .n_slices = cut(lp, NULL), .st = ST_OK};
    Thread threads[MAX_THREADS];
    unsigned n = 0, most = cpu_count() < MAX_THREADS ? cpu_count() : MAX_THREADS;
    GpuFacts facts = {0};

    l.failed = l.n_slices;
    l.slices = malloc((l.n_slices + 1) * sizeof *l.slices);
    if (l.slices == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the load's %zu slices", l.n_slices);
    cut(lp, l.slices);
    if (gpu)
        gpu_facts(gpu, &facts);
    l.host = facts.host_memory;
    mutex_init(&l.lock);
    /* This thread is one of them; without another it does all. */
    while (n + 1 < most && (uint64_t)(n + 1) * SLICE_BYTES < lp->bytes &&
           thread_start(&threads[n], "load", load_slices, &l, NULL) == ST_OK)
        n++;
    load_slices(&l);
    while (n > 0)
        thread_join(threads[--n]);
    mutex_release(&l.lock);
    free(l.slices);
    if (l.st == ST_OK && gpu && !l.host)
        l.st = gpu_sync(gpu, &l.err);
    return l.st == ST_OK ? ST_OK : err_set(err, l.st, "%s", l.err.msg);
}
