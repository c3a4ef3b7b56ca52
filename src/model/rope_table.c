/* rope_table.c - computed in double, once at start; rounded once to f32. */
#include "model/rope_table.h"
#include <math.h>
#include <stdlib.h>

Status rope_table_frequencies(const RopeSpec *spec, WeightStore *store, double *inv_freq, double *scale, Err *err)
{
    Status st = ST_OK;
    uint32_t pairs = spec->dims / 2;
    float *factors = NULL;

    TRY(rope_frequencies(spec, inv_freq, scale, err));
    if (spec->factors_tensor == NULL)
        return ST_OK;
    const TensorInfo *t = store_find(store, spec->factors_tensor);
    if (t == NULL || t->dtype != DT_F32 || t->bytes != sizeof(float) * pairs)
        return err_set(
            err, ST_FORMAT,
            "%s: tensor %s must be f32 with %u elements, one for each rotated pair; the checkpoint is damaged",
            store->path, spec->factors_tensor, pairs);
    factors = malloc(sizeof(float) * pairs);
    if (factors == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the rope factors");
    TRY(store_read(store, t, 0, factors, t->bytes, err));
    for (uint32_t i = 0; i < pairs; i++) {
        if (!(factors[i] > 0) || isinf(factors[i]))
            TRY(err_set(err, ST_FORMAT, "%s: tensor %s: element %u is %g; rope factors are positive numbers",
                        store->path, spec->factors_tensor, i, (double)factors[i]));
        inv_freq[i] /= (double)factors[i];
    }
done:
    free(factors);
    return st;
}

Status rope_table_fill(const RopeSpec *spec, WeightStore *store, uint32_t max_len, float *out, Err *err)
{
    Status st = ST_OK;
    uint32_t pairs = spec->dims / 2;
    double scale, *inv_freq = malloc(sizeof(double) * pairs);

    if (inv_freq == NULL)
        return err_set(err, ST_NOMEM, "out of memory for the rope frequencies");
    TRY(rope_table_frequencies(spec, store, inv_freq, &scale, err));
    for (uint32_t p = 0; p < max_len; p++)
        for (uint32_t i = 0; i < pairs; i++, out += 2) {
            out[0] = (float)(cos(p * inv_freq[i]) * scale);
            out[1] = (float)(sin(p * inv_freq[i]) * scale);
        }
done:
    free(inv_freq);
    return st;
}
