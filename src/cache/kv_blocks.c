/* kv_blocks.c - a stack of free block numbers.
 *
 * What was given back last is taken first: it is the likeliest to be in a cache. `taken` knows every block's state, so
 * that a block given twice, or one that is not ours, stops at once instead of being shared by two sequences.
 *
 * Invariant: the stack holds each block whose `taken` is false exactly once. */
#include "cache/kv_blocks.h"
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

struct KvBlocks {
    int32_t *free; /* [n_free], a stack */
    bool *taken;   /* [total] */
    uint32_t n_free, total;
};

Status kv_blocks_new(KvBlocks **out, uint32_t n_blocks, Err *err)
{
    KvBlocks *kv;

    if (n_blocks == 0 || n_blocks > INT32_MAX / KV_BLOCKS_TOKENS)
        return err_set(err, ST_INVALID, "a KV pool of %u blocks is out of range; give 1 to %d", n_blocks,
                       INT32_MAX / KV_BLOCKS_TOKENS);
    kv = calloc(1, sizeof *kv);
    if (kv != NULL) {
        kv->free = calloc(n_blocks, sizeof *kv->free);
        kv->taken = calloc(n_blocks, sizeof *kv->taken);
    }
    if (kv == NULL || kv->free == NULL || kv->taken == NULL) {
        kv_blocks_free(kv);
        return err_set(err, ST_NOMEM, "out of memory for the list of %u KV blocks", n_blocks);
    }
    kv->n_free = kv->total = n_blocks;
    for (uint32_t i = 0; i < n_blocks; i++)
        kv->free[i] = (int32_t)(n_blocks - 1 - i); /* block 0 is on top */
    *out = kv;
    return ST_OK;
}

void kv_blocks_free(KvBlocks *kv)
{
    if (kv == NULL)
        return;
    free(kv->free);
    free(kv->taken);
    free(kv);
}

uint32_t kv_blocks_total(const KvBlocks *kv)
{
    return kv->total;
}

uint32_t kv_blocks_available(const KvBlocks *kv)
{
    return kv->n_free;
}

uint32_t kv_blocks_need(const KvTable *t, uint32_t tokens)
{
    uint32_t blocks = tokens / KV_BLOCKS_TOKENS + (tokens % KV_BLOCKS_TOKENS != 0);
    return blocks > t->n ? blocks - t->n : 0;
}

Status kv_blocks_take(KvBlocks *kv, KvTable *t, uint32_t tokens, Err *err)
{
    uint32_t need = kv_blocks_need(t, tokens);

    if (need > kv->n_free)
        return err_set(err, ST_BUSY, "%u KV blocks are needed and %u of %u are free", need, kv->n_free, kv->total);
    if (t->n + need > t->cap) {
        uint32_t cap = t->n + need > 2 * t->cap ? t->n + need : 2 * t->cap;
        int32_t *blocks = realloc(t->blocks, cap * sizeof *blocks);
        if (blocks == NULL)
            return err_set(err, ST_NOMEM, "out of memory for a table of %u KV blocks", cap);
        t->blocks = blocks;
        t->cap = cap;
    }
    for (; need > 0; need--) {
        int32_t b = kv->free[--kv->n_free];
        kv->taken[b] = true;
        t->blocks[t->n++] = b;
    }
    return ST_OK;
}

static void give_one(KvBlocks *kv, int32_t b)
{
    assert(b >= 0 && (uint32_t)b < kv->total && kv->taken[b]);
    kv->taken[b] = false;
    kv->free[kv->n_free++] = b;
}

void kv_blocks_recycle(KvBlocks *kv, KvTable *t, uint32_t first)
{
    for (; t->first < first && t->first < t->n; t->first++) {
        give_one(kv, t->blocks[t->first]);
        t->blocks[t->first] = 0;
    }
}

void kv_blocks_give(KvBlocks *kv, KvTable *t)
{
    while (t->n > t->first) /* from the end, so that taking the same number again gives the same order */
        give_one(kv, t->blocks[--t->n]);
    free(t->blocks);
    *t = (KvTable){0};
}
