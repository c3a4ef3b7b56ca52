/* tokenizer_bpe.c - byte pair encoding of one word: heap and linked list, O(n log n).
 *
 * A word starts as one symbol a byte. The neighbouring pair of lowest rank is merged, the leftmost first among equals,
 * until no neighbours merge. The heap holds (rank, position) of candidate pairs and is never searched: a merge leaves
 * stale entries behind. Invariant: rank[i] is the rank of the pair that begins at symbol i now, or NO_RANK; a rank
 * names one (left, right) pair, so an entry is live exactly when its rank still equals rank[position].
 * Each merge removes one symbol and adds at most two entries, so n symbols see at most 3n entries. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_internal.h"

enum { NO_SYMBOL = -1 };
#define NO_POS  UINT32_MAX
#define NO_RANK UINT32_MAX

void bpe_scratch_release(BpeScratch *s)
{
    free(s->id);
    free(s->prev);
    free(s->next);
    free(s->rank);
    free(s->heap);
    str_release(&s->text);
    *s = (BpeScratch){0};
}

bool bpe_scratch_reserve(BpeScratch *s, size_t n)
{
    if (n <= s->cap)
        return true;
    size_t cap = s->cap ? s->cap : 64;
    while (cap < n)
        cap *= 2;       /* n is at most TOK_MAX_TEXT */
    Str text = s->text; /* outlives the arrays: it may hold the word that they are for */
    s->text = STR_INIT;
    bpe_scratch_release(s);
    s->text = text;
    s->id = malloc(cap * sizeof *s->id);
    s->prev = malloc(cap * sizeof *s->prev);
    s->next = malloc(cap * sizeof *s->next);
    s->rank = malloc(cap * sizeof *s->rank);
    s->heap = malloc(cap * 3 * sizeof *s->heap);
    if (!s->id || !s->prev || !s->next || !s->rank || !s->heap) {
        bpe_scratch_release(s);
        return false;
    }
    s->cap = cap;
    return true;
}

/* A heap of eight children a node: for long words the cost is cache misses, one a level here. */
enum { HEAP_ARITY = 8 };

void bpe_heap_push(BpeScratch *s, uint64_t entry)
{
    size_t i = s->n_heap++;
    while (i > 0 && s->heap[(i - 1) / HEAP_ARITY] > entry) {
        s->heap[i] = s->heap[(i - 1) / HEAP_ARITY];
        i = (i - 1) / HEAP_ARITY;
    }
    s->heap[i] = entry;
}

uint64_t bpe_heap_pop(BpeScratch *s)
{
    uint64_t top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0;
    for (;;) {
        size_t first = HEAP_ARITY * i + 1;
        if (first >= s->n_heap)
            break;
        size_t end = first + HEAP_ARITY < s->n_heap ? first + HEAP_ARITY : s->n_heap, child = first;
        for (size_t k = first + 1; k < end; k++)
            if (s->heap[k] < s->heap[child])
                child = k;
        if (s->heap[child] >= last)
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

/* Looks up the pair that begins at pos and queues it when it merges. */
static void queue_pair(const Tokenizer *t, BpeScratch *s, uint32_t pos)
{
    uint64_t merge;
    uint32_t right = s->next[pos];
    s->rank[pos] = NO_RANK;
    if (right == NO_POS || !idmap_get(&t->merges, pair_key(s->id[pos], s->id[right]), &merge))
        return;
    s->rank[pos] = (uint32_t)(merge >> 32);
    bpe_heap_push(s, (merge & 0xffffffff00000000u) | pos);
}

/* One symbol a byte. Bytes without a token become the unknown token, or nothing. Returns the number of symbols. */
static uint32_t symbols_init(const Tokenizer *t, const char *word, size_t len, BpeScratch *s)
{
    uint32_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int32_t id = t->byte_id[(unsigned char)word[i]];
        if (id < 0)
            id = t->unk;
        if (id < 0)
            continue;
        s->id[n] = id;
        s->prev[n] = n ? n - 1 : NO_POS;
        s->next[n] = n + 1;
        n++;
    }
    if (n)
        s->next[n - 1] = NO_POS;
    return n;
}

Status bpe_word(const Tokenizer *t, const char *word, size_t len, BpeScratch *s, TokenList *out, Err *err)
{
    if (t->ignore_merges || len == 1) {
        int32_t id = vocab_find(t, word, len);
        if (id >= 0 && t->token[id].kind != TOKEN_CONTROL)
            return token_list_add(out, id) ? ST_OK : err_set(err, ST_NOMEM, "out of memory while encoding text");
    }
    if (!bpe_scratch_reserve(s, len))
        return err_set(err, ST_NOMEM, "out of memory while encoding text");

    uint32_t n = symbols_init(t, word, len, s);
    s->n_heap = 0;
    for (uint32_t i = 0; i < n; i++)
        queue_pair(t, s, i);

    while (s->n_heap) {
        uint64_t entry = bpe_heap_pop(s);
        uint32_t pos = (uint32_t)entry, rank = (uint32_t)(entry >> 32);
        if (s->rank[pos] != rank)
            continue; /* stale */
        uint32_t right = s->next[pos];
        uint64_t merge = 0;
        idmap_get(&t->merges, pair_key(s->id[pos], s->id[right]), &merge);
        s->id[pos] = (int32_t)(uint32_t)merge;
        s->id[right] = NO_SYMBOL;
        s->rank[right] = NO_RANK;
        s->next[pos] = s->next[right];
        if (s->next[pos] != NO_POS)
            s->prev[s->next[pos]] = pos;
        queue_pair(t, s, pos);
        if (s->prev[pos] != NO_POS)
            queue_pair(t, s, s->prev[pos]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (s->id[i] != NO_SYMBOL && !token_list_add(out, s->id[i]))
            return err_set(err, ST_NOMEM, "out of memory while encoding text");
    return ST_OK;
}
