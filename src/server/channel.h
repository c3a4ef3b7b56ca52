/* channel.h - what a request handler sees of its client: one answer to write, and word when the client has left.
 *
 * A handler gets an HttpRequest and a Channel, writes one answer and returns. http.c implements the channel over
 * sockets; tests implement it in memory. A handler knows neither.
 * Owns: nothing; request and channel outlive the handler's call, not more.
 * Thread: the handler's; only the gone hook runs on another one. */
#ifndef METRALE_SERVER_CHANNEL_H
#define METRALE_SERVER_CHANNEL_H
#include <stdbool.h>
#include <stddef.h>

typedef struct HttpRequest {
    const char *method; /* "GET", "POST", ...; HEAD arrives as GET, its body is dropped behind the channel */
    const char *path;   /* decoded, without the query */
    const char *body;   /* NUL-terminated behind len; "" when there is none */
    size_t len;
} HttpRequest;

typedef struct HttpHeader {
    const char *name, *value;
} HttpHeader;

enum { CHANNEL_MAX_HEADERS = 4 };

typedef struct Channel Channel;
typedef struct ChannelOps {
    /* Status line and headers (copied), once, before any write. len: bytes of the body, or -1: it is a stream. */
    void (*start)(Channel *c, int status, const char *content_type, const HttpHeader *headers, size_t n_headers,
                  long long len);
    /* Appends to the body; copied. May wait for a slow reader, never for longer than that reader stays connected.
     * False: the client is gone (or memory is), further writes are pointless. */
    bool (*write)(Channel *c, const char *bytes, size_t len);
    bool (*gone)(Channel *c);
    /* hook(ctx) is called once, from another thread, when the client leaves before the handler has returned; at once
     * when it has left already. It must not block. NULL takes the hook back: afterwards it is not running and never will. */
    void (*on_gone)(Channel *c, void (*hook)(void *ctx), void *ctx);
} ChannelOps;
struct Channel {
    const ChannelOps *ops;
};

static inline void channel_start(Channel *c, int status, const char *content_type, const HttpHeader *headers,
                                 size_t n_headers, long long len)
{
    c->ops->start(c, status, content_type, headers, n_headers, len);
}
static inline bool channel_write(Channel *c, const char *bytes, size_t len)
{
    return c->ops->write(c, bytes, len);
}
static inline bool channel_gone(Channel *c)
{
    return c->ops->gone(c);
}
static inline void channel_on_gone(Channel *c, void (*hook)(void *ctx), void *ctx)
{
    c->ops->on_gone(c, hook, ctx);
}
#endif
