/* utf8: against the definition (RFC 3629) written the other way round, and for every scalar value. */
#include "core/utf8.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool is_scalar(uint32_t cp)
{
    return cp < 0xd800 || (cp > 0xdfff && cp <= 0x10ffff);
}

static void utf8__every_scalar_value_round_trips(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        char buf[4];
        uint32_t back = 0;
        if (!is_scalar(cp))
            continue;
        int n = utf8_encode(cp, buf);
        if (n != (cp < 0x80      ? 1
                  : cp < 0x800   ? 2
                  : cp < 0x10000 ? 3
                                 : 4) ||
            utf8_decode(buf, 4, &back) != n || back != cp)
            fail_msg("U+%04X does not round trip", (unsigned)cp);
        for (int cut = 1; cut < n; cut++) /* every true prefix asks for more */
            if (utf8_decode(buf, (size_t)cut, &back) != -1)
                fail_msg("U+%04X cut to %d bytes is not a beginning", (unsigned)cp, cut);
    }
}

/* Any three bytes decode exactly when an encoder could have written them. */
static void utf8__only_what_the_encoder_writes_decodes(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < 1u << 24; v += 1) {
        char s[3] = {(char)(v >> 16), (char)(v >> 8), (char)v}, again[4];
        uint32_t cp = 0;
        int n = utf8_decode(s, 3, &cp);
        if (n > 0 && (!is_scalar(cp) || utf8_encode(cp, again) != n || memcmp(again, s, (size_t)n) != 0))
            fail_msg("%06x decodes to U+%04X, which is written otherwise", (unsigned)v, (unsigned)cp);
    }
}

static void utf8__malformed_bytes_are_invalid(void **state)
{
    static const char *const bad[] = {
        "\x80",             /* continuation first */
        "\xbf",             /* */
        "\xc0\x80",         /* overlong NUL */
        "\xc1\xbf",         /* overlong */
        "\xe0\x80\x80",     /* overlong */
        "\xe0\x9f\xbf",     /* overlong */
        "\xed\xa0\x80",     /* surrogate */
        "\xed\xbf\xbf",     /* surrogate */
        "\xf0\x80\x80\x80", /* overlong */
        "\xf0\x8f\xbf\xbf", /* overlong */
        "\xf4\x90\x80\x80", /* above U+10FFFF */
        "\xf5\x80\x80\x80", /* */
        "\xff",             /* never used */
        "\xc3(",            /* no continuation */
        "\xe2\x82(",        /* */
        "\xf0\x9f\x98(",    /* */
        "\xed\xa0",         /* a surrogate is known by its second byte */
        "\xf4\x90",         /* so is a value that is too large */
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t cp;
        if (utf8_decode(bad[i], strlen(bad[i]), &cp) != 0)
            fail_msg("case %zu was not refused", i);
        assert_false(utf8_valid(bad[i], strlen(bad[i])));
    }
}

static void utf8__validates_whole_texts(void **state)
{
    (void)state;
    assert_true(utf8_valid("", 0));
    assert_true(utf8_valid("a\0b", 3));
    assert_true(utf8_valid("h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10));
    assert_false(utf8_valid("h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9)); /* cut */
}

static void utf8_whole__holds_back_only_a_beginning(void **state)
{
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
    static const size_t whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
    (void)state;
    for (size_t len = 0; len < sizeof whole / sizeof whole[0]; len++)
        assert_int_equal(utf8_whole(text, len), whole[len]);
    assert_int_equal(utf8_whole("a\xff", 2), 2);     /* invalid, waiting would not help */
    assert_int_equal(utf8_whole("a\xed\xa0", 3), 3); /* likewise */
    assert_int_equal(utf8_whole("\x80\x80\x80\x80", 4), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8__every_scalar_value_round_trips),
        cmocka_unit_test(utf8__only_what_the_encoder_writes_decodes),
        cmocka_unit_test(utf8__malformed_bytes_are_invalid),
        cmocka_unit_test(utf8__validates_whole_texts),
        cmocka_unit_test(utf8_whole__holds_back_only_a_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
