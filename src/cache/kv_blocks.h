/* kv_blocks.h - who owns which physical KV block of 16 tokens. All or nothing, never grows.
 * Owns: the free list.   Not: device memory, not sequences.   Thread: engine only; nothing here locks. */
#ifndef METRALE_CACHE_KV_BLOCKS_H
#define METRALE_CACHE_KV_BLOCKS_H
#include "core/status.h"
#include <stdint.h>

enum { KV_BLOCKS_TOKENS = 16 }; /* tokens of one block */

typedef struct KvBlocks KvBlocks;
typedef struct KvTable { /* a sequence's logical -> physical map; zero-initialised is empty */
    int32_t *blocks;     /* [n]; those before `first` are gone, and block 0 stands in for them */
    uint32_t first, n, cap;
} KvTable;

Status kv_blocks_new(KvBlocks **out, uint32_t n_blocks, Err *err);
void kv_blocks_free(KvBlocks *kv);
uint32_t kv_blocks_total(const KvBlocks *kv);
uint32_t kv_blocks_available(const KvBlocks *kv);
uint32_t kv_blocks_need(const KvTable *t, uint32_t tokens);                 /* more blocks to hold `tokens` in all */
Status kv_blocks_take(KvBlocks *kv, KvTable *t, uint32_t tokens, Err *err); /* ST_BUSY: nothing taken */
/* Gives the blocks before logical block `first` back: nobody needs them any more. The others keep their places. */
void kv_blocks_recycle(KvBlocks *kv, KvTable *t, uint32_t first);
void kv_blocks_give(KvBlocks *kv,
                    KvTable *t); /* all of the table's blocks; the table is empty and released afterwards */
#endif
