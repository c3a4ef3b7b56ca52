/* test_check.c - `metrale check` over tests/data/broken: 74 checkpoints that are each wrong in one way, and the same
 * ones unharmed. Each command runs in a process of its own, whose exit status, output, memory and time are those of a
 * user. */
#include "cli/cli.h"
#include "core/json.h"
#include "core/str.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct Broken {
    const char *folder;
    const char *words[3]; /* all in the sentence */
} Broken;

#define L0   "model.layers.0."
#define DOWN "model.layers.0.mlp.down_proj."
#define K    "model.layers.0.self_attn.k_proj."

static const Broken broken[] = {
    {"missing-weight", {DOWN "weight"}},
    {"vocab-mismatch", {"model.embed_tokens.weight", "[24, 16]", "[32, 16]"}},
    {"unknown-architecture", {"LlamoForCausalLM"}},
    {"config-key-missing", {"num_attention_heads"}},
    {"heads-not-dividing", {"3", "2", "query heads"}},
    {"config-not-json", {"config.json"}},
    {"truncated-data", {"model.safetensors", "3104", "2992"}},
    {"truncated-header", {"model.safetensors", "1168", "592"}},
    {"truncated-length", {"model.safetensors", "5 bytes"}},
    {"header-past-end", {"model.safetensors", "8160", "7160"}},
    {"header-huge", {"model.safetensors", "9223372036854775808"}},
    {"header-not-json", {"model.safetensors", "not valid JSON"}},
    {"overlapping-offsets", {K "weight", DOWN "weight"}},
    {"offset-past-end", {DOWN "weight"}},
    {"begin-after-end", {DOWN "weight"}},
    {"shape-bytes-mismatch", {DOWN "weight", "816", "768"}},
    {"shape-overflow", {DOWN "weight", "overflows"}},
    {"unknown-dtype", {DOWN "weight", "F7"}},
    {"duplicate-key", {"model.norm.weight", "twice"}},
    {"index-missing-shard", {"model-00002-of-00003.safetensors"}},
    {"index-missing-tensor", {"model.embed_tokens.weight", "model-00002-of-00003.safetensors"}},
    {"index-path-escape", {"../ok-bf16/model.safetensors", "lm_head.weight"}},

    {"gguf-magic", {"model.gguf", "GGUF"}},
    {"gguf-version", {"version 99"}},
    {"gguf-big-endian", {"model.gguf", "big-endian"}},
    {"gguf-tensor-count", {"1152921504606846976"}},
    {"gguf-kv-count", {"2305843009213693952"}},
    {"gguf-string-length", {"model.gguf", "key 3 of 27"}},
    {"gguf-array-length", {"tokenizer.ggml.tokens"}},
    {"gguf-value-type", {"llama.block_count", "99"}},
    {"gguf-key-wrong-type", {"llama.block_count"}},
    {"gguf-n-dims-5", {"blk.0.ffn_down.weight", "5 dimensions"}},
    {"gguf-n-dims-huge", {"blk.0.ffn_down.weight", "4294967295 dimensions"}},
    {"gguf-dim-zero", {"blk.0.ffn_down.weight", "dimension of 0"}},
    {"gguf-dim-overflow", {"blk.0.ffn_down.weight", "dimensions"}},
    {"gguf-row-not-block", {"blk.0.ffn_down.weight", "40 values", "32"}},
    {"gguf-shape-mismatch", {"blk.0.ffn_down.weight", "[64, 32]", "[32, 64]"}},
    {"gguf-tensor-type", {"blk.0.ffn_down.weight", "type 77"}},
    {"gguf-offset-past-end", {"blk.0.ffn_down.weight", "16864"}},
    {"gguf-offset-wraps", {"blk.0.ffn_down.weight", "18446744073709551584"}},
    {"gguf-offset-unaligned", {"blk.0.ffn_down.weight", "alignment 32"}},
    {"gguf-offset-overlap", {"blk.0.ffn_down.weight", "blk.0.ffn_up.weight"}},
    {"gguf-duplicate-tensor", {"blk.0.ffn_gate.weight", "twice"}},
    {"gguf-duplicate-key", {"llama.block_count", "twice"}},
    {"gguf-alignment", {"general.alignment", "33"}},
    {"gguf-alignment-zero", {"general.alignment is 0"}},
    {"gguf-truncated", {"blk.0.ffn_up.weight", "14864"}},
    {"gguf-missing-tensor", {"output_norm.weight", "missing"}},
    {"gguf-missing-key", {"llama.attention.head_count", "missing"}},
    {"gguf-unknown-arch", {"general.architecture", "llamo"}},
    {"gguf-token-count", {"264", "272"}},
    {"gguf-nan-scale", {"blk.0.ffn_down.weight", "not finite"}},

    {"missing-scale", {K "weight_scale_inv"}},
    {"scale-shape", {DOWN "weight_scale_inv", "1, 2", "1, 1"}},
    {"dtype-mismatch", {K "weight", "BF16", "F8_E4M3"}},
    {"unknown-quant-method", {"exl9"}},
    {"block-size-zero", {"weight_block_size"}},
    {"nan-scale", {DOWN "weight_scale_inv"}},
    {"missing-global-scale-expert", {L0 "mlp.experts.1.up_proj.weight_scale_2"}},
    {"missing-input-scale", {L0 "self_attn.o_proj.input_scale"}},
    {"unknown-quant-algo", {"NVFP5"}},
    {"nan-scale-e4m3", {L0 "mlp.experts.0.down_proj.weight_scale"}},
    {"packed-shape", {K "weight_packed", "32, 8", "32, 16"}},
    {"zero-global-scale", {K "weight_global_scale"}},
    {"missing-qzeros", {DOWN "qzeros"}},
    {"scale-rows-short", {DOWN "scales", "1, 24", "1, 32"}},
    {"unsupported-bits", {"bits", "3"}},
    {"inf-scale", {K "scales"}},
    {"packed-dtype", {K "qweight", "I64", "I32"}},
    {"g_idx-out-of-range", {K "g_idx"}},
    {"weight-shape-lies", {K "weight_shape"}},
    {"unknown-ct-format", {"pack-quantised"}},
    {"group-not-dividing", {"48", "_proj"}},
    {"nan-exponent", {L0 "mlp.experts.down_proj_scales"}},
};
enum { N_BROKEN = sizeof broken / sizeof *broken };

/* Of the last command. */
typedef struct Ran {
    int code; /* -1: a signal ended it */
    char out[1 << 16], err[1 << 14];
    long rss_kb;
    double cpu_s;
} Ran;

static void read_back(FILE *f, char *text, size_t size)
{
    rewind(f);
    text[fread(text, 1, size - 1, f)] = '\0';
    fclose(f);
}

static Ran *run(int (*command)(int, char **), const char *const *args)
{
    static Ran r;
    char *argv[8] = {(char[]){"metrale check"}};
    int argc = 1, status;
    struct rusage use;
    FILE *out = tmpfile(), *err = tmpfile();

    for (; args[argc - 1] != NULL; argc++)
        argv[argc] = strdup(args[argc - 1]);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(fileno(out), 1);
        dup2(fileno(err), 2);
        int code = command(argc, argv);
        fflush(NULL);
        _exit(code);
    }
    assert_int_equal(wait4(pid, &status, 0, &use), pid);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    r.rss_kb = use.ru_maxrss;
    r.cpu_s = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
              1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
    read_back(out, r.out, sizeof r.out);
    read_back(err, r.err, sizeof r.err);
    for (int i = 1; i < argc; i++)
        free(argv[i]);
    return &r;
}

static Ran *check(const char *folder, const char *option)
{
    char path[1024];

    snprintf(path, sizeof path, "%s/tests/data/broken/%s%s", METRALE_SOURCE_DIR, folder,
             str_starts(folder, "gguf-") ? "/model.gguf" : "");
    return run(cmd_check, (const char *const[]){path, option, NULL});
}

/* One line: "metrale: SENTENCE" that has no newline inside, and nothing on standard output. */
static void assert_one_sentence(const Ran *r, const char *folder)
{
    const size_t len = strlen(r->err);

    if (r->code != 2 || !str_starts(r->err, "metrale: ") || len < 20 || strchr(r->err, '\n') != r->err + len - 1)
        fail_msg("%s: exit %d, standard error:\n%s", folder, r->code, r->err);
    assert_string_equal(r->out, "");
}

static void check__the_unharmed_checkpoints_are_good(void **state)
{
    static const char *const good[] = {"ok-bf16", "ok-fp8",     "ok-nvfp4-moe", "ok-nvfp4-ct", "ok-awq",
                                       "ok-gptq", "ok-ct-int4", "ok-mxfp4",     "gguf-ok"};

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const Ran *r = check(good[i], NULL);
        if (r->code != 0 || *r->err)
            fail_msg("%s: exit %d, standard error:\n%s", good[i], r->code, r->err);
    }
}

static void check__names_what_is_wrong_with_each_broken_checkpoint(void **state)
{
    (void)state;
    for (int i = 0; i < N_BROKEN; i++) {
        const Broken *x = &broken[i];
        const Ran *r = check(x->folder, NULL);
        assert_one_sentence(r, x->folder);
        if (strstr(r->err, x->folder) == NULL)
            fail_msg("%s: the sentence names no file of it:\n%s", x->folder, r->err);
        for (int w = 0; w < 3 && x->words[w] != NULL; w++)
            if (strstr(r->err, x->words[w]) == NULL)
                fail_msg("%s: \"%s\" is not in the sentence:\n%s", x->folder, x->words[w], r->err);
    }
}

static void check__is_quick_and_small_whatever_a_file_claims(void **state)
{
    (void)state;
    for (int i = 0; i < N_BROKEN; i++) {
        const Ran *r = check(broken[i].folder, NULL);
        /* A sanitizer's own memory is not the command's; its allocations are bounded by the same code. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        if (r->rss_kb > 100 * 1024 || r->cpu_s > 1)
            fail_msg("%s: %ld KiB, %.2f s", broken[i].folder, r->rss_kb, r->cpu_s);
#endif
        assert_true(r->code == 2);
    }
}

static void check__says_family_target_formats_and_memory(void **state)
{
    const Ran *r;

    (void)state;
    r = check("gguf-ok", NULL);
    assert_int_equal(r->code, 0);
    assert_string_equal(r->err, "");
    assert_non_null(strstr(r->out, "model.gguf: good\ncircuit    llama (model_type llama), 1 layers\ntarget     avx"));
    assert_non_null(strstr(r->out, "\ntokenizer  272 tokens\n"));
    /* 7 matrices of the layer and the embedding, which is the head: 272 * 32 + 4 * 32 * 32 + 3 * 32 * 64 elements */
    assert_non_null(strstr(r->out, "format     q4_0          8 weights          10656 bytes"));
    r = check("ok-bf16", NULL);
    assert_int_equal(r->code, 0);
    assert_non_null(strstr(r->out, "\ntokenizer  none\n"));
}

static void check__json_has_the_same_numbers(void **state)
{
    const Ran *r = check("gguf-ok", "--json");
    json_t *j = NULL, *memory;
    Err err;

    (void)state;
    assert_int_equal(r->code, 0);
    assert_int_equal(json_parse(r->out, strlen(r->out), "check", &j, &err), ST_OK);
    assert_string_equal(json_string_value(json_object_get(j, "circuit")), "llama");
    assert_int_equal(json_integer_value(json_object_get(j, "tokens")), 272);
    memory = json_object_get(j, "memory");
    static const char *const parts[] = {"weights", "kv", "states", "activations", "tables", "inputs"};
    json_int_t sum = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        sum += json_integer_value(json_object_get(memory, parts[i]));
    assert_true(sum > 0);
    assert_int_equal(json_integer_value(json_object_get(memory, "total")), sum);
    json_decref(j);
}

static void check__a_folder_that_is_not_there_is_one_sentence(void **state)
{
    (void)state;
    assert_one_sentence(check("no-such-folder", NULL), "no-such-folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check__the_unharmed_checkpoints_are_good),
        cmocka_unit_test(check__names_what_is_wrong_with_each_broken_checkpoint),
        cmocka_unit_test(check__is_quick_and_small_whatever_a_file_claims),
        cmocka_unit_test(check__says_family_target_formats_and_memory),
        cmocka_unit_test(check__json_has_the_same_numbers),
        cmocka_unit_test(check__a_folder_that_is_not_there_is_one_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
