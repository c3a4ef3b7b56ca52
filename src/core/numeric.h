/* numeric.h - scalar conversions, exact or correctly rounded (to nearest even). Formulas: IEEE 754, bfloat16 = the
 * upper half of f32. */
#ifndef METRALE_CORE_NUMERIC_H
#define METRALE_CORE_NUMERIC_H
#include <stdint.h>
#include <string.h>

static inline float bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint16_t f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) /* NaN stays a NaN */
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
/* OCP 8-bit floating point, E4M3: bias 7, no infinities, all ones but the sign is NaN. */
float e4m3_to_f32(uint8_t b);
/* OCP Microscaling 1.0: 2^(b - 127), 255 is NaN; E2M1: the low four bits, code 8 is -0. */
float e8m0_to_f32(uint8_t b);
float e2m1_to_f32(uint8_t code);
/* The nearest value of the format, ties to even, saturated at the largest (448; 6). NaN stays NaN in e4m3. */
uint8_t f32_to_e4m3(float f);
uint8_t f32_to_e2m1(float f);
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
/* As f32_to_f16, but what is beyond its largest, 65504, becomes that with its sign: what a KV cache keeps. */
static inline uint16_t f32_to_f16_saturated(float f)
{
    return f32_to_f16(f > 65504.0f ? 65504.0f : f < -65504.0f ? -65504.0f : f);
}
#endif
