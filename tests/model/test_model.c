/* The executor's contract: memory as predicted, steps checked, launches as the plan says, failures clean. */
#include "support/open_model.h"

#include "model/load.h"
#include "support/played_driver.h"

static const ModelOptions options = {
    .max_rows = 32, .max_outs = 32, .max_seqs = 4, .max_len = 64, .kv_blocks = 8, .batch_invariant = true};

typedef struct OneStep {
    int32_t tokens[32], positions[32], slots[32], row_seq[32], start[5], table[4 * 4], outs[32];
    StepInput in;
} OneStep;

/* n tokens of one sequence from position 0 in blocks 0.., all rows out. */
static void one_sequence(OneStep *s, uint32_t n)
{
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < n; i++) {
        s->tokens[i] = (int32_t)(i * 7 % 96);
        s->positions[i] = s->slots[i] = s->outs[i] = (int32_t)i;
    }
    for (int i = 0; i < 4; i++)
        s->table[i] = i;
    s->start[1] = (int32_t)n;
    s->in = (StepInput){n,        1,        n,       s->tokens, s->positions, s->slots, s->row_seq,
                        s->start, s->table, s->outs, NULL,      NULL,         NULL,     0};
}

static void model__allocates_what_it_predicted(void **state)
{
    (void)state;
    GpuBackend *mock;
    Err e;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &options, mock);
    const MemoryPlan *p = model_memory(m.model);
    assert_int_equal(gpu_mock_bytes(mock), p->total);
    assert_int_equal(p->total, p->weights + p->kv + p->states + p->activations + p->tables + p->inputs);
    assert_int_equal(p->states, 0);
    /* 2 layers x (k, v) x 2 heads of 32 x bf16 = 512 bytes a token */
    assert_int_equal(p->kv_block_bytes, 512 * 16);
    assert_int_equal(p->kv, p->kv_block_bytes * options.kv_blocks);
    model_free(m.model);
    m.model = NULL;
    assert_int_equal(gpu_mock_bytes(mock), 0);
    close_model(&m);
}

static void model__kv_pools_take_what_memory_allows_and_sequences_can_use(void **state)
{
    (void)state;
    static const char *const models[] = {"oracles/llama", "oracles/gpt_oss", "oracles/gemma3"};
    const uint64_t total = UINT64_C(40) << 30, margin = total / 20 + (UINT64_C(1) << 30);
    ModelOptions fitted = options;
    Err e;

    fitted.kv_blocks = 0;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        GpuBackend *mock;
        assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
        OpenModel m = open_model(models[i], "avx2", DT_BF16, &fitted, mock);
        const Plan *plans[4] = {model_plan(m.model, 1), model_plan(m.model, 2), model_plan(m.model, 4),
                                model_plan(m.model, 0)};
        MemoryPlan p;
        uint32_t blocks = 0;

        /* a device with room for all: 4 sequences of 64 tokens */
        assert_int_equal(model_options(m.model)->kv_blocks, 16);
        assert_int_equal(gpu_mock_bytes(mock), model_memory(m.model)->total);
        for (uint32_t n = 1; n <= 16; n++) { /* exactly room for n, and a byte less */
            assert_int_equal(memory_predict(&p, plans, 4, n, &e), ST_OK);
            const uint64_t need = p.total + margin;
            assert_int_equal(memory_fit(&blocks, plans, 4, need, total, &e), ST_OK);
            assert_int_equal(memory_predict(&p, plans, 4, blocks, &e), ST_OK);
            assert_true(blocks >= n && p.total + margin <= need);
            if (memory_fit(&blocks, plans, 4, need - 1, total, &e) == ST_OK) {
                assert_true(blocks < n);
            } else
                assert_int_equal(n, 1);
        }
        assert_int_equal(memory_fit(&blocks, plans, 4, margin, total, &e), ST_DEVMEM);
        assert_non_null(strstr(e.msg, "--kv-tokens"));
        close_model(&m);
    }
}

static uint64_t tick(Clock *c)
{
    ClockFake *f = (ClockFake *)(void *)c;
    return f->ns += 1000;
}

static void model__says_what_its_start_took(void **state)
{
    (void)state;
    ModelOptions timed = options;
    ClockFake clock;

    clock_fake_init(&clock);
    clock.base.now_ns = tick;
    timed.clock = &clock.base;
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &timed, NULL);
    assert_int_equal(model_times(m.model)->plan_ns, 1000);
    assert_int_equal(model_times(m.model)->load_ns, 1000);
    assert_int_equal(model_times(m.model)->bind_ns, 1000);
    close_model(&m);
}

/* Three layers with a convolution of 3 x 256 and 4 heads of 32 x 32, one with k and v of 2 heads of 32 elements in bf16. */
static void model__keeps_a_recurrent_state_for_each_sequence(void **state)
{
    (void)state;
    GpuBackend *mock;
    Err e;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/qwen3_5", "avx2", DT_BF16, &options, mock);
    const MemoryPlan *p = model_memory(m.model);
    assert_int_equal(gpu_mock_bytes(mock), p->total);
    assert_int_equal(p->state_bytes, 3 * 4 * (3 * 256 + 4 * 32 * 32));
    assert_int_equal(p->states, p->state_bytes * options.max_seqs);
    assert_int_equal(p->kv_block_bytes, 2 * 2 * 32 * 2 * 16);
    close_model(&m);
}

/* gpt-oss: 4 layers, each second one with a window of 8; a token takes 2 x 2 heads of 32 x bf16 = 256 bytes a layer. */
static void model__window_layers_keep_their_window_only(void **state)
{
    (void)state;
    ModelOptions o = options;
    GpuBackend *mock;
    Err e;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    o.kv_blocks = 100;
    o.max_len = 1600;
    OpenModel m = open_model("oracles/gpt_oss", "avx2", DT_BF16, &o, mock);
    const MemoryPlan *p = model_memory(m.model);
    assert_int_equal(gpu_mock_bytes(mock), p->total);
    assert_int_equal(p->n_groups, 2);
    assert_true(p->groups[0].window == 0 && p->groups[0].blocks == 100);
    assert_int_equal(p->groups[1].window, 8);
    assert_int_equal(p->groups[1].blocks, (4 * (8 + 13) + 32) / 16 + 4); /* 4 sequences that share 32 rows */
    assert_int_equal(p->group_bytes[0], 2 * 256 * 16);
    assert_int_equal(p->group_bytes[1], 2 * 256 * 16);
    assert_int_equal(p->kv, (100 + 11) * 2 * 256 * 16);
    assert_int_equal(model_max_tokens(m.model), 1600);
    close_model(&m);

    /* Each layer has a window: the pool bounds no sequence. */
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    o.kv_blocks = 3;
    m = open_model("oracles/mistral", "avx2", DT_BF16, &o, mock);
    p = model_memory(m.model);
    assert_int_equal(gpu_mock_bytes(mock), p->total);
    assert_true(p->n_groups == 1 && p->groups[0].blocks == 3);
    assert_int_equal(model_max_tokens(m.model), 1600);
    close_model(&m);
}

static void expect_group(const Instance *in, const PlanBlock *b, uint32_t *tables)
{
    for (uint32_t i = 0; i < b->n_steps; i++)
        for (uint32_t a = 0; a < b->steps[i].n_args; a++) {
            const PlanArg *arg = &b->steps[i].args[a];
            if (arg->kind != ARG_STEP)
                continue;
            if (step_table_grouped((StepTable)arg->index))
                ++*tables;
            assert_int_equal(arg->part, step_table_grouped((StepTable)arg->index)
                                            ? instance_kv_group(in, &b->source->states[0])
                                            : 0);
        }
}

static void model__each_layer_reads_the_tables_of_its_group(void **state)
{
    (void)state;
    GpuBackend *mock;
    Err e;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/gpt_oss", "avx2", DT_BF16, &options, mock);
    uint32_t tables = 0;
    assert_int_equal(m.in->n_blocks, 2);
    for (uint32_t rows = 0; rows < 5; rows += 4)
        for (uint32_t b = 0; b < m.in->n_blocks; b++)
            expect_group(m.in, &model_plan(m.model, rows)->blocks[b], &tables);
    assert_int_equal(tables, 2 * 2 * 2); /* slots and block_table, of two blocks in two plans */
    close_model(&m);
}

/* The tables of the second group follow those of the first; a block of its smaller pool is checked against that pool. */
static void model__refuses_a_block_outside_of_its_groups_pool(void **state)
{
    (void)state;
    GpuBackend *mock;
    ModelOptions o = options;
    OneStep s;
    Err e;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    o.kv_blocks = 16; /* and 11 of the window */
    OpenModel m = open_model("oracles/gpt_oss", "avx2", DT_BF16, &o, mock);
    float *logits = malloc(sizeof(float) * 256);

    one_sequence(&s, 1);
    s.slots[0] = 15 * 16;
    s.table[0] = 15;
    s.slots[1] = 10 * 16;
    s.table[4] = 10; /* tables have 4 entries */
    assert_int_equal(model_step(m.model, &s.in, logits, &e), ST_OK);
    s.table[4] = 11;
    assert_int_equal(model_step(m.model, &s.in, logits, &e), ST_INVALID);
    assert_non_null(strstr(e.msg, "a KV block is 11, which must be below 11"));
    s.table[4] = 10;
    s.slots[1] = 11 * 16;
    assert_int_equal(model_step(m.model, &s.in, logits, &e), ST_INVALID);
    assert_non_null(strstr(e.msg, "a KV slot is 176, which must be below 176"));
    free(logits);
    close_model(&m);
}

/* 400 tokens through a pool of 3 blocks, in chunks that the pool bounds, as token by token through an ample one. */
static void solo__goes_round_in_a_pool_of_its_window(void **state)
{
    enum { N = 400 };
    (void)state;
    if (!class_runs("avx2"))
        return;
    ModelOptions o = options;
    int32_t ids[N];
    float *want = NULL, *got = NULL;
    Solo *solo;
    Err e;

    o.max_len = N;
    for (int i = 0; i < N; i++)
        ids[i] = i * 7 % 96;
    for (int tight = 0; tight < 2; tight++) {
        o.kv_blocks = tight ? 3 : 100;
        OpenModel m = open_model_window("oracles/mistral", "avx2", DT_BF16, 20, &o, NULL);
        const size_t n = (size_t)N * model_vocab(m.model);
        if (!tight) {
            want = malloc(n * sizeof *want);
            got = malloc(n * sizeof *got);
        }
        assert_int_equal(solo_new(&solo, m.model, &e), ST_OK);
        if (tight && solo_append(solo, ids, N, got, &e) != ST_OK)
            fail_msg("%s", e.msg);
        for (uint32_t i = 0; i < N && !tight; i++)
            if (solo_append(solo, ids + i, 1, want + (size_t)i * model_vocab(m.model), &e) != ST_OK)
                fail_msg("%s", e.msg);
        assert_int_equal(solo_append(solo, ids, 1, NULL, &e), ST_INVALID); /* max_len */
        if (tight)
            assert_memory_equal(got, want, n * sizeof *got);
        solo_free(solo);
        close_model(&m);
    }
    free(want);
    free(got);
}

static void model__refuses_state_slots_that_it_does_not_have(void **state)
{
    static const int32_t bad[] = {-1, 4};
    (void)state;
    GpuBackend *mock;
    int32_t slot = 3;
    OneStep s;
    Err e;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/qwen3_5", "avx2", DT_BF16, &options, mock);
    float *logits = malloc(sizeof(float) * model_vocab(m.model));

    one_sequence(&s, 1);
    assert_int_equal(model_step(m.model, &s.in, logits, &e), ST_INVALID); /* none given */
    for (int i = 0; i < 2; i++) {
        s.in.state_slots = &bad[i];
        assert_int_equal(model_step(m.model, &s.in, logits, &e), ST_INVALID);
        assert_non_null(strstr(e.msg, "state slot"));
    }
    s.in.state_slots = &slot;
    assert_int_equal(model_step(m.model, &s.in, logits, &e), ST_OK);
    free(logits);
    close_model(&m);
}

static void model__a_decode_step_launches_the_decode_plan_for_every_layer(void **state)
{
    (void)state;
    GpuBackend *mock;
    Err e;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &options, mock);
    OneStep s;
    float logits[256];
    size_t n = 0, want = 0;

    one_sequence(&s, 1);
    gpu_mock_clear(mock);
    assert_int_equal(model_step(m.model, &s.in, logits, &e), ST_OK);
    const GpuMockLaunch *l = gpu_mock_launches(mock, &n);
    const Plan *p = model_plan(m.model, 1);
    want = p->stem.n_steps + p->head.n_steps;
    for (uint32_t i = 0; i < m.in->n_layers; i++)
        want += p->blocks[m.in->layers[i].block].n_steps;
    assert_int_equal(n, want);
    assert_string_equal(l[0].kernel->entry, p->stem.steps[0].point->entry);
    assert_string_equal(l[n - 1].kernel->entry, p->head.steps[p->head.n_steps - 1].point->entry);
    for (size_t i = 0; i < n; i++)
        assert_true(l[i].grid.x > 0 && l[i].grid.y > 0 && l[i].grid.z > 0);
    close_model(&m);
}

static void model__a_step_without_outputs_does_not_run_the_head(void **state)
{
    (void)state;
    GpuBackend *mock;
    Err e;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &options, mock);
    OneStep s;
    size_t with = 0, without = 0;
    float *logits = malloc(sizeof(float) * 256 * 8);

    one_sequence(&s, 8);
    gpu_mock_clear(mock);
    assert_int_equal(model_step(m.model, &s.in, logits, &e), ST_OK);
    gpu_mock_launches(mock, &with);
    s.in.outs = 0;
    gpu_mock_clear(mock);
    assert_int_equal(model_step(m.model, &s.in, NULL, &e), ST_OK);
    gpu_mock_launches(mock, &without);
    assert_int_equal(with - without, model_plan(m.model, 0)->head.n_steps);
    free(logits);
    close_model(&m);
}

#define REFUSES(...)                                                                                                   \
    do {                                                                                                               \
        one_sequence(&s, 8);                                                                                           \
        __VA_ARGS__;                                                                                                   \
        e.msg[0] = '\0';                                                                                               \
        assert_int_equal(model_step(m.model, &s.in, logits, &e), ST_INVALID);                                          \
        assert_true(strlen(e.msg) > 10);                                                                               \
    } while (0)

static void model__refuses_a_step_that_would_reach_outside(void **state)
{
    (void)state;
    GpuBackend *mock;
    Err e;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &options, mock);
    OneStep s;
    float *logits = malloc(sizeof(float) * 256 * 64);

    REFUSES(s.in.rows = 0);
    REFUSES(s.in.rows = 33);
    REFUSES(s.in.seqs = 0);
    REFUSES(s.in.seqs = 5);
    REFUSES(s.in.outs = 9);
    REFUSES(s.tokens[3] = 256);
    REFUSES(s.tokens[3] = -1);
    REFUSES(s.positions[7] = 64);
    REFUSES(s.positions[2] = 5);
    REFUSES(s.slots[1] = 128);
    REFUSES(s.slots[1] = -1);
    REFUSES(s.row_seq[4] = 1);
    REFUSES(s.start[1] = 7);
    REFUSES(s.table[0] = 8);
    REFUSES(s.table[0] = -1);
    REFUSES(s.outs[2] = 1);
    REFUSES(s.outs[7] = 8);
    one_sequence(&s, 8);
    assert_int_equal(model_step(m.model, &s.in, logits, &e), ST_OK);
    free(logits);
    close_model(&m);
}

static void model__every_device_failure_at_start_is_clean_and_the_next_start_works(void **state)
{
    (void)state;
    Err e;
    OpenModel m = open_instance("oracles/llama", DT_BF16);
    assert_int_equal(target_choose(&m.target, &metrale_registry, "avx2", m.in, NULL, &e), ST_OK);
    assert_int_equal(families_load(&m.fs, &metrale_registry, m.target, &e), ST_OK);
    assert_int_equal(gpu_mock_new(&m.gpu, "avx2", &e), ST_OK);
    uint32_t at = 1;
    for (; at < 2000; at++) {
        gpu_mock_fail_at(m.gpu, at);
        e.msg[0] = '\0';
        Status st = model_new(&m.model, m.in, m.fs, m.store, m.gpu, &options, NULL, &e);
        if (st == ST_OK)
            break;
        assert_true(strlen(e.msg) > 10);
        assert_null(m.model);
        assert_int_equal(gpu_mock_bytes(m.gpu), 0);
    }
    assert_true(at > 5 && at < 2000);
    close_model(&m);
}

static void model__a_device_failure_in_a_step_leaves_the_model_usable(void **state)
{
    (void)state;
    Err e;
    GpuBackend *mock;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &options, mock);
    OneStep s;
    float logits[256];
    uint32_t at = 1;

    one_sequence(&s, 1);
    for (; at < 500; at++) {
        gpu_mock_fail_at(mock, at);
        Status st = model_step(m.model, &s.in, logits, &e);
        gpu_mock_fail_at(mock, 0);
        if (st == ST_OK)
            break;
        assert_int_equal(st, ST_DEVICE);
        assert_int_equal(model_step(m.model, &s.in, logits, &e), ST_OK);
    }
    assert_true(at > 5 && at < 500);
    close_model(&m);
}

static void model__refuses_options_out_of_range(void **state)
{
    (void)state;
    Err e;
    OpenModel m = open_instance("oracles/llama", DT_BF16);
    assert_int_equal(target_choose(&m.target, &metrale_registry, "avx2", m.in, NULL, &e), ST_OK);
    assert_int_equal(families_load(&m.fs, &metrale_registry, m.target, &e), ST_OK);
    assert_int_equal(gpu_mock_new(&m.gpu, "avx2", &e), ST_OK);
    ModelOptions bad[6];
    for (int i = 0; i < 6; i++)
        bad[i] = options;
    bad[0].max_rows = 0;
    bad[1].max_seqs = 0;
    bad[2].max_outs = 33;
    bad[3].max_len = 0;
    bad[4].kv_blocks = INT32_MAX / KV_BLOCK_TOKENS + 1;
    bad[5].max_seqs = 5000;
    for (int i = 0; i < 6; i++)
        assert_int_equal(model_new(&m.model, m.in, m.fs, m.store, m.gpu, &bad[i], NULL, &e), ST_INVALID);
    close_model(&m);
}

static void load__a_tied_embedding_is_placed_once(void **state)
{
    (void)state;
    GpuBackend *mock;
    Err e;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &options, mock);
    const Plan *plan = model_plan(m.model, 1);
    LoadPlan *lp;
    uint32_t matrices = 0;
    assert_int_equal(load_plan_new(&lp, &plan, 1, &e), ST_OK);
    for (uint32_t i = 0; i < lp->n_places; i++)
        matrices += strstr(lp->places[i].binding->tensor, "embed_tokens") != NULL;
    assert_int_equal(matrices, 1);
    load_plan_free(lp);
    close_model(&m);
}

/* Enough rows for several threads and, on the device, for both pinned buffers of each; the last piece is no whole one. */
static void load__a_device_that_the_host_cannot_write_gets_the_same_bytes(void **state)
{
    enum { ROWS = 20001, K = 1024 };
    static const uint64_t dims[] = {ROWS, K};
    const InstanceWeight weight = {.name = "w", .n = ROWS, .k = K, .stored = DT_F32};
    const InstanceBinding binding = {.tensor = "w"};
    LoadPlace place = {.binding = &binding, .weight = &weight, .layout = LAYOUT_N16};
    LoadPlan lp = {.places = &place, .n_places = 1};
    json_t *config = json_object();
    WeightStore *store;
    GpuBackend *gpu[2];
    GpuBuf buf[2];
    Err e;

    (void)state;
    d = (Driver){.major = 9, .minor = 0, .n_devices = 1, .quiet = true};
    assert_true(load_bytes(LAYOUT_N16, &weight, &place.bytes));
    lp.bytes = place.bytes;
    assert_int_equal(store_dummy_new(&store, config, 5, &e), ST_OK);
    assert_int_equal(store_dummy_declare(store, "w", DT_F32, 2, dims, &e), ST_OK);
    assert_int_equal(gpu_mock_new(&gpu[0], "avx2", &e), ST_OK);
    assert_int_equal(cuda_new_with(&gpu[1], &played, "played", "sm_90a", &e), ST_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gpu_mem_alloc(gpu[i], lp.bytes, "weights", &buf[i], &e), ST_OK);
        if (load_run(&lp, store, gpu[i], buf[i], &e) != ST_OK)
            fail_msg("%s", e.msg);
    }
    assert_memory_equal(buf[0].ptr, buf[1].ptr, lp.bytes);

    /* and these are the rows: 16 of the middle, laid out here */
    uint8_t *rows = malloc(16 * K * 4), *laid = malloc(16 * K * 4);
    assert_int_equal(store_read(store, store_find(store, "w"), 16000 * K * 4, rows, 16 * K * 4, &e), ST_OK);
    layout_piece(LAYOUT_N16, DT_F32, K, 16, rows, laid);
    assert_memory_equal((uint8_t *)buf[1].ptr + 16000 * K * 4, laid, 16 * K * 4);
    free(rows);
    free(laid);

    d.fail = "up";
    d.result = 719;
    assert_int_equal(load_run(&lp, store, gpu[1], buf[1], &e), ST_DEVICE);
    assert_non_null(strstr(e.msg, "the device is lost"));
    for (int i = 0; i < 2; i++) {
        gpu_mem_free(gpu[i], &buf[i]);
        gpu_free(gpu[i]);
    }
    assert_int_equal(d.live, 0); /* also what the threads had pinned */
    store_free(store);
    json_decref(config);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* A model as on a GPU class: the mock has graphs, and a target of another vendor than cpu is padded. The families stay the
 * CPU's, since the mock runs none of them. */
typedef struct Graphs {
    OpenModel m;
    KernelTarget target;
    GpuBackend *mock; /* below the trace */
    FILE *out;
    char *text;
    size_t len;
} Graphs;

static void graphs_open(Graphs *g, const char *path, const ModelOptions *opt)
{
    Err e;

    *g = (Graphs){.m = open_instance(path, DT_BF16)};
    g->out = open_memstream(&g->text, &g->len);
    assert_non_null(g->out);
    if (target_choose(&g->m.target, &metrale_registry, "avx2", g->m.in, NULL, &e) != ST_OK ||
        families_load(&g->m.fs, &metrale_registry, g->m.target, &e) != ST_OK ||
        gpu_mock_new(&g->mock, "avx2", &e) != ST_OK || gpu_trace_new(&g->m.gpu, g->mock, g->out, &e) != ST_OK)
        fail_msg("%s", e.msg);
    g->target = *g->m.target;
    g->target.vendor = "nvidia";
    g->m.fs->target = &g->target;
    if (model_new(&g->m.model, g->m.in, g->m.fs, g->m.store, g->m.gpu, opt, NULL, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

static void graphs_close(Graphs *g)
{
    close_model(&g->m);
    fclose(g->out);
    free(g->text);
}

/* Lines of the trace from byte `from` on that begin with `word`. */
static uint32_t traced(Graphs *g, size_t from, const char *word)
{
    uint32_t n = 0;

    fflush(g->out);
    for (const char *p = g->text + from; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        n += strncmp(p, word, strlen(word)) == 0 && p[strlen(word)] == ' ';
    return n;
}

static size_t trace_end(Graphs *g)
{
    fflush(g->out);
    return g->len;
}

/* One token of each of n sequences, sequence i in block i and at position i. */
static void one_token_each(OneStep *s, uint32_t n)
{
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < n; i++) {
        s->tokens[i] = (int32_t)(i + 1);
        s->positions[i] = s->row_seq[i] = s->start[i] = s->outs[i] = (int32_t)i;
        s->slots[i] = (int32_t)(16 * i + i);
        s->table[4 * i] = (int32_t)i;
    }
    s->start[n] = (int32_t)n;
    s->in = (StepInput){n,        n,        n,       s->tokens, s->positions, s->slots, s->row_seq,
                        s->start, s->table, s->outs, s->outs,   NULL,         NULL,     0};
}

static void graphs__a_decode_step_is_one_upload_one_graph_one_download(void **state)
{
    Graphs g;
    OneStep s;
    size_t n[2], at;
    float *logits = malloc(sizeof(float) * 256 * 8);
    Err e;

    (void)state;
    graphs_open(&g, "oracles/llama", &options);
    assert_int_equal(traced(&g, 0, "graph_begin"), 3); /* rungs 1, 2, 4 */
    one_token_each(&s, 3);
    for (int i = 0; i < 2; i++) {
        gpu_mock_clear(g.mock);
        at = trace_end(&g);
        assert_int_equal(model_step(g.m.model, &s.in, logits, &e), ST_OK);
        assert_int_equal(traced(&g, at, "upload"), 1);
        assert_int_equal(traced(&g, at, "graph_launch"), 1);
        assert_int_equal(traced(&g, at, "launch"), 0);
        assert_int_equal(traced(&g, at, "download"), 1);
        assert_int_equal(traced(&g, at, "event_wait"), 1);
        assert_int_equal(traced(&g, at, "sync"), 0);
        gpu_mock_launches(g.mock, &n[i]);
    }
    const Plan *p = model_plan(g.m.model, 3);
    size_t want = p->stem.n_steps + p->head.n_steps;
    for (uint32_t i = 0; i < g.m.in->n_layers; i++)
        want += p->blocks[g.m.in->layers[i].block].n_steps;
    assert_int_equal(n[0], want);
    assert_int_equal(n[1], want);
    one_sequence(&s, 8); /* no graph for an extend step */
    at = trace_end(&g);
    assert_int_equal(model_step(g.m.model, &s.in, logits, &e), ST_OK);
    assert_int_equal(traced(&g, at, "graph_launch"), 0);
    assert_true(traced(&g, at, "launch") > 0);
    free(logits);
    graphs_close(&g);
}

/* A full rung's graph has the launches that an eager model makes, argument by argument; memory differs, so pointers do. */
static void graphs__hold_the_launches_of_an_eager_step(void **state)
{
    ModelOptions eager = options;
    Graphs g[2];
    OneStep s;
    const GpuMockLaunch *l[2];
    size_t n[2];
    float *logits = malloc(sizeof(float) * 256 * 4);
    Err e;

    (void)state;
    eager.eager = true;
    one_token_each(&s, 4);
    for (int i = 0; i < 2; i++) {
        graphs_open(&g[i], "oracles/llama", i ? &eager : &options);
        gpu_mock_clear(g[i].mock);
        size_t at = trace_end(&g[i]);
        assert_int_equal(model_step(g[i].m.model, &s.in, logits, &e), ST_OK);
        assert_int_equal(traced(&g[i], at, "graph_launch"), !i);
        l[i] = gpu_mock_launches(g[i].mock, &n[i]);
    }
    assert_int_equal(n[0], n[1]);
    for (size_t i = 0; i < n[0]; i++) {
        assert_ptr_equal(l[0][i].kernel, l[1][i].kernel);
        assert_memory_equal(&l[0][i].grid, &l[1][i].grid, sizeof l[0][i].grid);
        assert_int_equal(l[0][i].smem, l[1][i].smem);
        assert_int_equal(l[0][i].n_args, l[1][i].n_args);
    }
    free(logits);
    graphs_close(&g[0]);
    graphs_close(&g[1]);
}

/* The pointer arguments of a rung's launches lead to the tables; what is behind the step's own three rows is of nobody. */
static void graphs__rows_of_nobody_touch_nothing_that_is_alive(void **state)
{
    Graphs g;
    OneStep s;
    size_t n;
    float *logits = malloc(sizeof(float) * 256 * 8);
    Err e;

    (void)state;
    graphs_open(&g, "oracles/qwen3_5", &options);
    const MemoryPlan *mp = model_memory(g.m.model);
    assert_int_equal(gpu_mock_bytes(g.mock), mp->total);
    assert_int_equal(mp->kv, mp->kv_block_bytes * (options.kv_blocks + 1));
    assert_int_equal(mp->states, mp->state_bytes * (options.max_seqs + 1));
    one_token_each(&s, 3);
    gpu_mock_clear(g.mock);
    assert_int_equal(model_step(g.m.model, &s.in, logits, &e), ST_OK);
    const GpuMockLaunch *l = gpu_mock_launches(g.mock, &n);
    const Plan *p = model_plan(g.m.model, 3);
    bool saw_slots = false, saw_states = false;
    size_t at = p->stem.n_steps;
    for (uint32_t i = 0; i < g.m.in->n_layers; i++) {
        const PlanBlock *b = &p->blocks[g.m.in->layers[i].block];
        for (uint32_t k = 0; k < b->n_steps; k++, at++)
            for (uint32_t a = 0; a < b->steps[k].n_args; a++) {
                const int32_t *table = l[at].args[a].ptr;
                if (b->steps[k].args[a].kind != ARG_STEP)
                    continue;
                if (b->steps[k].args[a].index == STEP_SLOTS) {
                    assert_int_equal(table[2], 34);
                    assert_int_equal(table[3], options.kv_blocks * 16);
                    saw_slots = true;
                } else if (b->steps[k].args[a].index == STEP_STATE_SLOTS) {
                    assert_int_equal(table[2], 2);
                    assert_int_equal(table[3], 4);
                    saw_states = true;
                } else if (b->steps[k].args[a].index == STEP_BLOCK_TABLE) {
                    assert_int_equal(table[3 * 4], options.kv_blocks);
                } else if (b->steps[k].args[a].index == STEP_SEQ_START) {
                    assert_int_equal(table[4], 4);
                } else if (b->steps[k].args[a].index == STEP_POSITIONS) {
                    assert_int_equal(table[3], 0);
                }
            }
    }
    assert_true(saw_slots && saw_states && at + p->head.n_steps == n);
    free(logits);
    graphs_close(&g);
}

/* With samples, what comes down is the picks; the edits are an upload of their own. Nothing waits before the collecting, and a
 * second step may be launched before it. */
static void graphs__two_steps_may_be_in_flight_and_only_picks_come_down(void **state)
{
    (void)state;
    Graphs g;
    OneStep s;
    const SampleRow samples[2] = {{.wants = SAMPLE_TOKEN, .n_seen = 1, .penalties = 1, .repetition_penalty = 1},
                                  {.wants = SAMPLE_TOKEN}};
    const SampleEdit edits[1] = {{7, 1}};
    SamplePick picks[2];
    Err e;
    graphs_open(&g, "oracles/llama", &options);
    one_token_each(&s, 2);
    s.in.samples = samples;
    s.in.edits = edits;
    s.in.n_edits = 1;
    assert_int_equal(model_collect(g.m.model, picks, &e), ST_INVALID);
    size_t at = trace_end(&g);
    assert_int_equal(model_launch(g.m.model, &s.in, NULL, &e), ST_OK);
    assert_int_equal(traced(&g, at, "upload"), 2);
    assert_int_equal(traced(&g, at, "graph_launch"), 1);
    assert_int_equal(traced(&g, at, "download"), 1);
    s.in.n_edits = 0;
    s.in.samples = NULL;
    s.tokens[0] = -2; /* the first step's second output */
    assert_int_equal(model_launch(g.m.model, &s.in, NULL, &e), ST_OK);
    assert_int_equal(model_launch(g.m.model, &s.in, NULL, &e), ST_INVALID);
    assert_int_equal(traced(&g, at, "event_wait"), 0);
    assert_int_equal(traced(&g, at, "sync"), 0);
    assert_int_equal(model_collect(g.m.model, picks, &e), ST_OK);
    assert_int_equal(model_collect(g.m.model, NULL, &e), ST_OK);
    assert_int_equal(traced(&g, at, "event_wait"), 2);
    s.tokens[0] = -3;
    assert_int_equal(model_launch(g.m.model, &s.in, NULL, &e), ST_INVALID);
    s.tokens[0] = 0;
    assert_int_equal(model_launch(g.m.model, &s.in, NULL, &e), ST_OK); /* left in flight: freeing waits for it */
    graphs_close(&g);
}

/* Each index of samples and edits is checked. */
static void model__refuses_samples_that_would_reach_outside(void **state)
{
    (void)state;
    GpuBackend *mock;
    Err e;
    assert_int_equal(gpu_mock_new(&mock, "avx2", &e), ST_OK);
    OpenModel m = open_model("oracles/llama", "avx2", DT_BF16, &options, mock);
    OneStep s;
    float *logits = NULL;
    SampleRow samples[8] = {{.wants = SAMPLE_TOKEN, .n_bias = 1, .n_seen = 1}};
    SampleEdit edits[2] = {{255, 0}, {0, 1}};

#define WITH_SAMPLES(change) REFUSES(s.in.samples = samples, s.in.edits = edits, s.in.n_edits = 2, change)
    WITH_SAMPLES(s.in.n_edits = 1);
    WITH_SAMPLES(s.in.n_edits = UINT32_MAX);
    WITH_SAMPLES(samples[0].first_edit = UINT32_MAX);
    samples[0].first_edit = 0;
    WITH_SAMPLES(edits[0].token = 256);
    WITH_SAMPLES(edits[0].token = -1);
    edits[0].token = 255;
    WITH_SAMPLES(samples[7].n_seen = 3);
    samples[7].n_seen = 0;
    one_sequence(&s, 8);
    s.in.samples = samples;
    s.in.edits = edits;
    s.in.n_edits = 2;
    assert_int_equal(model_step(m.model, &s.in, NULL, &e), ST_OK);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model__allocates_what_it_predicted),
        cmocka_unit_test(model__kv_pools_take_what_memory_allows_and_sequences_can_use),
        cmocka_unit_test(model__says_what_its_start_took),
        cmocka_unit_test(model__keeps_a_recurrent_state_for_each_sequence),
        cmocka_unit_test(model__window_layers_keep_their_window_only),
        cmocka_unit_test(model__each_layer_reads_the_tables_of_its_group),
        cmocka_unit_test(model__refuses_a_block_outside_of_its_groups_pool),
        cmocka_unit_test(solo__goes_round_in_a_pool_of_its_window),
        cmocka_unit_test(model__refuses_state_slots_that_it_does_not_have),
        cmocka_unit_test(model__a_decode_step_launches_the_decode_plan_for_every_layer),
        cmocka_unit_test(model__a_step_without_outputs_does_not_run_the_head),
        cmocka_unit_test(model__refuses_a_step_that_would_reach_outside),
        cmocka_unit_test(model__every_device_failure_at_start_is_clean_and_the_next_start_works),
        cmocka_unit_test(model__a_device_failure_in_a_step_leaves_the_model_usable),
        cmocka_unit_test(model__refuses_options_out_of_range),
        cmocka_unit_test(load__a_tied_embedding_is_placed_once),
        cmocka_unit_test(load__a_device_that_the_host_cannot_write_gets_the_same_bytes),
        cmocka_unit_test(graphs__a_decode_step_is_one_upload_one_graph_one_download),
        cmocka_unit_test(graphs__hold_the_launches_of_an_eager_step),
        cmocka_unit_test(graphs__rows_of_nobody_touch_nothing_that_is_alive),
        cmocka_unit_test(graphs__two_steps_may_be_in_flight_and_only_picks_come_down),
        cmocka_unit_test(model__refuses_samples_that_would_reach_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
