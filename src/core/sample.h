/* sample.h - the numbers of op `sample`: what a step says about each output's token, what comes back, and the weights of a
 * draw. Kernels restate them in their own languages (kernels/CLASS/common/sample.*); the tests hold them to these.
 *
 * Each sum over the vocabulary is one of integers, so that it does not depend on its order: a device of any width gives
 * the same token for the same logits and the same random number, bit for bit.
 *
 * Order of work on a row: bias, penalties, the largest logit; then greedy, or temperature -> top-k -> top-p -> min-p -> draw.
 * Equal logits rank by token, lowest first.
 * Owns: nothing.   Thread: any. */
#ifndef METRALE_CORE_SAMPLE_H
#define METRALE_CORE_SAMPLE_H
#include <stdint.h>

/* What is wanted of an output. 0: its logits are left as they are, and no pick is made. */
enum { SAMPLE_TOKEN = 1, SAMPLE_TOTAL = 2 };

/* Of one output. All words are 32 bits wide, as in every table of a step. */
typedef struct SampleRow {
    uint32_t wants;
    float temperature; /* 0: greedy */
    uint32_t top_p;    /* in units of 2^-32; 0: all */
    float min_p;
    int32_t top_k;                                                 /* 0: all */
    float repetition_penalty, frequency_penalty, presence_penalty; /* off: 1, 0, 0 */
    uint32_t random_low, random_high;                              /* one 64-bit number, uniform */
    uint32_t first_edit, n_bias, n_seen; /* its entries in the step's edits: biases, then tokens seen so far */
    uint32_t penalties; /* 1: they are on, and apply to the row's own token, too, which is not in the list */
    uint32_t in_prompt; /* 1: the row's own token belongs to the prompt, not to the answer */
    uint32_t unused;
} SampleRow;

/* A bias: value is the bits of the float that is added to the token's logit; a token occurs once. A token seen: value
 * is how often the answer has it, and SAMPLE_IN_PROMPT if the prompt does; a token occurs once. */
#define SAMPLE_IN_PROMPT UINT32_C(0x80000000)
typedef struct SampleEdit {
    int32_t token;
    uint32_t value;
} SampleEdit;

enum { SAMPLE_BROKEN = -1, SAMPLE_RULED_OUT = -2 };

typedef struct SamplePick {
    int32_t
        token; /* SAMPLE_BROKEN: some logit is no number or plus infinity. SAMPLE_RULED_OUT: all are minus infinity */
    float gap; /* its logit minus the largest; of a broken row the first bad logit */
    uint32_t total_low,
        total_high; /* SAMPLE_TOTAL: sum of weights at temperature 1; of a broken row total_low is the token */
} SamplePick;

/* 2^40 e^((logit - max) / temperature), where max is the row's largest logit. The exponent is cut off behind 2^-24, the power of two
 * beside it is a polynomial of degree 6 in integers, which errs by at most 1.1e-8 of itself. Below e^-28, 7e-13, a weight is 0. */
#define SAMPLE_ONE (UINT64_C(1) << 40)
static inline uint64_t sample_weight(float logit, float max, float temperature)
{
    static const uint32_t c[6] = {0xb17217df, 0x3d7f7506, 0x0e353290, 0x0274f388, 0x0054a612, 0x00078809};
    const float x = (logit - max) / temperature; /* a division: the reciprocal of a tiny temperature is infinite */
    if (!(x > -28.0f))
        return 0;
    const uint32_t steps = (uint32_t)(x * -16777216.0f);
    const uint64_t y = (uint64_t)steps * 0xb8aa3b29u >> 23; /* by log2(e) 2^31: -log2 of the weight in 2^-32 */
    const uint64_t f = (uint32_t)y;
    uint64_t p = c[5];

    for (int i = 4; i >= 0; i--)
        p = c[i] - (p * f >> 32);
    p = (UINT64_C(1) << 31) - (p * f >> 33); /* 2^-f in 2^-31 */
    return p << 9 >> (y >> 32);
}

/* The least weight that min_p leaves. */
static inline uint64_t sample_least(float min_p)
{
    return (uint64_t)(min_p * 1099511627776.0f);
}

/* The weight that the best tokens must reach to be top_p of a total below 2^64 - 2^32, at least 1. */
static inline uint64_t sample_share(uint64_t total, uint32_t top_p)
{
    const uint64_t share = (total >> 32) * top_p + ((total & 0xffffffffu) * top_p >> 32);
    return share > 0 ? share : 1;
}

/* The point in [0, total) that a random number stands for: random * total / 2^64. */
static inline uint64_t sample_goal(uint64_t total, uint64_t random)
{
    const uint64_t al = random & 0xffffffffu, ah = random >> 32, bl = total & 0xffffffffu, bh = total >> 32;
    const uint64_t middle = ah * bl + (al * bl >> 32), low = (middle & 0xffffffffu) + al * bh;
    return ah * bh + (middle >> 32) + (low >> 32);
}

/* A logit after its penalties. */
static inline float sample_penalised(const SampleRow *r, float logit, uint32_t seen)
{
    const uint32_t count = seen & ~SAMPLE_IN_PROMPT;

    logit = logit > 0 ? logit / r->repetition_penalty : logit * r->repetition_penalty;
    if (count > 0)
        logit -= (float)count * r->frequency_penalty + r->presence_penalty;
    return logit;
}
#endif
