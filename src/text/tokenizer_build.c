/* tokenizer_build.c - hash maps, the byte alphabet, and the shared steps of both loaders.
 *
 * Byte-level BPE writes each byte of a token as one printable character, so that vocabularies are text: the printable
 * bytes of Latin-1 stand for themselves, the other 68 for U+0100 and up, in order (published with the 2019 model that
 * introduced it). Tokens are kept as the bytes they stand for, so encoding never sees that alphabet. */
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/utf8.h"
#include "text/tokenizer_internal.h"

/* --- maps ------------------------------------------------------------------------------------------------------ */

#define IDMAP_FREE UINT64_MAX

static uint64_t mix(uint64_t x) /* the finaliser of splitmix64 */
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static size_t slots_for(size_t expected)
{
    size_t n = 16;
    while (n < expected * 2)
        n *= 2;
    return n;
}

bool idmap_init(IdMap *m, size_t expected)
{
    size_t n = slots_for(expected);
    *m = (IdMap){.slot = malloc(n * 2 * sizeof *m->slot), .mask = n - 1};
    if (!m->slot)
        return false;
    for (size_t i = 0; i < n; i++)
        m->slot[2 * i] = IDMAP_FREE;
    return true;
}

void idmap_release(IdMap *m)
{
    free(m->slot);
    *m = (IdMap){0};
}

bool idmap_put(IdMap *m, uint64_t key, uint64_t value)
{
    if (!m->slot && !idmap_init(m, 8))
        return false;
    if ((m->n + 1) * 2 > m->mask + 1) {
        IdMap larger;
        if (!idmap_init(&larger, m->n * 2 + 8))
            return false;
        for (size_t i = 0; i <= m->mask; i++)
            if (m->slot[2 * i] != IDMAP_FREE)
                idmap_put(&larger, m->slot[2 * i], m->slot[2 * i + 1]);
        free(m->slot);
        *m = larger;
    }
    size_t i = mix(key) & m->mask;
    while (m->slot[2 * i] != IDMAP_FREE && m->slot[2 * i] != key)
        i = (i + 1) & m->mask;
    m->n += m->slot[2 * i] == IDMAP_FREE;
    m->slot[2 * i] = key;
    m->slot[2 * i + 1] = value;
    return true;
}

bool idmap_get(const IdMap *m, uint64_t key, uint64_t *value)
{
    if (!m->slot)
        return false;
    for (size_t i = mix(key) & m->mask; m->slot[2 * i] != IDMAP_FREE; i = (i + 1) & m->mask)
        if (m->slot[2 * i] == key) {
            *value = m->slot[2 * i + 1];
            return true;
        }
    return false;
}

/* The slot with these bytes, or the free one where they belong. */
static VocabSlot *vocab_slot(const Tokenizer *t, const char *bytes, size_t len, uint32_t hash)
{
    size_t i = hash & t->vocab.mask;
    for (;; i = (i + 1) & t->vocab.mask) {
        VocabSlot *s = &t->vocab.slot[i];
        if (s->id < 0 || (s->hash == hash && s->len == len && memcmp(t->blob.p + s->off, bytes, len) == 0))
            return s;
    }
}

static uint32_t bytes_hash(const char *bytes, size_t len)
{
    return (uint32_t)hash_bytes(bytes, len).lo;
}

int32_t vocab_find(const Tokenizer *t, const char *bytes, size_t len)
{
    return vocab_slot(t, bytes, len, bytes_hash(bytes, len))->id;
}

bool token_list_add(TokenList *l, int32_t id)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        int32_t *grown = cap <= SIZE_MAX / sizeof *grown ? realloc(l->id, cap * sizeof *grown) : NULL;
        if (!grown)
            return false;
        l->id = grown;
        l->cap = cap;
    }
    l->id[l->n++] = id;
    return true;
}

void token_list_release(TokenList *l)
{
    free(l->id);
    *l = TOKEN_LIST_INIT;
}

/* --- tokens ----------------------------------------------------------------------------------------------------- */

static bool stands_for_itself(uint32_t cp)
{
    return (cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xac) || (cp >= 0xae && cp <= 0xff);
}

/* Appends the bytes that text stands for to the blob. Text with a character outside of the alphabet stands for
 * itself; no word reaches such a token, but decoding prints it. */
static void blob_add_decoded(Str *blob, const char *text, size_t len)
{
    /* U+0100 + i is the i-th byte that does not stand for itself. */
    static const unsigned char shifted[68] = {
        0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,   16,
        17,   18,   19,   20,   21,   22,   23,   24,   25,   26,   27,   28,   29,   30,   31,   32,   0x7f,
        0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x8b, 0x8c, 0x8d, 0x8e, 0x8f, 0x90,
        0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0x9b, 0x9c, 0x9d, 0x9e, 0x9f, 0xa0, 0xad};
    size_t start = blob->len;
    for (size_t i = 0; i < len;) {
        uint32_t cp = 0;
        int n = utf8_decode(text + i, len - i, &cp);
        if (n > 0 && stands_for_itself(cp)) {
            str_addc(blob, (char)(unsigned char)cp);
        } else if (n > 0 && cp >= 0x100 && cp < 0x100 + sizeof shifted) {
            str_addc(blob, (char)shifted[cp - 0x100]);
        } else {
            blob->len = str_ok(blob) ? start : blob->len;
            str_add(blob, text, len);
            return;
        }
        i += (size_t)n;
    }
}

/* Appends the bytes that a vocabulary entry stands for. */
static void blob_add_token(const Tokenizer *t, Str *blob, const char *text, size_t len)
{
    if (t->spm)
        spm_add_spaced(blob, text, len);
    else
        blob_add_decoded(blob, text, len);
}

Status build_new(Tokenizer **out, size_t n_ids, size_t n_plain, Err *err)
{
    *out = NULL;
    if (n_ids == 0 || n_ids > TOK_MAX_IDS)
        return err_set(err, ST_FORMAT, "the tokenizer has %zu ids; 1 to %d are possible", n_ids, TOK_MAX_IDS);
    Tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(err, ST_NOMEM, "out of memory while loading the tokenizer");
    size_t n_slots = slots_for(n_plain);
    t->n_tokens = n_ids;
    t->unk = t->bos = t->eos = -1;
    memset(t->byte_id, 0xff, sizeof t->byte_id);
    t->token = calloc(n_ids, sizeof *t->token);
    t->vocab = (VocabMap){.slot = malloc(n_slots * sizeof *t->vocab.slot), .mask = n_slots - 1};
    if (!t->token || !t->vocab.slot) {
        tokenizer_free(t);
        return err_set(err, ST_NOMEM, "out of memory while loading the tokenizer");
    }
    for (size_t i = 0; i < n_slots; i++)
        t->vocab.slot[i].id = -1;
    *out = t;
    return ST_OK;
}

/* Records bytes that were just appended at blob[start..]. */
static Status record(Tokenizer *t, int64_t id, size_t start, TokenKind kind, Err *err)
{
    if (!str_ok(&t->blob))
        return err_set(err, ST_NOMEM, "out of memory while loading the tokenizer");
    if (t->blob.len > UINT32_MAX)
        return err_set(err, ST_FORMAT, "the tokens of the tokenizer take more than 4 GiB");
    t->token[id] = (TokenInfo){(uint32_t)start, (uint32_t)(t->blob.len - start), kind};
    return ST_OK;
}

static Status check_id(const Tokenizer *t, int64_t id, Err *err)
{
    if (id < 0 || (uint64_t)id >= t->n_tokens)
        return err_set(err, ST_FORMAT, "the token id %lld is out of range (the vocabulary has %zu ids)", (long long)id,
                       t->n_tokens);
    return ST_OK;
}

Status build_plain(Tokenizer *t, int64_t id, const char *text, size_t len, Err *err)
{
    Status st = check_id(t, id, err);
    if (st != ST_OK)
        return st;
    if (t->token[id].kind != TOKEN_MISSING)
        return err_set(err, ST_FORMAT, "the vocabulary gives the id %lld twice", (long long)id);
    size_t start = t->blob.len;
    blob_add_token(t, &t->blob, text, len);
    st = record(t, id, start, TOKEN_PLAIN, err);
    size_t n = t->blob.len - start;
    if (st != ST_OK || n == 0)
        return st;
    if (t->spm && memchr(text, ' ', len))
        return ST_OK; /* words spell their spaces U+2581, so none reaches it */
    if ((t->vocab.n + 1) * 2 > t->vocab.mask + 1)
        return err_set(err, ST_FORMAT, "the vocabulary has more tokens than it declares");
    uint32_t hash = bytes_hash(t->blob.p + start, n);
    VocabSlot *slot = vocab_slot(t, t->blob.p + start, n, hash);
    if (slot->id < 0) {
        *slot = (VocabSlot){(uint32_t)start, (uint32_t)n, (int32_t)id, hash};
        t->vocab.n++;
        t->longest = n > t->longest ? n : t->longest;
    }
    return ST_OK;
}

Status build_added(Tokenizer *t, AddedToken a, const char *text, size_t len, Err *err)
{
    Status st = check_id(t, a.id, err);
    if (st != ST_OK)
        return st;
    if (len == 0)
        return err_set(err, ST_FORMAT, "the added token %d has no text", a.id);
    if (t->token[a.id].kind == TOKEN_ADDED || t->token[a.id].kind == TOKEN_CONTROL)
        return err_set(err, ST_FORMAT, "two added tokens have the id %d", a.id);
    if (t->n_added == t->cap_added) {
        size_t cap = t->cap_added ? t->cap_added * 2 : 32;
        AddedToken *grown = realloc(t->added, cap * sizeof *grown);
        if (!grown)
            return err_set(err, ST_NOMEM, "out of memory while loading the tokenizer");
        t->added = grown;
        t->cap_added = cap;
    }
    size_t start = t->blob.len;
    str_add(&t->blob, text, len);
    st = record(t, a.id, start, a.control ? TOKEN_CONTROL : TOKEN_ADDED, err);
    a.off = t->token[a.id].off;
    a.len = t->token[a.id].len;
    t->added[t->n_added++] = a;
    if (st != ST_OK || !t->spm || a.control)
        return st;
    start = t->blob.len; /* matched as spelled, decoded with spaces */
    blob_add_token(t, &t->blob, text, len);
    return record(t, a.id, start, a.control ? TOKEN_CONTROL : TOKEN_ADDED, err);
}

Status build_byte(Tokenizer *t, int64_t id, const char *text, size_t len, Err *err)
{
    int byte = spm_byte(text, len);
    Status st = check_id(t, id, err);
    if (st != ST_OK)
        return st;
    if (byte < 0)
        return err_set(err, ST_FORMAT, "the byte token %lld is \"%.60s\"; <0x00> to <0xFF> are possible", (long long)id,
                       text);
    if (t->token[id].kind != TOKEN_MISSING)
        return err_set(err, ST_FORMAT, "the vocabulary gives the id %lld twice", (long long)id);
    size_t start = t->blob.len;
    str_addc(&t->blob, (char)(unsigned char)byte);
    t->byte_id[byte] = (int32_t)id;
    return record(t, id, start, TOKEN_PLAIN, err);
}

void build_hide(Tokenizer *t, int32_t id)
{
    t->token[id].kind = TOKEN_CONTROL;
}

bool build_add_end_id(Tokenizer *t, int64_t id)
{
    if (id < 0 || (uint64_t)id >= t->n_tokens)
        return false;
    if (tokenizer_is_end(t, (int32_t)id))
        return true;
    if (t->n_end_ids == TOK_MAX_END_IDS)
        return false;
    t->end_id[t->n_end_ids++] = (int32_t)id;
    return true;
}

/* --- merges ----------------------------------------------------------------------------------------------------- */

/* The id of one side of a merge; both sides' bytes stay behind each other in buf, which gives the result's bytes. */
static int32_t merge_side(const Tokenizer *t, Str *buf, const char *text, size_t len)
{
    size_t start = buf->len;
    blob_add_token(t, buf, text, len);
    return str_ok(buf) && buf->len > start ? vocab_find(t, buf->p + start, buf->len - start) : -1;
}

static Status add_merge(Tokenizer *t, Str *buf, size_t rank, const char *left, size_t left_len, const char *right,
                        size_t right_len, const char *where, Err *err)
{
    str_clear(buf);
    int32_t a = merge_side(t, buf, left, left_len), b = merge_side(t, buf, right, right_len);
    if (!str_ok(buf))
        return err_set(err, ST_NOMEM, "out of memory while loading the tokenizer");
    int32_t result = a >= 0 && b >= 0 ? vocab_find(t, buf->p, buf->len) : -1;
    if (result < 0)
        return err_set(err, ST_FORMAT,
                       "%s: merge %zu (\"%.40s\" with \"%.40s\") names a token that the vocabulary lacks", where, rank,
                       left, right);
    if (t->token[a].kind == TOKEN_CONTROL || t->token[b].kind == TOKEN_CONTROL ||
        t->token[result].kind == TOKEN_CONTROL)
        return ST_OK;
    if (!idmap_put(&t->merges, pair_key(a, b), merge_pack((uint32_t)rank, result)))
        return err_set(err, ST_NOMEM, "out of memory while loading the tokenizer");
    return ST_OK;
}

Status build_merges(Tokenizer *t, const json_t *merges, const char *where, Err *err)
{
    Status st = ST_OK;
    Str buf = STR_INIT, left_text = STR_INIT;
    size_t n = json_array_size(merges);
    if (!json_is_array(merges))
        return err_set(err, ST_FORMAT, "%s: must be a list of merges", where);
    if (n >= UINT32_MAX || !idmap_init(&t->merges, n))
        return err_set(err, ST_NOMEM, "out of memory while loading the tokenizer");
    for (size_t i = 0; i < n; i++) {
        const json_t *m = json_array_get(merges, i);
        const json_t *a = json_array_get(m, 0), *b = json_array_get(m, 1); /* NULL unless m is a list */
        if (json_is_string(a) && json_is_string(b) && json_array_size(m) == 2) {
            TRY(add_merge(t, &buf, i, json_string_value(a), json_string_length(a), json_string_value(b),
                          json_string_length(b), where, err));
            continue;
        }
        /* "left right": the alphabet has no space, so the first one behind the first character separates. */
        const char *text = json_is_string(m) ? json_string_value(m) : "";
        const char *space = *text ? strchr(text + 1, ' ') : NULL;
        if (!space || !space[1])
            TRY(err_set(err, ST_FORMAT, "%s: merge %zu must be \"left right\" or [left, right]", where, i));
        str_clear(&left_text); /* a string of its own, for the message */
        str_add(&left_text, text, (size_t)(space - text));
        TRY(add_merge(t, &buf, i, str_c(&left_text), left_text.len, space + 1, strlen(space + 1), where, err));
    }
done:
    str_release(&left_text);
    str_release(&buf);
    return st;
}

/* --- tries and the rest ----------------------------------------------------------------------------------------- */

static bool trie_add(AddedTrie *trie, const char *text, size_t len, size_t index)
{
    uint64_t node = 0, seen;
    if (trie->n_nodes == 0)
        trie->n_nodes = 1;
    trie->first[(unsigned char)text[0]] = true;
    for (size_t i = 0; i < len; i++) {
        uint64_t key = node << 8 | (unsigned char)text[i];
        if (!idmap_get(&trie->edge, key, &node)) {
            node = trie->n_nodes++;
            if (!idmap_put(&trie->edge, key, node))
                return false;
        }
    }
    trie->n++;
    return idmap_get(&trie->leaf, node, &seen) || idmap_put(&trie->leaf, node, index); /* the first of twins wins */
}

Status build_finish(Tokenizer *t, Err *err)
{
    Status st = ST_OK;
    Str text = STR_INIT;
    PatternScratch *scratch = pattern_scratch_new();
    if (!scratch)
        TRY(err_set(err, ST_NOMEM, "out of memory while loading the tokenizer"));
    for (size_t i = 0; i < t->n_added; i++) {
        const AddedToken *a = &t->added[i];
        const char *bytes = t->blob.p + a->off;
        if (a->normalized) /* matched in normalised text, so its own spelling is normalised first */
            TRY(normalizer_run(&t->normalizer, scratch, bytes, a->len, &text, err));
        else
            str_clear(&text), str_add(&text, bytes, a->len);
        if (!str_ok(&text))
            TRY(err_set(err, ST_NOMEM, "out of memory while loading the tokenizer"));
        if (text.len == 0)
            continue;
        if (!trie_add(a->normalized ? &t->normal : &t->raw, text.p, text.len, i))
            TRY(err_set(err, ST_NOMEM, "out of memory while loading the tokenizer"));
        t->normal_has_control |= a->normalized && a->control;
    }
    for (int b = 0; b < 256 && !t->spm; b++) {
        char byte = (char)(unsigned char)b;
        int32_t id = vocab_find(t, &byte, 1);
        t->byte_id[b] = id >= 0 && t->token[id].kind != TOKEN_CONTROL ? id : -1;
    }
done:
    pattern_scratch_free(scratch);
    str_release(&text);
    return st;
}
