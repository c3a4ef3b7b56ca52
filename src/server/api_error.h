/* api_error.h - a refusal in OpenAI's shape: {"error":{"message","type","param","code"}}.
 * Owns: its sentence. Thread: none of its own. */
#ifndef METRALE_SERVER_API_ERROR_H
#define METRALE_SERVER_API_ERROR_H
#include "core/status.h"
#include "core/str.h"
#include "server/channel.h"

typedef struct ApiError {
    int http;         /* HTTP status */
    const char *code; /* stable, for programs; static text or NULL */
    char param[64];   /* the field of the request; "" when it is none */
    Err err;          /* the sentence */
} ApiError;

/* Fills e from the format, with the HTTP status of st, and returns st. code and param may be NULL. */
Status api_error_set(ApiError *e, Status st, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Completes e, whose err another room has filled, in the same way. */
Status api_error_of(ApiError *e, Status st, const char *code, const char *param);

/* The JSON object alone. */
void api_error_write(const ApiError *e, Str *out);
/* As the whole answer. */
void api_error_send(const ApiError *e, Channel *ch);
#endif
