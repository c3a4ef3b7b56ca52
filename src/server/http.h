/* http.h - HTTP/1.1 on a socket: from bytes to HttpRequest, and a Channel for the answer.
 *
 * Bounds: connections, bytes of a body, seconds for a head and for a body, seconds without progress of a reader, bytes
 * kept for a slow reader, handlers at a time. A client that closes its sending side counts as gone.
 * Owns: sockets, buffers, threads. Does not own: what handlers do.
 * Thread: http_start and http_stop from the owner; handlers run on threads of this module, several at a time. */
#ifndef METRALE_SERVER_HTTP_H
#define METRALE_SERVER_HTTP_H
#include "core/log.h"
#include "core/status.h"
#include "server/channel.h"
#include <stdint.h>

typedef struct Http Http;

/* What is behind the socket. All slots are required. */
typedef struct HttpHandler {
    /* Answers one request. Each call has a thread of its own and may wait. */
    void (*handle)(void *ctx, const HttpRequest *req, Channel *ch);
    /* Answers what never becomes a request: body over max_body (413), no handler free (429). Does not wait. */
    void (*refuse)(void *ctx, int status, Channel *ch);
    /* True: handle() answers this request at once without waiting, so that it needs no thread. */
    bool (*quick)(void *ctx, const char *method, const char *path);
    void *ctx;
} HttpHandler;

typedef struct HttpOptions {
    const char *host; /* IPv4 or IPv6 address, or "localhost" */
    uint16_t port;    /* 0: any free one */
    unsigned max_connections, max_handlers;
    size_t max_body, max_pending; /* bytes of a request body; bytes of an answer kept for a slow reader */
    unsigned head_ms, body_ms;    /* time for a head from the connection's begin, for a body from its head's end */
    unsigned idle_ms;             /* wait for a next request on a connection */
    unsigned stall_s;             /* a reader that takes nothing for so long is dropped */
} HttpOptions;
void http_defaults(HttpOptions *o); /* 127.0.0.1:8888, 512 connections, 8 MiB bodies, 10 s heads; see http.c */

/* Whether http_start could listen there now: to say so before a model is loaded. Errors as http_start's. */
Status http_probe(const HttpOptions *opt, Err *err);
/* ST_INVALID: the host is no address; ST_IO: it cannot be bound, in one sentence with the remedy. */
Status http_start(Http **out, const HttpOptions *opt, const HttpHandler *handler, const Log *log, Err *err);
uint16_t http_port(const Http *h); /* the real one */
/* Takes no further connections, gives answers that are being written flush_ms to get out, then cuts what is left and
 * waits until all handlers have returned. Frees h; NULL is fine. */
void http_stop(Http *h, unsigned flush_ms);

typedef struct HttpStats {
    unsigned connections, handlers;
} HttpStats;
void http_stats(Http *h, HttpStats *out);
#endif
