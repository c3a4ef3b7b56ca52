/* sampling.h - from logits to a token: penalties, bias, temperature, top-k, top-p, min-p, seed. Pure; randomness comes
 * from the state's seed alone. Order: bias and penalties -> greedy when temperature is 0 -> temperature -> top-k ->
 * top-p -> min-p -> draw. The draw number i of a request depends on (seed, i) only, so that batching and preemption do
 * not change an answer. Owns: nothing.   Thread: any; a SamplerState belongs to one sequence. */
#ifndef METRALE_SAMPLING_SAMPLING_H
#define METRALE_SAMPLING_SAMPLING_H
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct LogitBias {
    int32_t token;
    float bias;
} LogitBias;

typedef struct SamplingParams {
    float temperature;                                             /* 0: greedy */
    float top_p;                                                   /* (0, 1] */
    float min_p;                                                   /* [0, 1) */
    int32_t top_k;                                                 /* 0: all */
    float presence_penalty, frequency_penalty, repetition_penalty; /* 0, 0, 1: off */
    uint64_t seed;
    uint32_t n_bias;
    const LogitBias *bias; /* must outlive the request */
} SamplingParams;

typedef struct TokenLogprob {
    int32_t token;
    float logprob;
} TokenLogprob;

void sampling_defaults(SamplingParams *p); /* temperature 1, top_p 1, everything else off, seed 0 */
/* ST_INVALID with the field's name for non-finite or out-of-range values, bias tokens outside [0, vocab). */
Status sampling_check(const SamplingParams *p, uint32_t vocab, Err *err);

/* scratch: vocab * 8 bytes. logits may be changed. history: tokens so far (for penalties). draw: number of this draw.
 * n_top > 0: fills top[0..n_top) with the best of log softmax(logits before temperature), best first; *chosen gets the
 * token's own. */
Status sampling_pick(const SamplingParams *p, float *logits, uint32_t vocab, const int32_t *history, size_t n_history,
                     uint64_t draw, void *scratch, int32_t *token, uint32_t n_top, TokenLogprob *top,
                     TokenLogprob *chosen, Err *err);
#endif
