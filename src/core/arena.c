/* arena.c - a list of zeroed blocks, each handed out from the front.
 *
 * Blocks double from 4 KiB to 1 MiB, so that a small arena costs a page and a large one few calls; what is larger
 * than a block gets a block of its own size. Memory comes from calloc() and is never handed out twice, hence it is
 * zero without being written. Nothing is given back before arena_free(). */
#include "core/arena.h"
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_ALIGN       ((size_t)16)
#define ARENA_FIRST_BYTES ((size_t)4096)
#define ARENA_MOST_BYTES  ((size_t)1 << 20)

typedef struct Block Block;
struct Block {
    Block *next;
    size_t used, cap;
    alignas(16) unsigned char bytes[];
};

struct Arena {
    Block *head; /* the only block that still gives memory */
    size_t next_bytes;
};

Arena *arena_new(void)
{
    Arena *a = calloc(1, sizeof *a);

    if (a != NULL)
        a->next_bytes = ARENA_FIRST_BYTES;
    return a;
}

void arena_free(Arena *a)
{
    if (a == NULL)
        return;
    for (Block *b = a->head, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

/* A block of cap bytes in front of the list, or behind its head when it is made for one large request: the head
 * then keeps serving small ones. */
static Block *arena_grow(Arena *a, size_t cap)
{
    Block *b = calloc(1, sizeof *b + cap); /* cap is at most PTRDIFF_MAX: no overflow */

    if (b == NULL)
        return NULL;
    b->cap = cap;
    if (a->head != NULL && cap > a->next_bytes) {
        b->next = a->head->next;
        a->head->next = b;
    } else {
        b->next = a->head;
        a->head = b;
    }
    return b;
}

void *arena_alloc(Arena *a, size_t n, size_t size)
{
    Block *b = a->head;
    size_t bytes;
    void *p;

    if (__builtin_mul_overflow(n, size, &bytes) || bytes > PTRDIFF_MAX - ARENA_ALIGN)
        return NULL;
    bytes = (bytes + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
    if (bytes == 0) /* an empty array has an address too, since NULL means failure */
        bytes = ARENA_ALIGN;
    if (b == NULL || b->cap - b->used < bytes) {
        b = arena_grow(a, bytes > a->next_bytes ? bytes : a->next_bytes);
        if (b == NULL)
            return NULL;
        if (b == a->head && a->next_bytes < ARENA_MOST_BYTES)
            a->next_bytes *= 2;
    }
    p = b->bytes + b->used;
    b->used += bytes;
    return p;
}

char *arena_strdup(Arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_strndup(Arena *a, const char *s, size_t len)
{
    char *p = len == SIZE_MAX ? NULL : arena_alloc(a, len + 1, 1);

    if (p != NULL && len > 0)
        memcpy(p, s, len); /* the NUL is there: the memory is zero */
    return p;
}

char *arena_printf(Arena *a, const char *fmt, ...)
{
    va_list ap;
    char *p;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return NULL;
    p = arena_alloc(a, (size_t)n + 1, 1);
    if (p == NULL)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}
