/* kv_pools.h - the KV blocks of all groups: a pool for each, and a sequence's tables in them.
 *
 * A group with a window (circuit/kv_group.h) gives a sequence's dead blocks back as it goes on, and takes new ones for
 * the rows at hand only; a group without one keeps what it took.
 * Owns: the pools.   Not: sequences' tables, device memory.   Thread: engine only. */
#ifndef METRALE_ENGINE_KV_POOLS_H
#define METRALE_ENGINE_KV_POOLS_H
#include "cache/kv_blocks.h"
#include "circuit/kv_group.h"
#include <stdbool.h>

typedef struct KvPools {
    uint32_t n;
    KvGroup groups[KV_MAX_GROUPS];
    KvBlocks *pools[KV_MAX_GROUPS];
} KvPools;
typedef struct KvTables { /* of one sequence; zero-initialised is empty */
    KvTable group[KV_MAX_GROUPS];
} KvTables;

Status kv_pools_init(KvPools *p, const KvGroup *groups, uint32_t n, Err *err);
void kv_pools_release(KvPools *p);
uint32_t kv_pools_total(const KvPools *p); /* blocks of all pools */
uint32_t kv_pools_used(const KvPools *p);

/* Takes what a sequence with empty tables holds for long: the blocks of its first `tokens` tokens, and of a group with a
 * window no more than it keeps of them. ST_BUSY, ST_NOMEM: what was taken so far stays in the tables. */
Status kv_pools_reserve(KvPools *p, KvTables *t, uint32_t tokens, Err *err);
bool kv_pools_room(const KvPools *p, uint32_t tokens); /* are the blocks of such a reservation free? */
/* Takes what is missing of the blocks of the first `tokens` tokens, in every group. Errors as above. */
Status kv_pools_take(KvPools *p, KvTables *t, uint32_t tokens, Err *err);
/* Gives back what no row at `position` or behind it sees. */
void kv_pools_recycle(KvPools *p, KvTables *t, uint32_t position);
/* Up to how many tokens, `most` at most, kv_pools_take would succeed. */
uint32_t kv_pools_reach(const KvPools *p, const KvTables *t, uint32_t most);
void kv_pools_give(KvPools *p, KvTables *t); /* all; the tables are empty and released afterwards */
#endif
