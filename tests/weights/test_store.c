/* test_store.c - opening by path: folders, shards, .gguf files, a bare config.json. */
#include "bytes.h"
#include "core/file.h"
#include <sys/stat.h>
#include <unistd.h>

#define SHARDED METRALE_SOURCE_DIR "/tests/data/weights/sharded-llama"
#define FORMATS METRALE_SOURCE_DIR "/tests/data/formats"
#define INDEX   "model.safetensors.index.json"

static const char *const SHARD[] = {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                    "model-00003-of-00003.safetensors"};

static void copy_file(const char *from_dir, const char *from, const char *to_dir, const char *to)
{
    char a[512], b[512], *text;
    size_t len;
    Err err;

    snprintf(a, sizeof a, "%s/%s", from_dir, from);
    snprintf(b, sizeof b, "%s/%s", to_dir, to);
    if (file_read(a, 1 << 22, &text, &len, &err) != ST_OK || file_write(b, text, len, &err) != ST_OK)
        fail_msg("%s", err.msg);
    free(text);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[512];
    Err err;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(file_write(path, text, strlen(text), &err), ST_OK);
}

static void drop(const char *dir, const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

/* A fresh folder dir that holds the sharded checkpoint. */
static void sharded_copy(const char *dir)
{
    static const char *const all[] = {"config.json",       INDEX,           "model.safetensors",
                                      "other.safetensors", "a.safetensors", "model.gguf"};
    Err err;

    assert_int_equal(dir_make(dir, &err), ST_OK);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) /* of an earlier run */
        drop(dir, all[i]);
    copy_file(SHARDED, "config.json", dir, "config.json");
    copy_file(SHARDED, INDEX, dir, INDEX);
    for (int i = 0; i < 3; i++)
        copy_file(SHARDED, SHARD[i], dir, SHARD[i]);
}

static WeightStore *opens(const char *path)
{
    WeightStore *s = NULL;
    Err err;

    if (store_open(&s, path, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return s;
}

static void refuses_path(const char *path, const char *part1, const char *part2)
{
    WeightStore *s = NULL;
    Err err = {{0}};

    if (store_open(&s, path, &err) == ST_OK)
        fail_msg("%s opened", path);
    assert_null(s);
    if (strncmp(err.msg, path, strlen(path)) != 0 || !strstr(err.msg, part1) || !strstr(err.msg, part2))
        fail_msg("wanted '%s', '%s' and '%s' in: %s", path, part1, part2, err.msg);
}

static void shards__all_tensors_of_the_index_are_there(void **state)
{
    WeightStore *s = opens(SHARDED);
    const TensorInfo *t;
    unsigned char bytes[64];
    uint64_t total = 0;
    Err err;

    (void)state;
    assert_int_equal(s->kind, STORE_SAFETENSORS);
    assert_int_equal(store_count(s), 3 + 3 * 9); /* embedding, norm, head; nine in each of three layers */
    assert_int_equal(json_integer_value(json_object_get(store_meta(s), "num_hidden_layers")), 3);
    for (size_t i = 0; i < store_count(s); i++)
        total += store_at(s, i)->bytes;
    assert_int_equal(total, 209792); /* total_size of the index */
    t = store_find(s, "model.layers.1.mlp.down_proj.weight");
    assert_int_equal(t->dtype, DT_BF16);
    assert_int_equal(t->dims[0], 64);
    assert_int_equal(t->dims[1], 96);
    assert_non_null(strstr(t->file, SHARD[1]));
    assert_int_equal(store_read(s, t, t->bytes - 64, bytes, 64, &err), ST_OK);
    assert_int_equal(store_read(s, t, t->bytes - 63, bytes, 64, &err), ST_INVALID);
    assert_null(store_find(s, "logits")); /* golden.safetensors lies in the folder, too */
    store_free(s);
}

static void shards__a_missing_one_is_named(void **state)
{
    WeightStore *s = NULL;
    Err err;

    (void)state;
    sharded_copy("missing");
    drop("missing", SHARD[1]);
    refuses_path("missing", INDEX, SHARD[1]);
    /* For planning, the metadata is enough. */
    assert_int_equal(store_open_config(&s, "missing", &err), ST_OK);
    assert_int_equal(store_count(s), 0);
    assert_non_null(json_object_get(store_meta(s), "hidden_size"));
    store_free(s);
}

static void shards__an_unlisted_file_is_not_read(void **state)
{
    WeightStore *s;

    (void)state;
    sharded_copy("stray");
    copy_file(SHARDED, SHARD[0], "stray", "a.safetensors"); /* the same tensors */
    write_text("stray", "other.safetensors", "not even a header");
    write_text("stray", "model.safetensors", "nor this one, although the index is what counts");
    s = opens("stray");
    assert_int_equal(store_count(s), 30);
    for (size_t i = 0; i < store_count(s); i++)
        assert_non_null(strstr(store_at(s, i)->file, "-of-00003"));
    store_free(s);
}

static void shards__a_tensor_that_its_shard_lacks_is_named(void **state)
{
    (void)state;
    sharded_copy("lacks");
    copy_file(SHARDED, SHARD[0], "lacks", SHARD[2]); /* holds other tensors than the index says */
    refuses_path("lacks", SHARD[2], "which lacks it");
}

static void shards__the_index_decides_which_copy_of_a_tensor_counts(void **state)
{
    WeightStore *s;
    const TensorInfo *t;

    (void)state;
    sharded_copy("twice");
    drop("twice", INDEX);
    copy_file(SHARDED, SHARD[0], "twice", SHARD[1]); /* both files hold lm_head.weight */
    write_text("twice", INDEX,
               "{\"weight_map\":{\"lm_head.weight\":\"model-00002-of-00003.safetensors\","
               "\"model.embed_tokens.weight\":\"model-00001-of-00003.safetensors\"}}");
    s = opens("twice");
    assert_int_equal(store_count(s), 2);
    t = store_find(s, "lm_head.weight");
    assert_non_null(strstr(t->file, SHARD[1]));
    store_free(s);
}

static void shards__a_wrong_index_is_refused(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{", ":1:1: "},
        {"[]", "not a JSON object"},
        {"{}", "weight_map"},
        {"{\"weight_map\":[]}", "weight_map"},
        {"{\"weight_map\":{}}", "weight_map"},
        {"{\"weight_map\":{\"a\":1}}", "weight_map[\"a\"]"},
        {"{\"weight_map\":{\"a\":\"\"}}", "weight_map[\"a\"]"},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "../x.safetensors"},
        {"{\"weight_map\":{\"a\":\"/x.safetensors\"}}", "inside the folder"},
        {"{\"weight_map\":{\"a\":\"x.bin\"}}", "x.bin"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "inside the folder"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"y.safetensors\"}}", "duplicate"},
    };

    (void)state;
    sharded_copy("index");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text("index", INDEX, cases[i].text);
        refuses_path("index", INDEX, cases[i].part);
    }
}

static void folder__without_an_index_one_file_loads(void **state)
{
    WeightStore *s;

    (void)state;
    sharded_copy("single");
    drop("single", INDEX);
    refuses_path("single", "3 *.safetensors files", "index");
    drop("single", SHARD[1]);
    drop("single", SHARD[2]);
    s = opens("single");
    assert_non_null(store_find(s, "lm_head.weight"));
    store_free(s);
    /* Beside others, model.safetensors is the one. */
    copy_file(SHARDED, SHARD[1], "single", "model.safetensors");
    s = opens("single");
    assert_null(store_find(s, "lm_head.weight"));
    store_free(s);
}

static void folder__without_weights_or_config_is_refused(void **state)
{
    WeightStore *s = NULL;
    Err err;

    (void)state;
    assert_int_equal(dir_make("bare", &err), ST_OK);
    drop("bare", "config.json");
    refuses_path("bare", "config.json", "");
    copy_file(SHARDED, "config.json", "bare", "config.json");
    refuses_path("bare", "no weights", "download");
    assert_int_equal(store_open_config(&s, "bare", &err), ST_OK);
    assert_int_equal(store_count(s), 0);
    store_free(s);
    assert_int_equal(store_open_config(&s, "bare/config.json", &err), ST_OK);
    assert_int_equal(store_count(s), 0);
    assert_null(store_find(s, "lm_head.weight"));
    assert_int_equal(json_integer_value(json_object_get(store_meta(s), "hidden_size")), 64);
    store_free(s);
    refuses_path("bare/config.json", "folder", "");
    write_text("bare", "config.json", "{\"hidden_size\": 64");
    refuses_path("bare", "config.json:1:", "download the file again");
    write_text("bare", "config.json", "[1]");
    refuses_path("bare", "config.json", "not a JSON object");
    drop("bare", "config.json");
}

static void path__that_is_no_checkpoint_is_refused(void **state)
{
    (void)state;
    refuses_path("nowhere", "no such file", "");
    refuses_path("nowhere.gguf", "no such file", "");
    write_text(".", "weights.bin", "x");
    refuses_path("weights.bin", "neither a folder nor a .gguf", "");
    write_text(".", "empty.gguf", "");
    refuses_path("empty.gguf", "cut off", "");
    unlink("pipe.gguf");
    assert_int_equal(mkfifo("pipe.gguf", 0600), 0);
    refuses_path("pipe.gguf", "", ""); /* and does not wait for a writer */
}

static void gguf__files_of_each_format_open_alone_or_in_their_folder(void **state)
{
    static const struct {
        const char *dir;
        DType dtype;
        uint64_t row; /* bytes of a row of blk.0.ffn_down.weight */
    } cases[] = {
        {"gguf-f32-llama", DT_F32, 80 * 4},          {"gguf-f16-llama", DT_F16, 80 * 2},
        {"gguf-bf16-llama", DT_BF16, 80 * 2},        {"gguf-q8_0-llama", DT_Q8_0, 160 / 32 * 34},
        {"gguf-q4_0-llama", DT_Q4_0, 160 / 32 * 18}, {"gguf-q4_1-llama", DT_Q4_1, 160 / 32 * 20},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s/model.gguf", FORMATS, cases[i].dir);
        WeightStore *a = opens(path);
        *strrchr(path, '/') = '\0'; /* golden.safetensors beside it does not matter: there is no config.json */
        WeightStore *b = opens(path);
        const TensorInfo *t = store_find(a, "blk.0.ffn_down.weight");
        assert_int_equal(a->kind, STORE_GGUF);
        assert_int_equal(t->dtype, cases[i].dtype);
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->bytes, t->dims[0] * cases[i].row);
        assert_string_equal(json_string_value(json_object_get(store_meta(a), "general.architecture")), "llama");
        assert_int_equal(json_array_size(json_object_get(store_meta(a), "tokenizer.ggml.tokens")), 272);
        assert_int_equal(json_equal(store_meta(a), store_meta(b)), 1);
        store_free(a);
        store_free(b);
    }
}

/* Golden logits are safetensors without a checkpoint around them: read whole, then parsed. */
static void safetensors__goldens_parse_from_memory(void **state)
{
    WeightStore *s = NULL;
    const TensorInfo *t;
    int64_t id;
    char *text;
    size_t len;
    Err err;

    (void)state;
    assert_int_equal(file_read(FORMATS "/gguf-q4_1-llama/golden.safetensors", 1 << 20, &text, &len, &err), ST_OK);
    assert_int_equal(store_safetensors_parse(&s, text, len, "golden", &err), ST_OK);
    assert_int_equal(store_need(s, "input_ids", &t, &err), ST_OK);
    assert_int_equal(t->dtype, DT_I64);
    assert_int_equal(store_read(s, t, 0, &id, sizeof id, &err), ST_OK);
    assert_in_range(id, 0, 271);
    uint64_t n_ids = t->dims[t->n_dims - 1];
    assert_int_equal(store_need(s, "logits", &t, &err), ST_OK);
    assert_int_equal(t->dtype, DT_F32);
    assert_int_equal(t->dims[t->n_dims - 2], n_ids);
    assert_int_equal(t->dims[t->n_dims - 1], 272);
    store_free(s);
    free(text);
}

/* A file that shrinks under an open store is an error of that read, not a signal. */
static void file__that_became_shorter_fails_the_read(void **state)
{
    WeightStore *s;
    const TensorInfo *t;
    unsigned char byte;
    Err err;

    (void)state;
    copy_file(FORMATS "/gguf-q4_0-llama", "model.gguf", ".", "shrinks.gguf");
    s = opens("shrinks.gguf");
    assert_int_equal(truncate("shrinks.gguf", 4096), 0);
    t = store_at(s, store_count(s) - 1);
    assert_int_equal(store_read(s, t, t->bytes - 1, &byte, 1, &err), ST_IO);
    assert_non_null(strstr(err.msg, "shrinks.gguf: became shorter"));
    store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards__all_tensors_of_the_index_are_there),
        cmocka_unit_test(shards__a_missing_one_is_named),
        cmocka_unit_test(shards__an_unlisted_file_is_not_read),
        cmocka_unit_test(shards__a_tensor_that_its_shard_lacks_is_named),
        cmocka_unit_test(shards__the_index_decides_which_copy_of_a_tensor_counts),
        cmocka_unit_test(shards__a_wrong_index_is_refused),
        cmocka_unit_test(folder__without_an_index_one_file_loads),
        cmocka_unit_test(folder__without_weights_or_config_is_refused),
        cmocka_unit_test(path__that_is_no_checkpoint_is_refused),
        cmocka_unit_test(gguf__files_of_each_format_open_alone_or_in_their_folder),
        cmocka_unit_test(safetensors__goldens_parse_from_memory),
        cmocka_unit_test(file__that_became_shorter_fails_the_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
