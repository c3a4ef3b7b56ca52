/* file.c - whole files in, whole files out.
 *
 * Reading trusts nothing about the size: it is checked before memory is taken and again while reading, since a file
 * may grow meanwhile. Writing goes to PATH.tmp-PID-N, which O_EXCL makes ours alone, is flushed to the disk and then
 * renamed: a reader, or a machine that stops at any moment, finds the old file or the new one. */
#include "core/file.h"
#include "core/str.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_CHUNK_BYTES ((size_t)1 << 16)

/* "PATH: cannot VERB: why" from errno; what does not exist has its own status. */
static Status file_fail(Err *err, const char *path, const char *verb)
{
    int e = errno;

    if (e == ENOMEM)
        return err_set(err, ST_NOMEM, "%s: cannot %s: out of memory", path, verb);
    return err_set(err, e == ENOENT || e == ENOTDIR ? ST_NOTFOUND : ST_IO, "%s: cannot %s: %s", path, verb,
                   strerror(e));
}

/* Appends fd's bytes up to its end, at most max of them. */
static Status read_all(int fd, const char *path, size_t max, Str *s, Err *err)
{
    char chunk[FILE_CHUNK_BYTES];

    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n == 0)
            return ST_OK;
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return file_fail(err, path, "read");
        }
        if ((size_t)n > max - s->len)
            return err_set(err, ST_FORMAT, "%s: the file is larger than the %zu bytes allowed here", path, max);
        str_add(s, chunk, (size_t)n);
        if (!str_ok(s))
            return err_set(err, ST_NOMEM, "%s: cannot read: out of memory", path);
    }
}

Status file_read(const char *path, size_t max, char **out, size_t *len, Err *err)
{
    Status st = ST_OK;
    Str s = STR_INIT;
    struct stat info;
    size_t n;
    char *p;
    int fd;

    /* Without O_NONBLOCK the open of a FIFO would wait for its writer. */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return file_fail(err, path, "open");
    if (fstat(fd, &info) != 0) {
        st = file_fail(err, path, "examine");
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        st = err_set(err, ST_IO, "%s: not a regular file", path);
        goto done;
    }
    if (info.st_size > 0 && (uintmax_t)info.st_size > max) {
        st = err_set(err, ST_FORMAT, "%s: the file has %jd bytes, only %zu are allowed here", path,
                     (intmax_t)info.st_size, max);
        goto done;
    }
    TRY(read_all(fd, path, max, &s, err));
    n = s.len;
    p = str_take(&s);
    if (p == NULL) {
        st = err_set(err, ST_NOMEM, "%s: cannot read: out of memory", path);
        goto done;
    }
    *out = p;
    *len = n;
done:
    str_release(&s);
    close(fd);
    return st;
}

/* A new file next to path, its name in *name; the descriptor, or -1 with errno. */
static int open_temporary(const char *path, Str *name)
{
    for (unsigned i = 0; i < 1000; i++) {
        int fd;
        str_clear(name);
        str_addf(name, "%s.tmp-%ld-%u", path, (long)getpid(), i);
        if (!str_ok(name)) {
            errno = ENOMEM;
            return -1;
        }
        fd = open(str_c(name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) /* a name of another thread, or left by a process of the same id */
            return fd;
    }
    return -1;
}

static bool write_all(int fd, const char *p, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            p += n;
            len -= (size_t)n;
        }
    }
    return true;
}

Status file_write(const char *path, const void *p, size_t len, Err *err)
{
    Status st = ST_OK;
    Str name = STR_INIT;
    bool written;
    int fd = open_temporary(path, &name);

    if (fd < 0) {
        st = file_fail(err, path, "create a temporary file next to it");
        goto done;
    }
    written = write_all(fd, p, len) && fsync(fd) == 0;
    if (!written)
        st = file_fail(err, path, "write");
    if (close(fd) != 0 && st == ST_OK)
        st = file_fail(err, path, "write");
    if (st == ST_OK && rename(str_c(&name), path) != 0)
        st = file_fail(err, path, "replace");
    if (st != ST_OK)
        unlink(str_c(&name));
done:
    str_release(&name);
    return st;
}

bool file_exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool dir_exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static Status make_one(const char *path, Err *err)
{
    if (mkdir(path, 0777) == 0)
        return ST_OK;
    if (errno == EEXIST) {
        if (dir_exists(path))
            return ST_OK;
        errno = ENOTDIR;
    }
    return err_set(err, ST_IO, "%s: cannot make the directory: %s", path, strerror(errno));
}

Status dir_make(const char *path, Err *err)
{
    Status st = ST_OK;
    char *copy = strdup(path);

    if (copy == NULL)
        return err_set(err, ST_NOMEM, "%s: cannot make the directory: out of memory", path);
    for (char *c = copy; *c != '\0'; c++) {
        if (*c != '/' || c == copy) /* the root is there */
            continue;
        *c = '\0';
        TRY(make_one(copy, err));
        *c = '/';
    }
    TRY(make_one(copy, err));
done:
    free(copy);
    return st;
}

typedef struct Listing {
    DirEntry *p;
    size_t n, cap;
} Listing;

/* One more entry; false when out of memory. */
static bool listing_add(Listing *l, DirEntry e)
{
    if (l->n == l->cap) {
        size_t cap = l->cap == 0 ? 32 : l->cap * 2;
        DirEntry *p = reallocarray(l->p, cap, sizeof *p);
        if (p == NULL)
            return false;
        l->p = p;
        l->cap = cap;
    }
    l->p[l->n++] = e;
    return true;
}

static int by_name(const void *a, const void *b)
{
    const DirEntry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* A link is described by what it leads to; one that leads nowhere is neither file nor directory. */
static void describe(int dir_fd, DirEntry *e)
{
    struct stat info;

    if (fstatat(dir_fd, e->name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return; /* removed since it was listed */
    e->is_link = S_ISLNK(info.st_mode);
    if (e->is_link && fstatat(dir_fd, e->name, &info, 0) != 0)
        return;
    e->is_dir = S_ISDIR(info.st_mode);
    e->is_file = S_ISREG(info.st_mode);
}

Status dir_list(const char *path, Arena *a, DirEntry **out, size_t *n, Err *err)
{
    Status st = ST_OK;
    Listing l = {0};
    DirEntry *entries;
    DIR *dir = opendir(path);

    if (dir == NULL)
        return file_fail(err, path, "open the directory");
    for (;;) {
        struct dirent *d;
        DirEntry e = {0};

        errno = 0;
        d = readdir(dir);
        if (d == NULL) {
            if (errno == 0)
                break;
            st = file_fail(err, path, "read the directory");
            goto done;
        }
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        e.name = arena_strdup(a, d->d_name);
        if (e.name == NULL)
            goto no_memory;
        describe(dirfd(dir), &e);
        if (!listing_add(&l, e))
            goto no_memory;
    }
    entries = ARENA_ARRAY(a, DirEntry, l.n);
    if (entries == NULL)
        goto no_memory;
    if (l.n > 0) {
        qsort(l.p, l.n, sizeof *l.p, by_name);
        memcpy(entries, l.p, l.n * sizeof *entries);
    }
    *out = entries;
    *n = l.n;
    goto done;
no_memory:
    st = err_set(err, ST_NOMEM, "%s: cannot list the directory: out of memory", path);
done:
    free(l.p);
    closedir(dir);
    return st;
}
