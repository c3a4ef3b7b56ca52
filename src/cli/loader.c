/* loader.c - see loader.h. Here the library's parts meet files, the environment and the device. */
#include "cli/loader.h"
#include "cli/dummy_model.h"
#include "cli/model_path.h"
#include "core/file.h"
#include "core/str.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CLASSES = 32, MAX_JSON_FILE = 64 << 20 };
/* max_len of a checkpoint that does not say what it was trained for, when nothing else bounds it. */
enum { UNTRAINED_LEN = 16384 };

/* ---- class ------------------------------------------------------------------------------------------------------ */

static size_t layers_of(const KernelRegistry *reg, const char *hw)
{
    for (size_t i = 0; i < reg->n_targets; i++)
        if (strcmp(reg->targets[i].hw, hw) == 0)
            return reg->targets[i].n_layers;
    return 0;
}

/* The classes of the registry; one that inherits (it has more layers) before its parent, then by name. */
static size_t classes(const KernelRegistry *reg, const char **out)
{
    size_t n = 0;
    for (size_t i = 0; i < reg->n_targets && n + 1 < MAX_CLASSES; i++) {
        size_t at = 0;
        bool seen = false;
        for (size_t k = 0; k < n; k++)
            seen = seen || strcmp(out[k], reg->targets[i].hw) == 0;
        if (seen)
            continue;
        while (at < n && layers_of(reg, out[at]) >= reg->targets[i].n_layers)
            at++;
        memmove(out + at + 1, out + at, (n - at) * sizeof *out);
        out[at] = reg->targets[i].hw;
        n++;
    }
    out[n] = NULL;
    return n;
}

static const KernelTarget *a_target_of(const KernelRegistry *reg, const char *hw)
{
    for (size_t i = 0; i < reg->n_targets; i++)
        if (strcmp(reg->targets[i].hw, hw) == 0)
            return &reg->targets[i];
    return NULL;
}

static bool is_cpu(const KernelTarget *t)
{
    return strcmp(t->vendor, "cpu") == 0;
}

/* The GPU class among names whose device is here, or NULL. */
static const char *gpu_class(const KernelRegistry *reg, const char *const *names)
{
    for (; *names; names++) {
        const KernelTarget *t = a_target_of(reg, *names);
        if (!is_cpu(t) && gpu_cuda_can_run(t->arch, NULL))
            return *names;
    }
    return NULL;
}

bool loader_class_runs(const KernelTarget *t, Err *err)
{
    if (!is_cpu(t))
        return gpu_cuda_can_run(t->arch, err);
    if (!gpu_cpu_can_run(t->hw))
        err_set(err, ST_UNSUPPORTED, "this CPU lacks instructions of %s", t->arch);
    return gpu_cpu_can_run(t->hw);
}

Status loader_class(const char **out, const KernelRegistry *reg, const char *wanted, Err *err)
{
    const char *names[MAX_CLASSES];
    size_t n = classes(reg, names);
    Str list = STR_INIT;

    for (size_t i = 0; i < n; i++)
        str_addf(&list, "%s%s", i ? ", " : "", names[i]);
    if (n == 0)
        err_set(err, ST_UNSUPPORTED,
                "this binary was built without kernels (METRALE_SKIP_BUILD or METRALE_TARGET_*); build it with `./dev "
                "build`");
    else if (*wanted == '\0') {
        *out = gpu_class(reg, names);
        if (*out == NULL)
            *out = gpu_cpu_best_class(names);
        if (*out == NULL)
            err_set(err, ST_UNSUPPORTED,
                    "this machine can run none of the classes in this binary (%s); an x86-64-v3 CPU is the least",
                    str_c(&list));
    } else {
        *out = NULL;
        for (size_t i = 0; i < n; i++)
            if (strcmp(names[i], wanted) == 0)
                *out = names[i];
        if (*out == NULL)
            err_set(err, ST_INVALID, "--hardware %s: no such class in this binary; there are %s", wanted, str_c(&list));
    }
    str_release(&list);
    return n && *out ? ST_OK : ST_UNSUPPORTED;
}

/* ---- instance --------------------------------------------------------------------------------------------------- */

static bool find_tensor(void *ctx, const char *name, TensorDesc *out)
{
    const TensorInfo *t = store_find(ctx, name);
    if (t == NULL)
        return false;
    *out = (TensorDesc){.dtype = t->dtype, .stored = t->stored, .n_dims = t->n_dims};
    memcpy(out->dims, t->dims, sizeof out->dims);
    return true;
}

static const char *tensor_name_at(void *ctx, size_t i)
{
    return i < store_count(ctx) ? store_at(ctx, i)->name : NULL;
}

Status loader_instance(Instance **out, const CircuitLibrary *lib, WeightStore *store, DType kv_format, bool act_quant,
                       Err *err)
{
    bool tensors = store_count(store) > 0;
    InstanceSource src = {.name = store->path,
                          .meta = store_meta(store),
                          .gguf = store->kind == STORE_GGUF,
                          .find = tensors ? find_tensor : NULL,
                          .tensor_at = tensors ? tensor_name_at : NULL,
                          .ctx = store,
                          .kv_format = kv_format,
                          .act_quant = act_quant,
                          .fallback = DT_NONE};
    return instance_new(out, lib, &src, err);
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

static Status read_json(const char *dir, const char *file, bool needed, json_t **out, Err *err)
{
    Status st = ST_OK;
    Str path = STR_INIT;
    char *text = NULL;
    size_t len;

    str_addf(&path, "%s/%s", dir, file);
    if (!file_exists(str_c(&path))) {
        if (needed)
            err_set(err, ST_NOTFOUND, "%s: missing; text commands need the checkpoint's tokenizer", str_c(&path));
        str_release(&path);
        return needed ? ST_NOTFOUND : ST_OK;
    }
    TRY(file_read(str_c(&path), MAX_JSON_FILE, &text, &len, err));
    TRY(json_parse(text, len, str_c(&path), out, err));
done:
    free(text);
    str_release(&path);
    return st;
}

/* chat_template.jinja, or tokenizer_config.json's chat_template: a text, or a list of {name, template} of which "default" counts. */
static Status directory_template(Loaded *l, Err *err)
{
    Status st = ST_OK;
    Str path = STR_INIT;
    char *text = NULL;
    size_t len;
    json_t *t = json_object_get(l->tokenizer_config, "chat_template"), *item;
    size_t i;

    str_addf(&path, "%s/chat_template.jinja", l->path);
    if (file_exists(str_c(&path))) {
        TRY(file_read(str_c(&path), MAX_JSON_FILE, &text, &len, err));
        l->chat_template = json_stringn(text, len);
        if (l->chat_template == NULL)
            TRY(err_set(err, ST_FORMAT, "%s: is not UTF-8", str_c(&path)));
    } else if (json_is_string(t))
        l->chat_template = json_incref(t);
    else
        json_array_foreach(t, i, item)
        {
            const char *name = json_string_value(json_object_get(item, "name"));
            json_t *body = json_object_get(item, "template");
            if (name && strcmp(name, "default") == 0 && json_is_string(body))
                l->chat_template = json_incref(body);
        }
done:
    free(text);
    str_release(&path);
    return st;
}

static Status open_text(Loaded *l, Err *err)
{
    Status st = ST_OK;
    json_t *tokenizer = NULL;

    if (l->store->kind == STORE_GGUF) {
        TRY(tokenizer_from_gguf(&l->tokenizer, store_meta(l->store), err));
        json_t *t = json_object_get(store_meta(l->store), "tokenizer.chat_template");
        if (json_is_string(t))
            l->chat_template = json_incref(t);
    } else {
        TRY(read_json(l->path, "tokenizer.json", true, &tokenizer, err));
        TRY(read_json(l->path, "tokenizer_config.json", false, &l->tokenizer_config, err));
        TRY(read_json(l->path, "generation_config.json", false, &l->generation_config, err));
        TRY(tokenizer_from_hf(&l->tokenizer, tokenizer, l->tokenizer_config, err));
        TRY(tokenizer_add_end_ids(l->tokenizer, json_object_get(store_meta(l->store), "eos_token_id"), "config.json",
                                  err));
        TRY(tokenizer_add_end_ids(l->tokenizer, json_object_get(l->generation_config, "eos_token_id"),
                                  "generation_config.json", err));
        TRY(directory_template(l, err));
    }
done:
    json_decref(tokenizer);
    return st;
}

static bool has_text(const Loaded *l)
{
    Str path = STR_INIT;
    bool has;

    if (l->store->kind == STORE_GGUF)
        return json_object_get(store_meta(l->store), "tokenizer.ggml.model") != NULL;
    str_addf(&path, "%s/tokenizer.json", l->path);
    has = file_exists(str_c(&path));
    str_release(&path);
    return has;
}

/* An id that the tokenizer gives and the embedding lacks would be read from behind the table. */
static Status check_vocabulary(const Loaded *l, Err *err)
{
    int64_t rows = 0;
    size_t tokens = tokenizer_vocab_size(l->tokenizer);

    instance_dim(l->in, "vocab", &rows);
    if (tokens > (size_t)rows)
        return err_set(err, ST_FORMAT,
                       "%s: the tokenizer has %zu tokens, the embedding %lld rows; they do not belong together",
                       l->path, tokens, (long long)rows);
    return ST_OK;
}

/* ---- model ------------------------------------------------------------------------------------------------------ */

static Status open_backend(Loaded *l, const Levers *levers, Err *err)
{
    Status st = ST_OK;
    GpuBackend *traced = NULL;
    const char *trace = lever_text(levers, LEVER_TRACE);

    const KernelTarget *t = a_target_of(&metrale_registry, l->hw);
    Err why;

    if (!loader_class_runs(t, &why))
        return err_set(
            err, ST_UNSUPPORTED,
            "--hardware %s: this machine cannot run that class: %s; leave the setting out for the best that it "
            "can",
            l->hw, why.msg);
    TRY(is_cpu(t) ? gpu_cpu_new(&l->gpu, l->hw, (unsigned)lever_int(levers, LEVER_THREADS), err)
                  : gpu_cuda_new(&l->gpu, l->hw, t->arch, err));
    if (*trace) {
        FILE *f = fopen(trace, "we");
        if (f == NULL)
            TRY(err_set(err, ST_IO, "--trace %s: cannot be written", trace));
        l->trace = f;
        TRY(gpu_trace_new(&traced, l->gpu, f, err));
        l->gpu = traced;
    }
done:
    return st;
}

/* Tokens of one sequence that a KV cache for so many holds: all tokens where each layer has a window that fits. */
static int64_t longest(const Instance *in, uint32_t kv_blocks, int64_t tokens)
{
    int64_t most = 1 << 24; /* of a model */

    for (uint32_t g = 0; g < in->n_kv_groups; g++) {
        uint32_t n = kv_group_tokens((KvGroup){in->kv_windows[g], kv_blocks});
        if (n != UINT32_MAX || in->kv_windows[g] == 0)
            most = tokens < most ? tokens : most;
    }
    return most;
}

/* A bound by its lever, or where that is only a default by what the command knows that it needs. */
static int64_t bound(const Levers *levers, LeverId id, uint32_t needed)
{
    return needed > 0 && lever_origin(levers, id) < FROM_VARIABLE ? needed : lever_int(levers, id);
}

/* Levers that rules of RULES.toml name. */
static const char *const *opted_in(const Levers *levers)
{
    static const char *const wgmma_attention[] = {"wgmma_attention", NULL};
    return lever_bool(levers, LEVER_WGMMA_ATTENTION) ? wgmma_attention : NULL;
}

Status loader_model_options(ModelOptions *out, const Instance *in, const Levers *levers, const LoadOptions *opt,
                            Err *err)
{
    int64_t most, trained = 0, len = lever_int(levers, LEVER_MAX_LEN);
    const int64_t tokens = bound(levers, LEVER_KV_TOKENS, opt->kv_tokens);
    const int64_t needed = bound(levers, LEVER_MAX_LEN, opt->max_len);
    ModelOptions mo = {.max_rows = (uint32_t)lever_int(levers, LEVER_MAX_ROWS),
                       .batch_invariant = lever_bool(levers, LEVER_BATCH_INVARIANT),
                       .levers = opted_in(levers),
                       .clock = opt->clock};

    if (tokens > 0 && tokens < KV_BLOCK_TOKENS)
        return err_set(err, ST_INVALID, "--kv-tokens %lld: a block has %d tokens; give at least that, or 0",
                       (long long)tokens, KV_BLOCK_TOKENS);
    instance_dim(in, "max_position", &trained);
    mo.kv_blocks = (uint32_t)(tokens / KV_BLOCK_TOKENS);
    most = tokens == 0 ? 1 << 24 : longest(in, mo.kv_blocks, tokens);
    if (len == 0)
        len = trained == 0 ? (tokens == 0 ? UNTRAINED_LEN : tokens) : trained < most ? trained : most;
    if (needed > 0 && needed < len)
        len = needed;
    if (len > most)
        return err_set(err, ST_INVALID, "--max-len %lld is more than the KV cache holds (--kv-tokens %lld)",
                       (long long)len, (long long)tokens);
    mo.max_len = (uint32_t)len;
    mo.max_seqs = opt->max_seqs ? opt->max_seqs : (uint32_t)lever_int(levers, LEVER_MAX_SEQS);
    mo.max_outs = opt->max_outs ? opt->max_outs : mo.max_seqs;
    mo.max_rows = mo.max_rows > mo.max_seqs ? mo.max_rows : mo.max_seqs;
    mo.max_outs = mo.max_outs < mo.max_rows ? mo.max_outs : mo.max_rows;
    *out = mo;
    return ST_OK;
}

static Status open_model(Loaded *l, const Levers *levers, const LoadOptions *opt, Err *err)
{
    Status st = ST_OK;
    Str why = STR_INIT;
    GpuFacts facts;
    ModelOptions mo;

    TRY(open_backend(l, levers, err));
    gpu_facts(l->gpu, &facts);
    if (facts.host_memory)
        log_info(&l->log, "hardware: class %s on %s, %u threads", l->hw, facts.device, facts.units);
    else
        log_info(&l->log, "hardware: class %s on %s, %u multiprocessors, %.1f of %.1f GiB free", l->hw, facts.device,
                 facts.units, (double)facts.mem_free / (1 << 30), (double)facts.mem_total / (1 << 30));
    TRY(target_choose(&l->target, &metrale_registry, l->hw, l->in, &why, err));
    log_info(&l->log, "target: %s; %s", l->target->name, str_c(&why));
    TRY(families_load(&l->families, &metrale_registry, l->target, err));
    TRY(target_sampling(&metrale_registry, l->target, &l->preset, err));

    TRY(loader_model_options(&mo, l->in, levers, opt, err));
    TRY(model_new(&l->model, l->in, l->families, l->store, l->gpu, &mo, &l->log, err));
done:
    str_release(&why);
    return st;
}

static LogLevel log_level(const char *name)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return (LogLevel)i;
    return LOG_INFO;
}

Status loaded_open(Loaded *l, const char *model, Levers *levers, const LoadOptions *opt, Err *err)
{
    Status st = ST_OK;
    DType kv = DT_BF16;
    bool act;

    *l = (Loaded){.preset = {.temperature = 1, .top_p = 1}};
    TRY(levers_environment(levers, environ, err));
    l->hw = lever_text(levers, LEVER_HARDWARE);
    if (!opt->any_class || *l->hw == '\0')
        TRY(loader_class(&l->hw, &metrale_registry, l->hw, err));
    TRY(levers_class(levers, &metrale_registry, l->hw, err));
    l->log = (Log){.out = stderr, .min = log_level(lever_text(levers, LEVER_LOG_LEVEL))};
    if (opt->quiet && lever_origin(levers, LEVER_LOG_LEVEL) < FROM_VARIABLE)
        l->log.min = LOG_WARN;
    dtype_parse(lever_text(levers, LEVER_KV_DTYPE), &kv);
    if (opt->exact && lever_origin(levers, LEVER_KV_DTYPE) < FROM_VARIABLE)
        kv = DT_F32;
    act = strcmp(lever_text(levers, LEVER_ACT_QUANT), "config") == 0 &&
          (!opt->exact || lever_origin(levers, LEVER_ACT_QUANT) >= FROM_VARIABLE);

    TRY(model_path(model, &l->path, err));
    bool bare = str_ends(l->path, ".json") && opt->dummy;
    TRY(opt->level >= LOAD_STORE && !bare ? store_open(&l->store, l->path, err)
                                          : store_open_config(&l->store, l->path, err));
    if (opt->level != LOAD_TOKENIZER) {
        TRY(circuit_library_new(&l->lib, metrale_registry.files, metrale_registry.n_files, err));
        if (bare) {
            WeightStore *dummy = NULL;
            TRY(dummy_model_new(&dummy, l->lib, store_meta(l->store), l->path, opt->dummy, err));
            store_free(l->store);
            l->store = dummy;
        }
        TRY(loader_instance(&l->in, l->lib, l->store, kv, act, err));
    }
    if (opt->level == LOAD_TOKENIZER || opt->tokenizer || (opt->text_if_any && has_text(l)))
        TRY(open_text(l, err));
    if (l->tokenizer && l->in)
        TRY(check_vocabulary(l, err));
    if (opt->level == LOAD_MODEL)
        TRY(open_model(l, levers, opt, err));
done:
    if (st != ST_OK)
        loaded_close(l);
    return st;
}

void loaded_close(Loaded *l)
{
    model_free(l->model);
    gpu_free(l->gpu);
    if (l->trace && (ferror(l->trace) | fclose(l->trace)) != 0)
        log_warn(&l->log, "--trace: the file could not be written to its end");
    families_free(l->families);
    instance_free(l->in);
    circuit_library_free(l->lib);
    store_free(l->store);
    tokenizer_free(l->tokenizer);
    json_decref(l->tokenizer_config);
    json_decref(l->generation_config);
    json_decref(l->chat_template);
    free(l->path);
    *l = (Loaded){0};
}
