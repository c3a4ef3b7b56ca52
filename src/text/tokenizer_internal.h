/* tokenizer_internal.h - the parts of a Tokenizer; only tokenizer*.c include this. */
#ifndef METRALE_TEXT_TOKENIZER_INTERNAL_H
#define METRALE_TEXT_TOKENIZER_INTERNAL_H
#include "core/str.h"
#include "text/normalize.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

enum {
    TOK_MAX_IDS = 1 << 22,  /* ids are below this; published vocabularies end under 2^19 */
    TOK_MAX_TEXT = 1 << 30, /* bytes of one text, so that positions fit 32 bits with room */
    TOK_MAX_END_IDS = 64,
    TOK_MAX_PREFIX = 8,
};

/* From 64 bits to 64 bits by open addressing. Immutable after building. The all-ones key is not storable. */
typedef struct IdMap {
    uint64_t *slot; /* pairs: key, value */
    size_t mask, n;
} IdMap;
bool idmap_init(IdMap *m, size_t expected);
void idmap_release(IdMap *m);
bool idmap_put(IdMap *m, uint64_t key, uint64_t value); /* replaces; false when out of memory */
bool idmap_get(const IdMap *m, uint64_t key, uint64_t *value);

/* From byte strings (in the tokenizer's blob) to ids. */
typedef struct VocabSlot {
    uint32_t off, len;
    int32_t id; /* -1: free */
    uint32_t hash;
} VocabSlot;
typedef struct VocabMap {
    VocabSlot *slot;
    size_t mask, n;
} VocabMap;

typedef enum { TOKEN_MISSING = 0, TOKEN_PLAIN, TOKEN_ADDED, TOKEN_CONTROL } TokenKind;

typedef struct TokenInfo {
    uint32_t off, len; /* its bytes in the blob */
    TokenKind kind;
} TokenInfo;

typedef struct AddedToken {
    int32_t id;
    bool control, lstrip, rstrip, single_word, normalized;
    uint32_t off, len; /* the text that it matches, in the blob; build_added sets them */
} AddedToken;

/* A byte trie: edge (node << 8 | byte) -> node; leaf: node -> index of the added token that ends there. */
typedef struct AddedTrie {
    IdMap edge, leaf;
    size_t n_nodes, n;
    bool first[256]; /* bytes that some token begins with: the fast way past ordinary text */
} AddedTrie;

/* Rank and result of one merge, packed as the value of the merge map. */
static inline uint64_t merge_pack(uint32_t rank, int32_t id)
{
    return (uint64_t)rank << 32 | (uint32_t)id;
}
static inline uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

struct Tokenizer {
    Str blob; /* the bytes of every token */
    TokenInfo *token;
    size_t n_tokens;
    VocabMap vocab;       /* plain tokens, by bytes */
    size_t longest;       /* bytes of the longest of them */
    int32_t byte_id[256]; /* single bytes; -1: no such token */
    IdMap merges;         /* (left id, right id) -> (rank, result id) */
    bool spm;             /* SentencePiece BPE (tokenizer_spm.c): set before any token is added */
    uint32_t *rank;       /* spm by scores: the order of merging to each id, lowest first. NULL: `merges` says it */
    bool fuse_unk;        /* spm: unknown characters in a row become one unknown token */
    bool strips_space;    /* decoding a whole text takes one space off its front */
    bool ignore_merges;   /* a word that is in the vocabulary is one token, whatever the merges say */

    AddedToken *added;
    size_t n_added, cap_added;
    AddedTrie raw, normal; /* matched before and after normalisation */
    bool normal_has_control;

    Normalizer normalizer;
    Normalizer at_start; /* instead of it for the stretch that begins the text, unless it is empty */
    PreTokenizer pre;

    int32_t unk, bos, eos;
    int32_t prefix[TOK_MAX_PREFIX]; /* what TOK_ADD_BOS puts in front */
    size_t n_prefix;
    int32_t end_id[TOK_MAX_END_IDS];
    size_t n_end_ids;
};

/* --- building (tokenizer_build.c); all name the id or token in their messages ---------------------------------- */
Status build_new(Tokenizer **out, size_t n_ids, size_t n_plain, Err *err);
/* A token of the BPE vocabulary, written in the byte alphabet (spm: with U+2581 for spaces). Empty text and a second token with the same bytes are
 * kept for decoding, but not found by encoding. */
Status build_plain(Tokenizer *t, int64_t id, const char *text, size_t len, Err *err);
/* A token matched as it is. Its id may already be a plain token; its text replaces that one's bytes. */
Status build_added(Tokenizer *t, AddedToken a, const char *text, size_t len, Err *err);
/* The token of one byte, spelled <0xNN>; only characters without a token become such. */
Status build_byte(Tokenizer *t, int64_t id, const char *text, size_t len, Err *err);
/* Marks an id as control without making its text match. */
void build_hide(Tokenizer *t, int32_t id);
/* Call after all tokens. Merges that touch a control token are left out: ordinary text must not become one. */
Status build_merges(Tokenizer *t, const json_t *merges, const char *where, Err *err);
/* Tries, byte tokens, checks. Call last. */
Status build_finish(Tokenizer *t, Err *err);
bool build_add_end_id(Tokenizer *t, int64_t id); /* false: out of range, or the list is full */

int32_t vocab_find(const Tokenizer *t, const char *bytes, size_t len); /* -1: none */

/* --- BPE (tokenizer_bpe.c) -------------------------------------------------------------------------------------- */
typedef struct BpeScratch {
    int32_t *id;
    uint32_t *prev, *next, *rank;
    uint64_t *heap;
    size_t cap, n_heap; /* heap has room for 3 * cap entries */
    Str text;           /* spm: the word with its spaces */
} BpeScratch;
void bpe_scratch_release(BpeScratch *s);
/* Makes room for a word of n symbols; what the arrays held is lost, text stays. */
bool bpe_scratch_reserve(BpeScratch *s, size_t n);
void bpe_heap_push(BpeScratch *s, uint64_t entry);
uint64_t bpe_heap_pop(BpeScratch *s); /* the lowest entry */
/* Appends the ids of one word. */
Status bpe_word(const Tokenizer *t, const char *word, size_t len, BpeScratch *s, TokenList *out, Err *err);

/* --- SentencePiece BPE (tokenizer_spm.c) ------------------------------------------------------------------------- */
void spm_add_spaced(Str *out, const char *text, size_t len); /* appends text with a space for each U+2581 */
int spm_byte(const char *text, size_t len);                  /* of <0xNN>; -1 when the text is not of that form */
Status spm_read_scores(Tokenizer *t, const json_t *scores, Err *err); /* of GGUF metadata: fills t->rank */
/* Reads pre_tokenizer, decoder and model.fuse_unk of a tokenizer.json. Call once the normaliser has been read. */
Status spm_read_json(Tokenizer *t, const json_t *root, Err *err);
/* Appends the ids of one word, which may be the whole text. */
Status spm_word(const Tokenizer *t, const char *word, size_t len, BpeScratch *s, TokenList *out, Err *err);
#endif
