/* test_circuit.c - `metrale circuit` and `metrale template` as they are typed: output, JSON, exit status. What the
 * reports say is tested in tests/circuit. */
#include "cli/cli.h"
#include "core/json.h"
#include "support/tree.h"

static char out_text[1 << 20], err_text[8192];

static void read_back(FILE *f, char *text, size_t size)
{
    rewind(f);
    text[fread(text, 1, size - 1, f)] = '\0';
    fclose(f);
}

/* Runs the command with its three streams in files. */
static int run(int (*command)(int, char **), const char *input, int argc, const char *const *args)
{
    char *argv[10] = {(char[]){"metrale"}};
    FILE *in = tmpfile(), *out = tmpfile(), *err = tmpfile();
    int kept[3] = {dup(0), dup(1), dup(2)};

    for (int i = 0; i < argc; i++)
        argv[i + 1] = strdup(args[i]);
    fputs(input, in);
    rewind(in);
    fflush(stdout);
    dup2(fileno(in), 0);
    clearerr(stdin);
    dup2(fileno(out), 1);
    dup2(fileno(err), 2);
    int code = command(argc + 1, argv);
    fflush(stdout);
    fflush(stderr);
    for (int i = 0; i < 3; i++) {
        dup2(kept[i], i);
        close(kept[i]);
    }
    fclose(in);
    read_back(out, out_text, sizeof out_text);
    read_back(err, err_text, sizeof err_text);
    for (int i = 0; i < argc; i++)
        free(argv[i + 1]);
    return code;
}
#define ARGS(...)                                                                                                      \
    sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[])                                           \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define CIRCUIT(...)  run(cmd_circuit, "", ARGS(__VA_ARGS__))
#define TEMPLATE(...) run(cmd_template, MESSAGES, ARGS(__VA_ARGS__))
#define LLAMA         METRALE_SOURCE_DIR "/tests/data/oracles/llama"
#define GGUF          METRALE_SOURCE_DIR "/tests/data/formats/gguf-q4_1-llama"
#define LATENT_NF4    METRALE_SOURCE_DIR "/tests/data/cli/latent-nf4" /* no class expands latents by NF4 */
#define MESSAGES      "[{\"role\": \"user\", \"content\": \"hi\"}]"

static json_t *parsed(void)
{
    json_t *j = NULL;
    Err err;

    if (json_parse(out_text, strlen(out_text), "output", &j, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return j;
}

static bool said(const char *words)
{
    return strstr(out_text, words) != NULL;
}

static void gap__exits_1_where_there_is_one_and_0_where_not(void **state)
{
    (void)state;
    assert_int_equal(CIRCUIT("gap", LLAMA, "--hardware", "avx2"), 0);
    assert_true(said("every op has a family"));
    assert_int_equal(CIRCUIT("gap", LLAMA, "--hardware", "hopper"), 0); /* whether this binary has it or not */
    assert_true(said("on class hopper"));
    assert_int_equal(CIRCUIT("gap", LATENT_NF4, "--hardware", "hopper"), 1);
    assert_true(said("\nmla_attention "));
    assert_false(said("\nlinear "));
    assert_string_equal(err_text, "");
    assert_int_equal(CIRCUIT("gap", LATENT_NF4, "--hardware", "avx2", "--json"), 1);
    json_t *j = parsed();
    assert_true(json_array_size(json_object_get(j, "missing")) > 0);
    json_decref(j);
    assert_int_equal(CIRCUIT("gap", LLAMA, "--hardware", "hoper"), 2);
    assert_non_null(strstr(err_text, "\"hoper\" is no hardware class; there are avx2, "));
}

static void venn__takes_two_classes_or_a_model(void **state)
{
    (void)state;
    assert_int_equal(CIRCUIT("venn", "avx2", "avx512"), 0);
    assert_true(said("\navx2, avx512: "));
    assert_false(said("only "));
    assert_int_equal(CIRCUIT("venn", LLAMA, "--json"), 0);
    json_t *j = parsed();
    assert_true(json_array_size(json_object_get(j, "classes")) >= 5);
    json_decref(j);
    assert_int_equal(CIRCUIT("venn", "avx2", "avx3"), 2);
}

static void lkb__counts_the_lines_of_a_tree(void **state)
{
    json_t *j, *classes, *item;
    size_t i;
    bool seen = false;

    (void)state;
    assert_int_equal(CIRCUIT("lkb", "--tree", METRALE_SOURCE_DIR "/kernels", "--json"), 0);
    j = parsed();
    classes = json_object_get(j, "classes");
    json_array_foreach(classes, i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "class")), "avx512") != 0)
            continue;
        seen = true;
        assert_true(json_integer_value(json_object_get(item, "residual_files")) > 0);
        assert_true(json_integer_value(json_object_get(item, "residual_lines")) > 100);
    }
    assert_true(seen);
    json_decref(j);
    assert_int_equal(CIRCUIT("lkb", "--hardware", "hopper"), 0);
    assert_true(said("\nhopper "));
    assert_false(said("\navx2 "));
}

static void precision__names_formats_and_bytes(void **state)
{
    json_t *j, *weights, *item;
    json_int_t bytes = 0;
    size_t i;

    (void)state;
    assert_int_equal(CIRCUIT("precision", GGUF, "--hardware", "avx2"), 0);
    assert_true(said("q4_1 n16     i8/32"));
    assert_int_equal(CIRCUIT("precision", GGUF, "--hardware", "avx2", "--json"), 0);
    j = parsed();
    weights = json_object_get(j, "weights");
    json_array_foreach(weights, i, item) bytes += json_integer_value(json_object_get(item, "device_bytes"));
    assert_true(bytes > 0);
    json_decref(j);
}

static void memory__is_the_sum_of_its_parts(void **state)
{
    static const char *const parts[] = {"weights", "kv", "states", "activations", "tables", "inputs"};
    json_int_t sum = 0;

    (void)state;
    assert_int_equal(CIRCUIT("memory", LLAMA, "--json", "--hardware", "avx2"), 0);
    json_t *j = parsed();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        sum += json_integer_value(json_object_get(j, parts[i]));
    assert_int_equal(json_integer_value(json_object_get(j, "total")), sum);
    json_decref(j);
}

/* ---- template ---------------------------------------------------------------------------------------------------- */

#define CHAT TREE "/chat"

/* A folder with a tokenizer and a template; templates need no weights. */
static void put_chat(void)
{
    char *text = NULL;
    size_t len;
    Err err;

    tree_clear(TREE);
    if (file_read(METRALE_SOURCE_DIR "/tests/data/text/trimmed_tokenizer.json", 1 << 24, &text, &len, &err) != ST_OK)
        fail_msg("%s", err.msg);
    put("chat/config.json", "{\"model_type\": \"none\"}");
    put("chat/tokenizer.json", text);
    put("chat/chat_template.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
                                    "{% if add_generation_prompt %}<assistant>{% endif %}");
    free(text);
}

static void template__prints_the_prompt_and_leaves_the_generation_prompt_out_on_request(void **state)
{
    (void)state;
    put_chat();
    assert_int_equal(TEMPLATE(CHAT), 0);
    assert_string_equal(out_text, "<user>hi\n<assistant>");
    assert_int_equal(TEMPLATE(CHAT, "--no-generation-prompt"), 0);
    assert_string_equal(out_text, "<user>hi\n");
    assert_int_equal(TEMPLATE(CHAT, "--json"), 0);
    json_t *j = parsed();
    assert_string_equal(json_string_value(json_object_get(j, "prompt")), "<user>hi\n<assistant>");
    json_decref(j);
}

static void template__reads_a_file_and_refuses_what_is_no_list_of_messages(void **state)
{
    (void)state;
    put_chat();
    put("body.json", "{\"messages\": " MESSAGES "}");
    put("bad.json", "{\"message\": []}");
    assert_int_equal(TEMPLATE(CHAT, "--messages", TREE "/body.json"), 0);
    assert_non_null(strstr(out_text, "hi"));
    assert_int_equal(TEMPLATE(CHAT, "--messages", TREE "/bad.json"), 2);
    assert_non_null(strstr(err_text, "bad.json: a list of {role, content}"));
    assert_int_equal(TEMPLATE(CHAT, "--messages", TREE "/none.json"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gap__exits_1_where_there_is_one_and_0_where_not),
        cmocka_unit_test(venn__takes_two_classes_or_a_model),
        cmocka_unit_test(lkb__counts_the_lines_of_a_tree),
        cmocka_unit_test(precision__names_formats_and_bytes),
        cmocka_unit_test(memory__is_the_sum_of_its_parts),
        cmocka_unit_test(template__prints_the_prompt_and_leaves_the_generation_prompt_out_on_request),
        cmocka_unit_test(template__reads_a_file_and_refuses_what_is_no_list_of_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
