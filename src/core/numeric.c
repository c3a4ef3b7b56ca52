/* numeric.c - IEEE 754 binary16 by integer arithmetic, the same on every machine and rounding mode.
 *
 *   binary16: sign 1, exponent 5 (bias 15),  fraction 10; binary32: sign 1, exponent 8 (bias 127), fraction 23.
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even: the kept bits get a carry when the dropped ones are
 * above one half, or are one half and the kept ones are odd. The carry may run into the exponent, and that is right:
 * the largest subnormal becomes the smallest normal, the largest normal becomes infinity. */
#include "core/numeric.h"

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t fraction = h & 0x3ffu;
    uint32_t u;
    float f;

    if (exponent == 0x1f) { /* infinity, NaN */
        u = sign | 0x7f800000u | fraction << 13;
    } else if (exponent != 0) {
        u = sign | (exponent + 127 - 15) << 23 | fraction << 13;
    } else if (fraction == 0) {
        u = sign;
    } else { /* subnormal, fraction * 2^-24: normal in binary32 */
        exponent = 127 - 14;
        while ((fraction & 0x400u) == 0) {
            fraction <<= 1;
            exponent--;
        }
        u = sign | exponent << 23 | (fraction & 0x3ffu) << 13;
    }
    memcpy(&f, &u, sizeof f);
    return f;
}

/* x / 2^drop, to nearest, ties to even; drop is 1..31. */
static uint32_t shift_round(uint32_t x, uint32_t drop)
{
    uint32_t kept = x >> drop;
    uint32_t rest = x & ((1u << drop) - 1);
    uint32_t half = 1u << (drop - 1);

    return kept + (rest > half || (rest == half && (kept & 1u) != 0));
}

uint16_t f32_to_f16(float f)
{
    uint32_t u, sign, magnitude, exponent, result;

    memcpy(&u, &f, sizeof u);
    sign = (u >> 16) & 0x8000u;
    magnitude = u & 0x7fffffffu;
    exponent = magnitude >> 23;
    if (magnitude > 0x7f800000u) /* NaN stays a NaN, made quiet, with the upper bits of its payload */
        result = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    else if (exponent >= 127 + 16) /* 2^16 and up, infinity */
        result = 0x7c00u;
    else if (exponent >= 127 - 14) /* normal: move the bias, drop 13 bits */
        result = shift_round(magnitude - ((127 - 15) << 23), 13);
    else if (exponent >= 127 - 25) /* subnormal: the leading one becomes a fraction bit, the unit is 2^-24 */
        result = shift_round((magnitude & 0x7fffffu) | 0x800000u, 127 - 14 - exponent + 13);
    else /* below half of the smallest subnormal */
        result = 0;
    return (uint16_t)(sign | result);
}

float e4m3_to_f32(uint8_t b)
{
    uint32_t exponent = b >> 3 & 15, fraction = b & 7, u;
    float f;

    if ((b & 0x7f) == 0x7f)
        u = 0x7fc00000u;
    else if (exponent != 0)
        u = (exponent + 127 - 7) << 23 | fraction << 20;
    else { /* fraction * 2^-9, an exact product */
        f = (float)fraction * 0x1p-9f;
        memcpy(&u, &f, sizeof u);
    }
    u |= (uint32_t)(b & 0x80) << 24;
    memcpy(&f, &u, sizeof f);
    return f;
}

float e8m0_to_f32(uint8_t b)
{
    uint32_t u = b == 255 ? 0x7fc00000u : b == 0 ? 0x00400000u : (uint32_t)b << 23; /* 2^-127 is subnormal */
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

float e2m1_to_f32(uint8_t code)
{
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

    return code & 8 ? -values[code & 7] : values[code & 7];
}

uint8_t f32_to_e4m3(float f)
{
    uint32_t u, sign, magnitude, exponent, code;

    memcpy(&u, &f, sizeof u);
    sign = u >> 24 & 0x80u;
    magnitude = u & 0x7fffffffu;
    exponent = magnitude >> 23;
    if (magnitude > 0x7f800000u)
        code = 0x7f;
    else if (exponent >= 127 + 9) /* 512 and up */
        code = 0x7e;
    else if (exponent >= 127 - 6) /* normal: move the bias, drop 20 bits; what 464 and up becomes is no value */
        code = shift_round(magnitude - ((127 - 7) << 23), 20);
    else if (exponent >= 127 - 10) /* subnormal: the unit is 2^-9 */
        code = shift_round((magnitude & 0x7fffffu) | 0x800000u, 127 - 6 - exponent + 20);
    else
        code = 0;
    if (code > 0x7e && magnitude <= 0x7f800000u)
        code = 0x7e;
    return (uint8_t)(sign | code);
}

uint8_t f32_to_e2m1(float f)
{
    /* Halfway to the next code; an even code keeps its tie. */
    static const float halves[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    const uint8_t sign = f < 0 ? 8 : 0;
    const float x = f < 0 ? -f : f;
    uint8_t code = 0;

    while (code < 7 && (x > halves[code] || (x == halves[code] && (code & 1) != 0)))
        code++;
    return sign | code;
}
