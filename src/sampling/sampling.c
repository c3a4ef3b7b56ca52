/* sampling.c - a request's values as the words of op sample, and the op's picks as tokens and log probabilities.
 *
 * A row's log probabilities come from an integer sum of weights (core/sample.h), so that they, too, are the same from any
 * device. */
#include "sampling/sampling.h"
#include "sampling/row.h"
#include "sampling/seen.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ----------------------------------------------------------------------------------------------------- */

void sampling_defaults(SamplingParams *p)
{
    *p = (SamplingParams){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

Status sampling_check(const SamplingParams *p, uint32_t vocab, Err *err)
{
    const struct {
        const char *name, *range;
        double value;
        bool ok;
    } fields[] = {
        /* A NaN fails every comparison. */
        {"temperature", "0 to 2", p->temperature, p->temperature >= 0 && p->temperature <= 2},
        {"top_p", "above 0 and at most 1", p->top_p, p->top_p > 0 && p->top_p <= 1},
        {"min_p", "0 to below 1", p->min_p, p->min_p >= 0 && p->min_p < 1},
        {"top_k", "0 (all) or more", p->top_k, p->top_k >= 0},
        {"presence_penalty", "-2 to 2", p->presence_penalty, p->presence_penalty >= -2 && p->presence_penalty <= 2},
        {"frequency_penalty", "-2 to 2", p->frequency_penalty, p->frequency_penalty >= -2 && p->frequency_penalty <= 2},
        {"repetition_penalty", "0.1 to 10", p->repetition_penalty,
         p->repetition_penalty >= 0.1f && p->repetition_penalty <= 10},
    };

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!fields[i].ok)
            return err_set(err, ST_INVALID, "%s is %g; it must be %s", fields[i].name, fields[i].value,
                           fields[i].range);
    for (uint32_t i = 0; i < p->n_bias; i++) {
        const LogitBias *b = &p->bias[i];
        if (b->token < 0 || (uint32_t)b->token >= vocab)
            return err_set(err, ST_INVALID, "logit_bias names token %d; the vocabulary has tokens 0 to %u", b->token,
                           vocab - 1);
        if (!(b->bias >= -100 && b->bias <= 100))
            return err_set(err, ST_INVALID, "logit_bias of token %d is %g; it must be -100 to 100", b->token,
                           (double)b->bias);
    }
    return ST_OK;
}

/* ---- to the device ----------------------------------------------------------------------------------------------- */

static int by_token(const void *a, const void *b)
{
    const LogitBias *x = a, *y = b;

    if (x->token != y->token)
        return x->token < y->token ? -1 : 1;
    return x->bias < y->bias ? -1 : x->bias > y->bias; /* so that the sum of several does not depend on qsort */
}

uint32_t sampling_merge_bias(LogitBias *bias, uint32_t n)
{
    uint32_t kept = 0;

    if (n > 1)
        qsort(bias, n, sizeof *bias, by_token);
    for (uint32_t i = 0; i < n; i++)
        if (kept > 0 && bias[kept - 1].token == bias[i].token)
            bias[kept - 1].bias += bias[i].bias;
        else
            bias[kept++] = bias[i];
    return kept;
}

bool sampling_penalises_prompt(const SamplingParams *p)
{
    return p->repetition_penalty != 1;
}

bool sampling_penalises(const SamplingParams *p)
{
    return p->presence_penalty != 0 || p->frequency_penalty != 0 || sampling_penalises_prompt(p);
}

/* SplitMix64's output function (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014, with
 * the constants of Stafford's variant 13). Its state is a counter times an odd constant, so output i needs no other. */
static uint64_t mix64(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The seed is mixed first, so that neighbouring seeds do not give shifted copies. */
static uint64_t uniform(uint64_t seed, uint64_t draw)
{
    const uint64_t golden_gamma = 0x9e3779b97f4a7c15u;
    return mix64(mix64(seed + golden_gamma) + (draw + 1) * golden_gamma);
}

void sampling_fill(const SamplingParams *p, uint64_t draw, bool total, SampleRow *out)
{
    const uint64_t random = uniform(p->seed, draw), share = (uint64_t)((double)p->top_p * 0x1p32);

    *out = (SampleRow){.wants = SAMPLE_TOKEN | (total ? SAMPLE_TOTAL : 0),
                       .temperature = p->temperature,
                       .top_p = share >= UINT64_C(1) << 32 ? 0
                                : share > 0                ? (uint32_t)share
                                                           : 1,
                       .min_p = p->min_p,
                       .top_k = p->top_k,
                       .repetition_penalty = p->repetition_penalty,
                       .frequency_penalty = p->frequency_penalty,
                       .presence_penalty = p->presence_penalty,
                       .random_low = (uint32_t)random,
                       .random_high = (uint32_t)(random >> 32),
                       .penalties = sampling_penalises(p)};
}

/* ---- from the device --------------------------------------------------------------------------------------------- */

Status sampling_check_pick(const SamplePick *pick, uint32_t vocab, Err *err)
{
    if (pick->token == SAMPLE_BROKEN)
        return err_set(err, ST_DEVICE,
                       "the model gave the logit %g for token %u, which is no usable number; its weights or a "
                       "kernel are broken",
                       (double)pick->gap, pick->total_low);
    if (pick->token == SAMPLE_RULED_OUT)
        return err_set(err, ST_DEVICE,
                       "the model ruled out all %u tokens (every logit is minus infinity); its weights "
                       "or a kernel are broken",
                       vocab);
    if (pick->token < 0 || (uint32_t)pick->token >= vocab)
        return err_set(err, ST_DEVICE, "the device picked token %d of a vocabulary of %u; a kernel is broken",
                       pick->token, vocab);
    return ST_OK;
}

/* log sum exp(logit), less the largest logit. */
static double log_total(const SamplePick *pick)
{
    const uint64_t total = (uint64_t)pick->total_high << 32 | pick->total_low;
    return log((double)total / (double)SAMPLE_ONE);
}

float sampling_logprob(const SamplePick *pick)
{
    return (float)((double)pick->gap - log_total(pick));
}

void sampling_top(const SamplePick *pick, const float *logits, uint32_t vocab, uint32_t n_top, TokenLogprob *top)
{
    const double total = log_total(pick);
    uint32_t n = 0; /* filled so far, best first, equal ones by token */

    for (uint32_t i = 0; i < vocab; i++) {
        if (n == n_top && !(n > 0 && logits[i] > top[n - 1].logprob))
            continue;
        uint32_t at = n < n_top ? n++ : n - 1;
        for (; at > 0 && logits[i] > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (TokenLogprob){(int32_t)i, logits[i]};
    }
    for (uint32_t i = n; i-- > 0;)
        top[i].logprob = (float)((double)(top[i].logprob - top[0].logprob) - total);
    for (uint32_t i = n; i < n_top; i++)
        top[i] = (TokenLogprob){-1, -INFINITY};
}

/* ---- on the host ------------------------------------------------------------------------------------------------- */

/* Merged biases, then the tokens seen before the last one. */
static Status host_edits(const SamplingParams *p, const int32_t *history, size_t n, uint32_t vocab, SampleRow *r,
                         SampleEdit **out, Err *err)
{
    Status st = ST_OK;
    SeenTokens seen = {0};
    LogitBias *bias = calloc(p->n_bias + 1u, sizeof *bias);
    SampleEdit *edits = NULL;

    if (bias == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for %u biases", p->n_bias));
    for (uint32_t i = 0; i < p->n_bias; i++)
        bias[i] = p->bias[i];
    r->n_bias = sampling_merge_bias(bias, p->n_bias);
    if (r->penalties) {
        TRY(seen_init(&seen, vocab, (uint32_t)n, err));
        for (size_t i = 0; i + 1 < n; i++)
            if (i >= p->n_prompt || sampling_penalises_prompt(p))
                seen_add(&seen, history[i], i < p->n_prompt);
        r->in_prompt = n <= p->n_prompt;
    }
    r->n_seen = seen.n;
    edits = calloc((size_t)r->n_bias + r->n_seen + 1, sizeof *edits);
    if (edits == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for biases and penalties"));
    for (uint32_t i = 0; i < r->n_bias; i++) {
        edits[i].token = bias[i].token;
        memcpy(&edits[i].value, &bias[i].bias, sizeof edits[i].value);
    }
    if (seen.n > 0)
        memcpy(edits + r->n_bias, seen.list, seen.n * sizeof *edits);
    *out = edits;
done:
    seen_release(&seen);
    free(bias);
    return st;
}

Status sampling_pick(const SamplingParams *p, float *logits, uint32_t vocab, const int32_t *history, size_t n_history,
                     uint64_t draw, void *scratch, int32_t *token, uint32_t n_top, TokenLogprob *top,
                     TokenLogprob *chosen, Err *err)
{
    Status st = ST_OK;
    SampleRow row;
    SampleEdit *edits = NULL;
    SamplePick pick;

    sampling_fill(p, draw, n_top > 0 || chosen != NULL, &row);
    TRY(host_edits(p, history, n_history, vocab, &row, &edits, err));
    sampling_row(&row, edits, n_history > 0 ? history[n_history - 1] : 0, logits, vocab, scratch, &pick);
    TRY(sampling_check_pick(&pick, vocab, err));
    *token = pick.token;
    if (n_top > 0)
        sampling_top(&pick, logits, vocab, n_top, top);
    if (chosen)
        *chosen = (TokenLogprob){*token, sampling_logprob(&pick)};
done:
    free(edits);
    return st;
}
