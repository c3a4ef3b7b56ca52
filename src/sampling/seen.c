/* seen.c - a list of distinct tokens, and for each token of the vocabulary its place there. Pages of `place` that no token
 * touches take no memory. */
#include "sampling/seen.h"
#include <stdlib.h>

Status seen_init(SeenTokens *s, uint32_t vocab, uint32_t most, Err *err)
{
    *s = (SeenTokens){.list = calloc((most < vocab ? most : vocab) + 1u, sizeof *s->list),
                      .place = calloc(vocab, sizeof *s->place)};
    if (s->list == NULL || s->place == NULL) {
        seen_release(s);
        return err_set(err, ST_NOMEM, "out of memory for the penalties of a request over %u tokens", vocab);
    }
    return ST_OK;
}

void seen_release(SeenTokens *s)
{
    free(s->list);
    free(s->place);
    *s = (SeenTokens){0};
}

void seen_add(SeenTokens *s, int32_t token, bool in_prompt)
{
    uint32_t *place = &s->place[token];

    if (*place == 0) {
        s->list[s->n++] = (SampleEdit){.token = token};
        *place = s->n;
    }
    SampleEdit *e = &s->list[*place - 1];
    e->value = in_prompt ? e->value | SAMPLE_IN_PROMPT : e->value + 1;
}
