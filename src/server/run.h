/* run.h - a server's life: listen, say so, answer until a signal, finish what runs, end.
 * Owns: nothing beyond the call. Thread: main. */
#ifndef METRALE_SERVER_RUN_H
#define METRALE_SERVER_RUN_H
#include "server/app.h"
#include "server/http.h"
#include "server/stop_signal.h"

/* Starts the engine's thread and serves the OpenAI routes. When it listens, ready(ctx, port) is called once. The first
 * signal of stop: no new requests (503, /health not ready); running answers get grace_s seconds, then they are cut off
 * with an error; ST_OK. Until then ST_INVALID or ST_IO when the address cannot be had. */
Status server_run(App *app, const HttpOptions *opt, unsigned grace_s, StopSignal *stop,
                  void (*ready)(void *ctx, uint16_t port), void *ctx, Err *err);
#endif
