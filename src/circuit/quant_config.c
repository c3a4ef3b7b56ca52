/* quant_config.c - see quant_config.h. Each method of quantisation is a reader of its own block; what they share is a list
 * of keys that they know: a key that nobody knows may change what the weights mean, and refuses the checkpoint.
 *
 * The names of side tensors are the tables of schemes below. Where a method has two spellings, `also` has the other. */
#include "circuit/quant_config.h"
#include "circuit/quant_match.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct QuantReading {
    const InstanceSource *src;
    const json_t *block;
    Arena *arena;
    Err *err;
    QuantConfig *out;
    QuantRule *rules;
} QuantReading;

/* ---- schemes ------------------------------------------------------------------------------------------------------ */
static const QuantScheme FP8 = {.store = QUANT_FP8,
                                .bits = 8,
                                .name = "fp8",
                                .main = ".weight",
                                .sides = {[SIDE_SCALE] = ".weight_scale", [SIDE_INPUT] = ".input_scale"},
                                .also = {[SIDE_SCALE] = ".weight_scale_inv", [SIDE_INPUT] = ".activation_scale"}};
static const QuantScheme INT8 = {
    .store = QUANT_INT8,
    .bits = 8,
    .group_rows = 1,
    .name = "int8",
    .main = ".weight",
    .sides = {[SIDE_SCALE] = ".weight_scale", [SIDE_ZERO] = ".weight_zero_point", [SIDE_INPUT] = ".input_scale"}};
static const QuantScheme NVFP4_MODELOPT = {
    .store = QUANT_NVFP4,
    .bits = 4,
    .group = 16,
    .group_rows = 1,
    .name = "nvfp4",
    .main = ".weight",
    .sides = {[SIDE_SCALE] = ".weight_scale", [SIDE_GLOBAL] = ".weight_scale_2", [SIDE_INPUT] = ".input_scale"}};
static const QuantScheme NVFP4_COMPRESSED = {
    .store = QUANT_NVFP4,
    .bits = 4,
    .group = 16,
    .group_rows = 1,
    .global_divides = true,
    .name = "nvfp4",
    .main = ".weight_packed",
    .sides = {
        [SIDE_SCALE] = ".weight_scale", [SIDE_GLOBAL] = ".weight_global_scale", [SIDE_INPUT] = ".input_global_scale"}};
static const QuantScheme PACKED = {.store = QUANT_PACKED,
                                   .group_rows = 1,
                                   .name = "packed integers",
                                   .main = ".weight_packed",
                                   .sides = {[SIDE_SCALE] = ".weight_scale",
                                             [SIDE_ZERO] = ".weight_zero_point",
                                             [SIDE_ORDER] = ".weight_g_idx",
                                             [SIDE_INPUT] = ".input_scale",
                                             [SIDE_SHAPE] = ".weight_shape"}};
static const QuantScheme AWQ = {.store = QUANT_AWQ,
                                .bits = 4,
                                .group_rows = 1,
                                .name = "awq",
                                .main = ".qweight",
                                .sides = {[SIDE_SCALE] = ".scales", [SIDE_ZERO] = ".qzeros"}};
static const QuantScheme GPTQ = {.store = QUANT_GPTQ,
                                 .group_rows = 1,
                                 .name = "gptq",
                                 .main = ".qweight",
                                 .sides = {[SIDE_SCALE] = ".scales", [SIDE_ZERO] = ".qzeros", [SIDE_ORDER] = ".g_idx"}};
static const QuantScheme MXFP4 = {.store = QUANT_MXFP4,
                                  .bits = 4,
                                  .group = 32,
                                  .group_rows = 1,
                                  .name = "mxfp4",
                                  .main = "_blocks",
                                  .sides = {[SIDE_SCALE] = "_scales"}};
static const QuantScheme NF4 = {.store = QUANT_NF4,
                                .bits = 4,
                                .group = 64,
                                .group_rows = 1,
                                .name = "nf4",
                                .main = ".weight",
                                .sides = {[SIDE_SCALE] = ".weight.absmax",
                                          [SIDE_NESTED_SCALE] = ".weight.nested_absmax",
                                          [SIDE_NESTED_MAP] = ".weight.nested_quant_map",
                                          [SIDE_MAP] = ".weight.quant_map",
                                          [SIDE_STATE] = ".weight.quant_state.bitsandbytes__nf4"},
                                .side_optional = {[SIDE_NESTED_SCALE] = true, [SIDE_NESTED_MAP] = true}};

static void drop_side(QuantScheme *s, QuantSide side)
{
    s->sides[side] = s->also[side] = NULL;
}

/* The largest span that a group is made of. */
static DType span_format(uint64_t group, DType of_128, DType of_64, DType of_32)
{
    return group % 128 == 0 ? of_128 : group % 64 == 0 ? of_64 : group % 32 == 0 ? of_32 : DT_NONE;
}

DType quant_format(const QuantScheme *s, uint64_t k)
{
    switch (s->store) {
    case QUANT_FP8:
        return s->group % 128 == 0 ? DT_FP8_128 : DT_NONE;
    case QUANT_NVFP4:
        return DT_NVFP4;
    case QUANT_MXFP4:
        return DT_MXFP4;
    case QUANT_NF4: /* blocks go on from row to row: spans must divide both */
        return k % 64 == 0 ? DT_NF4_64 : k % 32 == 0 ? DT_NF4_32 : DT_NONE;
    default:
        if (s->bits == 8)
            return s->sides[SIDE_ORDER] == NULL || s->side_optional[SIDE_ORDER]
                       ? span_format(s->group, DT_W8_128, DT_NONE, DT_NONE)
                       : DT_NONE;
        if (s->sides[SIDE_ORDER] != NULL && !s->side_optional[SIDE_ORDER])
            return k <= UINT16_MAX ? span_format(s->group ? s->group : k, DT_W4P_128, DT_W4P_64, DT_W4P_32) : DT_NONE;
        return span_format(s->group, DT_W4_128, DT_W4_64, DT_W4_32);
    }
}

void quant_input_say(const QuantInput *q, Str *out)
{
    static const char *const names[] = {[ACT_NARROW] = "-", [ACT_E4M3] = "e4m3", [ACT_I8] = "i8", [ACT_E2M1] = "e2m1"};

    str_adds(out, names[q->to]);
    if (q->to == ACT_NARROW)
        return;
    if (q->span > 0)
        str_addf(out, "/%u", q->span);
    else
        str_adds(out, q->scaled ? "/tensor" : "/token");
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */
static Status bad_key(const QuantReading *r, const char *key, const json_t *v, const char *wanted)
{
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    Status st = err_set(r->err, ST_UNSUPPORTED, "%s: quantization_config.%s is %.100s; it must be %s", r->src->name,
                        key, text ? text : "missing", wanted);

    free(text);
    return st;
}

/* Refuses keys that are not in the NULL-terminated list. where: "" or a path with a dot at its end. */
static Status only_keys(const QuantReading *r, const json_t *table, const char *where, const char *const *known)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)table, key, v)
    {
        const char *const *k = known;
        while (*k != NULL && strcmp(*k, key) != 0)
            k++;
        if (*k == NULL && !json_is_null(v))
            return err_set(r->err, ST_UNSUPPORTED,
                           "%s: key quantization_config.%s%s is unknown, so it may change what the weights mean",
                           r->src->name, where, key);
    }
    return ST_OK;
}

static Status need_int(const QuantReading *r, const json_t *table, const char *key, int64_t min, int64_t max,
                       uint32_t *out)
{
    const json_t *v = json_object_get(table, key);

    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return bad_key(r, key, v, min == -1 ? "-1 or a positive integer" : "a positive integer");
    *out = json_integer_value(v) < 0 ? 0 : (uint32_t)json_integer_value(v);
    return ST_OK;
}

static const char *text_of(const json_t *table, const char *key)
{
    const char *s = json_string_value(json_object_get(table, key));

    return s ? s : "";
}

static bool flag_of(const json_t *table, const char *key)
{
    return json_is_true(json_object_get(table, key));
}

/* A list of modules; missing and null: none. Patterns are checked. */
static Status read_modules(const QuantReading *r, const json_t *table, const char *key, const char *const **out,
                           uint32_t *n)
{
    const json_t *list = json_object_get(table, key);
    const char **items;

    *n = 0;
    *out = NULL;
    if (list == NULL || json_is_null(list))
        return ST_OK;
    if (!json_is_array(list))
        return bad_key(r, key, list, "a list of modules");
    items = ARENA_ARRAY(r->arena, const char *, json_array_size(list) + 1);
    if (items == NULL)
        return err_set(r->err, ST_NOMEM, "%s: out of memory", r->src->name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        Err inner;

        if (s == NULL)
            return bad_key(r, key, json_array_get(list, i), "a list of modules");
        if (quant_match_check(s, &inner) != ST_OK)
            return err_set(r->err, ST_UNSUPPORTED, "%s: quantization_config.%s: %s", r->src->name, key, inner.msg);
        items[i] = arena_strdup(r->arena, s);
        if (items[i] == NULL)
            return err_set(r->err, ST_NOMEM, "%s: out of memory", r->src->name);
        ++*n;
    }
    *out = items;
    return ST_OK;
}

static Status add_rule(QuantReading *r, const QuantScheme *scheme, const char *const *targets, uint32_t n)
{
    r->rules[r->out->n_rules++] = (QuantRule){.scheme = *scheme, .targets = targets, .n_targets = n};
    return ST_OK;
}

/* A quantisation of inputs that no op here does. Weights mean what they mean without it, so that only a reader who asks
 * for it is refused; for all others inputs stay as they are. */
static Status bad_input(const QuantReading *r, const char *key, const json_t *v, const char *wanted)
{
    return r->src->act_quant ? bad_key(r, key, v, wanted) : ST_OK;
}

/* ---- methods ------------------------------------------------------------------------------------------------------ */
static Status read_fp8(QuantReading *r)
{
    static const char *const known[] = {"quant_method",      "activation_scheme", "fmt",
                                        "weight_block_size", "scale_fmt",         "modules_to_not_convert",
                                        "dequantize",        "ignored_layers",    NULL};
    const json_t *size = json_object_get(r->block, "weight_block_size");
    const char *fmt = text_of(r->block, "fmt"), *scheme = text_of(r->block, "activation_scheme");
    QuantScheme s = FP8;
    Status st = ST_OK;

    TRY(only_keys(r, r->block, "", known));
    if (*fmt && strcmp(fmt, "e4m3") != 0 && strcmp(fmt, "float8_e4m3fn") != 0)
        return bad_key(r, "fmt", json_object_get(r->block, "fmt"), "\"e4m3\"");
    if (json_is_array(size)) {
        json_int_t rows = json_integer_value(json_array_get(size, 0)),
                   cols = json_integer_value(json_array_get(size, 1));
        if (json_array_size(size) != 2 || rows < 1 || rows > INT32_MAX || cols < 128 || cols % 128 != 0 ||
            cols > INT32_MAX)
            return bad_key(r, "weight_block_size", size, "[rows, columns], with columns a multiple of 128");
        s.group_rows = (uint32_t)rows;
        s.group = (uint32_t)cols;
        s.name = "fp8 in blocks";
        s.sides[SIDE_SCALE] = ".weight_scale_inv"; /* its own spelling, which a message should have */
        s.also[SIDE_SCALE] = ".weight_scale";
    } else if (size != NULL && !json_is_null(size))
        return bad_key(r, "weight_block_size", size, "a list of two numbers");
    s.input = (QuantInput){.to = ACT_E4M3, .span = s.group};
    if (strcmp(scheme, "static") == 0)
        s.input = (QuantInput){.to = ACT_E4M3, .scaled = true};
    else
        drop_side(&s, SIDE_INPUT);
    if (*scheme && strcmp(scheme, "static") != 0 && strcmp(scheme, "dynamic") != 0) {
        s.input = (QuantInput){.to = ACT_NARROW};
        TRY(bad_input(r, "activation_scheme", json_object_get(r->block, "activation_scheme"),
                      "\"dynamic\" or \"static\""));
    }
    TRY(read_modules(r, r->block, "modules_to_not_convert", &r->out->ignored, &r->out->n_ignored));
    if (r->out->n_ignored == 0)
        TRY(read_modules(r, r->block, "ignored_layers", &r->out->ignored, &r->out->n_ignored));
    TRY(add_rule(r, &s, NULL, 0));
done:
    return st;
}

static Status read_awq(QuantReading *r)
{
    static const char *const known[] = {
        "quant_method", "bits",    "group_size",     "modules_to_not_convert", "version",         "zero_point",
        "backend",      "do_fuse", "exllama_config", "fuse_max_seq_len",       "modules_to_fuse", "w_bit",
        "q_group_size", NULL};
    const char *version = text_of(r->block, "version");
    QuantScheme s = AWQ;
    Status st = ST_OK;

    TRY(only_keys(r, r->block, "", known));
    TRY(need_int(r, r->block, "bits", 1, 64, &s.bits));
    TRY(need_int(r, r->block, "group_size", -1, INT32_MAX, &s.group));
    if (s.bits != 4)
        return bad_key(r, "bits", json_object_get(r->block, "bits"), "4");
    if (*version && strcasecmp(version, "gemm") != 0)
        return bad_key(r, "version", json_object_get(r->block, "version"), "\"gemm\"");
    s.side_optional[SIDE_ZERO] = json_is_false(json_object_get(r->block, "zero_point"));
    TRY(read_modules(r, r->block, "modules_to_not_convert", &r->out->ignored, &r->out->n_ignored));
    TRY(add_rule(r, &s, NULL, 0));
done:
    return st;
}

static Status read_gptq(QuantReading *r)
{
    static const char *const known[] = {"quant_method",
                                        "bits",
                                        "group_size",
                                        "desc_act",
                                        "sym",
                                        "checkpoint_format",
                                        "damp_percent",
                                        "static_groups",
                                        "true_sequential",
                                        "lm_head",
                                        "model_file_base_name",
                                        "model_name_or_path",
                                        "quantizer",
                                        "meta",
                                        "dataset",
                                        "tokenizer",
                                        "use_exllama",
                                        "max_input_length",
                                        "exllama_config",
                                        "cache_block_outputs",
                                        "block_name_to_quantize",
                                        "modules_in_block_to_quantize",
                                        "backend",
                                        "pack_dtype",
                                        "act_group_aware",
                                        NULL};
    const char *format = text_of(r->block, "checkpoint_format");
    QuantScheme s = GPTQ;
    Status st = ST_OK;

    TRY(only_keys(r, r->block, "", known));
    TRY(need_int(r, r->block, "bits", 1, 64, &s.bits));
    TRY(need_int(r, r->block, "group_size", -1, INT32_MAX, &s.group));
    if (s.bits != 4 && s.bits != 8)
        return bad_key(r, "bits", json_object_get(r->block, "bits"), "4 or 8");
    if (*format && strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
        return bad_key(r, "checkpoint_format", json_object_get(r->block, "checkpoint_format"),
                       "\"gptq\" or \"gptq_v2\"");
    s.zero_less_one = strcmp(format, "gptq_v2") != 0;
    s.side_optional[SIDE_ORDER] = !flag_of(r->block, "desc_act") || s.group == 0;
    TRY(add_rule(r, &s, NULL, 0));
done:
    return st;
}

static Status read_mxfp4(QuantReading *r)
{
    static const char *const known[] = {"quant_method", "modules_to_not_convert", "dequantize", NULL};
    Status st = ST_OK;

    TRY(only_keys(r, r->block, "", known));
    r->out->experts_only = true;
    TRY(read_modules(r, r->block, "modules_to_not_convert", &r->out->ignored, &r->out->n_ignored));
    TRY(add_rule(r, &MXFP4, NULL, 0));
done:
    return st;
}

static Status read_bitsandbytes(QuantReading *r)
{
    static const char *const known[] = {"quant_method",
                                        "_load_in_4bit",
                                        "_load_in_8bit",
                                        "load_in_4bit",
                                        "load_in_8bit",
                                        "bnb_4bit_compute_dtype",
                                        "bnb_4bit_quant_storage",
                                        "bnb_4bit_quant_type",
                                        "bnb_4bit_use_double_quant",
                                        "llm_int8_enable_fp32_cpu_offload",
                                        "llm_int8_has_fp16_weight",
                                        "llm_int8_skip_modules",
                                        "llm_int8_threshold",
                                        NULL};
    Status st = ST_OK;

    TRY(only_keys(r, r->block, "", known));
    if (!flag_of(r->block, "load_in_4bit"))
        return bad_key(r, "load_in_4bit", json_object_get(r->block, "load_in_4bit"), "true");
    if (strcmp(text_of(r->block, "bnb_4bit_quant_type"), "nf4") != 0)
        return bad_key(r, "bnb_4bit_quant_type", json_object_get(r->block, "bnb_4bit_quant_type"), "\"nf4\"");
    if (strcmp(text_of(r->block, "bnb_4bit_quant_storage"), "uint8") != 0)
        return bad_key(r, "bnb_4bit_quant_storage", json_object_get(r->block, "bnb_4bit_quant_storage"), "\"uint8\"");
    TRY(read_modules(r, r->block, "llm_int8_skip_modules", &r->out->ignored, &r->out->n_ignored));
    TRY(add_rule(r, &NF4, NULL, 0));
done:
    return st;
}

/* The algorithm of a ModelOpt checkpoint, or of one of its modules. inputs: their quantisation; NULL: as it always is. */
static Status modelopt_scheme(const QuantReading *r, const char *algo, const json_t *inputs, QuantScheme *s)
{
    if (strcmp(algo, "FP8") == 0)
        *s = FP8;
    else if (strcmp(algo, "NVFP4") == 0)
        *s = NVFP4_MODELOPT;
    else
        return err_set(r->err, ST_UNSUPPORTED,
                       "%s: quant_algo is \"%s\"; FP8, NVFP4 and MIXED_PRECISION of these are read", r->src->name,
                       algo);
    s->input = s->store == QUANT_FP8 ? (QuantInput){.to = ACT_E4M3, .scaled = true}
                                     : (QuantInput){.to = ACT_E2M1, .span = 16, .scaled = true};
    if (json_is_true(json_object_get(inputs, "dynamic"))) {
        drop_side(s, SIDE_INPUT);
        s->input.scaled = false;
    }
    return ST_OK;
}

static Status modelopt_layers(QuantReading *r, const json_t *layers)
{
    const char *name;
    json_t *v;
    Status st = ST_OK;

    json_object_foreach((json_t *)(uintptr_t)layers, name, v)
    {
        const char **target = ARENA_NEW(r->arena, const char *);
        QuantScheme s;

        if (target == NULL || (*target = arena_strdup(r->arena, name)) == NULL)
            return err_set(r->err, ST_NOMEM, "%s: out of memory", r->src->name);
        TRY(modelopt_scheme(r, text_of(v, "quant_algo"), NULL, &s));
        TRY(add_rule(r, &s, target, 1));
    }
done:
    return st;
}

static Status read_modelopt(QuantReading *r)
{
    static const char *const known[] = {"quant_method",
                                        "quant_algo",
                                        "config_groups",
                                        "ignore",
                                        "exclude_modules",
                                        "kv_cache_scheme",
                                        "kv_cache_quant_algo",
                                        "producer",
                                        "quantized_layers",
                                        "group_size",
                                        "has_zero_point",
                                        "pre_quant_scale",
                                        NULL};
    const char *algo = text_of(r->block, "quant_algo");
    const json_t *groups = json_object_get(r->block, "config_groups"), *layers;
    const json_t *size = json_object_get(r->block, "group_size");
    QuantScheme s;
    Status st = ST_OK;

    TRY(only_keys(r, r->block, "", known));
    TRY(read_modules(r, r->block, json_object_get(r->block, "ignore") ? "ignore" : "exclude_modules", &r->out->ignored,
                     &r->out->n_ignored));
    if (strcmp(algo, "MIXED_PRECISION") == 0) {
        layers = json_object_get(r->block, "quantized_layers");
        if (!json_is_object(layers))
            return bad_key(r, "quantized_layers", layers, "an object with one item for each module");
        return modelopt_layers(r, layers);
    }
    if (json_is_integer(size) && json_integer_value(size) != 16)
        return bad_key(r, "group_size", size, "16");
    TRY(modelopt_scheme(r, algo, json_object_get(json_object_get(groups, "group_0"), "input_activations"), &s));
    TRY(add_rule(r, &s, NULL, 0));
done:
    return st;
}

/* ---- compressed-tensors ------------------------------------------------------------------------------------------- */
static Status unknown_format(const QuantReading *r, const char *format)
{
    return err_set(r->err, ST_UNSUPPORTED,
                   "%s: the compressed-tensors format is \"%s\"; float-quantized, int-quantized, pack-quantized, "
                   "nvfp4-pack-quantized and mixed-precision of these are read",
                   r->src->name, format);
}

/* Who shares a scale, by the strategy. */
static Status compressed_groups(const QuantReading *r, const json_t *w, QuantScheme *s)
{
    const char *strategy = text_of(w, "strategy");
    const json_t *block = json_object_get(w, "block_structure");
    Status st = ST_OK;

    s->group_rows = 1;
    s->group = 0;
    if (strcmp(strategy, "tensor") == 0) {
        s->group_rows = 0;
    } else if (strcmp(strategy, "group") == 0 || strcmp(strategy, "tensor_group") == 0) {
        TRY(need_int(r, w, "group_size", -1, INT32_MAX, &s->group));
    } else if (strcmp(strategy, "block") == 0) {
        json_int_t rows = json_integer_value(json_array_get(block, 0)),
                   cols = json_integer_value(json_array_get(block, 1));
        if (rows < 1 || rows > INT32_MAX || cols < 128 || cols % 128 != 0 || cols > INT32_MAX)
            return bad_key(r, "config_groups.*.weights.block_structure", block,
                           "[rows, columns], with columns a multiple of 128");
        s->group_rows = (uint32_t)rows;
        s->group = (uint32_t)cols;
    } else if (strcmp(strategy, "channel") != 0) {
        return bad_key(r, "config_groups.*.weights.strategy", json_object_get(w, "strategy"),
                       "tensor, channel, group, tensor_group or block");
    }
done:
    return st;
}

/* What a group asks of its inputs; inputs NULL or null: nothing. */
static Status compressed_input(const QuantReading *r, const json_t *inputs, QuantInput *out)
{
#define INPUTS "config_groups.*.input_activations."
    const char *strategy = text_of(inputs, "strategy");
    const json_t *dynamic = json_object_get(inputs, "dynamic"), *bits = json_object_get(inputs, "num_bits"),
                 *size = json_object_get(inputs, "group_size");
    const bool is_float = strcmp(text_of(inputs, "type"), "float") == 0;
    QuantInput q = {.scaled = !json_is_true(dynamic)};

    *out = (QuantInput){.to = ACT_NARROW};
    if (!json_is_object(inputs))
        return ST_OK;
    if (json_integer_value(bits) == 8)
        q.to = is_float ? ACT_E4M3 : ACT_I8;
    else if (json_integer_value(bits) == 4 && is_float)
        q.to = ACT_E2M1;
    else
        return bad_input(r, INPUTS "num_bits", bits, "8, or 4 of type float");
    if (json_is_false(json_object_get(inputs, "symmetric")))
        return bad_input(r, INPUTS "symmetric", json_object_get(inputs, "symmetric"), "true");
    if (strcmp(strategy, "group") == 0 || strcmp(strategy, "tensor_group") == 0) {
        if (!json_is_integer(size) || json_integer_value(size) < 1 || json_integer_value(size) > INT32_MAX)
            return bad_input(r, INPUTS "group_size", size, "a positive integer");
        q.span = (uint32_t)json_integer_value(size);
        /* Static scales of spans are one for each; below one that is static for all ("local") they are not. */
        if (q.to != ACT_E2M1 && q.scaled)
            return bad_input(r, INPUTS "dynamic", dynamic, "true for groups of 8 bits");
    } else if (strcmp(strategy, q.scaled ? "tensor" : "token") != 0) {
        return bad_input(r, INPUTS "strategy", json_object_get(inputs, "strategy"),
                         "token, group or tensor_group, or tensor of inputs that are not dynamic");
    }
    if (q.to == ACT_E2M1 && q.span != 16)
        return bad_input(r, INPUTS "group_size", size, "16 for 4 bits");
    *out = q;
    return ST_OK;
#undef INPUTS
}

static Status compressed_scheme(const QuantReading *r, const json_t *group, const char *format, QuantScheme *s)
{
    static const char *const known[] = {"actorder",    "block_structure", "dynamic",  "group_size",      "observer",
                                        "symmetric",   "num_bits",        "strategy", "observer_kwargs", "type",
                                        "scale_dtype", "zp_dtype",        NULL};
    const json_t *w = json_object_get(group, "weights"), *inputs = json_object_get(group, "input_activations");
    const json_t *dynamic = json_object_get(inputs, "dynamic");
    const bool is_float = strcmp(text_of(w, "type"), "float") == 0,
               symmetric = !json_is_false(json_object_get(w, "symmetric"));
    uint32_t bits = 0;
    Status st = ST_OK;

    if (!json_is_object(w))
        return bad_key(r, "config_groups.*.weights", w, "an object");
    TRY(only_keys(r, w, "config_groups.*.weights.", known));
    TRY(need_int(r, w, "num_bits", 1, 64, &bits));
    if (strcmp(format, "float-quantized") == 0)
        *s = FP8;
    else if (strcmp(format, "int-quantized") == 0)
        *s = INT8;
    else if (strcmp(format, "nvfp4-pack-quantized") == 0)
        *s = NVFP4_COMPRESSED;
    else if (strcmp(format, "pack-quantized") == 0)
        *s = PACKED;
    else
        return unknown_format(r, format);
    if (is_float != (s->store == QUANT_FP8 || s->store == QUANT_NVFP4))
        return bad_key(r, "config_groups.*.weights.type", json_object_get(w, "type"), is_float ? "int" : "float");
    if (s->store == QUANT_PACKED ? bits != 4 && bits != 8 : bits != s->bits)
        return bad_key(r, "config_groups.*.weights.num_bits", json_object_get(w, "num_bits"),
                       s->store == QUANT_PACKED ? "4 or 8"
                       : s->bits == 8           ? "8"
                                                : "4");
    s->bits = bits;
    TRY(compressed_groups(r, w, s));
    if (s->store == QUANT_NVFP4 && s->group != 16)
        return bad_key(r, "config_groups.*.weights.group_size", json_object_get(w, "group_size"), "16");
    if (symmetric)
        drop_side(s, SIDE_ZERO);
    if (strcmp(text_of(w, "actorder"), "group") != 0 && !flag_of(w, "actorder"))
        drop_side(s, SIDE_ORDER);
    /* nvfp4: "local" is dynamic below a static global scale. */
    if (!json_is_object(inputs) || json_is_true(dynamic))
        drop_side(s, SIDE_INPUT);
    TRY(compressed_input(r, inputs, &s->input));
done:
    return st;
}

static Status read_compressed(QuantReading *r)
{
    static const char *const known[] = {"quant_method",
                                        "config_groups",
                                        "format",
                                        "ignore",
                                        "quantization_status",
                                        "global_compression_ratio",
                                        "kv_cache_scheme",
                                        "version",
                                        "sparsity_config",
                                        "transform_config",
                                        NULL};
    const char *format = text_of(r->block, "format"), *name;
    const json_t *groups = json_object_get(r->block, "config_groups");
    json_t *group;
    Status st = ST_OK;

    if (json_object_size(json_object_get(r->block, "sparsity_config")) > 0)
        return bad_key(r, "sparsity_config", json_object_get(r->block, "sparsity_config"), "empty");
    if (json_object_size(json_object_get(r->block, "transform_config")) > 0)
        return bad_key(r, "transform_config", json_object_get(r->block, "transform_config"), "empty");
    TRY(read_modules(r, r->block, "ignore", &r->out->ignored, &r->out->n_ignored));
    if (!json_is_object(groups))
        return bad_key(r, "config_groups", groups, "an object");
    json_object_foreach((json_t *)(uintptr_t)groups, name, group)
    {
        static const char *const of_group[] = {"format",  "input_activations", "output_activations",
                                               "targets", "weights",           NULL};
        const char *own = text_of(group, "format");
        const char *const *targets;
        uint32_t n;
        QuantScheme s;

        TRY(only_keys(r, group, "config_groups.*.", of_group));
        TRY(compressed_scheme(r, group, *own ? own : format, &s));
        TRY(read_modules(r, group, "targets", &targets, &n));
        for (uint32_t i = 0; i < n; i++)
            if (strcmp(targets[i], "Linear") == 0)
                targets = NULL, n = 0;
        TRY(add_rule(r, &s, targets, n));
    }
    if (strcmp(format, "mixed-precision") != 0 && r->out->n_rules == 0)
        return unknown_format(r, format);
    TRY(only_keys(r, r->block, "", known)); /* last: an unknown format says more than a key that belongs to it */
done:
    return st;
}

Status quant_config_read(const QuantConfig **out, const InstanceSource *src, Arena *a, Err *err)
{
    static const struct {
        const char *name;
        Status (*read)(QuantReading *r);
    } methods[] = {{"fp8", read_fp8},
                   {"awq", read_awq},
                   {"gptq", read_gptq},
                   {"mxfp4", read_mxfp4},
                   {"bitsandbytes", read_bitsandbytes},
                   {"modelopt", read_modelopt},
                   {"compressed-tensors", read_compressed}};
    const json_t *block = json_object_get(src->meta, "quantization_config");
    QuantReading r = {.src = src, .arena = a, .err = err};
    const char *method;
    size_t cap;

    *out = NULL;
    if (block == NULL || json_is_null(block))
        block = json_object_get(json_object_get(src->meta, "text_config"), "quantization_config");
    if (src->gguf || block == NULL || json_is_null(block))
        return ST_OK;
    r.block = block;
    method = text_of(block, "quant_method");
    cap = 1 + json_object_size(json_object_get(block, "config_groups")) +
          json_object_size(json_object_get(block, "quantized_layers"));
    r.out = ARENA_NEW(a, QuantConfig);
    r.rules = ARENA_ARRAY(a, QuantRule, cap);
    if (r.out == NULL || r.rules == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory", src->name);
    r.out->rules = r.rules;
    *out = r.out;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].name, method) == 0)
            return methods[i].read(&r);
    return err_set(
        err, ST_UNSUPPORTED,
        "%s: quant_method is \"%s\"; fp8, awq, gptq, mxfp4, bitsandbytes, modelopt and compressed-tensors are "
        "read",
        src->name, method);
}

static bool any_matches(const char *const *entries, uint32_t n, const char *module)
{
    for (uint32_t i = 0; i < n; i++)
        if (quant_match(entries[i], module))
            return true;
    return false;
}

const QuantScheme *quant_config_find(const QuantConfig *q, const char *module, bool experts)
{
    if (q == NULL || (q->experts_only && !experts) || any_matches(q->ignored, q->n_ignored, module))
        return NULL;
    for (uint32_t i = 0; i < q->n_rules; i++)
        if (q->rules[i].targets == NULL || any_matches(q->rules[i].targets, q->rules[i].n_targets, module))
            return &q->rules[i].scheme;
    return NULL;
}
