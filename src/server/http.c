/* http.c - libmicrohttpd behind http.h. The only file of the project that knows sockets.
 *
 *   MHD's thread     all sockets: parses requests, sends what answers have written
 *   handler threads  one for each request in progress (bounded); they wait for tokens and write into an Exchange
 *   watcher          closes late heads and bodies, and notices clients that leave while MHD has nothing to do with them
 *
 * An Exchange is one request and its answer. Its handler appends to `out` and MHD's reader callback takes from it. When
 * there is nothing to take, MHD's side suspends the connection; the next write resumes it. So neither a client that
 * sends slowly nor one that never reads holds a thread: the former is still inside MHD, the latter's handler returns as
 * soon as its answer fits into `out`.
 *
 * MHD polls. Its epoll mode is edge-triggered and, in 0.9.75, loses the edge of a client that hangs up around a resume:
 * such connections stayed until their timeout.
 *
 * MHD looks at a suspended connection's socket no more, hence the watcher: it has the sockets of all running exchanges
 * in an epoll set of its own. MHD's own timeout counts from the last byte, so that one byte a second would hold a
 * connection for ever; the deadlines for heads and bodies are the watcher's, too.
 *
 * Locks: Http.lock guards the two lists and the counters, Exchange.lock the answer. Neither is taken under the other,
 * except that http_stop takes an exchange's lock inside Http.lock. MHD's own locks are taken inside both and never held
 * around a callback. */
#include "server/http.h"
#include "core/clock.h"
#include "core/str.h"
#include "core/thread.h"
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* How often the watcher looks at deadlines while there are connections; so much later than said they may end. */
enum { WATCH_TICK_MS = 250 };
/* Bytes that MHD takes from an answer at a time, so also the largest chunk. */
enum { READ_BLOCK = 16 << 10 };

/* One TCP connection. */
typedef struct Conn {
    struct Conn *prev, *next;
    int fd;
    uint64_t deadline_ns; /* when the watcher closes it; 0: never */
} Conn;

/* One request and its answer. Two owners: MHD's side and the handler. */
typedef struct Exchange {
    Channel base;
    Http *http;
    struct Exchange *prev, *next;
    uint64_t id; /* what the watcher knows it by: an id may outlive its exchange, a pointer may not */
    int fd;
    bool dispatched, quick; /* MHD's thread only, as is all of the request until the handler has it */

    HttpRequest req;
    char method[16];
    char *path;
    Str body;
    size_t body_len; /* as sent; what is over the bound is not kept */

    Mutex lock;
    Cond drained;
    unsigned refs;
    struct MHD_Connection *mhd; /* NULL: MHD is done with it */
    bool suspended, started, ended, gone;
    int status;
    long long len;
    char content_type[64];
    struct {
        char name[32], value[64];
    } header[CHANNEL_MAX_HEADERS];
    size_t n_headers;
    Str out;
    size_t taken; /* bytes of out that MHD has */
    void (*hook)(void *ctx);
    void *hook_ctx;
} Exchange;

struct Http {
    struct MHD_Daemon *daemon;
    HttpOptions opt;
    HttpHandler handler;
    const Log *log;
    Clock *clock;
    uint16_t port;
    int epoll_fd, event_fd;
    Thread watcher;
    bool watching;

    Mutex lock;
    Cond changed; /* an exchange or a handler less */
    bool closing;
    uint64_t last_id;
    unsigned n_conns, n_exchanges, n_handlers;
    Conn *conns;
    Exchange *exchanges;
};

void http_defaults(HttpOptions *o)
{
    *o = (HttpOptions){
        .host = "127.0.0.1",
        .port = 8888,
        .max_connections = 512, /* with files and pipes below the usual limit of 1024 descriptors */
        .max_handlers = 128,
        .max_body = 8 << 20,
        .max_pending = 1 << 20,
        .head_ms = 10000,
        .body_ms = 60000,
        .idle_ms = 60000,
        .stall_s = 60,
    };
}

/* ---- exchanges ---------------------------------------------------------------------------------------------------- */

static void exchange_unref(Exchange *x)
{
    unsigned left;

    mutex_lock(&x->lock);
    left = --x->refs;
    mutex_unlock(&x->lock);
    if (left > 0)
        return;
    mutex_release(&x->lock);
    cond_release(&x->drained);
    free(x->path);
    str_release(&x->body);
    str_release(&x->out);
    free(x);
}

/* Lets MHD look at the exchange again. Under x->lock. */
static void exchange_wake(Exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    MHD_resume_connection(x->mhd);
}

/* The client is gone, or is treated so. Under x->lock. */
static void exchange_lose(Exchange *x)
{
    void (*hook)(void *) = x->hook;

    if (x->gone)
        return;
    x->gone = true;
    x->hook = NULL;
    if (hook)
        hook(x->hook_ctx);
    cond_signal(&x->drained);
    exchange_wake(x);
}

static void channel_start_(Channel *c, int status, const char *content_type, const HttpHeader *headers,
                           size_t n_headers, long long len)
{
    Exchange *x = (Exchange *)c;

    mutex_lock(&x->lock);
    if (!x->started) {
        x->started = true;
        x->status = status;
        x->len = len;
        snprintf(x->content_type, sizeof x->content_type, "%s", content_type);
        for (; x->n_headers < n_headers && x->n_headers < CHANNEL_MAX_HEADERS; x->n_headers++) {
            snprintf(x->header[x->n_headers].name, sizeof x->header[0].name, "%s", headers[x->n_headers].name);
            snprintf(x->header[x->n_headers].value, sizeof x->header[0].value, "%s", headers[x->n_headers].value);
        }
        /* A stream's head goes out at once; an answer of known length comes with its body. */
        if (len < 0)
            exchange_wake(x);
    }
    mutex_unlock(&x->lock);
}

static bool channel_write_(Channel *c, const char *bytes, size_t len)
{
    Exchange *x = (Exchange *)c;
    bool ok;

    mutex_lock(&x->lock);
    /* A quick handler runs on the thread that would take the bytes; its answers are small. */
    while (!x->gone && !x->quick && x->out.len - x->taken > x->http->opt.max_pending)
        cond_wait(&x->drained, &x->lock);
    if (!x->gone) {
        str_add(&x->out, bytes, len);
        if (!str_ok(&x->out))
            exchange_lose(x); /* out of memory: an answer with a hole is worse than none */
        exchange_wake(x);
    }
    ok = !x->gone;
    mutex_unlock(&x->lock);
    return ok;
}

static bool channel_gone_(Channel *c)
{
    Exchange *x = (Exchange *)c;
    bool gone;

    mutex_lock(&x->lock);
    gone = x->gone;
    mutex_unlock(&x->lock);
    return gone;
}

static void channel_on_gone_(Channel *c, void (*hook)(void *ctx), void *ctx)
{
    Exchange *x = (Exchange *)c;

    mutex_lock(&x->lock);
    if (hook && x->gone) {
        hook(ctx);
    } else {
        x->hook = hook;
        x->hook_ctx = ctx;
    }
    mutex_unlock(&x->lock);
}

static const ChannelOps exchange_ops = {channel_start_, channel_write_, channel_gone_, channel_on_gone_};

/* The handler has returned. */
static void exchange_end(Exchange *x)
{
    mutex_lock(&x->lock);
    x->ended = true;
    if (!x->started) { /* it found no words, for want of memory */
        x->started = true;
        x->status = 500;
        x->len = 0;
    }
    exchange_wake(x);
    mutex_unlock(&x->lock);
}

static void *exchange_run(void *arg)
{
    Exchange *x = arg;
    Http *h = x->http;

    h->handler.handle(h->handler.ctx, &x->req, &x->base);
    channel_on_gone_(&x->base, NULL, NULL);
    exchange_end(x);
    exchange_unref(x);
    mutex_lock(&h->lock);
    h->n_handlers--;
    cond_broadcast(&h->changed);
    mutex_unlock(&h->lock);
    return NULL;
}

/* ---- connections -------------------------------------------------------------------------------------------------- */

static void deadline_set(Http *h, Conn *c, unsigned ms)
{
    if (!c)
        return;
    mutex_lock(&h->lock);
    c->deadline_ns = ms ? clock_ns(h->clock) + (uint64_t)ms * 1000000u : 0;
    mutex_unlock(&h->lock);
}

static Conn *conn_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void watcher_wake(Http *h)
{
    uint64_t one = 1;
    ssize_t n = write(h->event_fd, &one, sizeof one);
    (void)n; /* a full counter is a wake-up, too */
}

static void on_connection(void *ctx, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    Http *h = ctx;
    Conn *c = *context;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        bool first;

        c = calloc(1, sizeof *c);
        *context = c;
        if (!c || !info)
            return; /* on_request refuses it */
        c->fd = info->connect_fd;
        mutex_lock(&h->lock);
        c->next = h->conns;
        if (c->next)
            c->next->prev = c;
        h->conns = c;
        first = h->n_conns++ == 0;
        mutex_unlock(&h->lock);
        deadline_set(h, c, h->opt.head_ms);
        if (first)
            watcher_wake(h); /* it sleeps without a timeout while there are none */
    } else if (c) {
        mutex_lock(&h->lock);
        *(c->prev ? &c->prev->next : &h->conns) = c->next;
        if (c->next)
            c->next->prev = c->prev;
        h->n_conns--;
        mutex_unlock(&h->lock);
        free(c);
        *context = NULL;
    }
}

static Exchange *exchange_new(Http *h, struct MHD_Connection *mhd, const char *url, const char *method)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    Exchange *x = calloc(1, sizeof *x);

    if (!x || !info)
        goto fail;
    x->path = strdup(url);
    if (!x->path)
        goto fail;
    x->base.ops = &exchange_ops;
    x->http = h;
    x->mhd = mhd;
    x->fd = info->connect_fd;
    x->refs = 1;
    /* MHD drops the body of an answer to HEAD itself. */
    snprintf(x->method, sizeof x->method, "%s", strcmp(method, "HEAD") == 0 ? "GET" : method);
    x->req = (HttpRequest){.method = x->method, .path = x->path};
    mutex_init(&x->lock);
    cond_init(&x->drained);

    mutex_lock(&h->lock);
    x->id = ++h->last_id;
    x->next = h->exchanges;
    if (x->next)
        x->next->prev = x;
    h->exchanges = x;
    h->n_exchanges++;
    mutex_unlock(&h->lock);
    return x;
fail:
    free(x);
    return NULL;
}

/* MHD is done with a request: the answer is sent, or the connection broke. */
static void on_completed(void *ctx, struct MHD_Connection *mhd, void **con_cls, enum MHD_RequestTerminationCode code)
{
    Http *h = ctx;
    Exchange *x = *con_cls;

    *con_cls = NULL;
    if (!x)
        return;
    epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, x->fd, NULL); /* fails harmlessly for one that was never watched */
    deadline_set(h, conn_of(mhd), h->opt.idle_ms);
    mutex_lock(&h->lock);
    *(x->prev ? &x->prev->next : &h->exchanges) = x->next;
    if (x->next)
        x->next->prev = x->prev;
    h->n_exchanges--;
    cond_broadcast(&h->changed);
    mutex_unlock(&h->lock);

    mutex_lock(&x->lock);
    x->suspended = false;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        exchange_lose(x);
    x->mhd = NULL;
    mutex_unlock(&x->lock);
    exchange_unref(x);
}

/* MHD asks for the next bytes of an answer. */
static ssize_t on_read(void *ctx, uint64_t pos, char *buf, size_t max)
{
    Exchange *x = ctx;
    size_t n;
    ssize_t got;

    (void)pos;
    mutex_lock(&x->lock);
    n = x->out.len - x->taken;
    if (n > max)
        n = max;
    got = (ssize_t)n;
    if (x->gone) {
        got = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n > 0) {
        memcpy(buf, x->out.p + x->taken, n);
        x->taken += n;
        if (x->taken == x->out.len) {
            str_clear(&x->out);
            x->taken = 0;
        }
        cond_signal(&x->drained);
    } else if (x->ended) {
        got = x->len < 0 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
    } else {
        x->suspended = true;
        MHD_suspend_connection(x->mhd);
    }
    mutex_unlock(&x->lock);
    return got;
}

/* Hands the head of the answer to MHD. Not under x->lock, which on_read takes under a lock of MHD's response; what is
 * read here stays as it is once `started` is set. */
static enum MHD_Result exchange_reply(Exchange *x)
{
    uint64_t size = x->len < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)x->len;
    struct MHD_Response *r = MHD_create_response_from_callback(size, READ_BLOCK, on_read, x, NULL);
    enum MHD_Result rc = MHD_YES;

    if (!r)
        return MHD_NO;
    if (x->content_type[0])
        rc &= MHD_add_response_header(r, "Content-Type", x->content_type);
    for (size_t i = 0; i < x->n_headers; i++)
        rc &= MHD_add_response_header(r, x->header[i].name, x->header[i].value);
    if (rc == MHD_YES)
        rc = MHD_queue_response(x->mhd, (unsigned)x->status, r);
    MHD_destroy_response(r);
    return rc;
}

typedef enum { DISPATCH_CUT, DISPATCH_NOW, DISPATCH_LATER } Dispatch;

/* Starts the answer of a complete request: refuses it, answers it here (NOW: the answer is there), or gives it a thread
 * (LATER: MHD is suspended and asks again). CUT: close the connection. */
static Dispatch exchange_dispatch(Exchange *x)
{
    Http *h = x->http;
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = x->id};
    Thread t;
    int refusal = 0;
    bool closing;

    x->quick = true;
    x->req.body = str_c(&x->body);
    x->req.len = x->body.len;
    if (x->body_len > h->opt.max_body)
        refusal = 413;
    else if (!h->handler.quick(h->handler.ctx, x->req.method, x->req.path))
        x->quick = false;

    mutex_lock(&h->lock);
    closing = h->closing;
    if (!x->quick && h->n_handlers >= h->opt.max_handlers)
        refusal = 429;
    else if (!x->quick && !closing)
        h->n_handlers++;
    mutex_unlock(&h->lock);
    if (closing)
        return DISPATCH_CUT;

    if (!refusal && !x->quick) {
        /* MHD looks away before the thread can write, else its first wake-up would be lost. */
        mutex_lock(&x->lock);
        x->refs++;
        x->suspended = true;
        MHD_suspend_connection(x->mhd);
        mutex_unlock(&x->lock);
        if (thread_start(&t, "http-answer", exchange_run, x, NULL) == ST_OK) {
            pthread_detach(t); /* http_stop waits for n_handlers, not for threads */
            if (epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, x->fd, &ev) != 0)
                log_warn(h->log, "http: cannot watch a connection (%s); its answer runs to the end", strerror(errno));
            return DISPATCH_LATER;
        }
        mutex_lock(&h->lock);
        h->n_handlers--;
        mutex_unlock(&h->lock);
        mutex_lock(&x->lock);
        x->refs--;
        x->quick = true;
        mutex_unlock(&x->lock);
        h->handler.refuse(h->handler.ctx, 503, &x->base);
        exchange_end(x);
        return DISPATCH_LATER;
    }
    x->quick = true;
    if (refusal)
        h->handler.refuse(h->handler.ctx, refusal, &x->base);
    else
        h->handler.handle(h->handler.ctx, &x->req, &x->base);
    exchange_end(x);
    return DISPATCH_NOW;
}

/* Percent signs of a path, in place. One that hides a NUL stays as it is and names no route: decoded, it would cut the
 * path to a shorter one. */
static size_t unescape(void *ctx, struct MHD_Connection *mhd, char *text)
{
    (void)ctx;
    (void)mhd;
    return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

/* MHD's access handler: first with the head, then with each piece of the body, then with none left, and again after
 * each resume until an answer is queued. */
static enum MHD_Result on_request(void *ctx, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n_data, void **con_cls)
{
    Http *h = ctx;
    Exchange *x = *con_cls;
    enum MHD_Result rc = MHD_YES;
    bool ready = false;

    (void)version;
    if (!x) {
        x = exchange_new(h, mhd, url, method);
        if (!x || !conn_of(mhd)) {
            log_warn(h->log, "http: out of memory for a request; the connection is closed");
            return MHD_NO;
        }
        *con_cls = x;
        deadline_set(h, conn_of(mhd), h->opt.body_ms);
        return MHD_YES;
    }
    if (*n_data > 0) {
        /* What is too long is read to its end all the same: an answer in the middle would reach few clients. */
        x->body_len += *n_data;
        if (x->body_len <= h->opt.max_body)
            str_add(&x->body, data, *n_data);
        else
            str_release(&x->body);
        *n_data = 0;
        return str_ok(&x->body) ? MHD_YES : MHD_NO;
    }
    if (!x->dispatched) {
        x->dispatched = true;
        deadline_set(h, conn_of(mhd), 0);
        switch (exchange_dispatch(x)) {
        case DISPATCH_CUT:
            return MHD_NO;
        case DISPATCH_LATER:
            return MHD_YES;
        case DISPATCH_NOW:
            break;
        }
    }
    mutex_lock(&x->lock);
    if (x->gone) {
        rc = MHD_NO;
    } else if (x->started && (x->len < 0 || x->ended || x->out.len > 0)) {
        ready = true;
    } else if (!x->suspended) {
        x->suspended = true;
        MHD_suspend_connection(mhd);
    }
    mutex_unlock(&x->lock);
    return ready ? exchange_reply(x) : rc;
}

/* ---- the watcher -------------------------------------------------------------------------------------------------- */

/* Finds the exchange and keeps it alive; NULL when it is over. */
static Exchange *exchange_find(Http *h, uint64_t id)
{
    Exchange *x;

    mutex_lock(&h->lock);
    for (x = h->exchanges; x && x->id != id; x = x->next)
        ;
    if (x) {
        mutex_lock(&x->lock);
        x->refs++;
        mutex_unlock(&x->lock);
    }
    mutex_unlock(&h->lock);
    return x;
}

static void *watch(void *arg)
{
    Http *h = arg;
    struct epoll_event ev[32];
    int timeout = -1;

    for (;;) {
        int n = epoll_wait(h->epoll_fd, ev, 32, timeout);
        uint64_t now = clock_ns(h->clock);
        bool closing;

        for (int i = 0; i < n; i++) {
            Exchange *x;
            uint64_t count;

            if (ev[i].data.u64 == 0) {
                ssize_t got = read(h->event_fd, &count, sizeof count);
                (void)got; /* it is only emptied */
                continue;
            }
            x = exchange_find(h, ev[i].data.u64);
            if (!x)
                continue;
            mutex_lock(&x->lock);
            exchange_lose(x);
            mutex_unlock(&x->lock);
            exchange_unref(x);
        }
        mutex_lock(&h->lock);
        closing = h->closing;
        for (Conn *c = h->conns; c; c = c->next)
            if (c->deadline_ns && c->deadline_ns <= now) {
                c->deadline_ns = 0;
                shutdown(c->fd, SHUT_RDWR); /* MHD reads the end and closes */
            }
        timeout = h->n_conns ? WATCH_TICK_MS : -1;
        mutex_unlock(&h->lock);
        if (closing)
            return NULL;
    }
}

/* ---- start and stop ----------------------------------------------------------------------------------------------- */

/* A listening socket on the address; *port is the real one. */
static Status listen_on(const HttpOptions *o, int *out, uint16_t *port, Err *err)
{
    Status st = ST_OK;
    const char *host = strcmp(o->host, "localhost") == 0 ? "127.0.0.1" : o->host;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    socklen_t len = 0;
    int fd = -1, one = 1;

    memset(&at, 0, sizeof at);
    if (inet_pton(AF_INET, host, &at.v4.sin_addr) == 1) {
        at.v4.sin_family = AF_INET;
        at.v4.sin_port = htons(o->port);
        len = sizeof at.v4;
    } else if (inet_pton(AF_INET6, host, &at.v6.sin6_addr) == 1) {
        at.v6.sin6_family = AF_INET6;
        at.v6.sin6_port = htons(o->port);
        len = sizeof at.v6;
    } else {
        return err_set(err, ST_INVALID,
                       "host \"%s\" is no IPv4 or IPv6 address; use 127.0.0.1 for this machine alone, "
                       "0.0.0.0 for all its addresses",
                       o->host);
    }
    fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        TRY(err_set(err, ST_IO, "cannot open a socket: %s", strerror(errno)));
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0)
        TRY(err_set(err, ST_IO, "cannot set up the socket: %s", strerror(errno)));
    if (bind(fd, &at.any, len) != 0 || listen(fd, 1024) != 0) {
        if (errno == EADDRINUSE)
            TRY(err_set(err, ST_IO, "%s port %u is in use; stop what listens there, or choose another port (0: any)",
                        o->host, o->port));
        TRY(err_set(err, ST_IO, "cannot listen on %s port %u: %s; choose an address and a port of this machine",
                    o->host, o->port, strerror(errno)));
    }
    if (getsockname(fd, &at.any, &len) != 0)
        TRY(err_set(err, ST_IO, "cannot read the socket's port: %s", strerror(errno)));
    *port = ntohs(at.any.sa_family == AF_INET ? at.v4.sin_port : at.v6.sin6_port);
    *out = fd;
    fd = -1;
done:
    if (fd >= 0)
        close(fd);
    return st;
}

Status http_probe(const HttpOptions *opt, Err *err)
{
    uint16_t port;
    int fd;
    Status st = listen_on(opt, &fd, &port, err);

    if (st == ST_OK)
        close(fd);
    return st;
}

static void on_mhd_log(void *ctx, const char *fmt, va_list ap)
{
    char line[256];

    vsnprintf(line, sizeof line, fmt, ap);
    line[strcspn(line, "\n")] = '\0';
    log_debug((const Log *)ctx, "http: %s", line);
}

Status http_start(Http **out, const HttpOptions *opt, const HttpHandler *handler, const Log *log, Err *err)
{
    Status st = ST_OK;
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 0};
    int fd = -1;
    Http *h = calloc(1, sizeof *h);

    *out = NULL;
    if (!h)
        return err_set(err, ST_NOMEM, "out of memory for the server");
    h->opt = *opt;
    h->handler = *handler;
    h->log = log;
    h->clock = clock_system();
    mutex_init(&h->lock);
    cond_init(&h->changed);
    h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    h->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->epoll_fd < 0 || h->event_fd < 0 || epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, h->event_fd, &ev) != 0)
        TRY(err_set(err, ST_IO, "cannot make the descriptors that watch connections: %s", strerror(errno)));
    TRY(listen_on(opt, &fd, &h->port, err));
    TRY(thread_start(&h->watcher, "http-watch", watch, h, err));
    h->watching = true;
    h->daemon = MHD_start_daemon(MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL,
                                 NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, (void *)(uintptr_t)log,
                                 MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, opt->max_connections,
                                 MHD_OPTION_CONNECTION_TIMEOUT, opt->stall_s, MHD_OPTION_NOTIFY_CONNECTION,
                                 on_connection, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                                 MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_END);
    if (!h->daemon)
        TRY(err_set(err, ST_IO, "cannot start the HTTP server on %s port %u: %s", opt->host, h->port, strerror(errno)));
    fd = -1; /* the daemon's */
    *out = h;
    h = NULL;
done:
    if (fd >= 0)
        close(fd);
    http_stop(h, 0);
    return st;
}

uint16_t http_port(const Http *h)
{
    return h->port;
}

void http_stats(Http *h, HttpStats *out)
{
    mutex_lock(&h->lock);
    *out = (HttpStats){.connections = h->n_conns, .handlers = h->n_handlers};
    mutex_unlock(&h->lock);
}

void http_stop(Http *h, unsigned flush_ms)
{
    uint64_t now, end;
    int fd = -1;

    if (!h)
        return;
    if (h->daemon)
        fd = MHD_quiesce_daemon(h->daemon);
    if (fd >= 0)
        close(fd);

    mutex_lock(&h->lock);
    end = clock_ns(h->clock) + (uint64_t)flush_ms * 1000000u;
    while (h->n_exchanges > 0 && (now = clock_ns(h->clock)) < end)
        cond_wait_ns(&h->changed, &h->lock, end - now);
    h->closing = true; /* from here on nothing is dispatched */
    for (Exchange *x = h->exchanges; x; x = x->next) {
        mutex_lock(&x->lock);
        exchange_lose(x); /* nor suspended: MHD cannot stop while a connection is */
        mutex_unlock(&x->lock);
    }
    mutex_unlock(&h->lock);

    if (h->watching) {
        watcher_wake(h);
        thread_join(h->watcher);
    }
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    mutex_lock(&h->lock);
    while (h->n_handlers > 0)
        cond_wait(&h->changed, &h->lock);
    mutex_unlock(&h->lock);
    if (h->epoll_fd >= 0)
        close(h->epoll_fd);
    if (h->event_fd >= 0)
        close(h->event_fd);
    cond_release(&h->changed);
    mutex_release(&h->lock);
    free(h);
}
