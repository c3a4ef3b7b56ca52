/* cmd_score.c - `metrale score`: how far logits are from a golden file's.
 *
 * The golden file is a safetensors file with input_ids [n], logits [n][vocab] and, optionally, decode_ids [m], decode_logits [m][vocab]:
 * logits behind every prompt token with the prompt taken in one go; decode_logits[i] are those that decode_ids[i] was chosen from, so row 0 is
 * the prompt's last and row i follows decode_ids[i - 1], taken alone. An error is the largest |difference| over the largest |golden logit|. */
#include "cli/cli.h"
#include "cli/loader.h"
#include "core/file.h"
#include "model/reference.h"
#include "model/solo.h"
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Args {
    const char *model, *golden;
    bool reference, json;
    Levers levers;
} Args;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;
    switch (key) {
    case 'g':
        a->golden = arg;
        return 0;
    case 'r':
        a->reference = true;
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->levers;
        return 0;
    case ARGP_KEY_ARG:
        cli_one_model(state, &a->model, arg);
        return 0;
    case ARGP_KEY_END:
        if (!a->model || !a->golden)
            argp_error(state, "MODEL and --golden FILE are needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

typedef struct Golden {
    int32_t *ids;
    float *logits;
    uint32_t n;
} Golden;

/* Tensor of ids and of logits; absent ones leave n = 0 unless needed. */
static Status golden_read(WeightStore *s, const char *ids, const char *logits, bool needed, uint32_t vocab, Golden *out,
                          Err *err)
{
    Status st = ST_OK;
    const TensorInfo *ti = store_find(s, ids), *tl = store_find(s, logits);
    int64_t *wide = NULL;

    if (!ti && !tl && !needed)
        return ST_OK;
    if (!ti || !tl)
        return err_set(err, ST_FORMAT, "%s: has no tensor %s; a golden file needs input_ids and logits", s->path,
                       ti ? logits : ids);
    if (ti->dtype != DT_I64 || ti->n_dims != 1 || ti->dims[0] == 0 || ti->dims[0] > (1u << 20))
        return err_set(err, ST_FORMAT, "%s: tensor %s must be i64 with 1 to 1048576 elements", s->path, ids);
    if (tl->dtype != DT_F32 || tl->n_dims != 2 || tl->dims[0] != ti->dims[0] || tl->dims[1] != vocab)
        return err_set(err, ST_FORMAT, "%s: tensor %s must be f32 [%llu][%u], as %s and the model's vocabulary say",
                       s->path, logits, (unsigned long long)ti->dims[0], vocab, ids);
    out->n = (uint32_t)ti->dims[0];
    wide = malloc(ti->bytes);
    out->ids = malloc(sizeof(int32_t) * out->n);
    out->logits = malloc(tl->bytes);
    if (!wide || !out->ids || !out->logits)
        TRY(err_set(err, ST_NOMEM, "out of memory for %s", s->path));
    TRY(store_read(s, ti, 0, wide, ti->bytes, err));
    TRY(store_read(s, tl, 0, out->logits, tl->bytes, err));
    for (uint32_t i = 0; i < out->n; i++) {
        if (wide[i] < 0 || wide[i] >= vocab)
            TRY(err_set(err, ST_FORMAT, "%s: tensor %s: id %lld is outside the vocabulary of %u", s->path, ids,
                        (long long)wide[i], vocab));
        out->ids[i] = (int32_t)wide[i];
    }
done:
    free(wide);
    return st;
}

static void golden_release(Golden *g)
{
    free(g->ids);
    free(g->logits);
}

/* NaN counts as infinitely far. */
static double relative_error(const float *got, const float *want, size_t n)
{
    double top = 0, far = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        far = d > far || isnan(d) ? (isnan(d) ? INFINITY : d) : far;
        top = fmax(top, fabs((double)want[i]));
    }
    return top > 0 ? far / top : far;
}

static Status run(const Args *a, Loaded *l, const Golden *prompt, const Golden *decode, uint32_t vocab,
                  double *e_prompt, double *e_decode, Err *err)
{
    Status st = ST_OK;
    Solo *solo = NULL;
    Reference *ref = NULL;
    uint32_t n = prompt->n > decode->n ? prompt->n : decode->n;
    float *got = malloc(sizeof(float) * n * vocab);

    if (got == NULL)
        return err_set(err, ST_NOMEM, "out of memory for %u x %u logits", n, vocab);
    if (a->reference)
        TRY(reference_new(&ref, l->in, l->store, prompt->n + decode->n, err));
    else
        TRY(solo_new(&solo, l->model, err));
    TRY(a->reference ? reference_forward(ref, prompt->ids, prompt->n, got, NULL, err)
                     : solo_append(solo, prompt->ids, prompt->n, got, err));
    *e_prompt = relative_error(got, prompt->logits, (size_t)prompt->n * vocab);
    memmove(got, got + (size_t)(prompt->n - 1) * vocab, sizeof(float) * vocab);
    for (uint32_t i = 1; i < decode->n; i++) {
        float *at = got + (size_t)i * vocab;
        const int32_t *id = decode->ids + i - 1;
        TRY(a->reference ? reference_forward(ref, id, 1, at, NULL, err) : solo_append(solo, id, 1, at, err));
    }
    *e_decode = relative_error(got, decode->logits, (size_t)decode->n * vocab);
done:
    free(got);
    solo_free(solo);
    reference_free(ref);
    return st;
}

int cmd_score(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"golden", 'g', "FILE", 0, "safetensors file with input_ids, logits, decode_ids, decode_logits", 0},
        {"reference", 'r', 0, 0, "use the reference interpreter in place of the plan", 0},
        {"json", 'j', 0, 0, "print a JSON object", 0},
        {0}};
    Status st = ST_OK;
    Err err;
    Args a = {0};
    Loaded l = {0};
    WeightStore *file = NULL;
    Golden prompt = {0}, decode = {0};
    char *bytes = NULL;
    size_t len;
    int64_t vocab = 0;
    double e_prompt = 0, e_decode = 0;

    levers_init(&a.levers);
    const struct argp_child children[] = {{&a.levers.parser, 0, "Settings:", 1}, {0}};
    const struct argp parser = {
        options, parse, "MODEL --golden FILE", "Compares a model's logits with a golden file's.", children, NULL, NULL};
    argp_parse(&parser, argc, argv, 0, NULL, &a);

    LoadOptions lo = {.level = a.reference ? LOAD_STORE : LOAD_MODEL,
                      .quiet = true,
                      .exact = a.reference,
                      .max_outs = 128,
                      .max_seqs = 1};
    TRY(loaded_open(&l, a.model, &a.levers, &lo, &err));
    instance_dim(l.in, "vocab", &vocab);
    TRY(file_read(a.golden, (size_t)1 << 30, &bytes, &len, &err));
    TRY(store_safetensors_parse(&file, bytes, len, a.golden, &err));
    TRY(golden_read(file, "input_ids", "logits", true, (uint32_t)vocab, &prompt, &err));
    TRY(golden_read(file, "decode_ids", "decode_logits", false, (uint32_t)vocab, &decode, &err));
    TRY(run(&a, &l, &prompt, &decode, (uint32_t)vocab, &e_prompt, &e_decode, &err));
    if (a.json)
        printf("{\"model\": \"%s\", \"plan\": \"%s\", \"logits_err\": %.6g, \"decode_logits_err\": %.6g}\n", l.in->arch,
               a.reference ? "reference" : l.target->name, e_prompt, e_decode);
    else
        printf("%s, %s: largest error over largest |logit|: prompt %.3g (%u tokens), decode %.3g (%u tokens)\n",
               l.in->arch, a.reference ? "reference" : l.target->name, e_prompt, prompt.n, e_decode, decode.n);
done:
    golden_release(&prompt);
    golden_release(&decode);
    store_free(file);
    free(bytes);
    loaded_close(&l);
    levers_release(&a.levers);
    return st == ST_OK ? 0 : cli_fail(&err);
}
