/* buffers: no two live values share a byte. Two proofs by brute force on random input: of placing alone, and of whole
 * plans, which are run on a memory that remembers, for each byte, which value was written there last. */
#include "circuit/lowering.h"
#include "lower_fixture.h"

static uint32_t random_u32(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static void place(BufferValue *v, uint32_t n, uint64_t home, uint64_t *bytes)
{
    Err err = {{0}};

    if (buffers_place(v, n, home, bytes, &err) != ST_OK)
        fail_msg("%s", err.msg);
}

static void buffers__random_lives_never_overlap_and_stay_inside_the_arena(void **state)
{
    uint64_t seed = 7;

    (void)state;
    for (int round = 0; round < 300; round++) {
        BufferValue v[40] = {{0}};
        uint32_t n = 1 + random_u32(&seed) % 40;
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < n; i++) {
            v[i] = (BufferValue){.bytes = 1 + random_u32(&seed) % 1000, .alias = -1};
            v[i].first = (int32_t)(random_u32(&seed) % 20);
            v[i].last = v[i].first + (int32_t)(random_u32(&seed) % 6);
        }
        place(v, n, 100, &bytes);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(v[i].offset % LOWER_ALIGN, 0);
            assert_true(v[i].offset + v[i].bytes <= bytes);
            for (uint32_t j = 0; j < i; j++)
                if (v[i].first <= v[j].last && v[j].first <= v[i].last)
                    assert_true(v[i].offset + v[i].bytes <= v[j].offset || v[j].offset + v[j].bytes <= v[i].offset);
        }
    }
}

static void buffers__values_that_live_one_after_the_other_share_memory(void **state)
{
    BufferValue v[] = {{.bytes = 640, .first = 0, .last = 1, .alias = -1},
                       {.bytes = 640, .first = 2, .last = 3, .alias = -1},
                       {.bytes = 640, .first = 4, .last = 4, .alias = -1}};
    uint64_t bytes = 0;

    (void)state;
    place(v, 3, 0, &bytes);
    assert_int_equal(bytes, 640);
}

static void buffers__the_tightest_gap_is_taken(void **state)
{
    /* At step 1 gaps of 256 and 128 bytes stand open between values that live on; 128 bytes go into the second. */
    BufferValue v[] = {{.bytes = 1024, .first = 0, .last = 2, .alias = -1},
                       {.bytes = 256, .first = 0, .last = 0, .alias = -1},
                       {.bytes = 512, .first = 0, .last = 2, .alias = -1},
                       {.bytes = 128, .first = 0, .last = 0, .alias = -1},
                       {.bytes = 128, .first = 1, .last = 1, .alias = -1}};
    uint64_t bytes = 0;

    (void)state;
    place(v, 5, 0, &bytes);
    assert_int_equal(bytes, 1024 + 512 + 256 + 128);
    assert_true(v[4].offset == v[3].offset || v[4].offset == v[1].offset);
}

static void buffers__home_is_at_zero_and_lends_itself_between_two_values(void **state)
{
    BufferValue v[] = {{.bytes = 512, .first = -1, .last = 1, .alias = -1, .home = true},
                       {.bytes = 512, .first = 2, .last = 3, .alias = -1},
                       {.bytes = 512, .first = 4, .last = 5, .alias = -1, .home = true}};
    uint64_t bytes = 0;

    (void)state;
    place(v, 3, 512, &bytes);
    assert_int_equal(v[0].offset, 0);
    assert_int_equal(v[1].offset, 0);
    assert_int_equal(v[2].offset, 0);
    assert_int_equal(bytes, 512);
}

static void buffers__two_home_values_at_one_time_are_refused(void **state)
{
    BufferValue v[] = {{.bytes = 64, .first = -1, .last = 3, .alias = -1, .home = true},
                       {.bytes = 64, .first = 3, .last = 4, .alias = -1, .home = true}};
    uint64_t bytes = 0;
    Err err = {{0}};

    (void)state;
    assert_int_equal(buffers_place(v, 2, 64, &bytes, &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "overwritten while its old value is still read"));
}

static void buffers__sizes_beyond_the_address_space_are_refused(void **state)
{
    BufferValue v[] = {{.bytes = UINT64_C(1) << 62, .first = 0, .last = 1, .alias = -1},
                       {.bytes = UINT64_C(1) << 62, .first = 0, .last = 1, .alias = -1},
                       {.bytes = UINT64_C(1) << 62, .first = 0, .last = 1, .alias = -1}};
    uint64_t bytes = 0;
    Err err = {{0}};

    (void)state;
    assert_int_equal(buffers_place(v, 3, 64, &bytes, &err), ST_INVALID);
    v[0].bytes = UINT64_MAX;
    assert_int_equal(buffers_place(v, 1, 64, &bytes, &err), ST_INVALID);
}

/* ---- whole plans on a memory that remembers --------------------------------------------------------------------- */

typedef struct Memory {
    uint32_t *owner; /* of each byte: the value written there last */
    uint64_t bytes;
    const StepShape *shape;
    const FamilySet *fs;
    uint32_t scratch; /* the tag of workspaces, fresh for each */
} Memory;

static const InstanceNode *node_of(const InstanceBlock *b, const char *id)
{
    for (uint32_t i = 0; i < b->n_nodes; i++)
        if (strcmp(b->nodes[i].id, id) == 0)
            return &b->nodes[i];
    fail_msg("no node %s", id);
    return NULL;
}

/* The edge's format, as a reader of families sees it. */
static uint64_t edge_bytes(const Memory *m, const InstanceBlock *b, uint32_t edge, const PlanStep *s, const char *var)
{
    DType f = family_format(s->family, var);
    uint64_t row = 0;
    uint32_t rows = s->on_outputs && b->edges[edge].producer >= 0 && b->nodes[b->edges[edge].producer].op->on_outputs
                        ? m->shape->max_outs
                        : m->shape->max_rows;

    assert_true(dtype_row_bytes(f == DT_NONE ? m->fs->facts.activation : f, b->edges[edge].width, &row));
    return row * rows;
}

static void touch(Memory *m, uint64_t offset, uint64_t bytes, uint32_t value, bool write, const char *what)
{
    assert_true(offset + bytes <= m->bytes);
    for (uint64_t i = offset; i < offset + bytes; i++) {
        if (write)
            m->owner[i] = value;
        else if (m->owner[i] != value)
            fail_msg("%s reads a byte that another value wrote", what);
    }
}

/* Values are numbered base + edge. Every step here is of a one-op family, so arguments are bound to its variables. */
static void run_block(Memory *m, const PlanBlock *pb, uint32_t base)
{
    const InstanceBlock *b = pb->source;

    for (uint32_t i = 0; i < pb->n_steps; i++) {
        const PlanStep *s = &pb->steps[i];
        const InstanceNode *node = node_of(b, s->nodes[0]);
        uint64_t end[OP_MAX_OUT] = {0};
        assert_int_equal(s->n_nodes, 1);
        for (uint32_t a = 0; a < s->n_args; a++) { /* inputs are all read before an output is written */
            const char *var = s->family->args[a].binding;
            if (strncmp(var, "in", 2) != 0 || s->args[a].kind != ARG_BUFFER)
                continue;
            uint32_t edge = node->in[var[2] ? var[2] - '0' : 0];
            touch(m, s->args[a].offset, edge_bytes(m, b, edge, s, var), base + edge, false, node->id);
        }
        for (uint32_t a = 0; a < s->n_args; a++) {
            const char *var = s->family->args[a].binding;
            int64_t bytes;
            if (strcmp(var, "workspace") == 0 && s->args[a].kind == ARG_BUFFER) {
                Err err = {{0}};
                assert_int_equal(plan_eval(s, s->point->workspace, m->shape->max_rows, m->shape->max_outs,
                                           m->shape->max_seqs, &bytes, &err),
                                 ST_OK);
                touch(m, s->args[a].offset, (uint64_t)bytes, --m->scratch, true, node->id);
            }
            if (strncmp(var, "out", 3) != 0 || s->args[a].kind != ARG_BUFFER)
                continue;
            uint32_t slot = var[3] ? (uint32_t)(var[3] - '0') : 0, edge = node->out[slot];
            touch(m, s->args[a].offset, edge_bytes(m, b, edge, s, var), base + edge, true, node->id);
            end[slot] = s->args[a].offset + 1;
        }
        for (uint32_t o = 0; o < node->op->n_out; o++) { /* outputs of one launch do not overlap, nor its workspace */
            char var[8];
            snprintf(var, sizeof var, node->op->n_out == 1 ? "out" : "out%u", o);
            assert_true(end[o] > 0);
            touch(m, end[o] - 1, edge_bytes(m, b, node->out[o], s, var), base + node->out[o], false, node->id);
        }
    }
}

/* The residual stream passes from block to block at offset 0. */
static void rename_home(Memory *m, uint64_t bytes, uint32_t from, uint32_t to)
{
    touch(m, 0, bytes, from, false, "the next block");
    touch(m, 0, bytes, to, true, "");
}

static void run_plan(const Plan *p)
{
    const Instance *in = p->instance;
    const PlanBlock *pb = &p->stem;
    Memory m = {.owner = calloc(p->arena_bytes, sizeof *m.owner),
                .bytes = p->arena_bytes,
                .shape = &p->shape,
                .fs = p->families,
                .scratch = UINT32_MAX};
    uint64_t home = (uint64_t)HIDDEN * 4 * p->shape.max_rows;
    uint32_t base = 1, next;

    assert_non_null(m.owner);
    run_block(&m, pb, base);
    for (uint32_t i = 0; i <= in->n_layers; i++) {
        const PlanBlock *nb = i < in->n_layers ? &p->blocks[in->layers[i].block] : &p->head;
        next = base + 1000;
        rename_home(&m, home, base + pb->source->out_edge, next + nb->source->in_edge);
        pb = nb;
        base = next;
        run_block(&m, pb, base);
    }
    touch(&m, p->logits_offset, (uint64_t)VOCAB * 4 * p->shape.max_outs, base + p->head.source->out_edge, false,
          "the sampler");
    free(m.owner);
}

static void buffers__a_dense_model_runs_without_a_clobbered_value(void **state)
{
    static const char *const variants[] = {F_ALL, F_EMBED F_NORM("inplace = [\"out=in\"]\n") F_ADD("")
                                                      F_SILU F_QUANT F_ROPE F_KV F_ATTN F_LINEAR F_HEAD};
    Model *m = fix_model(DT_Q4_1, DT_F32);

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        Kernels *k = fix_cpu(variants[i], NULL);
        FamilySet *fs = fix_load(k);
        Plan *a = fix_lower(&m->in, fs, fix_decode(1)), *b = fix_lower(&m->in, fs, fix_extend(7));
        run_plan(a);
        run_plan(b);
        plan_free(a);
        plan_free(b);
        families_free(fs);
        fix_kernels_free(k);
    }
    free(m);
}

/* A random block over adds, norms, gates, quantized linears: any earlier value may be read again. It ends with an add,
 * as residual streams do. */
static InstanceBlock random_block(Block *b, uint64_t *seed)
{
    static const char *const ids[] = {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11"};
    uint32_t n = 2 + random_u32(seed) % 9, x = fix_edge(b, "x", HIDDEN), edges[16] = {x}, n_edges = 1, last;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t p = edges[random_u32(seed) % n_edges], q = edges[random_u32(seed) % n_edges], out;
        switch (random_u32(seed) % 4) {
        case 0:
            out = fix_norm(b, ids[i], p);
            break;
        case 1:
            out = fix_add(b, ids[i], p, q);
            break;
        case 2:
            out = fix_edge(b, ids[i], HIDDEN);
            fix_node(b, ids[i], OP_SILU_MUL, (uint32_t[]){p, q}, &out);
            break;
        default:
            out = fix_linear(b, ids[i], p, HIDDEN, DT_Q4_1);
        }
        edges[n_edges++] = out;
    }
    last = fix_add(b, ids[n], random_u32(seed) % 2 ? x : edges[n_edges - 2], edges[n_edges - 1]);
    return fix_block(b, "random", x, last);
}

static void buffers__random_blocks_run_without_a_clobbered_value(void **state)
{
    static const char *const variants[] = {
        F_ALL, F_EMBED F_NORM("") F_ADD("") F_SILU F_QUANT F_ROPE F_KV F_ATTN F_LINEAR F_HEAD,
        F_EMBED F_NORM("inplace = [\"out=in\"]\n") F_ADD("inplace = [\"out=in0\", \"out=in1\"]\n")
            F_SILU F_QUANT F_ROPE F_KV F_ATTN F_LINEAR F_HEAD};
    uint32_t refused = 0, ran = 0;
    uint64_t seed = 42;

    (void)state;
    for (int round = 0; round < 400; round++) {
        Model *m = fix_model(DT_Q4_1, DT_F32);
        Kernels *k = fix_cpu(variants[round % 3], NULL);
        FamilySet *fs = fix_load(k);
        LowerOptions opt = fix_extend(3);
        Plan *p = NULL;
        Err err = {{0}};
        Status st;
        memset(&m->layer, 0, sizeof m->layer);
        m->blocks[0] = random_block(&m->layer, &seed);
        st = plan_lower(&p, &m->in, fs, &opt, &err);
        if (st == ST_OK) {
            run_plan(p);
            ran++;
        } else { /* the one reason: x is read by the very add that makes the result */
            const InstanceNode *end = &m->layer.nodes[m->layer.n_nodes - 1];
            assert_true(end->in[0] == m->blocks[0].in_edge || end->in[1] == m->blocks[0].in_edge);
            if (strstr(err.msg, "residual stream would be overwritten") == NULL)
                fail_msg("%s", err.msg);
            refused++;
        }
        plan_free(p);
        families_free(fs);
        fix_kernels_free(k);
        free(m);
    }
    assert_true(ran > 200);
    assert_true(refused > 0);
}

static void buffers__a_result_that_cannot_come_home_is_refused_with_the_remedy(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *plain = fix_cpu(F_EMBED F_NORM("") F_ADD("") F_SILU F_QUANT F_ROPE F_KV F_ATTN F_LINEAR F_HEAD, NULL),
            *inplace = fix_cpu(F_ALL, NULL);
    FamilySet *plain_fs = fix_load(plain), *inplace_fs = fix_load(inplace);
    uint32_t x, out;
    Plan *p;

    (void)state;
    memset(&m->layer, 0, sizeof m->layer);
    x = fix_edge(&m->layer, "x", HIDDEN);
    out = fix_add(&m->layer, "add", x, fix_norm(&m->layer, "norm", x));
    m->blocks[0] = fix_block(&m->layer, "one", x, out);
    fix_lower_fails(&m->in, plain_fs, fix_decode(1), "give the family of its last node inplace");
    p = fix_lower(&m->in, inplace_fs, fix_decode(1));
    run_plan(p);
    plan_free(p);
    families_free(plain_fs);
    families_free(inplace_fs);
    fix_kernels_free(plain);
    fix_kernels_free(inplace);
    free(m);
}

static void buffers__an_output_in_place_takes_its_input_s_bytes(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k);
    Plan *p = fix_lower(&m->in, fs, fix_decode(1));
    const PlanStep *act = fix_step(&p->blocks[0], "act"), *rope = fix_step(&p->blocks[0], "rope");

    (void)state;
    assert_int_equal(fix_arg(act, "y")->offset, fix_arg(act, "g")->offset);
    assert_int_equal(fix_arg(rope, "yq")->offset, fix_arg(rope, "q")->offset);
    assert_int_equal(fix_arg(fix_step(&p->blocks[0], "attn_add"), "y")->offset, 0);
    assert_int_equal(fix_arg(fix_step(&p->blocks[0], "mlp_add"), "y")->offset, 0);
    plan_free(p);
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers__random_lives_never_overlap_and_stay_inside_the_arena),
        cmocka_unit_test(buffers__values_that_live_one_after_the_other_share_memory),
        cmocka_unit_test(buffers__the_tightest_gap_is_taken),
        cmocka_unit_test(buffers__home_is_at_zero_and_lends_itself_between_two_values),
        cmocka_unit_test(buffers__two_home_values_at_one_time_are_refused),
        cmocka_unit_test(buffers__sizes_beyond_the_address_space_are_refused),
        cmocka_unit_test(buffers__a_dense_model_runs_without_a_clobbered_value),
        cmocka_unit_test(buffers__random_blocks_run_without_a_clobbered_value),
        cmocka_unit_test(buffers__a_result_that_cannot_come_home_is_refused_with_the_remedy),
        cmocka_unit_test(buffers__an_output_in_place_takes_its_input_s_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
