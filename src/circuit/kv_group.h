/* kv_group.h - what KV memory a lifetime takes, in blocks of 16 tokens.
 *
 * A group is all paged states with one window. With window 0 a sequence keeps every block that it has filled. With
 * window W the row at position p sees positions p - W + 1 .. p, so a block is dead once it lies before what the
 * sequence's next row sees; its number goes back to the pool. A sequence then holds the blocks of the W - 1 tokens
 * before the rows of a step, and of these rows, whatever its length.
 *
 * Logical block b always means positions 16 b .. 16 b + 15: nothing is renumbered when blocks die.
 * Owns: nothing; arithmetic only.   Thread: any. */
#ifndef METRALE_CIRCUIT_KV_GROUP_H
#define METRALE_CIRCUIT_KV_GROUP_H
#include <stdint.h>

enum { KV_BLOCK_TOKENS = 16, KV_MAX_GROUPS = 4 };

typedef struct KvGroup {
    uint32_t window; /* 0: all tokens */
    uint32_t blocks; /* of the group's pool */
} KvGroup;

static inline uint32_t kv_group_blocks(uint32_t tokens)
{
    return tokens / KV_BLOCK_TOKENS + (tokens % KV_BLOCK_TOKENS != 0);
}

/* Logical blocks 0 .. result - 1 that no row at `position` or behind it sees. */
static inline uint32_t kv_group_dead(uint32_t window, uint32_t position)
{
    return window == 0 || position < window ? 0 : (position - window + 1) / KV_BLOCK_TOKENS;
}

/* Blocks that a sequence with a window holds at most while `rows` >= 1 rows of it run: n tokens in a row touch
 * (n - 2) / 16 + 2 blocks where they lie worst, and n is window - 1 + rows. */
static inline uint64_t kv_group_live(uint32_t window, uint32_t rows)
{
    return ((uint64_t)window + rows + KV_BLOCK_TOKENS - 3) / KV_BLOCK_TOKENS + 1;
}

/* Blocks of a pool, when `most` blocks are wanted for all tokens of all sequences: no more than `seqs` sequences that
 * share `rows` rows can ever hold in a group with that window. */
static inline uint32_t kv_group_pool(uint32_t window, uint32_t most, uint32_t seqs, uint32_t rows)
{
    uint64_t held =
        ((uint64_t)seqs * ((uint64_t)window + KV_BLOCK_TOKENS - 3) + rows) / KV_BLOCK_TOKENS + seqs; /* sum of live */
    return window == 0 || held > most ? most : (uint32_t)held;
}

/* Tokens that the longest sequence may have, alone: UINT32_MAX when it never fills the pool. */
static inline uint32_t kv_group_tokens(KvGroup g)
{
    if (g.blocks > UINT32_MAX / KV_BLOCK_TOKENS || (g.window > 0 && kv_group_live(g.window, 1) <= g.blocks))
        return UINT32_MAX;
    return g.blocks * KV_BLOCK_TOKENS;
}

/* Rows of one step, at least 1, for which a sequence alone always finds blocks, up to `most`. */
static inline uint32_t kv_group_rows(KvGroup g, uint32_t most)
{
    while (most > 1 && g.window > 0 && kv_group_live(g.window, most) > g.blocks)
        most--;
    return most;
}
#endif
