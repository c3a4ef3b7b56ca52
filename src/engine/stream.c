/* stream.c - an array of events that is written once and read once.
 *
 * The engine appends, the reader follows; the array has room for all that a request can get, so that neither ever waits
 * for the other. It is as long as the window may be, but comes from calloc: pages that no event reaches take no memory.
 *
 * Two locks, because a notify function may read the stream: `lock` guards the events, `calling` is held over a call of
 * notify, so that after stream_free no call is under way and none will follow. */
#include "engine/stream.h"
#include "core/thread.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A TokenEvent without its top list, which most requests do not want. */
typedef struct StoredEvent {
    uint64_t at_ns;
    int32_t token;
    float logprob;
    uint8_t finish, n_top;
} StoredEvent;

struct Stream {
    Mutex lock;
    Cond readable;
    StoredEvent *events; /* [room] */
    TokenLogprob *tops;  /* [room][max_top] */
    uint32_t room, max_top, n_written, n_read;
    bool ended;
    char why[sizeof(((Err *)0)->msg)]; /* written before ended */
    Mutex calling;
    void (*notify)(void *ctx); /* NULL after stream_free */
    void *notify_ctx;
    atomic_bool cancelled;
    atomic_uint owners;
};

Status stream_new(Stream **out, uint32_t room, uint32_t n_top, void (*notify)(void *ctx), void *notify_ctx, Err *err)
{
    Stream *s = calloc(1, sizeof *s);

    if (s != NULL) {
        s->events = calloc(room, sizeof *s->events);
        s->tops = n_top > 0 ? calloc(room, n_top * sizeof *s->tops) : NULL;
    }
    if (s == NULL || s->events == NULL || (n_top > 0 && s->tops == NULL)) {
        if (s != NULL) {
            free(s->events);
            free(s->tops);
        }
        free(s);
        return err_set(err, ST_NOMEM, "out of memory for the %u events of an answer; ask for fewer tokens", room);
    }
    s->room = room;
    s->max_top = n_top;
    s->notify = notify;
    s->notify_ctx = notify_ctx;
    mutex_init(&s->lock);
    mutex_init(&s->calling);
    cond_init(&s->readable);
    atomic_init(&s->cancelled, false);
    atomic_init(&s->owners, 2);
    *out = s;
    return ST_OK;
}

void stream_release(Stream *s)
{
    if (s == NULL || atomic_fetch_sub(&s->owners, 1) > 1)
        return;
    cond_release(&s->readable);
    mutex_release(&s->calling);
    mutex_release(&s->lock);
    free(s->events);
    free(s->tops);
    free(s);
}

/* ---- the engine's end ------------------------------------------------------------------------------------------- */

void stream_push(Stream *s, const TokenEvent *e, const char *why)
{
    mutex_lock(&s->lock);
    assert(s->n_written < s->room && !s->ended && e->n_top <= s->max_top);
    s->events[s->n_written] = (StoredEvent){e->at_ns, e->token, e->logprob, (uint8_t)e->finish, (uint8_t)e->n_top};
    if (e->n_top > 0)
        memcpy(s->tops + (size_t)s->n_written * s->max_top, e->top, e->n_top * sizeof *e->top);
    if (why != NULL)
        snprintf(s->why, sizeof s->why, "%s", why);
    s->ended = e->finish != FINISH_NONE;
    s->n_written++;
    cond_signal(&s->readable);
    mutex_unlock(&s->lock);

    mutex_lock(&s->calling);
    if (s->notify != NULL)
        s->notify(s->notify_ctx);
    mutex_unlock(&s->calling);
}

bool stream_cancelled(const Stream *s)
{
    return atomic_load(&s->cancelled);
}

/* ---- the reader's end ------------------------------------------------------------------------------------------- */

bool stream_next(Stream *s, TokenEvent *out, uint64_t wait_ns)
{
    bool got;

    mutex_lock(&s->lock);
    if (s->n_read == s->n_written && !s->ended && wait_ns > 0)
        (void)cond_wait_ns(&s->readable, &s->lock, wait_ns);
    got = s->n_read < s->n_written;
    if (got) {
        const StoredEvent *e = &s->events[s->n_read];
        *out = (TokenEvent){e->token, (FinishReason)e->finish, e->logprob, e->n_top, .at_ns = e->at_ns};
        if (e->n_top > 0)
            memcpy(out->top, s->tops + (size_t)s->n_read * s->max_top, e->n_top * sizeof *out->top);
        s->n_read++;
    }
    mutex_unlock(&s->lock);
    return got;
}

void stream_cancel(Stream *s)
{
    atomic_store(&s->cancelled, true); /* the engine looks at each step, and steps as long as it has a request */
}

void stream_free(Stream *s)
{
    if (s == NULL)
        return;
    stream_cancel(s);
    mutex_lock(&s->calling);
    s->notify = NULL;
    mutex_unlock(&s->calling);
    stream_release(s);
}

const char *stream_error(const Stream *s)
{
    Mutex *lock = (Mutex *)(uintptr_t)&s->lock; /* const for the reader; the lock is no part of what it reads */
    bool ended;

    mutex_lock(lock);
    ended = s->ended;
    mutex_unlock(lock);
    return ended ? s->why : ""; /* why does not change after the end */
}
