/* arena.h - bump allocation with one owner: everything taken from an arena dies with it.
 * Thread: none of its own; one arena belongs to one thread at a time. */
#ifndef METRALE_CORE_ARENA_H
#define METRALE_CORE_ARENA_H
#include <stdarg.h>
#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_new(void);    /* NULL when out of memory */
void arena_free(Arena *a); /* NULL is fine */

/* Zeroed, 16-byte aligned; NULL when out of memory or when n * size overflows. */
void *arena_alloc(Arena *a, size_t n, size_t size);
char *arena_strdup(Arena *a, const char *s);
char *arena_strndup(Arena *a, const char *s, size_t len);
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define ARENA_NEW(a, T)      ((T *)arena_alloc((a), 1, sizeof(T)))
#define ARENA_ARRAY(a, T, n) ((T *)arena_alloc((a), (n), sizeof(T)))
#endif
