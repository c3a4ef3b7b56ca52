/* hash.c - libxxhash and libsodium behind two small types. A Hasher is the library's aligned state. */
#include "core/hash.h"
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct Hasher {
    XXH3_state_t *state; /* by the library, which aligns it for its vectors */
};

static Hash128 from_xxh(XXH128_hash_t x)
{
    return (Hash128){.hi = x.high64, .lo = x.low64};
}

Hash128 hash_bytes(const void *p, size_t len)
{
    return from_xxh(XXH3_128bits(p, len));
}

void hash_hex(Hash128 h, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

Hasher *hasher_new(void)
{
    Hasher *h = malloc(sizeof *h);

    if (h == NULL)
        return NULL;
    h->state = XXH3_createState();
    if (h->state == NULL) {
        free(h);
        return NULL;
    }
    XXH3_128bits_reset(h->state);
    return h;
}

void hasher_add(Hasher *h, const void *p, size_t len)
{
    if (len > 0)
        XXH3_128bits_update(h->state, p, len);
}

void hasher_add_u64(Hasher *h, uint64_t v)
{
    unsigned char bytes[8]; /* little endian everywhere: a hash may be written to a file */

    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(v >> (8 * i));
    hasher_add(h, bytes, sizeof bytes);
}

void hasher_add_str(Hasher *h, const char *s)
{
    size_t len = strlen(s);

    hasher_add_u64(h, len);
    hasher_add(h, s, len);
}

Hash128 hasher_value(const Hasher *h)
{
    return from_xxh(XXH3_128bits_digest(h->state));
}

void hasher_free(Hasher *h)
{
    if (h == NULL)
        return;
    XXH3_freeState(h->state);
    free(h);
}

void sha256_hex(const void *p, size_t len, char hex[65])
{
    unsigned char digest[crypto_hash_sha256_BYTES];

    crypto_hash_sha256(digest, p, len);
    sodium_bin2hex(hex, 65, digest, sizeof digest);
}
