/* The reader of circuits: what is wrong in a file is said with its file, line and column. Each case breaks one real file
 * by one replacement. */
#include "circuit_fixture.h"

/* `to` takes the place of `from`, or of the whole file when that is NULL. A ^ in it marks where the message must point;
 * it is taken out, and "FILE:^: " in the message stands for that place, so that edits of the real files above it do not
 * matter. A message that starts with "..." may stand anywhere in the sentence. */
typedef struct Case {
    const char *file, *from, *to, *message;
} Case;

/* Takes the mark out of the file and says where it was; "" when there is none. */
static void take_mark(Embedded *e, const char *file, char place[32])
{
    const char *text = embedded_find(e, file)->text, *mark = strchr(text, '^'), *line = text;
    unsigned n = 1;

    place[0] = '\0';
    if (mark == NULL)
        return;
    for (const char *p = text; p < mark; p++)
        if (*p == '\n') {
            n++;
            line = p + 1;
        }
    snprintf(place, 32, "%u:%u", n, (unsigned)(mark - line) + 1);
    embedded_replace(e, file, "^", "");
}

static void run(const Case *c)
{
    static Embedded e;
    CircuitLibrary *lib = NULL;
    const char *hole = strchr(c->message, '^');
    char place[32];
    Str want = STR_INIT;
    Err err = {{0}};
    Status st;

    if (embedded_add_dir(&e, "circuits", &err) != ST_OK)
        fail_msg("%s", err.msg);
    if (c->from == NULL)
        embedded_set(&e, c->file, c->to);
    else if (!embedded_replace(&e, c->file, c->from, c->to))
        fail_msg("\"%s\" is not in %s", c->from, c->file);
    take_mark(&e, c->file, place);
    if (hole != NULL)
        str_addf(&want, "%.*s%s%s", (int)(hole - c->message), c->message, place, hole + 1);
    else
        str_adds(&want, c->message);
    st = circuit_library_new(&lib, e.files, e.n, &err);
    circuit_library_free(lib);
    embedded_free(&e);
    if (st == ST_OK)
        fail_msg("%s with \"%s\" was taken", c->file, c->to);
    if (str_starts(str_c(&want), "...") ? strstr(err.msg, str_c(&want) + 3) == NULL
                                        : !str_starts(err.msg, str_c(&want)))
        fail_msg("got \"%s\", wanted \"%s\"", err.msg, str_c(&want));
    str_release(&want);
}

#define RUN(cases)                                                                                                     \
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases)[0]; i++)                                                      \
    run(&(cases)[i])

static void circuit__the_real_files_load(void **state)
{
    CircuitLibrary *lib = fixture_library();
    bool llama = false;

    (void)state;
    for (size_t i = 0; i < circuit_library_count(lib); i++)
        llama |= strcmp(circuit_library_arch(lib, i), "llama") == 0;
    assert_true(llama);
    circuit_library_free(lib);
}

static const char mini_block[] = "in = ['x']\nout = 'y'\n[weights]\nw = ['hidden', 'hidden']\nb = ['hidden']\n"
                                 "[[state]]\nid = 'kv'\nparts = [{ name = 'k', heads = '1', width = '2' }]\n";

/* A block of its own with one more piece of text. */
static void run_block(const char *more, const char *message)
{
    Str text = STR_INIT;
    Case c = {.file = "circuits/blocks/mini.toml", .message = message};

    str_addf(&text, "%s%s", mini_block, more);
    c.to = str_c(&text);
    run(&c);
    str_release(&text);
}

static void circuit__a_block_is_checked_node_by_node(void **state)
{
    (void)state;
    run_block("[[node]]\nid='a'\nop='conv9d'\nin=['x']\nout=['y']\n",
              "circuits/blocks/mini.toml:11:4: there is no op 'conv9d'");
    run_block("[[node]]\nid='a'\nop='linear'\nin=['x','x']\nout=['y']\nweight='w'\n",
              "circuits/blocks/mini.toml:12:4: op linear has 1 in 'in', but 2 are given");
    run_block("[[node]]\nid='a'\nop='linear'\nin=['x']\nout=['y']\n",
              "circuits/blocks/mini.toml:9:1: node a needs weight = \"SLOT\" for op linear");
    run_block("[[node]]\nid='a'\nop='linear'\nin=['x']\nout=['y']\nweight='b'\n",
              "circuits/blocks/mini.toml:14:8: op linear takes a matrix as weight, but slot 'b' is a vector");
    run_block("[[node]]\nid='a'\nop='linear'\nin=['x']\nout=['y']\nweight='u'\n",
              "circuits/blocks/mini.toml:14:8: slot 'u' is not in [weights]");
    run_block("[[node]]\nid='a'\nop='linear'\nin=['x']\nout=['y']\nweight='w'\nspeed=3\n",
              "circuits/blocks/mini.toml:15:7: op linear has no weight and no parameter 'speed'");
    run_block("[[node]]\nid='a'\nop='linear'\nin=['z']\nout=['y']\nweight='w'\n",
              "circuits/blocks/mini.toml:12:4: node a reads 'z', which no node above it binds");
    run_block("[[node]]\nid='a'\nop='linear'\nin=['x']\nout=['z']\nweight='w'\n",
              "circuits/blocks/mini.toml:2:7: no node binds 'y'");
    run_block("[[node]]\nid='a'\nop='rms_norm'\nin=['x']\nout=['y']\nweight='b'\n",
              "circuits/blocks/mini.toml:9:1: node a needs parameter eps");
    run_block("[[node]]\nid='a'\nop='rms_norm'\nin=['x']\nout=['y']\nweight='b'\neps='small'\n",
              "circuits/blocks/mini.toml:15:5: 'eps' of this op is a number");
    run_block("[[node]]\nid='a'\nop='kv_write'\nin=['x','x']\nout=[]\nn_kv_heads=1\nhead_dim=2\n",
              "circuits/blocks/mini.toml:9:1: op kv_write works on a state");
    run_block("[[node]]\nid='a'\nop='kv_write'\nin=['x','x']\nout=[]\nn_kv_heads=1\nhead_dim=2\nstate='vk'\n",
              "circuits/blocks/mini.toml:16:7: state 'vk' is not declared");
    run_block("[[node]]\nid='a'\nop='rope'\nin=['x','x']\nout=['y','z']\nhead_dim=2\nstyle='neo'\ntable='main'\n",
              "circuits/blocks/mini.toml:15:7: 'style' cannot be \"neo\"");
    run_block("[[node]]\nid='a'\nop='linear'\nin=['x']\nout=['y']\nweight='w'\nwhen='1 +'\n",
              "circuits/blocks/mini.toml:15:6: ");
    run_block("[[state]]\nid='s'\nkind='recurrent'\nwindow='8'\nparts=[{name='h', heads='1', width='2'}]\n",
              "circuits/blocks/mini.toml:12:8: only a paged state has a window");
    run_block("", "circuits/blocks/mini.toml:1:1: a block needs at least one [[node]]");
}

static void circuit__broken_toml_has_a_position(void **state)
{
    static const Case cases[] = {
        {"circuits/llama.toml", NULL, "stem = [\"embed\"]\nhead = oops\n", "circuits/llama.toml:2:"},
        {"circuits/llama.config.toml", NULL, "use = [\n[match]\n", "circuits/llama.config.toml:"},
        {"circuits/llama.weights.toml", NULL, "[safetensors\n", "circuits/llama.weights.toml:1:"},
    };

    (void)state;
    RUN(cases);
}

static void circuit__an_architecture_names_blocks_and_kinds_that_exist(void **state)
{
    static const Case cases[] = {
        {"circuits/llama.toml", "\"mlp\"", "^\"mixture\"",
         "circuits/llama.toml:^: there is no circuits/blocks/mixture.toml"},
        {"circuits/llama.toml", "kind   = \"full\"", "kind   = ^\"sparse\"",
         "circuits/llama.toml:^: there is no kind 'sparse'"},
        {"circuits/llama.toml", "layers = \"n_layers\"", "layers = ^\"depth\"",
         "circuits/llama.toml:^: llama.config.toml gives no integer 'depth'"},
        {"circuits/qwen2.toml", "\"$layer_types\"", "^\"layer_types\"", "circuits/qwen2.toml:^: 'kinds' names a list"},
        {"circuits/qwen2.toml", "\"$layer_types\"", "^\"$kinds\"",
         "circuits/qwen2.toml:^: qwen2.config.toml gives no list 'kinds'"},
        {"circuits/qwen3_moe.toml", "[\"$layer_types\", \"$ffn_types\"]", "^[\"$layer_types\", \"$experts\"]",
         "circuits/qwen3_moe.toml:^: qwen3_moe.config.toml gives no list 'experts'"},
        {"circuits/qwen3_moe.toml", "[\"$layer_types\", \"$ffn_types\"]", "^[\"$a\", \"$b\", \"$c\", \"$d\"]",
         "circuits/qwen3_moe.toml:^: 'kinds' takes at most 3 lists"},
        {"circuits/llama.toml", "[layout]", "^[plan]", "circuits/llama.toml:^: unknown key 'plan'"},
        {"circuits/llama.toml", "[\"attention\", \"mlp\"]", "[\"attention\", \"attention\"]", "...both have a node"},
        {"circuits/llama.toml", "[[kind]]\nname   = \"full\"\nblocks = [\"attention\", \"mlp\"]",
         "^[[kind]]\nname   = \"full\"\nblocks = [\"attention\", \"lm_head\"]",
         "circuits/llama.toml:^: a layer must yield the name that it reads"},
    };

    (void)state;
    RUN(cases);
}

static void circuit__what_a_block_asks_for_must_be_given(void **state)
{
    static const Case cases[] = {
        {"circuits/blocks/mlp.toml", "\"$rms_eps\"", "^\"$epsilon\"", "circuits/blocks/mlp.toml:^: for "},
        {"circuits/blocks/mlp.toml", "\"$rms_eps\"", "^\"$tied_head\"",
         "circuits/blocks/mlp.toml:^: 'eps' must be a number, but for "},
        {"circuits/blocks/mlp.toml", "[\"ffn\", \"hidden\"]", "^[\"ffm\", \"hidden\"]",
         "circuits/blocks/mlp.toml:^: \"ffm\": for "},
        {"circuits/blocks/attention.toml", "window = \"window\"", "window = \"span\"", "...\"span\": for "},
        {"circuits/blocks/attention.toml", "table    = \"$rope_table\"", "table    = \"lokal\"",
         "...config.toml has no [rope.lokal]"},
        {"circuits/blocks/attention.toml", "when   = \"qk_norm\"", "when   = \"q_norms\"", "...'q_norms'"},
        {"circuits/weights/decoder.toml", "down      = \"{p}layers.{l}.mlp.down_proj.weight\"", "",
         "...weights.toml maps no tensor of safetensors files to weight down"},
    };

    (void)state;
    RUN(cases);
}

static void circuit__a_config_map_gives_each_key_one_meaning(void **state)
{
    static const Case cases[] = {
        {"circuits/llama.config.toml", "[switch]", "^[toggle]", "circuits/llama.config.toml:^: unknown key 'toggle'"},
        {"circuits/llama.config.toml", "key = \"mlp_bias\"", "kez = ^\"mlp_bias\"",
         "circuits/llama.config.toml:^: unknown key 'kez'"},
        {"circuits/llama.config.toml", "{ key = \"mlp_bias\"", "^{ key = \"attention_bias\"",
         "circuits/llama.config.toml:^: key attention_bias gives both attention_bias and mlp_bias"},
        {"circuits/llama.config.toml", "[\"is_llama_config\"]", "[^\"mlp_bias\"]",
         "circuits/llama.config.toml:^: key mlp_bias is classified twice"},
        {"circuits/llama.config.toml", "[\"decoder\", \"dense\", \"rope\"]", "[\"decoder\", \"dense\", ^\"rotary\"]",
         "circuits/llama.config.toml:^: there is no circuits/config/rotary.toml"},
        {"circuits/llama.config.toml", "[match]", "[matches]", "...[match] is missing"},
        {"circuits/config/rope.toml", "rope_theta            = { key",
         "rope_theta            = { default_rsqrt = ^3, key",
         "circuits/config/rope.toml:^: default_rsqrt is of type integer"},
        {"circuits/config/decoder.toml", "default = \"n_heads\"", "default = ^true",
         "circuits/config/decoder.toml:^: 'default' of n_kv_heads is of type boolean"},
        {"circuits/config/windows.toml", ", off = 0", "", "...'when' and 'off' go together"},
        {"circuits/config/windows.toml", "values = [\"full_attention\", \"sliding_attention\"], ", "",
         "...list layer_types needs 'values'"},
        {"circuits/glm4_moe.config.toml", "fraction = \"rotary_fraction\"", "fraction = \"dense_first\"",
         "...rotary_dims is to be a fraction 'dense_first', but there is no such row under [float]"},
        {"circuits/glm4_moe.config.toml", "default = \"head_dim\", fraction", "fraction",
         "...rotary_dims: 'fraction' is of a default that is an expression"},
        {"circuits/qwen3_moe.config.toml", "gguf_default = true", "gguf_default = ^1",
         "circuits/qwen3_moe.config.toml:^: 'gguf_default' of renormalize is of type integer"},
        {"circuits/nemotron_h.config.toml", "gguf = \"feed_forward_length\", min = 0, length = \"n_blocks\"",
         "gguf = \"feed_forward_length\"", "...ffn_widths needs 'length'"},
        {"circuits/nemotron_h.config.toml", "weight\", length = \"n_layers\"", "weight\"",
         "...routed_layers needs 'length'"},
        {"circuits/nemotron_h.config.toml", "weight\", length = \"n_layers\"", "weight\", length = \"layers\"",
         "...routed_layers has as many items as 'layers' says, but there is no such row under [dim]"},
        {"circuits/deepseek_v3.config.toml", "gguf_times = 10.0", "gguf_times = ^\"10\"",
         "circuits/deepseek_v3.config.toml:^: 'gguf_times' is of type string"},
    };

    (void)state;
    RUN(cases);
}

static void circuit__a_weight_map_is_checked_form_by_form(void **state)
{
    static const Case cases[] = {
        {"circuits/llama.weights.toml", "when = \"mlp_bias\"", "wenn = ^\"mlp_bias\"",
         "circuits/llama.weights.toml:^: unknown key 'wenn'"},
        {"circuits/llama.weights.toml", "rows = \"rope_interleaved\"", "rows = ^\"reversed\"",
         "circuits/llama.weights.toml:^: 'rows' can only be \"rope_interleaved\""},
        {"circuits/deepseek_v3.weights.toml", "groups = \"n_heads\"", "", "...'pieces' are two or more, and 'groups'"},
        {"circuits/deepseek_v3.weights.toml", "rows = \"nope_dim\", ", "",
         "...a piece needs 'rows': how many of each group are in blk.{l}.attn_k_b.weight"},
        {"circuits/deepseek_v3.weights.toml", "columns = true }", "turned = ^true }",
         "circuits/deepseek_v3.weights.toml:^: unknown key 'turned'"},
        {"circuits/llama.weights.toml", ", per = \"head_dim\"", "", "...'rows' and 'per' go together"},
        {"circuits/llama.weights.toml", "optional = true", "row = \"0\"", "...'row' and 'of' go together"},
        {"circuits/weights/decoder.toml", "[safetensors.head]", "[safetensors.tail]", "...unknown key 'tail'"},
        {"circuits/gpt_oss.weights.toml", "row = \"0\", of = \"2 * ffn_expert\", step = 2, columns",
         "step = ^2, columns", "circuits/gpt_oss.weights.toml:^: 'step' is from 1 to 16 and goes with 'row' and 'of'"},
        {"circuits/blocks/moe.toml", "{ experts = \"n_experts\", shape = [\"ffn_expert\", \"hidden\"] }",
         "^{ shape = [\"ffn_expert\", \"hidden\"] }",
         "circuits/blocks/moe.toml:^: 'experts_gate' needs experts = \"HOW MANY\" and shape"},
        {"circuits/blocks/moe.toml", "{ experts = \"n_experts\", shape = [\"ffn_expert\", \"hidden\"] }",
         "[\"ffn_expert\", \"hidden\"]", "...op expert_linear takes one weight for each expert"},
        {"circuits/blocks/moe.toml", "[\"n_experts\", \"hidden\"]",
         "{ experts = \"n_experts\", shape = [\"n_experts\", \"hidden\"] }", "...op linear takes one weight for all"},
    };

    (void)state;
    RUN(cases);
}

static void circuit__a_missing_map_is_named(void **state)
{
    static Embedded e;
    CircuitLibrary *lib = NULL;
    Err err = {{0}};

    (void)state;
    embedded_set(&e, "circuits/solo.toml", "stem = []\n");
    assert_int_equal(circuit_library_new(&lib, e.files, e.n, &err), ST_FORMAT);
    assert_non_null(strstr(err.msg, "circuits/solo.config.toml is missing"));
    embedded_free(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(circuit__the_real_files_load),
        cmocka_unit_test(circuit__a_block_is_checked_node_by_node),
        cmocka_unit_test(circuit__broken_toml_has_a_position),
        cmocka_unit_test(circuit__an_architecture_names_blocks_and_kinds_that_exist),
        cmocka_unit_test(circuit__what_a_block_asks_for_must_be_given),
        cmocka_unit_test(circuit__a_config_map_gives_each_key_one_meaning),
        cmocka_unit_test(circuit__a_weight_map_is_checked_form_by_form),
        cmocka_unit_test(circuit__a_missing_map_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
