/* row.c - bias, penalties, the largest logit, the cut by top-k and top-p, the draw.
 *
 * A cut is a key and a token: it keeps what has a greater key, and of those with this key the tokens up to this one. The
 * shortest best part that reaches a count or a weight is found without sorting, bit by bit: the greatest key behind which enough
 * remains, then the token at which it is enough. Slow (50 passes over the row), exact, and the same in any order of work. */
#include "sampling/row.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef struct Cut {
    uint32_t key;
    uint32_t token;
} Cut;

/* The row and its weights. */
typedef struct Row {
    const float *logits;
    const uint64_t *weights;
    uint32_t vocab;
    Cut cut;
} Row;

/* Unsigned order of keys = order of floats: negative ones have all bits flipped, others the sign. */
static uint32_t order_key(float logit)
{
    uint32_t u;

    logit += 0.0f; /* -0 becomes +0: they are equal, so their keys must be */
    memcpy(&u, &logit, sizeof u);
    return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}

static bool keeps(Cut c, uint32_t key, uint32_t token)
{
    return key > c.key || (key == c.key && token <= c.token);
}

/* The weight, or else the number, of the kept ones whose key is `from` or greater. */
static uint64_t amount(const Row *r, uint32_t from, bool by_weight)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < r->vocab; i++) {
        uint32_t key = order_key(r->logits[i]);
        if (key >= from && keeps(r->cut, key, i))
            sum += by_weight ? r->weights[i] : 1;
    }
    return sum;
}

/* Narrows the cut to the shortest best part that has `need`, which the kept ones have. */
static void shorten(Row *r, uint64_t need, bool by_weight)
{
    uint32_t key = 0, token = 0;

    for (uint32_t bit = UINT32_C(1) << 31; bit > 0; bit >>= 1)
        if (amount(r, key | bit, by_weight) >= need)
            key |= bit;
    uint64_t sum = amount(r, key + 1, by_weight);
    for (; sum < need; token++)
        if (order_key(r->logits[token]) == key && keeps(r->cut, key, token))
            sum += by_weight ? r->weights[token] : 1;
    r->cut = (Cut){key, token - 1};
}

static uint32_t draw(const SampleRow *s, Row *r, float max, uint64_t *weights)
{
    const uint64_t least = sample_least(s->min_p);
    uint64_t total = 0, sum = 0;
    uint32_t token = 0;

    for (uint32_t i = 0; i < r->vocab; i++)
        weights[i] = sample_weight(r->logits[i], max, s->temperature);
    if (s->top_k > 0 && (uint32_t)s->top_k < r->vocab)
        shorten(r, (uint64_t)s->top_k, false);
    if (s->top_p > 0)
        shorten(r, sample_share(amount(r, 0, true), s->top_p), true);
    for (uint32_t i = 0; i < r->vocab; i++) {
        if (!keeps(r->cut, order_key(r->logits[i]), i) || weights[i] < least)
            weights[i] = 0;
        total += weights[i];
    }
    const uint64_t goal = sample_goal(total, (uint64_t)s->random_high << 32 | s->random_low);
    while ((sum += weights[token]) <= goal)
        token++;
    return token;
}

static void apply_edits(const SampleRow *r, const SampleEdit *edits, int32_t own, float *logits)
{
    const SampleEdit *bias = edits + r->first_edit, *seen = bias + r->n_bias;
    uint32_t own_seen = r->in_prompt ? SAMPLE_IN_PROMPT : 1;

    for (uint32_t i = 0; i < r->n_bias; i++) {
        float b;
        memcpy(&b, &bias[i].value, sizeof b);
        logits[bias[i].token] += b;
    }
    if (!r->penalties)
        return;
    for (uint32_t i = 0; i < r->n_seen; i++)
        if (seen[i].token == own)
            own_seen = r->in_prompt ? seen[i].value | SAMPLE_IN_PROMPT : seen[i].value + 1;
        else
            logits[seen[i].token] = sample_penalised(r, logits[seen[i].token], seen[i].value);
    logits[own] = sample_penalised(r, logits[own], own_seen);
}

void sampling_row(const SampleRow *r, const SampleEdit *edits, int32_t own, float *logits, uint32_t vocab,
                  uint64_t *scratch, SamplePick *out)
{
    float max = -INFINITY;
    uint32_t best = 0;
    uint64_t total = 0;

    if (r->wants == 0)
        return;
    apply_edits(r, edits, own, logits);
    *out = (SamplePick){.token = SAMPLE_RULED_OUT};
    for (uint32_t i = 0; i < vocab; i++) {
        if (!(logits[i] < INFINITY)) {
            *out = (SamplePick){SAMPLE_BROKEN, logits[i], i, 0};
            return;
        }
        if (logits[i] > max) { /* strictly: the lowest token wins a tie */
            max = logits[i];
            best = i;
        }
    }
    if (max == -INFINITY)
        return;
    if (r->temperature != 0 && r->top_k != 1) {
        Row row = {logits, scratch, vocab, {0, 0}};
        best = draw(r, &row, max, scratch);
    }
    for (uint32_t i = 0; (r->wants & SAMPLE_TOTAL) && i < vocab; i++)
        total += sample_weight(logits[i], max, 1);
    *out = (SamplePick){(int32_t)best, logits[best] - max, (uint32_t)total, (uint32_t)(total >> 32)};
}
