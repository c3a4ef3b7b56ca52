/* cover.c - the cheapest exact cover of a block by matches, by dynamic programming over downsets.
 *
 * A state is the set of nodes covered so far. It is always a downset of the block's order (whatever a covered node
 * needs is covered), so launching the chosen groups one after another is a valid program. A move is a match whose
 * nodes are all uncovered and whose union with the state is again a downset. best(S) = min over moves of cost +
 * best(S + move), remembered for each S; a real block has few downsets, since it is nearly a chain.
 *
 * Cost is kept as two whole numbers, bytes and launches, and weighed only to compare: the sums do not depend on the
 * order of addition, so that the choice is the same on every machine. Ties go to fewer launches, then to the match
 * that comes first (lowest node, then file order). */
#include "circuit/lowering.h"
#include "core/str.h"
#include <stdlib.h>
#include <string.h>

typedef struct State {
    uint64_t set; /* the key; the full set is never stored, hence ~0 marks a free slot */
    uint64_t bytes;
    int32_t move; /* index of the best match, -1: no cover from here */
    uint32_t launches;
} State;

typedef struct Search {
    const Lowering *l;
    const LowerBlock *b;
    Match **matches;
    uint32_t n_matches;
    uint64_t full, deepest; /* deepest: the state with most nodes covered */
    State *states;
    size_t n_states, cap; /* cap is a power of two */
} Search;

static size_t slot_of(const Search *s, uint64_t set)
{
    size_t i = (size_t)((set * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (s->cap - 1);

    while (s->states[i].set != UINT64_MAX && s->states[i].set != set)
        i = (i + 1) & (s->cap - 1);
    return i;
}

static bool table_new(Search *s, size_t cap)
{
    s->states = malloc(cap * sizeof *s->states);
    s->cap = cap;
    for (size_t i = 0; s->states != NULL && i < cap; i++)
        s->states[i] = (State){.set = UINT64_MAX};
    return s->states != NULL;
}

static Status remember(Search *s, const State *state, Err *err)
{
    if (s->n_states >= COVER_MAX_STATES)
        return err_set(err, ST_UNSUPPORTED,
                       "block %s has more than %d orders of covering its nodes; split it in the "
                       "circuit",
                       s->b->block->name, COVER_MAX_STATES);
    if (2 * (s->n_states + 1) > s->cap) {
        Search bigger = *s;
        if (!table_new(&bigger, 2 * s->cap))
            return lower_no_memory(err);
        for (size_t i = 0; i < s->cap; i++)
            if (s->states[i].set != UINT64_MAX)
                bigger.states[slot_of(&bigger, s->states[i].set)] = s->states[i];
        free(s->states);
        *s = bigger;
    }
    s->states[slot_of(s, state->set)] = *state;
    s->n_states++;
    return ST_OK;
}

static double cost(const Search *s, uint64_t bytes, uint32_t launches)
{
    return (double)bytes / s->l->fs->facts.bandwidth + launches * s->l->fs->facts.launch_s;
}

static bool better(const Search *s, const State *a, const State *b)
{
    double ca, cb;

    if (b->move < 0)
        return true;
    ca = cost(s, a->bytes, a->launches);
    cb = cost(s, b->bytes, b->launches);
    return ca != cb ? ca < cb : a->launches < b->launches;
}

static Status best_from(Search *s, uint64_t set, State *out, Err *err)
{
    Status st = ST_OK;
    size_t i;

    *out = (State){.set = set, .move = -1};
    if (set == s->full)
        return ST_OK;
    i = slot_of(s, set);
    if (s->states[i].set == set) {
        *out = s->states[i];
        return ST_OK;
    }
    if (__builtin_popcountll(set) > __builtin_popcountll(s->deepest))
        s->deepest = set;
    for (uint32_t m = 0; m < s->n_matches; m++) {
        const Match *match = s->matches[m];
        State rest;
        if ((match->mask & set) != 0 || (match->before & ~set) != 0)
            continue;
        TRY(best_from(s, set | match->mask, &rest, err));
        if (rest.set != s->full && rest.move < 0)
            continue;
        rest =
            (State){.set = set, .bytes = rest.bytes + match->moved, .launches = rest.launches + 1, .move = (int32_t)m};
        if (better(s, &rest, out))
            *out = rest;
    }
    TRY(remember(s, out, err));
done:
    return st;
}

/* ---- refusal ---------------------------------------------------------------------------------------------------- */

void lower_say_formats(const LowerBlock *b, const InstanceNode *node, Str *out)
{
    const char *sep = "";

    for (uint32_t w = 0; w < node->op->n_weights; w++)
        if (node->weight[w] >= 0) {
            const InstanceWeight *weight = &b->block->weights[node->weight[w]];
            str_addf(out, "%s%s %s", sep, node->op->weights[w].name,
                     weight->vector ? "f32" : dtype_name(weight->stored));
            sep = ", ";
        }
    for (uint32_t i = 0; i < node->op->n_in; i++, sep = ", ")
        str_addf(out, "%sin %s", sep, dtype_name(b->formats[node->in[i]]));
    if (node->state >= 0) {
        str_addf(out, "%sstate %s", sep, dtype_name(b->block->states[node->state].format));
        sep = ", ";
    }
    for (uint32_t i = 0; i < node->op->n_out; i++, sep = ", ")
        str_addf(out, "%sout %s", sep, dtype_name(b->formats[node->out[i]]));
    for (uint32_t p = 0; p < node->op->n_params; p++)
        if (!node->op->params[p].required && node->param[p] != node->op->params[p].default_value)
            str_addf(out, ", %s %g", node->op->params[p].name, node->param[p]);
}

static Status refuse(const Search *s, Err *err)
{
    const StepShape *shape = &s->l->opt->shape;
    const InstanceNode *node;
    uint64_t coverable = 0, missing;
    uint32_t lo, hi;
    Str formats = STR_INIT;
    Status st;

    for (uint32_t m = 0; m < s->n_matches; m++)
        coverable |= s->matches[m]->mask;
    missing = s->full & ~coverable;
    node = &s->b->block->nodes[__builtin_ctzll(missing != 0 ? missing : s->full & ~s->deepest)];
    lower_shape_rows(shape, node->op->on_outputs, &lo, &hi);
    lower_say_formats(s->b, node, &formats);
    if (missing != 0)
        st = err_set(err, ST_UNSUPPORTED,
                     "no family of class %s covers op %s (node %s of block %s: %s) at rows %u..%u; add "
                     "one to FAMILIES.toml of target %s",
                     s->l->fs->facts.name, node->op->name, node->id, s->b->block->name, str_c(&formats), lo, hi,
                     s->l->fs->target->name);
    else
        st = err_set(err, ST_UNSUPPORTED,
                     "the rules of class %s cover each op of block %s, but none of their choices "
                     "covers all of them together: op %s (node %s: %s) is left over at rows %u..%u; add "
                     "a family for it alone to FAMILIES.toml of target %s",
                     s->l->fs->facts.name, s->b->block->name, node->op->name, node->id, str_c(&formats), lo, hi,
                     s->l->fs->target->name);
    str_release(&formats);
    return st;
}

Status cover_block(const Match ***steps, uint32_t *n_steps, const Lowering *l, const LowerBlock *b, Match **matches,
                   uint32_t n_matches, Err *err)
{
    const uint32_t n = b->block->n_nodes;
    Search s = {.l = l,
                .b = b,
                .matches = matches,
                .n_matches = n_matches,
                .full = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1};
    const Match **list = ARENA_ARRAY(l->arena, const Match *, n);
    State best;
    Status st = ST_OK;

    *n_steps = 0;
    if (list == NULL || !table_new(&s, 256))
        return lower_no_memory(err);
    TRY(best_from(&s, 0, &best, err));
    if (n > 0 && best.move < 0)
        TRY(refuse(&s, err));
    for (uint64_t set = 0; set != s.full; set |= list[*n_steps - 1]->mask) {
        TRY(best_from(&s, set, &best, err));
        list[(*n_steps)++] = matches[best.move];
    }
    *steps = list;
done:
    free(s.states);
    return st;
}
