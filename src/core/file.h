/* file.h - whole files and directories, with bounds. Only the rooms that may do I/O include it (closure, compute,
 * kernels, weights, cli). */
#ifndef METRALE_CORE_FILE_H
#define METRALE_CORE_FILE_H
#include "core/arena.h"
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a regular file of at most max bytes; *out is malloc'd, NUL behind len. ST_NOTFOUND when there is none,
 * ST_FORMAT when it is larger. */
Status file_read(const char *path, size_t max, char **out, size_t *len, Err *err);
/* Writes through a temporary name in the same directory and rename(), so that readers see all or nothing. */
Status file_write(const char *path, const void *p, size_t len, Err *err);
bool file_exists(const char *path);
bool dir_exists(const char *path);
Status dir_make(const char *path, Err *err); /* like mkdir -p */

typedef struct DirEntry {
    const char *name;
    bool is_dir, is_link, is_file; /* is_link: the entry itself; is_dir, is_file: what it leads to */
} DirEntry;
/* Entries without "." and "..", sorted by name (bytewise); memory from a. */
Status dir_list(const char *path, Arena *a, DirEntry **out, size_t *n, Err *err);
#endif
