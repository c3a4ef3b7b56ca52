/* lower: what a plan holds, what it refuses, and that the cover is the cheapest one. */
#include "lower_fixture.h"

static void lower__covers_a_dense_layer_with_one_op_families(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k);
    Plan *p = fix_lower(&m->in, fs, fix_decode(1));

    (void)state;
    assert_int_equal(p->stem.n_steps, 1);
    /* 15 nodes of the circuit, and act_quant for q/k/v, o, gate/up and down. */
    assert_int_equal(p->blocks[0].n_steps, 15 + 4);
    assert_int_equal(p->head.n_steps, 2 + 1);
    assert_string_equal(p->blocks[0].steps[0].nodes[0], "attn_norm");
    assert_string_equal(p->blocks[0].steps[18].nodes[0], "mlp_add");
    plan_free(p);
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

static void lower__linears_that_read_one_edge_share_one_act_quant(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k);
    Plan *p = fix_lower(&m->in, fs, fix_decode(1));
    const PlanBlock *b = &p->blocks[0];

    (void)state;
    assert_int_equal(fix_arg(fix_step(b, "q"), "x")->offset, fix_arg(fix_step(b, "v"), "x")->offset);
    assert_int_equal(fix_arg(fix_step(b, "q"), "x")->offset, fix_arg(fix_step(b, "attn_norm:i8/32"), "y")->offset);
    plan_free(p);
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

static void lower__binds_each_kind_of_argument(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k);
    Plan *p = fix_lower(&m->in, fs, fix_extend(64));
    const PlanStep *q = fix_step(&p->blocks[0], "q"), *rope = fix_step(&p->blocks[0], "rope"),
                   *kv = fix_step(&p->blocks[0], "kv"), *attn = fix_step(&p->blocks[0], "attn"),
                   *embed = &p->stem.steps[0], *head = fix_step(&p->head, "lm_head");
    Err err = {{0}};
    int64_t v;

    (void)state;
    assert_int_equal(fix_arg(embed, "t")->kind, ARG_STEP);
    assert_int_equal(fix_arg(embed, "t")->index, STEP_TOKENS);
    assert_int_equal(fix_arg(embed, "y")->kind, ARG_BUFFER);
    assert_int_equal(fix_arg(embed, "y")->offset, 0);
    assert_int_equal(fix_arg(embed, "hidden")->value, HIDDEN);
    assert_int_equal(fix_arg(embed, "scale")->kind, ARG_F32);
    assert_true(fix_arg(embed, "scale")->fvalue == 1.0f);
    assert_int_equal(fix_arg(q, "w")->kind, ARG_WEIGHT);
    assert_string_equal(m->layer.weights[fix_arg(q, "w")->index].name, "q");
    assert_int_equal(fix_arg(q, "b")->kind, ARG_NULL);
    assert_int_equal(fix_arg(q, "rows")->kind, ARG_EXPR);
    assert_int_equal(plan_eval(q, fix_arg(q, "rows")->expr, 17, 2, 1, &v, &err), ST_OK);
    assert_int_equal(v, 17);
    assert_int_equal(fix_arg(q, "n")->value, HEADS * HEAD_DIM);
    assert_int_equal(fix_arg(q, "k")->value, HIDDEN);
    assert_int_equal(plan_eval(q, q->point->grid[1], 17, 2, 1, &v, &err), ST_OK);
    assert_int_equal(v, 3); /* 17 rows by ROWS = 8 */
    assert_int_equal(fix_arg(rope, "table")->kind, ARG_ROPE);
    assert_int_equal(fix_arg(rope, "rotary")->value, HEAD_DIM);
    assert_int_equal(fix_arg(kv, "vp")->kind, ARG_STATE);
    assert_int_equal(fix_arg(kv, "vp")->part, 1);
    assert_int_equal(fix_arg(attn, "max_blocks")->value, 7); /* 100 tokens in blocks of 16 */
    assert_int_equal(fix_arg(attn, "sinks")->kind, ARG_NULL);
    assert_int_equal(fix_arg(attn, "scratch")->kind, ARG_BUFFER);
    assert_int_equal(fix_arg(head, "y")->offset, p->logits_offset);
    assert_true(head->on_outputs);
    assert_string_equal(p->block_weights[0][fix_arg(q, "w")->index].layout, "n16");
    assert_string_equal(p->block_weights[0][0].layout, "f32");
    plan_free(p);
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

static void lower__takes_the_first_point_that_holds_the_shape(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k);
    Plan *one = fix_lower(&m->in, fs, fix_decode(1)), *two = fix_lower(&m->in, fs, fix_decode(2));

    (void)state;
    assert_string_equal(fix_step(&one->blocks[0], "q")->point->constants, "ROWS=1 TILE=16");
    assert_string_equal(fix_step(&two->blocks[0], "q")->point->constants, "ROWS=8 TILE=16");
    plan_free(one);
    plan_free(two);
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

#define RULE_NORM_QUANT                                                                                                \
    "[[rule]]\nid = \"norm_quant\"\nfamily = \"norm_quant_f\"\n"                                                       \
    "pattern = [ { op = \"rms_norm\", as = \"n\", in = [\"x\"], out = [\"h\"] },\n"                                    \
    "  { op = \"act_quant\", as = \"q\", in = [\"h\"], out = [\"y\"] } ]\n"
#define F_NORM_QUANT                                                                                                   \
    "[[family]]\nid = \"norm_quant_f\"\nformats = { y = \"i8/32\" }\nnumerics = \"f32\"\n"                             \
    "args = [\"y\", \"x\", \"w:n.weight\", \"eps:n.eps\", \"offset:n.offset\", \"rows\", \"width:x.width\"]\n" POINT(  \
        "norm_quant_1", "[1, 0]", "rows")
#define IDENTICAL "numerics = { kind = \"bit_identical\", proof = \"tests/kernels/test_x.c\" }\n"
#define DIFFERS   "numerics = { kind = \"differs\", lever = \"fast_norm\" }\n"

static void lower__fuses_where_it_saves_bytes_and_launches(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL F_NORM_QUANT, RULE_NORM_QUANT IDENTICAL);
    FamilySet *fs = fix_load(k);
    Plan *p = fix_lower(&m->in, fs, fix_decode(1));
    const PlanStep *s = fix_step(&p->blocks[0], "attn_norm");

    (void)state;
    assert_int_equal(p->blocks[0].n_steps, 15 + 4 - 2);
    assert_int_equal(p->head.n_steps, 2);
    assert_string_equal(s->rule->id, "norm_quant");
    assert_int_equal(s->n_nodes, 2);
    assert_string_equal(s->nodes[1], "attn_norm:i8/32");
    assert_int_equal(fix_arg(s, "width")->value, HIDDEN);
    plan_free(p);
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

static void lower__takes_a_rule_that_differs_only_when_its_lever_is_pulled(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL F_NORM_QUANT, RULE_NORM_QUANT DIFFERS);
    FamilySet *fs = fix_load(k);
    LowerOptions opt = fix_decode(1);
    Plan *plain = fix_lower(&m->in, fs, opt), *fast, *invariant;

    (void)state;
    opt.levers = (const char *const[]){"fast_norm", NULL};
    fast = fix_lower(&m->in, fs, opt);
    opt.batch_invariant = true;
    invariant = fix_lower(&m->in, fs, opt);
    assert_int_equal(plain->blocks[0].n_steps, 19);
    assert_int_equal(fast->blocks[0].n_steps, 17);
    assert_int_equal(invariant->blocks[0].n_steps, 19);
    plan_free(plain);
    plan_free(fast);
    plan_free(invariant);
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

#define RULE_ADD_NORM(keep)                                                                                            \
    "[[rule]]\nid = \"add_norm\"\nfamily = \"add_norm_f\"\n"                                                           \
    "pattern = [ { op = \"residual_add\", as = \"a\", in = [\"d\", \"x\"], out = [\"s\"] },\n"                         \
    "  { op = \"rms_norm\", as = \"n\", in = [\"s\"], out = [\"h\"] } ]\n" keep                                        \
    "numerics = { kind = \"reference\" }\n"
#define F_ADD_NORM(s)                                                                                                  \
    "[[family]]\nid = \"add_norm_f\"\nnumerics = \"f32\"\n"                                                            \
    "args = [" s                                                                                                       \
    "\"h\", \"x\", \"d\", \"scale:a.scale\", \"w:n.weight\", \"eps:n.eps\", \"offset:n.offset\", \"rows\"]\n" POINT(   \
        "add_norm_1", "[1, 0]", "rows")

static void lower__an_inner_value_that_others_read_must_be_kept(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *lost = fix_cpu(F_ALL F_ADD_NORM(""), RULE_ADD_NORM("")),
            *kept = fix_cpu(F_ALL F_ADD_NORM("\"s\", "), RULE_ADD_NORM("keep = [\"s\"]\n"));
    FamilySet *lost_fs = fix_load(lost), *kept_fs = fix_load(kept);
    Plan *a = fix_lower(&m->in, lost_fs, fix_decode(1)), *b = fix_lower(&m->in, kept_fs, fix_decode(1));

    (void)state;
    assert_int_equal(a->blocks[0].n_steps, 19); /* the sum is read again by mlp_add */
    assert_int_equal(b->blocks[0].n_steps, 18);
    /* scale is 1, so the rule's (d, x) meets the circuit's (x, o) in either order: both are matches, one is taken. */
    assert_string_equal(fix_step(&b->blocks[0], "attn_add")->rule->id, "add_norm");
    plan_free(a);
    plan_free(b);
    families_free(lost_fs);
    families_free(kept_fs);
    fix_kernels_free(lost);
    fix_kernels_free(kept);
    free(m);
}

static void lower__refuses_an_op_without_family_by_name_format_and_rows(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL, NULL),
            *no_silu = fix_cpu(F_EMBED F_NORM("") F_ADD(INPLACE) F_QUANT F_ROPE F_KV F_ATTN F_LINEAR F_HEAD, NULL);
    FamilySet *fs = fix_load(k), *fewer = fix_load(no_silu);
    Model *q8 = fix_model(DT_Q8_0, DT_F32), *bf16_kv = fix_model(DT_Q4_1, DT_BF16);

    (void)state;
    fix_lower_fails(
        &m->in, fewer, fix_decode(2),
        "no family of class cpu1 covers op silu_mul (node act of block full: in f32, in f32, out f32) at rows "
        "2..2; add one to FAMILIES.toml of target cpu1/small/any");
    fix_lower_fails(&q8->in, fs, fix_decode(1), "op embed (node embed of block stem: weight q8_0, in i32, out f32)");
    fix_lower_fails(&bf16_kv->in, fs, fix_decode(1), "op kv_write (node kv of block full: in f32, in f32, state bf16)");
    families_free(fs);
    families_free(fewer);
    fix_kernels_free(k);
    fix_kernels_free(no_silu);
    free(m);
    free(q8);
    free(bf16_kv);
}

static void lower__does_not_lose_a_bias_or_a_parameter_that_the_family_ignores(void **state)
{
    /* A norm family without `offset` serves models without one only. */
    Kernels *k = fix_cpu(F_EMBED F_ADD(INPLACE) F_SILU F_QUANT F_ROPE F_KV F_ATTN F_LINEAR F_HEAD FAMILY(
                             "norm_f", "rms_norm", "", "\"y:out\", \"x:in\", \"w:weight\", \"rows\", \"eps\"")
                             POINT("norm_1", "[1, 0]", "rows"),
                         NULL);
    FamilySet *fs = fix_load(k);
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Plan *p = fix_lower(&m->in, fs, fix_decode(1));

    (void)state;
    fix_param(&m->layer.nodes[0], "offset", 1);
    fix_lower_fails(&m->in, fs, fix_decode(1),
                    "op rms_norm (node attn_norm of block full: weight f32, in f32, out f32, "
                    "offset 1)");
    plan_free(p);
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

static void lower__a_bias_that_is_there_reaches_the_kernel(void **state)
{
    Kernels *k = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k);
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Plan *p;

    (void)state;
    fix_weight(&m->layer, &m->layer.nodes[1], "bias", "q_bias", 1, HEADS * HEAD_DIM, DT_BF16);
    m->blocks[0].n_weights = m->layer.n_weights;
    p = fix_lower(&m->in, fs, fix_decode(1));
    assert_int_equal(fix_arg(fix_step(&p->blocks[0], "q"), "b")->kind, ARG_WEIGHT);
    assert_int_equal(fix_arg(fix_step(&p->blocks[0], "q"), "b")->index, m->layer.n_weights - 1);
    assert_string_equal(p->block_weights[0][m->layer.n_weights - 1].layout, "f32");
    plan_free(p);
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

static void lower__one_tensor_has_one_layout(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k =
        fix_cpu(F_NORM("") F_ADD(INPLACE) F_SILU F_QUANT F_ROPE F_KV F_ATTN F_LINEAR F_HEAD FAMILY(
                    "embed_row", "embed", "formats = { weight = \"q4_1\" }\nlayout = \"row\"\n",
                    "\"y:out\", \"t:in\", \"w:weight\", \"rows\", \"scale\"") POINT("embed_1", "[1, 0]", "rows"),
                NULL);
    FamilySet *fs = fix_load(k);
    Plan *p;

    (void)state;
    fix_lower_fails(&m->in, fs, fix_decode(1),
                    "tensor embed is read in layout row by family embed_row and in layout n16 by "
                    "family head_q; give both families one layout");
    m->head.bindings[1].tensor = "head"; /* untied: each its own */
    p = fix_lower(&m->in, fs, fix_decode(1));
    assert_int_equal(fix_arg(&p->stem.steps[0], "t")->kind, ARG_STEP);
    assert_string_equal(p->stem_weights[0].layout, "row");
    plan_free(p);
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

static void lower__a_block_over_64_nodes_is_refused(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k);
    Block *b = calloc(1, sizeof *b);
    uint32_t x = fix_edge(b, "x", HIDDEN), y = x;

    (void)state;
    for (int i = 0; i < 65; i++)
        y = fix_norm(b, "n", y);
    m->blocks[0] = fix_block(b, "long", x, y);
    for (int i = 0; i < LAYERS; i++)
        m->layers[i].bindings = b->bindings;
    fix_lower_fails(&m->in, fs, fix_decode(1), "block long has 65 nodes");
    families_free(fs);
    fix_kernels_free(k);
    free(b);
    free(m);
}

/* 2^20 downsets: twenty independent adds. */
static void lower__a_block_with_too_many_orders_is_refused_not_searched_for_ever(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k);
    Block *b = calloc(1, sizeof *b);
    uint32_t x = fix_edge(b, "x", HIDDEN), y = 0;

    (void)state;
    for (int i = 0; i < 20; i++)
        y = fix_add(b, "a", x, x);
    m->blocks[0] = fix_block(b, "wide", x, y);
    for (int i = 0; i < LAYERS; i++)
        m->layers[i].bindings = b->bindings;
    fix_lower_fails(&m->in, fs, fix_decode(1), "block wide has more than 131072 orders");
    families_free(fs);
    fix_kernels_free(k);
    free(b);
    free(m);
}

static void lower__an_expression_with_an_unknown_name_is_refused_with_its_place(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_EMBED F_NORM("") F_ADD(INPLACE) F_QUANT F_ROPE F_KV F_ATTN F_LINEAR F_HEAD FAMILY(
                             "silu_f", "silu_mul", "", "\"y:out\", \"g:in0\", \"u:in1\", \"n_experts\"")
                             POINT("silu_1", "[1, 0]", "rows"),
                         NULL);
    FamilySet *fs = fix_load(k);

    (void)state;
    fix_lower_fails(&m->in, fs, fix_decode(1), "family silu_f, entry silu_1, argument: expression 'n_experts'");
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

static void lower__a_shape_that_is_none_is_refused(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k);
    LowerOptions opt = fix_decode(4);

    (void)state;
    opt.shape.min_rows = 5;
    fix_lower_fails(&m->in, fs, opt, "rows 5..4");
    opt = fix_decode(4);
    opt.shape.max_outs = 0;
    fix_lower_fails(&m->in, fs, opt, "0 outputs");
    families_free(fs);
    fix_kernels_free(k);
    free(m);
}

static void lower__the_same_input_has_the_same_digest_and_any_change_another(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32), *longer = fix_model(DT_Q4_1, DT_F32);
    Kernels *k = fix_cpu(F_ALL, NULL), *k2 = fix_cpu(F_ALL, NULL), *rehashed = fix_cpu(F_ALL, NULL);
    FamilySet *fs = fix_load(k), *fs2 = fix_load(k2), *fs3;
    Plan *a = fix_lower(&m->in, fs, fix_decode(2)), *b = fix_lower(&m->in, fs2, fix_decode(2)), *c;

    (void)state;
    assert_string_equal(a->digest, b->digest);
    assert_int_equal(strlen(a->digest), 32);
    fix_param(&longer->layer.nodes[0], "eps", 2e-5);
    c = fix_lower(&longer->in, fs, fix_decode(2));
    assert_string_not_equal(a->digest, c->digest);
    plan_free(c);
    c = fix_lower(&m->in, fs, fix_decode(4));
    assert_string_not_equal(a->digest, c->digest);
    plan_free(c);
    for (size_t i = 0; i < rehashed->target.n_objects; i++)
        if (strcmp(rehashed->objects[i].entry, "silu_1") == 0)
            rehashed->objects[i].hash = "ffffffffffffffffffffffffffffffff";
    fs3 = fix_load(rehashed);
    c = fix_lower(&m->in, fs3, fix_decode(2));
    assert_string_not_equal(a->digest, c->digest);
    plan_free(c);
    plan_free(a);
    plan_free(b);
    families_free(fs);
    families_free(fs2);
    families_free(fs3);
    fix_kernels_free(k);
    fix_kernels_free(k2);
    fix_kernels_free(rehashed);
    free(m);
    free(longer);
}

static void lower__one_constant_of_a_point_changes_the_digest(void **state)
{
    static const char with_8[] = F_ALL;
    char *with_4 = strdup(with_8), *at = strstr(with_4, "ROWS = 8");
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k8 = fix_cpu(with_8, NULL), *k4;
    FamilySet *fs8 = fix_load(k8), *fs4;
    Plan *a = fix_lower(&m->in, fs8, fix_decode(2)), *b;

    (void)state;
    assert_non_null(at);
    at[7] = '4';
    k4 = fix_cpu(with_4, NULL);
    fs4 = fix_load(k4);
    b = fix_lower(&m->in, fs4, fix_decode(2));
    assert_string_not_equal(a->digest, b->digest);
    plan_free(a);
    plan_free(b);
    families_free(fs8);
    families_free(fs4);
    fix_kernels_free(k8);
    fix_kernels_free(k4);
    free(with_4);
    free(m);
}

static void lower__a_point_that_overlaps_is_another_plan_and_says_so(void **state)
{
    Model *m = fix_model(DT_Q4_1, DT_F32);
    Kernels *k[2] = {fix_cpu(F_ALL, NULL), fix_cpu(F_ALL "overlap = true\n", NULL)}; /* the head's point */
    FamilySet *fs[2];
    Plan *p[2];
    Str text[2] = {STR_INIT, STR_INIT};

    (void)state;
    for (int i = 0; i < 2; i++) {
        fs[i] = fix_load(k[i]);
        p[i] = fix_lower(&m->in, fs[i], fix_decode(2));
        plan_show(p[i], &text[i]);
        assert_int_equal(p[i]->head.steps[p[i]->head.n_steps - 1].point->overlap, i);
    }
    assert_string_not_equal(p[0]->digest, p[1]->digest);
    assert_null(strstr(str_c(&text[0]), "overlap"));
    assert_non_null(strstr(str_c(&text[1]), "overlap"));
    for (int i = 0; i < 2; i++) {
        str_release(&text[i]);
        plan_free(p[i]);
        families_free(fs[i]);
        fix_kernels_free(k[i]);
    }
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lower__covers_a_dense_layer_with_one_op_families),
        cmocka_unit_test(lower__linears_that_read_one_edge_share_one_act_quant),
        cmocka_unit_test(lower__binds_each_kind_of_argument),
        cmocka_unit_test(lower__takes_the_first_point_that_holds_the_shape),
        cmocka_unit_test(lower__fuses_where_it_saves_bytes_and_launches),
        cmocka_unit_test(lower__takes_a_rule_that_differs_only_when_its_lever_is_pulled),
        cmocka_unit_test(lower__an_inner_value_that_others_read_must_be_kept),
        cmocka_unit_test(lower__refuses_an_op_without_family_by_name_format_and_rows),
        cmocka_unit_test(lower__does_not_lose_a_bias_or_a_parameter_that_the_family_ignores),
        cmocka_unit_test(lower__a_bias_that_is_there_reaches_the_kernel),
        cmocka_unit_test(lower__one_tensor_has_one_layout),
        cmocka_unit_test(lower__a_block_over_64_nodes_is_refused),
        cmocka_unit_test(lower__a_block_with_too_many_orders_is_refused_not_searched_for_ever),
        cmocka_unit_test(lower__an_expression_with_an_unknown_name_is_refused_with_its_place),
        cmocka_unit_test(lower__a_shape_that_is_none_is_refused),
        cmocka_unit_test(lower__the_same_input_has_the_same_digest_and_any_change_another),
        cmocka_unit_test(lower__one_constant_of_a_point_changes_the_digest),
        cmocka_unit_test(lower__a_point_that_overlaps_is_another_plan_and_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
