/* params.h - the fields that all OpenAI routes share, read from a body and checked.
 *
 * Unknown fields are ignored and null means absent. A wrong type, a value out of range, and a feature that would
 * change the answer and is not here are refused by the field's name.
 * Owns: nothing; texts and lists are the arena's, so that a body may go before its answer begins. */
#ifndef METRALE_SERVER_PARAMS_H
#define METRALE_SERVER_PARAMS_H
#include "core/arena.h"
#include "server/api_error.h"
#include "server/app.h"

enum { PARAMS_MAX_STOPS = 16, PARAMS_MAX_STOP_IDS = 64, PARAMS_MAX_BIAS = 1024 };

typedef struct Params {
    bool stream, include_usage;
    uint32_t max_tokens; /* 0: as many as fit */
    SamplingParams sampling;
    const char *stop[PARAMS_MAX_STOPS];
    size_t n_stop;
    int32_t stop_ids[PARAMS_MAX_STOP_IDS]; /* besides the model's own end ids */
    uint32_t n_stop_ids;
    bool ignore_eos, logprobs;
    uint32_t n_top;
} Params;

/* Reads what chat and completions have in common; logprobs differ and stay off. */
Status params_read(App *app, const json_t *body, Arena *a, Params *p, ApiError *e);

/* Readers for the routes' own fields. Absent or null: *out stays. */
Status params_bool(const json_t *body, const char *key, bool *out, ApiError *e);
Status params_int(const json_t *body, const char *key, int64_t least, int64_t most, int64_t *out, ApiError *e);
/* Like json_object_get, NULL also for null. */
const json_t *params_get(const json_t *body, const char *key);
/* The body as a JSON object; params_body_release releases it. */
Status params_body(const char *text, size_t len, json_t **out, ApiError *e);
/* Releases *body, which was len bytes of text, and clears it; the memory of a large one goes back to the system at once,
 * since the request may wait long and the server be idle behind it. */
void params_body_release(json_t **body, size_t len);
#endif
