/* test_points.c - every point of every family and rule of every target that this machine can run, on every shape of
 * point_case.h that it holds: against the reference functions, and for equal bits wherever equal bits are promised. Nothing
 * here names a kernel. Arguments: [CLASS [RULES [TEST]]], only targets of that hardware class, rules of that pattern, tests of
 * that pattern; RULES --list: what rules there are.
 *
 * Bound of the reference test: kernels accumulate in f32, the reference in double. A sum of n products with unit roundoff
 * u = 2^-24 errs by about sqrt(n) * u relative to the norm of its terms, and the dots here have at most 8,736 terms of
 * which random signs cancel all but about sqrt(n) / n, so that relative L2 of a row stays near u * sqrt(n), 5.6e-6;
 * 1e-5 leaves room for exp and for sums that cancel more than most. Formats i8/32 and pools are rounded the same way on both
 * sides and must be equal.
 *
 * GPU classes. f32 outputs: 5e-5, since tensor cores cut off where f32 sums round, about 2^-23 of the running sum for each of
 * up to 96 steps along k, and exp and friends are hardware approximations of 2^-21. bf16 outputs: rounding to nearest gives
 * each element at most 2^-9 of itself, hence the row at most 2^-9 in relative L2; one more 2^-9 is for a value inside that a
 * kernel may round for the tensor cores (attention's probabilities), and one for each inner edge of a fused rule, which its
 * parts would have rounded; three where silu or gelu reads it, since d ln silu(g) / d ln g = 1 + g (1 - sigma(g)) is -3 at
 * g = -4; two for fp8 weights, which are rounded to bf16 once they are scaled where the
 * product is of bf16: sums that cancel make more of that. Whoever drops an element, a scale or a bias is off by 1e-2 or more. */
#include "point_reference.h"
#include <fnmatch.h>
#include <limits.h>
#include <malloc.h>

#include "core/hash.h"
#include "gpu/gpu.h"

static const double BOUND = 1e-5, BOUND_GPU = 5e-5, BF16_HALF_ULP = 1.0 / 512;

enum { MAX_SEEN = 1 << 14, MAX_POINTS = 64, GUARD = 64, WORKSPACE = 64 << 20, DEVICE_BYTES = 512 << 20 };

/* ---- running a match ---------------------------------------------------------------------------------------------- */

/* Memory of one run; the device has a copy of it while a launch is in flight where it cannot read the host's. Edges lie in
 * one arena with GUARD bytes behind each; all bytes that nobody owns are 0xff, which is also what outputs hold before a run: NaN.
 */
typedef struct Memory {
    uint64_t at[RULE_MAX_VARS], capacity, workspace_at;
    uint8_t *arena, *pool[2];
    SamplePick *picks;
} Memory;

typedef enum { RUN_BACKEND, RUN_REVERSED } RunMode;

/* The device's copies of host memory, one behind the other. What a case never changes is copied once. */
typedef struct Copies {
    GpuBuf all;
    size_t used, kept; /* kept: bytes of what stays for the case */
    const void *host[CASE_MAX_WEIGHTS + 16];
    size_t at[CASE_MAX_WEIGHTS + 16];
    uint32_t n, n_kept;
} Copies;

typedef struct Runner {
    GpuBackend *gpu;
    RunMode mode;
    Copies *copies; /* NULL: the device reads host memory */
} Runner;

static void copy_to_device(const Runner *run, const void *host, size_t bytes)
{
    Copies *c = run->copies;
    Err err;

    assert_true(c->n < sizeof c->at / sizeof *c->at && c->used + bytes <= c->all.bytes);
    c->host[c->n] = host;
    c->at[c->n++] = c->used;
    if (bytes && gpu_upload(run->gpu, (uint8_t *)c->all.ptr + c->used, host, bytes, &err) != ST_OK)
        fail_msg("%s", err.msg);
    c->used = (c->used + bytes + 255) / 256 * 256;
}

/* Where the device finds what the host has at p. */
static void *device_address(const Runner *run, const void *p)
{
    if (run->copies == NULL)
        return (void *)(uintptr_t)p;
    for (uint32_t i = 0; i < run->copies->n; i++)
        if (run->copies->host[i] == p)
            return (uint8_t *)run->copies->all.ptr + run->copies->at[i];
    fail_msg("a kernel wants host memory that the device has no copy of");
    return NULL;
}

/* The case's weights and tables. */
static void copy_case(const Runner *run, const PointCase *c)
{
    Copies *copies = run->copies;

    if (copies == NULL)
        return;
    copies->used = copies->n = 0;
    for (uint32_t i = 0; i < c->block.n_weights; i++)
        copy_to_device(run, c->laid[i], c->laid_bytes[i]);
    if (c->rope_rows)
        copy_to_device(run, c->rope_rows, c->rope_bytes);
    copies->kept = copies->used;
    copies->n_kept = copies->n;
}

static void copy_step(const Runner *run, const PointCase *c, const Memory *m, size_t arena, const StepInput *in)
{
    const struct {
        const int32_t *table;
        size_t n;
    } tables[] = {{in->tokens, in->rows},   {in->positions, in->rows},      {in->slots, in->rows},
                  {in->row_seq, in->rows},  {in->seq_start, in->seqs + 1u}, {in->block_table, in->seqs * c->max_blocks},
                  {in->out_rows, in->outs}, {in->state_slots, in->seqs}};
    Copies *copies = run->copies;

    copies->used = copies->kept;
    copies->n = copies->n_kept;
    copy_to_device(run, m->arena, arena);
    for (uint32_t part = 0; part < c->state.n_parts && c->pool_bytes; part++)
        copy_to_device(run, m->pool[part], c->pool_bytes);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        copy_to_device(run, tables[i].table, tables[i].n * sizeof(int32_t));
    copy_to_device(run, in->samples, in->outs * sizeof *in->samples);
    copy_to_device(run, in->edits, in->n_edits * sizeof *in->edits);
    copy_to_device(run, m->picks, c->shape->outs * sizeof *m->picks);
}

static void copy_back(const Runner *run, const PointCase *c, const Memory *m, size_t arena)
{
    Err err;
    if (gpu_download(run->gpu, m->arena, device_address(run, m->arena), arena, &err) != ST_OK)
        fail_msg("%s", err.msg);
    for (uint32_t part = 0; part < c->state.n_parts && c->pool_bytes; part++)
        if (gpu_download(run->gpu, m->pool[part], device_address(run, m->pool[part]), c->pool_bytes, &err) != ST_OK)
            fail_msg("%s", err.msg);
    if (gpu_download(run->gpu, m->picks, device_address(run, m->picks), c->shape->outs * sizeof *m->picks, &err) !=
        ST_OK)
        fail_msg("%s", err.msg);
    if (gpu_sync(run->gpu, &err) != ST_OK)
        fail_msg("%s", err.msg);
}

/* in_place: variable index of an output to lay over an input, by the family's text "out=in"; NULL: none. */
static void memory_new(Memory *m, const PointCase *c, const char *in_place)
{
    uint64_t at = 0;

    *m = (Memory){0};
    for (uint32_t v = 0; v < c->n_vars; v++) {
        m->at[v] = at;
        at += (case_edge_rows(c, v) * case_row_bytes(c, v) + GUARD + 63) / 64 * 64;
    }
    if (in_place) {
        char out[64];
        const char *eq = strchr(in_place, '=');
        snprintf(out, sizeof out, "%.*s", (int)(eq - in_place), in_place);
        int o = rule_var_find(c->vars, c->n_vars, out), i = rule_var_find(c->vars, c->n_vars, eq + 1);
        assert_true(o >= 0 && i >= 0);
        m->at[o] = m->at[i];
    }
    m->workspace_at = at;
    m->capacity = at + WORKSPACE;
    assert_int_equal(posix_memalign((void **)&m->arena, 64, m->capacity), 0);
    memset(m->arena, 0xff, at); /* a run poisons the workspace that it has */
    m->picks = malloc(c->shape->outs * sizeof *m->picks);
    assert_non_null(m->picks);
    memcpy(m->picks, c->picks, c->shape->outs * sizeof *m->picks);
    for (int part = 0; part < (int)c->state.n_parts && c->pool_bytes; part++) {
        m->pool[part] = malloc(c->pool_bytes);
        assert_non_null(m->pool[part]);
        memcpy(m->pool[part], c->pool[part], c->pool_bytes);
    }
}

static void memory_free(Memory *m)
{
    free(m->arena);
    free(m->picks);
    free(m->pool[0]);
    free(m->pool[1]);
}

static void memory_inputs(Memory *m, const PointCase *c, uint32_t first, uint32_t rows)
{
    for (uint32_t v = 0; v < c->n_vars; v++)
        if (c->input[v])
            memcpy(m->arena + m->at[v], c->input[v] + first * case_row_bytes(c, v), rows * case_row_bytes(c, v));
}

static Lowering lowering(const PointCase *c, const FamilySet *fs, const LowerOptions *opt)
{
    return (Lowering){.in = &c->in, .fs = fs, .opt = opt, .arena = c->arena};
}

/* Exactly these rows and outputs: any point whose range holds them may run. */
static LowerOptions options(const PointCase *c, uint32_t rows, uint32_t outs, uint32_t seqs)
{
    return (LowerOptions){.shape = {.kind = SHAPE_DECODE,
                                    .min_rows = rows,
                                    .max_rows = rows,
                                    .max_seqs = seqs,
                                    .max_outs = outs ? outs : 1,
                                    .max_len = c->max_blocks * 16}};
}

/* The match that covers exactly `mask` by the rules of fs, or NULL. */
static const Match *find_match(const PointCase *c, const FamilySet *fs, const LowerOptions *opt, uint64_t mask)
{
    Lowering l = lowering(c, fs, opt);
    Match **all = NULL;
    const Match *found = NULL;
    uint32_t n = 0;
    Err err;

    if (match_all(&all, &n, &l, &c->lb, &err) != ST_OK)
        fail_msg("%s", err.msg);
    for (uint32_t i = 0; i < n && !found; i++)
        if (all[i]->mask == mask)
            found = all[i];
    free(all);
    return found;
}

static void resolve(const Runner *run, const PointCase *c, const Memory *m, const PlanStep *s, const StepInput *in,
                    KArg *out)
{
    const void *tables[STEP_TABLES] = {in->tokens,    in->positions,   in->slots,    in->row_seq,
                                       in->seq_start, in->block_table, in->out_rows, in->state_slots,
                                       in->samples,   in->edits,       m->picks};
    Err err;

    for (uint32_t i = 0; i < s->n_args; i++) {
        const PlanArg *a = &s->args[i];
        int64_t v = a->value;
        out[i] = (KArg){.i64 = 0};
        if (a->kind == ARG_BUFFER)
            out[i].ptr = (uint8_t *)device_address(run, m->arena) + a->offset;
        else if (a->kind == ARG_WEIGHT)
            out[i].ptr = device_address(run, c->laid[a->index]);
        else if (a->kind == ARG_STATE)
            out[i].ptr = device_address(run, m->pool[a->part]);
        else if (a->kind == ARG_ROPE)
            out[i].ptr = device_address(run, c->rope_rows);
        else if (a->kind == ARG_STEP)
            out[i].ptr = device_address(run, tables[a->index]);
        else if (a->kind == ARG_F32)
            out[i].f32 = a->fvalue;
        else if (a->kind == ARG_EXPR && plan_eval(s, a->expr, in->rows, in->outs, in->seqs, &v, &err) != ST_OK)
            fail_msg("%s", err.msg);
        if (a->kind == ARG_I32 || a->kind == ARG_EXPR)
            out[i].i32 = (int32_t)v;
    }
}

/* Last block first, each with fresh scratch full of NaN and a guard behind it. */
static void run_reversed(const PlanStep *s, const KArg *args, GpuDim grid, uint32_t smem)
{
    uint8_t *scratch = NULL;
    assert_int_equal(posix_memalign((void **)&scratch, 64, (smem + GUARD + 63) / 64 * 64), 0);
    for (uint64_t i = (uint64_t)grid.x * grid.y * grid.z; i-- > 0;) {
        KBlock b = {(uint32_t)(i % grid.x),
                    (uint32_t)(i / grid.x % grid.y),
                    (uint32_t)(i / grid.x / grid.y),
                    grid.x,
                    grid.y,
                    grid.z,
                    scratch};
        memset(scratch, 0xff, smem + GUARD);
        s->kernel->fn(args, &b);
        for (uint32_t g = 0; g < GUARD; g++)
            if (scratch[smem + g] != 0xff)
                fail_msg("%s[%s] writes behind its %u bytes of scratch", s->point->entry, s->point->constants, smem);
    }
    free(scratch);
}

static void run_match(const Runner *run, PointCase *c, const FamilySet *fs, const LowerOptions *opt, const Match *match,
                      Memory *m, const StepInput *in)
{
    Lowering l = lowering(c, fs, opt);
    uint64_t edge[RULE_MAX_VARS], workspace = 0;
    BlockBuffers buffers = {.edge = edge, .workspace = &workspace};
    PlanStep s;
    KArg args[GPU_MAX_ARGS];
    int64_t v[4];
    GpuKernel *k;
    Err err;

    for (uint32_t i = 0; i < c->n_vars; i++)
        edge[i] = UINT64_MAX;
    for (uint32_t i = 0; i < match->n_vars; i++)
        if (!match->vars[i].inner)
            edge[match->vars[i].edge] = m->at[match->vars[i].edge];
    assert_true(bind_workspace(&l, &c->lb, match, &workspace, &err) == ST_OK);
    assert_true(m->workspace_at + workspace + GUARD <= m->capacity);
    const size_t arena = m->workspace_at + workspace + GUARD;
    memset(m->arena + m->workspace_at, 0xff, arena - m->workspace_at);
    workspace = workspace ? m->workspace_at : UINT64_MAX;
    if (run->copies)
        copy_step(run, c, m, arena, in);
    if (bind_step(&s, &l, &c->lb, match, &buffers, 0, &err) != ST_OK)
        fail_msg("%s", err.msg);
    assert_true(s.n_args <= GPU_MAX_ARGS);
    resolve(run, c, m, &s, in, args);
    const Expr *exprs[4] = {s.point->grid[0], s.point->grid[1], s.point->grid[2], s.point->smem};
    for (int i = 0; i < 4; i++) {
        v[i] = 0;
        if (exprs[i] && plan_eval(&s, exprs[i], in->rows, in->outs, in->seqs, &v[i], &err) != ST_OK)
            fail_msg("%s", err.msg);
    }
    GpuLaunch launch = {.grid = {(uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2]},
                        .block = {s.point->block, 1, 1},
                        .smem = (uint32_t)v[3],
                        .n_args = s.n_args,
                        .args = args,
                        .overlap = s.point->overlap};
    if (run->mode == RUN_REVERSED)
        run_reversed(&s, args, launch.grid, launch.smem);
    else if (gpu_kernel(run->gpu, s.kernel, &k, &err) != ST_OK || gpu_launch(run->gpu, k, &launch, &err) != ST_OK ||
             gpu_sync(run->gpu, &err) != ST_OK)
        fail_msg("%s[%s] on shape %d: %s", s.point->entry, s.point->constants, (int)c->number, err.msg);
    if (run->copies)
        copy_back(run, c, m, arena);
    for (size_t g = arena - GUARD; g < arena; g++)
        if (m->arena[g] != 0xff)
            fail_msg("%s[%s] writes behind its workspace", s.point->entry, s.point->constants);
}

static StepInput whole_step(const PointCase *c)
{
    const PointShape *s = c->shape;
    return (StepInput){s->rows,      s->seqs,  s->outs,     case_asked(c),  c->positions, c->slots, c->row_seq,
                       c->seq_start, c->table, c->out_rows, c->state_slots, c->samples,   c->edits, c->n_edits};
}

/* ---- every point -------------------------------------------------------------------------------------------------- */

/* A point that a test visits: the rule alone, with this point as its family's only one. */
typedef struct Visit {
    Runner run;
    const FamilySet *all; /* of the target */
    FamilySet one;
    Rule rule;
    Family family;
    const FamilyPoint *point;
} Visit;

typedef void (*VisitFn)(Visit *v, PointCase *c, const LowerOptions *opt, const Match *match);
typedef bool (*WantedFn)(const Rule *rule); /* is the rule one that the test says something about? */

/* One compiled entry under one rule; targets share them. */
typedef struct Seen {
    const void *code; /* the function, or the image */
    const char *entry, *rule;
} Seen;

static bool seen_before(const KernelObject *o, const char *rule, uint32_t *n, Seen seen[MAX_SEEN])
{
    const Seen now = {o->image ? (const void *)o->image : (const void *)(uintptr_t)o->fn, o->entry, rule};

    for (uint32_t i = 0; i < *n; i++)
        if (seen[i].code == now.code && strcmp(seen[i].rule, rule) == 0 && strcmp(seen[i].entry, now.entry) == 0)
            return true;
    assert_true(*n < MAX_SEEN);
    seen[(*n)++] = now;
    return false;
}

/* Before a case is built: can the point's rows be the shape's, counted either way? */
static bool could_run(const Visit *v, const PointShape *s)
{
    const FamilyPoint *p = v->point;
    return (p->rows_lo <= s->rows && (p->rows_hi == 0 || s->rows <= p->rows_hi)) ||
           (p->rows_lo <= s->outs && (p->rows_hi == 0 || s->outs <= p->rows_hi));
}

/* The rule of v->all, with its p-th point as the only one. */
static void choose_point(Visit *v, const Rule *rule, uint32_t p)
{
    v->rule = *rule;
    v->family = *rule->family;
    v->point = &rule->family->points[p];
    v->family.points = v->point;
    v->family.n_points = 1;
    v->rule.family = &v->family;
    v->rule.numerics = rule->numerics == NUMERICS_DIFFERS ? NUMERICS_REFERENCE : rule->numerics;
    v->one = *v->all;
    v->one.rules = &v->rule;
    v->one.n_rules = 1;
}

/* Each of these points of the rule on each shape that it holds; points share the shape's case. */
static void visit_rule(Visit *v, const Rule *rule, const uint32_t *points, uint32_t n_points, VisitFn fn)
{
    uint32_t ran[MAX_POINTS] = {0};

    for (size_t i = 0; i < POINT_SHAPES; i++) {
        PointCase c;
        bool built = false, fits = true;
        for (uint32_t p = 0; p < n_points && fits; p++) {
            choose_point(v, rule, points[p]);
            if (!could_run(v, &point_shapes[i]))
                continue;
            if (!built) {
                built = true;
                fits = case_new(&c, v->all, rule, &point_shapes[i]);
                if (!fits)
                    break;
                copy_case(&v->run, &c);
            }
            LowerOptions opt = options(&c, c.shape->rows, c.shape->outs, c.shape->seqs);
            const Match *m = find_match(&c, &v->one, &opt, (UINT64_C(1) << v->rule.n_nodes) - 1);
            if (m == NULL)
                continue;
            ran[p]++;
            fn(v, &c, &opt, m);
        }
        if (built)
            case_free(&c);
    }
    for (uint32_t p = 0; p < n_points; p++)
        if (ran[p] == 0)
            fail_msg("no test shape fits point %s[%s] of family %s; add one to point_case.h",
                     rule->family->points[points[p]].entry, rule->family->points[points[p]].constants,
                     rule->family->id);
}

/* Of the command line: [CLASS [RULE-GLOB]]; NULL: all. */
static const char *wanted_class, *wanted_rules;

static bool is_gpu(const KernelTarget *t)
{
    return strcmp(t->vendor, "cpu") != 0;
}

static bool class_runs(const KernelTarget *t)
{
    if (wanted_class && strcmp(wanted_class, t->hw) != 0)
        return false;
    return is_gpu(t) ? gpu_cuda_can_run(t->arch, NULL) : gpu_cpu_can_run(t->hw);
}

/* A backend for the class, and for one whose memory the host cannot read, room for copies. */
static void open_class(Runner *run, const KernelTarget *t, Copies *copies)
{
    Err err;
    Status st = is_gpu(t) ? gpu_cuda_new(&run->gpu, t->hw, t->arch, &err) : gpu_cpu_new(&run->gpu, t->hw, 2, &err);

    *copies = (Copies){0};
    if (st == ST_OK) {
        GpuFacts facts;
        gpu_facts(run->gpu, &facts);
        run->copies = facts.host_memory ? NULL : copies;
    }
    if (st == ST_OK && run->copies)
        st = gpu_mem_alloc(run->gpu, DEVICE_BYTES, "the test's memory", &copies->all, &err);
    if (st != ST_OK)
        fail_msg("%s", err.msg);
}

static void close_class(Runner *run)
{
    if (run->copies)
        gpu_mem_free(run->gpu, &run->copies->all);
    gpu_free(run->gpu);
    run->gpu = NULL;
}

/* Every point of the target that was not visited yet. */
static void visit_target(Visit *v, const KernelTarget *target, WantedFn wanted, VisitFn fn, uint32_t *n_seen,
                         Seen seen[MAX_SEEN])
{
    for (uint32_t r = 0; r < v->all->n_rules; r++) {
        const Rule *rule = &v->all->rules[r];
        const Family *f = rule->family;
        uint32_t points[MAX_POINTS], n = 0;
        if (wanted_rules && fnmatch(wanted_rules, rule->id, 0) != 0)
            continue;
        assert_true(f->n_points <= MAX_POINTS);
        for (uint32_t p = 0; p < f->n_points; p++) {
            const KernelObject *o = target_object(target, f->points[p].entry, f->points[p].constants);
            assert_non_null(o);
            if (!seen_before(o, rule->id, n_seen, seen))
                points[n++] = p;
        }
        if (n > 0 && (wanted == NULL || wanted(rule)))
            visit_rule(v, rule, points, n, fn);
    }
}

/* Calls fn for each point of each wanted rule (NULL: all) of each target that this machine can run, once for each compiled
 * object. Blocks in an order of the test's own: CPU classes only. */
static void each_point(RunMode mode, WantedFn wanted, VisitFn fn)
{
    static Seen seen[MAX_SEEN];
    const KernelRegistry *reg = &metrale_registry;
    const char *open = "";
    FamilySet *sets[128];
    Copies copies;
    Visit v = {.run = {.mode = mode}};
    uint32_t n_seen = 0, n_sets = 0;
    Err err;

    for (size_t t = 0; t < reg->n_targets; t++) {
        const KernelTarget *target = &reg->targets[t];
        if (!class_runs(target) || (mode == RUN_REVERSED && is_gpu(target)))
            continue;
        if (strcmp(open, target->hw) != 0) {
            if (v.run.gpu)
                close_class(&v.run);
            open = target->hw;
            open_class(&v.run, target, &copies);
        }
        assert_true(n_sets < sizeof sets / sizeof *sets);
        if (families_load(&sets[n_sets], reg, target, &err) != ST_OK)
            fail_msg("%s", err.msg);
        v.all = sets[n_sets++];
        visit_target(&v, target, wanted, fn, &n_seen, seen);
    }
    if (v.run.gpu)
        close_class(&v.run);
    while (n_sets > 0)
        families_free(sets[--n_sets]);
    if (n_seen == 0) {
        printf("SKIP: this machine can run no class of the registry that this test is for\n");
        skip();
    }
}

static const char *where(const Visit *v, const PointCase *c)
{
    static char text[256];
    snprintf(text, sizeof text, "%s: family %s, rule %s, point %s[%s], shape %d", v->all->target->hw, v->family.id,
             v->rule.id, v->point->entry, v->point->constants, (int)c->number);
    return text;
}

/* Runs the match into fresh memory. */
static void run_fresh(Visit *v, PointCase *c, const LowerOptions *opt, const Match *match, const char *in_place,
                      Memory *m)
{
    StepInput in = whole_step(c);
    memory_new(m, c, in_place);
    memory_inputs(m, c, 0, c->shape->rows);
    run_match(&v->run, c, &v->one, opt, match, m, &in);
}

static bool is_output(const Match *m, uint32_t var)
{
    return m->vars[var].made && !m->vars[var].inner;
}

static void assert_same(const Visit *v, const PointCase *c, const Match *match, const Memory *a, const Memory *b,
                        const char *what)
{
    for (uint32_t i = 0; i < match->n_vars; i++) {
        size_t bytes = case_edge_rows(c, i) * case_row_bytes(c, i);
        if (is_output(match, i) && memcmp(a->arena + a->at[i], b->arena + b->at[i], bytes) != 0)
            fail_msg("%s: %s gives other bits in %s", where(v, c), what, c->vars[i].name);
    }
    for (int part = 0; part < (int)c->state.n_parts && c->pool_bytes; part++)
        if (memcmp(a->pool[part], b->pool[part], c->pool_bytes) != 0)
            fail_msg("%s: %s gives other bits in the pool of part %d", where(v, c), what, part);
}

/* ---- against the reference ---------------------------------------------------------------------------------------- */

/* Relative L2 of a row in this format; see the top of this file. */
static double bound_of(const Visit *v, const PointCase *c, const Match *match, DType f)
{
    uint32_t inner = 0, gates = 0;
    bool rounded = false;

    for (uint32_t i = 0; i < match->n_vars; i++)
        inner += match->vars[i].inner && c->formats[i] == DT_BF16;
    for (uint32_t i = 0; i < c->rule->n_nodes; i++) {
        const InstanceNode *n = &c->nodes[i];
        gates += n->op->kind == OP_SILU_MUL || n->op->kind == OP_GELU_TANH_MUL;
        rounded |= is_gpu(v->all->target) && n->weight[0] >= 0 && c->weights[n->weight[0]].stored == DT_FP8_128;
    }
    if (gates && inner >= 2) /* the gate's edge thrice, the other once, what both come from four times */
        inner = 4 * (inner - 1);
    inner += 2 * rounded;
    if (f == DT_BF16)
        return BF16_HALF_ULP * (2 + inner);
    if (f != DT_F32)
        return 0;
    return !is_gpu(v->all->target) ? BOUND : inner ? BF16_HALF_ULP * inner : BOUND_GPU;
}

/* The states that the reference ended with are in c->kv[0]; slots of nobody are as they were. */
static void check_states(const Visit *v, const PointCase *c, const Match *match, const Memory *m)
{
    const double bound = bound_of(v, c, match, DT_F32);
    size_t width = (size_t)c->state.parts[0].heads * c->state.parts[0].width;

    for (uint32_t slot = 0; slot < c->shape->seqs + 2; slot++) {
        const uint8_t *got = m->pool[0] + slot * width * sizeof(float);
        uint32_t q = 0;
        double diff = 0, norm = 0;
        while (q < c->shape->seqs && c->state_slots[q] != (int32_t)slot)
            q++;
        if (q == c->shape->seqs && memcmp(got, c->pool[0] + slot * width * sizeof(float), width * sizeof(float)) != 0)
            fail_msg("%s: writes into slot %u, which belongs to no sequence", where(v, c), slot);
        for (size_t i = 0; q < c->shape->seqs && i < width; i++) {
            double want = c->kv[0][q * width + i];
            float x;
            memcpy(&x, got + i * sizeof x, sizeof x);
            diff += ((double)x - want) * ((double)x - want);
            norm += want * want;
        }
        if (!(diff <= bound * bound * norm))
            fail_msg("%s: the state of sequence %u is off by %.3g, more than %.3g", where(v, c), q, sqrt(diff / norm),
                     bound);
    }
}

/* What the reference picked, bit for bit; picks that no op makes are as they were. */
static void check_picks(const Visit *v, const PointCase *c, const Memory *m)
{
    const bool made = c->nodes[0].op->kind == OP_SAMPLE;

    for (uint32_t o = 0; o < c->shape->outs; o++) {
        const SamplePick *got = &m->picks[o], *want = made ? &c->expected_pick[o] : &c->picks[o];
        if (memcmp(got, want, sizeof *got) != 0)
            fail_msg("%s: output %u: token %d, gap %g, total %08x%08x; not %d, %g, %08x%08x", where(v, c), o,
                     got->token, (double)got->gap, got->total_high, got->total_low, want->token, (double)want->gap,
                     want->total_high, want->total_low);
    }
}

static void check_reference(Visit *v, PointCase *c, const LowerOptions *opt, const Match *match)
{
    Memory m;

    if (v->rule.n_nodes > 1 && v->rule.numerics == NUMERICS_BIT_IDENTICAL)
        return; /* held to the bits of its parts; one int8 that rounds the other way would pass no bound */
    run_fresh(v, c, opt, match, NULL, &m);
    case_reference(c);
    for (uint32_t i = 0; i < match->n_vars; i++) {
        uint32_t width = c->edges[i].width;
        double *got = malloc(sizeof(double) * width);
        assert_non_null(got);
        for (uint32_t r = 0; is_output(match, i) && r < case_edge_rows(c, i); r++) {
            const double *want = case_at(c, i, r);
            double diff = 0, norm = 0;
            case_decode(c->formats[i], m.arena + m.at[i] + r * case_row_bytes(c, i), width, got);
            for (uint32_t e = 0; e < width; e++) {
                if (got[e] == want[e] && isinf(got[e]))
                    continue;
                diff += (got[e] - want[e]) * (got[e] - want[e]);
                norm += want[e] * want[e];
            }
            double bound = bound_of(v, c, match, c->formats[i]);
            if (!(diff <= bound * bound * norm))
                fail_msg("%s: row %u of %s is off by %.3g, more than %.3g", where(v, c), r, c->vars[i].name,
                         sqrt(diff / norm), bound);
        }
        free(got);
    }
    check_picks(v, c, &m);
    if (c->state.kind == STATE_RECURRENT)
        check_states(v, c, match, &m);
    for (int part = 0; part < (int)c->state.n_parts && c->state.kind == STATE_PAGED; part++)
        if (memcmp(m.pool[part], c->expected_pool[part], c->pool_bytes) != 0)
            fail_msg("%s: part %d of the pool is not what was to be written", where(v, c), part);
    memory_free(&m);
}

/* Equal, or both NaN: a device may keep another NaN than the one it was given. */
static bool same_value(DType f, const uint8_t *a, const uint8_t *b)
{
    double x, y;

    case_decode(f, a, 1, &x);
    case_decode(f, b, 1, &y);
    return memcmp(a, b, dtype_block_bytes(f)) == 0 || (isnan(x) && isnan(y));
}

/* Values at and beyond the ends of what the pools' formats hold: f16 stops at 65504, below 2^-14 its steps no longer shrink. */
static void check_extremes(Visit *v, const PointCase *usual)
{
    static const float values[] = {65504.0f, 65519.0f, 65520.0f, 1e30f,  INFINITY, NAN,
                                   6.1e-5f,  5.9e-8f,  2.9e-8f,  1e-10f, 0.0f,     1.00048828125f};
    PointCase c;
    Memory m;

    assert_true(case_new(&c, usual->fs, usual->rule, usual->shape));
    for (uint32_t i = 0; i < c.n_vars; i++)
        for (uint32_t r = 0; c.input[i] && r < c.shape->rows; r++) {
            float row[2048];
            assert_true(c.edges[i].width <= sizeof row / sizeof row[0]);
            for (uint32_t e = 0; e < c.edges[i].width; e++)
                row[e] = (e % 2 ? 1.0f : -1.0f) * values[(e + r) % (sizeof values / sizeof values[0])];
            case_encode(c.formats[i], row, c.edges[i].width, c.input[i] + r * case_row_bytes(&c, i), case_at(&c, i, r));
        }
    LowerOptions opt = options(&c, c.shape->rows, c.shape->outs, c.shape->seqs);
    const Match *match = find_match(&c, &v->one, &opt, 1);
    assert_non_null(match);
    copy_case(&v->run, &c);
    run_fresh(v, &c, &opt, match, NULL, &m);
    case_reference(&c);
    for (int part = 0; part < (int)c.state.n_parts; part++)
        for (size_t at = 0; at < c.pool_bytes; at += dtype_block_bytes(c.state.format))
            if (!same_value(c.state.format, m.pool[part] + at, c.expected_pool[part] + at))
                fail_msg("%s: part %d of the pool does not saturate, round or keep NaN as it should", where(v, &c),
                         part);
    memory_free(&m);
    case_free(&c);
    copy_case(&v->run, usual);
}

/* Logits that are no numbers, or all ruled out, at either end of a row. */
static void check_broken_logits(Visit *v, PointCase *usual)
{
    static const float values[] = {NAN, INFINITY, -NAN, -INFINITY};
    PointCase c;
    Memory m;

    assert_true(case_new(&c, usual->fs, usual->rule, &point_shapes[usual->number]));
    const uint32_t in = c.nodes[0].in[0], width = c.edges[in].width;
    for (uint32_t r = 0; r < c.shape->rows; r++) {
        float *row = (float *)(void *)(c.input[in] + r * case_row_bytes(&c, in));
        const float x = values[r % 4];
        c.samples[r].wants = SAMPLE_TOKEN;
        c.samples[r].n_bias = c.samples[r].penalties = 0;
        if (isinf(x) && x < 0)
            for (uint32_t i = 0; i < width; i++)
                row[i] = x;
        row[r % 3 == 0 ? 0 : width - 1] = row[width / 2] = x;
    }
    LowerOptions opt = options(&c, c.shape->rows, c.shape->outs, c.shape->seqs);
    const Match *match = find_match(&c, &v->one, &opt, 1);
    assert_non_null(match);
    copy_case(&v->run, &c);
    run_fresh(v, &c, &opt, match, NULL, &m);
    for (uint32_t r = 0; r < c.shape->rows; r++) {
        const float x = values[r % 4];
        const bool ruled_out = isinf(x) && x < 0;
        const SamplePick *p = &m.picks[r];
        if (p->token != (ruled_out ? SAMPLE_RULED_OUT : SAMPLE_BROKEN) ||
            (!ruled_out && (p->total_low != (r % 3 == 0 ? 0 : width / 2) || isnan(p->gap) != isnan(x))))
            fail_msg("%s: row %u with %g gives token %d, at %u", where(v, &c), r, (double)x, p->token, p->total_low);
    }
    memory_free(&m);
    case_free(&c);
    copy_case(&v->run, usual);
}

static void check_values(Visit *v, PointCase *c, const LowerOptions *opt, const Match *match)
{
    check_reference(v, c, opt, match);
    if (v->rule.n_nodes == 1 && c->writes_kv && c->state.kind == STATE_PAGED)
        check_extremes(v, c);
    if (c->nodes[0].op->kind == OP_SAMPLE)
        check_broken_logits(v, c);
}

static void points__agree_with_the_reference(void **state)
{
    (void)state;
    each_point(RUN_BACKEND, NULL, check_values);
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

static void check_bounds(Visit *v, PointCase *c, const LowerOptions *opt, const Match *match)
{
    Memory m, before;

    memory_new(&before, c, NULL);
    memory_inputs(&before, c, 0, c->shape->rows);
    run_fresh(v, c, opt, match, NULL, &m);
    for (uint32_t i = 0; i < match->n_vars; i++) /* what may change is made equal; the rest must be */
        if (is_output(match, i))
            memcpy(before.arena + before.at[i], m.arena + m.at[i], case_edge_rows(c, i) * case_row_bytes(c, i));
    if (memcmp(before.arena, m.arena, m.workspace_at) != 0)
        fail_msg("%s: writes outside its outputs", where(v, c));
    memory_free(&m);
    memory_free(&before);
}

static void points__write_their_outputs_and_nothing_else(void **state)
{
    (void)state;
    each_point(RUN_BACKEND, NULL, check_bounds);
}

static void check_order(Visit *v, PointCase *c, const LowerOptions *opt, const Match *match)
{
    Memory a, b;

    run_fresh(v, c, opt, match, NULL, &a);
    v->run.mode = RUN_BACKEND;
    run_fresh(v, c, opt, match, NULL, &b);
    v->run.mode = RUN_REVERSED;
    assert_same(v, c, match, &a, &b, "running the grid's blocks backwards with scratch full of NaN");
    memory_free(&a);
    memory_free(&b);
}

static void points__do_not_care_for_the_order_of_blocks(void **state)
{
    (void)state;
    each_point(RUN_REVERSED, NULL, check_order);
}

static bool writes_over_inputs(const Rule *rule)
{
    return rule->family->n_inplace > 0;
}

static void check_in_place(Visit *v, PointCase *c, const LowerOptions *opt, const Match *match)
{
    for (uint32_t i = 0; i < v->family.n_inplace; i++) {
        Memory a, b;
        run_fresh(v, c, opt, match, NULL, &a);
        run_fresh(v, c, opt, match, v->family.inplace[i], &b);
        assert_same(v, c, match, &a, &b, v->family.inplace[i]);
        memory_free(&a);
        memory_free(&b);
    }
}

static void points__may_write_over_the_inputs_they_name(void **state)
{
    (void)state;
    each_point(RUN_BACKEND, writes_over_inputs, check_in_place);
}

/* ---- equal bits --------------------------------------------------------------------------------------------------- */

/* Output row of the batch that input row r gives in this edge, or -1. */
static int32_t row_in(const PointCase *c, uint32_t edge, uint32_t r)
{
    if (case_edge_rows(c, edge) == c->shape->rows && !c->nodes[c->edges[edge].producer].op->on_outputs)
        return (int32_t)r;
    for (uint32_t o = 0; o < c->shape->outs; o++)
        if (c->out_rows[o] == (int32_t)r)
            return (int32_t)o;
    return -1;
}

/* The rows one after the other, each alone in its step, by whichever point of the family takes one row. */
static void check_alone(Visit *v, PointCase *c, const LowerOptions *opt, const Match *match)
{
    Memory together, alone;
    Rule rule = v->rule;
    FamilySet fs = v->one;
    LowerOptions single = options(c, 1, 1, 1);
    const int32_t none = 0, start[2] = {0, 1};

    rule.family = NULL;
    for (uint32_t r = 0; r < v->all->n_rules; r++)
        if (strcmp(v->all->rules[r].id, rule.id) == 0)
            rule.family = v->all->rules[r].family;
    fs.rules = &rule;
    const Match *m1 = find_match(c, &fs, &single, match->mask);
    if (m1 == NULL)
        return; /* a family for batches alone: its rule's parts are its single rows, and rules__ has them */
    run_fresh(v, c, opt, match, NULL, &together);
    memory_new(&alone, c, NULL);
    for (uint32_t r = 0; r < c->shape->rows; r++) {
        StepInput in = {1,
                        1,
                        1,
                        c->tokens + r,
                        c->positions + r,
                        c->slots + r,
                        &none,
                        start,
                        c->table + (size_t)c->row_seq[r] * c->max_blocks,
                        &none,
                        c->state_slots + c->row_seq[r],
                        c->samples + (r < c->shape->outs ? r : 0),
                        c->edits,
                        c->n_edits};
        if (r < c->shape->outs)
            alone.picks[0] = c->picks[r];
        memset(alone.arena, 0xff, alone.workspace_at);
        memory_inputs(&alone, c, r, 1);
        run_match(&v->run, c, &fs, &single, m1, &alone, &in);
        for (uint32_t i = 0; i < match->n_vars; i++) {
            int32_t row = is_output(match, i) ? row_in(c, i, r) : -1;
            size_t bytes = case_row_bytes(c, i);
            if (row >= 0 &&
                memcmp(alone.arena + alone.at[i], together.arena + together.at[i] + (size_t)row * bytes, bytes) != 0)
                fail_msg("%s: row %u alone gives other bits in %s", where(v, c), r, c->vars[i].name);
        }
        if (c->nodes[0].op->kind == OP_SAMPLE && memcmp(&alone.picks[0], &together.picks[r], sizeof *alone.picks) != 0)
            fail_msg("%s: row %u alone gives another pick", where(v, c), r);
    }
    for (int part = 0; part < (int)c->state.n_parts && c->pool_bytes; part++)
        if (memcmp(alone.pool[part], together.pool[part], c->pool_bytes) != 0)
            fail_msg("%s: rows alone give another pool of part %d", where(v, c), part);
    memory_free(&together);
    memory_free(&alone);
}

static void points__a_row_alone_is_the_row_in_a_batch(void **state)
{
    (void)state;
    each_point(RUN_BACKEND, NULL, check_alone);
}

/* What the first point of a family made of a shape, whatever its class; all others must make the same. */
typedef struct Digest {
    char who[160];
    Hash128 key, hash; /* key: of vendor, family, rule and shape */
} Digest;
static Digest digests[MAX_SEEN];
static uint32_t n_digests;

static void check_digest(Visit *v, PointCase *c, const LowerOptions *opt, const Match *match)
{
    Memory m;
    Hasher *h = hasher_new();
    char text[160];
    uint32_t i = 0;

    assert_non_null(h);
    run_fresh(v, c, opt, match, NULL, &m);
    for (uint32_t e = 0; e < match->n_vars; e++)
        if (is_output(match, e))
            hasher_add(h, m.arena + m.at[e], case_edge_rows(c, e) * case_row_bytes(c, e));
    for (int part = 0; part < (int)c->state.n_parts && c->pool_bytes; part++)
        hasher_add(h, m.pool[part], c->pool_bytes);
    Hash128 hash = hasher_value(h);
    /* CPU classes all compute in f32, GPU classes all between edges of bf16 */
    snprintf(text, sizeof text, "%s %s %s %d", v->all->target->vendor, v->family.id, v->rule.id, (int)c->number);
    const Hash128 key = hash_bytes(text, strlen(text));
    while (i < n_digests && (digests[i].key.hi != key.hi || digests[i].key.lo != key.lo))
        i++;
    if (i == n_digests) {
        assert_true(n_digests < MAX_SEEN);
        digests[n_digests].hash = hash;
        digests[n_digests].key = key;
        snprintf(digests[n_digests++].who, sizeof digests[0].who, "%s %s[%s]", v->all->target->hw, v->point->entry,
                 v->point->constants);
    } else if (hash.hi != digests[i].hash.hi || hash.lo != digests[i].hash.lo)
        fail_msg("%s: other bits than %s", where(v, c), digests[i].who);
    hasher_free(h);
    memory_free(&m);
}

static void points__of_a_family_give_the_same_bits_on_every_class_of_a_vendor(void **state)
{
    (void)state;
    n_digests = 0;
    each_point(RUN_BACKEND, NULL, check_digest);
}

static bool is_fused(const Rule *rule)
{
    return rule->n_nodes > 1 && rule->numerics != NUMERICS_DIFFERS;
}

/* A fused rule against its ops one by one, in program order. */
static void check_fused(Visit *v, PointCase *c, const LowerOptions *opt, const Match *match)
{
    Memory fused, parts;
    StepInput in = whole_step(c);
    Rule *rules;
    FamilySet single = *v->all;

    rules = case_alloc(c, v->all->n_rules, sizeof *rules);
    single.rules = rules;
    single.n_rules = 0;
    for (uint32_t r = 0; r < v->all->n_rules; r++)
        if (v->all->rules[r].n_nodes == 1 && v->all->rules[r].numerics != NUMERICS_DIFFERS)
            rules[single.n_rules++] = v->all->rules[r];
    run_fresh(v, c, opt, match, NULL, &fused);
    memory_new(&parts, c, NULL);
    memory_inputs(&parts, c, 0, c->shape->rows);
    for (uint32_t i = 0; i < v->rule.n_nodes; i++) {
        const Match *m = find_match(c, &single, opt, UINT64_C(1) << i);
        if (m == NULL)
            fail_msg("%s: no family covers its op %s alone", where(v, c), c->nodes[i].op->name);
        run_match(&v->run, c, &single, opt, m, &parts, &in);
    }
    assert_same(v, c, match, &fused, &parts, "the sequence of its ops");
    memory_free(&fused);
    memory_free(&parts);
}

static void rules__fused_ones_give_the_bits_of_their_ops(void **state)
{
    (void)state;
    each_point(RUN_BACKEND, is_fused, check_fused);
}

/* ---- classes ------------------------------------------------------------------------------------------------------ */

static void classes__that_cannot_run_here_are_named(void **state)
{
    const KernelRegistry *reg = &metrale_registry;
    const char *last = "";

    (void)state;
    for (size_t t = 0; t < reg->n_targets; t++) {
        const KernelTarget *target = &reg->targets[t];
        Err err = {"this CPU lacks its instructions"};
        if (strcmp(target->hw, last) == 0)
            continue;
        last = target->hw;
        if (wanted_class && strcmp(wanted_class, last) != 0)
            continue;
        if (is_gpu(target) ? !gpu_cuda_can_run(target->arch, &err) : !gpu_cpu_can_run(last))
            printf("SKIP: class %s: %s\n", last, err.msg);
    }
}

/* One line for each rule of the class, for a script that runs each in a process of its own. */
static int list_rules(void)
{
    const KernelRegistry *reg = &metrale_registry;
    const KernelTarget *t = reg->targets;
    FamilySet *fs;
    Err err;

    while (t < reg->targets + reg->n_targets && strcmp(t->hw, wanted_class) != 0)
        t++;
    if (t == reg->targets + reg->n_targets || families_load(&fs, reg, t, &err) != ST_OK)
        return 1;
    for (uint32_t r = 0; r < fs->n_rules; r++)
        puts(fs->rules[r].id);
    families_free(fs);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes__that_cannot_run_here_are_named),
        cmocka_unit_test(points__agree_with_the_reference),
        cmocka_unit_test(points__write_their_outputs_and_nothing_else),
        cmocka_unit_test(points__do_not_care_for_the_order_of_blocks),
        cmocka_unit_test(points__may_write_over_the_inputs_they_name),
        cmocka_unit_test(points__a_row_alone_is_the_row_in_a_batch),
        cmocka_unit_test(points__of_a_family_give_the_same_bits_on_every_class_of_a_vendor),
        cmocka_unit_test(rules__fused_ones_give_the_bits_of_their_ops),
    };
    /* Thousands of runs take megabytes each: their pages are kept rather than fetched from the kernel every time. */
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    wanted_class = argc > 1 ? argv[1] : NULL;
    wanted_rules = argc > 2 ? argv[2] : NULL;
    if (wanted_rules && strcmp(wanted_rules, "--list") == 0)
        return list_rules();
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
