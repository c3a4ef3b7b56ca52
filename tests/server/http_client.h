/* http_client.h - the smallest HTTP client that tests need: raw bytes over a loopback socket, every wait bounded. */
#ifndef METRALE_TESTS_HTTP_CLIENT_H
#define METRALE_TESTS_HTTP_CLIENT_H
#include "core/clock.h"
#include "core/str.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static inline int client_open(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static inline bool client_send(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

/* Sends a request with a body; extra: further header lines, each ended by \r\n. */
static inline bool client_request(int fd, const char *method, const char *path, const char *extra, const char *body,
                                  size_t len)
{
    Str s = STR_INIT;
    bool ok;

    str_addf(&s, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, path, extra);
    if (body)
        str_addf(&s, "Content-Length: %zu\r\n", len);
    str_adds(&s, "\r\n");
    if (body)
        str_add(&s, body, len);
    ok = str_ok(&s) && client_send(fd, s.p, s.len);
    str_release(&s);
    return ok;
}

/* Reads until `until` is in the text, the peer closes (true only when until is NULL), or ms have passed (false). */
static inline bool client_read(int fd, Str *out, const char *until, int ms)
{
    uint64_t end = clock_ns(clock_system()) + (uint64_t)ms * 1000000u;

    for (;;) {
        char buf[4096];
        uint64_t now = clock_ns(clock_system());
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n;

        if (until && strstr(str_c(out), until))
            return true;
        if (now >= end || poll(&p, 1, (int)((end - now) / 1000000u) + 1) < 0)
            return false;
        if (!(p.revents & (POLLIN | POLLHUP | POLLERR)))
            continue;
        n = recv(fd, buf, sizeof buf, 0);
        if (n <= 0)
            return until == NULL;
        str_add(out, buf, (size_t)n);
    }
}

/* One request on a connection of its own; the whole answer with its head. Empty when there was none within ms. */
static inline Str client_call(uint16_t port, const char *method, const char *path, const char *body, int ms)
{
    Str out = STR_INIT;
    int fd = client_open(port);

    if (fd < 0)
        return out;
    if (client_request(fd, method, path, "Connection: close\r\n", body, body ? strlen(body) : 0))
        client_read(fd, &out, NULL, ms);
    close(fd);
    return out;
}

/* True when probe(ctx) becomes true within ms. */
static inline bool client_until(bool (*probe)(void *ctx), void *ctx, int ms)
{
    uint64_t end = clock_ns(clock_system()) + (uint64_t)ms * 1000000u;

    while (!probe(ctx)) {
        if (clock_ns(clock_system()) >= end)
            return false;
        usleep(2000);
    }
    return true;
}
#endif
