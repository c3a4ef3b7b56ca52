/* dummy_quant.c - the tensors of one quantised matrix: names, types and shapes as src/circuit/quant_bind.c expects them,
 * codes that are normal and scales that bring them to sigma 0.02, as a quantiser would leave them.
 *
 *   fp8           codes to +-448 = amax, scale = amax / 448, amax within 5% of 3.46 * 0.02
 *   int8          the same to +-127
 *   nvfp4         6 = the largest of 16, 2.1 sigma; scales of 16 near 272 of e4m3's 448, one factor over all of them
 *   mxfp4         2^-7 for every 32, so that 6 is 2.3 sigma
 *   4 and 8 bits  codes of deviation 2.2 and 36 around the middle, which is the zero point
 *   nf4           codes around the middle; the absmax that gives them their sigma
 *
 * Deviations of rounded codes were computed from 400,000 draws. */
#include "weights/dummy_pool.h"
#include "weights/rowed.h"
#include "weights/store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIGMA      0.02f
#define E4M3_SIGMA (448 / DUMMY_BOUND)
#define I8_SIGMA   (127 / DUMMY_BOUND)
#define E2M1_SIGMA (1 / 0.35f) /* before rounding */
#define E2M1_RMS   2.7993f     /* after it */
#define FP4_SCALE  272.0f      /* mean of the scales of 16 */
#define FP4_SPREAD 40.0f       /* and their deviation */
#define FP4_RMS    274.93f     /* sqrt(272^2 + 40^2) */
#define NF4_RMS    0.42089f    /* of values whose codes have the deviation below */
#define NF4_SIGMA  4.0f

typedef struct Declaring {
    WeightStore *s;
    const QuantScheme *q;
    const char *module;
    uint64_t n, k, groups;
    Err *err;
} Declaring;

static Status declare(const Declaring *d, const char *suffix, DType t, uint32_t n_dims, const uint64_t *dims,
                      DummyFill fill)
{
    char name[512];

    if (suffix == NULL)
        return ST_OK;
    if (snprintf(name, sizeof name, "%s%s", d->module, suffix) >= (int)sizeof name)
        return err_set(d->err, ST_INVALID, "dummy weights: the name of %s is too long", d->module);
    return store_dummy_declare_as(d->s, name, t, n_dims, dims, &fill, d->err);
}

static Status declare_bytes(const Declaring *d, const char *suffix, DType t, uint64_t n, const void *bytes)
{
    char name[512];

    if (suffix == NULL)
        return ST_OK;
    if (snprintf(name, sizeof name, "%s%s", d->module, suffix) >= (int)sizeof name)
        return err_set(d->err, ST_INVALID, "dummy weights: the name of %s is too long", d->module);
    return store_dummy_declare_bytes(d->s, name, t, 1, &n, bytes, d->err);
}

static Status declare_side(const Declaring *d, QuantSide side, DType t, uint64_t rows, uint64_t columns, DummyFill fill)
{
    return declare(d, d->q->sides[side], t, 2, (uint64_t[]){rows, columns}, fill);
}

static DummyFill fields(uint32_t bits, float mean, float sigma)
{
    return (DummyFill){.kind = DUMMY_FIELDS, .bits = bits, .mean = mean, .sigma = sigma};
}

/* Every byte the same. */
static DummyFill bytes_of(int byte)
{
    return fields(8, (float)byte, 0);
}

static DummyFill scales(float mean)
{
    return (DummyFill){.mean = mean, .sigma = 0.05f * mean};
}

static Status declare_scalar(const Declaring *d, QuantSide side, float value)
{
    return declare(d, d->q->sides[side], DT_F32, 1, (uint64_t[]){1}, (DummyFill){.mean = value});
}

/* In front of everything else: one for the matrix, or [rows of scales][groups]. */
static Status declare_scales(const Declaring *d, DType t, float mean)
{
    const uint32_t rows = d->q->group_rows;

    if (rows == 0)
        return declare_scalar(d, SIDE_SCALE, mean);
    return declare_side(d, SIDE_SCALE, t, (d->n + rows - 1) / rows, d->groups, scales(mean));
}

/* The group of each input, in order. */
static Status declare_order(const Declaring *d)
{
    int32_t *order;
    Status st;

    if (d->q->sides[SIDE_ORDER] == NULL)
        return ST_OK;
    order = malloc(d->k * sizeof *order);
    if (order == NULL)
        return err_set(d->err, ST_NOMEM, "dummy weights: out of memory; free some memory");
    for (uint64_t i = 0; i < d->k; i++)
        order[i] = (int32_t)(d->q->group ? i / d->q->group : 0);
    st = declare_bytes(d, d->q->sides[SIDE_ORDER], DT_I32, d->k, order);
    free(order);
    return st;
}

static Status declare_nf4(const Declaring *d)
{
    const uint64_t blocks = (d->n * d->k + d->q->group - 1) / d->q->group;
    char state[160];
    int len = snprintf(state, sizeof state,
                       "{\"quant_type\": \"nf4\", \"blocksize\": %u, \"dtype\": \"bfloat16\", \"shape\": [%llu, %llu]}",
                       d->q->group, (unsigned long long)d->n, (unsigned long long)d->k);
    Status st = ST_OK;

    TRY(declare(d, d->q->main, DT_U8, 2, (uint64_t[]){d->n * d->k / 2, 1}, fields(4, 7.5f, NF4_SIGMA)));
    TRY(declare(d, d->q->sides[SIDE_SCALE], DT_F32, 1, &blocks, scales(SIGMA / NF4_RMS)));
    TRY(declare_bytes(d, d->q->sides[SIDE_MAP], DT_F32, 16, NF4_VALUES));
    TRY(declare_bytes(d, d->q->sides[SIDE_STATE], DT_U8, (uint64_t)len, state));
done:
    return st;
}

/* Packed codes with zero points in the middle of their range. */
static Status declare_words(const Declaring *d)
{
    const uint32_t bits = d->q->bits, per = 32 / bits;
    const DummyFill codes = bits == 4 ? fields(4, 8, 2.2f) : fields(8, 128, 36);
    const float scale = bits == 4 ? SIGMA / 2.219f : SIGMA / 36;
    const int zero = (bits == 4 ? 0x88 : 0x80) - (d->q->zero_less_one ? (bits == 4 ? 0x11 : 0x01) : 0);
    const int64_t shape[2] = {(int64_t)d->n, (int64_t)d->k};
    const bool by_row = d->q->store == QUANT_PACKED, awq = d->q->store == QUANT_AWQ;
    Status st = ST_OK;

    TRY(declare(d, d->q->main, DT_I32, 2,
                (uint64_t[]){by_row ? d->n
                             : awq  ? d->k
                                    : d->k / per,
                             by_row ? d->k / per
                             : awq  ? d->n / per
                                    : d->n},
                codes));
    if (by_row) {
        TRY(declare_scales(d, DT_BF16, scale));
        TRY(declare_side(d, SIDE_ZERO, DT_I32, d->n / per, d->groups, bytes_of(zero)));
    } else {
        TRY(declare_side(d, SIDE_SCALE, DT_F16, d->groups, d->n, scales(scale)));
        TRY(declare_side(d, SIDE_ZERO, DT_I32, d->groups, d->n / per, bytes_of(zero)));
    }
    TRY(declare_order(d));
    TRY(declare_bytes(d, d->q->sides[SIDE_SHAPE], DT_I64, 2, shape));
done:
    return st;
}

static Status declare_mxfp4(const Declaring *d, uint32_t experts)
{
    const DummyFill codes = {.kind = DUMMY_E2M1, .sigma = SIGMA * 128};
    uint64_t dims[4] = {experts, d->n, d->groups, 16};
    const uint32_t skip = experts == 0;
    Status st = ST_OK;

    TRY(declare(d, d->q->main, DT_U8, 4 - skip, dims + skip, codes));
    TRY(declare(d, d->q->sides[SIDE_SCALE], DT_U8, 3 - skip, dims + skip, bytes_of(127 - 7)));
done:
    return st;
}

Status store_dummy_declare_quant(WeightStore *s, const QuantScheme *scheme, const char *module, uint32_t experts,
                                 uint64_t n, uint64_t k, Err *err)
{
    const float global = SIGMA / (E2M1_RMS * FP4_RMS), input = 0.004f; /* inputs to about 0.004 * 6 * 448 = 11 */
    Declaring d = {.s = s, .q = scheme, .module = module, .n = n, .k = k, .err = err};
    Status st = ST_OK;
    char name[512];

    d.groups = scheme->group ? (k + scheme->group - 1) / scheme->group : 1;
    if (snprintf(name, sizeof name, "%s%s", module, scheme->main) < (int)sizeof name && store_find(s, name) != NULL)
        return ST_OK;
    switch (scheme->store) {
    case QUANT_FP8:
        TRY(declare(&d, scheme->main, DT_E4M3, 2, (uint64_t[]){n, k}, (DummyFill){.sigma = E4M3_SIGMA}));
        TRY(declare_scales(&d, DT_F32, SIGMA / E4M3_SIGMA));
        TRY(declare_scalar(&d, SIDE_INPUT, input));
        break;
    case QUANT_INT8:
        TRY(declare(&d, scheme->main, DT_I8, 2, (uint64_t[]){n, k}, (DummyFill){.sigma = I8_SIGMA}));
        TRY(declare_scales(&d, DT_F32, SIGMA / I8_SIGMA));
        TRY(declare_side(&d, SIDE_ZERO, DT_I8, n, d.groups, bytes_of(0)));
        break;
    case QUANT_NVFP4:
        TRY(declare(&d, scheme->main, DT_U8, 2, (uint64_t[]){n, k / 2},
                    (DummyFill){.kind = DUMMY_E2M1, .sigma = E2M1_SIGMA}));
        TRY(declare_side(&d, SIDE_SCALE, DT_E4M3, n, d.groups, (DummyFill){.mean = FP4_SCALE, .sigma = FP4_SPREAD}));
        TRY(declare_scalar(&d, SIDE_GLOBAL, scheme->global_divides ? 1 / global : global));
        TRY(declare_scalar(&d, SIDE_INPUT, scheme->global_divides ? 1 / input : input));
        break;
    case QUANT_MXFP4:
        TRY(declare_mxfp4(&d, experts));
        break;
    case QUANT_NF4:
        TRY(declare_nf4(&d));
        break;
    case QUANT_AWQ:
    case QUANT_GPTQ:
    case QUANT_PACKED:
        TRY(declare_words(&d));
        break;
    }
done:
    return st;
}
