/* mock_channel.h - a Channel in memory: keeps the answer, and leaves when a test says so. */
#ifndef METRALE_TESTS_MOCK_CHANNEL_H
#define METRALE_TESTS_MOCK_CHANNEL_H
#include "core/str.h"
#include "core/thread.h"
#include "server/channel.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct MockChannel {
    Channel base;
    Mutex lock;
    int status; /* 0: not started */
    char type[64], headers[256];
    long long len;
    Str body;
    int writes, leave_after; /* the client leaves at the write after so many; 0: never */
    bool gone, hooked;       /* hooked: a hook is set */
    void (*hook)(void *ctx);
    void *ctx;
} MockChannel;

static inline void mock_start(Channel *c, int status, const char *type, const HttpHeader *h, size_t n, long long len)
{
    MockChannel *m = (MockChannel *)c;

    mutex_lock(&m->lock);
    assert_int_equal(m->status, 0);
    m->status = status;
    m->len = len;
    snprintf(m->type, sizeof m->type, "%s", type);
    for (size_t i = 0; i < n; i++)
        snprintf(m->headers + strlen(m->headers), sizeof m->headers - strlen(m->headers), "%s: %s\n", h[i].name,
                 h[i].value);
    mutex_unlock(&m->lock);
}

static inline void mock_leave_locked(MockChannel *m)
{
    if (!m->gone && m->hook)
        m->hook(m->ctx);
    m->gone = true;
    m->hook = NULL;
}

static inline bool mock_write(Channel *c, const char *bytes, size_t len)
{
    MockChannel *m = (MockChannel *)c;
    bool ok;

    mutex_lock(&m->lock);
    assert_true(m->status != 0);
    if (m->leave_after && m->writes >= m->leave_after)
        mock_leave_locked(m);
    ok = !m->gone;
    if (ok) {
        m->writes++;
        str_add(&m->body, bytes, len);
    }
    mutex_unlock(&m->lock);
    return ok;
}

static inline bool mock_gone(Channel *c)
{
    MockChannel *m = (MockChannel *)c;
    bool gone;

    mutex_lock(&m->lock);
    gone = m->gone;
    mutex_unlock(&m->lock);
    return gone;
}

static inline void mock_on_gone(Channel *c, void (*hook)(void *), void *ctx)
{
    MockChannel *m = (MockChannel *)c;

    mutex_lock(&m->lock);
    m->hook = hook;
    m->ctx = ctx;
    m->hooked = m->hooked || hook;
    if (hook && m->gone)
        hook(ctx);
    mutex_unlock(&m->lock);
}

/* What a client that hangs up does; from any thread. */
static inline void mock_leave(MockChannel *m)
{
    mutex_lock(&m->lock);
    mock_leave_locked(m);
    mutex_unlock(&m->lock);
}

static inline int mock_writes(MockChannel *m)
{
    int n;
    mutex_lock(&m->lock);
    n = m->writes;
    mutex_unlock(&m->lock);
    return n;
}

static inline bool mock_hooked(MockChannel *m)
{
    bool hooked;
    mutex_lock(&m->lock);
    hooked = m->hooked;
    mutex_unlock(&m->lock);
    return hooked;
}

static inline void mock_init(MockChannel *m)
{
    static const ChannelOps ops = {mock_start, mock_write, mock_gone, mock_on_gone};
    *m = (MockChannel){.base = {&ops}};
    mutex_init(&m->lock);
}

static inline void mock_release(MockChannel *m)
{
    if (m->status && m->len >= 0 && !m->gone)
        assert_int_equal(m->len, m->body.len);
    assert_null(m->hook); /* a handler takes its hook back */
    str_release(&m->body);
    mutex_release(&m->lock);
}
#endif
