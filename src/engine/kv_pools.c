/* kv_pools.c - see kv_pools.h. Which blocks are dead is kv_group.h's arithmetic; who has which, cache's books. */
#include "engine/kv_pools.h"

_Static_assert((int)KV_BLOCKS_TOKENS == (int)KV_BLOCK_TOKENS, "pool and plan must agree on the size of a block");

Status kv_pools_init(KvPools *p, const KvGroup *groups, uint32_t n, Err *err)
{
    Status st = ST_OK;

    *p = (KvPools){.n = n};
    for (uint32_t g = 0; g < n; g++) {
        p->groups[g] = groups[g];
        TRY(kv_blocks_new(&p->pools[g], groups[g].blocks, err));
    }
done:
    if (st != ST_OK)
        kv_pools_release(p);
    return st;
}

void kv_pools_release(KvPools *p)
{
    for (uint32_t g = 0; g < p->n; g++)
        kv_blocks_free(p->pools[g]);
    *p = (KvPools){0};
}

uint32_t kv_pools_total(const KvPools *p)
{
    uint32_t blocks = 0;

    for (uint32_t g = 0; g < p->n; g++)
        blocks += kv_blocks_total(p->pools[g]);
    return blocks;
}

uint32_t kv_pools_used(const KvPools *p)
{
    uint32_t blocks = 0;

    for (uint32_t g = 0; g < p->n; g++)
        blocks += kv_blocks_total(p->pools[g]) - kv_blocks_available(p->pools[g]);
    return blocks;
}

/* Of `tokens` tokens, those that group g is to have blocks for when they are reserved. */
static uint32_t reserved_tokens(const KvPools *p, uint32_t g, uint32_t tokens)
{
    const uint32_t window = p->groups[g].window;
    const uint64_t most = kv_group_live(window, 1) * KV_BLOCK_TOKENS;

    return window > 0 && most < tokens ? (uint32_t)most : tokens;
}

bool kv_pools_room(const KvPools *p, uint32_t tokens)
{
    for (uint32_t g = 0; g < p->n; g++)
        if (kv_group_blocks(reserved_tokens(p, g, tokens)) > kv_blocks_available(p->pools[g]))
            return false;
    return true;
}

Status kv_pools_reserve(KvPools *p, KvTables *t, uint32_t tokens, Err *err)
{
    Status st = ST_OK;

    for (uint32_t g = 0; g < p->n; g++)
        TRY(kv_blocks_take(p->pools[g], &t->group[g], reserved_tokens(p, g, tokens), err));
done:
    return st;
}

Status kv_pools_take(KvPools *p, KvTables *t, uint32_t tokens, Err *err)
{
    Status st = ST_OK;

    for (uint32_t g = 0; g < p->n; g++)
        TRY(kv_blocks_take(p->pools[g], &t->group[g], tokens, err));
done:
    return st;
}

void kv_pools_recycle(KvPools *p, KvTables *t, uint32_t position)
{
    for (uint32_t g = 0; g < p->n; g++)
        kv_blocks_recycle(p->pools[g], &t->group[g], kv_group_dead(p->groups[g].window, position));
}

uint32_t kv_pools_reach(const KvPools *p, const KvTables *t, uint32_t most)
{
    for (uint32_t g = 0; g < p->n; g++) {
        uint64_t blocks = (uint64_t)t->group[g].n + kv_blocks_available(p->pools[g]);
        if (blocks * KV_BLOCK_TOKENS < most)
            most = (uint32_t)(blocks * KV_BLOCK_TOKENS);
    }
    return most;
}

void kv_pools_give(KvPools *p, KvTables *t)
{
    for (uint32_t g = 0; g < p->n; g++)
        kv_blocks_give(p->pools[g], &t->group[g]);
}
