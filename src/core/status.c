/* status.c - the sentences behind Status, and the writing of an Err.
 *
 * A message is first formatted into a local buffer and then copied, so that an argument may point into the very
 * Err that is written. What does not fit is cut between two characters, so that a message stays valid UTF-8 when
 * its parts were: it may end up inside a JSON answer. */
#include "core/status.h"
#include "core/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *status_text(Status st)
{
    switch (st) {
#define X(name, value, text)                                                                                           \
    case ST_##name:                                                                                                    \
        return text;
        STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

/* Copies head and tail behind one another into err->msg, cut to whole characters when they do not fit. */
static void err_store(Err *err, const char *head, const char *tail)
{
    int n = snprintf(err->msg, sizeof err->msg, "%s%s", head, tail);

    if (n < 0)
        err->msg[0] = '\0';
    else if ((size_t)n >= sizeof err->msg)
        err->msg[utf8_whole(err->msg, sizeof err->msg - 1)] = '\0';
}

/* Formats into buf of sizeof(Err.msg) + 1 bytes: one more than is kept, so that err_store() still sees a cut. */
static void err_format(char *buf, size_t size, const char *fmt, va_list ap)
{
    if (vsnprintf(buf, size, fmt, ap) < 0)
        buf[0] = '\0';
}

Status err_set(Err *err, Status st, const char *fmt, ...)
{
    char buf[sizeof err->msg + 1];
    va_list ap;

    if (err == NULL)
        return st;
    va_start(ap, fmt);
    err_format(buf, sizeof buf, fmt, ap);
    va_end(ap);
    err_store(err, buf, "");
    return st;
}

Status err_wrap(Err *err, Status st, const char *fmt, ...)
{
    char head[sizeof err->msg + 1];
    char tail[sizeof err->msg];
    va_list ap;

    if (err == NULL)
        return st;
    va_start(ap, fmt);
    err_format(head, sizeof head, fmt, ap);
    va_end(ap);
    memcpy(tail, err->msg, sizeof tail);
    tail[sizeof tail - 1] = '\0';
    err_store(err, head, tail);
    return st;
}
