/* hash.h - content hashes. XXH3-128 (libxxhash) identifies artifacts and plans; it is not a signature. */
#ifndef METRALE_CORE_HASH_H
#define METRALE_CORE_HASH_H
#include <stddef.h>
#include <stdint.h>

typedef struct Hash128 {
    uint64_t hi, lo;
} Hash128;
typedef struct Hasher Hasher;

Hash128 hash_bytes(const void *p, size_t len);
void hash_hex(Hash128 h, char out[33]);

Hasher *hasher_new(void); /* NULL when out of memory */
void hasher_add(Hasher *h, const void *p, size_t len);
/* Adds the length first, so that ("ab","c") and ("a","bc") differ. */
void hasher_add_str(Hasher *h, const char *s);
void hasher_add_u64(Hasher *h, uint64_t v);
Hash128 hasher_value(const Hasher *h);
void hasher_free(Hasher *h);

/* SHA-256 by libsodium: digests of downloads. hex gets 64 characters and NUL. */
void sha256_hex(const void *p, size_t len, char hex[65]);
#endif
