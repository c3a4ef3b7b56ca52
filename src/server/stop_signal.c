/* stop_signal.c - one thread reads the signals from a signalfd, so that there is neither a handler nor a global. */
#include "server/stop_signal.h"
#include "core/thread.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct StopSignal {
    int signal_fd, end_fd;
    Thread thread;
    bool has_thread;
    Mutex lock;
    Cond came;
    bool armed, stop;
};

/* Gives the signal its default effect, which ends the process. */
static void deliver(int signo)
{
    sigset_t one;

    signal(signo, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, signo);
    raise(signo);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

static void *listen_for(void *arg)
{
    StopSignal *s = arg;
    struct pollfd p[2] = {{.fd = s->signal_fd, .events = POLLIN}, {.fd = s->end_fd, .events = POLLIN}};

    for (;;) {
        struct signalfd_siginfo info;

        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (p[1].revents)
            return NULL;
        if (!(p[0].revents & POLLIN) || read(s->signal_fd, &info, sizeof info) != sizeof info)
            continue;
        mutex_lock(&s->lock);
        bool at_once = !s->armed || s->stop;
        s->stop = true;
        cond_broadcast(&s->came);
        mutex_unlock(&s->lock);
        if (at_once)
            deliver((int)info.ssi_signo);
    }
}

Status stop_signal_new(StopSignal **out, Err *err)
{
    Status st = ST_OK;
    sigset_t set;
    StopSignal *s = calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return err_set(err, ST_NOMEM, "out of memory at the start");
    mutex_init(&s->lock);
    cond_init(&s->came);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    s->end_fd = eventfd(0, EFD_CLOEXEC);
    if (s->signal_fd < 0 || s->end_fd < 0)
        TRY(err_set(err, ST_IO, "cannot make the descriptors that wait for signals: %s", strerror(errno)));
    TRY(thread_start(&s->thread, "signals", listen_for, s, err));
    s->has_thread = true;
    *out = s;
    s = NULL;
done:
    stop_signal_free(s);
    return st;
}

void stop_signal_free(StopSignal *s)
{
    uint64_t one = 1;

    if (!s)
        return;
    if (s->has_thread && write(s->end_fd, &one, sizeof one) == sizeof one)
        thread_join(s->thread);
    if (s->signal_fd >= 0)
        close(s->signal_fd);
    if (s->end_fd >= 0)
        close(s->end_fd);
    cond_release(&s->came);
    mutex_release(&s->lock);
    free(s);
}

void stop_signal_arm(StopSignal *s)
{
    mutex_lock(&s->lock);
    s->armed = true;
    mutex_unlock(&s->lock);
}

void stop_signal_wait(StopSignal *s)
{
    mutex_lock(&s->lock);
    while (!s->stop)
        cond_wait(&s->came, &s->lock);
    mutex_unlock(&s->lock);
}

void stop_signal_raise(StopSignal *s)
{
    mutex_lock(&s->lock);
    s->stop = true;
    cond_broadcast(&s->came);
    mutex_unlock(&s->lock);
}
