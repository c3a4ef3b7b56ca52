/* run.c - see run.h. The order at the end matters: the engine stops first, while sockets still carry what it says; then
 * the answers that are written get a moment to reach their readers; what is left is cut. */
#include "server/run.h"
#include "server/openai.h"

enum { FLUSH_MS = 2000 };

Status server_run(App *app, const HttpOptions *opt, unsigned grace_s, StopSignal *stop,
                  void (*ready)(void *ctx, uint16_t port), void *ctx, Err *err)
{
    Status st;
    Http *http = NULL;
    HttpHandler handler = openai_handler(app);

    /* The address first: a port that is taken should not cost a thread, nor the reader a wait. */
    TRY(http_start(&http, opt, &handler, app->log, err));
    TRY(engine_start(app->engine, err));
    stop_signal_arm(stop);
    ready(ctx, http_port(http));
    stop_signal_wait(stop);
    log_info(app->log, "stopping: running answers get %u s; a second signal ends at once", grace_s);
    app->draining = true;
done:
    if (http) /* also when its thread did not start: requests may have come in already */
        engine_stop(app->engine, st == ST_OK ? (uint64_t)grace_s * 1000000000u : 0);
    http_stop(http, st == ST_OK ? FLUSH_MS : 0);
    return st;
}
