/* target.c - which kernel target serves a checkpoint, and what HARDWARE.toml and MODEL.toml say beside kernels.
 *
 * A target is a candidate when its MODEL.toml lists the checkpoint's model_type and all its dims agree, and when its
 * quant directory is `any` or the format that holds most of the layers' matrix elements. Among candidates: more dims
 * matched, then a quant directory of its own, then the name in byte order. */
#include "circuit/target.h"
#include "core/toml.h"
#include <stdio.h>
#include <string.h>

/* ---- files of a class and a model -------------------------------------------------------------------------------- */

/* kernels/HW[/MODEL]/FILE; *out is NULL when the binary has none. */
static Status open_toml(const KernelRegistry *reg, const char *hw, const char *model, const char *file, Toml **out,
                        Err *err)
{
    char path[512];
    const EmbeddedFile *f;
    int n = snprintf(path, sizeof path, "kernels/%s%s%s/%s", hw, model != NULL ? "/" : "", model != NULL ? model : "",
                     file);

    *out = NULL;
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, ST_INVALID, "hardware class '%.64s...' has too long a name", hw);
    f = registry_file(reg, path);
    return f == NULL ? ST_OK : toml_parse(f->text, f->len, path, out, err);
}

/* The class that hw inherits from, as text in out; "" for none. */
static Status parent_of(const KernelRegistry *reg, const char *hw, char *out, size_t size, Err *err)
{
    Toml *t = NULL;
    const TomlNode *h = NULL;
    const char *parent = "";
    Status st = ST_OK;

    out[0] = '\0';
    TRY(open_toml(reg, hw, NULL, "HARDWARE.toml", &t, err));
    if (t == NULL)
        goto done;
    TRY(toml_table(t, &t->root, "hardware", &h, err));
    if (h != NULL)
        TRY(toml_str(t, h, "inherits", &parent, err));
    if (snprintf(out, size, "%s", parent) >= (int)size)
        st = toml_err(t, h, err, ST_FORMAT, "'inherits' is too long a name");
done:
    toml_free(t);
    return st;
}

/* MODEL.toml of a model in a class, or in the class it inherits from. */
static Status open_model(const KernelRegistry *reg, const char *hw, const char *model, Toml **out, Err *err)
{
    char parent[128];
    Status st = open_toml(reg, hw, model, "MODEL.toml", out, err);

    if (st != ST_OK || *out != NULL)
        return st;
    st = parent_of(reg, hw, parent, sizeof parent, err);
    return st == ST_OK && parent[0] != '\0' ? open_toml(reg, parent, model, "MODEL.toml", out, err) : st;
}

/* ---- matching ---------------------------------------------------------------------------------------------------- */

static DType dominant_format(const Instance *in)
{
    uint64_t elements[DT_COUNT] = {0};
    DType best = DT_NONE;

    for (uint32_t i = 0; i < in->n_layers; i++) {
        const InstanceBlock *b = &in->blocks[in->layers[i].block];
        for (uint32_t w = 0; w < b->n_weights; w++)
            if (!b->weights[w].vector && b->weights[w].stored < DT_COUNT)
                elements[b->weights[w].stored] += b->weights[w].n * b->weights[w].k;
    }
    for (int t = 0; t < DT_COUNT; t++)
        if (elements[t] > 0 && (best == DT_NONE || elements[t] > elements[best]))
            best = (DType)t;
    return best;
}

static Status type_matches(const Toml *t, const TomlNode *match, const char *model_type, bool *out, Err *err)
{
    const TomlNode *v = toml_find(match, "model_type");

    *out = false;
    if (v == NULL || (v->kind != TOML_STRING && v->kind != TOML_ARRAY))
        return toml_err(t, v == NULL ? match : v, err, ST_FORMAT,
                        "[match] needs model_type, a string or a list of strings");
    if (v->kind == TOML_STRING) {
        *out = strcmp(v->str, model_type) == 0;
        return ST_OK;
    }
    for (uint32_t i = 0; i < v->list.len; i++) {
        if (v->list.items[i].kind != TOML_STRING)
            return toml_err(t, &v->list.items[i], err, ST_FORMAT, "model_type lists strings");
        *out |= strcmp(v->list.items[i].str, model_type) == 0;
    }
    return ST_OK;
}

static Status dims_match(const Toml *t, const TomlNode *match, const Instance *in, bool *out, uint32_t *n, Err *err)
{
    const TomlNode *dims;
    Status st = toml_table(t, match, "dims", &dims, err);

    *out = true;
    *n = 0;
    if (st != ST_OK || dims == NULL)
        return st;
    for (uint32_t i = 0; i < dims->list.len; i++) {
        const TomlNode *v = &dims->list.items[i];
        int64_t have;
        if (v->kind != TOML_INT)
            return toml_err(t, v, err, ST_FORMAT, "[match.dims] compares dims with integers");
        *out = *out && instance_dim(in, v->key, &have) && have == v->i;
    }
    *n = dims->list.len;
    return ST_OK;
}

static Status model_matches(const KernelRegistry *reg, const KernelTarget *t, const Instance *in, bool *out,
                            uint32_t *n_dims, Err *err)
{
    static const char *const keys[] = {"model_type", "dims", NULL};
    Toml *toml = NULL;
    const TomlNode *match = NULL;
    bool type = false, dims = false;
    Status st = ST_OK;

    *out = false;
    TRY(open_model(reg, t->hw, t->model, &toml, err));
    if (toml == NULL)
        goto done; /* a target with no MODEL.toml serves nothing by itself */
    TRY(toml_table(toml, &toml->root, "match", &match, err));
    if (match == NULL)
        TRY(toml_err(toml, &toml->root, err, ST_FORMAT, "the table [match] is missing"));
    TRY(toml_only(toml, match, keys, err));
    TRY(type_matches(toml, match, in->model_type, &type, err));
    TRY(dims_match(toml, match, in, &dims, n_dims, err));
    *out = type && dims;
done:
    toml_free(toml);
    return st;
}

/* Is a better than b? */
static bool outranks(const KernelTarget *a, uint32_t a_dims, const KernelTarget *b, uint32_t b_dims)
{
    bool a_any = strcmp(a->quant, "any") == 0, b_any = strcmp(b->quant, "any") == 0;

    if (a_dims != b_dims)
        return a_dims > b_dims;
    if (a_any != b_any)
        return b_any;
    return strcmp(a->name, b->name) < 0;
}

static Status refuse(const KernelRegistry *reg, const char *hw, const Instance *in, const char *format, Err *err)
{
    Str list = STR_INIT;
    Status st;

    for (size_t i = 0; i < reg->n_targets; i++)
        if (strcmp(reg->targets[i].hw, hw) == 0)
            str_addf(&list, "%s%s", list.len > 0 ? ", " : "", reg->targets[i].name);
    if (list.len == 0)
        st = err_set(err, ST_UNSUPPORTED, "this binary has no kernels for class %s; %s", hw,
                     reg->left_out != NULL ? reg->left_out : "build it in with METRALE_TARGET_HW");
    else
        st = err_set(err, ST_UNSUPPORTED,
                     "%s: no target of class %s serves model_type '%s' in %s; there are %s; add a "
                     "directory kernels/%s/<model> with a MODEL.toml",
                     in->source, hw, in->model_type, format, str_c(&list), hw);
    str_release(&list);
    return st;
}

Status target_choose(const KernelTarget **out, const KernelRegistry *reg, const char *hw, const Instance *in, Str *why,
                     Err *err)
{
    const char *format = dtype_name(dominant_format(in));
    const KernelTarget *best = NULL;
    uint32_t best_dims = 0;
    Status st = ST_OK;

    for (size_t i = 0; i < reg->n_targets; i++) {
        const KernelTarget *t = &reg->targets[i];
        uint32_t n_dims = 0;
        bool matches = false;
        if (strcmp(t->hw, hw) != 0 || (strcmp(t->quant, "any") != 0 && strcmp(t->quant, format) != 0))
            continue;
        TRY(model_matches(reg, t, in, &matches, &n_dims, err));
        if (matches && (best == NULL || outranks(t, n_dims, best, best_dims))) {
            best = t;
            best_dims = n_dims;
        }
    }
    if (best == NULL)
        TRY(refuse(reg, hw, in, format, err));
    if (why != NULL)
        str_addf(why, "target %s: model_type %s, %u dims of the model matched, matrices mostly %s", best->name,
                 in->model_type, best_dims, format);
    *out = best;
done:
    return st;
}

/* ---- levers and presets ------------------------------------------------------------------------------------------ */

static Status default_of(const KernelRegistry *reg, const char *hw, const char *lever, Str *value, bool *found,
                         Err *err)
{
    Toml *t = NULL;
    const TomlNode *table = NULL, *v;
    Status st = ST_OK;

    TRY(open_toml(reg, hw, NULL, "HARDWARE.toml", &t, err));
    if (t == NULL)
        goto done;
    TRY(toml_table(t, &t->root, "defaults", &table, err));
    v = table == NULL ? NULL : toml_find(table, lever);
    if (v == NULL)
        goto done;
    switch (v->kind) {
    case TOML_STRING:
        str_adds(value, v->str);
        break;
    case TOML_INT:
        str_addf(value, "%lld", (long long)v->i);
        break;
    case TOML_FLOAT:
        str_addf(value, "%.17g", v->f);
        break;
    case TOML_BOOL:
        str_adds(value, v->b ? "true" : "false");
        break;
    default:
        TRY(toml_err(t, v, err, ST_FORMAT, "the default of '%s' must be a string, a number or a boolean", lever));
    }
    *found = true;
    if (!str_ok(value))
        TRY(err_set(err, ST_NOMEM, "out of memory while reading the defaults of class %s", hw));
done:
    toml_free(t);
    return st;
}

Status target_default(const KernelRegistry *reg, const char *hw, const char *lever, Str *value, bool *found, Err *err)
{
    char parent[128];
    Status st = ST_OK;

    *found = false;
    TRY(default_of(reg, hw, lever, value, found, err));
    if (*found)
        goto done;
    TRY(parent_of(reg, hw, parent, sizeof parent, err));
    if (parent[0] != '\0')
        TRY(default_of(reg, parent, lever, value, found, err));
done:
    return st;
}

Status target_sampling(const KernelRegistry *reg, const KernelTarget *t, SamplingPreset *out, Err *err)
{
    Toml *toml = NULL;
    const TomlNode *table = NULL;
    SamplingPreset preset = *out;
    Status st = ST_OK;

    TRY(open_model(reg, t->hw, t->model, &toml, err));
    if (toml == NULL)
        goto done;
    TRY(toml_table(toml, &toml->root, "sampling", &table, err));
    if (table == NULL)
        goto done;
    TRY(toml_float(toml, table, "temperature", &preset.temperature, err));
    TRY(toml_float(toml, table, "top_p", &preset.top_p, err));
    TRY(toml_float(toml, table, "min_p", &preset.min_p, err));
    TRY(toml_int(toml, table, "top_k", &preset.top_k, err));
    *out = preset;
done:
    toml_free(toml);
    return st;
}
