/* seen.h - how often a history has each token: the list that penalties need, kept up as the history grows.
 * Owns: its memory.   Thread: one caller. */
#ifndef METRALE_SAMPLING_SEEN_H
#define METRALE_SAMPLING_SEEN_H
#include "core/sample.h"
#include "core/status.h"
#include <stdbool.h>

typedef struct SeenTokens { /* zero-initialised is empty and may be released */
    SampleEdit *list;
    uint32_t n;
    uint32_t *place; /* [vocab]: 1 + where the token stands in the list; 0: nowhere */
} SeenTokens;

/* vocab: tokens are below it. most: tokens that will be added at most. */
Status seen_init(SeenTokens *s, uint32_t vocab, uint32_t most, Err *err);
void seen_release(SeenTokens *s);
void seen_add(SeenTokens *s, int32_t token, bool in_prompt);
#endif
