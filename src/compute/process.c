/* process.c - a small pool of children over posix_spawn and poll.
 *
 * Each child writes both of its streams into one pipe. The pipe's end of file is the sign that the child is done; then it is
 * waited for by its own id, so that children of others stay theirs. */
#include "compute/process.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct Slot {
    Process *p; /* NULL: free */
    pid_t pid;
    int fd;
} Slot;

/* posix_spawn takes char *const *, and does not write through it. */
typedef union Argv {
    const char *const *in;
    char *const *out;
} Argv;

static Status start(Slot *s, Process *p, Err *err)
{
    int fds[2];
    posix_spawn_file_actions_t fa;
    if (pipe2(fds, O_CLOEXEC) != 0)
        return err_set(err, ST_IO, "cannot make a pipe for %s: %s", p->argv[0], strerror(errno));
    if (posix_spawn_file_actions_init(&fa) != 0) {
        close(fds[0]);
        close(fds[1]);
        return err_set(err, ST_NOMEM, "no memory to start %s", p->argv[0]);
    }
    int rc = posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&fa, fds[1], 1);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&fa, fds[1], 2);
    Argv argv = {p->argv};
    rc = rc ? rc : posix_spawnp(&s->pid, p->argv[0], &fa, NULL, argv.out, environ);
    posix_spawn_file_actions_destroy(&fa);
    close(fds[1]);
    p->ran = true;
    if (rc) {
        close(fds[0]);
        str_addf(&p->output, "%s: cannot be started: %s\n", p->argv[0], strerror(rc));
        p->code = 127;
        return ST_OK;
    }
    s->p = p;
    s->fd = fds[0];
    return ST_OK;
}

/* Reads what is there; at the end of file the child is waited for and the slot becomes free. */
static void drain(Slot *s)
{
    char buf[16384];
    ssize_t n = read(s->fd, buf, sizeof buf);
    if (n > 0) {
        str_add(&s->p->output, buf, (size_t)n);
        return;
    }
    if (n < 0 && errno == EINTR)
        return;
    int status = 0;
    close(s->fd);
    while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR)
        ;
    s->p->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    s->p = NULL;
}

Status process_run(Process *p, size_t n, unsigned jobs, Err *err)
{
    Status st = ST_OK;
    jobs = jobs < 1 ? 1 : jobs;
    if (n && jobs > n)
        jobs = (unsigned)n;
    Slot *slots = calloc(jobs, sizeof *slots);
    struct pollfd *fds = calloc(jobs, sizeof *fds);
    size_t next = 0, running = 0;
    bool stop = false;
    if (!slots || !fds) {
        st = err_set(err, ST_NOMEM, "no memory to run %zu commands", n);
        stop = true;
    }
    while (!stop || running) {
        for (unsigned i = 0; i < jobs && !stop && next < n; i++) {
            if (slots[i].p)
                continue;
            Process *q = &p[next++];
            st = start(&slots[i], q, err);
            stop = st != ST_OK || q->code != 0;
        }
        running = 0;
        unsigned n_fds = 0;
        for (unsigned i = 0; i < jobs && slots; i++)
            if (slots[i].p) {
                fds[n_fds++] = (struct pollfd){.fd = slots[i].fd, .events = POLLIN};
                running++;
            }
        if (!running) {
            stop |= next == n;
            continue;
        }
        if (poll(fds, n_fds, -1) < 0)
            continue; /* EINTR: ask again */
        for (unsigned i = 0, k = 0; i < jobs; i++) {
            Process *q = slots[i].p;
            if (!q || !(fds[k++].revents & (POLLIN | POLLHUP | POLLERR)))
                continue;
            drain(&slots[i]);
            if (!slots[i].p) {
                running--;
                stop |= q->code != 0;
            }
        }
    }
    free(slots);
    free(fds);
    return st;
}
