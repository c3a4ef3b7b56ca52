/* api_error.c - one table from Status to HTTP status, type and code; the rest is writing. */
#include "server/api_error.h"
#include "server/json_write.h"
#include <stdarg.h>
#include <stdio.h>

static int http_of(Status st)
{
    switch (st) {
    case ST_INVALID:
    case ST_FORMAT:
    case ST_UNSUPPORTED:
        return 400;
    case ST_NOTFOUND:
        return 404;
    case ST_BUSY:
        return 429;
    case ST_CANCELLED:
        return 503;
    default:
        return 500;
    }
}

static const char *type_of(int http)
{
    switch (http) {
    case 429:
        return "rate_limit_error";
    case 503:
        return "service_unavailable";
    case 500:
        return "server_error";
    default:
        return "invalid_request_error";
    }
}

Status api_error_of(ApiError *e, Status st, const char *code, const char *param)
{
    e->http = http_of(st);
    e->code = code ? code : st == ST_BUSY ? "queue_full" : st == ST_CANCELLED ? "stopping" : NULL;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    return st;
}

Status api_error_set(ApiError *e, Status st, const char *code, const char *param, const char *fmt, ...)
{
    char text[sizeof e->err.msg];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(&e->err, st, "%s", text);
    return api_error_of(e, st, code, param);
}

void api_error_write(const ApiError *e, Str *out)
{
    str_adds(out, "{\"error\":{\"message\":");
    json_write_text(out, e->err.msg);
    str_adds(out, ",\"type\":");
    json_write_text(out, type_of(e->http));
    str_adds(out, ",\"param\":");
    json_write_text(out, e->param[0] ? e->param : NULL);
    str_adds(out, ",\"code\":");
    json_write_text(out, e->code);
    str_adds(out, "}}");
}

void api_error_send(const ApiError *e, Channel *ch)
{
    static const HttpHeader retry = {"Retry-After", "1"}, get = {"Allow", "GET, HEAD"}, post = {"Allow", "POST"};
    const HttpHeader *h = NULL;
    Str out = STR_INIT;

    if (e->http == 429 || e->http == 503)
        h = &retry;
    else if (e->http == 405)
        h = e->code && e->code[0] == 'g' ? &get : &post;
    api_error_write(e, &out);
    str_addc(&out, '\n');
    if (str_ok(&out)) {
        channel_start(ch, e->http, "application/json", h, h != NULL, (long long)out.len);
        channel_write(ch, out.p, out.len);
    }
    str_release(&out);
}
