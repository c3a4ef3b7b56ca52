/* sampling.h - from logits to a token: bias, penalties, temperature, top-k, top-p, min-p, seed. Pure; randomness comes
 * from the seed alone. Order: bias -> penalties -> greedy when temperature is 0 -> temperature -> top-k -> top-p ->
 * min-p -> draw. The draw number i of a request depends on (seed, i) only, so that batching and preemption do not
 * change an answer. Equal logits rank by token, lowest first.
 * Owns: nothing.   Thread: any. */
#ifndef METRALE_SAMPLING_SAMPLING_H
#define METRALE_SAMPLING_SAMPLING_H
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct LogitBias {
    int32_t token;
    float bias; /* [-100, 100], added to the logit */
} LogitBias;

/* Formulas, for a token that stands c times in the answer so far:
 *   repetition (c > 0, or it stands in the prompt): logit > 0 ? logit / r : logit * r    (Keskar et al., CTRL, 2019)
 *   frequency, presence (c > 0):  logit - c * frequency - presence                       (OpenAI API reference) */
typedef struct SamplingParams {
    float temperature;                                             /* [0, 2]; 0: greedy */
    float top_p;                                                   /* (0, 1] */
    float min_p;                                                   /* [0, 1) */
    int32_t top_k;                                                 /* 0: all */
    float presence_penalty, frequency_penalty, repetition_penalty; /* [-2, 2], [-2, 2], [0.1, 10]; 0, 0, 1: off */
    uint64_t seed;
    uint32_t n_bias;
    const LogitBias *bias; /* must outlive the request */
    uint32_t n_prompt;     /* so many tokens of the history are the prompt; the engine sets it */
} SamplingParams;

typedef struct TokenLogprob {
    int32_t token;
    float logprob;
} TokenLogprob;

void sampling_defaults(SamplingParams *p); /* temperature 1, top_p 1, everything else off, seed 0 */
/* ST_INVALID with the field's name for non-finite or out-of-range values, bias tokens outside [0, vocab). */
Status sampling_check(const SamplingParams *p, uint32_t vocab, Err *err);

/* p has passed sampling_check. scratch: vocab * 8 bytes, aligned as by malloc. logits may be changed. history: tokens so
 * far (for penalties). draw: number of this draw. n_top > 0: fills top[0..n_top) with the best of log softmax(logits
 * after bias and penalties, before temperature), best first, token -1 beyond the vocabulary; *chosen, unless NULL, gets
 * the token's own. ST_DEVICE: a logit is NaN or infinite (minus infinity is fine unless all are: it rules a token out).
 */
Status sampling_pick(const SamplingParams *p, float *logits, uint32_t vocab, const int32_t *history, size_t n_history,
                     uint64_t draw, void *scratch, int32_t *token, uint32_t n_top, TokenLogprob *top,
                     TokenLogprob *chosen, Err *err);
#endif
