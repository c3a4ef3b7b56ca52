/* source.h - where stored bytes come from: an open file, or memory for tests and fuzzing. Parsers see only this.
 * Owns: the file descriptor. Not: the memory, not the name.
 * Thread: source_read from any; the rest one caller. */
#ifndef METRALE_WEIGHTS_SOURCE_H
#define METRALE_WEIGHTS_SOURCE_H
#include "core/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct Source {
    const char *name;     /* for messages; outlives the source */
    uint64_t size;        /* bytes, as found at open */
    const uint8_t *bytes; /* memory, or NULL */
    int fd;               /* the file, or -1 */
} Source;
#define SOURCE_NONE ((Source){.fd = -1})

/* A regular file; anything else (pipe, device, folder) is refused. path is borrowed as the name. */
Status source_open(Source *s, const char *path, Err *err);
void source_memory(Source *s, const void *bytes, size_t len, const char *name);
void source_close(Source *s);
/* Bytes [offset, offset+len). A range past the end, or a file that became shorter since, is an error. */
Status source_read(const Source *s, uint64_t offset, void *dst, size_t len, Err *err);
#endif
