/* params.c - see params.h. Ranges are those of OpenAI's reference where it has the field, and never
 * wider than what sampling_check takes; top_k, min_p,
 * repetition_penalty, ignore_eos and stop_token_ids are the usual extensions of local servers. */
#include "server/params.h"
#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of text from which on a tree, which is up to a hundred times as large, is worth a walk through the heap. */
enum { LARGE_BODY = 256 << 10 };

const json_t *params_get(const json_t *body, const char *key)
{
    const json_t *v = json_object_get(body, key);
    return json_is_null(v) ? NULL : v;
}

Status params_bool(const json_t *body, const char *key, bool *out, ApiError *e)
{
    const json_t *v = params_get(body, key);

    if (v && !json_is_boolean(v))
        return api_error_set(e, ST_INVALID, "invalid_type", key, "%s: must be true or false", key);
    if (v)
        *out = json_is_true(v);
    return ST_OK;
}

Status params_int(const json_t *body, const char *key, int64_t least, int64_t most, int64_t *out, ApiError *e)
{
    const json_t *v = params_get(body, key);

    if (!v)
        return ST_OK;
    if (!json_is_integer(v))
        return api_error_set(e, ST_INVALID, "invalid_type", key, "%s: must be an integer", key);
    if (json_integer_value(v) < least || json_integer_value(v) > most)
        return api_error_set(e, ST_INVALID, "invalid_value", key, "%s: must be from %lld to %lld", key,
                             (long long)least, (long long)most);
    *out = json_integer_value(v);
    return ST_OK;
}

typedef struct FloatField {
    const char *key, *range; /* range as the message says it */
    double least, most;
    bool open_least, open_most; /* the bound itself is out */
} FloatField;

static Status read_float(const json_t *body, const FloatField *f, float *out, ApiError *e)
{
    const json_t *v = params_get(body, f->key);
    double x;

    if (!v)
        return ST_OK;
    if (!json_is_number(v))
        return api_error_set(e, ST_INVALID, "invalid_type", f->key, "%s: must be a number %s", f->key, f->range);
    x = json_number_value(v);
    if (!(x >= f->least && x <= f->most) || (f->open_least && x == f->least) || (f->open_most && x == f->most))
        return api_error_set(e, ST_INVALID, "invalid_value", f->key, "%s: must be %s", f->key, f->range);
    *out = (float)x;
    /* A double just inside an open bound may round to it. */
    if (f->open_most && *out >= (float)f->most)
        *out = nextafterf((float)f->most, (float)f->least);
    if (f->open_least && *out <= (float)f->least)
        *out = nextafterf((float)f->least, (float)f->most);
    return ST_OK;
}

static Status read_sampling(App *app, const json_t *body, SamplingParams *s, ApiError *e)
{
    static const FloatField temperature = {"temperature", "from 0 to 2", 0, 2, false, false},
                            top_p = {"top_p", "above 0 and at most 1", 0, 1, true, false},
                            min_p = {"min_p", "from 0 to below 1", 0, 1, false, true},
                            presence = {"presence_penalty", "from -2 to 2", -2, 2, false, false},
                            frequency = {"frequency_penalty", "from -2 to 2", -2, 2, false, false},
                            repetition = {"repetition_penalty", "from 0.1 to 10", 0.1, 10, false, false};
    Status st;
    int64_t top_k = app->sampling.top_k, seed = 0;

    *s = app->sampling;
    TRY(read_float(body, &temperature, &s->temperature, e));
    TRY(read_float(body, &top_p, &s->top_p, e));
    TRY(read_float(body, &min_p, &s->min_p, e));
    TRY(read_float(body, &presence, &s->presence_penalty, e));
    TRY(read_float(body, &frequency, &s->frequency_penalty, e));
    TRY(read_float(body, &repetition, &s->repetition_penalty, e));
    TRY(params_int(body, "top_k", -1, INT32_MAX, &top_k, e));
    s->top_k = top_k < 0 ? 0 : (int32_t)top_k; /* both mean all */
    TRY(params_int(body, "seed", INT64_MIN, INT64_MAX, &seed, e));
    s->seed = params_get(body, "seed") ? (uint64_t)seed : app_next(app);
done:
    return st;
}

static Status read_bias(const App *app, const json_t *body, Arena *a, SamplingParams *s, ApiError *e)
{
    const json_t *v = params_get(body, "logit_bias");
    LogitBias *list;
    const char *key;
    json_t *value;
    uint32_t n = 0;

    if (!v)
        return ST_OK;
    if (!json_is_object(v))
        return api_error_set(e, ST_INVALID, "invalid_type", "logit_bias",
                             "logit_bias: must be an object of token ids and numbers");
    if (json_object_size(v) > PARAMS_MAX_BIAS)
        return api_error_set(e, ST_INVALID, "invalid_value", "logit_bias", "logit_bias: has over %d tokens",
                             PARAMS_MAX_BIAS);
    list = ARENA_ARRAY(a, LogitBias, json_object_size(v));
    if (!list)
        return api_error_set(e, ST_NOMEM, NULL, NULL, "out of memory for a request");
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        char *end;
        errno = 0;
        long long id = strtoll(key, &end, 10);
        if (*key < '0' || *key > '9' || *end || errno || id >= app->vocab)
            return api_error_set(e, ST_INVALID, "invalid_value", "logit_bias",
                                 "logit_bias: \"%.40s\" is no token id; ids are 0 to %u", key, app->vocab - 1);
        if (!json_is_number(value) || !(fabs(json_number_value(value)) <= 100))
            return api_error_set(e, ST_INVALID, "invalid_value", "logit_bias",
                                 "logit_bias: the bias of \"%.40s\" must be a number from -100 to 100", key);
        list[n++] = (LogitBias){.token = (int32_t)id, .bias = (float)json_number_value(value)};
    }
    s->bias = list;
    s->n_bias = n;
    return ST_OK;
}

static Status read_stops(const json_t *body, Arena *a, Params *p, ApiError *e)
{
    const json_t *v = params_get(body, "stop"), *item;
    size_t i;

    if (!v)
        return ST_OK;
    if (json_is_string(v)) {
        p->stop[p->n_stop++] = json_string_value(v);
        goto check;
    }
    if (!json_is_array(v))
        return api_error_set(e, ST_INVALID, "invalid_type", "stop", "stop: must be text or a list of texts");
    if (json_array_size(v) > PARAMS_MAX_STOPS)
        return api_error_set(e, ST_INVALID, "invalid_value", "stop", "stop: at most %d texts", PARAMS_MAX_STOPS);
    json_array_foreach(v, i, item)
    {
        if (!json_is_string(item))
            return api_error_set(e, ST_INVALID, "invalid_type", "stop", "stop[%zu]: must be text", i);
        p->stop[p->n_stop++] = json_string_value(item);
    }
check:
    for (i = 0; i < p->n_stop; i++) {
        if (!*p->stop[i])
            return api_error_set(e, ST_INVALID, "invalid_value", "stop",
                                 "stop[%zu]: is empty, which would stop at once; leave it out", i);
        p->stop[i] = arena_strdup(a, p->stop[i]); /* the body goes before the answer begins */
        if (!p->stop[i])
            return api_error_set(e, ST_NOMEM, NULL, NULL, "out of memory for a request");
    }
    return ST_OK;
}

static Status read_stop_ids(const App *app, const json_t *body, Params *p, ApiError *e)
{
    const json_t *v = params_get(body, "stop_token_ids"), *item;
    size_t i;

    if (!v)
        return ST_OK;
    if (!json_is_array(v) || json_array_size(v) > PARAMS_MAX_STOP_IDS)
        return api_error_set(e, ST_INVALID, "invalid_type", "stop_token_ids",
                             "stop_token_ids: must be a list of at most %d token ids", PARAMS_MAX_STOP_IDS);
    json_array_foreach(v, i, item)
    {
        if (!json_is_integer(item) || json_integer_value(item) < 0 || json_integer_value(item) >= app->vocab)
            return api_error_set(e, ST_INVALID, "invalid_value", "stop_token_ids",
                                 "stop_token_ids[%zu]: must be a token id, 0 to %u", i, app->vocab - 1);
        p->stop_ids[p->n_stop_ids++] = (int32_t)json_integer_value(item);
    }
    return ST_OK;
}

/* Fields that ask for another answer than the one that would come. */
static Status refuse_missing_features(const json_t *body, ApiError *e)
{
    static const char *const ones[] = {"n", "best_of"};
    const json_t *v, *type;

    for (int i = 0; i < 2; i++) {
        v = params_get(body, ones[i]);
        if (v && !json_is_integer(v))
            return api_error_set(e, ST_INVALID, "invalid_type", ones[i], "%s: must be an integer", ones[i]);
        if (v && json_integer_value(v) != 1)
            return api_error_set(e, ST_INVALID, "invalid_value", ones[i],
                                 "%s: only 1 is supported; send the request once for each answer", ones[i]);
    }
    v = params_get(body, "response_format");
    type = json_object_get(v, "type");
    if (v && !(json_is_string(type) && strcmp(json_string_value(type), "text") == 0))
        return api_error_set(e, ST_INVALID, "unsupported", "response_format",
                             "response_format: only {\"type\":\"text\"} is supported; ask for the form in the prompt");
    v = params_get(body, "tools");
    if (v && !(json_is_array(v) && json_array_size(v) == 0))
        return api_error_set(e, ST_INVALID, "unsupported", "tools",
                             "tools: tool calls are not supported; leave the field out");
    return ST_OK;
}

static Status read_stream(const json_t *body, Params *p, ApiError *e)
{
    const json_t *options = params_get(body, "stream_options");
    Status st = params_bool(body, "stream", &p->stream, e);

    if (st != ST_OK || !options)
        return st;
    if (!json_is_object(options))
        return api_error_set(e, ST_INVALID, "invalid_type", "stream_options", "stream_options: must be an object");
    return params_bool(options, "include_usage", &p->include_usage, e);
}

Status params_read(App *app, const json_t *body, Arena *a, Params *p, ApiError *e)
{
    Status st;
    int64_t max_tokens = 0;
    const json_t *model = params_get(body, "model");

    *p = (Params){.stream = false};
    if (model && !json_is_string(model)) /* any name is taken: there is one model */
        TRY(api_error_set(e, ST_INVALID, "invalid_type", "model", "model: must be text"));
    TRY(refuse_missing_features(body, e));
    TRY(read_stream(body, p, e));
    TRY(params_int(body, "max_tokens", 1, INT32_MAX, &max_tokens, e));
    TRY(params_int(body, "max_completion_tokens", 1, INT32_MAX, &max_tokens, e)); /* the newer name wins */
    p->max_tokens = (uint32_t)max_tokens;
    TRY(read_sampling(app, body, &p->sampling, e));
    TRY(read_bias(app, body, a, &p->sampling, e));
    TRY(read_stops(body, a, p, e));
    TRY(read_stop_ids(app, body, p, e));
    TRY(params_bool(body, "ignore_eos", &p->ignore_eos, e));
done:
    return st;
}

/* The key of the number that ends at byte `end`: text is JSON up to there. "" when it is no member of an object. */
static void key_of_number(const char *text, size_t end, char *out, size_t cap)
{
    size_t i = end, key_end;

    out[0] = '\0';
    while (i > 0 && (strchr("+-.eE", text[i - 1]) || (text[i - 1] >= '0' && text[i - 1] <= '9')))
        i--;
    while (i > 0 && strchr(" \t\r\n", text[i - 1]))
        i--;
    if (i == 0 || text[--i] != ':')
        return;
    while (i > 0 && strchr(" \t\r\n", text[i - 1]))
        i--;
    if (i == 0 || text[--i] != '"')
        return;
    key_end = i;
    while (i > 0 && text[i - 1] != '"')
        i--;
    if (i > 0)
        snprintf(out, cap, "%.*s", (int)(key_end - i < cap ? key_end - i : cap - 1), text + i);
}

Status params_body(const char *text, size_t len, json_t **out, ApiError *e)
{
    Status st = json_parse(text, len, "request body", out, &e->err);
    char key[sizeof e->param] = "";

    if (st == ST_FORMAT) {
        /* A number that no double holds is JSON all the same: the sentence names its field. */
        json_error_t why;
        json_t *again = json_loadb(text, len, 0, &why);
        json_decref(again);
        if (!again && json_error_code(&why) == json_error_numeric_overflow && why.position > 0 &&
            (size_t)why.position <= len) {
            key_of_number(text, (size_t)why.position, key, sizeof key);
            if (key[0])
                return api_error_set(e, ST_INVALID, "invalid_value", key, "%s: the number is out of range", key);
        }
    }
    if (st != ST_OK)
        return api_error_of(e, st, "invalid_json", NULL);
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return api_error_set(e, ST_INVALID, "invalid_json", NULL, "request body: must be a JSON object");
    }
    return ST_OK;
}

void params_body_release(json_t **body, size_t len)
{
    if (!*body)
        return;
    json_decref(*body);
    *body = NULL;
    if (len >= LARGE_BODY)
        malloc_trim(0); /* the allocator would keep it for this thread, and there are many */
}
