/* quant.c - see quant.h. Side tensors are small and are kept whole, as floats where they are floats. Codes stored by row
 * are read with their rows; those stored by column (AWQ, GPTQ) are read once. A row is then made of its codes, one byte
 * each, and of the scale and zero point of each span. */
#include "weights/quant.h"
#include "core/json.h"
#include "core/numeric.h"
#include "weights/decode.h"
#include "weights/rowed.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor as numbers. */
typedef struct Side {
    const TensorInfo *tensor;
    uint8_t *bytes;
    uint64_t first, n; /* elements that are here */
} Side;

struct QuantReader {
    WeightStore *store;
    const QuantScheme *scheme;
    DType format;
    uint64_t n, k, groups;
    uint64_t first, rows; /* that it was opened for */
    const TensorInfo *main;
    Side side[QUANT_SIDES];
    float *scale;    /* SIDE_SCALE as floats; of nvfp4 and mxfp4 the bytes stay as they are */
    float global;    /* a factor; 1 without one */
    uint8_t *whole;  /* the main tensor, where codes are stored by column */
    uint16_t *order; /* [k] inputs by group, w4p; NULL */
    uint8_t *raw;    /* stored bytes of a run of rows */
    size_t raw_cap;
    uint8_t *codes;    /* [8][k]: of the row at hand, or of the eight rows from 8 * unpacked */
    uint64_t unpacked; /* UINT64_MAX: none */
};

static Status quant_nomem(const QuantReader *r, Err *err)
{
    return err_set(err, ST_NOMEM, "%s: out of memory to read tensor %s", r->store->path, r->main->name);
}

static uint32_t word_at(const uint8_t *p, uint64_t i)
{
    uint32_t w;

    memcpy(&w, p + 4 * i, sizeof w);
    return w;
}

static float side_float(const Side *s, uint64_t i)
{
    uint16_t h = 0;
    float f;

    if (s->tensor->dtype == DT_F16 || s->tensor->dtype == DT_BF16)
        memcpy(&h, s->bytes + 2 * i, sizeof h);
    switch (s->tensor->dtype) {
    case DT_F16:
        return f16_to_f32(h);
    case DT_BF16:
        return bf16_to_f32(h);
    case DT_E8M0:
        return e8m0_to_f32(s->bytes[i]);
    case DT_E4M3:
        return e4m3_to_f32(s->bytes[i]);
    case DT_U8:
        return (float)s->bytes[i];
    default:
        memcpy(&f, s->bytes + 4 * i, sizeof f);
        return f;
    }
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */
static const TensorInfo *find_part(const QuantReader *r, const char *module, const char *suffix, char name[512])
{
    int len = snprintf(name, 512, "%s%s", module, suffix);

    return len < 512 ? store_find(r->store, name) : NULL;
}

static Status read_part(QuantReader *r, const TensorInfo *t, uint64_t offset, uint64_t bytes, uint8_t **out, Err *err)
{
    *out = malloc(bytes ? bytes : 1);
    if (*out == NULL)
        return quant_nomem(r, err);
    return store_read(r->store, t, offset, *out, bytes, err);
}

static Status open_sides(QuantReader *r, const char *module, Err *err)
{
    Status st = ST_OK;
    char name[512];

    for (int i = 0; i < QUANT_SIDES; i++) {
        Side *s = &r->side[i];

        if (r->scheme->sides[i] == NULL)
            continue;
        s->tensor = find_part(r, module, r->scheme->sides[i], name);
        if (s->tensor == NULL && r->scheme->side_optional[i])
            continue;
        if (s->tensor == NULL)
            return err_set(err, ST_NOTFOUND, "%s: tensor %s is missing; the checkpoint is incomplete", r->store->path,
                           name);
        s->n = 1;
        for (uint32_t d = 0; d < s->tensor->n_dims; d++)
            s->n *= s->tensor->dims[d];
        if (i == SIDE_SCALE && (r->scheme->store == QUANT_NVFP4 || r->scheme->store == QUANT_MXFP4)) {
            s->first = r->first * r->groups; /* a byte each */
            s->n = r->rows * r->groups;
            TRY(read_part(r, s->tensor, s->first, s->n, &s->bytes, err));
        } else
            TRY(read_part(r, s->tensor, 0, s->tensor->bytes, &s->bytes, err));
    }
done:
    return st;
}

/* Scales for a whole matrix may not be 0; those of a group may: a group of zeros has such a one. */
static Status check_floats(const QuantReader *r, const Side *s, bool over_all, Err *err)
{
    for (uint64_t i = 0; s->tensor != NULL && i < s->n; i++) {
        float f = side_float(s, i);

        if (!isfinite(f) || (over_all && f == 0.0f))
            return err_set(err, ST_FORMAT, "%s: tensor %s holds %s at element %llu; a scale must be a finite number%s",
                           r->store->path, s->tensor->name,
                           isnan(f)   ? "NaN"
                           : isinf(f) ? "an infinity"
                                      : "0",
                           (unsigned long long)(s->first + i), over_all ? " other than 0" : "");
    }
    return ST_OK;
}

/* Inputs are divided by their scale, and it is a largest value's: never negative. */
static Status check_positive(const QuantReader *r, const Side *s, Err *err)
{
    for (uint64_t i = 0; s->tensor != NULL && i < s->n; i++)
        if (side_float(s, i) < 0)
            return err_set(err, ST_FORMAT, "%s: tensor %s holds %g at element %llu; a scale of inputs must be positive",
                           r->store->path, s->tensor->name, (double)side_float(s, i), (unsigned long long)i);
    return ST_OK;
}

static Status check_shape_side(const QuantReader *r, Err *err)
{
    const Side *s = &r->side[SIDE_SHAPE];
    int64_t dims[2];

    if (s->tensor == NULL)
        return ST_OK;
    memcpy(dims, s->bytes, sizeof dims);
    if ((uint64_t)dims[0] != r->n || (uint64_t)dims[1] != r->k)
        return err_set(err, ST_FORMAT, "%s: tensor %s says %lld by %lld, but %s holds %llu by %llu", r->store->path,
                       s->tensor->name, (long long)dims[0], (long long)dims[1], r->main->name, (unsigned long long)r->n,
                       (unsigned long long)r->k);
    return ST_OK;
}

/* The inputs by group, in their own order inside of it; every group must be full. */
static Status open_order(QuantReader *r, Err *err)
{
    const Side *s = &r->side[SIDE_ORDER];
    const uint64_t size = r->scheme->group ? r->scheme->group : r->k;
    const bool keeps = dtype_row(r->format).element == 2;
    uint32_t *fill;

    if (s->tensor == NULL && keeps)
        return err_set(err, ST_NOTFOUND, "%s: tensor %s has no list of groups beside it, which the order needs",
                       r->store->path, r->main->name);
    if (s->tensor == NULL)
        return ST_OK;
    fill = calloc(r->groups, sizeof *fill);
    r->order = keeps ? malloc(sizeof *r->order * r->k) : NULL;
    if (fill == NULL || (keeps && r->order == NULL)) {
        free(fill);
        return quant_nomem(r, err);
    }
    for (uint64_t i = 0; i < r->k; i++) {
        uint32_t g = word_at(s->bytes, i);

        if (g >= r->groups || fill[g] == size || (!keeps && g != i / size)) {
            free(fill);
            return err_set(err, ST_FORMAT, "%s: tensor %s puts input %llu into group %d; %s", r->store->path,
                           s->tensor->name, (unsigned long long)i, (int)g,
                           g >= r->groups ? "there is no such group"
                           : keeps        ? "that group is full already"
                                          : "the configuration says that groups follow the inputs' order");
        }
        if (keeps)
            r->order[g * size + fill[g]] = (uint16_t)i;
        fill[g]++;
    }
    free(fill);
    return ST_OK;
}

static Status open_scales(QuantReader *r, Err *err)
{
    Status st = ST_OK;
    const Side *s = &r->side[SIDE_SCALE];
    const bool over_all = r->scheme->group == 0 && r->scheme->group_rows == 0;

    TRY(check_floats(r, &r->side[SIDE_INPUT], true, err));
    TRY(check_positive(r, &r->side[SIDE_INPUT], err));
    TRY(check_floats(r, &r->side[SIDE_GLOBAL], true, err));
    r->global = r->side[SIDE_GLOBAL].tensor ? side_float(&r->side[SIDE_GLOBAL], 0) : 1.0f;
    if (r->scheme->global_divides)
        r->global = 1.0f / r->global;
    if (r->scheme->store == QUANT_MXFP4) {
        for (uint64_t i = 0; i < s->n; i++) /* 255 is NaN; with 6 above 2^125 a value would be infinite */
            if (s->bytes[i] > 252)
                return err_set(err, ST_FORMAT, "%s: tensor %s holds the exponent %d at element %llu, which is %s",
                               r->store->path, s->tensor->name, s->bytes[i], (unsigned long long)(s->first + i),
                               s->bytes[i] == 255 ? "NaN" : "past the largest float");
        return ST_OK;
    }
    if (r->scheme->store == QUANT_NF4)
        return ST_OK;
    TRY(check_floats(r, s, over_all, err));
    if (r->scheme->store == QUANT_NVFP4)
        return ST_OK;
    r->scale = malloc(sizeof(float) * s->n);
    if (r->scale == NULL)
        return quant_nomem(r, err);
    for (uint64_t i = 0; i < s->n; i++)
        r->scale[i] = side_float(s, i);
done:
    return st;
}

/* nf4: scales as they are, or 8-bit codes of them: map[code] * nested scale of 256 + offset. */
static Status open_nf4(QuantReader *r, Err *err)
{
    Status st = ST_OK;
    const Side *s = &r->side[SIDE_SCALE], *state = &r->side[SIDE_STATE], *nested = &r->side[SIDE_NESTED_SCALE],
               *codes = &r->side[SIDE_NESTED_MAP], *map = &r->side[SIDE_MAP];
    const bool twice = s->tensor->dtype == DT_U8;
    json_t *json = NULL;
    double offset = 0;

    TRY(json_parse((const char *)state->bytes, state->n, state->tensor->name, &json, err));
    if (json_integer_value(json_object_get(json, "blocksize")) != r->scheme->group ||
        json_integer_value(json_array_get(json_object_get(json, "shape"), 0)) != (json_int_t)r->n ||
        json_integer_value(json_array_get(json_object_get(json, "shape"), 1)) != (json_int_t)r->k)
        TRY(err_set(err, ST_FORMAT, "%s: tensor %s is not of a matrix of %llu by %llu in blocks of %u", r->store->path,
                    state->tensor->name, (unsigned long long)r->n, (unsigned long long)r->k, r->scheme->group));
    for (int i = 0; i < 16; i++)
        if (side_float(map, (uint64_t)i) != NF4_VALUES[i])
            TRY(err_set(err, ST_UNSUPPORTED, "%s: tensor %s holds other values than those of nf4", r->store->path,
                        map->tensor->name));
    if (twice) {
        const json_t *at = json_object_get(json, "nested_offset");
        if (nested->tensor == NULL || codes->tensor == NULL || !json_is_number(at) ||
            json_integer_value(json_object_get(json, "nested_blocksize")) != 256)
            TRY(err_set(
                err, ST_FORMAT,
                "%s: the scales of tensor %s are quantised, which needs nested_absmax, nested_quant_map and, in "
                "quant_state, nested_offset and a nested_blocksize of 256",
                r->store->path, r->main->name));
        offset = json_number_value(at);
        TRY(check_floats(r, nested, false, err));
        TRY(check_floats(r, codes, false, err));
    }
    r->scale = malloc(sizeof(float) * s->n);
    if (r->scale == NULL)
        TRY(quant_nomem(r, err));
    for (uint64_t i = 0; i < s->n; i++) {
        r->scale[i] =
            twice ? (float)((double)side_float(codes, s->bytes[i]) * (double)side_float(nested, i / 256) + offset)
                  : side_float(s, i);
        if (!isfinite(r->scale[i]))
            TRY(err_set(err, ST_FORMAT, "%s: tensor %s holds a scale at element %llu that is not finite",
                        r->store->path, s->tensor->name, (unsigned long long)i));
    }
done:
    json_decref(json);
    return st;
}

Status quant_open(QuantReader **out, WeightStore *store, const QuantScheme *scheme, const char *module, uint64_t n,
                  uint64_t k, DType format, Err *err)
{
    return quant_open_rows(out, store, scheme, module, n, k, format, 0, n, err);
}

Status quant_open_rows(QuantReader **out, WeightStore *store, const QuantScheme *scheme, const char *module, uint64_t n,
                       uint64_t k, DType format, uint64_t first, uint64_t rows, Err *err)
{
    Status st = ST_OK;
    QuantReader *r = calloc(1, sizeof *r);
    char name[512];

    if (r == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory to read %s", store->path, module);
    if (first > n || rows > n - first)
        TRY(err_set(err, ST_INVALID, "%s: %s has no rows %llu to %llu", store->path, module, (unsigned long long)first,
                    (unsigned long long)(first + rows)));
    *r =
        (QuantReader){.store = store, .scheme = scheme, .format = format, .n = n, .k = k, .first = first, .rows = rows};
    r->groups = scheme->group ? (k + scheme->group - 1) / scheme->group : 1;
    r->main = find_part(r, module, scheme->main, name);
    if (r->main == NULL)
        TRY(err_set(err, ST_NOTFOUND, "%s: tensor %s is missing; the checkpoint is incomplete", store->path, name));
    TRY(open_sides(r, module, err));
    TRY(check_shape_side(r, err));
    TRY(open_order(r, err));
    TRY(scheme->store == QUANT_NF4 ? open_nf4(r, err) : open_scales(r, err));
    if (scheme->store == QUANT_AWQ || scheme->store == QUANT_GPTQ)
        TRY(read_part(r, r->main, 0, r->main->bytes, &r->whole, err));
    r->codes = malloc(8 * k);
    r->unpacked = UINT64_MAX;
    if (r->codes == NULL)
        TRY(quant_nomem(r, err));
    *out = r;
    r = NULL;
done:
    quant_close(r);
    return st;
}

void quant_close(QuantReader *r)
{
    if (r == NULL)
        return;
    for (int i = 0; i < QUANT_SIDES; i++)
        free(r->side[i].bytes);
    free(r->scale);
    free(r->whole);
    free(r->order);
    free(r->raw);
    free(r->codes);
    free(r);
}

/* ---- rows --------------------------------------------------------------------------------------------------------- */
static const uint8_t AWQ_SHIFT[8] = {0, 16, 4, 20, 8, 24, 12, 28};

/* The codes of a row as bytes, in r->codes + the result. raw: its stored bytes, where codes are stored by row. A word of
 * AWQ has codes of eight rows, which are unpacked together. */
static const uint8_t *row_codes(QuantReader *r, uint64_t row, const uint8_t *raw)
{
    const uint32_t bits = r->scheme->bits, per = 32 / bits, mask = (1u << bits) - 1;
    uint8_t *q = r->codes;

    switch (r->scheme->store) {
    case QUANT_AWQ:
        for (uint64_t i = 0; i < r->k && r->unpacked != row / 8; i++) {
            uint32_t w = word_at(r->whole, i * (r->n / 8) + row / 8);
            for (int j = 0; j < 8; j++)
                q[(uint64_t)j * r->k + i] = w >> AWQ_SHIFT[j] & 15;
        }
        r->unpacked = row / 8;
        return q + row % 8 * r->k;
    case QUANT_GPTQ:
        for (uint64_t i = 0; i < r->k / per; i++) {
            uint32_t w = word_at(r->whole, i * r->n + row);
            for (uint32_t j = 0; j < per; j++, w >>= bits)
                *q++ = (uint8_t)(w & mask);
        }
        return r->codes;
    case QUANT_PACKED: /* in order, so that a word's codes are those of its bytes, low nibble first */
        if (bits == 8)
            return raw;
        for (uint64_t i = 0; i < r->k; i++)
            q[i] = raw[i / 2] >> 4 * (i % 2) & 15;
        return q;
    case QUANT_NF4:
        for (uint64_t i = 0; i < r->k; i++)
            q[i] = raw[i / 2] >> (i % 2 ? 0 : 4) & 15;
        return q;
    case QUANT_FP8:
    case QUANT_INT8:
    case QUANT_NVFP4:
    case QUANT_MXFP4:
        break; /* made of their stored bytes */
    }
    return raw;
}

static float row_scale(const QuantReader *r, uint64_t row, uint64_t group)
{
    const QuantScheme *s = r->scheme;

    if (s->store == QUANT_AWQ || s->store == QUANT_GPTQ)
        return r->scale[group * r->n + row];
    return r->scale[(s->group_rows ? row / s->group_rows : 0) * r->groups + group];
}

/* The zero point as codes count: of signed ones less 2^(bits - 1). */
static int row_zero(const QuantReader *r, uint64_t row, uint64_t group)
{
    const Side *s = &r->side[SIDE_ZERO];
    const uint32_t bits = r->scheme->bits, per = 32 / bits, mask = (1u << bits) - 1;

    switch (r->scheme->store) {
    case QUANT_AWQ:
        return s->tensor ? (int)(word_at(s->bytes, group * (r->n / 8) + row / 8) >> AWQ_SHIFT[row % 8] & 15) : 8;
    case QUANT_GPTQ:
        return (int)(word_at(s->bytes, group * (r->n / per) + row / per) >> row % per * bits & mask) +
               r->scheme->zero_less_one;
    case QUANT_PACKED:
        return s->tensor ? (int)(word_at(s->bytes, row / per * r->groups + group) >> row % per * bits & mask)
                         : 1 << (bits - 1);
    case QUANT_INT8:
        return s->tensor ? (int8_t)s->bytes[row * r->groups + group] : 0;
    default:
        return 0;
    }
}

static void put_span_head(uint8_t *out, float d, int zero, bool zeros)
{
    const int16_t z = (int16_t)zero;

    memcpy(out, &d, sizeof d);
    if (zeros)
        memcpy(out + 4, &z, sizeof z);
}

/* u4 in blocks of 32: code i in the low nibble of byte i, code i + 16 in its high one. */
static void put_halves(uint8_t *out, const uint8_t *q, uint64_t k)
{
    for (uint64_t b = 0; b < k; b += 32, out += 16)
        for (int i = 0; i < 16; i++)
            out[i] = (uint8_t)(q[b + i] | q[b + 16 + i] << 4);
}

static void put_nvfp4_row(const QuantReader *r, uint64_t row, const uint8_t *raw, uint8_t *out)
{
    const uint8_t *s = r->side[SIDE_SCALE].bytes + (row - r->first) * (r->k / 16);

    memcpy(out, &r->global, 4);
    out += 4;
    for (uint64_t b = 0; b < r->k / 16; b++, out += 9, raw += 8) {
        out[0] = s[b];
        memcpy(out + 1, raw, 8);
    }
}

static void put_mxfp4_row(const QuantReader *r, uint64_t row, const uint8_t *raw, uint8_t *out)
{
    const uint8_t *s = r->side[SIDE_SCALE].bytes + (row - r->first) * (r->k / 32);
    uint8_t q[32];

    for (uint64_t b = 0; b < r->k / 32; b++, out += 17, raw += 16) {
        for (int i = 0; i < 32; i++)
            q[i] = raw[i / 2] >> 4 * (i % 2) & 15;
        out[0] = s[b];
        put_halves(out + 1, q, 32);
    }
}

static void put_row(QuantReader *r, uint64_t row, const uint8_t *raw, uint8_t *out)
{
    const DTypeRow shape = dtype_row(r->format);
    const RowedParts at = rowed_parts(r->format, r->k);
    const uint8_t *q;
    uint8_t *to = out + at.codes;

    if (r->scheme->store == QUANT_NVFP4) {
        put_nvfp4_row(r, row, raw, out);
        return;
    }
    if (r->scheme->store == QUANT_MXFP4) {
        put_mxfp4_row(r, row, raw, out);
        return;
    }
    for (uint64_t s = 0; s < dtype_spans(shape, r->k); s++) {
        uint64_t group = r->scheme->group ? s * shape.span / r->scheme->group : 0;
        uint8_t *head = out + at.scales + s * shape.bytes;

        if (r->scheme->store == QUANT_NF4) /* along the flattened matrix */
            put_span_head(head, r->scale[(row * r->k + s * shape.span) / r->scheme->group], 0, false);
        else
            put_span_head(head, row_scale(r, row, group),
                          row_zero(r, row, group) -
                              (r->format == DT_W8_128 && r->scheme->store != QUANT_INT8 ? 128 : 0),
                          shape.bytes == 6);
    }
    q = row_codes(r, row, raw);
    if (r->scheme->store == QUANT_FP8 || r->scheme->store == QUANT_INT8)
        memcpy(to, raw, r->k);
    else if (r->format == DT_W8_128) /* unsigned codes, here less 128 */
        for (uint64_t i = 0; i < r->k; i++)
            to[i] = q[i] ^ 0x80;
    else if (r->format == DT_W4_128 || r->format == DT_W4_64 || r->format == DT_W4_32)
        put_halves(to, q, r->k);
    else
        for (uint64_t i = 0; i < r->k; i += 2) {
            uint64_t a = r->order ? r->order[i] : i, b = r->order ? r->order[i + 1] : i + 1;
            to[i / 2] = (uint8_t)(q[a] | q[b] << 4);
        }
    if (r->order)
        memcpy(out, r->order, sizeof *r->order * r->k);
}

Status quant_read(QuantReader *r, uint64_t first, uint64_t n, uint8_t *out, Err *err)
{
    Status st = ST_OK;
    const uint64_t stored = r->main->bytes / r->n; /* of a row */
    uint64_t row_bytes, at;

    if (first < r->first || first - r->first > r->rows || n > r->rows - (first - r->first) ||
        !dtype_row_bytes(r->format, r->k, &row_bytes))
        return err_set(err, ST_INVALID, "%s: tensor %s has no rows %llu to %llu in format %s", r->store->path,
                       r->main->name, (unsigned long long)first, (unsigned long long)(first + n),
                       dtype_name(r->format));
    if (r->whole == NULL && n * stored > r->raw_cap) {
        uint8_t *grown = realloc(r->raw, n * stored);
        if (grown == NULL)
            return quant_nomem(r, err);
        r->raw = grown;
        r->raw_cap = n * stored;
    }
    if (r->whole == NULL)
        TRY(store_read(r->store, r->main, first * stored, r->raw, n * stored, err));
    for (uint64_t i = 0; i < n; i++, out += row_bytes) {
        put_row(r, first + i, r->raw ? r->raw + i * stored : NULL, out);
        if (!dtype_row_finite(r->format, out, r->k, &at))
            return err_set(err, ST_FORMAT, "%s: tensor %s holds a value that is not finite at row %llu, element %llu",
                           r->store->path, r->main->name, (unsigned long long)(first + i), (unsigned long long)at);
    }
done:
    return st;
}
