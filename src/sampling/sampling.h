/* sampling.h - what a request may ask of its tokens, and how that becomes the words that op `sample` reads (core/sample.h)
 * and its picks become tokens again. Pure; randomness comes from the seed alone. The draw number i of a request depends on
 * (seed, i) only, so that batching and preemption do not change an answer.
 * Owns: nothing.   Thread: any. */
#ifndef METRALE_SAMPLING_SAMPLING_H
#define METRALE_SAMPLING_SAMPLING_H
#include "core/sample.h"
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
    const LogitBias *bias; /* must outlive the request; of one token several are summed */
    uint32_t n_prompt;     /* so many tokens of the history are the prompt; the engine sets it */
} SamplingParams;

typedef struct TokenLogprob {
    int32_t token;
    float logprob;
} TokenLogprob;

void sampling_defaults(SamplingParams *p); /* temperature 1, top_p 1, everything else off, seed 0 */
/* ST_INVALID with the field's name for non-finite or out-of-range values, bias tokens outside [0, vocab). */
Status sampling_check(const SamplingParams *p, uint32_t vocab, Err *err);

/* Bias entries of one token become one, by their sum, in ascending order of tokens. Returns how many are left. */
uint32_t sampling_merge_bias(LogitBias *bias, uint32_t n);
/* Do the values ask for penalties, and for prompt tokens among them? */
bool sampling_penalises(const SamplingParams *p);
bool sampling_penalises_prompt(const SamplingParams *p);

/* The words of draw number `draw`; its edits are the caller's to set. p has passed sampling_check. total: the token's log
 * probability is wanted. */
void sampling_fill(const SamplingParams *p, uint64_t draw, bool total, SampleRow *out);
/* What a pick says: ST_DEVICE when a logit was NaN or infinite (minus infinity is fine unless all are: it rules a token out). */
Status sampling_check_pick(const SamplePick *pick, uint32_t vocab, Err *err);
/* log softmax(logits after bias and penalties, before temperature) of the pick's token; it has a total. */
float sampling_logprob(const SamplePick *pick);
/* The same of the best n, best first, equal ones by token; token -1 beyond the vocabulary. logits: as op sample left them. */
void sampling_top(const SamplePick *pick, const float *logits, uint32_t vocab, uint32_t n, TokenLogprob *top);

/* All of it for one row of logits on the host, as the engine does it with a model's steps: op sample is sampling_row here.
 * scratch: vocab * 8 bytes, aligned as by malloc. logits are left as bias and penalties make them. history: tokens so
 * far, at least one when there are penalties. n_top > 0: fills top[0..n_top); *chosen, unless NULL, gets the token's own. */
Status sampling_pick(const SamplingParams *p, float *logits, uint32_t vocab, const int32_t *history, size_t n_history,
                     uint64_t draw, void *scratch, int32_t *token, uint32_t n_top, TokenLogprob *top,
                     TokenLogprob *chosen, Err *err);
#endif
