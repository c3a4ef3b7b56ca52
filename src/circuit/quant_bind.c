/* quant_bind.c - see quant_bind.h. What each store wants of its tensors is written once, as a list of shapes: `expect`
 * compares a tensor with it and says both types or both shapes. */
#include "circuit/quant_bind.h"
#include "circuit/quant_config.h"
#include "core/str.h"
#include <stdio.h>
#include <string.h>

static bool join(char out[QUANT_NAME_MAX], const char *module, const char *suffix)
{
    int len = snprintf(out, QUANT_NAME_MAX, "%s%s", module, suffix);

    return len >= 0 && len < QUANT_NAME_MAX;
}

static bool has(const InstanceSource *src, const char *module, const char *suffix, TensorDesc *out)
{
    char name[QUANT_NAME_MAX];

    return join(name, module, suffix) && src->find(src->ctx, name, out);
}

bool quant_module(const char *tensor, char out[QUANT_NAME_MAX])
{
    size_t len = strlen(tensor), cut = str_ends(tensor, ".weight") ? 7 : 0;

    if (len - cut >= QUANT_NAME_MAX)
        return false;
    memcpy(out, tensor, len - cut);
    out[len - cut] = '\0';
    return true;
}

static bool is_float(DType t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16;
}

bool quant_stored(const InstanceSource *src, const QuantScheme *s, const char *module)
{
    TensorDesc t;

    if (src->find == NULL || (has(src, module, s->main, &t) && !is_float(t.dtype)))
        return true;
    for (int i = 0; i < QUANT_SIDES; i++)
        if ((s->sides[i] != NULL && has(src, module, s->sides[i], &t)) ||
            (s->also[i] != NULL && has(src, module, s->also[i], &t)))
            return true;
    return false;
}

QuantScheme quant_spelling(const InstanceSource *src, const QuantScheme *s, const char *module)
{
    QuantScheme out = *s;
    TensorDesc t;

    for (int i = 0; src->find != NULL && i < QUANT_SIDES; i++)
        if (s->also[i] != NULL && !has(src, module, s->sides[i], &t) && has(src, module, s->also[i], &t))
            out.sides[i] = s->also[i];
    return out;
}

Status quant_each(const InstanceSource *src, const QuantScheme *s, const char *module,
                  Status (*fn)(void *ctx, const char *tensor, Err *err), void *ctx, Err *err)
{
    char name[QUANT_NAME_MAX];
    TensorDesc t;
    Status st = ST_OK;

    for (int i = -1; st == ST_OK && src->find != NULL && i < QUANT_SIDES; i++) {
        const char *suffix = i < 0 ? s->main : s->sides[i];
        if (suffix != NULL && join(name, module, suffix) && src->find(src->ctx, name, &t))
            st = fn(ctx, name, err);
    }
    return st;
}

/* ---- types and shapes --------------------------------------------------------------------------------------------- */
typedef struct Shape {
    uint32_t n;
    uint64_t dims[4];
} Shape;

typedef struct Checking {
    const InstanceSource *src;
    const QuantScheme *s;
    const char *module;
    uint32_t experts;
    uint64_t n, k, groups;
    Err *err;
} Checking;

/* Names of types as files have them. */
static const char *file_type(DType t)
{
    switch (t) {
    case DT_E4M3:
        return "F8_E4M3";
    case DT_U8:
        return "U8";
    case DT_I8:
        return "I8";
    case DT_I32:
        return "I32";
    case DT_I64:
        return "I64";
    default:
        return "F32, F16 or BF16";
    }
}

static void add_shape(Str *out, uint32_t n, const uint64_t *dims)
{
    str_addc(out, '[');
    for (uint32_t i = 0; i < n && i < 4; i++)
        str_addf(out, "%s%llu", i ? ", " : "", (unsigned long long)dims[i]);
    str_addc(out, ']');
}

static bool shape_is(const TensorDesc *t, Shape want)
{
    bool same = t->n_dims == want.n;

    for (uint32_t i = 0; same && i < want.n; i++)
        same = t->dims[i] == want.dims[i];
    return same;
}

/* type DT_F32: any float, also e8m0. other: a second shape that says the same. */
static Status expect(const Checking *c, const char *suffix, bool optional, DType type, Shape want, Shape other)
{
    char name[QUANT_NAME_MAX];
    TensorDesc t;
    Str got = STR_INIT, must = STR_INIT;
    Status st = ST_OK;

    if (suffix == NULL || c->src->find == NULL)
        return ST_OK;
    if (!join(name, c->module, suffix) || !c->src->find(c->src->ctx, name, &t))
        return optional ? ST_OK
                        : err_set(c->err, ST_NOTFOUND, "%s: tensor %s is missing; the configuration says that %s is %s",
                                  c->src->name, name, c->module, c->s->name);
    if (type == DT_F32 ? !is_float(t.dtype) && t.dtype != DT_E8M0 : t.dtype != type)
        return err_set(c->err, ST_FORMAT, "%s: tensor %s is stored as %s, but %s must be %s", c->src->name, name,
                       t.stored ? t.stored : dtype_name(t.dtype), c->s->name, file_type(type));
    if (!shape_is(&t, want) && !shape_is(&t, other)) {
        add_shape(&got, t.n_dims, t.dims);
        add_shape(&must, want.n, want.dims);
        st = err_set(c->err, ST_FORMAT,
                     "%s: tensor %s has shape %s, but must have %s for a matrix of %llu by %llu in %s", c->src->name,
                     name, str_c(&got), str_c(&must), (unsigned long long)c->n, (unsigned long long)c->k, c->s->name);
    }
    str_release(&got);
    str_release(&must);
    return st;
}

static Status expect_scalar(const Checking *c, QuantSide side)
{
    return expect(c, c->s->sides[side], c->s->side_optional[side], DT_F32, (Shape){0, {0}}, (Shape){1, {1}});
}

static Status expect_side(const Checking *c, QuantSide side, DType type, Shape want)
{
    return expect(c, c->s->sides[side], c->s->side_optional[side], type, want, want);
}

/* Scales [rows of scales][groups] in front of everything else: without groups a scalar, or one for each row. */
static Status expect_scales(const Checking *c)
{
    const QuantScheme *s = c->s;
    uint64_t rows = s->group_rows ? (c->n + s->group_rows - 1) / s->group_rows : 1;

    if (s->group_rows == 0)
        return expect_scalar(c, SIDE_SCALE);
    return expect(c, s->sides[SIDE_SCALE], false, DT_F32, (Shape){2, {rows, c->groups}},
                  c->groups == 1 ? (Shape){1, {rows}} : (Shape){2, {rows, c->groups}});
}

static Status expect_tensors(const Checking *c)
{
    const QuantScheme *s = c->s;
    const uint64_t n = c->n, k = c->k, groups = c->groups;
    Status st = ST_OK;

    switch (s->store) {
    case QUANT_FP8:
    case QUANT_INT8:
        TRY(expect(c, s->main, false, s->store == QUANT_FP8 ? DT_E4M3 : DT_I8, (Shape){2, {n, k}}, (Shape){2, {n, k}}));
        TRY(expect_scales(c));
        TRY(expect_side(c, SIDE_ZERO, DT_I8, (Shape){2, {n, groups}}));
        TRY(expect_scalar(c, SIDE_INPUT));
        break;
    case QUANT_NVFP4:
        TRY(expect(c, s->main, false, DT_U8, (Shape){2, {n, k / 2}}, (Shape){2, {n, k / 2}}));
        TRY(expect_side(c, SIDE_SCALE, DT_E4M3, (Shape){2, {n, groups}}));
        TRY(expect_scalar(c, SIDE_GLOBAL));
        TRY(expect_scalar(c, SIDE_INPUT));
        break;
    case QUANT_MXFP4: {
        const uint32_t e = c->experts > 0;
        Shape blocks = {3 + e, {n, groups, 16}}, scales = {2 + e, {n, groups}};
        if (e) {
            blocks = (Shape){4, {c->experts, n, groups, 16}};
            scales = (Shape){3, {c->experts, n, groups}};
        }
        TRY(expect(c, s->main, false, DT_U8, blocks, blocks));
        TRY(expect_side(c, SIDE_SCALE, DT_U8, scales));
        break;
    }
    case QUANT_AWQ:
        TRY(expect(c, s->main, false, DT_I32, (Shape){2, {k, n / 8}}, (Shape){2, {k, n / 8}}));
        TRY(expect_side(c, SIDE_ZERO, DT_I32, (Shape){2, {groups, n / 8}}));
        TRY(expect_side(c, SIDE_SCALE, DT_F32, (Shape){2, {groups, n}}));
        break;
    case QUANT_GPTQ: {
        const uint64_t per = 32 / s->bits;
        TRY(expect(c, s->main, false, DT_I32, (Shape){2, {k / per, n}}, (Shape){2, {k / per, n}}));
        TRY(expect_side(c, SIDE_ZERO, DT_I32, (Shape){2, {groups, n / per}}));
        TRY(expect_side(c, SIDE_SCALE, DT_F32, (Shape){2, {groups, n}}));
        TRY(expect_side(c, SIDE_ORDER, DT_I32, (Shape){1, {k}}));
        break;
    }
    case QUANT_PACKED: {
        const uint64_t per = 32 / s->bits;
        TRY(expect(c, s->main, false, DT_I32, (Shape){2, {n, k / per}}, (Shape){2, {n, k / per}}));
        TRY(expect_scales(c));
        TRY(expect_side(c, SIDE_ZERO, DT_I32, (Shape){2, {n / per, groups}}));
        TRY(expect_side(c, SIDE_ORDER, DT_I32, (Shape){1, {k}}));
        TRY(expect_side(c, SIDE_SHAPE, DT_I64, (Shape){1, {2}}));
        break;
    }
    case QUANT_NF4: {
        const uint64_t blocks = (n * k + s->group - 1) / s->group;
        TensorDesc t;
        bool twice = c->src->find != NULL && has(c->src, c->module, s->sides[SIDE_SCALE], &t) && t.dtype == DT_U8;
        TRY(expect(c, s->main, false, DT_U8, (Shape){2, {n * k / 2, 1}}, (Shape){1, {n * k / 2}}));
        TRY(expect_side(c, SIDE_SCALE, twice ? DT_U8 : DT_F32, (Shape){1, {blocks}}));
        TRY(expect_side(c, SIDE_MAP, DT_F32, (Shape){1, {16}}));
        TRY(expect_side(c, SIDE_NESTED_SCALE, DT_F32, (Shape){1, {(blocks + 255) / 256}}));
        TRY(expect_side(c, SIDE_NESTED_MAP, DT_F32, (Shape){1, {256}}));
        break;
    }
    }
done:
    return st;
}

Status quant_check(const InstanceSource *src, const QuantScheme *s, const char *module, uint32_t experts, uint64_t n,
                   uint64_t k, DType *format, Err *err)
{
    Checking c = {.src = src, .s = s, .module = module, .experts = experts, .n = n, .k = k, .err = err};
    uint32_t unit = s->store == QUANT_AWQ                                                         ? 8
                    : s->store == QUANT_GPTQ || (s->store == QUANT_PACKED && s->sides[SIDE_ZERO]) ? 32 / s->bits
                                                                                                  : 1;
    uint64_t bytes;

    c.groups = s->group ? (k + s->group - 1) / s->group : 1;
    if (experts > 0 && s->store != QUANT_MXFP4)
        return err_set(err, ST_UNSUPPORTED, "%s: %s holds all experts in one tensor, which is not read in %s",
                       src->name, module, s->name);
    if (s->group && k % s->group != 0 && s->store != QUANT_FP8 && s->store != QUANT_NF4)
        return err_set(err, ST_FORMAT, "%s: groups of %u do not divide the %llu inputs of %s", src->name, s->group,
                       (unsigned long long)k, module);
    if (n % unit != 0)
        return err_set(err, ST_FORMAT, "%s: the %llu outputs of %s do not fill words of %u", src->name,
                       (unsigned long long)n, module, unit);
    *format = quant_format(s, k);
    if (*format == DT_NONE || !dtype_row_bytes(*format, k, &bytes))
        return err_set(err, ST_UNSUPPORTED,
                       "%s: no format here takes %s with rows of %llu in groups of %u (%s); groups of 32, 64, 128 or a "
                       "multiple are taken",
                       src->name, s->name, (unsigned long long)k, s->group, module);
    return expect_tensors(&c);
}
