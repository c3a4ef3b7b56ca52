/* pieces.c - see pieces.h. One group of one piece is decoded to f32 at a time, and the rows that are asked for are rounded
 * to the weight's format: exactly where the tensor has that format. */
#include "model/pieces.h"
#include "core/numeric.h"
#include "weights/decode.h"
#include <math.h>
#include <stdlib.h>

uint64_t pieces_group_rows(const InstanceBinding *b)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < b->n_pieces; i++)
        rows += b->pieces[i].rows;
    return rows;
}

/* A group of a piece as stored, and decoded; each grows to what the largest needs. */
typedef struct Group {
    uint8_t *stored;
    float *values; /* [lines][width] as in the file */
    uint64_t lines, width;
} Group;

static Status group_read(Group *g, WeightStore *store, const InstancePiece *p, const InstanceWeight *w, uint64_t group,
                         Err *err)
{
    const TensorInfo *t = NULL;
    uint64_t row_bytes, bad;
    Status st = store_need(store, p->tensor, &t, err);

    if (st != ST_OK)
        return st;
    g->lines = p->columns ? w->k : p->rows;
    g->width = p->columns ? p->rows : w->k;
    if (!dtype_row_bytes(t->dtype, g->width, &row_bytes) || (group + 1) * g->lines * row_bytes > t->bytes)
        return err_set(err, ST_FORMAT, "%s: tensor %s changed while it was being opened", store->path, p->tensor);
    free(g->stored);
    free(g->values);
    g->stored = malloc(g->lines * row_bytes);
    g->values = malloc(g->lines * g->width * sizeof *g->values);
    if (g->stored == NULL || g->values == NULL)
        return err_set(err, ST_NOMEM, "out of memory for tensor %s", p->tensor);
    st = store_read(store, t, group * g->lines * row_bytes, g->stored, g->lines * row_bytes, err);
    for (uint64_t i = 0; st == ST_OK && i < g->lines; i++) {
        const uint8_t *row = g->stored + i * row_bytes;

        if (!dtype_row_finite(t->dtype, row, g->width, &bad))
            st =
                err_set(err, ST_FORMAT,
                        "%s: tensor %s holds a value that is not finite at row %llu, element %llu; the file is damaged",
                        store->path, p->tensor, (unsigned long long)(group * g->lines + i), (unsigned long long)bad);
        else if (!dtype_row_to_f32(t->dtype, row, g->width, g->values + i * g->width))
            st = err_set(err, ST_UNSUPPORTED, "%s: tensor %s is stored as %s, which has no values as floats",
                         store->path, p->tensor, dtype_name(t->dtype));
    }
    return st;
}

/* One element at to + i; false when the format cannot hold it. */
static bool put(DType t, uint8_t *to, uint64_t i, float v)
{
    uint16_t half = t == DT_F16 ? f32_to_f16(v) : f32_to_bf16(v);

    if (t == DT_F32)
        memcpy(to + 4 * i, &v, 4);
    else
        memcpy(to + 2 * i, &half, 2);
    return t != DT_F16 || isfinite(f16_to_f32(half));
}

Status pieces_read(WeightStore *store, const InstanceBinding *b, const InstanceWeight *w, uint64_t first, uint64_t n,
                   uint8_t *out, Err *err)
{
    const uint64_t group_rows = pieces_group_rows(b);
    uint64_t row_bytes;
    Group g = {0};
    Status st = ST_OK;

    if (!dtype_row_bytes(w->stored, w->k, &row_bytes))
        return err_set(err, ST_FORMAT, "weight %s has no whole rows", w->name);
    for (uint64_t r = first - first % group_rows; r < first + n;) /* the row that a piece of a group begins at */
        for (uint32_t i = 0; i < b->n_pieces; r += b->pieces[i++].rows) {
            const InstancePiece *p = &b->pieces[i];
            if (r + p->rows <= first || r >= first + n)
                continue;
            TRY(group_read(&g, store, p, w, r / group_rows, err));
            for (uint64_t k = 0; k < p->rows; k++) {
                if (r + k < first || r + k >= first + n)
                    continue;
                for (uint64_t c = 0; c < w->k; c++)
                    if (!put(w->stored, out + (r + k - first) * row_bytes, c,
                             g.values[p->columns ? c * g.width + k : k * g.width + c]))
                        TRY(err_set(err, ST_UNSUPPORTED, "%s: a value of tensor %s does not fit %s", store->path,
                                    p->tensor, dtype_name(w->stored)));
            }
        }
done:
    free(g.stored);
    free(g.values);
    return st;
}
