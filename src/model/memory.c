/* memory.c - see memory.h. The layout of the step inputs and of the KV pools is decided here and nowhere else. */
#include "model/memory.h"
#include "model/load.h"
#include <string.h>

#define MARGIN_BYTES (UINT64_C(1) << 30)

static uint64_t aligned(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

uint64_t memory_input_bytes(const StepShape *s, StepTable t)
{
    uint64_t n = s->max_rows;

    if (t == STEP_SEQ_START)
        n = s->max_seqs + 1u;
    else if (t == STEP_BLOCK_TABLE)
        n = (uint64_t)s->max_seqs * shape_max_blocks(s);
    else if (t == STEP_OUT_ROWS)
        n = s->max_outs;
    else if (t == STEP_SAMPLES)
        n = s->max_outs * (sizeof(SampleRow) / sizeof(int32_t));
    else if (t == STEP_EDITS || t == STEP_PICKS)
        n = 0;
    else if (t == STEP_STATE_SLOTS)
        n = s->max_seqs;
    return aligned(n * sizeof(int32_t), 64);
}

uint64_t memory_input_places(const StepShape *s, uint32_t groups, uint64_t at[STEP_TABLES])
{
    uint64_t end = 0;

    for (StepTable t = 0; t < STEP_TABLES; t++)
        if (t != STEP_BLOCK_TABLE) {
            at[t] = end;
            end += memory_input_bytes(s, t) * (step_table_grouped(t) ? groups : 1);
        }
    at[STEP_BLOCK_TABLE] = end;
    return end + memory_input_bytes(s, STEP_BLOCK_TABLE) * groups;
}

uint64_t memory_exchange_bytes(const StepShape *widest, uint32_t vocab, uint64_t *edits_at)
{
    *edits_at = aligned(widest->max_outs * sizeof(SamplePick), 64);
    return *edits_at + aligned(step_max_edits(widest->max_outs, vocab, widest->max_len) * sizeof(SampleEdit), 64);
}

uint32_t memory_padding(const Plan *p)
{
    return strcmp(p->families->target->vendor, "cpu") != 0;
}

void memory_groups(const Instance *in, const StepShape *widest, uint32_t kv_blocks, KvGroup out[KV_MAX_GROUPS])
{
    for (uint32_t g = 0; g < in->n_kv_groups; g++)
        out[g] = (KvGroup){.window = in->kv_windows[g],
                           .blocks = kv_group_pool(in->kv_windows[g], kv_blocks, widest->max_seqs, widest->max_rows)};
}

Status memory_state_bytes(const InstanceState *s, uint32_t part, uint32_t count, uint64_t *bytes, Err *err)
{
    const InstanceStatePart *p = &s->parts[part];
    uint64_t one;

    if (!dtype_row_bytes(s->format, (uint64_t)p->heads * p->width, &one) ||
        __builtin_mul_overflow(one, (uint64_t)(s->kind == STATE_PAGED ? KV_BLOCK_TOKENS : 1), &one) ||
        __builtin_mul_overflow(one, (uint64_t)count, bytes))
        return err_set(err, ST_INVALID, "state %s.%s: %u of them do not fit in memory arithmetic; ask for fewer",
                       s->name, p->name, count);
    *bytes = aligned(*bytes, 256);
    return ST_OK;
}

uint64_t memory_rope_bytes(const RopeSpec *r, uint32_t max_len)
{
    return aligned((uint64_t)max_len * (r->dims / 2) * 2 * sizeof(float), 256);
}

Status memory_predict(MemoryPlan *out, const Plan *const *plans, size_t n_plans, uint32_t kv_blocks, Err *err)
{
    Status st = ST_OK;
    const Instance *in = plans[0]->instance;
    MemoryPlan m = {0};
    LoadPlan *lp = NULL;
    StepShape most = plans[0]->shape;

    TRY(load_plan_new(&lp, plans, n_plans, err));
    m.weights = lp->bytes;
    m.converted = lp->converted;
    for (size_t i = 0; i < n_plans; i++) {
        m.activations = plans[i]->arena_bytes > m.activations ? plans[i]->arena_bytes : m.activations;
        shape_widen(&most, &plans[i]->shape);
    }
    const uint32_t pad = memory_padding(plans[0]);
    m.n_groups = in->n_kv_groups;
    memory_groups(in, &most, kv_blocks, m.groups);
    for (uint32_t l = 0; l < in->n_layers; l++) {
        const InstanceBlock *b = &in->blocks[in->layers[l].block];
        for (uint32_t s = 0; s < b->n_states; s++)
            for (uint32_t p = 0; p < b->states[s].n_parts; p++) {
                const InstanceState *state = &b->states[s];
                const bool paged = state->kind == STATE_PAGED;
                const uint32_t group = paged ? instance_kv_group(in, state) : 0;
                uint64_t bytes, one = 0;
                TRY(memory_state_bytes(state, p, pad + (paged ? m.groups[group].blocks : most.max_seqs), &bytes, err));
                dtype_row_bytes(state->format, (uint64_t)state->parts[p].heads * state->parts[p].width, &one);
                *(paged ? &m.kv : &m.states) += bytes;
                *(paged ? &m.group_bytes[group] : &m.state_bytes) += one * (paged ? KV_BLOCK_TOKENS : 1);
                m.kv_block_bytes += paged ? one * KV_BLOCK_TOKENS : 0;
            }
    }
    for (uint32_t i = 0; i < in->n_ropes; i++)
        m.tables += memory_rope_bytes(&in->ropes[i], most.max_len);
    uint64_t places[STEP_TABLES], edits_at;
    int64_t vocab = 0;
    instance_dim(in, "vocab", &vocab);
    m.inputs =
        memory_input_places(&most, m.n_groups, places) + memory_exchange_bytes(&most, (uint32_t)vocab, &edits_at);
    m.total = m.weights + m.kv + m.states + m.activations + m.tables + m.inputs;
    *out = m;
done:
    load_plan_free(lp);
    return st;
}

Status memory_fit(uint32_t *kv_blocks, const Plan *const *plans, size_t n_plans, uint64_t free, uint64_t total,
                  Err *err)
{
    const uint64_t margin = total / 20 + MARGIN_BYTES, budget = free > margin ? free - margin : 0;
    StepShape most = plans[0]->shape;
    MemoryPlan m;
    Status st = ST_OK;

    for (size_t i = 1; i < n_plans; i++)
        shape_widen(&most, &plans[i]->shape);
    const uint64_t wanted = (uint64_t)most.max_seqs * shape_max_blocks(&most), cap = INT32_MAX / KV_BLOCK_TOKENS;
    uint32_t lo = 0, hi = (uint32_t)(wanted < cap ? wanted : cap); /* lo fits, or is 0 */

    TRY(memory_predict(&m, plans, n_plans, hi, err));
    if (m.total <= budget)
        lo = hi;
    /* A group with a window stops growing, so the total is no straight line in the blocks; but it never falls. The first
     * guess is the line's, and then halves. */
    for (uint32_t tries = 0; lo < hi && tries < 40 && hi - lo > 1; tries++) {
        const uint64_t over = m.total > budget ? m.total - budget : 0;
        uint32_t mid = lo + (hi - lo) / 2;
        if (tries == 0 && m.kv_block_bytes > 0 && over / m.kv_block_bytes + 1 < hi)
            mid = hi - (uint32_t)(over / m.kv_block_bytes) - 1;
        TRY(memory_predict(&m, plans, n_plans, mid, err));
        *(m.total <= budget ? &lo : &hi) = mid;
    }
    if (lo == 0)
        TRY(err_set(
            err, ST_DEVMEM,
            "memory: %llu bytes are needed without any KV cache to speak of, and %llu of %llu are free, of which "
            "%llu stay so; set --kv-tokens, or lower --max-rows and --max-seqs",
            (unsigned long long)(m.total - m.kv), (unsigned long long)free, (unsigned long long)total,
            (unsigned long long)margin));
    *kv_blocks = lo;
done:
    return st;
}
