/* cover: the search finds what trying every exact cover finds. */
#include "circuit/lowering.h"
#include "lower_fixture.h"

static uint32_t random_u32(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

#define RULE(id, family, pattern, keep)                                                                                \
    "[[rule]]\nid = \"" id "\"\nfamily = \"" family "\"\npattern = [" pattern "]\n" keep                               \
    "numerics = { kind = \"reference\" }\n"
#define FUSED(id, args)                                                                                                \
    "[[family]]\nid = \"" id "\"\nnumerics = \"f32\"\nargs = [" args "]\n" POINT(id "_1", "[1, 0]", "rows")

/* Fusions that overlap, so that the greedy choice is often wrong: norm+norm, add+norm (keeping the sum), norm+gate, and
 * two gates of one input. */
static const char families[] =
    F_EMBED F_NORM("") F_ADD(INPLACE) F_SILU F_QUANT F_ROPE F_KV F_ATTN F_LINEAR F_HEAD FUSED(
        "nn", "\"z\", \"x\", \"w:a.weight\", \"v:b.weight\", \"ea:a.eps\", \"eb:b.eps\"")
        FUSED("an", "\"s\", \"z\", \"x\", \"y\", \"w:n.weight\", \"e:n.eps\"")
            FUSED("ng", "\"z\", \"x\", \"u\", \"w:n.weight\", \"e:n.eps\"")
                FUSED("gg", "\"p\", \"q\", \"x\", \"u\", \"v\"");
static const char rules[] = RULE("nn", "nn",
                                 "{ op = \"rms_norm\", as = \"a\", in = [\"x\"], out = [\"h\"] }, { op = \"rms_norm\", "
                                 "as = \"b\", in = [\"h\"], out "
                                 "= [\"z\"] }",
                                 "") RULE("an", "an",
                                          "{ op = \"residual_add\", as = \"a\", in = [\"x\", \"y\"], out = [\"s\"] }, "
                                          "{ op = \"rms_norm\", as = \"n\", in "
                                          "= [\"s\"], out = [\"z\"] }",
                                          "keep = [\"s\"]\n")
    RULE("ng", "ng",
         "{ op = \"rms_norm\", as = \"n\", in = [\"x\"], out = [\"h\"] }, { op = \"silu_mul\", as = \"g\", in = "
         "[\"h\", \"u\"], out = [\"z\"] }",
         "")
        RULE("gg", "gg",
             "{ op = \"silu_mul\", as = \"a\", in = [\"x\", \"u\"], out = [\"p\"] }, { op = \"silu_mul\", as = \"b\", "
             "in = [\"x\", \"v\"], out = [\"q\"] }",
             "");

typedef struct Brute {
    const Lowering *l;
    const LowerBlock *b;
    Match **matches;
    uint32_t n;
    uint64_t full;
    const Match *chosen[LOWER_MAX_NODES];
    uint32_t n_chosen;
    double best;
} Brute;

/* Can the chosen groups be launched one after another? */
static bool has_order(const Brute *x)
{
    uint64_t done = 0;

    for (uint32_t round = 0; round < x->n_chosen; round++)
        for (uint32_t i = 0; i < x->n_chosen; i++)
            if ((x->chosen[i]->mask & done) == 0 && (x->chosen[i]->before & ~done) == 0)
                done |= x->chosen[i]->mask;
    return done == x->full;
}

/* Every set of disjoint matches that covers the block, by the lowest node that is still open. */
static void try_all(Brute *x, uint64_t covered, uint64_t bytes)
{
    if (covered == x->full) {
        double cost = (double)bytes / x->l->fs->facts.bandwidth + x->n_chosen * x->l->fs->facts.launch_s;
        if (cost < x->best && has_order(x))
            x->best = cost;
        return;
    }
    for (uint32_t i = 0; i < x->n; i++) {
        const Match *m = x->matches[i];
        if ((m->mask & covered) != 0 || !(m->mask >> __builtin_ctzll(~covered) & 1))
            continue;
        x->chosen[x->n_chosen++] = m;
        try_all(x, covered | m->mask, bytes + m->moved);
        x->n_chosen--;
    }
}

static InstanceBlock random_block(Block *b, uint64_t *seed)
{
    uint32_t x = fix_edge(b, "x", HIDDEN), edges[16] = {x}, n_edges = 1;

    for (int i = 0; i < 9; i++) {
        uint32_t p = edges[n_edges - 1 - random_u32(seed) % (n_edges < 3 ? n_edges : 3)],
                 q = edges[random_u32(seed) % n_edges], out;
        switch (random_u32(seed) % 5) {
        case 0:
        case 1:
            out = fix_norm(b, "norm", p);
            break;
        case 2:
            out = fix_add(b, "add", p, q);
            break;
        default:
            out = fix_edge(b, "gate", HIDDEN);
            fix_node(b, "gate", OP_SILU_MUL, (uint32_t[]){p, q}, &out);
        }
        edges[n_edges++] = out;
    }
    return fix_block(b, "random", x, edges[n_edges - 1]);
}

static void cover__is_as_cheap_as_the_best_of_all_covers(void **state)
{
    Kernels *k = fix_cpu(families, rules);
    FamilySet *fs = fix_load(k);
    uint64_t seed = 3;
    uint32_t fused = 0;

    (void)state;
    for (int round = 0; round < 200; round++) {
        Model *m = fix_model(DT_Q4_1, DT_F32);
        /* few rows: launches decide; many rows: bytes do */
        LowerOptions opt = fix_extend(round % 2 ? 1 : 5000);
        Lowering l = {.in = &m->in, .fs = fs, .opt = &opt, .arena = arena_new()};
        Block *block = calloc(1, sizeof *block);
        InstanceBlock src = random_block(block, &seed);
        LowerBlock b;
        Match **matches = NULL;
        const Match **steps = NULL;
        uint32_t n = 0, n_steps = 0;
        uint64_t bytes = 0, done = 0;
        Err err = {{0}};
        Brute x = {.l = &l, .b = &b, .best = 1e9};

        assert_non_null(l.arena);
        assert_int_equal(quantize_block(&b, &l, &src, BLOCK_LAYER, &err), ST_OK);
        assert_int_equal(match_all(&matches, &n, &l, &b, &err), ST_OK);
        if (cover_block(&steps, &n_steps, &l, &b, matches, n, &err) != ST_OK)
            fail_msg("%s", err.msg);
        for (uint32_t i = 0; i < n_steps; i++) {
            assert_int_equal(steps[i]->mask & done, 0);
            assert_int_equal(steps[i]->before & ~done, 0);
            done |= steps[i]->mask;
            bytes += steps[i]->moved;
            fused += steps[i]->rule->n_nodes > 1;
        }
        x.matches = matches;
        x.n = n;
        x.full = (UINT64_C(1) << b.block->n_nodes) - 1;
        assert_int_equal(done, x.full);
        try_all(&x, 0, 0);
        double cost = (double)bytes / fs->facts.bandwidth + n_steps * fs->facts.launch_s;
        if (cost > x.best * (1 + 1e-12)) /* the two sums round alike but for the last bit */
            fail_msg("round %d: cost %.9g, best %.9g", round, cost, x.best);
        free(matches);
        arena_free(l.arena);
        free(block);
        free(m);
    }
    assert_true(fused > 200);
    families_free(fs);
    fix_kernels_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cover__is_as_cheap_as_the_best_of_all_covers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
