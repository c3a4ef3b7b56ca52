/* hash: published test values, and streams equal to whole buffers. */
#include "core/hash.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void hash__is_xxh3_128_in_canonical_order(void **state)
{
    char hex[33];
    (void)state;
    hash_hex(hash_bytes("", 0), hex); /* as xxh128sum prints it */
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
    hash_hex((Hash128){.hi = 1, .lo = UINT64_C(0xabcdef)}, hex);
    assert_string_equal(hex, "00000000000000010000000000abcdef");
}

static void hasher__a_stream_equals_the_whole(void **state)
{
    unsigned char bytes[5000];
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 131 >> 3);
    Hasher *h = hasher_new();
    assert_non_null(h);
    for (size_t i = 0, n = 0; i < sizeof bytes; i += n) {
        n = i % 97 < sizeof bytes - i ? i % 97 + 1 : 1;
        if (n > sizeof bytes - i)
            n = sizeof bytes - i;
        hasher_add(h, bytes + i, n);
    }
    Hash128 stream = hasher_value(h), whole = hash_bytes(bytes, sizeof bytes);
    assert_true(stream.hi == whole.hi && stream.lo == whole.lo);
    hasher_free(h);
    hasher_free(NULL);
}

static Hash128 of_two(const char *a, const char *b)
{
    Hasher *h = hasher_new();
    hasher_add_str(h, a);
    hasher_add_str(h, b);
    Hash128 v = hasher_value(h);
    hasher_free(h);
    return v;
}

static void hasher__strings_keep_their_boundaries(void **state)
{
    (void)state;
    Hash128 x = of_two("ab", "c"), y = of_two("a", "bc"), z = of_two("ab", "c");
    assert_false(x.hi == y.hi && x.lo == y.lo);
    assert_true(x.hi == z.hi && x.lo == z.lo);
}

static void hasher__integers_are_little_endian_on_every_machine(void **state)
{
    (void)state;
    Hasher *h = hasher_new();
    hasher_add_u64(h, UINT64_C(0x0807060504030201));
    Hash128 v = hasher_value(h), w = hash_bytes("\1\2\3\4\5\6\7\10", 8);
    assert_true(v.hi == w.hi && v.lo == w.lo);
    hasher_free(h);
}

static void sha256__matches_the_standard(void **state)
{
    char hex[65];
    (void)state;
    sha256_hex("abc", 3, hex); /* FIPS 180-2, appendix B.1 */
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_hex("", 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash__is_xxh3_128_in_canonical_order),
        cmocka_unit_test(hasher__a_stream_equals_the_whole),
        cmocka_unit_test(hasher__strings_keep_their_boundaries),
        cmocka_unit_test(hasher__integers_are_little_endian_on_every_machine),
        cmocka_unit_test(sha256__matches_the_standard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
