/* openai.c - the table of routes, and the routes that only tell. */
#include "server/openai.h"
#include "server/api_error.h"
#include "server/json_write.h"
#include <string.h>

static void send_json(Channel *ch, int status, Str *out)
{
    str_addc(out, '\n');
    if (str_ok(out)) {
        channel_start(ch, status, "application/json", NULL, 0, (long long)out->len);
        channel_write(ch, out->p, out->len);
    }
    str_release(out);
}

static void health(App *app, const HttpRequest *req, Channel *ch)
{
    bool draining = app->draining;
    Str out = STR_INIT;

    (void)req;
    str_addf(&out, "{\"status\":\"%s\"}", draining ? "draining" : "ready");
    send_json(ch, draining ? 503 : 200, &out);
}

static void write_model(const App *app, Str *out)
{
    str_adds(out, "{\"id\":");
    json_write_text(out, app->model_id);
    str_addf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"metrale\",\"max_model_len\":%u}",
             (long long)app->started_s, app->max_len);
}

static void models(App *app, const HttpRequest *req, Channel *ch)
{
    Str out = STR_INIT;

    (void)req;
    str_adds(&out, "{\"object\":\"list\",\"data\":[");
    write_model(app, &out);
    str_adds(&out, "]}");
    send_json(ch, 200, &out);
}

static void model(App *app, const HttpRequest *req, Channel *ch)
{
    Str out = STR_INIT;
    ApiError e;

    if (strcmp(req->path + strlen("/v1/models/"), app->model_id) != 0) {
        api_error_set(&e, ST_NOTFOUND, "model_not_found", "model", "there is no such model; GET /v1/models lists them");
        api_error_send(&e, ch);
        return;
    }
    write_model(app, &out);
    send_json(ch, 200, &out);
}

typedef struct Route {
    const char *method, *path; /* a path that ends in / stands for all that begin with it and go on */
    void (*handle)(App *app, const HttpRequest *req, Channel *ch);
} Route;

static const Route routes[] = {
    {"POST", "/v1/chat/completions", openai_chat},
    {"POST", "/v1/completions", openai_completions},
    {"GET", "/v1/models", models},
    {"GET", "/v1/models/", model},
    {"GET", "/health", health},
};

static const Route *route_find(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const char *p = routes[i].path;
        if (strcmp(p, path) == 0 ? !str_ends(p, "/") : str_ends(p, "/") && str_starts(path, p))
            return &routes[i];
    }
    return NULL;
}

void openai_handle(App *app, const HttpRequest *req, Channel *ch)
{
    const Route *r = route_find(req->path);
    ApiError e;

    if (!r) {
        api_error_set(&e, ST_NOTFOUND, "not_found", NULL,
                      "no such route; there are POST /v1/chat/completions, POST /v1/completions, GET /v1/models, GET "
                      "/health");
    } else if (strcmp(r->method, req->method) != 0) {
        api_error_set(&e, ST_INVALID, r->method[0] == 'G' ? "get_only" : "post_only", NULL, "%s takes %s only", r->path,
                      r->method);
        e.http = 405;
    } else if (r->method[0] == 'P' && app->draining) {
        api_error_set(&e, ST_CANCELLED, "stopping", NULL, "the server is stopping; try another one");
    } else {
        r->handle(app, req, ch);
        return;
    }
    api_error_send(&e, ch);
}

/* ---- slots for http_start ----------------------------------------------------------------------------------------- */

static void slot_handle(void *ctx, const HttpRequest *req, Channel *ch)
{
    openai_handle(ctx, req, ch);
}

static void slot_refuse(void *ctx, int status, Channel *ch)
{
    ApiError e;

    (void)ctx;
    if (status == 413) {
        api_error_set(&e, ST_INVALID, "request_too_large", NULL, "the request body is too large; the bound is 8 MiB");
        e.http = 413;
    } else if (status == 429) {
        api_error_set(&e, ST_BUSY, "queue_full", NULL, "too many requests are waiting; try again later");
    } else {
        api_error_set(&e, ST_NOMEM, NULL, NULL, "the server has no thread for this request; try again later");
        e.http = status;
    }
    api_error_send(&e, ch);
}

/* What POST routes do may wait; all else is said at once. */
static bool slot_quick(void *ctx, const char *method, const char *path)
{
    const Route *r = route_find(path);

    (void)ctx;
    return !r || strcmp(r->method, "POST") != 0 || strcmp(method, "POST") != 0;
}

HttpHandler openai_handler(App *app)
{
    return (HttpHandler){.handle = slot_handle, .refuse = slot_refuse, .quick = slot_quick, .ctx = app};
}
