/* status.h - the one result type of the library and the sentence that goes with a failure.
 *
 * Every function that can fail returns Status and takes an Err; the Err is written only on failure
 * and holds one full sentence that names the place (file, key, tensor, field) and the remedy.
 * Nothing below main() exits or aborts. */
#ifndef METRALE_CORE_STATUS_H
#define METRALE_CORE_STATUS_H

#define STATUS_MAP(X)                                                                                                  \
    X(OK, 0, "ok")                                                                                                     \
    X(NOMEM, -1, "out of host memory")                                                                                 \
    X(DEVMEM, -2, "out of device memory")                                                                              \
    X(FORMAT, -3, "malformed input")                                                                                   \
    X(DEVICE, -4, "device call failed")                                                                                \
    X(IO, -5, "file or network failure")                                                                               \
    X(NOTFOUND, -6, "no such thing")                                                                                   \
    X(UNSUPPORTED, -7, "valid, but not supported here")                                                                \
    X(INVALID, -8, "bad argument or request")                                                                          \
    X(BUSY, -9, "a bounded resource is full")                                                                          \
    X(CANCELLED, -10, "stopped by its owner")

typedef enum {
#define X(name, value, text) ST_##name = (value),
    STATUS_MAP(X)
#undef X
} Status;

typedef struct Err {
    char msg[1024];
} Err;

/* The map's text for st; never NULL. */
const char *status_text(Status st);

/* Fills err (NULL is fine) with the formatted sentence and returns st, so that
 * `return err_set(err, ST_IO, "%s: cannot open: %s", path, why);` is one line. */
Status err_set(Err *err, Status st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts a formatted prefix in front of the sentence already in err; returns st. */
Status err_wrap(Err *err, Status st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* For functions with a local `Status st` and one exit label `done`. */
#define TRY(e)                                                                                                         \
    do {                                                                                                               \
        st = (e);                                                                                                      \
        if (st != ST_OK)                                                                                               \
            goto done;                                                                                                 \
    } while (0)

#endif
