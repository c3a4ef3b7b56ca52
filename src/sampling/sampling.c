/* sampling.c - the pick, in passes over the vocabulary.
 *
 * Greedy is one pass. A draw weighs exp((logit - max) / temperature) in float and sums in double; top-k and top-p cut by
 * selection (select.h), never by sorting. min-p is relative to the best token, whose weight is 1 by construction, so it
 * is a plain comparison. The draw walks the weights in token order, which makes it independent of how they were cut.
 *
 * Invariant: after bias and penalties every logit is a number below +infinity and at least one is above -infinity;
 * anything else is refused, because it means that the model's numbers are broken. */
#include "sampling/sampling.h"
#include "sampling/select.h"
#include <assert.h>
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

/* ---- bias, penalties -------------------------------------------------------------------------------------------- */

static bool has_penalties(const SamplingParams *p)
{
    return p->presence_penalty != 0 || p->frequency_penalty != 0 || p->repetition_penalty != 1;
}

/* counts: zeroed here; one for each token of the vocabulary. */
static void apply_penalties(const SamplingParams *p, float *logits, uint32_t vocab, const int32_t *history, size_t n,
                            uint32_t *counts)
{
    const uint32_t in_prompt = 1u << 31; /* beside the count of the answer, which a sequence's length bounds */

    memset(counts, 0, vocab * sizeof *counts);
    for (size_t i = 0; i < n; i++) {
        assert(history[i] >= 0 && (uint32_t)history[i] < vocab);
        if (i < p->n_prompt)
            counts[history[i]] |= in_prompt;
        else
            counts[history[i]]++;
    }
    for (size_t i = 0; i < n; i++) {
        float *logit = &logits[history[i]];
        uint32_t c = counts[history[i]];
        if (c == 0)
            continue; /* done at an earlier place of the same token */
        counts[history[i]] = 0;
        *logit = *logit > 0 ? *logit / p->repetition_penalty : *logit * p->repetition_penalty;
        c &= ~in_prompt;
        if (c > 0)
            *logit -= (float)c * p->frequency_penalty + p->presence_penalty;
    }
}

static Status find_best(const float *logits, uint32_t vocab, int32_t *best, Err *err)
{
    float max = -INFINITY;

    *best = -1;
    for (uint32_t i = 0; i < vocab; i++) {
        if (!(logits[i] < INFINITY))
            return err_set(err, ST_DEVICE,
                           "the model gave the logit %g for token %u, which is no usable number; its weights or a "
                           "kernel are broken",
                           (double)logits[i], i);
        if (logits[i] > max) { /* strictly: the lowest token wins a tie */
            max = logits[i];
            *best = (int32_t)i;
        }
    }
    if (*best < 0)
        return err_set(err, ST_DEVICE,
                       "the model ruled out all %u tokens (every logit is minus infinity); its weights "
                       "or a kernel are broken",
                       vocab);
    return ST_OK;
}

/* ---- log probabilities ------------------------------------------------------------------------------------------ */

/* log sum exp(logit), by its distance to the greatest logit so that nothing overflows. */
static double log_total(const float *logits, uint32_t vocab, float max)
{
    double sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        sum += (double)expf(logits[i] - max);
    return (double)max + log(sum);
}

static void fill_top(const float *logits, uint32_t vocab, double total, uint32_t n_top, TokenLogprob *top)
{
    uint32_t n = 0; /* filled so far, best first, equal ones by token */

    for (uint32_t i = 0; i < vocab; i++) {
        if (n == n_top && !(logits[i] > top[n - 1].logprob))
            continue;
        uint32_t at = n < n_top ? n++ : n - 1;
        for (; at > 0 && logits[i] > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (TokenLogprob){(int32_t)i, logits[i]};
    }
    for (uint32_t i = 0; i < n; i++)
        top[i].logprob = (float)((double)top[i].logprob - total);
    for (uint32_t i = n; i < n_top; i++)
        top[i] = (TokenLogprob){-1, -INFINITY};
}

/* ---- the draw --------------------------------------------------------------------------------------------------- */

/* SplitMix64's output function (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014, with
 * the constants of Stafford's variant 13). Its state is a counter times an odd constant, so output i needs no other. */
static uint64_t mix64(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* In [0, 1), 53 bits. The seed is mixed first, so that neighbouring seeds do not give shifted copies. */
static double uniform(uint64_t seed, uint64_t draw)
{
    const uint64_t golden_gamma = 0x9e3779b97f4a7c15u;
    uint64_t z = mix64(mix64(seed + golden_gamma) + (draw + 1) * golden_gamma);
    return (double)(z >> 11) * 0x1p-53;
}

static int32_t draw_token(const SamplingParams *p, const float *logits, uint32_t vocab, float max, uint64_t draw,
                          Candidate *c)
{
    const Tempered t = {max, p->temperature};
    uint32_t n = vocab;
    double total = 0, sum = 0;

    for (uint32_t i = 0; i < n; i++)
        c[i] = (Candidate){logits[i], (int32_t)i};
    if (p->top_k > 0 && (uint32_t)p->top_k < n)
        n = select_best(c, n, (uint32_t)p->top_k, (double)INFINITY, NULL, NULL);
    if (p->top_p < 1) {
        for (uint32_t i = 0; i < n; i++)
            total += (double)tempered_weight(&t, c[i].logit);
        n = select_best(c, n, n, (double)p->top_p * total, &t, NULL);
        total = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        float w = tempered_weight(&t, c[i].logit);
        c[i].logit = w >= p->min_p ? w : 0; /* the weight takes the logit's place */
        total += (double)c[i].logit;
    }

    const double goal = uniform(p->seed, draw) * total;
    int32_t token = -1;
    for (uint32_t i = 0; i < n; i++) {
        if (c[i].logit > 0)
            token = c[i].token; /* rounding may put the goal at the total: then the last that can be drawn */
        sum += (double)c[i].logit;
        if (sum > goal)
            break;
    }
    return token;
}

Status sampling_pick(const SamplingParams *p, float *logits, uint32_t vocab, const int32_t *history, size_t n_history,
                     uint64_t draw, void *scratch, int32_t *token, uint32_t n_top, TokenLogprob *top,
                     TokenLogprob *chosen, Err *err)
{
    Status st = ST_OK;
    int32_t best;

    for (uint32_t i = 0; i < p->n_bias; i++)
        logits[p->bias[i].token] += p->bias[i].bias;
    if (has_penalties(p))
        apply_penalties(p, logits, vocab, history, n_history, scratch);
    TRY(find_best(logits, vocab, &best, err));

    if (p->temperature == 0 || p->top_k == 1)
        *token = best;
    else
        *token = draw_token(p, logits, vocab, logits[best], draw, scratch);

    if (n_top > 0 || chosen) {
        double total = log_total(logits, vocab, logits[best]);
        if (n_top > 0)
            fill_top(logits, vocab, total, n_top, top);
        if (chosen)
            *chosen = (TokenLogprob){*token, (float)((double)logits[*token] - total)};
    }
done:
    return st;
}
