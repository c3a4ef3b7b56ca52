/* sample: y[o] = x[o] after the output's bias and penalties, and its token to picks[o] (src/core/sample.h has the numbers).
 *   y, x     [outs][n] f32, n the vocabulary; y may be x
 *   samples  [outs] what is wanted; edits [...] biases, then tokens seen; picks [outs]
 *   tokens   [rows] i32, source [outs] i32: the row of an output, whose token ends the history
 *   grid     (outs)
 *   smem     24 n: candidates of a cut, weights
 * Order: sums are of integers. A cut by top-k or top-p is looked for among the tokens that weigh at least e^-10 of the
 * best, and among all where those are not enough. */
#include "kernel_abi.h"
#include <math.h>
#include <string.h>

typedef struct Sample {
    uint32_t wants;
    float temperature;
    uint32_t top_p;
    float min_p;
    int32_t top_k;
    float repetition, frequency, presence;
    uint32_t random_low, random_high, first_edit, n_bias, n_seen, penalties, in_prompt, unused;
} Sample;

typedef struct Edit {
    int32_t token;
    uint32_t value;
} Edit;

typedef struct Pick {
    int32_t token;
    float gap;
    uint32_t total_low, total_high;
} Pick;

typedef struct Candidate {
    uint32_t key, token;
    uint64_t weight;
} Candidate;

/* What a cut keeps: greater keys, and of this key the tokens up to this one. */
typedef struct Cut {
    uint32_t key, token;
} Cut;

#define IN_PROMPT     0x80000000u
#define KEY_RULED_OUT 0x007fffffu        /* of minus infinity */
#define KEYS_USABLE   0xff000000u        /* from there to the largest float */
#define LIKELY        UINT64_C(49917751) /* 2^40 e^-10 */
enum { CHUNK = 512 };

static inline uint32_t order_key(float logit)
{
    uint32_t u;
    logit += 0.0f;
    memcpy(&u, &logit, sizeof u);
    return u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
}

static float penalised(const Sample *s, float logit, uint32_t seen)
{
    uint32_t count = seen & ~IN_PROMPT;
    logit = logit > 0 ? logit / s->repetition : logit * s->repetition;
    if (count > 0)
        logit -= (float)count * s->frequency + s->presence;
    return logit;
}

static void apply_edits(const Sample *s, const Edit *edits, int32_t own, float *y)
{
    const Edit *bias = edits + s->first_edit, *seen = bias + s->n_bias;
    uint32_t own_seen = s->in_prompt ? IN_PROMPT : 1;

    for (uint32_t i = 0; i < s->n_bias; i++) {
        float b;
        memcpy(&b, &bias[i].value, sizeof b);
        y[bias[i].token] += b;
    }
    if (!s->penalties)
        return;
    for (uint32_t i = 0; i < s->n_seen; i++)
        if (seen[i].token == own)
            own_seen = s->in_prompt ? seen[i].value | IN_PROMPT : seen[i].value + 1;
        else
            y[seen[i].token] = penalised(s, y[seen[i].token], seen[i].value);
    y[own] = penalised(s, y[own], own_seen);
}

/* w[i] = 2^40 e^((y[i] - max) / temperature), n up to CHUNK. Comparisons are of the bits of |x|: the vectoriser takes no branch
 * on a float. */
static void weigh(const float *y, int n, float max, float temperature, uint64_t *w)
{
    const uint32_t end = 0x41e00000u; /* 28 */

    for (int i = 0; i < n; i++) {
        float x = (y[i] - max) / temperature;
        uint32_t u, inside;
        memcpy(&u, &x, sizeof u);
        u &= 0x7fffffffu;
        inside = u < end ? u : end;
        memcpy(&x, &inside, sizeof x);
        uint64_t e = (uint64_t)(uint32_t)(int32_t)(x * 16777216.0f) * 0xb8aa3b29u >> 23;
        uint64_t f = e & 0xffffffffu, p = 0x00078809u;
        p = 0x0054a612u - (p * f >> 32);
        p = 0x0274f388u - (p * f >> 32);
        p = 0x0e353290u - (p * f >> 32);
        p = 0x3d7f7506u - (p * f >> 32);
        p = 0xb17217dfu - (p * f >> 32);
        p = 0x80000000u - (p * f >> 33);
        w[i] = (p << 9 >> (e >> 32)) & (uint64_t) - (int64_t)(u < end);
    }
}

/* The sum of a row's weights, which go to w unless that is NULL. */
static uint64_t weigh_row(const float *y, int n, float max, float temperature, uint64_t *w)
{
    uint64_t chunk[CHUNK], sum = 0;

    for (int i = 0; i < n; i += CHUNK) {
        int m = n - i < CHUNK ? n - i : CHUNK;
        uint64_t *to = w ? w + i : chunk;
        weigh(y + i, m, max, temperature, to);
        for (int j = 0; j < m; j++)
            sum += to[j];
    }
    return sum;
}

/* The tokens that weigh at least `least`; how many there are. */
static uint32_t collect(const float *y, const uint64_t *w, int n, uint64_t least, Candidate *c)
{
    uint32_t found = 0;
    for (int i = 0; i < n; i++)
        if (w[i] >= least)
            c[found++] = (Candidate){order_key(y[i]), (uint32_t)i, w[i]};
    return found;
}

static inline int keeps(Cut cut, uint32_t key, uint32_t token)
{
    return key > cut.key || (key == cut.key && token <= cut.token);
}

/* The weight, or else the number, of the kept ones whose key is `from` or greater. */
static uint64_t amount(const Candidate *c, uint32_t n, Cut cut, uint32_t from, int by_weight)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += c[i].key >= from && keeps(cut, c[i].key, c[i].token) ? (by_weight ? c[i].weight : 1) : 0;
    return sum;
}

/* Narrows the cut to the shortest best part that has `need`. */
static Cut shorten(const Candidate *c, uint32_t n, Cut cut, uint64_t need, int by_weight)
{
    Cut out = {0, 0};

    for (uint32_t bit = 0x80000000u; bit > 0; bit >>= 1)
        if (amount(c, n, cut, out.key | bit, by_weight) >= need)
            out.key |= bit;
    uint64_t sum = amount(c, n, cut, out.key + 1, by_weight);
    for (uint32_t i = 0; sum < need; i++) /* in order of tokens */
        if (c[i].key == out.key && keeps(cut, c[i].key, c[i].token)) {
            sum += by_weight ? c[i].weight : 1;
            out.token = c[i].token;
        }
    return out;
}

static uint64_t product_high(uint64_t a, uint64_t b)
{
    return (uint64_t)((unsigned __int128)a * b >> 64);
}

static uint64_t share_of(uint64_t total, uint32_t top_p)
{
    uint64_t share = (total >> 32) * top_p + ((total & 0xffffffffu) * top_p >> 32);
    return share > 0 ? share : 1;
}

/* total: of the row's weights. */
static Cut cut_row(const Sample *s, const float *y, const uint64_t *w, int n, uint64_t total, Candidate *c)
{
    Cut cut = {0, 0};
    uint32_t found = collect(y, w, n, LIKELY, c);

    if (s->top_k > 0 && s->top_k < n) {
        if (found < (uint32_t)s->top_k)
            found = collect(y, w, n, 0, c);
        cut = shorten(c, found, cut, (uint64_t)s->top_k, 0);
        total = amount(c, found, cut, 0, 1);
    }
    if (s->top_p > 0) {
        uint64_t need = share_of(total, s->top_p);
        if (amount(c, found, cut, 0, 1) < need)
            found = collect(y, w, n, 0, c);
        cut = shorten(c, found, cut, need, 1);
    }
    return cut;
}

/* smem: n candidates, n weights. */
static int draw(const Sample *s, const float *y, int n, float max, void *smem)
{
    Candidate *c = smem;
    uint64_t *w = (uint64_t *)(c + n);
    uint64_t total = weigh_row(y, n, max, s->temperature, w), sum = 0;
    const uint64_t least = (uint64_t)(s->min_p * 1099511627776.0f);
    Cut cut = {0, 0};
    int token = 0;

    if ((s->top_k > 0 && s->top_k < n) || s->top_p > 0)
        cut = cut_row(s, y, w, n, total, c);
    total = 0;
    for (int i = 0; i < n; i++) {
        w[i] = w[i] >= least && keeps(cut, order_key(y[i]), (uint32_t)i) ? w[i] : 0;
        total += w[i];
    }
    const uint64_t goal = product_high(total, (uint64_t)s->random_high << 32 | s->random_low);
    while ((sum += w[token]) <= goal)
        token++;
    return token;
}

KERNEL(sample)
{
    const int n = I32(8);
    const Sample *s = PTR(2, Sample) + b->x;
    const float *x = PTR(1, float) + (size_t)b->x * (size_t)n;
    float *y = PTR(0, float) + (size_t)b->x * (size_t)n;
    Pick *pick = PTR(4, Pick) + b->x;
    uint32_t top = 0;
    int best = 0;

    if (y != x)
        memcpy(y, x, (size_t)n * sizeof *y);
    if (s->wants == 0)
        return;
    apply_edits(s, PTR(3, Edit), PTR(5, int32_t)[PTR(6, int32_t)[b->x]], y);
    for (int i = 0; i < n; i++) {
        uint32_t key = order_key(y[i]) - KEY_RULED_OUT; /* of a negative NaN it wraps around */
        top = key > top ? key : top;
    }
    while (top > KEYS_USABLE ? order_key(y[best]) - KEY_RULED_OUT <= KEYS_USABLE
                             : order_key(y[best]) - KEY_RULED_OUT != top)
        best++;
    if (top > KEYS_USABLE) {
        *pick = (Pick){-1, y[best], (uint32_t)best, 0};
        return;
    }
    if (top == 0) {
        *pick = (Pick){-2, 0, 0, 0};
        return;
    }
    const float max = y[best];
    uint64_t total = 0;
    if (s->temperature != 0 && s->top_k != 1)
        best = draw(s, y, n, max, b->smem);
    if (s->wants & 2)
        total = weigh_row(y, n, max, 1, NULL);
    *pick = (Pick){best, y[best] - max, (uint32_t)total, (uint32_t)(total >> 32)};
}
