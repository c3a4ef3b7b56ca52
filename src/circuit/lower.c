/* lower.c - plan_lower(): each distinct block through quantize, match, cover, buffers and bind; then what must hold
 * between blocks (one layout for each tensor), and the digest.
 *
 * Pure: the same instance, families and options give the same plan and the same digest. */
#include "circuit/lowering.h"
#include "core/hash.h"
#include <stdlib.h>
#include <string.h>

Status lower_no_memory(Err *err)
{
    return err_set(err, ST_NOMEM, "out of memory while lowering the circuit");
}

/* ---- shapes ----------------------------------------------------------------------------------------------------- */

void lower_shape_rows(const StepShape *s, bool on_outputs, uint32_t *lo, uint32_t *hi)
{
    *hi = on_outputs ? s->max_outs : s->max_rows;
    *lo = !on_outputs ? s->min_rows : s->kind == SHAPE_EXTEND ? 1 : s->min_rows < *hi ? s->min_rows : *hi;
}

bool lower_point_holds(const FamilyPoint *p, const StepShape *s, bool on_outputs)
{
    uint32_t lo, hi;

    lower_shape_rows(s, on_outputs, &lo, &hi);
    return p->rows_lo <= lo && (p->rows_hi == 0 || hi <= p->rows_hi);
}

uint32_t lower_edge_rows(const Lowering *l, const LowerBlock *b, uint32_t edge)
{
    int32_t maker = b->block->edges[edge].producer;

    return maker >= 0 && b->block->nodes[maker].op->on_outputs ? l->opt->shape.max_outs : l->opt->shape.max_rows;
}

uint64_t lower_weight_bytes(const InstanceWeight *w)
{
    uint64_t row;

    if (w->vector)
        return w->n * w->k * 4; /* vectors reach kernels as f32 */
    return dtype_row_bytes(w->stored, w->k, &row) ? w->n * row : 0;
}

static Status check_shape(const StepShape *s, Err *err)
{
    if (s->min_rows < 1 || s->min_rows > s->max_rows || s->max_rows > INT32_MAX || s->max_seqs < 1 || s->max_outs < 1 ||
        s->max_len < 1 || s->max_len > INT32_MAX)
        return err_set(err, ST_INVALID,
                       "a step shape of rows %u..%u, %u sequences, %u outputs and %u tokens cannot be planned; each "
                       "must be at least 1, and the rows in order",
                       s->min_rows, s->max_rows, s->max_seqs, s->max_outs, s->max_len);
    return ST_OK;
}

/* ---- one block -------------------------------------------------------------------------------------------------- */

/* Which layout each weight slot is read in, and by which family. */
typedef struct SlotUse {
    const char *layout;
    const Family *family;
} SlotUse;

static Status note_layouts(SlotUse *uses, const InstanceBlock *b, const Match *m, Err *err)
{
    for (uint32_t i = 0; i < m->rule->n_nodes; i++) {
        const InstanceNode *node = &b->nodes[m->node[i]];
        for (uint32_t w = 0; w < node->op->n_weights; w++) {
            const char *layout = node->op->weights[w].vector ? "f32" : m->rule->family->layout;
            SlotUse *use;
            if (node->weight[w] < 0)
                continue;
            use = &uses[node->weight[w]];
            if (use->family != NULL && strcmp(use->layout, layout) != 0)
                return err_set(err, ST_UNSUPPORTED,
                               "weight %s of block %s is read in layout %s by family %s and in layout "
                               "%s by family %s; give both families one layout",
                               b->weights[node->weight[w]].name, b->name, use->layout, use->family->id, layout,
                               m->rule->family->id);
            *use = (SlotUse){layout, m->rule->family};
        }
    }
    return ST_OK;
}

static Status lower_block(PlanBlock *out, const PlanWeight **weights, SlotUse **uses, uint64_t *logits, Plan *p,
                          const Lowering *l, const InstanceBlock *src, BlockRole role, Err *err)
{
    LowerBlock b;
    Match **matches = NULL;
    const Match **cover;
    BlockBuffers buffers = {0};
    PlanStep *steps = NULL;
    PlanWeight *slots;
    uint32_t n_matches = 0, n_steps = 0;
    uint64_t moved = 0;
    Status st = ST_OK;

    TRY(quantize_block(&b, l, src, role, err));
    TRY(match_all(&matches, &n_matches, l, &b, err));
    TRY(cover_block(&cover, &n_steps, l, &b, matches, n_matches, err));
    TRY(buffers_block(&buffers, l, &b, cover, n_steps, err));
    steps = ARENA_ARRAY(l->arena, PlanStep, n_steps);
    slots = ARENA_ARRAY(l->arena, PlanWeight, src->n_weights);
    *uses = ARENA_ARRAY(l->arena, SlotUse, src->n_weights);
    if (steps == NULL || slots == NULL || *uses == NULL)
        TRY(lower_no_memory(err));
    for (uint32_t i = 0; i < n_steps; i++) {
        TRY(bind_step(&steps[i], l, &b, cover[i], &buffers, i, err));
        TRY(note_layouts(*uses, b.block, cover[i], err));
        moved += cover[i]->moved;
    }
    for (uint32_t w = 0; w < src->n_weights; w++)
        slots[w].layout = (*uses)[w].layout != NULL ? (*uses)[w].layout : "row";
    *out = (PlanBlock){.source = b.block,
                       .formats = b.formats,
                       .name = src->name,
                       .n_steps = n_steps,
                       .steps = steps,
                       .cost_s = (double)moved / l->fs->facts.bandwidth + n_steps * l->fs->facts.launch_s};
    *weights = slots;
    if (buffers.bytes > p->arena_bytes)
        p->arena_bytes = buffers.bytes;
    if (role == BLOCK_HEAD)
        *logits = buffers.edge[src->out_edge];
done:
    free(matches);
    return st;
}

/* ---- between blocks --------------------------------------------------------------------------------------------- */

typedef struct TensorUse {
    const char *tensor;
    SlotUse use;
    uint32_t order; /* of appearance, so that the message does not depend on qsort */
} TensorUse;

static int by_tensor(const void *a, const void *b)
{
    const TensorUse *x = a, *y = b;
    int c = strcmp(x->tensor, y->tensor);

    return c != 0 ? c : x->order < y->order ? -1 : x->order > y->order;
}

static void add_uses(TensorUse *list, uint32_t *n, const InstanceBinding *bindings, const SlotUse *uses,
                     uint32_t n_weights)
{
    for (uint32_t w = 0; w < n_weights; w++)
        if (uses[w].family != NULL && bindings[w].tensor != NULL) {
            list[*n] = (TensorUse){bindings[w].tensor, uses[w], *n};
            (*n)++;
        }
}

/* A tensor is laid out once, so all that read it (a tied embedding and head, above all) must want one layout. */
static Status check_tensors(const Instance *in, SlotUse *const *block_uses, const SlotUse *stem, const SlotUse *head,
                            Err *err)
{
    size_t most = (size_t)in->stem.n_weights + in->head.n_weights;
    uint32_t n = 0;
    TensorUse *list;
    Status st = ST_OK;

    for (uint32_t i = 0; i < in->n_layers; i++)
        most += in->blocks[in->layers[i].block].n_weights;
    list = calloc(most + 1, sizeof *list);
    if (list == NULL)
        return lower_no_memory(err);
    add_uses(list, &n, in->stem_bindings, stem, in->stem.n_weights);
    for (uint32_t i = 0; i < in->n_layers; i++)
        add_uses(list, &n, in->layers[i].bindings, block_uses[in->layers[i].block],
                 in->blocks[in->layers[i].block].n_weights);
    add_uses(list, &n, in->head_bindings, head, in->head.n_weights);
    qsort(list, n, sizeof *list, by_tensor);
    for (uint32_t i = 1; i < n && st == ST_OK; i++)
        if (strcmp(list[i - 1].tensor, list[i].tensor) == 0 && strcmp(list[i - 1].use.layout, list[i].use.layout) != 0)
            st = err_set(err, ST_UNSUPPORTED,
                         "tensor %s is read in layout %s by family %s and in layout %s by family %s; "
                         "give both families one layout",
                         list[i].tensor, list[i - 1].use.layout, list[i - 1].use.family->id, list[i].use.layout,
                         list[i].use.family->id);
    free(list);
    return st;
}

/* The residual stream must have one width everywhere, since it has one home. */
static Status home_size(Lowering *l, Err *err)
{
    const Instance *in = l->in;
    const uint32_t width = in->stem.edges[in->stem.out_edge].width;
    uint64_t row;
    bool same = in->head.edges[in->head.in_edge].width == width;

    for (uint32_t i = 0; i < in->n_blocks; i++) {
        const InstanceBlock *b = &in->blocks[i];
        same = same && b->edges[b->in_edge].width == width && b->edges[b->out_edge].width == width;
    }
    if (!same)
        return err_set(err, ST_UNSUPPORTED, "%s: the residual stream changes its width between layers", in->source);
    if (!dtype_row_bytes(l->fs->facts.activation, width, &row) ||
        __builtin_mul_overflow(row, l->opt->shape.max_rows, &l->home_bytes))
        return err_set(err, ST_UNSUPPORTED, "%s: rows of %u elements do not fit format %s of class %s", in->source,
                       width, dtype_name(l->fs->facts.activation), l->fs->facts.name);
    return ST_OK;
}

Status plan_lower(Plan **out, const Instance *in, const FamilySet *fs, const LowerOptions *opt, Err *err)
{
    Lowering l = {.in = in, .fs = fs, .opt = opt, .arena = arena_new()};
    PlanBlock *blocks;
    const PlanWeight **block_weights;
    SlotUse **uses, *stem_uses, *head_uses;
    uint64_t logits = UINT64_MAX;
    Plan *p = NULL;
    Status st = ST_OK;

    if (l.arena == NULL)
        return lower_no_memory(err);
    p = ARENA_NEW(l.arena, Plan);
    blocks = ARENA_ARRAY(l.arena, PlanBlock, in->n_blocks);
    block_weights = ARENA_ARRAY(l.arena, const PlanWeight *, in->n_blocks);
    uses = ARENA_ARRAY(l.arena, SlotUse *, in->n_blocks);
    if (p == NULL || blocks == NULL || block_weights == NULL || uses == NULL)
        TRY(lower_no_memory(err));
    p->instance = in;
    p->families = fs;
    p->shape = opt->shape;
    p->blocks = blocks;
    p->block_weights = block_weights;
    TRY(check_shape(&opt->shape, err));
    TRY(home_size(&l, err));
    TRY(lower_block(&p->stem, &p->stem_weights, &stem_uses, &logits, p, &l, &in->stem, BLOCK_STEM, err));
    for (uint32_t i = 0; i < in->n_blocks; i++)
        TRY(lower_block(&blocks[i], &block_weights[i], &uses[i], &logits, p, &l, &in->blocks[i], BLOCK_LAYER, err));
    TRY(lower_block(&p->head, &p->head_weights, &head_uses, &logits, p, &l, &in->head, BLOCK_HEAD, err));
    p->logits_offset = logits;
    TRY(check_tensors(in, uses, stem_uses, head_uses, err));
    TRY(plan_digest(p, err));
    p->arena = l.arena;
    *out = p;
    l.arena = NULL;
done:
    arena_free(l.arena);
    return st;
}

void plan_free(Plan *p)
{
    if (p != NULL)
        arena_free(p->arena);
}

/* ---- digest ----------------------------------------------------------------------------------------------------- */

static void digest_block(Hasher *h, const PlanBlock *b, const PlanWeight *weights)
{
    const InstanceBlock *src = b->source;

    hasher_add_u64(h, src->n_edges);
    for (uint32_t i = 0; i < src->n_edges; i++)
        hasher_add_u64(h, src->edges[i].width);
    hasher_add_u64(h, src->n_weights);
    for (uint32_t i = 0; i < src->n_weights; i++) {
        hasher_add_u64(h, src->weights[i].n);
        hasher_add_u64(h, src->weights[i].experts);
        hasher_add_u64(h, src->weights[i].k);
        hasher_add_str(h, dtype_name(src->weights[i].stored));
        hasher_add_str(h, weights[i].layout);
    }
    hasher_add_u64(h, src->n_nodes);
    for (uint32_t i = 0; i < src->n_nodes; i++) {
        const InstanceNode *node = &src->nodes[i];
        hasher_add_str(h, node->op->name);
        for (uint32_t j = 0; j < node->op->n_in; j++)
            hasher_add_u64(h, node->in[j]);
        for (uint32_t j = 0; j < node->op->n_out; j++)
            hasher_add_u64(h, node->out[j]);
        for (uint32_t j = 0; j < node->op->n_weights; j++)
            hasher_add_u64(h, (uint64_t)(int64_t)node->weight[j]);
        hasher_add(h, node->param, node->op->n_params * sizeof node->param[0]);
        hasher_add_u64(h, (uint64_t)(int64_t)node->state);
        hasher_add_u64(h, (uint64_t)(int64_t)node->table);
    }
    hasher_add_u64(h, src->n_states);
    for (uint32_t i = 0; i < src->n_states; i++) {
        hasher_add_u64(h, src->states[i].kind);
        hasher_add_u64(h, src->states[i].window);
        hasher_add_str(h, dtype_name(src->states[i].format));
        for (uint32_t j = 0; j < src->states[i].n_parts; j++) {
            hasher_add_u64(h, src->states[i].parts[j].heads);
            hasher_add_u64(h, src->states[i].parts[j].width);
        }
    }
}

static void digest_step(Hasher *h, const PlanStep *s)
{
    hasher_add_str(h, s->rule->id);
    hasher_add_str(h, s->family->id);
    hasher_add_str(h, s->point->entry);
    hasher_add_str(h, s->point->constants);
    hasher_add_str(h, s->kernel->hash);
    for (int d = 0; d < 3; d++)
        hasher_add_str(h, expr_text(s->point->grid[d]));
    hasher_add_str(h, expr_text(s->point->smem));
    hasher_add_str(h, expr_text(s->point->workspace));
    hasher_add_u64(h, s->point->block | (uint64_t)s->point->overlap << 32);
    for (uint32_t i = 0; i < s->scope->n; i++) {
        hasher_add_str(h, s->scope->names[i]);
        hasher_add_u64(h, (uint64_t)s->scope->values[i]);
    }
    hasher_add_u64(h, s->n_args);
    for (uint32_t i = 0; i < s->n_args; i++) {
        const PlanArg *a = &s->args[i];
        hasher_add_u64(h, a->kind);
        hasher_add_u64(h, a->index);
        hasher_add_u64(h, a->part);
        hasher_add_u64(h, a->offset);
        hasher_add_u64(h, (uint64_t)(int64_t)a->value);
        hasher_add(h, &a->fvalue, sizeof a->fvalue);
        hasher_add_str(h, a->expr != NULL ? expr_text(a->expr) : "");
    }
}

static void digest_plan_block(Hasher *h, const PlanBlock *b, const PlanWeight *weights)
{
    digest_block(h, b, weights);
    hasher_add_u64(h, b->n_steps);
    for (uint32_t i = 0; i < b->n_steps; i++)
        digest_step(h, &b->steps[i]);
}

static void digest_rope(Hasher *h, const RopeSpec *r)
{
    const double values[] = {
        r->theta,     r->factor,    r->low_freq_factor, r->high_freq_factor, r->original_max_position,
        r->beta_fast, r->beta_slow, r->attention_factor};

    hasher_add_u64(h, r->kind);
    hasher_add_u64(h, r->dims);
    hasher_add(h, values, sizeof values);
    hasher_add_u64(h, r->truncate);
    hasher_add_u64(h, r->factors_tensor != NULL);
}

Status plan_digest(Plan *p, Err *err)
{
    Hasher *h = hasher_new();

    if (h == NULL)
        return lower_no_memory(err);
    hasher_add_u64(h, p->shape.kind);
    hasher_add_u64(h, p->shape.min_rows);
    hasher_add_u64(h, p->shape.max_rows);
    hasher_add_u64(h, p->shape.max_seqs);
    hasher_add_u64(h, p->shape.max_outs);
    hasher_add_u64(h, p->shape.max_len);
    digest_plan_block(h, &p->stem, p->stem_weights);
    for (uint32_t i = 0; i < p->instance->n_blocks; i++)
        digest_plan_block(h, &p->blocks[i], p->block_weights[i]);
    digest_plan_block(h, &p->head, p->head_weights);
    hasher_add_u64(h, p->instance->n_layers);
    for (uint32_t i = 0; i < p->instance->n_layers; i++)
        hasher_add_u64(h, p->instance->layers[i].block);
    for (uint32_t i = 0; i < p->instance->n_ropes; i++)
        digest_rope(h, &p->instance->ropes[i]);
    hasher_add_u64(h, p->arena_bytes);
    hasher_add_u64(h, p->logits_offset);
    hash_hex(hasher_value(h), p->digest);
    hasher_free(h);
    return ST_OK;
}
