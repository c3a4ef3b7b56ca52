/* numeric: every binary16 value, the midpoints between all neighbours, and bfloat16. All comparisons are exact. */
#include "core/numeric.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The value of a finite binary16 by its definition. */
static double f16_value(uint16_t h)
{
    int exponent = (h >> 10) & 0x1f;
    double fraction = h & 0x3ff;
    double v = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return (h & 0x8000) != 0 ? -v : v;
}

static void f16__all_65536_values_widen_exactly_and_round_trip(void **state)
{
    (void)state;
    for (uint32_t u = 0; u < 0x10000; u++) {
        uint16_t h = (uint16_t)u;
        float f = f16_to_f32(h);
        if ((h & 0x7c00) != 0x7c00) {
            if ((double)f != f16_value(h) || (signbit(f) != 0) != (h >> 15 != 0))
                fail_msg("%04x widens to %a", u, (double)f);
        } else if ((h & 0x3ff) == 0) {
            assert_true(isinf(f) && (signbit(f) != 0) == (h >> 15 != 0));
        }
        if ((h & 0x7fff) > 0x7c00) { /* a NaN comes back quiet, with its sign and payload */
            assert_true(isnan(f));
            assert_int_equal(f32_to_f16(f), h | 0x200);
        } else if (f32_to_f16(f) != h) {
            fail_msg("%04x comes back as %04x", u, f32_to_f16(f));
        }
    }
}

static void f16__rounds_to_nearest_and_ties_to_even(void **state)
{
    (void)state;
    /* Between every two neighbours, subnormal ones and the step to infinity (65504 to 65536) among them. The midpoint
     * has 12 significant bits, hence is exact in binary32. */
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double a = f16_value((uint16_t)h), b = h == 0x7bff ? 65536.0 : f16_value((uint16_t)(h + 1));
        float mid = (float)((a + b) / 2);
        uint32_t even = (h & 1) == 0 ? h : h + 1;
        assert_int_equal(f32_to_f16(mid), even);
        assert_int_equal(f32_to_f16(-mid), even | 0x8000);
        assert_int_equal(f32_to_f16(nextafterf(mid, 0.0f)), h);
        assert_int_equal(f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
    }
}

static void f16__the_far_ends_become_infinity_and_zero(void **state)
{
    (void)state;
    assert_int_equal(f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(f32_to_f16(1e-30f), 0x0000);
    assert_int_equal(f32_to_f16_saturated(65504.0f), 0x7bff);
    assert_int_equal(f32_to_f16_saturated(65520.0f), 0x7bff);
    assert_int_equal(f32_to_f16_saturated(INFINITY), 0x7bff);
    assert_int_equal(f32_to_f16_saturated(-1e30f), 0xfbff);
    assert_int_equal(f32_to_f16_saturated(nanf("")) & 0x7e00, 0x7e00);
    assert_int_equal(f32_to_f16_saturated(-0.0f), 0x8000);
    assert_int_equal(f32_to_f16_saturated(1.0f), 0x3c00);
    assert_int_equal(f32_to_f16(-1e-45f), 0x8000);
    assert_int_equal(f32_to_f16(0x1p-25f), 0x0000);
}

static void f16__a_nan_with_a_low_payload_stays_a_nan(void **state)
{
    uint32_t u = 0x7f800001u;
    float f;
    (void)state;
    memcpy(&f, &u, sizeof f);
    assert_int_equal(f32_to_f16(f), 0x7e00);
}

static void bf16__all_values_round_trip_and_ties_go_to_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = bf16_to_f32((uint16_t)h);
        uint32_t u = h << 16 | 0x8000u;
        float mid;
        if ((h & 0x7fff) > 0x7f80) {
            assert_true(isnan(f));
            assert_int_equal(f32_to_bf16(f), h | 0x40);
            continue;
        }
        assert_int_equal(f32_to_bf16(f), h);
        if ((h & 0x7fff) == 0x7f80)
            continue;
        memcpy(&mid, &u, sizeof mid);
        assert_int_equal(f32_to_bf16(mid), (h & 1) == 0 ? h : h + 1);
    }
}

/* Each value of the format, the middle to the next one, and its neighbours on both sides. */
static void check_float8(uint32_t largest, float (*widen)(uint8_t), uint8_t (*narrow)(float), uint32_t sign)
{
    for (uint32_t code = 0; code <= largest; code++) {
        float at = widen((uint8_t)code), next = code < largest ? widen((uint8_t)(code + 1)) : 0, mid = (at + next) / 2;

        assert_int_equal(narrow(at), code);
        assert_int_equal(narrow(-at), code > 0 || sign == 0x80 ? code | sign : code);
        if (code == largest)
            break;
        uint32_t even = (code & 1) == 0 ? code : code + 1;
        assert_int_equal(narrow(mid), even);
        assert_int_equal(narrow(-mid), even ? even | sign : narrow(-0.0f));
        assert_int_equal(narrow(nextafterf(mid, 0.0f)), code);
        assert_int_equal(narrow(nextafterf(mid, INFINITY)), code + 1);
    }
    for (float f = widen((uint8_t)largest); f < 1e9f; f *= 1.01f) {
        assert_int_equal(narrow(f), largest);
        assert_int_equal(narrow(-f), largest | sign);
    }
    assert_int_equal(narrow(INFINITY), largest);
    assert_int_equal(narrow(-INFINITY), largest | sign);
}

static uint8_t e2m1_unsigned_zero(float f)
{
    return f == 0 ? 0 : (f32_to_e2m1(f) & 7) == 0 ? 0 : f32_to_e2m1(f);
}

static void e4m3__rounds_to_nearest_even_and_saturates(void **state)
{
    (void)state;
    check_float8(0x7e, e4m3_to_f32, f32_to_e4m3, 0x80);
    assert_int_equal(f32_to_e4m3(NAN) & 0x7f, 0x7f);
    assert_true(e4m3_to_f32(f32_to_e4m3(500.0f)) == 448.0f);
}

static void e2m1__rounds_to_nearest_even_and_saturates(void **state)
{
    (void)state;
    check_float8(7, e2m1_to_f32, e2m1_unsigned_zero, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16__all_65536_values_widen_exactly_and_round_trip),
        cmocka_unit_test(f16__rounds_to_nearest_and_ties_to_even),
        cmocka_unit_test(f16__the_far_ends_become_infinity_and_zero),
        cmocka_unit_test(f16__a_nan_with_a_low_payload_stays_a_nan),
        cmocka_unit_test(bf16__all_values_round_trip_and_ties_go_to_even),
        cmocka_unit_test(e4m3__rounds_to_nearest_even_and_saturates),
        cmocka_unit_test(e2m1__rounds_to_nearest_even_and_saturates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
